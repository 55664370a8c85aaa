// What those who run or make MatMulNBits ask of a node (ops/block_quantized.cc).
#pragma once

#include "base/checked.h"
#include "base/error.h"
#include "ops/op.h"

namespace evn {

inline std::int64_t checked_bits(std::int64_t bits) {
  if (bits != 2 && bits != 4 && bits != 8) fail(EVN_ERROR_INVALID_MODEL, "bits is %lld", static_cast<long long>(bits));
  return bits;
}

inline std::int64_t checked_block(std::int64_t block) {
  if (block < 16 || (block & (block - 1)) != 0) {
    fail(EVN_ERROR_INVALID_MODEL, "block_size is %lld, no power of 2 from 16 on", static_cast<long long>(block));
  }
  return block;
}

namespace matmul_nbits {

enum : int { kA, kB, kScales, kZeros, kGroups, kBias };
enum : int { kK, kN, kAccuracy, kBits, kBlockSize, kPrepacked };

struct BlockShape {
  std::int64_t k, n, bits, block, blocks;
  std::int64_t zero_bytes;  // of the packed zero points of a column

  std::int64_t column_bytes() const { return blocks * (block / (8 / bits)); }
};

inline BlockShape block_shape(const Node& node) {
  BlockShape s{
      attr_int(node, kK), attr_int(node, kN), checked_bits(attr_int(node, kBits)), checked_block(attr_int(node, kBlockSize)), 0, 0};
  if (s.k < 1 || s.n < 1) fail(EVN_ERROR_INVALID_MODEL, "K and N must be positive");
  s.blocks = ceil_div(s.k, s.block);
  s.zero_bytes = ceil_div(checked_mul(s.blocks, s.bits), std::int64_t{8});
  return s;
}

// Whether the rows of A are quantized too, to 8 bits and block by block. `has_groups`: whether g_idx is given.
inline bool quantizes_rows(const Node& node, bool has_groups) { return attr_int(node, kAccuracy) == 4 && !has_groups; }

}  // namespace matmul_nbits
}  // namespace evn
