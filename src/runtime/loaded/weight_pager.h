// Packed copies that come and go under a device's memory limit: one that no run reads just now is dropped where something else
// needs the memory, and is packed again from the model's file when a step wants it. docs/decisions/0073-memory-ladder.md
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/mutex.h"
#include "base/os/fork.h"
#include "device/device.h"

namespace evn {

class WeightPager;

// One such copy. Lives as long as its model.
struct PagedWeight {
  PagedWeight(Device& device, const Kernel& kernel, const OpDesc& desc, int input, std::size_t bytes);
  PagedWeight(const PagedWeight&) = delete;
  PagedWeight& operator=(const PagedWeight&) = delete;

  Device& device;
  const Kernel& kernel;
  const int input;
  const std::size_t bytes;
  OpDesc desc;  // over what follows; the node is the model's

 private:
  friend class WeightPager;
  std::vector<TensorDesc> descs_;
  std::vector<WeightPtr> constants_;
  // Guarded by the pager's mutex.
  PooledMemory memory_;  // none: it is not there
  bool is_packing_ = false;
  bool was_there_ = false;  // and has been dropped, where it is not there now
  std::uint32_t pins_ = 0;  // steps that read it
  std::uint64_t used_ = 0;  // the latest, as the pager counts them
};

// In the place of Buffer::offset: `memory` is the PagedWeight.
inline constexpr std::size_t kPagedOffset = SIZE_MAX;
inline Buffer paged_buffer(PagedWeight& page) { return {&page, kPagedOffset, page.bytes}; }
inline bool is_paged(const Buffer& buffer) { return buffer.offset == kPagedOffset && buffer.memory != nullptr; }
inline PagedWeight& page_of(const Buffer& buffer) { return *static_cast<PagedWeight*>(buffer.memory); }

// The pagers of a runtime: they give copies back when a device has no memory left.
class WeightPagers final : public Reclaimer {
 public:
  // Drops a copy from the pager that has been idle the longest, the one that was used last there: runs read the copies in the same
  // order each time, so that it is what will be needed last.
  bool reclaim(const Pool& pool, std::size_t bytes) noexcept override;

  // How often a run has let go of a copy.
  std::uint64_t releases();
  // For a run that holds `mine` copies and has no memory for one more: waits until another run has let go of one, since releases()
  // was `seen`, without a core meanwhile. False: only runs that wait themselves hold any, or nobody does. Throws when the calling
  // thread's CancelScope says stop.
  bool wait_for_release(std::uint32_t mine, std::uint64_t seen);

 private:
  friend class WeightPager;
  friend struct test::Access<WeightPagers>;
  void note_held() noexcept;
  void note_released() noexcept;

  std::mutex mutex_;  // comes before those of the pagers
  const os::HeldOverForks held_{mutex_};
  WeightPager* first_ = nullptr;

  // What runs hold: each copy that is read or packed counts once. In a forked child those of threads that are no more stay counted.
  const std::uint32_t made_in_ = os::fork_generation();
  std::mutex runs_mutex_;  // guards what follows; a leaf
  const os::HeldOverForks runs_held_{runs_mutex_};
  Condition released_;
  std::uint64_t releases_ = 0;
  std::uint32_t in_runs_ = 0;
  std::uint32_t in_waiting_runs_ = 0;
};

// The copies of one model.
class WeightPager {
 public:
  WeightPager() = default;
  ~WeightPager();
  WeightPager(const WeightPager&) = delete;
  WeightPager& operator=(const WeightPager&) = delete;

  // Before the first copy is added.
  void join(const std::shared_ptr<WeightPagers>& all);
  WeightPagers& all() { return *all_; }

  // The memory of a copy that is there, which stays until unpin. nullptr: it is not there, and the caller packs it, with memory
  // that it gives to `keep`, or says by `give_up` that it cannot. Waits while another thread packs it; throws when the calling
  // thread's CancelScope says stop. *was_there: it has been dropped.
  void* pin(PagedWeight& page, bool* was_there);
  void unpin(PagedWeight& page) noexcept;
  // Begins to pack a copy that is not there: the caller packs it. False: it is there, or somebody else packs it.
  bool begin(PagedWeight& page);
  void keep(PagedWeight& page, PooledMemory memory, bool pinned) noexcept;
  // Does nothing where nobody is packing it.
  void give_up(PagedWeight& page) noexcept;
  // The memory of a copy that is pinned.
  static void* address(const PagedWeight& page) { return page.memory_.memory(); }

 private:
  friend class WeightPagers;
  friend struct PagedWeight;
  // The copy in the pool that would go first; nullptr: there is none. Under the mutex.
  PagedWeight* find_droppable(const Pool& pool) noexcept;
  PooledMemory drop(const Pool& pool) noexcept;
  std::uint64_t last_use(const Pool& pool) noexcept;  // UINT64_MAX: nothing can be dropped

  std::shared_ptr<WeightPagers> all_;
  // List of the pagers of all_, guarded by its mutex. link_: the pointer that leads to this one.
  WeightPager* next_ = nullptr;
  WeightPager** link_ = nullptr;
  std::mutex mutex_;
  const os::HeldOverForks held_{mutex_};
  Condition packed_;
  std::vector<PagedWeight*> pages_;

 public:
  // The pager's list has it from now on.
  void add(PagedWeight& page);
};

}  // namespace evn
