// The constants of one model as kernels and devices want them: packed copies, and plain copies in the memory of devices that
// cannot read the host's. Shared by all sessions of the model.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/hash.h"
#include "base/mutex.h"
#include "base/slab.h"
#include "device/device.h"
#include "runtime/loaded/plain_weights.h"
#include "runtime/loaded/weight_cache.h"
#include "runtime/loaded/weight_pager.h"

namespace evn {

// Copies that somebody uses: the store lets go of others when it is asked to. From any thread.
class KeptCopies {
 public:
  // Throws std::bad_alloc.
  void add(const std::shared_ptr<const void>& copy);

 private:
  Mutex mutex_;
  std::set<std::shared_ptr<const void>> copies_;
};

class PackedStore {
  struct Key {
    std::uint64_t weight;
    std::uint64_t version;
    const Device* device;
    const Kernel* kernel;  // nullptr: plain
    int input;
    std::uint64_t variant;
    std::size_t bytes;
    auto operator<=>(const Key&) const = default;
  };
  // In the pool of its device, or in a slab.
  struct Copy {
    PooledMemory pooled;
    std::shared_ptr<void> block;
    void* memory() const { return block != nullptr ? block.get() : pooled.memory(); }
  };

 public:
  // Copies that are made together, by the threads of their device. While one lives nobody else asks the store.
  class Batch {
   public:
    // What it makes or finds is kept for `user`; null: by the store alone.
    Batch(PackedStore& store, KeptCopies* user) : store_(store), user_(user), lock_(store.lock()) {}
    ~Batch();
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    // The packed copy of constant input `input`; memory null when the kernel packs nothing. It is written by the time of `run`, and
    // what `desc` points to lives till then. `plain` (nullable: they are there) brings the constant's bytes back where they are
    // needed.
    Buffer add(Device& device, const Kernel& kernel, const OpDesc& desc, int input, PlainWeights::Access* plain);
    // Adds the packed copy of a constant that lies in the model's file: a copy that may be dropped and packed again
    // (weight_pager.h), which `run` writes if the device has memory for it. The node must be the model's. What `add` gives is never
    // such a copy.
    Buffer add_paged(Device& device, const Kernel& kernel, const OpDesc& desc, int input);
    // Lets the copies go that this batch has made, which nobody else has seen: what they are for has failed.
    void undo() noexcept;
    // Has `run` write a copy that is not there, whose packing this thread has begun, and keep it pinned.
    void restore(PagedWeight& page);
    // Whether `add` makes a copy of plain bytes.
    bool packs(const Device& device, const Kernel& kernel, const OpDesc& desc, int input) const;
    // Bytes of the copies that `run` makes of plain bytes, or that take the place of plain bytes which are in memory.
    std::size_t bytes() const { return bytes_; }
    // Constants that are in the model's file yet are read into a block for each thread, in parts where their kernel takes these.
    void run(PlainWeights::Access* plain);
    // Waits for the copies that are on their way to devices whose memory the host cannot write: `add` packs one while the one
    // before is copied. They are written by the time of this, not of `run`; nobody may use what `add` gave before.
    void finish();
    // Memory for these blocks, which `run` makes larger where it has to.
    void reserve(Device& device, std::size_t bytes);
    // Lets the memory go where so many bytes are much less than there are. Whether it did.
    bool trim(std::size_t bytes);

   private:
    struct Job {
      Key key;
      const Kernel* kernel;
      OpDesc desc;
      std::shared_ptr<Copy> copy;
      void* target;                                // the copy's memory
      bool noted;                                  // somebody wants the checksum
      const WeightCache::Entry* cached = nullptr;  // it is read from there
      bool done = false;
      Checksum checksum = {};
      PagedWeight* page = nullptr;  // what the copy is of; null: the store's own
      bool pinned = false;          // for who asked for the page
    };
    // Rows of a constant, or all of it.
    struct Part {
      Job* job;
      std::int64_t begin, end;    // 0, 0: all
      std::size_t offset, bytes;  // in the constant
    };
    struct Work {
      const Part* parts;
      const WeightCache* cache;
      Mutex* checksums;
    };
    // A copy on its way to a device.
    struct Upload {
      Key key;
      const Node* node = nullptr;  // for errors
      Device* device = nullptr;    // null: none
      Event done;
      // What must be there until the copy has ended, also when nobody waits for that any more.
      struct Held {
        std::shared_ptr<const void> owner;
        std::shared_ptr<void> bytes;
        std::shared_ptr<Copy> copy;  // goes first
      };
      std::shared_ptr<Held> held;
    };
    // Memory of the host that is used again and again: pages that were touched cost no fault.
    struct Staging {
      std::shared_ptr<void> memory;
      std::size_t bytes = 0;
    };
    static constexpr int kUploads = 2;  // one is packed while the other is copied
    static void reserve(Staging& staging, std::size_t bytes);
    Buffer send(Device& device, const Kernel& kernel, const OpDesc& desc, const Key& key, PlainWeights::Access* plain);
    void finish(Upload& upload);
    void leave_uploads() noexcept;
    void add_job(PagedWeight& page, bool pinned);
    std::vector<Part> cut_jobs();
    static void run_part(const Part& part, const Work& work, void* block);
    void run_jobs(PlainWeights::Access* plain);
    bool go_back_to_plain(PlainWeights::Access* plain);
    static void pack(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel);
    PackedStore& store_;
    KeptCopies* const user_;
    std::unique_lock<Mutex> lock_;
    Buffer keep_copy(const Key& key, std::shared_ptr<Copy> copy);
    void note_use_of(const std::shared_ptr<Copy>& copy);
    std::vector<Job> jobs_;
    std::vector<Key> made_;  // of the store's own copies
    std::size_t bytes_ = 0;
    std::shared_ptr<void> scratch_;
    std::size_t scratch_bytes_ = 0;
    Staging staging_[kUploads];
    Upload uploads_[kUploads];
    int next_upload_ = 0;
  };

  // The memory of a copy that may have been dropped, until `unpin`: packs it again where it has. `held`: how many the caller has
  // that it has not unpinned. Where the device has no memory, waits for what other runs hold. Throws EVN_ERROR_OUT_OF_MEMORY where
  // it has none even then, and what reading the model's file throws.
  void* pin(PagedWeight& page, const LoadedModel& model, std::uint32_t held);
  void unpin(PagedWeight& page) noexcept { pager_.unpin(page); }
  // For copies that may be dropped; before the first is added.
  WeightPager& pager() { return pager_; }
  bool has_pages();

  // Makes one copy, at once. The store keeps it, and so does `user`.
  Buffer packed(Device& device, const Kernel& kernel, const OpDesc& desc, int input, PlainWeights::Access* plain, KeptCopies& user);
  // The constant's plain bytes on a device that is not host-addressable; on others the bytes themselves.
  Buffer plain(Device& device, const Weight& weight, KeptCopies& user);
  // Lets go of copies that nobody uses, which the store keeps for sessions to come.
  void drop_unused() noexcept;
  // Whether such a copy is there.
  bool has_plain(const Device& device, const Weight& weight);
  // What keeps the devices, while one of them is still busy with an upload that nobody waits for any more. Before the first.
  void set_owner(std::weak_ptr<const void> runtime) { owner_ = std::move(runtime); }

  struct Need {
    std::size_t room = 0;   // in a slab
    std::size_t block = 0;  // of a thread: what of the constant is read from the file at once
  };
  Need need_of(Device& device, const Kernel& kernel, const OpDesc& desc, int input);
  // Till `close`, the copies of a session on `device`, the CPU, are looked for in `cache` (nullable), which is told of them, and
  // taken in a slab, when there is one, of the room that they need together.
  void open(Device& device, WeightCache* cache);
  void open_slab(std::size_t room);
  void close();

 private:
  // Locks the store. Throws the Error of the thread's CancelScope if that says stop while another thread packs.
  std::unique_lock<Mutex> lock();
  void* pin_now(PagedWeight& page, const LoadedModel& model);
  static Key plain_key(const Device& device, const Weight& weight);
  static Key key_of(const Device& device, const Kernel& kernel, const OpDesc& desc, int input);
  static WeightCache::Copy copy_of(const Key& key, const OpDesc& desc);
  const WeightCache::Entry* find_cached(const Key& key, const OpDesc& desc) const;
  std::shared_ptr<Copy> allocate(Device& device, std::size_t bytes);
  // Writes the copy, which nobody else knows yet. Throws the Error of the thread's CancelScope where that says stop first; the
  // device then keeps the copy, the bytes and its runtime until it is done.
  void upload(Device& device, const std::shared_ptr<Copy>& copy, std::shared_ptr<const void> bytes, std::size_t size) const;

  Mutex mutex_;
  std::map<Key, std::shared_ptr<Copy>> copies_;
  std::map<Key, std::unique_ptr<PagedWeight>> pages_;
  WeightPager pager_;  // goes before them
  std::shared_ptr<Slab> slab_;
  WeightCache* cache_ = nullptr;
  const Device* opened_for_ = nullptr;  // slab_ and cache_
  std::weak_ptr<const void> owner_;
};

}  // namespace evn
