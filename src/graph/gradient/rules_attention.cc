// Attention as one operator, whose scores are computed once more, block by block.
#include "graph/gradient/rules.h"
#include "ops/attention_rows.h"
#include "ops/training/attention_gradient.h"

namespace evn {
namespace {

using In = AttentionInput;

void attention(Backward& b) {
  if (b.x(In::kPastKey) != kNoValue) b.refuse("it has past keys and values");
  const std::int64_t precision = b.integer("softmax_precision");
  if (precision == EVN_DTYPE_FLOAT16 || precision == EVN_DTYPE_BFLOAT16) b.refuse("its softmax is rounded");
  const std::vector<ValueId> inputs = {b.x(In::kQ), b.x(In::kK), b.x(In::kV),      b.x(In::kMask),
                                       kNoValue,    kNoValue,    b.x(In::kNonpad), b.dy()};
  const std::vector<ValueId> made = b.tape.owns(
      kAttentionGradient, inputs,
      b.copied({"is_causal", "kv_num_heads", "q_num_heads", "scale", "softcap", "left_window_size", "right_window_size"}),
      b.wants(In::kMask) ? 4 : 3);
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (b.wants(i)) b.give(i, made[i]);
  }
}

constexpr GradientRule kRows[] = {
    {"Attention", attention},
};

}  // namespace

extern const GradientRules kAttentionGradients = kRows;

}  // namespace evn
