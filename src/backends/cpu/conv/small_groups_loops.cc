#include "backends/cpu/conv/small_groups_loops.h"

#include "backends/cpu/simd/finish.h"
#include "backends/cpu/simd/taps.h"

namespace evn::EVN_ISA {
namespace {

#if defined(__AVX2__)
using simd_depthwise::Geometry;
using simd_small_groups::kTaps;
using simd_small_groups::Tile;

constexpr int kOutputs = 7;  // of a row, computed together: with a row's taps they fit into 16 registers

inline Vec permuted(Vec v, IntVec lanes) {
#if defined(__AVX512F__)
  return _mm512_maskz_permutexvar_ps(kAllLanes, reinterpret_cast<__m512i>(lanes), v);
#else
  return _mm256_permutevar8x32_ps(v, reinterpret_cast<__m256i>(lanes));
#endif
}

// The channels of a group that a vector of outputs reads.
struct Group {
  std::int64_t blocks, channels;  // vectors of them, and channels in each
  IntVec first;                   // the lane of the first channel of each output's group
};

inline Group group_of(std::int64_t channels) {
  Group g = {channels <= kLanes ? 1 : channels / kLanes, channels <= kLanes ? channels : kLanes, {}};
  for (int i = 0; i < kLanes; ++i) g.first[i] = static_cast<std::int32_t>(i - i % g.channels);
  return g;
}

// Not inlined: the steps of a chain are more code than all the rest.
__attribute__((noinline)) void store_outputs(const Chain& chain, const Vec* acc, std::int64_t count, float* y,
                                             std::int64_t y_step) {
  for (std::int64_t i = 0; i < count; ++i) {
    Vec v[1] = {acc[i]};
    finish(chain, v);
    store(y + i * y_step, v[0]);
  }
}

// kOutputs outputs of a row, of which `count` are stored. `x` is the group's first channel at tap 0 of the first one's first row;
// of the columns of pixels from there on, `inside` are in the image.
template <int S>
inline void outputs(const Tile& t, const Group& group, const float* x, Range rows, Range inside, std::int64_t c,
                    const float* weight, float* y, std::int64_t count, const Chain& chain) {
  const Geometry& g = *t.geometry;
  const Vec start = t.bias == nullptr ? zero() : load(t.bias + c);
  Vec acc[kOutputs];
#pragma GCC unroll 8
  for (int i = 0; i < kOutputs; ++i) acc[i] = start;
  const std::int64_t row_floats = group.blocks * group.channels * kTaps * kLanes;
  for (std::int64_t ky = rows.begin; ky < rows.end; ++ky) {
    const float* w = weight + ky * row_floats;
    const float* from = x + ky * g.dilation_h * g.width * g.pixel;
    for (std::int64_t b = 0; b < group.blocks; ++b, from += kLanes) {
      IntVec lanes = group.first;
      for (std::int64_t j = 0; j < group.channels; ++j, lanes += 1, w += kTaps * kLanes) {
        const Vec taps[kTaps] = {load(w), load(w + kLanes), load(w + 2 * kLanes)};
#pragma GCC unroll 16
        for (int p = 0; p < (kOutputs - 1) * S + kTaps; ++p) {
          if (p < inside.begin || p >= inside.end) continue;
          const Vec v = permuted(load(from + p * g.pixel), lanes);
#pragma GCC unroll 8
          for (int i = 0; i < kOutputs; ++i) {
            if (p >= i * S && p - i * S < kTaps) acc[i] = fma(taps[p - i * S], v, acc[i]);
          }
        }
      }
    }
  }
  Vec copy[kOutputs];  // lies in memory; `acc` stays in registers
#pragma GCC unroll 8
  for (int i = 0; i < kOutputs; ++i) copy[i] = acc[i];
  store_outputs(chain, copy, count < kOutputs ? count : kOutputs, y, g.out_pixel);
}

// All rows of a vector of channels in turn: the pixels that rows share, and the filters, stay in the first cache.
template <int S>
void run_with(const Tile& t) {
  const Geometry& g = *t.geometry;
  const Chain chain = split_chain(t.epilogue);
  const Group group = group_of(t.group);
  const std::int64_t vector_floats = g.kernel_h * kTaps * t.group * kLanes;
  for (std::int64_t c = t.channel; c < t.channel + t.channels; c += kLanes) {
    const std::int64_t from = c - c % t.group;
    for (std::int64_t y = t.row_begin; y < t.row_end; ++y) {
      const std::int64_t y0 = y * g.stride_h - g.pad_top;
      const Range rows = inside(y0, g.dilation_h, g.kernel_h, g.height);
      for (std::int64_t x = 0; x < g.out_width; x += kOutputs) {
        if (stops(t.points, (rows.end - rows.begin) * kTaps * kOutputs * kLanes * t.group + kFarElement)) return;
        const std::int64_t x0 = x * S - g.pad_left, at = y * g.out_width + x;
        // What the next row of outputs reads beyond this one: too far apart for the prefetcher of the hardware.
        const float* const next = t.x + ((y0 + g.stride_h + (g.kernel_h - 1) * g.dilation_h) * g.width + x0) * g.pixel + c;
        for (std::int64_t p = 0; p < kOutputs * S; ++p) __builtin_prefetch(next + p * g.pixel);
        if (S == 2) {
          for (std::int64_t p = 0; p < kOutputs * S; ++p) __builtin_prefetch(next + (p - g.width) * g.pixel);
        }
        outputs<S>(t, group, t.x + (y0 * g.width + x0) * g.pixel + (t.group < kLanes ? c : from), rows,
                   inside(x0, 1, (kOutputs - 1) * S + kTaps, g.width), c, t.weight + c / kLanes * vector_floats,
                   t.y + at * g.out_pixel + c, g.out_width - x, chain);
      }
    }
  }
}

void run(const Tile& t) { t.geometry->stride_w == 1 ? run_with<1>(t) : run_with<2>(t); }
#endif

}  // namespace

extern const simd_small_groups::Loops loops_small_groups;
const simd_small_groups::Loops loops_small_groups = {.lanes = kLanes,
#if defined(__AVX2__)
                                                     .run = run
#else
                                                     .run = nullptr
#endif
};

}  // namespace evn::EVN_ISA
