// Requests that have ended, in that order, for the threads that ask. It is of the process that made it, which shares the descriptor
// with its children.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "base/mutex.h"
#include "base/os/fork.h"

namespace evn {

class CompletionQueue {
 public:
  // One request's place in a queue.
  struct Entry {
    void* handle = nullptr;              // what next() gives
    void (*abandon)(void*) = nullptr;    // what becomes of the handle when the queue goes; nullptr: nothing
    Entry* next = nullptr;               // these two of the queue
    std::shared_ptr<const void> keeper;  // of the entry
  };
  struct Taken {
    void* handle = nullptr;
    std::shared_ptr<const void> keeper;
  };

  CompletionQueue() = default;
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // `keeper` is kept as long as the entry is in the queue.
  void push(Entry* entry, std::shared_ptr<const void> keeper) noexcept;
  // Waits so long (UINT64_MAX: as long as it takes) for an entry; all null: none came.
  Taken next(std::uint64_t timeout_ns);
  // Can be read from while there are entries. Throws EVN_ERROR_LIMIT.
  int descriptor();
  // Throws EVN_ERROR_FORKED in a child of the process that made it; so do next and descriptor, and push lets go of the entry there.
  void require_not_forked() const;

 private:
  bool is_forked() const { return made_in_ != os::fork_generation(); }
  static void abandon(Entry* entry) noexcept;

  const std::uint32_t made_in_ = os::fork_generation();
  Mutex mutex_;  // guards what follows
  Condition pushed_;
  Entry* first_ = nullptr;
  Entry* last_ = nullptr;
  int descriptor_ = -1;  // an eventfd, whose count is 1 while there are entries
};

}  // namespace evn
