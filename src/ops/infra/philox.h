// Philox4x32-10 (J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): random bits as a function of a key
// and a counter.
#pragma once

#include <cstdint>

namespace evn {

struct PhiloxBlock {
  std::uint32_t word[4];
};

// The 128 bits of the counter `high` << 64 | `low`.
inline PhiloxBlock philox(std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  PhiloxBlock b{{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32), static_cast<std::uint32_t>(high),
                 static_cast<std::uint32_t>(high >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p = std::uint64_t{0xD2511F53u} * b.word[0];
    const std::uint64_t q = std::uint64_t{0xCD9E8D57u} * b.word[2];
    b = {{static_cast<std::uint32_t>(q >> 32) ^ b.word[1] ^ k0, static_cast<std::uint32_t>(q),
          static_cast<std::uint32_t>(p >> 32) ^ b.word[3] ^ k1, static_cast<std::uint32_t>(p)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return b;
}

}  // namespace evn
