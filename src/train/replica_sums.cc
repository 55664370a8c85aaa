#include "train/replica_sums.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace evn_train {

ReplicaSums::ReplicaSums(std::vector<std::vector<float*>> parts, std::vector<std::size_t> elements)
    : parts_(std::move(parts)),
      elements_(std::move(elements)),
      is_ready_(parts_.size() * elements_.size()),
      missing_(elements_.size()) {
  complete_.reserve(elements_.size());
  thread_.emplace([](void* self) { static_cast<ReplicaSums*>(self)->work(); }, this);
}

ReplicaSums::~ReplicaSums() {
  {
    const evn::LockIfAlive lock(mutex_);
    ends_ = true;
  }
  for_thread_.notify_one();
}

void ReplicaSums::begin(std::vector<float> weights, std::vector<float*> to, std::function<void(std::size_t)> summed) {
  const auto count = static_cast<std::size_t>(std::count_if(weights.begin(), weights.end(), [](float w) { return w > 0; }));
  const std::lock_guard<evn::Mutex> lock(mutex_);
  weights_ = std::move(weights);
  to_ = std::move(to);
  summed_ = std::move(summed);
  std::fill(is_ready_.begin(), is_ready_.end(), static_cast<unsigned char>(0));
  std::fill(missing_.begin(), missing_.end(), count);
  complete_.clear();
  next_ = 0;
}

void ReplicaSums::ready(std::size_t replica, std::size_t gradient) noexcept {
  bool is_complete = false;
  {
    const std::lock_guard<evn::Mutex> lock(mutex_);
    unsigned char& is_ready = is_ready_[replica * elements_.size() + gradient];
    if (std::exchange(is_ready, static_cast<unsigned char>(1)) != 0) return;
    is_complete = --missing_[gradient] == 0;
    if (is_complete) complete_.push_back(gradient);  // within what is reserved
  }
  if (is_complete) for_thread_.notify_one();
}

void ReplicaSums::all_ready(std::size_t replica) noexcept {
  for (std::size_t g = 0; g < elements_.size(); ++g) ready(replica, g);
}

// By blocks that stay in a core's cache while the parts are added, in the replicas' order.
void ReplicaSums::sum(std::size_t gradient) {
  constexpr std::size_t kBlock = 4096;
  float* const to = to_[gradient];
  const std::size_t elements = elements_[gradient];
  for (std::size_t begin = 0; begin < elements; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, elements);
    bool is_first = true;
    for (std::size_t r = 0; r < parts_.size(); ++r) {
      const float weight = weights_[r];
      if (!(weight > 0)) continue;
      const float* const part = parts_[r][gradient];
      if (is_first) {
        for (std::size_t i = begin; i < end; ++i) to[i] = weight * part[i];
      } else {
        for (std::size_t i = begin; i < end; ++i) to[i] += weight * part[i];
      }
      is_first = false;
    }
  }
  summed_(gradient);
}

bool ReplicaSums::sum_next(std::unique_lock<evn::Mutex>& lock) {
  if (next_ == complete_.size()) return false;
  const std::size_t gradient = complete_[next_++];
  ++busy_;
  lock.unlock();
  sum(gradient);
  lock.lock();
  --busy_;
  return true;
}

void ReplicaSums::end() {
  std::unique_lock<evn::Mutex> lock(mutex_);
  while (sum_next(lock)) {}
  for_caller_.wait(lock, [&] { return busy_ == 0; });
}

void ReplicaSums::work() noexcept {
  std::unique_lock<evn::Mutex> lock(mutex_);
  for (;;) {
    for_thread_.wait(lock, [&] { return ends_ || next_ < complete_.size(); });
    if (ends_) return;
    sum_next(lock);
    if (busy_ == 0) for_caller_.notify_one();
  }
}

}  // namespace evn_train
