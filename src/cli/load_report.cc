#include "cli/load_report.h"

#include <cstdarg>
#include <cstdio>

#include "cli/failure.h"

namespace evn::cli {
namespace {

struct Quantile {
  const char* name;
  double share;
};
constexpr Quantile kQuantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};

[[gnu::format(printf, 1, 2)]] std::string text_of(const char* format, ...) {
  char buffer[256];
  std::va_list list;
  va_start(list, format);
  std::vsnprintf(buffer, sizeof buffer, format, list);
  va_end(list);
  return buffer;
}

double per_second(const LoadResult& r, double seconds) { return seconds > 0 ? static_cast<double>(r.completed) / seconds : 0; }

// The length of the well-formed UTF-8 sequence that `text` has at `at`; 0: there is none.
std::size_t utf8_length(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const unsigned b = byte(0);
  const std::size_t length = b < 0x80                 ? 1
                             : b >= 0xc2 && b <= 0xdf ? 2
                             : b >= 0xe0 && b <= 0xef ? 3
                             : b >= 0xf0 && b <= 0xf4 ? 4
                                                      : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned c = byte(1);
  const bool refused = (b == 0xe0 && c < 0xa0) || (b == 0xed && c > 0x9f) || (b == 0xf0 && c < 0x90) || (b == 0xf4 && c > 0x8f);
  return refused ? 0 : length;
}

// With escape(character) for what is one byte.
template <typename F>
std::string escaped(const std::string& text, F&& escape) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    if (length <= 1) {
      out += length == 0 ? "\xef\xbf\xbd" : escape(text[i]);
    } else {
      out.append(text, i, length);
    }
    i += length == 0 ? 1 : length;
  }
  return out;
}

std::string row_of(const std::string& head, const LoadResult& r, double seconds) {
  std::string row = text_of("%10llu %9.1f %9.3f", wide(r.completed), per_second(r, seconds), r.latencies.mean_ms());
  for (const Quantile& q : kQuantiles) row += text_of(" %9.3f", r.latencies.quantile_ms(q.share));
  row += text_of(" %9.3f", r.latencies.max_ms());
  row +=
      text_of(" %6llu %6llu %9llu %6llu %10llu", wide(r.busy), wide(r.late), wide(r.cancelled), wide(r.failed), wide(r.unfinished));
  return row + "  " + head + "\n";
}

std::string json_of(const LoadResult& r, double seconds) {
  std::string json =
      text_of("\"completed\":%llu,\"busy\":%llu,\"late\":%llu,\"cancelled\":%llu,\"failed\":%llu,\"unfinished\":%llu,",
              wide(r.completed), wide(r.busy), wide(r.late), wide(r.cancelled), wide(r.failed), wide(r.unfinished));
  if (!r.first_error.empty()) json += "\"first_error\":" + json_text(r.first_error) + ",";
  json += text_of("\"per_second\":%.3f,\"latency_ms\":{\"mean\":%.4f", per_second(r, seconds), r.latencies.mean_ms());
  for (const Quantile& q : kQuantiles) json += text_of(",\"%s\":%.4f", q.name, r.latencies.quantile_ms(q.share));
  return json + text_of(",\"max\":%.4f}", r.latencies.max_ms());
}

LoadResult sum_of(const LoadOutcome& outcome) {
  LoadResult sum;
  for (const LoadResult& r : outcome.results) sum.add(r);
  return sum;
}

}  // namespace

std::string json_text(const std::string& text) {
  return "\"" +
         escaped(text,
                 [](char c) {
                   const auto u = static_cast<unsigned char>(c);
                   return u < 0x20 || u == 0x7f || c == '"' || c == '\\' ? text_of("\\u%04x", u) : std::string(1, c);
                 }) +
         "\"";
}

std::string xml_text(const std::string& text) {
  return escaped(text, [](char c) -> std::string {
    const auto u = static_cast<unsigned char>(c);
    switch (c) {
      case '&': return "&amp;";
      case '<': return "&lt;";
      case '>': return "&gt;";
      case '"': return "&quot;";
      default: return u < 0x20 || u == 0x7f ? "?" : std::string(1, c);
    }
  });
}

std::string stream_title(const LoadPlan& plan, const LoadTarget& target) {
  const LoadStream& s = target.stream;
  const double rate = s.has_own_load() ? s.rate : plan.rate;
  const int clients = s.has_own_load() ? s.clients : plan.clients;
  std::string title;
  for (const char c : target.name) title += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  if (s.priority != 0) title += text_of(", priority %d", s.priority);
  if (s.deadline_ns != 0) title += text_of(", deadline %.6g ms", static_cast<double>(s.deadline_ns) / 1e6);
  if (rate != 0) title += text_of(", %.6g per second", rate);
  if (clients != 0) title += text_of(rate != 0 ? ", at most %d at a time" : ", %d clients", clients);
  if (!s.has_own_load() && s.weight != 1) title += text_of(", weight %.6g", s.weight);
  return title;
}

std::string load_text(const LoadPlan& plan, const LoadOutcome& outcome, const std::string& statistics) {
  std::string text = text_of("%s by %s: %.3f s%s\n", plan.sync ? "runs" : "requests",
                             plan.sync ? "threads that call evn_session_run" : "evn_session_submit", outcome.seconds,
                             outcome.interrupted ? ", interrupted" : "");
  text += "latencies from the arrival on, in ms:\n";
  text += text_of("%10s %9s %9s %9s %9s %9s %9s %9s %6s %6s %9s %6s %10s\n", "completed", "per s", "mean", "p50", "p90", "p99",
                  "p99.9", "max", "busy", "late", "cancelled", "failed", "unfinished");
  for (std::size_t i = 0; i < plan.targets.size(); ++i)
    text += row_of(stream_title(plan, plan.targets[i]), outcome.results[i], outcome.seconds);
  if (plan.targets.size() > 1) text += row_of("all", sum_of(outcome), outcome.seconds);
  for (std::size_t i = 0; i < plan.targets.size(); ++i) {
    const LoadResult& r = outcome.results[i];
    if (r.failed != 0) text += stream_title(plan, plan.targets[i]) + ": the first that failed: " + r.first_error + "\n";
  }
  return text + "the library's statistics, in which warming up has a priority of its own:\n" + statistics;
}

std::string load_json(const LoadPlan& plan, const LoadOutcome& outcome, const std::string& statistics) {
  std::string json = text_of("{\"mode\":\"%s\",\"seconds\":%.6f,\"interrupted\":%s,\"streams\":[", plan.sync ? "run" : "submit",
                             outcome.seconds, outcome.interrupted ? "true" : "false");
  for (std::size_t i = 0; i < plan.targets.size(); ++i) {
    const LoadStream& s = plan.targets[i].stream;
    json += (i == 0 ? "{\"model\":" : ",{\"model\":") + json_text(plan.targets[i].name);
    json += text_of(",\"priority\":%d,\"clients\":%d,\"rate\":%.6g,\"weight\":%.6g,\"deadline_ms\":%.6g,", s.priority,
                    s.has_own_load() ? s.clients : plan.clients, s.has_own_load() ? s.rate : plan.rate, s.weight,
                    static_cast<double>(s.deadline_ns) / 1e6);
    json += json_of(outcome.results[i], outcome.seconds) + "}";
  }
  return json + "],\"all\":{" + json_of(sum_of(outcome), outcome.seconds) + "},\"statistics\":" + statistics + "}";
}

}  // namespace evn::cli
