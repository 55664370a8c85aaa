// What the kernels on bfloat/bfloat_gemm_loops.h share: the packed constant B, and how a product is cut into tiles. As qgemm_plan.h
// is for bytes. Kernels of bfloat16 and of float16 differ in their loops alone.
#pragma once

#include "backends/cpu/bfloat/bfloat_gemm_loops.h"
#include "backends/cpu/qgemm/qgemm_plan.h"

namespace evn {

// Element (tap, channel, column) of B is b[tap + channel * channel_step + column * column_step], where taps are numbered line by
// line. A segment is a tap, or a line of them, each with its channels. In columns that are packed as such, channel_step is the
// number of taps, and column_step all of them.
struct BfloatSource {
  const float* b;
  std::int64_t column_step, channels, channel_step;
  std::int64_t taps_h = 1, taps_w = 1;
  bool by_tap = false;
  float scale = 1;

  std::int64_t segments() const { return by_tap ? taps_h * taps_w : taps_h; }
  std::int64_t segment() const { return by_tap ? channels : taps_w * channels; }
};

// The instruction set for a node's precision, which may be one without such loops.
inline Isa half_isa(const OpDesc& d) { return d.precision == Precision::kFloat16 ? float16_isa() : bfloat16_isa(); }
inline const simd_bfloat_gemm::Loops& half_loops(const OpDesc& d) { return simd_bfloat_gemm::loops(half_isa(d)); }

std::int64_t bfloat_padded(const simd_bfloat_gemm::Loops& loops, std::int64_t segment);
// Elements of one block of columns, and of all. Throw EVN_ERROR_LIMIT on overflow.
std::int64_t bfloat_block(const simd_bfloat_gemm::Loops& loops, const BfloatSource& from);
std::int64_t bfloat_elements(const simd_bfloat_gemm::Loops& loops, const BfloatSource& from, std::int64_t columns);

// Writes blocks [begin, end) of columns, of so many in all; `from` begins with the column begin * lanes.
void pack_bfloat_columns(const simd_bfloat_gemm::Loops& loops, const BfloatSource& from, std::int64_t begin, std::int64_t end,
                         std::int64_t columns, std::uint16_t* to);
// Writes rows [begin, end) of k of a matrix whose columns lie side by side; `from` begins with the row `begin`, which is even, and
// the last part writes the padding too.
void pack_bfloat_rows(const simd_bfloat_gemm::Loops& loops, const BfloatSource& from, std::int64_t begin, std::int64_t end,
                      std::int64_t columns, std::uint16_t* to);

// Rows of A, `pitch` elements apart and each of k floats, or of k elements that are rounded already, become rows `ld` apart, with
// zeros up to the padded k. False: the run is to stop.
struct BfloatRows {
  const void* from;
  bool is_rounded;
  std::int64_t pitch, count, k;
};
bool copy_bfloat_rows(const simd_bfloat_gemm::Loops& loops, const BfloatRows& rows, std::int64_t ld, std::uint16_t* to,
                      CancelPoints* points);

// Tiles and pieces as tile_qgemm and qgemm_pieces have them.
std::int64_t bfloat_pieces(const simd_bfloat_gemm::Loops& loops, const QgemmWork& work);
PackedGemmTiling tile_bfloat(const simd_bfloat_gemm::Loops& loops, const QgemmWork& work);

// Arguments that may be stored as the operands' type. Sums may be larger than the largest float16: as residuals they stay float32.
constexpr std::uint8_t storage_16bit(Precision operands) {
  return k16BitInput | k16BitOutput | (operands == Precision::kBfloat16 ? k16BitResidual : std::uint8_t{0});
}

// Products of one sum, at most: without tiles a micro-tile computes all of k before its next cancellation point.
inline constexpr std::int64_t kMostHalfDepth = std::int64_t{1} << 17;
inline constexpr Refusal kTooDeep = "more than 2^17 products in a sum";

// What a node must say for the kernels to look at it further.
Refusal refuses_half(const OpDesc& d);

}  // namespace evn
