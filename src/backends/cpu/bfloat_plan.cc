#include "backends/cpu/bfloat_plan.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backends/cpu/support.h"

namespace evn {
namespace {

std::uint16_t round_to_bfloat(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7f800000u) == 0) return static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace

std::int64_t bfloat_padded(const simd_bfloat_dot::Loops& loops, std::int64_t segment) {
  return ceil_div(segment, std::int64_t{loops.k_step}) * loops.k_step;
}

std::int64_t bfloat_block(const simd_bfloat_dot::Loops& loops, const BfloatSource& from) {
  return checked_mul(checked_mul(from.segments(), bfloat_padded(loops, from.segment())), std::int64_t{loops.lanes});
}

std::int64_t bfloat_elements(const simd_bfloat_dot::Loops& loops, const BfloatSource& from, std::int64_t columns) {
  return checked_mul(bfloat_block(loops, from), ceil_div(columns, std::int64_t{loops.lanes}));
}

void pack_bfloat_columns(const simd_bfloat_dot::Loops& loops, const BfloatSource& from, std::int64_t begin, std::int64_t end,
                         std::int64_t columns, std::uint16_t* to) {
  const std::int64_t lanes = loops.lanes, padded = bfloat_padded(loops, from.segment()), block = bfloat_block(loops, from);
  const std::int64_t taps = from.taps_h * from.taps_w;
  const float* column = from.b;
  for (std::int64_t i = begin; i < end; ++i) {
    std::uint16_t* const at = to + i * block;
    std::memset(at, 0, static_cast<std::size_t>(block) * sizeof *at);
    const std::int64_t count = std::min(lanes, columns - i * lanes);
    for (std::int64_t j = 0; j < count; ++j, column += from.column_step) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t segment = from.by_tap ? tap : tap / from.taps_w;
        const std::int64_t first = segment * padded + (from.by_tap ? 0 : tap % from.taps_w * from.channels);
        for (std::int64_t channel = 0; channel < from.channels; ++channel) {
          const std::int64_t k = first + channel;
          at[(k / 2 * lanes + j) * 2 + k % 2] = round_to_bfloat(from.scale * column[tap + channel * from.channel_step]);
        }
      }
    }
  }
}

void pack_bfloat_rows(const simd_bfloat_dot::Loops& loops, const BfloatSource& from, std::int64_t begin, std::int64_t end,
                      std::int64_t columns, std::uint16_t* to) {
  const std::int64_t lanes = loops.lanes, k = from.channels, block = bfloat_block(loops, from);
  const std::int64_t last = end == k ? bfloat_padded(loops, k) : end;
  for (std::int64_t first = 0; first < columns; first += lanes) {
    const std::int64_t count = std::min(lanes, columns - first);
    std::uint16_t* at = to + first / lanes * block + begin * lanes;
    for (std::int64_t row = begin; row < last; row += 2, at += 2 * lanes) {
      std::memset(at, 0, static_cast<std::size_t>(2 * lanes) * sizeof *at);
      for (std::int64_t half = 0; half < 2 && row + half < end; ++half) {
        const float* const b = from.b + (row + half - begin) * from.channel_step + first;
        for (std::int64_t j = 0; j < count; ++j) at[2 * j + half] = round_to_bfloat(from.scale * b[j]);
      }
    }
  }
}

namespace {

constexpr std::int64_t kTilesPerThread = 4;
constexpr double kRowsOfRead = 24;      // it takes to read B
// Of A in a tile, where the second-level cache has 2 MB: what does not fit B is read for once more, and B is the larger one.
constexpr std::int64_t kRowsBytesLarge = 1344 << 10;

}  // namespace

std::int64_t bfloat_pieces(const simd_bfloat_dot::Loops& loops, const DotWork& w) {
  if (w.threads < 2) return 1;
  const double rows = static_cast<double>(w.outer) * std::max(kRowsOfRead, static_cast<double>(w.m));
  const double tiles = rows * static_cast<double>(w.n) * static_cast<double>(w.k) / loops.tile_cost;
  return std::max<std::int64_t>(1, std::min(static_cast<std::int64_t>(std::min(tiles, 1e6)), kTilesPerThread * w.threads));
}

ProductTiling tile_bfloat(const simd_bfloat_dot::Loops& loops, const DotWork& w) {
  return tile_rows(w, bfloat_pieces(loops, w), (has_large_l2() ? kRowsBytesLarge : kDotRowsBytes) / 2);
}

Refusal refuses_bfloat(const OpDesc& d) {
  if (d.precision != Precision::kBfloat16) return "bfloat16 is not asked for";
  return simd_bfloat_dot::loops(bfloat16_isa()).lanes == 0 ? "no AMX or AVX512-BF16" : nullptr;
}

}  // namespace evn
