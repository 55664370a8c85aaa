#include "base/hash.h"

#include <algorithm>
#include <cstring>

#include "base/cancel.h"

namespace evn {

void Hasher::add(const void* bytes, std::size_t size) {
  const auto* p = static_cast<const unsigned char*>(bytes);
  add(std::uint64_t{size});
  for (; size > 0; size -= size < 8 ? size : 8, p += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, size < 8 ? size : 8);
    add(word);
  }
}

void Checksum::add(const void* bytes, std::size_t size, std::uint64_t offset) {
  using Lanes [[gnu::vector_size(16)]] = std::uint64_t;
  constexpr std::size_t kLanes = kLineBytes / sizeof(Lanes);
  const auto* p = static_cast<const unsigned char*>(bytes);
  size_ += size;
  const std::uint64_t line = offset / kLineBytes, lines = (size + kLineBytes - 1) / kLineBytes;
  // Word i of n is in `orders` n - i times. Changes of one bit in many words must not add up to nothing: it reaches another bit
  // too, and what they add to a sum has a sign that depends on the line.
  constexpr Lanes kKeyStep = {0x9e3779b97f4a7c15u, 0xd1b54a32d192ed03u};
  Lanes sums[kLanes] = {}, orders[kLanes] = {}, words[kLanes], key = kKeyStep * line;
  const auto add = [&](const void* from) {
    std::memcpy(words, from, sizeof words);
    for (std::size_t i = 0; i < kLanes; ++i) {
      const Lanes word = words[i] ^ key;
      sums[i] += word ^ word >> 29;
      orders[i] += sums[i];
    }
    key += kKeyStep;
  };
  for (; size >= kLineBytes; size -= kLineBytes, p += kLineBytes) add(p);
  if (size > 0) {
    unsigned char last[kLineBytes] = {};
    std::memcpy(last, p, size);
    add(last);
  }
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint64_t sum = sums[i / 2][i % 2];
    sums_[i] += sum;
    orders_[i] += (line + lines) * sum - orders[i / 2][i % 2];
  }
}

void Checksum::add(const Checksum& other) {
  size_ += other.size_;
  for (std::size_t i = 0; i < kWords; ++i) {
    sums_[i] += other.sums_[i];
    orders_[i] += other.orders_[i];
  }
}

std::uint64_t Checksum::value() const {
  Hasher all;
  all.add(size_);
  for (const std::uint64_t word : sums_) all.add(word);
  for (const std::uint64_t word : orders_) all.add(word);
  return all.value();
}

std::uint64_t checksum_of(const void* bytes, std::size_t size) {
  constexpr auto kPiece = static_cast<std::size_t>(kWorkPerLook / 4 * kBytesPerWork);
  static_assert(kPiece % Checksum::kLineBytes == 0);
  Checksum sum;
  for (std::size_t at = 0; at < size; at += kPiece) {
    const std::size_t count = std::min(kPiece, size - at);
    cancellation_point(static_cast<std::int64_t>(count) / kBytesPerWork);
    sum.add(static_cast<const char*>(bytes) + at, count, at);
  }
  return sum.value();
}

}  // namespace evn
