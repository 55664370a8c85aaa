// Multiply-adds without memory, a sum and a triad over memory, in the vectors of one cluster (EVN_ISA).
#include "peak_loops.h"

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {
namespace {

constexpr int kStreams = 8;

float multiply_adds(std::int64_t rounds) {
  // As many chains as fit into the registers: two units of latency four need eight, registers of AVX-512 hold more.
  constexpr int kChains = kLanes == 16 ? kPeakChains : kPeakChains / 2;
  Vec chains[kChains];
  volatile float start = 0.5f;
  const Vec a = splat(start);
  const Vec b = splat(start + 0.25f);
  for (int i = 0; i < kChains; ++i) chains[i] = splat(start + static_cast<float>(i));
  for (std::int64_t r = 0; r < rounds * (kPeakChains / kChains); ++r) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) chains[i] = fma(chains[i], a, b);
  }
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += chains[i][0] + chains[i][kLanes - 1];
  return sum;
}

float read(const float* from, std::int64_t count) {
  Vec sums[kStreams] = {};
  for (std::int64_t i = 0; i < count; i += kStreams * kLanes) {
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) sums[s] += load(from + i + s * kLanes);
  }
  float sum = 0;
  for (int s = 0; s < kStreams; ++s) sum += sums[s][0] + sums[s][kLanes - 1];
  return sum;
}

void triad(float* to, const float* a, const float* b, float scale, std::int64_t count) {
  const Vec by = splat(scale);
  for (std::int64_t i = 0; i < count; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) store(to + i + s * kLanes, fma(load(b + i + s * kLanes), by, load(a + i + s * kLanes)));
  }
}

void triad_past(float* to, const float* a, const float* b, float scale, std::int64_t count) {
  const Vec by = splat(scale);
  for (std::int64_t i = 0; i < count; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) store_past(to + i + s * kLanes, fma(load(b + i + s * kLanes), by, load(a + i + s * kLanes)));
  }
  fence_past();
}

void copy(float* to, const float* from, std::int64_t count, bool past_caches) {
  for (std::int64_t i = 0; i < count; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      const Vec v = load(from + i + s * kLanes);
      past_caches ? store_past(to + i + s * kLanes, v) : store(to + i + s * kLanes, v);
    }
  }
  if (past_caches) fence_past();
}

}  // namespace

extern const PeakLoops peak_loops;
const PeakLoops peak_loops = {kLanes, multiply_adds, read, triad, triad_past, copy};

}  // namespace evn::EVN_ISA
