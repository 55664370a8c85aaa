// Sums of the gradients that several devices of a runtime make, each of its part of a batch: every gradient is summed as soon as
// all parts of it are there, while the backward passes go on.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/os/background.h"
#include "train/library.h"

namespace evn_train {

class ReplicaSums {
 public:
  // parts: of each replica, where its gradients lie on the host; elements: of each gradient.
  ReplicaSums(std::vector<std::vector<float*>> parts, std::vector<std::size_t> elements);
  ~ReplicaSums();
  ReplicaSums(const ReplicaSums&) = delete;
  ReplicaSums& operator=(const ReplicaSums&) = delete;

  // Gradients are going to be made, of replicas with a weight above 0. to: where the weighted sums go. summed(gradient) is called
  // once for each, by any thread; it throws nothing.
  void begin(std::vector<float> weights, std::vector<float*> to, std::function<void(std::size_t)> summed);
  // A part is complete, and is not read or written by others until end. Called during a run, once or more often.
  void ready(std::size_t replica, std::size_t gradient) noexcept;
  void all_ready(std::size_t replica) noexcept;
  // Returns when no thread sums any more; where all parts were ready, that is when all sums are there.
  void end();

 private:
  void work() noexcept;
  void sum(std::size_t gradient);
  bool sum_next(std::unique_lock<evn::Mutex>& lock);

  const std::vector<std::vector<float*>> parts_;
  const std::vector<std::size_t> elements_;
  std::vector<float> weights_;
  std::vector<float*> to_;
  std::function<void(std::size_t)> summed_;

  evn::Mutex mutex_;
  evn::Condition for_thread_, for_caller_;
  std::vector<unsigned char> is_ready_;  // by replica, by gradient
  std::vector<std::size_t> missing_;     // by gradient: replicas that have not made it
  std::vector<std::size_t> complete_;    // gradients of which nothing is missing, in that order
  std::size_t next_ = 0;                 // of complete_: the first that nobody sums or has summed
  std::size_t busy_ = 0;                 // threads that sum
  bool ends_ = false;
  std::optional<evn::os::BackgroundThread> thread_;  // the last: it uses all of the others
};

}  // namespace evn_train
