// A program that is run for its answer, with a limit of time: it may crash, hang or write what it likes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace evn::os {

struct ChildEnd {
  enum class How {
    kNotStarted,  // `reason`
    kExited,      // `code` is its status
    kSignalled,   // `code` is the signal
    kTimedOut,    // and it was killed
    kUnknown      // it is over; the process takes no notice of its children, or another thread of it was first to ask
  };
  How how = How::kNotStarted;
  int code = 0;
  std::string reason;
  std::string answer;  // what it wrote to descriptor 3, as far as asked for
};

// Runs the file `program` (no search in $PATH) with its own name and `arguments`, in this process's environment with `variables`
// set, in a process group of its own. It has /dev/null as its standard input, output and error, and a pipe for up to `most` bytes
// of its answer as descriptor 3; no signal is blocked or ignored. Waits for the process alone: others of this one are left to
// whoever waits for them. When `timeout_ns` is over the group is killed.
ChildEnd run_child(const std::string& program, std::span<const char* const> arguments,
                   std::span<const std::pair<std::string, std::string>> variables, std::size_t most, std::uint64_t timeout_ns);

}  // namespace evn::os
