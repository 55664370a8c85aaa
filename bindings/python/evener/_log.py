"""The log of a runtime, delivered to a Python function."""
import contextlib
import dataclasses

from . import _callbacks, _raw
from ._library import text_of

LEVELS = ("error", "warning", "info", "debug")


@dataclasses.dataclass(frozen=True)
class LogRecord:
    """One thing that happened, as evn_log_record of the C API has it."""

    level: str    # "error", "warning", "info" or "debug"
    event: str    # what happened, for programs: "device.opened", "program.compiling", ...
    message: str  # the same as a line
    device: str   # the device concerned, or ""
    node: str     # the graph node concerned, or ""
    fields: dict  # figures of the event, as text


def _deliver(user, record):
    r = record.contents
    fields = {text_of(r.fields[i].key): text_of(r.fields[i].value) for i in range(r.field_count)}
    _callbacks.find(user)(LogRecord(LEVELS[r.level], text_of(r.event), text_of(r.message), text_of(r.device), text_of(r.node), fields))


_DELIVER = _callbacks.callback(_raw.evn_log_sink, _deliver)


@contextlib.contextmanager
def delivered(options, function, level):
    """Puts a function of one LogRecord, or None, into options of a runtime, which has it until it ends if the body makes it."""
    if function is None:
        yield
        return
    if not callable(function):
        raise TypeError("log must be a function of one LogRecord")
    if level not in LEVELS:
        raise ValueError(f'log_level must be one of {", ".join(LEVELS)}, not {level!r}')
    options.log_sink, options.log_sink_release, options.log_level = _DELIVER, _callbacks.RELEASE, LEVELS.index(level)
    with _callbacks.lent(function) as options.log_sink_user:
        yield
