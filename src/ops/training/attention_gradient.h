// AttentionGradient: the derivative of Attention (ops/attention_rows.h). Its inputs are those of Attention, without past keys and
// values, and dy; its attributes those of Attention.
#pragma once

namespace evn {

inline constexpr const char kAttentionGradient[] = "AttentionGradient";

struct AttentionGradientInput {
  enum : int { kDy = 7 };  // behind those of Attention
};
struct AttentionGradientOutput {
  enum : int { kDQ, kDK, kDV, kDMask };
};

}  // namespace evn
