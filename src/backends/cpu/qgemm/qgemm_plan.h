// What the kernels on qgemm/qgemm_loops.h share: the packed constant B, what is computed for its columns before a tile runs, and
// how a product is cut into tiles.
#pragma once

#include <cstdint>

#include "backends/cpu/gemm/packed_gemm_plan.h"
#include "backends/cpu/qgemm/qgemm_loops.h"
#include "core/epilogue.h"
#include "device/kernel.h"

namespace evn {

// B of so many columns, whose k are `segments` runs of `segment` bytes.
struct QgemmShape {
  std::int64_t columns, segments, segment;
};

std::int64_t qgemm_padded(const simd_qgemm::Loops& loops, std::int64_t segment);
// Bytes of one column block's product with its k; of all blocks; of these and, behind them, the sums of B's columns, in whole lines
// of memory. Throw EVN_ERROR_LIMIT on overflow.
std::int64_t qgemm_block_bytes(const simd_qgemm::Loops& loops, const QgemmShape& shape);
std::int64_t qgemm_data_bytes(const simd_qgemm::Loops& loops, const QgemmShape& shape);
std::int64_t qgemm_bytes(const simd_qgemm::Loops& loops, const QgemmShape& shape);

// Element (tap, channel, column) of B is b[tap + channel * channel_step + column * column_step], where taps are numbered line by
// line. A segment is a tap, or a line of them, each with its channels.
struct QgemmSource {
  const std::uint8_t* b;
  std::int64_t column_step, channels, channel_step;
  std::int64_t taps_h = 1, taps_w = 1;
  bool by_tap = false;
  bool flip = false;  // B is uint8

  QgemmShape shape(std::int64_t columns) const {
    return {columns, by_tap ? taps_h * taps_w : taps_h, by_tap ? channels : taps_w * channels};
  }
};
// Bytes of the room for columns of B as 16 bits.
std::int64_t qgemm_room_bytes(const simd_qgemm::Loops& loops, const QgemmShape& shape);
// Rows of B that lie column by column (column_step 1) are packed four at a time. What has been stopped is unfinished.
void pack_qgemm(const simd_qgemm::Loops& loops, const QgemmSource& from, std::int64_t columns, void* to,
                CancelPoints* points = nullptr);

// Scales and zero points as they lie in a node's inputs. Steps are 0 where one number is for all columns, else 1.
struct QgemmParameters {
  std::int32_t a_zero = 0;               // of A as uint8
  const std::uint8_t* b_zero = nullptr;  // null: 0
  std::int64_t b_zero_step = 0;
  bool flip_b = false;                  // B is uint8, and its zero points
  const std::int32_t* added = nullptr;  // to sums; null: 0
  std::int64_t added_step = 0;
  double a_scale = 1, divisor = 1;  // a sum's scale is a_scale * b_scale / divisor
  const float* b_scale = nullptr;   // null: no scale
  std::int64_t b_scale_step = 0;
  const float* bias = nullptr;  // added to floats

  // Those of the columns from `column` on.
  QgemmParameters from(std::int64_t column) const {
    QgemmParameters n = *this;
    if (b_zero != nullptr) n.b_zero += column * b_zero_step;
    if (added != nullptr) n.added += column * added_step;
    if (b_scale != nullptr) n.b_scale += column * b_scale_step;
    if (bias != nullptr) n.bias += column;
    return n;
  }
};

// What a thread needs for the columns, in bytes.
std::size_t qgemm_columns_bytes(const simd_qgemm::Loops& loops, std::int64_t columns);

// Columns of a tile, at most: set_columns has no cancellation point within.
inline constexpr std::int64_t kMostQgemmColumns = std::int64_t{1} << 15;

// Fills in what belongs to columns [column, column + tile->n): b, start, b_zero, scale and bias. `packed` is what pack_qgemm wrote,
// `memory` is qgemm_columns_bytes of so many columns, aligned to 64. Returns false if the run is to stop: tile->points has a
// cancellation point before it.
[[nodiscard]] bool set_columns(const simd_qgemm::Loops& loops, const QgemmParameters& numbers, const QgemmShape& shape,
                               const void* packed, std::int64_t column, void* memory, simd_qgemm::Tile* tile);

// Numbers of the inputs of convolutions; -1: the operator has none.
struct QgemmConvInputs {
  int x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero;
  int bias;   // added to sums
  int added;  // to floats
};
inline constexpr QgemmConvInputs kQLinearConvInputs = {1, 2, 3, 4, 5, 6, 7, 8, -1};
inline constexpr QgemmConvInputs kConvIntegerInputs = {-1, 2, 1, -1, 3, -1, -1, -1, -1};
inline constexpr QgemmConvInputs kConvIntegerToFloatInputs = {2, 4, 1, 3, 5, -1, -1, -1, 6};

const QgemmConvInputs& conv_inputs_of(const OpDesc& d);

// What kernels that want a weight of int8 without zero points say of another.
Refusal refuses_unsymmetric(const OpDesc& d, const QgemmConvInputs& in);

// The dtypes' parts of it.
inline bool is_uint8(const TensorDesc& t) { return t.dtype == DType::kUint8; }
simd_qgemm::Output qgemm_output(DType dtype);
// An input that is one int8 or uint8 number, as int32; 0 when it is not given.
std::int32_t zero_point_of(const KernelArgs& args, int input);
// 1 where an input has a number for each column, 0 where it has one for all.
inline std::int64_t step_of(const OpDesc& d, int input) {
  return d.inputs[static_cast<std::size_t>(input)].shape.elements() == 1 ? 0 : 1;
}
// Whether an input is not given, or known to be one number.
bool is_one_number(const OpDesc& d, int input);

// The steps that are fused into a node (null: none), over the floats of a tile: `lines` of `width` rows of n.
void apply_steps(const Epilogue* epilogue, Isa isa, void* c, std::int64_t lines, std::int64_t line_step, std::int64_t width,
                 std::int64_t ldc, std::int64_t n, CancelPoints* points);

struct QgemmWork {
  std::int64_t m, n, k;
  std::int64_t outer;  // as many like products are in the same call
  std::uint32_t threads;
};
// How many tiles are worth while, of all products together.
std::int64_t qgemm_pieces(const simd_qgemm::Loops& loops, const QgemmWork& work);
PackedGemmTiling tile_qgemm(const simd_qgemm::Loops& loops, const QgemmWork& work);
// About so many tiles, whose rows of A have at most so many elements.
PackedGemmTiling tile_rows(const QgemmWork& work, std::int64_t pieces, std::int64_t most_elements);

inline constexpr std::int64_t kQgemmColumnStep = 64;             // columns of a tile are a multiple, all clusters' vectors
inline constexpr std::int64_t kQgemmRowsBytes = 256 << 10;       // of A in a tile: it stays in L2 while the columns of B pass by
inline constexpr std::int64_t kQgemmRowsBytesLarge = 640 << 10;  // where that has 2 MB

}  // namespace evn
