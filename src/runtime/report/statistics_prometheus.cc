// Statistics as Prometheus reads them: families of samples, each with its help and type before it.
#include "base/number_text.h"
#include "runtime/objects/runtime.h"
#include "runtime/report/statistics.h"

namespace evn {
namespace {

// Upper bounds of the buckets that are shown, in the unit of 1 us. What is counted in a bucket of ours that one of them cuts is
// shown above it.
constexpr std::uint64_t kLadderUs[] = {10,        25,        50,         100,        250,        500,        1'000,   2'500,
                                       5'000,     10'000,    25'000,     50'000,     100'000,    250'000,    500'000, 1'000'000,
                                       2'500'000, 5'000'000, 10'000'000, 25'000'000, 50'000'000, 100'000'000};
constexpr std::uint64_t kRowLadder[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// So many units of 10^-digits, without zeros at the end: no number is rounded.
std::string decimal(std::uint64_t units, int digits) {
  std::string text = std::to_string(units);
  const auto wanted = static_cast<std::size_t>(digits) + 1;
  if (text.size() < wanted) text.insert(0, wanted - text.size(), '0');
  text.insert(text.size() - static_cast<std::size_t>(digits), ".");
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

class Family {
 public:
  Family(const char* name, const char* type, const char* help) : name_(name) {
    text_ = std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void add(const char* suffix, const std::string& labels, const std::string& value) {
    text_ += name_;
    text_ += suffix;
    text_ += "{" + labels + "} " + value + "\n";
  }
  void add(const char* suffix, const std::string& labels, std::uint64_t value) { add(suffix, labels, std::to_string(value)); }
  // A histogram; count_up_to(bound) for each bound of the ladder.
  template <std::size_t N, typename F>
  void add_histogram(const std::string& labels, const std::uint64_t (&ladder)[N], int digits, std::uint64_t count,
                     const std::string& sum, F&& count_up_to) {
    for (const std::uint64_t bound : ladder) add("_bucket", labels + ",le=\"" + decimal(bound, digits) + "\"", count_up_to(bound));
    add("_bucket", labels + ",le=\"+Inf\"", count);
    add("_sum", labels, sum);
    add("_count", labels, count);
  }
  void add_times(const std::string& labels, const TimeCounts& times) {
    add_histogram(labels, kLadderUs, 6, times.count, decimal(times.sum_ns, 9),
                  [&](std::uint64_t us) { return times.count_up_to(us * 1000); });
  }
  const std::string& text() const { return text_; }

 private:
  const char* const name_;
  std::string text_;
};

struct Families {
  Family total{"evener_requests_total", "counter", "Runs and requests that have ended, by how they ended."};
  Family queued{"evener_requests_queued", "gauge", "Runs and requests that wait."};
  Family running{"evener_requests_running", "gauge", "Runs and requests that compute."};
  Family waited{"evener_request_wait_seconds", "histogram", "Time before a run or request computed."};
  Family ran{"evener_request_run_seconds", "histogram", "Time in which a run or request that completed was computed."};
  Family rows{"evener_batch_rows", "histogram", "Rows of batches of requests."};
  Family memory{"evener_memory_bytes", "gauge",
                "Memory of devices: in use now, at most so far, reserved, of this cached or unused, and its limit."};
  Family usable{"evener_device_usable", "gauge", "1 for a device that works, 0 for one that is lost or in quarantine."};
  Family quarantines{"evener_device_quarantines_total", "counter", "How often a device was in quarantine."};

  void add(const SessionCounts& s) {
    const std::string session = "session=" + quoted(s.label);
    queued.add("", session, s.queued);
    running.add("", session, s.running);
    for (const PriorityCounts& p : s.priorities) {
      const std::string labels = session + ",priority=\"" + std::to_string(p.priority) + "\"";
      for (std::size_t i = 0; i < kRunOutcomes; ++i)
        total.add("", labels + ",outcome=\"" + outcome_name(static_cast<RunOutcome>(i)) + "\"", p.outcomes[i]);
      waited.add_times(labels, p.waited);
      ran.add_times(labels, p.ran);
    }
    if (!s.batches.empty()) add_rows(session, s);
  }
  void add_rows(const std::string& session, const SessionCounts& s) {
    std::uint64_t count = 0, sum = 0;
    for (const BatchCount& b : s.batches) {
      count += b.count;
      sum += b.count * b.rows;
    }
    rows.add_histogram(session, kRowLadder, 0, count, std::to_string(sum), [&](std::uint64_t bound) {
      std::uint64_t n = 0;
      for (const BatchCount& b : s.batches) n += b.rows <= bound ? b.count : 0;
      return n;
    });
  }
  void add(Device& device) {
    const PoolStats stats = device.pool().stats();
    const std::string label = "device=" + quoted(device.name());
    memory.add("", label + ",kind=\"current\"", stats.current);
    memory.add("", label + ",kind=\"peak\"", stats.peak);
    memory.add("", label + ",kind=\"reserved\"", stats.reserved);
    memory.add("", label + ",kind=\"cached\"", stats.cached);
    memory.add("", label + ",kind=\"unused\"", stats.unused());
    memory.add("", label + ",kind=\"largest_free_block\"", stats.largest_free_block);
    memory.add("", label + ",kind=\"limit\"", stats.limit == UINT64_MAX ? "+Inf" : std::to_string(stats.limit));
    usable.add("", label, std::uint64_t{device.is_out() ? 0u : 1u});
    quarantines.add("", label, std::uint64_t{device.quarantine().count()});
  }
};

}  // namespace

std::string prometheus_text(const Runtime& runtime) {
  Families f;
  runtime.statistics().for_each([&](const RunStatistics& s) { f.add(s.read()); });
  for (std::size_t i = 0; i < runtime.device_count(); ++i) f.add(*runtime.device_at(i));
  std::string text;
  for (const Family* family : {&f.total, &f.queued, &f.running, &f.waited, &f.ran, &f.rows, &f.memory, &f.usable, &f.quarantines})
    text += family->text();
  return text;
}

}  // namespace evn
