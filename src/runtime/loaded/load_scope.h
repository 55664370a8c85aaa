// Time limit of all that a load does.
#pragma once

#include <cstdint>

#include "base/cancel.h"

namespace evn {

// Time limit of a load, for all that the calling thread does while it lives. A deadline or request of the caller holds as well.
class LoadScope {
 public:
  explicit LoadScope(std::uint64_t deadline_ns) : cancel_(limit(deadline_ns)), scope_(cancel_) {}

 private:
  static Cancel limit(std::uint64_t deadline_ns) {
    Cancel cancel;
    cancel.deadline_ns = deadline_ns;
    cancel.over = "the time to load the model is over";
    cancel.cancelled = "the load was cancelled";
    if (const Cancel* outer = CancelScope::current()) cancel.join(*outer);
    return cancel;
  }

  const Cancel cancel_;
  const CancelScope scope_;
};

}  // namespace evn
