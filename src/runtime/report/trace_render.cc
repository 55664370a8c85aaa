// A trace as JSON that Chrome and Perfetto open, and as a table by node.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/json_writer.h"
#include "base/number_text.h"
#include "runtime/run/trace.h"

namespace evn {
namespace {

// Track numbers of the JSON: the host's threads are one process, each device with a queue is one.
constexpr std::int64_t kHost = 1;
constexpr std::int64_t kFirstWorker = 1000;
constexpr std::int64_t kFirstDevice = 10;

std::string microseconds(std::uint64_t ns) {
  std::string rest = std::to_string(ns % 1000);
  return std::to_string(ns / 1000) + "." + std::string(3 - rest.size(), '0') + rest;
}

Device* device_of(const TraceEvent& e, std::uint8_t slot) { return e.graph->devices[slot]; }

// A device's clock against the host's. A step was handed over between start_ns and end_ns, so each one bounds the difference from
// both sides; the tightest bounds of the whole trace are used.
class Clocks {
 public:
  explicit Clocks(const std::vector<const TraceEvent*>& events) {
    for (const TraceEvent* e : events) {
      if (e->device.end == 0) continue;
      const auto [it, is_new] = bounds_.try_emplace(device_of(*e, e->slot), Bounds{INT64_MIN, INT64_MAX});
      it->second.low = std::max(it->second.low, static_cast<std::int64_t>(e->start_ns - e->device.queued));
      it->second.high = std::min(it->second.high, static_cast<std::int64_t>(e->end_ns - e->device.queued));
    }
  }
  // The host's time of a device's.
  std::uint64_t host_time(const Device* device, std::uint64_t time) const {
    const Bounds& b = bounds_.at(device);
    // Bounds that cross: the clocks drift, or the device notes the hand-over late. Then no step may seem to begin too early.
    const std::int64_t shift = b.low <= b.high ? b.low + (b.high - b.low) / 2 : b.low;
    return time + static_cast<std::uint64_t>(shift);
  }

 private:
  struct Bounds {
    std::int64_t low;
    std::int64_t high;
  };
  std::map<const Device*, Bounds> bounds_;
};

// Names of the inputs with a default that a graph other than the traced one takes; "" of the traced one.
std::string open_inputs(const CompiledGraph& traced, const TraceEvent& e) {
  std::string names;
  if (e.graph == &traced) return names;
  for (const std::string& name : e.graph->model->open_inputs) names += (names.empty() ? "" : ", ") + name;
  return names;
}

std::string name_of(const TraceEvent& e) {
  const CompiledGraph& c = *e.graph;
  switch (e.kind) {
    case TraceKind::kRun: return "run";
    case TraceKind::kQueue: return "wait for a core";
    case TraceKind::kPrepare: return "prepare";
    case TraceKind::kWait: return "wait";
    case TraceKind::kMemory: return "memory " + c.devices[e.slot]->name();
    case TraceKind::kCopy: return "copy " + c.graph().values[e.value].name;
    case TraceKind::kKernel:
    case TraceKind::kHost:
    case TraceKind::kTiles: return c.graph().nodes[e.node].name;
  }
  return "";
}

// -------------------------------------------------------------------------------------------------------------- JSON --

class JsonTrace {
 public:
  JsonTrace(const Trace& trace, const std::vector<const TraceEvent*>& events)
      : c_(trace.graph()), devices_(trace.devices()), origin_(trace.origin_ns()), clocks_(events) {
    json_.begin_object();
    json_.field("displayTimeUnit", "ns");
    json_.key("otherData");
    json_.begin_object();
    json_.field("model", c_.model->file_name);
    json_.field("dropped_events", trace.dropped());
    json_.end_object();
    json_.key("traceEvents");
    json_.begin_array();
    write_names(events);
    for (const TraceEvent* e : events) write(*e);
    json_.end_array();
    json_.end_object();
  }
  std::string take() { return json_.take(); }

 private:
  void write_names(const std::vector<const TraceEvent*>& events) {
    write_name("process_name", kHost, 0, devices_[0]->name() + " (host)");
    for (std::size_t i = 1; i < devices_.size(); ++i) {
      const std::int64_t process = process_of(devices_[i]);
      write_name("process_name", process, 0, devices_[i]->name());
      write_name("thread_name", process, 1, "queue");
    }
    int workers = 0;
    for (const TraceEvent* e : events) {
      const auto n = static_cast<std::int64_t>(callers_.size()) + 1;
      if (e->kind != TraceKind::kTiles && callers_.try_emplace(e->caller, n).second) {
        write_name("thread_name", kHost, n, "caller " + std::to_string(n));
      }
      workers = std::max<int>(workers, e->worker);
    }
    for (int i = 1; i <= workers; ++i) write_name("thread_name", kHost, kFirstWorker + i, "worker " + std::to_string(i));
  }

  void write_name(const char* what, std::int64_t process, std::int64_t thread, const std::string& name) {
    json_.begin_object();
    json_.field("ph", "M");
    json_.field("name", what);
    json_.field("pid", process);
    json_.field("tid", thread);
    json_.key("args");
    json_.begin_object();
    json_.field("name", name);
    json_.end_object();
    json_.end_object();
  }

  std::int64_t process_of(const Device* device) const {
    return kFirstDevice + (std::find(devices_.begin(), devices_.end(), device) - devices_.begin());
  }

  // Opens an event, up to and with "args": {.
  void open(const char* phase, const std::string& name, const char* category, std::int64_t process, std::int64_t thread,
            std::uint64_t start_ns) {
    json_.begin_object();
    json_.field("ph", phase);
    json_.field("name", name);
    json_.field("cat", category);
    json_.field("pid", process);
    json_.field("tid", thread);
    json_.key("ts");
    json_.number(microseconds(start_ns > origin_ ? start_ns - origin_ : 0));
  }
  void open_span(const std::string& name, const char* category, std::int64_t process, std::int64_t thread, std::uint64_t start_ns,
                 std::uint64_t length_ns) {
    open("X", name, category, process, thread, start_ns);
    json_.key("dur");
    json_.number(microseconds(length_ns));
    json_.key("args");
    json_.begin_object();
  }
  void close() {
    json_.end_object();
    json_.end_object();
  }

  void write(const TraceEvent& e) {
    const std::string name = name_of(e);
    switch (e.kind) {
      case TraceKind::kMemory:
        open("C", name, "memory", kHost, 0, e.start_ns);
        json_.key("args");
        json_.begin_object();
        json_.field("current_bytes", e.bytes);
        json_.field("arena_bytes", e.arena_bytes);
        return close();
      case TraceKind::kTiles:
        open_span(name, "tiles", kHost, kFirstWorker + e.worker, e.start_ns, e.end_ns - e.start_ns);
        json_.field("kernel", e.kernel->name);
        return close();
      case TraceKind::kKernel:
      case TraceKind::kCopy: return write_step(e, name);
      default:
        open_span(name, e.kind == TraceKind::kHost ? "host" : name.c_str(), kHost, callers_.at(e.caller), e.start_ns,
                  e.end_ns - e.start_ns);
        return close();
    }
  }

  void write_step(const TraceEvent& e, const std::string& name) {
    const char* const category = e.kind == TraceKind::kKernel ? "kernel" : "copy";
    const bool measured = e.device.end != 0;
    const Device* const device = device_of(e, e.slot);
    const bool queued = !device->traits().host_addressable;
    if (measured) {
      open_span("enqueue " + name, "enqueue", kHost, callers_.at(e.caller), e.start_ns, e.end_ns - e.start_ns);
      close();
    }
    const std::uint64_t start = measured ? clocks_.host_time(device, e.device.start) : e.start_ns;
    open_span(name, category, queued ? process_of(device) : kHost, queued ? 1 : callers_.at(e.caller), start, e.busy_ns());
    if (e.kind == TraceKind::kKernel) {
      json_.field("op", e.graph->graph().nodes[e.node].op_type);
      json_.field("kernel", e.kernel->name);
      json_.field("shapes", e.shapes);
      if (e.flops > 0) {
        json_.key("flops");
        json_.number(fixed_text(e.flops, 0));
      }
    } else {
      json_.field("from", device_of(e, e.from_slot)->name());
      json_.field("to", device_of(e, e.to_slot)->name());
    }
    if (const std::string names = open_inputs(c_, e); !names.empty()) json_.field("open_inputs", names);
    json_.field("device", device->name());
    json_.field("bytes", e.bytes);
    if (queued) json_.field("clock", measured ? "device" : "host");
    close();
  }

  const CompiledGraph& c_;
  const std::vector<Device*> devices_;
  const std::uint64_t origin_;
  const Clocks clocks_;
  std::map<std::uint64_t, std::int64_t> callers_;  // track of each thread that ran
  JsonWriter json_;
};

// ------------------------------------------------------------------------------------------------------------- table --

struct Row {
  std::string node;
  std::string op;
  std::string device;
  std::string kernel;
  std::vector<std::uint64_t> times;
  std::uint64_t total = 0;
  double flops = 0;
  double bytes = 0;
  bool is_step = false;
};

std::vector<Row> rows_of(const CompiledGraph& c, const std::vector<const TraceEvent*>& events) {
  std::map<std::string, Row> rows;
  for (const TraceEvent* e : events) {
    if (e->kind == TraceKind::kMemory || e->kind == TraceKind::kTiles || e->kind == TraceKind::kRun) continue;
    const std::string names = open_inputs(c, *e);
    const std::string name = name_of(*e) + (names.empty() ? "" : " (with " + names + ")");
    const bool copy = e->kind == TraceKind::kCopy;
    const std::string way = copy ? device_of(*e, e->from_slot)->name() + ">" + device_of(*e, e->to_slot)->name() : "";
    Row& row = rows[std::to_string(static_cast<int>(e->kind)) + "/" + way + "/" + name];
    row.is_step = copy || e->kind == TraceKind::kKernel || e->kind == TraceKind::kHost;
    row.node = row.is_step ? name : "(" + name + ")";
    row.op = copy ? "" : e->node >= 0 ? e->graph->graph().nodes[e->node].op_type : "";
    row.device = copy ? way : row.is_step ? device_of(*e, e->slot)->name() : "";
    row.kernel = e->kernel != nullptr ? e->kernel->name : "";
    row.times.push_back(e->busy_ns());
    row.total += row.times.back();
    row.flops += e->flops;
    row.bytes += static_cast<double>(e->bytes);
  }
  std::vector<Row> list;
  for (auto& entry : rows) list.push_back(std::move(entry.second));
  std::ranges::stable_sort(list, [](const Row& a, const Row& b) { return a.total > b.total; });
  return list;
}

std::uint64_t median(std::vector<std::uint64_t> times) {
  std::ranges::sort(times);
  return times.empty() ? 0 : times[(times.size() - 1) / 2];
}

// Numbers stand right, words left; widths are those of the longest.
std::string align(const std::vector<std::vector<std::string>>& table, std::size_t first_number, std::size_t last_number) {
  std::vector<std::size_t> widths(table[0].size(), 0);
  for (const auto& line : table) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : table) {
    std::string row;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string blank(widths[i] - line[i].size(), ' ');
      row += (i == 0 ? "" : "  ") + (i >= first_number && i <= last_number ? blank + line[i] : line[i] + blank);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

}  // namespace

std::string Trace::to_json() const { return JsonTrace(*this, events()).take(); }

std::string Trace::to_text() const {
  const std::vector<const TraceEvent*> list = events();
  std::vector<std::uint64_t> runs;
  for (const TraceEvent* e : list) {
    if (e->kind == TraceKind::kRun) runs.push_back(e->end_ns - e->start_ns);
  }
  const std::vector<Row> rows = rows_of(graph_, list);
  std::uint64_t all = 0;
  for (const Row& row : rows) all += row.is_step ? row.total : 0;
  std::vector<std::vector<std::string>> table = {
      {"node", "op", "count", "median us", "total us", "share", "GFLOPS", "GB/s", "device", "kernel"}};
  for (const Row& row : rows) {
    const auto ns = static_cast<double>(row.total);
    const auto per_second = [&](double amount) {
      return row.is_step && amount > 0 && ns > 0 ? fixed_text(amount / ns, 2) : std::string("-");
    };
    const std::string share = row.is_step && all > 0 ? fixed_text(100 * ns / static_cast<double>(all), 1) + "%" : "-";
    table.push_back({row.node, row.op, std::to_string(row.times.size()),
                     fixed_text(static_cast<double>(median(row.times)) / 1e3, 1), fixed_text(ns / 1e3, 1), share,
                     per_second(row.flops), per_second(row.bytes), row.device, row.kernel});
  }
  std::string text = std::to_string(runs.size()) + " runs, median " + fixed_text(static_cast<double>(median(runs)) / 1e6, 3) +
                     " ms; " + std::to_string(list.size()) + " events, " + std::to_string(dropped()) + " dropped\n";
  return text + align(table, 2, 7);
}

}  // namespace evn
