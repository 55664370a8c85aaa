#include "runtime/request/completion_queue.h"

#include <chrono>
#include <optional>

#include "base/error.h"
#include "base/lent_core.h"
#include "base/os/event_descriptor.h"

namespace evn {

CompletionQueue::~CompletionQueue() {
  while (first_ != nullptr) {
    Entry* const entry = first_;
    first_ = entry->next;
    abandon(entry);
  }
  os::close_event_descriptor(descriptor_);
}

void CompletionQueue::abandon(Entry* entry) noexcept {
  if (entry->abandon != nullptr) entry->abandon(entry->handle);
  const std::shared_ptr<const void> keeper = std::move(entry->keeper);
}

void CompletionQueue::require_not_forked() const {
  if (is_forked()) fail(EVN_ERROR_FORKED, "the queue was made before the process forked, and is its parent's");
}

void CompletionQueue::push(Entry* entry, std::shared_ptr<const void> keeper) noexcept {
  entry->next = nullptr;
  entry->keeper = std::move(keeper);
  if (is_forked()) return abandon(entry);
  const std::lock_guard<Mutex> lock(mutex_);
  if (first_ == nullptr) os::set_event_descriptor(descriptor_, true);
  (first_ == nullptr ? first_ : last_->next) = entry;
  last_ = entry;
  pushed_.notify_one();
}

CompletionQueue::Taken CompletionQueue::next(std::uint64_t timeout_ns) {
  require_not_forked();
  std::optional<LentCore> lent;  // takes a core back when the lock is free again
  std::unique_lock<Mutex> lock(mutex_);
  const auto some = [this] { return first_ != nullptr; };
  if (!some() && timeout_ns != 0) {
    lock.unlock();
    lent.emplace();
    lock.lock();
  }
  constexpr std::uint64_t kForever = std::uint64_t{1} << 62;
  if (timeout_ns >= kForever) {
    pushed_.wait(lock, some);
  } else if (timeout_ns != 0) {
    pushed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), some);
  }
  Entry* const entry = first_;
  if (entry == nullptr) return {};
  first_ = entry->next;
  if (first_ == nullptr) os::set_event_descriptor(descriptor_, false);
  return {entry->handle, std::move(entry->keeper)};
}

int CompletionQueue::descriptor() {
  require_not_forked();
  const std::lock_guard<Mutex> lock(mutex_);
  if (descriptor_ < 0) {
    descriptor_ = os::make_event_descriptor();
    os::set_event_descriptor(descriptor_, first_ != nullptr);
  }
  return descriptor_;
}

}  // namespace evn
