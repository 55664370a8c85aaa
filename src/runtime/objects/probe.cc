#include "runtime/objects/probe.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <mutex>

#include "base/os/child.h"
#include "base/text.h"

namespace evn {
namespace {

// What the command answers when all devices have been listed (src/cli/probe.cc).
constexpr char kAnswer[] = "evener: drivers listed\n";
constexpr std::size_t kMostBytes = 200;   // of a path in a message
constexpr std::size_t kMostDrivers = 16;  // that are tried one by one, to say which it was

std::string seconds(std::uint64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%llu.%03llu s", static_cast<unsigned long long>(ns / 1'000'000'000),
                static_cast<unsigned long long>(ns / 1'000'000 % 1000));
  return text;
}

}  // namespace

std::string DriverProbe::why_failed(const std::vector<std::pair<std::string, std::string>>& variables) const {
  using How = os::ChildEnd::How;
  static constexpr std::array<const char*, 1> kArguments = {"--probe-drivers"};
  const os::ChildEnd end = os::run_child(config_.program, kArguments, variables, sizeof kAnswer - 1, config_.timeout_ns);
  const bool answered = end.answer == kAnswer;
  const std::string code = std::to_string(end.code);
  switch (end.how) {
    case How::kNotStarted: return "the program cannot be started: " + end.reason;
    case How::kTimedOut: return "it was not done after " + seconds(config_.timeout_ns);
    case How::kSignalled:
      return "the driver crashed (signal " + code + (answered ? ") when its process ended" : ") while it was listed");
    case How::kExited:
      if (answered && end.code == 0) return "";
      return "the process ended with status " + code +
             (answered ? " after the drivers were listed" : " before the drivers were listed");
    case How::kUnknown:  // it is over, and the host has taken, or wants nobody to have, what it came to
      return answered ? "" : "the process ended before the drivers were listed";
  }
  return "";
}

std::string DriverProbe::why_hidden(const Backend& backend) {
  if (config_.program.empty() || backend.drivers == nullptr) return "";
  const std::lock_guard<Mutex> lock(mutex_);
  const auto known = std::find_if(outcomes_.begin(), outcomes_.end(), [&](const auto& o) { return o.first == &backend; });
  if (known != outcomes_.end()) return known->second;
  std::string why = why_failed({});
  if (!why.empty()) {
    const std::vector<DriverSet> drivers = backend.drivers();
    std::string named;
    for (std::size_t i = 0; i < drivers.size() && i < kMostDrivers; ++i) {
      const std::string own = drivers.size() > 1 ? why_failed(drivers[i].variables) : why;  // one alone has been tried
      if (!own.empty()) named += (named.empty() ? "" : "; ") + shorten(drivers[i].name, kMostBytes) + ": " + own;
    }
    if (!named.empty()) why += " [" + named + "]";
    why += "; tried by " + shorten(config_.program, kMostBytes) + ", so that these drivers are not used";
    LogEvent(log_, EVN_LOG_ERROR, "probe.failed")
        .field("type", backend.type.name)
        .field("program", config_.program.c_str())
        .field("reason", why.c_str())
        .write("%s: %s", backend.type.name, why.c_str());
  }
  outcomes_.emplace_back(&backend, why);
  return why;
}

}  // namespace evn
