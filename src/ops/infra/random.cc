#include "ops/infra/random.h"

#include <cmath>
#include <cstring>

#include "ops/infra/philox.h"

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

double RandomStream::uniform(std::uint64_t i) const {
  const PhiloxBlock b = philox(key_, i, run_);
  return to_unit(b.word[0], b.word[1]);
}

double RandomStream::normal(std::uint64_t i) const {
  const PhiloxBlock b = philox(key_, i, run_);
  const double u = 1 - to_unit(b.word[0], b.word[1]);  // in (0, 1]
  return std::sqrt(-2 * std::log(u)) * std::cos(kTwoPi * to_unit(b.word[2], b.word[3]));
}

}  // namespace evn
