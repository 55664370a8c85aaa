#include "base/hash.h"

#include <cstring>

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

std::uint64_t checksum_of(const void* bytes, std::size_t size) {
  using Lanes [[gnu::vector_size(16)]] = std::uint64_t;
  constexpr std::size_t kLanes = 4;
  const auto* p = static_cast<const unsigned char*>(bytes);
  Lanes sums[kLanes] = {{size, 0}}, orders[kLanes] = {};
  const auto add = [&](const Lanes* words) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      sums[i] += words[i];
      orders[i] = (orders[i] << 7 | orders[i] >> 57) + sums[i];
    }
  };
  Lanes words[kLanes];
  for (; size >= sizeof words; size -= sizeof words, p += sizeof words) {
    std::memcpy(words, p, sizeof words);
    add(words);
  }
  if (size > 0) {
    std::memset(words, 0, sizeof words);
    std::memcpy(words, p, size);
    add(words);
  }
  Hasher all;
  for (std::size_t i = 0; i < kLanes; ++i) {
    for (const std::uint64_t word : {sums[i][0], sums[i][1], orders[i][0], orders[i][1]}) all.add(word);
  }
  return all.value();
}

}  // namespace evn
