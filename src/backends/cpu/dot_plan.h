// What the kernels on simd/dot.h share: the packed constant B, what is computed for its columns before a tile runs, and how a
// product is cut into tiles.
#pragma once

#include <cstdint>

#include "backends/cpu/product_plan.h"
#include "backends/cpu/simd/dot.h"
#include "core/epilogue.h"
#include "device/kernel.h"

namespace evn {

// B of so many columns, whose k are `segments` runs of `segment` bytes.
struct DotShape {
  std::int64_t columns, segments, segment;
};

std::int64_t dot_padded(const simd_dot::Loops& loops, std::int64_t segment);
// Bytes of one column block's product with its k; of all blocks; of these and, behind them, the sums of B's columns, in whole lines
// of memory. Throw EVN_ERROR_LIMIT on overflow.
std::int64_t dot_block_bytes(const simd_dot::Loops& loops, const DotShape& shape);
std::int64_t dot_data_bytes(const simd_dot::Loops& loops, const DotShape& shape);
std::int64_t dot_bytes(const simd_dot::Loops& loops, const DotShape& shape);

// Element (tap, channel, column) of B is b[tap + channel * channel_step + column * column_step], where taps are numbered line by
// line. A segment is a tap, or a line of them, each with its channels.
struct DotSource {
  const std::uint8_t* b;
  std::int64_t column_step, channels, channel_step;
  std::int64_t taps_h = 1, taps_w = 1;
  bool by_tap = false;
  bool flip = false;  // B is uint8

  DotShape shape(std::int64_t columns) const {
    return {columns, by_tap ? taps_h * taps_w : taps_h, by_tap ? channels : taps_w * channels};
  }
};
// Bytes of the room for columns of B as 16 bits.
std::int64_t dot_room_bytes(const simd_dot::Loops& loops, const DotShape& shape);
// Rows of B that lie column by column (column_step 1) are packed four at a time. What has been stopped is unfinished.
void pack_dot(const simd_dot::Loops& loops, const DotSource& from, std::int64_t columns, void* to, CancelPoints* points = nullptr);

// Scales and zero points as they lie in a node's inputs. Steps are 0 where one number is for all columns, else 1.
struct DotNumbers {
  std::int32_t a_zero = 0;                 // of A as uint8
  const std::uint8_t* b_zero = nullptr;    // null: 0
  std::int64_t b_zero_step = 0;
  bool flip_b = false;                     // B is uint8, and its zero points
  const std::int32_t* added = nullptr;     // to sums; null: 0
  std::int64_t added_step = 0;
  double a_scale = 1, divisor = 1;         // a sum's scale is a_scale * b_scale / divisor
  const float* b_scale = nullptr;          // null: no scale
  std::int64_t b_scale_step = 0;
  const float* bias = nullptr;             // added to floats

  // Those of the columns from `column` on.
  DotNumbers from(std::int64_t column) const {
    DotNumbers n = *this;
    if (b_zero != nullptr) n.b_zero += column * b_zero_step;
    if (added != nullptr) n.added += column * added_step;
    if (b_scale != nullptr) n.b_scale += column * b_scale_step;
    if (bias != nullptr) n.bias += column;
    return n;
  }
};

// What a thread needs for the columns, in bytes.
std::size_t dot_columns_bytes(const simd_dot::Loops& loops, std::int64_t columns);

// Columns of a tile, at most: set_columns has no cancellation point within.
inline constexpr std::int64_t kMostDotColumns = std::int64_t{1} << 15;

// Fills in what belongs to columns [column, column + tile->n): b, start, b_zero, scale and bias. `packed` is what pack_dot wrote,
// `memory` is dot_columns_bytes of so many columns, aligned to 64. Returns false if the run is to stop: tile->points has a cancellation
// point before it.
[[nodiscard]] bool set_columns(const simd_dot::Loops& loops, const DotNumbers& numbers, const DotShape& shape, const void* packed,
                               std::int64_t column, void* memory, simd_dot::Tile* tile);

// Numbers of the inputs of convolutions; -1: the operator has none.
struct DotConvInputs {
  int x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero;
  int bias;   // added to sums
  int added;  // to floats
};
inline constexpr DotConvInputs kQLinearConvInputs = {1, 2, 3, 4, 5, 6, 7, 8, -1};
inline constexpr DotConvInputs kConvIntegerInputs = {-1, 2, 1, -1, 3, -1, -1, -1, -1};
inline constexpr DotConvInputs kConvIntegerToFloatInputs = {2, 4, 1, 3, 5, -1, -1, -1, 6};

const DotConvInputs& conv_inputs_of(const OpDesc& d);

// What kernels that want a weight of int8 without zero points say of another.
Refusal refuses_unsymmetric(const OpDesc& d, const DotConvInputs& in);

// The dtypes' parts of it.
inline bool is_uint8(const TensorDesc& t) { return t.dtype == DType::kUint8; }
simd_dot::Output dot_output(DType dtype);
// An input that is one int8 or uint8 number, as int32; 0 when it is not given.
std::int32_t zero_point_of(const KernelArgs& args, int input);
// 1 where an input has a number for each column, 0 where it has one for all.
inline std::int64_t step_of(const OpDesc& d, int input) { return d.inputs[static_cast<std::size_t>(input)].shape.elements() == 1 ? 0 : 1; }
// Whether an input is not given, or known to be one number.
bool is_one_number(const OpDesc& d, int input);

// The steps that are fused into a node (null: none), over the floats of a tile: `lines` of `width` rows of n.
void apply_steps(const Epilogue* epilogue, Isa isa, void* c, std::int64_t lines, std::int64_t line_step, std::int64_t width, std::int64_t ldc,
                 std::int64_t n, CancelPoints* points);

struct DotWork {
  std::int64_t m, n, k;
  std::int64_t outer;     // as many like products are in the same call
  std::uint32_t threads;
};
// How many tiles are worth while, of all products together.
std::int64_t dot_pieces(const simd_dot::Loops& loops, const DotWork& work);
ProductTiling tile_dot(const simd_dot::Loops& loops, const DotWork& work);
// About so many tiles, whose rows of A have at most so many elements.
ProductTiling tile_rows(const DotWork& work, std::int64_t pieces, std::int64_t most_elements);

inline constexpr std::int64_t kDotColumnStep = 64;          // columns of a tile are a multiple, all clusters' vectors
inline constexpr std::int64_t kDotRowsBytes = 256 << 10;    // of A in a tile: it stays in L2 while the columns of B pass by
inline constexpr std::int64_t kDotRowsBytesLarge = 640 << 10;  // where that has 2 MB

}  // namespace evn
