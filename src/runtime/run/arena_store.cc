#include "runtime/run/arena_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace evn {
// ------------------------------------------------------------------------------------------------------------- arenas --

std::uint64_t ArenaNeed::total() const {
  std::uint64_t sum = 0;
  for (const std::size_t b : bytes) sum += b;
  return sum;
}

Arena::Arena(const ArenaNeed& need, Reclaimer* first) : least_need_(need.total()) {
  blocks_.reserve(
      static_cast<std::size_t>(std::count_if(need.bytes.begin(), need.bytes.end(), [](std::size_t b) { return b > 0; })));
  for (std::size_t slot = 0; slot < need.bytes.size(); ++slot) {
    if (need.bytes[slot] == 0) continue;
    blocks_.push_back({need.devices[slot], need.devices[slot]->allocate(need.bytes[slot], MemoryClass::kArenas, false, first)});
    bytes_ += need.bytes[slot];
  }
}

void* Arena::memory_on(const Device& device) const {
  for (const Block& b : blocks_) {
    if (b.device == &device) return b.memory.memory();
  }
  return nullptr;
}

std::size_t Arena::size_on(const Device& device) const {
  for (const Block& b : blocks_) {
    if (b.device == &device) return b.memory.size();
  }
  return 0;
}

bool Arena::has_room_for(const ArenaNeed& need) const {
  for (std::size_t slot = 0; slot < need.bytes.size(); ++slot) {
    if (need.bytes[slot] > size_on(*need.devices[slot])) return false;
  }
  return true;
}

bool Arena::is_covered_by(const ArenaNeed& need) const {
  std::uint64_t covered = 0;
  for (std::size_t slot = 0; slot < need.bytes.size(); ++slot) {
    const std::size_t have = size_on(*need.devices[slot]);
    if (have > need.bytes[slot]) return false;
    covered += have;
  }
  return covered == bytes_ && need.total() / 2 <= least_need_;
}

std::uint64_t Arena::bytes_in(const Pool& pool) const {
  std::uint64_t sum = 0;
  for (const Block& b : blocks_) sum += b.memory.pool() == &pool ? b.memory.size() : 0;
  return sum;
}

// -------------------------------------------------------------------------------------------------- those of a session --

ArenaStore::ArenaStore(std::shared_ptr<ArenaStores> all, std::uint64_t budget) : all_(std::move(all)), budget_(budget) {
  ArenaStores::IdleQueue one;
  one.insert({0, this});
  place_ = one.extract(one.begin());
}

ArenaStore::~ArenaStore() {
  ArenaStores::IdleQueue::node_type place;  // freed without the lock
  {
    const std::lock_guard<std::mutex> lock(all_->mutex_);
    if (place_.empty()) place = all_->idle_.extract(at_);
  }
  free_list(std::move(idle_));
}

void ArenaStore::push(ArenaPtr* list, ArenaPtr arena) noexcept {
  arena->next_ = std::move(*list);
  *list = std::move(arena);
}

void ArenaStore::free_list(ArenaPtr list) noexcept {
  while (list != nullptr) list = std::move(list->next_);
}

ArenaPtr ArenaStore::take(const ArenaNeed& need, ArenaPtr* replaced) noexcept {
  const std::uint64_t total = need.total();
  ArenaPtr* best = nullptr;
  ArenaPtr* covered = nullptr;
  for (ArenaPtr* at = &idle_; *at != nullptr; at = &(*at)->next_) {
    const Arena& arena = **at;
    if (arena.has_room_for(need)) {
      if (best == nullptr || arena.bytes_ < (*best)->bytes_) best = at;
    } else if (arena.is_covered_by(need) && (covered == nullptr || arena.bytes_ > (*covered)->bytes_)) {
      covered = at;
    }
  }
  if (best != nullptr && ((*best)->bytes_ / 2 <= total || stats_.idle_bytes + live_bytes_ + total > budget_)) {
    ArenaPtr arena = std::move(*best);
    *best = std::move(arena->next_);
    --idle_count_;
    stats_.idle_bytes -= arena->bytes_;
    ++live_count_;
    live_bytes_ += arena->bytes_;
    ++stats_.reused;
    arena->least_need_ = std::min(arena->least_need_, total);
    return arena;
  }
  if (covered != nullptr) *replaced = drop(covered);
  return nullptr;
}

ArenaPtr ArenaStore::make(const ArenaNeed& need, ArenaPtr replaced) {
  const std::uint64_t least_need = replaced != nullptr ? replaced->least_need_ : UINT64_MAX;
  replaced.reset();
  ArenaPtr arena = std::make_unique<Arena>(need, this);
  arena->least_need_ = std::min(arena->least_need_, least_need);
  const std::lock_guard<std::mutex> lock(mutex_);
  ++live_count_;
  live_bytes_ += arena->bytes_;
  ++stats_.made;
  stats_.peak_bytes = std::max(stats_.peak_bytes, live_bytes_ + stats_.idle_bytes);
  return arena;
}

void ArenaStore::keep(ArenaPtr arena, std::uint64_t run, ArenaPtr* dropped) noexcept {
  --live_count_;
  live_bytes_ -= arena->bytes_;
  ++idle_count_;
  stats_.idle_bytes += arena->bytes_;
  arena->run_ = run;
  push(&idle_, std::move(arena));
  while (stats_.idle_bytes > budget_) {
    ArenaPtr* const oldest = find_oldest(nullptr, run);
    if (oldest == nullptr) break;
    push(dropped, drop(oldest));
  }
}

void ArenaStore::discard(ArenaPtr arena) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  --live_count_;
  live_bytes_ -= arena->bytes_;
}

void ArenaStore::offer() noexcept {
  const std::lock_guard<std::mutex> lock_all(all_->mutex_);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_offered()) return;
  place_.value().run = (*find_oldest(nullptr, 0))->run_;
  at_ = all_->idle_.insert(std::move(place_)).position;
}

ArenaPtr* ArenaStore::find_oldest(const Pool* pool, std::uint64_t run) noexcept {
  ArenaPtr* oldest = nullptr;
  for (ArenaPtr* at = &idle_; *at != nullptr; at = &(*at)->next_) {
    if ((pool == nullptr || (*at)->bytes_in(*pool) != 0) && (run == 0 || (*at)->run_ != run)) oldest = at;
  }
  return oldest;
}

ArenaPtr ArenaStore::drop(ArenaPtr* at) noexcept {
  ArenaPtr arena = std::move(*at);
  *at = std::move(arena->next_);
  --idle_count_;
  stats_.idle_bytes -= arena->bytes_;
  ++stats_.dropped;
  return arena;
}

ArenaPtr ArenaStore::drop_oldest(const Pool& pool) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  ArenaPtr* const oldest = find_oldest(&pool, 0);
  return oldest != nullptr ? drop(oldest) : nullptr;
}

bool ArenaStore::reclaim(const Pool& pool, std::size_t bytes) noexcept {
  std::uint64_t freed = 0;
  while (freed < bytes) {
    const ArenaPtr arena = drop_oldest(pool);
    if (arena == nullptr) break;
    freed += arena->bytes_in(pool);
  }
  return freed > 0;
}

ArenaStats ArenaStore::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  ArenaStats s = stats_;
  s.bytes = live_bytes_ + s.idle_bytes;
  s.count = live_count_ + idle_count_;
  return s;
}

// -------------------------------------------------------------------------------------------------- those of a runtime --

ArenaStores::IdleQueue::iterator ArenaStores::move_to(IdleQueue::iterator at, std::uint64_t run) noexcept {
  const IdleQueue::iterator next = std::next(at);
  IdleQueue::node_type place = idle_.extract(at);
  place.value().run = run;
  at = idle_.insert(std::move(place)).position;
  at->store->at_ = at;
  return next == idle_.end() || *at < *next ? at : next;
}

ArenaStore* ArenaStores::find_oldest(const Pool& pool) noexcept {
  ArenaStore* found = nullptr;
  std::uint64_t least = UINT64_MAX;
  for (IdleQueue::iterator at = idle_.begin(); at != idle_.end() && at->run < least;) {
    ArenaStore& store = *at->store;
    ++looks_;
    const std::lock_guard<std::mutex> lock(store.mutex_);
    const ArenaPtr* const oldest = store.find_oldest(nullptr, 0);
    if (oldest == nullptr) {  // a run has taken the last
      store.place_ = idle_.extract(at++);
    } else if (const std::uint64_t run = (*oldest)->run_; run != at->run) {
      at = move_to(at, run);
    } else {
      const ArenaPtr* const in_pool = store.find_oldest(&pool, 0);
      if (in_pool != nullptr && (*in_pool)->run_ < least) {
        least = (*in_pool)->run_;
        found = &store;
      }
      ++at;
    }
  }
  return found;
}

bool ArenaStores::reclaim(const Pool& pool, std::size_t bytes) noexcept {
  ArenaPtr dropped;  // freed without the lock
  std::uint64_t freed = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (freed < bytes) {
      ArenaStore* const store = find_oldest(pool);
      if (store == nullptr) break;
      ArenaPtr arena = store->drop_oldest(pool);
      if (arena == nullptr) continue;  // a run has taken it meanwhile
      freed += arena->bytes();
      ArenaStore::push(&dropped, std::move(arena));
    }
  }
  ArenaStore::free_list(std::move(dropped));
  return freed > 0;
}

std::uint64_t ArenaStores::looks() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return looks_;
}

}  // namespace evn
