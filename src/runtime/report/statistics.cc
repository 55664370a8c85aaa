#include "runtime/report/statistics.h"

#include "base/json_writer.h"
#include "base/number_text.h"
#include "runtime/objects/runtime.h"

namespace evn {
namespace {

struct Quantile {
  const char* name;
  double share;
};
constexpr Quantile kQuantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};

// -------------------------------------------------------------------------------------------------------------- JSON --

void write_times(JsonWriter& json, const char* key, const TimeCounts& times) {
  json.key(key);
  json.begin_object();
  json.field("count", times.count);
  json.field("mean", times.mean_ns());
  for (const Quantile& q : kQuantiles) json.field(q.name, times.quantile_ns(q.share));
  json.field("max", times.max_ns);
  json.end_object();
}

void write_counts(JsonWriter& json, const PriorityCounts& p) {
  for (std::size_t i = 0; i < kRunOutcomes; ++i) json.field(outcome_name(static_cast<RunOutcome>(i)), p.outcomes[i]);
  write_times(json, "wait_ns", p.waited);
  write_times(json, "run_ns", p.ran);
}

void write_session(JsonWriter& json, const SessionCounts& s) {
  json.begin_object();
  json.field("name", s.name);
  json.field("queued", s.queued);
  json.field("running", s.running);
  if (s.uncounted != 0) json.field("uncounted", s.uncounted);
  json.key("batches");
  json.begin_array();
  for (const BatchCount& b : s.batches) {
    json.begin_object();
    json.field("rows", b.rows);
    json.field("count", b.count);
    json.end_object();
  }
  json.end_array();
  json.key("priorities");
  json.begin_array();
  for (const PriorityCounts& p : s.priorities) {
    json.begin_object();
    json.field("priority", std::int64_t{p.priority});
    write_counts(json, p);
    json.end_object();
  }
  json.end_array();
  json.key("all");
  json.begin_object();
  write_counts(json, s.all());
  json.end_object();
  json.end_object();
}

void write_devices(JsonWriter& json, const Runtime& runtime) {
  json.begin_array();
  for (std::size_t i = 0; i < runtime.device_count(); ++i) {
    Device& device = *runtime.device_at(i);
    const PoolStats stats = device.pool().stats();
    json.begin_object();
    json.field("name", device.name());
    json.field("condition", device.why_out());
    json.field("quarantines", std::uint64_t{device.quarantine().count()});
    json.field("current_bytes", stats.current);
    json.field("peak_bytes", stats.peak);
    json.field("reserved_bytes", stats.reserved);
    json.field("cached_bytes", stats.cached);
    json.field("unused_bytes", stats.unused());
    json.field("free_blocks", stats.free_blocks);
    json.field("largest_free_block_bytes", stats.largest_free_block);
    json.field("fragmentation_percent", static_cast<std::uint64_t>(100 * stats.fragmentation() + 0.5));
    json.field("weights_dropped_bytes", stats.weights_dropped);
    json.field("weights_restored_bytes", stats.weights_restored);
    json.key("limit_bytes");
    if (stats.limit == UINT64_MAX) {
      json.null();
    } else {
      json.value(stats.limit);
    }
    json.end_object();
  }
  json.end_array();
}

// -------------------------------------------------------------------------------------------------------------- text --

std::string right(std::string text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string time_text(std::uint64_t ns) {
  const auto x = static_cast<double>(ns);
  if (ns < 10'000) return fixed_text(x / 1e3, 2) + " us";
  if (ns < 1'000'000) return fixed_text(x / 1e3, 0) + " us";
  if (ns < 10'000'000) return fixed_text(x / 1e6, 2) + " ms";
  if (ns < 10'000'000'000) return fixed_text(x / 1e6, 0) + " ms";
  return fixed_text(x / 1e9, 1) + " s";
}

void add_times(std::string& text, const std::string& head, const TimeCounts& times) {
  text += "  " + right(head, 12) + right(std::to_string(times.count), 12) + right(time_text(times.mean_ns()), 10);
  for (const Quantile& q : kQuantiles) text += right(time_text(times.quantile_ns(q.share)), 10);
  text += right(time_text(times.max_ns), 10) + "\n";
}

std::string priority_text(const PriorityCounts& p, bool all) { return all ? "all" : std::to_string(p.priority); }

void add_session(std::string& text, const SessionCounts& s) {
  text += "session ";
  for (const char c : s.label) text += c == '\n' ? '?' : c;
  text += ": " + std::to_string(s.queued) + " queued, " + std::to_string(s.running) + " running\n";
  if (s.uncounted != 0) text += "  times not kept for want of memory: " + std::to_string(s.uncounted) + "\n";
  std::vector<PriorityCounts> rows = s.priorities;
  if (rows.size() != 1) rows.push_back(s.all());
  const auto is_all = [&](std::size_t i) { return s.priorities.size() != 1 && i + 1 == rows.size(); };
  text += "  " + right("priority", 12);
  for (std::size_t i = 0; i < kRunOutcomes; ++i) text += right(outcome_name(static_cast<RunOutcome>(i)), 12);
  text += "\n";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    text += "  " + right(priority_text(rows[r], is_all(r)), 12);
    for (const std::uint64_t n : rows[r].outcomes) text += right(std::to_string(n), 12);
    text += "\n";
  }
  text += "  " + right("time", 12) + right("count", 12) + right("mean", 10);
  for (const char* head : {"p50", "p90", "p99", "p99.9", "max"}) text += right(head, 10);
  text += "\n";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::string priority = priority_text(rows[r], is_all(r));
    add_times(text, "wait " + priority, rows[r].waited);
    add_times(text, "run " + priority, rows[r].ran);
  }
  for (const BatchCount& b : s.batches) {
    text += "  batches of " + std::to_string(b.rows) + " rows: " + std::to_string(b.count) + "\n";
  }
}

void add_devices(std::string& text, const Runtime& runtime) {
  for (std::size_t i = 0; i < runtime.device_count(); ++i) {
    Device& device = *runtime.device_at(i);
    const PoolStats stats = device.pool().stats();
    text += "memory of " + device.name() + ": " + std::to_string(stats.current) + " bytes in use, peak " +
            std::to_string(stats.peak) + ", reserved " + std::to_string(stats.reserved) + " (cached " +
            std::to_string(stats.cached) + " in " + std::to_string(stats.free_blocks) + " blocks, the largest " +
            std::to_string(stats.largest_free_block) + ")" +
            (stats.limit == UINT64_MAX ? ", no limit\n" : ", limit " + std::to_string(stats.limit) + "\n");
    const std::string why = device.why_out();
    const std::uint32_t quarantines = device.quarantine().count();
    if (!why.empty()) text += "device " + device.name() + ": " + why + "\n";
    if (quarantines != 0) text += "device " + device.name() + ": " + std::to_string(quarantines) + " quarantines so far\n";
  }
}

}  // namespace

std::string describe_statistics(const SessionCounts& session, evn_format format) {
  std::string text;
  JsonWriter json;
  if (format != EVN_FORMAT_JSON) {
    add_session(text, session);
    return text;
  }
  write_session(json, session);
  return json.take();
}

std::string describe_statistics(const Runtime& runtime, evn_format format) {
  std::string text;
  JsonWriter json;
  const bool is_json = format == EVN_FORMAT_JSON;
  json.begin_object();
  json.key("sessions");
  json.begin_array();
  runtime.statistics().for_each([&](const RunStatistics& s) {
    if (is_json) {
      write_session(json, s.read());
    } else {
      add_session(text, s.read());
    }
  });
  json.end_array();
  json.key("devices");
  write_devices(json, runtime);
  json.end_object();
  if (is_json) return json.take();
  add_devices(text, runtime);
  return text;
}

}  // namespace evn
