// All-reduce through shared memory. Threads stand for the ranks, which find each other by a sum among threads; processes do that in
// tests/training/test_ranks.py.
#include "train/shared_sums.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/fault.h"

namespace evn_train {
namespace {

// The engine by which ranks find each other.
class Engine {
 public:
  explicit Engine(std::uint32_t count) : count_(count) {}
  void sum(std::span<float> numbers) {
    std::unique_lock<std::mutex> lock(mutex_);
    const int round = round_;
    total_.resize(numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) total_[i] += numbers[i];
    if (++here_ == count_) {
      result_ = std::exchange(total_, {});
      here_ = 0;
      ++round_;
      all_.notify_all();
    } else {
      all_.wait(lock, [&] { return round_ != round; });
    }
    std::copy(result_.begin(), result_.end(), numbers.begin());
  }

 private:
  const std::uint32_t count_;
  std::mutex mutex_;
  std::condition_variable all_;
  std::vector<float> total_, result_;
  std::uint32_t here_ = 0;
  int round_ = 0;
};

constexpr std::uint64_t kLong = 60'000'000'000;

// body(rank, sums) in a thread for each rank; `sums` is empty where they share no memory.
template <typename F>
void with_ranks(std::uint32_t count, std::uint64_t timeout_ns, F&& body) {
  Engine engine(count);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      std::optional<SharedSums> sums(std::in_place, rank, count, timeout_ns);
      if (!sums->open([&](std::span<float> n) { engine.sum(n); })) sums.reset();
      body(rank, sums);
    });
  }
  for (std::thread& t : threads) t.join();
}

template <typename T>
void check_sums(std::uint32_t count) {
  const std::vector<std::size_t> sizes = {1, 2, 15, 16, 17, 1000, 131'071, 131'072, 131'073, 400'000, 3, 262'144, 1};
  std::vector<std::vector<T>> first(sizes.size());
  std::mutex mutex;
  with_ranks(count, kLong, [&](std::uint32_t rank, auto& sums) {
    ASSERT_TRUE(sums);
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      std::vector<T> numbers(sizes[s]), want(sizes[s]);
      const auto number = [&](std::size_t i, std::uint32_t r) {
        return static_cast<T>((i * 7 + s) % 1013) / T(3) + static_cast<T>(r) * T(0.7);
      };
      for (std::size_t i = 0; i < sizes[s]; ++i) {
        numbers[i] = number(i, rank);
        want[i] = number(i, 0);
        for (std::uint32_t r = 1; r < count; ++r) want[i] += number(i, r);  // in the order of the ranks
      }
      sums->sum(numbers.data(), numbers.size(), sizeof(T) == 4 ? EVN_DTYPE_FLOAT32 : EVN_DTYPE_FLOAT64);
      EXPECT_EQ(numbers, want) << "size " << sizes[s] << " rank " << rank;
    }
  });
}

TEST(SharedSums, AreThoseOfAllRanksInTheirOrder) {
  for (const std::uint32_t count : {2u, 3u, 7u}) {
    check_sums<float>(count);
    check_sums<double>(count);
  }
}

TEST(SharedSums, ARankThatHasEndedOrIsLateIsAnError) {
  for (const bool ends : {true, false}) {
    std::mutex mutex;
    std::condition_variable done;
    bool is_over = false;
    with_ranks(2, ends ? kLong : 50'000'000, [&](std::uint32_t rank, auto& sums) {
      ASSERT_TRUE(sums);
      if (rank == 1) {
        if (ends) return sums.reset();
        std::unique_lock<std::mutex> lock(mutex);
        return done.wait(lock, [&] { return is_over; });
      }
      float number = 1;
      try {
        sums->sum(&number, 1, EVN_DTYPE_FLOAT32);
        ADD_FAILURE();
      } catch (const evn::Error& e) {
        EXPECT_EQ(e.status, ends ? EVN_ERROR_DEVICE_LOST : EVN_ERROR_TIMEOUT) << e.message;
        EXPECT_NE(std::string(e.message).find("rank 1"), std::string::npos) << e.message;
      }
      const std::lock_guard<std::mutex> lock(mutex);
      is_over = true;
      done.notify_all();
    });
  }
}

TEST(SharedSums, AllRanksHaveThemOrNone) {
  for (int k = 1; k <= 4; ++k) {
    evn::fault_count_reset(evn::Seam::kIo);
    std::atomic<int> have{0};
    evn::fault_arm(evn::Seam::kIo, k, false);
    with_ranks(3, kLong, [&](std::uint32_t, auto& sums) { have += sums.has_value(); });
    evn::fault_arm(evn::Seam::kIo, 0, false);
    EXPECT_EQ(have, k <= 3 ? 0 : 3) << k;  // one is made, two are opened
  }
  ::setenv("EVN_RANKS", "engine", 1);
  with_ranks(2, kLong, [&](std::uint32_t, auto& sums) { EXPECT_FALSE(sums); });
  ::unsetenv("EVN_RANKS");
  with_ranks(65, kLong, [&](std::uint32_t, auto& sums) { EXPECT_FALSE(sums); });
}

}  // namespace
}  // namespace evn_train
