// The core of a run whose thread waits for other runs: within an operator of the host's, which may submit and wait.
#pragma once

namespace evn {

class ScheduledRun;

// While it lives, the calling thread has no core of any scheduler: its runs give theirs up, and wait for one in the end.
class LentCore {
 public:
  LentCore() noexcept;
  ~LentCore();
  LentCore(const LentCore&) = delete;
  LentCore& operator=(const LentCore&) = delete;

  static constexpr int kMostSchedulers = 4;  // that one thread has runs of at a time, and that are known

 private:
  ScheduledRun* runs_[kMostSchedulers] = {};
};

}  // namespace evn
