#include "runtime/report/compare.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_writer.h"
#include "base/number_text.h"

namespace evn {
namespace {

constexpr std::uint64_t kTimedNs = 60'000'000;          // of each model, at least, ...
constexpr std::size_t kLeastRuns = 7, kMostRuns = 301;  // ... within these

// Comparison of an output: its float32 tensors, and the number of its other tensors, which are not compared.
struct OutputComparison {
  const std::string& name;
  Closeness closeness = {};
  std::size_t skipped = 0;

  // Adds a tensor that is the output or a part of it.
  void add(const ConstTensor& expected, const ConstTensor& got) {
    if (expected.desc.dtype != DType::kFloat32 || got.desc.dtype != DType::kFloat32) {
      ++skipped;
      return;
    }
    if (expected.desc.shape != got.desc.shape) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "output \"%s\" has another shape in the other session", name.c_str());
    }
    add_closeness(expected, got, &closeness);
  }

  // Adds the tensors in a sequence, an optional or a map.
  void add(const RuntimeValue& expected, const RuntimeValue& got) {
    if (expected.desc.wraps != got.desc.wraps || expected.parts.size() != got.parts.size()) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "output \"%s\" has other parts in the other session", name.c_str());
    }
    if (expected.is_tensor()) return add(expected.tensor(), got.tensor());
    for (std::size_t i = 0; i < expected.parts.size(); ++i) add(*expected.parts[i], *got.parts[i]);
  }

  void add(const RunValue& expected, const RunValue& got) {
    if ((expected.tensor == nullptr) != (got.tensor == nullptr)) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "output \"%s\" has another type in the other session", name.c_str());
    }
    if (expected.tensor == nullptr) return add(*expected.runtime_value, *got.runtime_value);
    if (!is_float_on_host(expected) || !is_float_on_host(got)) {
      ++skipped;
      return;
    }
    add(ConstTensor{expected.tensor->desc(), expected.tensor->buffer().address()},
        ConstTensor{got.tensor->desc(), got.tensor->buffer().address()});
  }

  std::string text() const {
    if (closeness.elements == 0) return skipped > 0 ? "not float32, not compared" : "no elements to compare";
    const std::string rest = skipped > 0 ? "; tensors that are not float32 and not compared: " + std::to_string(skipped) : "";
    return closeness_text(closeness) + rest;
  }
};

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
  std::ranges::sort(values);
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
    OutputComparison output{name};
    output.add(wanted[k], made[k]);
    json.begin_object();
    json.field("name", name);
    write_closeness(json, output.closeness);
    json.end_object();
    text += "output \"" + name + "\": " + output.text() + "\n";
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
