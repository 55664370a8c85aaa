#include "ops/infra/random.h"

#include <cmath>
#include <cstring>

namespace evn {
namespace {

constexpr double kStep = 0x1p-53;
constexpr double kTwoPi = 6.283185307179586;

// FNV-1a.
std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) {
    cancellation_point();
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return h;
}

std::uint64_t seed_of(const Node& node) {
  for (const Attribute& a : node.attributes) {
    if (a.name != "seed") continue;
    if (const auto* whole = std::get_if<std::int64_t>(&a.value)) return static_cast<std::uint64_t>(*whole);
    if (const auto* real = std::get_if<float>(&a.value)) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, real, sizeof bits);
      return bits;
    }
  }
  return hash(node.name);
}

double to_unit(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11) * kStep;
}

}  // namespace

RandomStream::RandomStream(const ReferenceContext& c) : key_(seed_of(c.node)), run_(c.services.random_seed) {}

RandomStream::Block RandomStream::block(std::uint64_t i) const {
  std::uint32_t k0 = static_cast<std::uint32_t>(key_);
  std::uint32_t k1 = static_cast<std::uint32_t>(key_ >> 32);
  Block b{{static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), static_cast<std::uint32_t>(run_),
           static_cast<std::uint32_t>(run_ >> 32)}};
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

double RandomStream::uniform(std::uint64_t i) const {
  const Block b = block(i);
  return to_unit(b.word[0], b.word[1]);
}

double RandomStream::normal(std::uint64_t i) const {
  const Block b = block(i);
  const double u = 1 - to_unit(b.word[0], b.word[1]);  // in (0, 1]
  return std::sqrt(-2 * std::log(u)) * std::cos(kTwoPi * to_unit(b.word[2], b.word[3]));
}

}  // namespace evn
