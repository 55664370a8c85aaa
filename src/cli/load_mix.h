// What `evener bench --mix` is given: one line for each stream of requests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace evn::cli {

// Requests of one model, of one priority.
struct LoadStream {
  std::string path;   // of the model
  double weight = 1;  // among the streams that share clients or arrivals
  int clients = 0;    // of its own; 0: it shares those of --clients
  double rate = 0;    // arrivals per second of its own; 0: it shares those of --rate
  int priority = 0;
  std::uint64_t deadline_ns = 0;    // after the arrival; 0: none
  std::vector<std::string> shapes;  // NAME=DIMS

  bool has_own_load() const { return clients != 0 || rate != 0; }
};

// Throws a Failure that names the file and the line.
std::vector<LoadStream> read_mix(const std::string& file);

// A decimal number in (0, most]; throws a usage Failure that begins with `what`.
double parse_positive(const std::string& what, const std::string& text, double most);

}  // namespace evn::cli
