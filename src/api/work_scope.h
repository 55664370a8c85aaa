// The token and deadline of work that is no run: loading, making a session, quantizing.
#pragma once

#include <optional>

#include "api/objects.h"
#include "base/cancel.h"

namespace evn {

// While it lives, cancellation points of the calling thread obey a token and a deadline. Neither: nothing changes.
class WorkScope {
 public:
  WorkScope(CancelPtr token, std::uint64_t deadline_ns, const char* over, const char* cancelled) : token_(std::move(token)) {
    cancel_.deadline_ns = deadline_ns;
    cancel_.requested = token_ != nullptr ? &token_->requested : nullptr;
    cancel_.over = over;
    cancel_.cancelled = cancelled;
    if (!cancel_.exists()) return;
    if (cancel_.stop()) cancel_.fail();
    scope_.emplace(cancel_);
  }

  static CancelPtr token_of(evn_cancel handle) { return handle != nullptr ? *Pin<CancelPtr>(handle) : nullptr; }

 private:
  const CancelPtr token_;
  Cancel cancel_;
  std::optional<CancelScope> scope_;
};

}  // namespace evn
