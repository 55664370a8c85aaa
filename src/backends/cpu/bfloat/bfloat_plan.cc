#include "backends/cpu/bfloat/bfloat_plan.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/support.h"

namespace evn {
std::int64_t bfloat_padded(const simd_bfloat_gemm::Loops& loops, std::int64_t segment) { return round_up(segment, loops.k_step); }

std::int64_t bfloat_block(const simd_bfloat_gemm::Loops& loops, const BfloatSource& from) {
  return checked_mul(checked_mul(from.segments(), bfloat_padded(loops, from.segment())), std::int64_t{loops.lanes});
}

std::int64_t bfloat_elements(const simd_bfloat_gemm::Loops& loops, const BfloatSource& from, std::int64_t columns) {
  return checked_mul(bfloat_block(loops, from), ceil_div(columns, std::int64_t{loops.lanes}));
}

namespace {

constexpr std::int64_t kRounded = 512;  // elements at a time

// Calls take(i, bits) for each of n numbers that lie together, scaled and rounded.
template <typename F>
void each_rounded(const simd_bfloat_gemm::Loops& loops, const float* from, float scale, std::int64_t n, F&& take) {
  float scaled[kRounded];
  std::uint16_t bits[kRounded];
  for (std::int64_t first = 0; first < n; first += kRounded) {
    const std::int64_t count = std::min(kRounded, n - first);
    for (std::int64_t i = 0; i < count; ++i) scaled[i] = scale * from[first + i];
    loops.convert(scaled, count, bits);
    for (std::int64_t i = 0; i < count; ++i) take(first + i, bits[i]);
  }
}

// The loops that round and transpose a whole vector of columns, or null: of bfloat16, and unless what is packed is scaled.
const simd_bfloat_gemm::Loops* packing_loops(const simd_bfloat_gemm::Loops& loops, const BfloatSource& from) {
  return loops.is_float16 || from.scale != 1 ? nullptr : &simd_bfloat_gemm::loops(Isa::k_avx512_bf16);
}

// One block of columns, of which there are `count`, segment by segment: what lies apart is put together before, some k at a time.
void pack_block(const simd_bfloat_gemm::Loops& pack, const BfloatSource& from, std::int64_t padded, std::int64_t lanes,
                const float* column, std::int64_t count, std::uint16_t* to) {
  constexpr std::int64_t kPart = 128, kMostLanes = 16;
  const std::int64_t segment = from.segment(), taps = from.by_tap ? 1 : from.taps_w;
  EVN_CHECK(lanes <= kMostLanes);
  float part[kMostLanes * kPart];
  for (std::int64_t s = 0; s < from.segments(); ++s, to += padded * lanes) {
    const float* const first = column + s * taps;
    for (std::int64_t k = 0; k < segment; k += kPart) {
      const std::int64_t n = std::min(kPart, segment - k), written = k + n == segment ? padded - k : n;
      if (taps == 1 && from.channel_step == 1) {
        pack.pack_columns(first + k, from.column_step, n, count, written, 0, to + k * lanes, nullptr);
        continue;
      }
      for (std::int64_t j = 0; j < count; ++j) {
        const float* source = first + j * from.column_step + k / from.channels + k % from.channels * from.channel_step;
        std::int64_t left = from.channels - k % from.channels;
        for (std::int64_t i = 0; i < n; ++i, source += from.channel_step) {
          if (left-- == 0) {
            source += 1 - from.channels * from.channel_step;
            left = from.channels - 1;
          }
          part[j * kPart + i] = *source;
        }
      }
      pack.pack_columns(part, kPart, n, count, written, 0, to + k * lanes, nullptr);
    }
  }
}

}  // namespace

void pack_bfloat_columns(const simd_bfloat_gemm::Loops& loops, const BfloatSource& from, std::int64_t begin, std::int64_t end,
                         std::int64_t columns, std::uint16_t* to) {
  const std::int64_t lanes = loops.lanes, padded = bfloat_padded(loops, from.segment()), block = bfloat_block(loops, from);
  const std::int64_t taps = from.taps_h * from.taps_w, unit = loops.unit;
  const float* column = from.b;
  if (const simd_bfloat_gemm::Loops* const pack = packing_loops(loops, from)) {
    for (std::int64_t i = begin; i < end; ++i, column += lanes * from.column_step)
      pack_block(*pack, from, padded, lanes, column, std::min(lanes, columns - i * lanes), to + i * block);
    return;
  }
  for (std::int64_t i = begin; i < end; ++i) {
    std::uint16_t* const at = to + i * block;
    std::memset(at, 0, static_cast<std::size_t>(block) * sizeof *at);
    const std::int64_t count = std::min(lanes, columns - i * lanes);
    for (std::int64_t j = 0; j < count; ++j, column += from.column_step) {
      std::int64_t tap = 0, channel = 0;
      each_rounded(loops, column, from.scale, from.column_step, [&](std::int64_t, std::uint16_t bits) {
        const std::int64_t k =
            from.by_tap ? tap * padded + channel : tap / from.taps_w * padded + tap % from.taps_w * from.channels + channel;
        at[(k / unit * lanes + j) * unit + k % unit] = bits;
        if (++tap < taps) return;
        tap = 0;
        ++channel;
      });
    }
  }
}

void pack_bfloat_rows(const simd_bfloat_gemm::Loops& loops, const BfloatSource& from, std::int64_t begin, std::int64_t end,
                      std::int64_t columns, std::uint16_t* to) {
  const std::int64_t lanes = loops.lanes, k = from.channels, block = bfloat_block(loops, from), unit = loops.unit;
  const std::int64_t last = end == k ? bfloat_padded(loops, k) : end;
  if (const simd_bfloat_gemm::Loops* const pack = packing_loops(loops, from)) {
    return pack->pack_rows(from.b, from.channel_step, end - begin, columns, last - begin, block, to + begin * lanes, nullptr);
  }
  for (std::int64_t first = 0; first < columns; first += lanes) {
    const std::int64_t count = std::min(lanes, columns - first);
    std::uint16_t* at = to + first / lanes * block + begin * lanes;
    for (std::int64_t row = begin; row < last; row += unit, at += unit * lanes) {
      std::memset(at, 0, static_cast<std::size_t>(unit * lanes) * sizeof *at);
      for (std::int64_t i = 0; i < unit && row + i < end; ++i) {
        const float* const b = from.b + (row + i - begin) * from.channel_step + first;
        each_rounded(loops, b, from.scale, count, [&](std::int64_t j, std::uint16_t bits) { at[unit * j + i] = bits; });
      }
    }
  }
}

namespace {

constexpr std::int64_t kTilesPerThread = 2;  // each reads its rows of A once more
constexpr double kRowsOfRead = 24;           // it takes to read B
// Bytes of A in a tile, where the second-level cache has 2 MB: what does not fit B is read for once more, and B is the larger one.
constexpr std::int64_t kRowsBytesLarge = 1344 << 10;

}  // namespace

bool copy_bfloat_rows(const simd_bfloat_gemm::Loops& loops, const BfloatRows& rows, std::int64_t ld, std::uint16_t* to,
                      CancelPoints* points) {
  const std::int64_t k = rows.k, padded = bfloat_padded(loops, k);
  const bool is_one = rows.pitch == k && ld == k && padded == k;  // rows that lie together are one long row
  const std::int64_t length = is_one ? checked_mul(rows.count, k) : k;
  for (std::int64_t r = 0; r < (is_one ? 1 : rows.count); ++r, to += ld) {
    const std::int64_t at = r * rows.pitch;
    const bool goes_on = by_parts(points, length, 64, 1, [&](std::int64_t begin, std::int64_t end) {
      if (rows.is_rounded) {
        std::copy_n(static_cast<const std::uint16_t*>(rows.from) + at + begin, end - begin, to + begin);
      } else {
        loops.convert(static_cast<const float*>(rows.from) + at + begin, end - begin, to + begin);
      }
    });
    if (!goes_on) return false;
    if (!is_one) std::fill(to + k, to + padded, std::uint16_t{0});
  }
  return true;
}

std::int64_t bfloat_pieces(const simd_bfloat_gemm::Loops& loops, const QgemmWork& w) {
  if (w.threads < 2) return 1;
  const double rows = static_cast<double>(w.outer) * std::max(kRowsOfRead, static_cast<double>(w.m));
  const double tiles = rows * static_cast<double>(w.n) * static_cast<double>(w.k) / loops.tile_cost;
  return std::max<std::int64_t>(1, std::min(static_cast<std::int64_t>(std::min(tiles, 1e6)), kTilesPerThread * w.threads));
}

PackedGemmTiling tile_bfloat(const simd_bfloat_gemm::Loops& loops, const QgemmWork& w) {
  return tile_rows(w, bfloat_pieces(loops, w), (has_large_l2() ? kRowsBytesLarge : kQgemmRowsBytes) / 2);
}

Refusal refuses_half(const OpDesc& d) {
  const bool is_float16 = d.precision == Precision::kFloat16;
  if (!is_float16 && d.precision != Precision::kBfloat16) return "a lower precision is not asked for";
  if (half_loops(d).lanes != 0) return nullptr;
  return is_float16 ? "no AVX512-FP16" : "no AMX or AVX512-BF16";
}

}  // namespace evn
