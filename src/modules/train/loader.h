// A loader: a thread that fills a ring of batches ahead of who asks for them.
#pragma once

#include <optional>

#include "base/mutex.h"
#include "base/os/background.h"
#include "modules/train/handles.h"
#include "modules/train/loader_order.h"

namespace evn_train {

class Loader {
 public:
  Loader(evn_runtime runtime, const evn_loader_options& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // One call of these at a time.
  void start_epoch(std::uint64_t epoch, std::uint64_t first_batch);
  std::uint32_t next(std::span<evn_tensor> tensors);
  std::uint64_t batch_count() const { return order_.batch_count(); }

  // Ends what waits in next() and the thread, which it waits for. While other calls are under way too, and more than once.
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
    evn_tensor of(const Array& array, std::uint32_t samples, std::uint32_t most);
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
  void work() noexcept;
  // Fills a slot with a batch, without the lock. Returns whether the epoch ends with it.
  bool fill(Slot& slot, std::uint64_t batch);
  std::uint32_t produce(std::uint32_t asked);
  void require_own_process() const;

  const std::vector<Array> arrays_;
  LoaderOrder order_;  // of the thread, while it is filling
  const evn_loader_produce produce_;
  void* const context_;
  const evn_cancel cancel_;
  const std::uint32_t most_, prefetch_;
  const bool is_stream_, drops_last_;
  const std::uint32_t process_;  // the fork generation that the thread is of
  std::vector<Slot> slots_;
  std::vector<std::uint64_t> numbers_;  // of samples of the batch that is being filled
  std::vector<void*> buffers_;          // where they go, by array

  evn::Mutex mutex_;  // guards what follows
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
