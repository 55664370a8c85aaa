#include "runtime/report/compare.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_writer.h"
#include "base/number_text.h"
#include "base/sort.h"

namespace evn {
namespace {

constexpr std::uint64_t kTimedNs = 60'000'000;          // of each model, at least, ...
constexpr std::size_t kLeastRuns = 7, kMostRuns = 301;  // ... within these

}  // namespace

std::vector<std::uint64_t> time_in_turns(std::span<Session* const> sessions, std::span<const RunValue> inputs) {
  std::vector<Comparand> all;
  for (Session* s : sessions) all.push_back({s, inputs});
  return time_in_turns(all);
}

std::vector<std::uint64_t> time_in_turns(std::span<const Comparand> sessions) {
  std::vector<std::vector<std::uint64_t>> times(sessions.size());
  for (const Comparand& c : sessions) run_once(*c.session, c.inputs);
  std::uint64_t spent = 0;
  while (times[0].size() < kLeastRuns || (spent < kTimedNs && times[0].size() < kMostRuns)) {
    for (std::size_t k = 0; k < sessions.size(); ++k) {
      const std::uint64_t begin = os::now_ns();
      run_once(*sessions[k].session, sessions[k].inputs);
      times[k].push_back(os::now_ns() - begin);
    }
    spent += times[0].back();
  }
  std::vector<std::uint64_t> medians;
  for (std::vector<std::uint64_t>& t : times) medians.push_back(median(std::move(t)));
  return medians;
}

std::uint64_t median(std::vector<std::uint64_t> values) {
  sort_stably(values);
  return values[values.size() / 2];
}

void number_field(JsonWriter& json, const char* key, double x) {
  json.key(key);
  if (std::isfinite(x)) {
    json.number(shortest_text(x));
  } else {
    json.null();
  }
}

void write_closeness(JsonWriter& json, const Closeness& c) {
  const bool any = c.elements > 0;
  number_field(json, "cosine", any ? c.cosine() : NAN);
  number_field(json, "sqnr_db", any ? c.sqnr_db() : NAN);
  number_field(json, "top1", any ? c.top1() : NAN);
  number_field(json, "largest_error", any ? c.largest_error : NAN);
}

std::string closeness_text(const Closeness& c) {
  return "cosine " + fixed_text(c.cosine(), 5) + ", " + fixed_text(c.sqnr_db(), 1) + " dB, the same largest element in " +
         fixed_text(100 * c.top1(), 1) + " % of rows, largest error " + fixed_text(c.largest_error, 4);
}

std::string ms_text(std::uint64_t ns) { return fixed_text(static_cast<double>(ns) / 1e6, 3) + " ms"; }

std::string compare_sessions(const Comparand& expected, const Comparand& got, evn_format format) {
  const Graph &a = expected.session->graph(), &b = got.session->graph();
  if (a.outputs.size() != b.outputs.size()) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "one session has %zu outputs, the other %zu", a.outputs.size(), b.outputs.size());
  }
  const std::vector<RunValue> wanted = run_once(*expected.session, expected.inputs), made = run_once(*got.session, got.inputs);
  std::string text;
  JsonWriter json;
  json.begin_object();
  json.key("outputs");
  json.begin_array();
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const std::string& name = a.values[static_cast<std::size_t>(a.outputs[k])].name;
    if (is_float_on_host(wanted[k]) && is_float_on_host(made[k]) &&
        wanted[k].tensor->desc().shape != made[k].tensor->desc().shape) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "output \"%s\" has another shape in the other session", name.c_str());
    }
    Closeness c;
    add_closeness(wanted[k], made[k], &c);
    json.begin_object();
    json.field("name", name);
    write_closeness(json, c);
    json.end_object();
    text += "output \"" + name + "\": " + (c.elements > 0 ? closeness_text(c) : "not float32, not compared") + "\n";
  }
  json.end_array();
  const Comparand both[] = {expected, got};
  const std::vector<std::uint64_t> times = time_in_turns(both);
  json.field("expected_ns", times[0]);
  json.field("got_ns", times[1]);
  json.end_object();
  text += "time: " + ms_text(times[0]) + " and " + ms_text(times[1]) + "\n";
  return format == EVN_FORMAT_JSON ? json.take() : text;
}

}  // namespace evn
