#include "train/shared_sums.h"

#include <algorithm>
#include <cstring>

#include "base/os/futex.h"
#include "base/os/os.h"

namespace evn_train {
namespace {

constexpr std::uint32_t kMostMembers = 64;
constexpr std::size_t kPartBytes = 512 << 10;  // of a rank's numbers at a time: stays in the cache of a core
constexpr std::size_t kLineBytes = 64;
constexpr std::uint64_t kSpinNs = 20'000;
constexpr std::uint64_t kLookNs = 20'000'000;  // after which a rank that has not come is looked for

// 16 bytes at a time, in any element order; float32 or float64.
template <typename T>
struct Lanes {
  using Type [[gnu::vector_size(16), gnu::may_alias]] = T;
};

template <typename T>
void add(const std::byte* from, std::byte* to, std::size_t bytes) {
  using Vector = typename Lanes<T>::Type;
  for (std::size_t i = 0; i < bytes; i += 2 * sizeof(Vector)) {
    auto* const sum = reinterpret_cast<Vector*>(to + i);
    const auto* const term = reinterpret_cast<const Vector*>(from + i);
    sum[0] += term[0];
    sum[1] += term[1];
  }
}

// A number of 16 bits is exact in a float, and its sum with zeros, too.
void write_words(std::span<float> to, std::uint64_t value) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(value >> (16 * i) & 0xffff);
}
std::uint64_t read_words(std::span<const float> from) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < from.size(); ++i) value |= static_cast<std::uint64_t>(from[i]) << (16 * i);
  return value;
}

}  // namespace

struct alignas(kLineBytes) SharedSums::Progress {
  std::atomic<std::uint32_t> met;
};

std::atomic<std::uint32_t>& SharedSums::progress(std::uint32_t rank) const {
  return reinterpret_cast<Progress*>(memory_.data())[rank].met;
}

std::byte* SharedSums::part(std::uint32_t rank) const {
  return memory_.data() + count_ * sizeof(Progress) + (2 * rank + half_) * kPartBytes;
}

std::size_t SharedSums::bytes() const { return count_ * (sizeof(Progress) + 2 * kPartBytes); }

bool SharedSums::open(const std::function<void(std::span<float>)>& exchange) {
  const bool wanted = count_ <= kMostMembers && evn::os::environment("EVN_RANKS") != "engine";
  float words[8] = {};  // the name, of rank 0
  if (rank_ == 0 && wanted && memory_.create(bytes())) {
    const evn::os::SharedMemoryName name = memory_.name();
    write_words(std::span(words).subspan(0, 2), name.process);
    write_words(std::span(words).subspan(2, 2), name.descriptor);
    write_words(std::span(words).subspan(4, 4), name.key);
  }
  exchange(words);
  if (rank_ != 0 && wanted) {
    const auto half = [&](std::size_t i) { return static_cast<std::uint32_t>(read_words(std::span(words).subspan(i, 2))); };
    memory_.open({half(0), half(2), read_words(std::span(words).subspan(4, 4))}, bytes());
  }
  float members = memory_.is_open() && memory_.lock(rank_) ? 1 : 0;
  exchange(std::span(&members, 1));
  return members == static_cast<float>(count_);
}

// Until the rank has met the others as often as this one.
void SharedSums::wait_for(std::uint32_t rank, std::uint64_t begin_ns) const {
  std::atomic<std::uint32_t>& other = progress(rank);
  const auto is_late = [&](std::uint32_t met) { return static_cast<std::int32_t>(met - met_) < 0; };
  for (std::uint32_t seen = other.load(std::memory_order_acquire); is_late(seen); seen = other.load(std::memory_order_acquire)) {
    const std::uint64_t waited = evn::os::now_ns() - begin_ns;
    if (waited < kSpinNs) continue;
    if (waited >= timeout_ns_)
      fail(EVN_ERROR_TIMEOUT, "rank %u did not come to the sum within %llu ms", rank,
           static_cast<unsigned long long>(timeout_ns_ / 1'000'000));
    evn::os::shared_futex_wait_for(evn::os::futex_word(other), seen, std::min(kLookNs, timeout_ns_ - waited));
    if (is_late(other.load(std::memory_order_acquire)) && !memory_.is_locked(rank))
      fail(EVN_ERROR_DEVICE_LOST, "the process of rank %u has ended", rank);
  }
}

void SharedSums::meet() {
  std::atomic<std::uint32_t>& own = progress(rank_);
  own.store(++met_, std::memory_order_release);
  evn::os::shared_futex_wake_all(evn::os::futex_word(own));
  const std::uint64_t begin = evn::os::now_ns();
  for (std::uint32_t r = 0; r < count_; ++r) {
    if (r != rank_) wait_for(r, begin);
  }
}

// The halves take turns: who writes to one again has met all others since they have read the sums of it.
template <typename T>
void SharedSums::sum_parts(T* data, std::size_t count) {
  constexpr std::size_t kMost = kPartBytes / sizeof(T);
  for (std::size_t at = 0; at < count; at += kMost) {
    const std::size_t bytes = std::min(kMost, count - at) * sizeof(T);
    std::memcpy(part(rank_), data + at, bytes);
    meet();
    const std::size_t lines = (bytes + kLineBytes - 1) / kLineBytes;
    const std::size_t first = lines * rank_ / count_ * kLineBytes, end = lines * (rank_ + 1) / count_ * kLineBytes;
    for (std::uint32_t r = 1; r < count_; ++r) add<T>(part(r) + first, part(0) + first, end - first);
    meet();
    std::memcpy(data + at, part(0), bytes);
    half_ ^= 1;
  }
}

void SharedSums::sum(void* data, std::size_t count, evn_dtype dtype) {
  if (dtype == EVN_DTYPE_FLOAT32) return sum_parts(static_cast<float*>(data), count);
  sum_parts(static_cast<double*>(data), count);
}

}  // namespace evn_train
