// Gradients in contiguous memory, bucket by bucket, and the thread that sums each bucket over all ranks as soon as the backward
// pass has made its gradients (gradient bucketing as in PyTorch's DistributedDataParallel: Li et al., 2020, arXiv 2006.15704).
#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/os/background.h"
#include "train/handles.h"
#include "train/ranks.h"

namespace evn_train {

class Buckets {
 public:
  // sizes: elements of each gradient; order: their numbers, in the order in which the backward pass makes them, the same in all
  // ranks.
  Buckets(evn_runtime runtime, Ranks& ranks, const std::vector<std::vector<std::int64_t>>& dims,
          const std::vector<std::size_t>& order, std::uint64_t bucket_bytes);
  ~Buckets();
  Buckets(const Buckets&) = delete;
  Buckets& operator=(const Buckets&) = delete;

  // Tensors of the gradients, in the buckets' memory.
  std::vector<Tensor> take_tensors() { return std::move(tensors_); }

  // Gradients are going to be made; those of this rank count `weight` times.
  void begin(float weight);
  // Gradient `gradient` is complete, and is not read or written by others until finish. Called during a run.
  void ready(std::size_t gradient) noexcept;
  // All are there. Returns when all sums are. Throws what a reduction has failed with.
  void finish();

 private:
  struct Bucket {
    Tensor memory;
    float* data = nullptr;
    std::size_t elements = 0, gradients = 0;
    std::size_t missing = 0;  // gradients that are not there yet
  };
  static constexpr std::size_t kAlignment = 16;  // elements: a cache line

  void work() noexcept;
  void sum(Bucket& bucket);

  Ranks& ranks_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  // by gradient
  std::vector<Tensor> tensors_;
  std::vector<unsigned char> is_ready_;  // by gradient

  evn::Mutex mutex_;
  evn::Condition for_thread_, for_caller_;
  std::size_t open_ = 0, summed_ = 0;  // buckets that may be summed, in their order; those that are
  bool is_under_way_ = false, ends_ = false;
  float weight_ = 1;
  std::optional<evn::Error> error_;
  std::optional<evn::os::BackgroundThread> thread_;  // the last: it uses all of the others
};

}  // namespace evn_train
