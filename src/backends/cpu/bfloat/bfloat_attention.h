// Attention of one head whose two products have operands of bfloat16 (bfloat/bfloat_gemm_loops.h); what lies between them is
// float32 (attention/attention_loops.h). Keys and values are packed once for some rows of queries, which pass by a few at a time.
#pragma once

#include "backends/cpu/attention/attention_loops.h"
#include "backends/cpu/bfloat/bfloat_plan.h"

namespace evn {

// Up to so many queries packing takes longer than it saves: they are left to attention/attention_loops.h, in float32.
inline constexpr std::int64_t kFewBfloatQueries = 3;
inline constexpr std::int64_t kBfloatQueries = 32;  // that pass by together: two panels of matrix tiles

struct BfloatAttentionSizes {
  std::int64_t keys, depth, value_depth;
};
// Bytes of simd_attention::Block::buffer.
std::size_t bfloat_attention_bytes(const simd_bfloat_gemm::Loops& loops, const BfloatAttentionSizes& sizes);

// Rows of keys have no past. `is_packed`: the buffer has this head's keys and values from the call before.
void run_bfloat_attention(const simd_bfloat_gemm::Loops& loops, const simd_attention::Loops& rows,
                          const simd_attention::Block& block, bool is_packed);

}  // namespace evn
