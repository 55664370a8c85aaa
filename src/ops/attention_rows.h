// What Attention and its derivative share (attention.cc): inputs, attributes, sizes, and where rows stand and what masks hide.
#pragma once

#include "ops/attention_core.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"
#include "ops/op.h"

namespace evn {

struct AttentionInput {
  enum : int { kQ, kK, kV, kMask, kPastKey, kPastValue, kNonpad };
};
struct AttentionAttr {
  enum : int { kIsCausal, kKvHeads, kQHeads, kMode, kScale, kSoftcap, kPrecision, kLeft, kRight };
};
inline constexpr AttributeSpec kAttentionAttributes[] = {
    int_attribute("is_causal", 0),         int_attribute("kv_num_heads", 0),
    int_attribute("q_num_heads", 0),       int_attribute("qk_matmul_output_mode", 0),
    float_attribute("scale", 0),  // 0: 1 / sqrt(D)
    float_attribute("softcap", 0),         int_attribute("softmax_precision", 0),
    int_attribute("left_window_size", -1), int_attribute("right_window_size", -1),
};

// Dims may be -1 while a model loads.
struct AttentionGeometry {
  bool flat = false;  // [B, S, heads * D]
  std::int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, past = 0, depth = 0, value_depth = 0;

  std::int64_t total() const { return keys < 0 || past < 0 ? -1 : checked_add(keys, past); }
};

inline AttentionGeometry attention_geometry(const Node& node, const Shape& q, const Shape& k, const Shape& v, const Shape* past) {
  AttentionGeometry g;
  g.flat = q.rank() == 3;
  g.batch = q[0];
  if (g.flat) {
    g.heads = attr_int(node, AttentionAttr::kQHeads);
    g.kv_heads = attr_int(node, AttentionAttr::kKvHeads);
    if (g.heads < 1 || g.kv_heads < 1) fail(EVN_ERROR_INVALID_MODEL, "inputs of rank 3 need q_num_heads and kv_num_heads");
    g.depth = split_depth(q[2], g.heads);
    g.value_depth = split_depth(v[2], g.kv_heads);
  } else {
    g.heads = q[1];
    g.kv_heads = k[1];
    g.depth = q[3];
    g.value_depth = v[3];
  }
  g.queries = q[g.flat ? 1 : 2];
  g.keys = k[g.flat ? 1 : 2];
  g.past = past != nullptr ? (*past)[2] : 0;
  return g;
}

// The shape of output 0.
Shape attention_output(const AttentionGeometry& g);
// Throws where dims, heads or dtypes of K, V, the mask and what stands behind it do not fit.
void check_attention_inputs(const InferContext& c, const AttentionGeometry& g);

// Row (batch, head, step) of Q, K or V.
template <typename T>
const T* attention_row(const ConstTensor& t, bool flat, std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t heads,
                       std::int64_t steps, std::int64_t depth) {
  return t.as<T>() + (flat ? (b * steps + s) * heads + h : (b * heads + h) * steps + s) * depth;
}

// The rows of attention_core.h.
template <typename T>
class AttentionRows {
 public:
  AttentionRows(const ReferenceContext& c, const AttentionGeometry& g) : c_(c), g_(g) {
    causal_ = attr_int(c.node, AttentionAttr::kIsCausal) != 0;
    left_ = attr_given(c.node, AttentionAttr::kLeft) ? attr_int(c.node, AttentionAttr::kLeft) : -1;
    right_ = attr_given(c.node, AttentionAttr::kRight) ? attr_int(c.node, AttentionAttr::kRight) : -1;
    if (c.has_input(AttentionInput::kMask)) {
      const Shape& mask = c.input(AttentionInput::kMask).desc.shape;
      mask_strides_ = broadcast_strides(mask, {g.batch, g.heads, g.queries, g.total()});
      mask_columns_ = mask[mask.rank() - 1];
    }
  }

  const T* q(std::int64_t b, std::int64_t h, std::int64_t s) const {
    return attention_row<T>(c_.input(AttentionInput::kQ), g_.flat, b, h, s, g_.heads, g_.queries, g_.depth);
  }
  const T* k(std::int64_t b, std::int64_t h, std::int64_t t) const { return key_or_value(AttentionInput::kK, b, h, t); }
  const T* v(std::int64_t b, std::int64_t h, std::int64_t t) const { return key_or_value(AttentionInput::kV, b, h, t); }
  T* y(std::int64_t b, std::int64_t h, std::int64_t s) const {
    return c_.output().as<T>() + (g_.flat ? (b * g_.queries + s) * g_.heads + h : row_number(b, h, s)) * g_.value_depth;
  }
  double sink(std::int64_t) const { return -kInfinity; }

  double bias(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t t) const {
    const std::int64_t valid =
        c_.has_input(AttentionInput::kNonpad) ? c_.input(AttentionInput::kNonpad).as<std::int64_t>()[b] : g_.total();
    if (t >= valid) return -kInfinity;
    const std::int64_t bounded = std::max<std::int64_t>(valid, 0);
    const std::int64_t place = s + (c_.has_input(AttentionInput::kNonpad) ? bounded - g_.queries : g_.past);
    if (causal_ && t > place) return -kInfinity;
    if ((left_ >= 0 && place - t > left_) || (right_ >= 0 && t - place > right_)) return -kInfinity;
    return mask_at(b, h, s, t);
  }

  void scores(int stage, std::int64_t b, std::int64_t h, std::int64_t s, std::span<const double> row) const {
    if (c_.outputs.size() < 4 || !c_.output(3).present() || attr_int(c_.node, AttentionAttr::kMode) != stage) return;
    T* to = c_.output(3).as<T>() + row_number(b, h, s) * g_.total();
    for (const double x : row) {
      cancellation_point();
      *to++ = static_cast<T>(x);
    }
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::int64_t row_number(std::int64_t b, std::int64_t h, std::int64_t s) const { return (b * g_.heads + h) * g_.queries + s; }

  const T* key_or_value(int input, std::int64_t b, std::int64_t h, std::int64_t t) const {
    const std::int64_t depth = input == AttentionInput::kK ? g_.depth : g_.value_depth;
    if (t < g_.past)
      return attention_row<T>(c_.input(input == AttentionInput::kK ? AttentionInput::kPastKey : AttentionInput::kPastValue), false,
                              b, h, t, g_.kv_heads, g_.past, depth);
    return attention_row<T>(c_.input(input), g_.flat, b, h, t - g_.past, g_.kv_heads, g_.keys, depth);
  }

  double mask_at(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t t) const {
    if (!c_.has_input(AttentionInput::kMask)) return 0;
    if (t >= mask_columns_) return -kInfinity;
    const auto& step = mask_strides_.step;
    const std::int64_t at = b * step[0] + h * step[1] + s * step[2] + t;
    const ConstTensor& mask = c_.input(AttentionInput::kMask);
    if (mask.desc.dtype == DType::kBool) return mask.as<std::uint8_t>()[at] != 0 ? 0 : -kInfinity;
    return static_cast<double>(mask.as<T>()[at]);
  }

  const ReferenceContext& c_;
  const AttentionGeometry& g_;
  bool causal_ = false;
  std::int64_t left_ = -1, right_ = -1;
  Strides mask_strides_;
  std::int64_t mask_columns_ = 0;
};

}  // namespace evn
