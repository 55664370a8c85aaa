// What the kernels of MatMulNBits have in common: which weights they take, and how these are packed in panels of columns.
#pragma once

#include <vector>

#include "backends/cpu/support.h"
#include "ops/block_quantized.h"

namespace evn {

// Whether one of the node's own inputs is given: a residual may stand where one that is not given would.
inline bool given(const OpDesc& d, int i) { return d.has_input(i); }

inline bool has_float_zeros(const OpDesc& d) {
  return given(d, matmul_nbits::kZeros) && d.inputs[matmul_nbits::kZeros].dtype == DType::kFloat32;
}

// The weights as they are packed and multiplied: those of 2 bits as 4, with zero points that are as many more.
inline matmul_nbits::BlockShape packed_shape(const OpDesc& d) {
  matmul_nbits::BlockShape b = matmul_nbits::block_shape(*d.node);
  if (b.bits != 2) return b;
  b.bits = 4;
  b.zero_bytes = ceil_div(b.blocks, std::int64_t{2});
  return b;
}
inline constexpr int kMoreOf2Bits = 8 - 2;  // the zero points of 4 and of 2 bits where none are given
// What zero points are more by.
inline int packed_offset(const OpDesc& d) { return attr_int(*d.node, matmul_nbits::kBits) == 2 ? kMoreOf2Bits : 0; }

// Calls pack(rows, first, last) for columns [begin, end) of weights or zero points, of `column_bytes` bytes a column as the model
// has them: for all of them, or one by one as 4 bits where they have 2.
template <typename F>
void with_4_bits(const OpDesc& d, std::int64_t column_bytes, const void* rows, std::int64_t begin, std::int64_t end, F&& pack) {
  const auto* from = static_cast<const std::uint8_t*>(rows);
  if (packed_offset(d) == 0) return pack(from, begin, end);
  std::vector<std::uint8_t> column(static_cast<std::size_t>(2 * column_bytes));
  for (std::int64_t j = begin; j < end; ++j, from += column_bytes) {
    for (std::int64_t i = 0; i < 2 * column_bytes; ++i) {
      const int two = from[i / 2] >> (i % 2 * 4);
      column[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(((two & 3) | (two & 12) << 2) + kMoreOf2Bits * 0x11);
    }
    pack(column.data(), j, j + 1);
  }
}

inline constexpr std::int64_t kMostInBlock = 1 << 15;  // weights, which have no cancellation point between them

inline Refusal refusal_of_weights(const OpDesc& d) {
  using namespace matmul_nbits;
  for (const int i : {kA, kScales, kBias}) {
    if (given(d, i) && d.inputs[static_cast<std::size_t>(i)].dtype != DType::kFloat32) return kNeedsFloat32;
  }
  if (block_shape(*d.node).block > kMostInBlock) return "blocks of more than 2^15 weights";
  for (const int i : {kB, kScales, kZeros}) {
    if (given(d, i) && d.constant(i) == nullptr) return "weights, scales and zero points must be constant";
  }
  return given(d, kGroups) ? "blocks that g_idx names" : nullptr;
}

// Calls f(column, at) for each column from `begin` on: `at` counts rows of panels of `width` columns before it, as many as `rows`
// for each, plus its place.
template <typename F>
void for_each_column(std::int64_t width, std::int64_t begin, std::int64_t end, std::int64_t rows, F&& f) {
  for (std::int64_t j = begin; j < end; ++j) f(j - begin, j / width * width * rows + j % width);
}

// One number for each column and block: number(column, block).
template <typename T, typename F>
void pack_numbers(const matmul_nbits::BlockShape& b, std::int64_t width, std::int64_t begin, std::int64_t end, T* to, F&& number) {
  for_each_column(width, begin, end, b.blocks, [&](std::int64_t j, std::int64_t at) {
    for (std::int64_t i = 0; i < b.blocks; ++i) to[at + i * width] = number(j, i);
  });
}

// The hooks of a kernel that packs its constants in panels of WidthOf() columns. Pack writes columns [begin, end); the last panel
// also has the columns that there are not, which are 0. Parts are panels, where a row of the constant is a column.
template <auto Bytes, auto Pack>
void prepack_panels(const OpDesc& d, int input, void* packed) {
  std::memset(packed, 0, Bytes(d, input));
  Pack(d, input, d.constant(input)->bytes(), 0, matmul_nbits::block_shape(*d.node).n, packed);
}

template <auto WidthOf>
std::int64_t panels_step(const OpDesc& d, int input) {
  return d.inputs[static_cast<std::size_t>(input)].shape.rank() < 2 ? 0 : WidthOf();
}

template <auto WidthOf, auto Bytes, auto Pack>
void prepack_some_panels(const OpDesc& d, int input, const void* rows, std::int64_t begin, std::int64_t end, void* packed) {
  const std::int64_t n = matmul_nbits::block_shape(*d.node).n, width = WidthOf();
  if (end == n && end % width != 0) {
    const std::size_t bytes = Bytes(d, input), panel = bytes / static_cast<std::size_t>(ceil_div(n, width));
    std::memset(static_cast<char*>(packed) + bytes - panel, 0, panel);
  }
  Pack(d, input, rows, begin, end, packed);
}

}  // namespace evn
