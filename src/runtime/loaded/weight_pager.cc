#include "runtime/loaded/weight_pager.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/cancel.h"
#include "base/lent_core.h"
#include "base/scheduling_constants.h"

namespace evn {
namespace {

// Interval at which waiting threads look at their stop condition.
constexpr std::chrono::nanoseconds kInterval{scheduling::kWatchIntervalNs};

// Numbers uses in all pagers, so that they can be compared.
std::uint64_t next_use() noexcept {
  static constinit std::atomic<std::uint64_t> uses{0};
  return uses.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

PagedWeight::PagedWeight(Device& device_, const Kernel& kernel_, const OpDesc& desc_, int input_, std::size_t bytes_)
    : device(device_),
      kernel(kernel_),
      input(input_),
      bytes(bytes_),
      desc(desc_),
      constants_(desc_.constants.begin(), desc_.constants.end()) {
  descs_.reserve(desc_.inputs.size() + desc_.outputs.size());
  descs_.assign(desc_.inputs.begin(), desc_.inputs.end());
  descs_.insert(descs_.end(), desc_.outputs.begin(), desc_.outputs.end());
  const std::span<const TensorDesc> all(descs_);
  desc.inputs = all.first(desc_.inputs.size());
  desc.outputs = all.subspan(desc_.inputs.size());
  desc.constants = constants_;
}

bool WeightPagers::reclaim(const Pool& pool, std::size_t bytes) noexcept {
  std::uint64_t freed = 0;
  while (freed < bytes) {
    PooledMemory dropped;  // freed without the locks
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      WeightPager* oldest = nullptr;
      std::uint64_t least = UINT64_MAX;
      for (WeightPager* p = first_; p != nullptr; p = p->next_) {
        if (const std::uint64_t use = p->last_use(pool); use < least) {
          least = use;
          oldest = p;
        }
      }
      if (oldest == nullptr) break;
      dropped = oldest->drop(pool);
    }
    const_cast<Pool&>(pool).note_weights(dropped.size(), 0);
    freed += dropped.size();  // 0: a run has taken it meanwhile
  }
  return freed > 0;
}

std::uint64_t WeightPagers::releases() {
  const std::lock_guard<std::mutex> lock(runs_mutex_);
  return releases_;
}

bool WeightPagers::wait_for_release(std::uint32_t mine, std::uint64_t seen) {
  if (made_in_ != os::fork_generation()) return false;
  std::unique_lock<std::mutex> lock(runs_mutex_);
  if (releases_ != seen) return true;
  if (in_runs_ <= in_waiting_runs_ + mine) return false;
  in_waiting_runs_ += mine;
  lock.unlock();
  const Cancel* const cancel = CancelScope::current();
  bool must_stop = false;
  {
    const LentCore lent;  // a run that holds what this one waits for may be paused, until it has a core
    lock.lock();
    const auto is_released = [&] { return releases_ != seen; };
    while (!must_stop && !released_.wait_for(lock, kInterval, is_released)) must_stop = cancel != nullptr && cancel->stop();
    in_waiting_runs_ -= mine;
    lock.unlock();
  }
  if (must_stop) cancel->fail();
  return true;
}

void WeightPagers::note_held() noexcept {
  const std::lock_guard<std::mutex> lock(runs_mutex_);
  ++in_runs_;
}

void WeightPagers::note_released() noexcept {
  {
    const std::lock_guard<std::mutex> lock(runs_mutex_);
    --in_runs_;
    ++releases_;
  }
  released_.notify_all();
}

WeightPager::~WeightPager() {
  if (all_ == nullptr) return;
  const std::lock_guard<std::mutex> lock(all_->mutex_);
  *link_ = next_;
  if (next_ != nullptr) next_->link_ = link_;
}

void WeightPager::join(const std::shared_ptr<WeightPagers>& all) {
  if (all_ != nullptr) return;
  all_ = all;
  const std::lock_guard<std::mutex> lock(all_->mutex_);
  next_ = all_->first_;
  link_ = &all_->first_;
  if (next_ != nullptr) next_->link_ = &next_;
  all_->first_ = this;
}

void WeightPager::add(PagedWeight& page) {
  const HeapReclaim not_here(false);  // which needs the mutex
  const std::lock_guard<std::mutex> lock(mutex_);
  pages_.push_back(&page);
}

void* WeightPager::pin(PagedWeight& page, bool* was_there) {
  const Cancel* const cancel = CancelScope::current();
  std::unique_lock<std::mutex> lock(mutex_);
  const auto is_settled = [&] { return !page.is_packing_; };
  while (!packed_.wait_for(lock, kInterval, is_settled)) {
    if (cancel != nullptr && cancel->stop()) cancel->fail();
  }
  if (page.memory_.memory() == nullptr) {
    page.is_packing_ = true;
    all_->note_held();
    *was_there = page.was_there_;
    return nullptr;
  }
  all_->note_held();
  ++page.pins_;
  page.used_ = next_use();
  return page.memory_.memory();
}

void WeightPager::unpin(PagedWeight& page) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    --page.pins_;
  }
  all_->note_released();
}

bool WeightPager::begin(PagedWeight& page) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (page.is_packing_ || page.memory_.memory() != nullptr) return false;
  all_->note_held();
  return page.is_packing_ = true;
}

void WeightPager::keep(PagedWeight& page, PooledMemory memory, bool pinned) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    page.memory_ = std::move(memory);
    page.was_there_ = true;
    page.is_packing_ = false;
    page.pins_ += pinned ? 1 : 0;
    page.used_ = next_use();
  }
  packed_.notify_all();
  if (!pinned) all_->note_released();
}

void WeightPager::give_up(PagedWeight& page) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!page.is_packing_) return;
    page.is_packing_ = false;
  }
  packed_.notify_all();
  all_->note_released();
}

PagedWeight* WeightPager::find_droppable(const Pool& pool) noexcept {
  PagedWeight* found = nullptr;
  for (PagedWeight* p : pages_) {
    if (p->pins_ != 0 || p->is_packing_ || p->memory_.memory() == nullptr || p->memory_.pool() != &pool) continue;
    if (found == nullptr || p->used_ > found->used_) found = p;
  }
  return found;
}

PooledMemory WeightPager::drop(const Pool& pool) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  PagedWeight* const page = find_droppable(pool);
  return page != nullptr ? std::move(page->memory_) : PooledMemory();
}

std::uint64_t WeightPager::last_use(const Pool& pool) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const PagedWeight* const page = find_droppable(pool);
  return page != nullptr ? page->used_ : UINT64_MAX;
}

}  // namespace evn
