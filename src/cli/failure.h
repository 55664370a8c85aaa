// How the command ends when something fails: exit codes, and the one exception that carries a message to main.
#pragma once

#include <cstdint>
#include <string>

#include "evener/evener.h"

namespace evn::cli {

// Documented in `evener --help`.
enum ExitCode {
  kExitOk = 0,
  kExitFailure = 1,  // a run failed, a file cannot be written, no memory
  kExitUsage = 2,    // the command line is wrong
  kExitConfig = 3,   // the configuration is wrong or cannot be read
  kExitModel = 4,    // the model is wrong, not supported or cannot be read
  kExitDevice = 5,   // a device that the configuration or command line asks for is absent or stopped working
};

struct Failure {
  ExitCode code = kExitFailure;
  std::string message;  // printed after "evener: "; may have lines
};

[[noreturn, gnu::format(printf, 1, 2)]] void fail_usage(const char* format, ...);
[[noreturn, gnu::format(printf, 2, 3)]] void fail(ExitCode code, const char* format, ...);
// Fails with "FILE: WHY".
[[noreturn]] inline void fail_read(const std::string& file, const char* why) { fail(kExitFailure, "%s: %s", file.c_str(), why); }

// Calls the library and throws a Failure unless it returns EVN_OK. `otherwise` is the code for statuses that do not say by
// themselves whether the configuration, the model or a device is to blame.
class Call {
 public:
  explicit Call(ExitCode otherwise = kExitFailure) : otherwise_(otherwise) {}
  operator evn_error*() { return &error_; }
  void check(evn_status status) const;

 private:
  ExitCode otherwise_;
  evn_error error_ = EVN_ERROR_INIT;
};

// The text for people of an error: message, status, node, device, bytes.
std::string describe(const evn_error& error);

// For %llu of printf.
inline unsigned long long wide(std::uint64_t number) { return number; }

}  // namespace evn::cli
