package evener;

import java.util.Map;

/**
 * One thing that happened.
 *
 * @param level how much it matters
 * @param timestampNanoseconds of CLOCK_MONOTONIC, as {@link Evener#now}
 * @param message one line
 * @param event what happened, for programs: "session.created"; evn_log_record of the C API lists the names
 * @param device the device concerned, or ""
 * @param node the graph node concerned, or ""
 * @param fields figures of the event
 */
public record LogRecord(LogLevel level, long timestampNanoseconds, String message, String event, String device, String node, Map<String, String> fields) {}
