// Drivers that are asked for their devices by a process of their own: this program, which runs itself.
#pragma once

#include <string>

#include "evener/evener.h"

namespace evn::cli {

// With this as its one argument the program asks all drivers for their devices, and says on descriptor 3 when that is done. The
// library runs it so (evn_runtime_options.probe_program).
inline constexpr char kProbeArgument[] = "--probe-drivers";
int probe_drivers();

// The path of this program.
std::string own_program();

// Whether the runtime's probe has failed, by its log, which goes to stderr all the same.
class ProbeWatch {
 public:
  ProbeWatch() = default;
  ProbeWatch(const ProbeWatch&) = delete;
  ProbeWatch& operator=(const ProbeWatch&) = delete;
  // It must outlive the runtime that is made with the options.
  void follow(evn_runtime_options* options);
  bool has_failed() const { return failed_; }

 private:
  bool failed_ = false;
};

}  // namespace evn::cli
