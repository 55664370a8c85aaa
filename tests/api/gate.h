// An operator of the test's, "mine.Gate": a copy of its input whose runs wait while the gate is shut. With it a test says when a
// run has begun and when it ends, so that nothing depends on how long anything takes.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <vector>

#include "evener/evener.h"
#include "tests/api/support.h"

namespace evn::test {

inline constexpr uint64_t kForever = UINT64_MAX;
// Limit of a wait in nanoseconds, after which a test fails instead of hanging.
inline constexpr uint64_t kPatienceNs = 20'000'000'000;

// evn_operator_infer of an operator whose output is like its first input.
inline evn_status infer_like_input(void*, evn_operator_node, const evn_tensor_view* in, uint32_t, evn_tensor_view* out, uint32_t,
                                   evn_error*) {
  out[0].dtype = in[0].dtype;
  out[0].rank = in[0].rank;
  std::memcpy(out[0].dims, in[0].dims, sizeof in[0].dims);
  return EVN_OK;
}

struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool shut = false;
  bool fails_below_zero = false;  // runs whose first element is negative end with EVN_ERROR_INTERNAL
  int begun = 0;                  // runs that have come to the gate
  int waiting = 0;                // runs that are at the gate now
  std::array<float, 64> first{};  // the first elements of the first runs, in the order in which these began
  std::function<void()> then;     // called in each run, behind the gate

  void set(bool to) {
    const std::lock_guard<std::mutex> lock(mutex);
    shut = to;
    changed.notify_all();
  }
  void pass(float x = 0) {
    {
      std::unique_lock<std::mutex> lock(mutex);
      if (static_cast<std::size_t>(begun) < first.size()) first[static_cast<std::size_t>(begun)] = x;
      ++begun;
      ++waiting;
      changed.notify_all();
      changed.wait(lock, [this] { return !shut; });
      --waiting;
    }
    if (then) then();
  }
  // Until so many runs have come to the gate, in all.
  void await(int count) { await(begun, count); }
  // Until so many runs are at the gate.
  void await_waiting(int count) { await(waiting, count); }
  // The first elements of the runs that have begun, at most 64.
  std::vector<float> all() {
    const std::lock_guard<std::mutex> lock(mutex);
    return {first.begin(), first.begin() + std::min(begun, static_cast<int>(first.size()))};
  }

  evn_status register_at(evn_runtime runtime, evn_error* error) {
    evn_operator op = EVN_OPERATOR_INIT;
    op.domain = "mine";
    op.name = "Gate";
    op.min_inputs = op.max_inputs = 1;
    op.infer = &infer_like_input;
    op.run = &run;
    op.user = this;
    return evn_runtime_register_operator(runtime, &op, error);
  }

 private:
  void await(const int& counter, int count) {
    std::unique_lock<std::mutex> lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return counter >= count; }));
  }
  static evn_status run(void* user, evn_operator_node, const evn_tensor_view* in, uint32_t, const evn_tensor_view* out, uint32_t,
                        evn_error*) {
    auto& gate = *static_cast<Gate*>(user);
    std::memcpy(out[0].data, in[0].data, in[0].size_bytes);
    const float x = *static_cast<const float*>(in[0].data);
    gate.pass(x);
    return gate.fails_below_zero && x < 0 ? EVN_ERROR_INTERNAL : EVN_OK;
  }
};

}  // namespace evn::test
