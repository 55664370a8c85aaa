// C = A B for one tile of bytes, summed as int32, which wraps: A uint8, whose rows are read as they lie, B a packed constant of
// int8. The sums become int32, float32 or bytes as they are stored. Whole numbers have one result, whatever the order: every
// cluster and tile gives the same. Bytes of the other kind become these by an exclusive or with 0x80, and their zero points move by
// 128.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/qconv/qwinograd.h"
#include "backends/cpu/simd/cancel_points.h"

namespace evn::simd_qgemm {

enum class Output : std::int32_t { kInt32, kFloat, kInt8, kUint8 };

inline constexpr int kMostSegments = 64;
// Bytes behind a row of A that may be read. They are multiplied by the zeros of padded columns of B, and not counted in row_sums:
// no result depends on them. Kernels initialize them all the same, for tools that look for reads of uninitialized memory.
inline constexpr std::int64_t kOverread = 64;
inline constexpr std::int64_t kWideRows = 3;  // of A: for fewer, widening B costs more than it saves

// What is added to the bytes y of the result: saturate(round((y - y_zero) * y_scale + (r - r_zero) * r_scale + zero)), where r has
// the places and the type of C. It may be C. No sum of the three comes near 2^31.
struct Added {
  const std::uint8_t* r;
  float y_scale, r_scale, zero;
  std::int32_t y_zero, r_zero;
};

// B, k x n, packed: blocks of `lanes` columns, [block][segment][group of k][column][k_group], where a segment is padded with zeros
// to a multiple of `k_step`; columns beyond n are 0. A tile begins at a block.
struct Tile {
  // Row (line, x) of A begins at a + line * line_step + x * lda; its k stand in `segments` runs of `segment` bytes, at these
  // offsets.
  const std::uint8_t* a;
  const std::int16_t* words;  // A as 16 bits, in place of `a`, steps in elements; else null
  std::int16_t* room;         // with words: for `wide_columns` columns of B as 16 bits
  std::int64_t lines, width;
  std::int64_t line_step, lda;
  const std::int64_t* offsets;
  std::int64_t segments, segment;
  std::int64_t padded;  // `segment` in B
  const std::int8_t* b;
  std::int64_t n;
  // Per column, in whole vectors. A sum is that of the products + start - b_zero * (sum of the row of A).
  const std::int32_t* start;
  const std::int32_t* b_zero;  // null: 0
  std::int32_t* row_sums;      // room for one per row; with b_zero
  const float* scale;          // of the sum; for floats and bytes
  bool is_bounded;             // no sum times its scale reaches 2^31
  const float* bias;           // added to floats; null: none
  std::int32_t zero;           // added to bytes, which saturate
  const Added* added;          // to bytes; null: nothing
  Output output;
  void* c;
  std::int64_t line_c, ldc;  // elements from a line or row of C to the next
  CancelPoints* points;      // null: none
};

struct Loops {
  int lanes;
  int k_step;
  double tile_cost;  // multiply-adds that are worth a tile
  void (*run)(const Tile& tile);
  // to[i] = from[i] ^ 0x80.
  void (*flip)(const std::uint8_t* from, std::int64_t n, std::uint8_t* to);
  // Where A and B are better widened before they are multiplied: columns of B at a time (or half of them, and so on, where fewer
  // are left), else 0, and how A is, flipped or not.
  int wide_columns = 0;
  void (*widen)(const std::uint8_t* from, bool flip, std::int64_t n, std::int16_t* to) = nullptr;
  const WinogradLoops* winograd = nullptr;  // there, too
  int k_group = 4;                          // k of a column that lie side by side in B
  // Taken from each byte of A before it is multiplied, where only int8 by int8 can be: `start` has what that changes in sums.
  std::int32_t a_offset = 0;
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_qgemm
