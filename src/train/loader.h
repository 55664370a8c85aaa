// A loader: a thread that fills a ring of batches ahead of who asks for them.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>

#include "base/mutex.h"
#include "base/os/background.h"
#include "train/handles.h"
#include "train/loader_order.h"

namespace evn_train {

class Loader {
 public:
  Loader(evn_runtime runtime, const evn_loader_options& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // All may be called at any time, from any thread. A call of next() waits for another thread's.
  std::uint32_t next(std::span<evn_tensor> tensors);
  void start_epoch(std::uint64_t epoch, std::uint64_t first_batch);
  std::uint64_t batch_count() const { return order_.batch_count(); }
  // Ends what waits in next() and the thread, which it waits for.
  void stop();

 private:
  struct Array {
    std::string name;
    std::vector<std::int64_t> dims;  // of a batch; the first is set
    evn_dtype dtype = 0;
    std::size_t sample_bytes = 0;
    const unsigned char* data = nullptr;
  };
  // A tensor, and a view of its first samples for batches that are not full.
  struct Batched {
    Tensor whole, part;
    std::uint32_t part_samples = 0;
    bool is_full = true;
    // Makes the view that a batch of so many samples needs: here, so that next() allocates nothing and cannot fail half-way.
    void fit(const Array& array, std::uint32_t samples, std::uint32_t most);
    evn_tensor get() const { return is_full ? whole.get() : part.get(); }
  };
  // The memory of a batch.
  struct Slot {
    std::vector<Batched> host, device;  // by array; device: where that is another one
    std::uint32_t samples = 0;
  };
  class MappedSlot;
  enum class State { kIdle, kWorking, kStopping };

  static std::vector<Array> read_arrays(const evn_loader_options& options);
  void make_slots(evn_runtime runtime, const evn_loader_options& options);
  // Memory for numbers of samples, counted as tensors are.
  void* make_numbers(evn_runtime runtime, evn_dtype dtype, std::uint64_t count);
  void begin_epoch(std::unique_lock<evn::Mutex>& lock, std::uint64_t epoch, std::uint64_t first_batch);
  // Returns true if the batch that is being made is no longer wanted.
  bool is_abandoned() const;
  [[noreturn]] static void abandon();
  void leave_epoch(State state);
  void work() noexcept;
  bool prepare_batch(Slot& slot, std::uint64_t batch, bool orders);
  void copy_samples(const Array& array, unsigned char* to, std::uint32_t samples) const;
  // Fills a slot with a batch, without the lock. Returns whether the epoch ends with it.
  bool fill(Slot& slot, std::uint64_t batch);
  std::uint32_t produce(std::uint32_t asked);
  void require_own_process() const;
  // Throws EVN_ERROR_WRONG_STATE on the loader's thread, which runs the host's callback and would wait for itself.
  void require_other_thread(const char* call);

  const std::vector<Array> arrays_;
  LoaderOrder order_;  // of the thread, while it is filling
  const evn_loader_produce produce_;
  void* const context_;
  const evn_cancel cancel_;
  const std::uint32_t most_, prefetch_;
  const bool is_stream_, drops_last_;
  const std::uint32_t process_;  // the fork generation that the thread is of
  std::vector<Slot> slots_;
  struct Numbers {
    explicit Numbers(Tensor made) : tensor(std::move(made)), mapped(tensor) {}
    Tensor tensor;
    Mapped mapped;
  };
  std::deque<Numbers> number_tensors_;
  std::uint64_t* numbers_ = nullptr;    // of samples of the batch that is being filled
  std::vector<void*> buffers_;          // where they go, by array
  std::atomic<bool> abandoned_{false};  // the batch that is being filled belongs to an epoch that is over

  evn::Mutex next_mutex_;  // held by next()
  evn::Mutex mutex_;       // guards what follows
  evn::Condition changed_;
  State state_ = State::kIdle;
  bool is_started_ = false;  // an epoch has begun
  bool is_filling_ = false;  // the thread is in fill(), without the lock
  std::uint64_t epoch_ = 0;
  bool orders_ = false;      // the order of epoch_ is still to be made
  std::uint64_t made_ = 0;   // batches that have been filled
  std::uint64_t given_ = 0;  // batches that next() has given; batch b is in slot b % slots, the caller has given_ - 1
  std::uint64_t end_ = 0;    // batches of this epoch, as far as that is known
  std::optional<evn::Error> failure_;
  const void* worker_ = nullptr;  // os::this_thread() of the thread

  evn::Mutex thread_mutex_;  // guards the thread's end
  std::optional<evn::os::BackgroundThread> thread_;
};

}  // namespace evn_train
