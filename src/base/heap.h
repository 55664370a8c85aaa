// The library's heap: blocks of operator new, counted by the memory limit of the runtime for which a thread works. Every block has
// a head of 16 bytes that names the heap that counts it, so that any thread may free it at any time. docs/decisions/0089-heap.md
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "base/error.h"

namespace evn {

// Counts blocks against a limit; memory/pool implements it. Lives as long as somebody holds it or a block of it is in use.
class Heap {
 public:
  // Counts `bytes` more. False if the limit does not allow them: nothing is counted then, and *why has the Error. `may_reclaim`:
  // the caller holds no lock, so that idle memory of sessions may be freed.
  virtual bool admit(std::int64_t bytes, bool may_reclaim, Error* why) noexcept = 0;

  // Bytes of blocks in use, without what threads have not reported yet.
  std::int64_t bytes() const noexcept { return bytes_in(state_.load(std::memory_order_relaxed)); }
  // Bytes of those blocks that the C library allocated, which keeps the memory of freed ones.
  std::int64_t small_bytes() const noexcept { return bytes() - paged_.load(std::memory_order_relaxed); }
  // Counts `bytes` (negative: of freed blocks) as blocks in pages of their own. Called before bytes() changes.
  void add_paged(std::int64_t bytes) noexcept { paged_.fetch_add(bytes, std::memory_order_relaxed); }
  // Counts `bytes` (negative: of freed blocks) without a look at the limit.
  void add(std::int64_t bytes) noexcept { change(bytes); }
  void hold() noexcept { change(kHold); }
  void let_go() noexcept { change(-kHold); }

 protected:
  Heap() = default;
  ~Heap() = default;
  // Nobody holds the heap and no block of it is in use. The last call.
  virtual void end() noexcept = 0;

 private:
  static constexpr std::int64_t kHold = std::int64_t{1} << 48;
  static constexpr std::int64_t bytes_in(
      std::int64_t state) {  // sign-extended: threads report what they free before what they take
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(state) << 16) >> 16;
  }
  void change(std::int64_t by) noexcept {
    if (state_.fetch_add(by, std::memory_order_acq_rel) + by == 0) end();
  }

  std::atomic<std::int64_t> state_{0};  // kHold for each holder, plus the bytes
  std::atomic<std::int64_t> paged_{0};
};

// Counting of one thread.
struct HeapMeter {
  // A thread reports to the heap when it has taken or freed so many bytes: no limit is passed by more than this for each thread.
  static constexpr std::int64_t kReportBytes = std::int64_t{64} << 10;

  Heap* heap = nullptr;      // that counts new blocks; nullptr: nothing counts them
  std::int64_t pending = 0;  // bytes that the heap has not been told yet
  bool may_reclaim = false;

  void report() noexcept {
    if (pending == 0) return;
    heap->add(std::exchange(pending, 0));
  }
};

// The meter of the calling thread.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local HeapMeter t_heap_meter;
inline HeapMeter& heap_meter() noexcept { return t_heap_meter; }

// While it lives, `heap` counts what the calling thread allocates; nullptr: as before. The heap is held by others meanwhile. Scopes
// end in the opposite order.
class HeapScope {
 public:
  HeapScope() = default;
  explicit HeapScope(Heap* heap) noexcept { enter(heap); }
  ~HeapScope() { leave(); }
  HeapScope(const HeapScope&) = delete;
  HeapScope& operator=(const HeapScope&) = delete;

  void enter(Heap* heap) noexcept {
    if (heap == nullptr) return;
    HeapMeter& meter = heap_meter();
    is_in_ = true;
    before_ = meter.heap;
    could_reclaim_ = std::exchange(meter.may_reclaim, false);
    if (heap == before_) return;
    meter.report();
    meter.heap = heap;
  }
  void leave() noexcept {
    if (!is_in_) return;
    is_in_ = false;
    HeapMeter& meter = heap_meter();
    meter.may_reclaim = could_reclaim_;
    if (meter.heap == before_) return;
    meter.report();
    meter.heap = before_;
  }

 private:
  Heap* before_ = nullptr;
  bool could_reclaim_ = false;
  bool is_in_ = false;
};

// While it lives, allocations of the calling thread may free idle memory of sessions (`allowed`), or not. For code without locks.
class HeapReclaim {
 public:
  explicit HeapReclaim(bool allowed) noexcept : before_(std::exchange(heap_meter().may_reclaim, allowed)) {}
  ~HeapReclaim() { heap_meter().may_reclaim = before_; }
  HeapReclaim(const HeapReclaim&) = delete;
  HeapReclaim& operator=(const HeapReclaim&) = delete;

 private:
  const bool before_;
};

// While it lives, nothing counts what the calling thread allocates: for code that the heap's own lock guards, and for what lives as
// long as the heap.
class HeapPause {
 public:
  HeapPause() noexcept : heap_(std::exchange(heap_meter().heap, nullptr)), pending_(std::exchange(heap_meter().pending, 0)) {}
  ~HeapPause() {
    heap_meter().heap = heap_;
    heap_meter().pending = pending_;
  }
  HeapPause(const HeapPause&) = delete;
  HeapPause& operator=(const HeapPause&) = delete;

 private:
  Heap* const heap_;
  const std::int64_t pending_;
};

// Memory that other libraries take for the calling thread's work, which its heap counts as long as the object lives.
class HeapCharge {
 public:
  HeapCharge() = default;
  ~HeapCharge() {
    if (bytes_ != 0) heap_->add(-bytes_);
  }
  HeapCharge(const HeapCharge&) = delete;
  HeapCharge& operator=(const HeapCharge&) = delete;

  // False if the limit does not allow `bytes` more; *why has the Error then.
  bool add(std::int64_t bytes, Error* why) noexcept {
    HeapMeter& meter = heap_meter();
    if (heap_ == nullptr) heap_ = meter.heap;
    if (heap_ == nullptr) return true;
    if (!heap_->admit(bytes, meter.may_reclaim, why)) return false;
    bytes_ += bytes;
    return true;
  }

 private:
  Heap* heap_ = nullptr;
  std::int64_t bytes_ = 0;
};

// Thrown by operator new if the memory limit does not allow a block. Code that can do without the block catches std::bad_alloc.
struct HeapRefused : std::bad_alloc {
  Error error;
};

// Calls body(); an Error that leaves it, or the refusal of a block, is completed by add(error) first.
template <typename F, typename Add>
decltype(auto) completing_errors(F&& body, Add&& add) {
  try {
    return body();
  } catch (Error& e) {
    add(e);
    throw;
  } catch (const HeapRefused& refused) {
    Error e = refused.error;
    add(e);
    throw e;
  }
}

// Calls `body`, and adds the name of the node to its errors that have none.
template <typename Name, typename F>
decltype(auto) naming_node(const Name& name, F&& body) {
  return completing_errors(std::forward<F>(body), [&](Error& e) {
    if (e.node[0] == '\0') e.with_node(name.c_str());
  });
}

// Operator new and delete. nullptr: the system has no memory for the block, or the memory limit does not allow it, in which case
// refuse(error), which may throw, is called first (nullptr: nothing).
void* take_block(std::size_t bytes, std::size_t alignment, void (*refuse)(const Error&));
void free_block(void* block, std::size_t alignment) noexcept;

}  // namespace evn
