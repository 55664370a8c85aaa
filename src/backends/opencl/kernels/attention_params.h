// The struct that Attention's kernels and those of its derivative take (kernels/shared/attention_keys.cl), without past keys and
// values.
#pragma once

#include <algorithm>

#include "backends/opencl/kernels/support.h"
#include "ops/attention_rows.h"

namespace evn {

struct AttentionParams {
  std::int64_t q_step[3], k_step[3], v_step[3], y_step[3];
  std::int64_t mask_step[3], mask_dim[3];
  std::int64_t mask_columns, left, right;
  std::int64_t batch, heads, kv_heads, queries, keys, depth, value_depth;
  std::int64_t padded_queries, padded_keys;
  float scale, softcap;
  std::int32_t mask, has_nonpad;
};
static_assert(sizeof(AttentionParams) == 30 * 8 + 4 * 4);

inline Refusal refuse_attention_mask(const OpDesc& desc) {
  if (!desc.has_input(AttentionInput::kMask)) return nullptr;
  const TensorDesc& mask = desc.inputs[AttentionInput::kMask];
  return is_float(mask) || mask.dtype == DType::kBool ? nullptr : "only float32";
}

// From batch to batch, head to head, row to row.
inline void set_attention_steps(const AttentionGeometry& g, std::int64_t heads, std::int64_t rows, std::int64_t depth,
                                std::int64_t (&step)[3]) {
  step[0] = checked_mul(checked_mul(heads, rows), depth);
  step[1] = g.flat ? depth : rows * depth;
  step[2] = g.flat ? heads * depth : depth;
}

inline void set_attention_mask(const OpDesc& desc, AttentionParams* p) {
  p->mask_columns = p->keys;
  std::fill_n(p->mask_dim, 3, 1);
  if (!desc.has_input(AttentionInput::kMask)) return;
  const Shape& mask = desc.inputs[AttentionInput::kMask].shape;
  p->mask = is_float(desc.inputs[AttentionInput::kMask]) ? 1 : 2;
  p->mask_columns = mask[mask.rank() - 1];
  std::int64_t step = p->mask_columns;
  for (int i = mask.rank() - 2, axis = 2; i >= 0; --i, --axis) {
    p->mask_dim[axis] = mask[i];
    p->mask_step[axis] = mask[i] == 1 ? 0 : step;
    step *= mask[i];
  }
}

inline AttentionParams attention_params(const OpDesc& desc) {
  using In = AttentionInput;
  using Attr = AttentionAttr;
  const Node& node = *desc.node;
  const AttentionGeometry g =
      attention_geometry(node, desc.inputs[In::kQ].shape, desc.inputs[In::kK].shape, desc.inputs[In::kV].shape, nullptr);
  AttentionParams p{};
  p.batch = g.batch;
  p.heads = g.heads;
  p.kv_heads = std::max<std::int64_t>(g.kv_heads, 1);
  p.queries = g.queries;
  p.keys = to_int(g.keys);
  p.depth = g.depth;
  p.value_depth = g.value_depth;
  p.padded_queries = padded_to_lanes(g.queries);
  p.padded_keys = padded_to_lanes(g.keys);
  set_attention_steps(g, g.heads, g.queries, g.depth, p.q_step);
  set_attention_steps(g, g.kv_heads, g.keys, g.depth, p.k_step);
  set_attention_steps(g, g.kv_heads, g.keys, g.value_depth, p.v_step);
  set_attention_steps(g, g.heads, g.queries, g.value_depth, p.y_step);
  set_attention_mask(desc, &p);
  // Bounds that only later versions have read as not given.
  const auto window = [&](int attribute) {
    constexpr std::int64_t kEverything = std::int64_t{1} << 40;  // keys to either side
    const std::int64_t given = attr_given(node, attribute) ? attr_int(node, attribute) : -1;
    return given < 0 ? kEverything : std::min(given, kEverything);
  };
  p.left = window(Attr::kLeft);
  p.right = attr_int(node, Attr::kIsCausal) != 0 ? 0 : window(Attr::kRight);
  p.scale = static_cast<float>(attention_scale(static_cast<double>(attr_float(node, Attr::kScale)), g.depth));
  p.softcap = attr_float(node, Attr::kSoftcap);
  p.has_nonpad = desc.has_input(In::kNonpad);
  return p;
}

}  // namespace evn
