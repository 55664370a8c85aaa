#include "train/buckets.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace evn_train {
namespace {

constexpr std::uint64_t kBucketBytes = 4 << 20;

std::size_t elements_of(const std::vector<std::int64_t>& dims) {
  std::size_t n = 1;
  for (const std::int64_t dim : dims) n *= static_cast<std::size_t>(dim);  // of a tensor that is in memory
  return n;
}

}  // namespace

Buckets::Buckets(evn_runtime runtime, Ranks& ranks, const std::vector<std::vector<std::int64_t>>& dims,
                 const std::vector<std::size_t>& order, std::uint64_t bucket_bytes)
    : ranks_(ranks), bucket_of_(dims.size()), tensors_(dims.size()), is_ready_(dims.size()) {
  const std::size_t most = static_cast<std::size_t>(bucket_bytes != 0 ? bucket_bytes : kBucketBytes) / sizeof(float);
  std::vector<std::size_t> first(dims.size());  // where each begins in its bucket
  for (const std::size_t g : order) {
    const std::size_t elements = evn::align_up(elements_of(dims[g]), kAlignment);
    if (buckets_.empty() || buckets_.back().elements + elements > most) buckets_.emplace_back();
    Bucket& b = buckets_.back();
    bucket_of_[g] = buckets_.size() - 1;
    first[g] = b.elements;
    b.elements += elements;
    ++b.gradients;
  }
  for (Bucket& b : buckets_) {
    b.memory = Tensor(runtime, EVN_DTYPE_FLOAT32, {static_cast<std::int64_t>(b.elements)});
    const Mapped mapped(b.memory);
    b.data = static_cast<float*>(mapped.data());  // memory of the host, which stays where it is
    std::memset(b.data, 0, b.elements * sizeof(float));
  }
  for (std::size_t g = 0; g < dims.size(); ++g) tensors_[g] = Tensor(buckets_[bucket_of_[g]].memory.get(), first[g], dims[g]);
  thread_.emplace([](void* self) { static_cast<Buckets*>(self)->work(); }, this);
}

Buckets::~Buckets() {
  {
    const evn::LockIfAlive lock(mutex_);
    ends_ = true;
  }
  for_thread_.notify_one();
}

void Buckets::begin(float weight) {
  const std::lock_guard<evn::Mutex> lock(mutex_);
  std::fill(is_ready_.begin(), is_ready_.end(), 0);
  for (Bucket& b : buckets_) b.missing = b.gradients;
  open_ = summed_ = 0;
  weight_ = weight;
  error_.reset();
  is_under_way_ = true;
}

void Buckets::ready(std::size_t gradient) noexcept {
  bool opened = false;
  {
    const std::lock_guard<evn::Mutex> lock(mutex_);
    if (std::exchange(is_ready_[gradient], static_cast<unsigned char>(1)) != 0) return;
    --buckets_[bucket_of_[gradient]].missing;
    for (; open_ < buckets_.size() && buckets_[open_].missing == 0; ++open_) opened = true;
  }
  if (opened) for_thread_.notify_one();
}

void Buckets::finish() {
  for (std::size_t g = 0; g < is_ready_.size(); ++g) ready(g);
  std::unique_lock<evn::Mutex> lock(mutex_);
  for_caller_.wait(lock, [&] { return summed_ == buckets_.size() || error_; });
  is_under_way_ = false;
  if (error_) throw evn::Error(*error_);
}

void Buckets::sum(Bucket& bucket) {
  if (weight_ != 1) {
    for (std::size_t i = 0; i < bucket.elements; ++i) bucket.data[i] *= weight_;
  }
  ranks_.sum(std::span<float>(bucket.data, bucket.elements));
}

void Buckets::work() noexcept {
  std::unique_lock<evn::Mutex> lock(mutex_);
  for (;;) {
    for_thread_.wait(lock, [&] { return ends_ || (is_under_way_ && !error_ && summed_ < open_); });
    if (ends_) return;
    Bucket& bucket = buckets_[summed_];
    lock.unlock();
    const std::optional<evn::Error> error = error_of([&] { sum(bucket); });
    lock.lock();
    if (error) error_ = error;
    else ++summed_;
    if (error_ || summed_ == buckets_.size()) for_caller_.notify_one();
  }
}

}  // namespace evn_train
