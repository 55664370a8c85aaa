// Requests that are about to be joined: the first, which a thread executes, and those that agree with it. Guarded by the
// dispatcher's mutex.
#pragma once

#include <algorithm>

#include "runtime/batch/batcher.h"
#include "runtime/request/request.h"

namespace evn {

struct Gathering {
  explicit Gathering(Batcher& of) : batcher(of) {}

  Batcher& batcher;
  std::vector<RequestPtr> members = {};
  std::int64_t rows = 0;
  std::int64_t most_rows = 0;           // below this number further requests are taken
  std::uint64_t row_bytes = 0;          // 0: the first cannot be joined
  std::uint64_t until_ns = UINT64_MAX;  // it waits for others

  bool is_full() const { return rows >= most_rows; }

  // Throws std::bad_alloc.
  bool begin(const RequestPtr& first) {
    const std::int64_t own = first->joinable_rows();
    if (own == 0) return false;
    members.reserve(1);  // before anything is noted
    row_bytes = batcher.row_bytes(*first);
    most_rows = batcher.most_rows(row_bytes);
    if (own >= most_rows) {
      rows = own;
      return false;
    }
    members.push_back(first);
    note(*first, own);
    return true;
  }

  SessionRequests::Wanted wants(const RequestPtr& other) {
    using Wanted = SessionRequests::Wanted;
    if (is_full()) return Wanted::kEnd;
    const std::int64_t own = other->joinable_rows();
    const bool same = &other->session() == &members.front()->session();  // and not another placement of it
    if (own == 0 || !same || rows + own > batcher.max_batch() || !batcher.agree(*members.front(), *other)) return Wanted::kLeave;
    note(*other, own);
    return Wanted::kTake;
  }

  // Takes one that has just come. False: it is to wait.
  bool offer(const RequestPtr& other) {
    if (other->run().priority != members.front()->run().priority) return false;
    try {
      members.reserve(members.size() + 1);
    } catch (const std::bad_alloc&) {
      return false;
    }
    if (wants(other) != SessionRequests::Wanted::kTake) return false;
    members.push_back(other);
    return true;
  }

  bool has_tokens() const {
    return std::any_of(members.begin(), members.end(), [](const RequestPtr& r) { return r->run().stop.requested != nullptr; });
  }
  bool has_stopped() const {
    return std::any_of(members.begin(), members.end(), [](const RequestPtr& r) { return Cancel{r->run().stop}.stop(); });
  }

 private:
  void note(const Request& request, std::int64_t own) {
    rows += own;
    until_ns = std::min(until_ns, batcher.waits_until(request));
  }
};

}  // namespace evn
