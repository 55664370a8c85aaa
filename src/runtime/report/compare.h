// Two sessions held against each other over the same inputs: how far their outputs are apart, and how long each takes.
#pragma once

#include "runtime/report/run_values.h"

namespace evn {

class JsonWriter;

// Session with the inputs of its graph.
struct Comparand {
  Session* session;
  std::span<const RunValue> inputs;
};

// Median times of a run of each session, which take turns: several runs, more of fast models. Outputs are made anew each time.
std::vector<std::uint64_t> time_in_turns(std::span<const Comparand> sessions);
std::vector<std::uint64_t> time_in_turns(std::span<Session* const> sessions, std::span<const RunValue> inputs);

// What evn_session_compare writes. Throws EVN_ERROR_INVALID_ARGUMENT (other outputs), what a run throws.
std::string compare_sessions(const Comparand& expected, const Comparand& got, evn_format format);

// "cosine", "sqnr_db", "top1", "largest_error" of an object; null where no element was looked at.
void write_closeness(JsonWriter& json, const Closeness& c);
std::string closeness_text(const Closeness& c);
std::string ms_text(std::uint64_t ns);
std::uint64_t median(std::vector<std::uint64_t> values);

// A number, or null for one that JSON has not.
void number_field(JsonWriter& json, const char* key, double x);

}  // namespace evn
