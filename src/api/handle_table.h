// Slots of objects that are reached by handles. A handle's value is generation << 32 | slot + 1; the object is reached by a counted
// pin, so that a release on another thread never takes it away from under a call. A slot that has had all its 2^32 generations is
// never used again.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "base/os/fork.h"

namespace evn {

enum class HandleKind : std::uint8_t {
  kRuntime,
  kDevice,
  kTensor,
  kModel,
  kSession,
  kOperatorNode,
  kValue,
  kQuantizer,
  kCancel,
  kRequest,
  kQueue,
  kState,
  kEvent,
  kTrainer,
  kLoader
};

// What a slot holds: a shared pointer of the type that its kind says.
class HandleObject {
 public:
  explicit HandleObject(HandleKind kind) : kind_(kind) {}
  virtual ~HandleObject() = default;
  HandleKind kind() const { return kind_; }

 private:
  HandleKind kind_;
};

// A pin that the calling thread has, as it is found in a child that the thread forks.
struct OwnPin {
  const void* handle;
  const OwnPin* outer;  // the one before, of the same thread
};
[[gnu::tls_model("initial-exec")]] extern constinit thread_local const OwnPin* t_own_pins;

// From any thread.
class HandleTable {
 public:
  struct Slot {
    // Generation (32) | released (1) | left by a fork (1) | kind (6) | references (24). The table itself holds one reference until
    // the release; a free slot has none. The low word changes only by the counted operations.
    std::atomic<std::uint64_t> state{0};
    HandleObject* object = nullptr;
    std::uint32_t next_free = 0;  // slot + 1
  };

  // Over zeroed slots, which outlive the table and have this generation first.
  constexpr explicit HandleTable(std::span<Slot> slots, std::uint32_t first_generation = 0)
      : slots_(slots), first_generation_(first_generation) {}

  // Puts an object into a free slot; throws EVN_ERROR_LIMIT when all are taken.
  void* add(std::unique_ptr<HandleObject> object);

  // Pins the object, or returns nullptr for a handle that is NULL, stale, random or of another kind, or left by a fork.
  HandleObject* pin(const void* handle, HandleKind kind) noexcept;
  void unpin(const void* handle) noexcept;
  // Ends a pin without a lock. Where it was the last one of a released handle, the object goes when the next one is added.
  void unpin_in_signal(const void* handle) noexcept;

  // Ends the handle. False when it is not a live handle of that kind. The object goes when its last pin does.
  bool release(const void* handle, HandleKind kind) noexcept;

  // Whether another thread had pinned the live handle when this process was forked: its object may be half changed.
  bool is_left_by_fork(const void* handle, HandleKind kind) const noexcept;

  // Called once. From then on a forked child may use the table whatever other threads of the parent were doing in it; objects that
  // these had pinned are left alone in the child.
  void prepare_for_forks() noexcept;
  void begin_in_child() noexcept;

 private:
  std::uint32_t generation(std::uint64_t state) const { return static_cast<std::uint32_t>(state >> 32) + first_generation_; }
  Slot* slot_of(const void* handle) const noexcept;
  bool is_live(std::uint64_t state, const void* handle, HandleKind kind) const noexcept;
  void drop(Slot* slot) noexcept;
  void retire(Slot* slot) noexcept;
  void retire_orphans() noexcept;

  const std::span<Slot> slots_;
  const std::uint32_t first_generation_;
  std::atomic<std::uint32_t> orphans_{0};  // slot + 1: those that unpin_in_signal has left, by next_free
  std::mutex mutex_;                       // guards what follows
  std::uint32_t free_ = 0;                 // slot + 1
  std::uint32_t used_ = 0;                 // slots ever used
};

}  // namespace evn
