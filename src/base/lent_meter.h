// Cancellation points of code that is compiled into a module once more, and counts the work of threads in a variable of its own.
#pragma once

#include "base/cancel.h"

namespace evn {

// While it lives, the calling thread's work goes on in `meter`, which is the caller's variable, and obeys what that obeys.
class LentMeter {
 public:
  explicit LentMeter(WorkMeter& meter) noexcept : meter_(meter), own_(t_work_meter) { t_work_meter = meter; }
  ~LentMeter() {
    const WorkMeter worked = t_work_meter;
    t_work_meter = own_;
    meter_ = worked;  // the last: where nothing was compiled once more, it is the same variable
  }
  LentMeter(const LentMeter&) = delete;
  LentMeter& operator=(const LentMeter&) = delete;

 private:
  WorkMeter& meter_;
  const WorkMeter own_;
};

}  // namespace evn
