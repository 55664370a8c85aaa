// Attention: softmax(softcap(scale * Q K^T) + bias) V, head by head; softcap(x) = softcap * tanh(x / softcap) where it is not 0.
//   inputs   Q, K, V: [B, heads, S, D] or [B, S, heads * D] (then q_num_heads and kv_num_heads are needed); mask, bool or added,
//            broadcast to [B, heads, S, T], missing columns at its end count as masked; past_key, past_value [B, kv_heads, P, D],
//            which go before K and V; nonpad_kv_seqlen [B] (24): how many keys count
//   outputs  Y, in the form of Q; present_key, present_value: past and new ones together; the scores after step 0 to 3 of
//            qk_matmul_output_mode: the scaled product, with softcap, with the bias, after the softmax
// Fewer heads of K and V than of Q, of which they are a divisor, serve several each. With is_causal query i sees keys up to
// i + offset; offset is P, or nonpad_kv_seqlen - S. Windows (25) bound the distance to either side. A row that sees nothing is 0.
// softmax_precision is the type in which the softmax is computed: scores are rounded to it before and weights after it, as Casts
// around a Softmax of that type would. Not given: that of Q, or float32 where Q is of half precision. dtypes: floating point, all
// alike. Failures: dims and heads that do not fit, past and nonpad_kv_seqlen together. Tolerance: rtol 1e-4, atol 1e-5.
#include "ops/attention_rows.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

using In = AttentionInput;
using Attr = AttentionAttr;

void check_tensors(const InferContext& c, const AttentionGeometry& g) {
  const Shape& k = c.shape(In::kK);
  const Shape& v = c.shape(In::kV);
  require_dim(k[0], g.batch, In::kK);
  require_dim(v[0], g.batch, In::kV);
  require_dim(v[g.flat ? 1 : 2], g.keys, In::kV);
  require_dim(g.flat ? split_depth(k[2], g.kv_heads) : k[3], g.depth, In::kK);
  if (!g.flat) require_dim(v[1], g.kv_heads, In::kV);
  if (g.heads >= 0 && g.kv_heads == 0 && g.heads != 0) fail(EVN_ERROR_INVALID_MODEL, "keys without heads");
  if (g.heads >= 0 && g.kv_heads > 0 && g.heads % g.kv_heads != 0) {
    fail(EVN_ERROR_INVALID_MODEL, "the heads of the keys do not divide those of the queries");
  }
  if (c.has_input(In::kPastKey) != c.has_input(In::kPastValue))
    fail(EVN_ERROR_INVALID_MODEL, "past_key and past_value go together");
  for (int i = In::kPastKey; i <= In::kPastValue && c.has_input(i); ++i) {
    const std::int64_t dims[] = {g.batch, g.kv_heads, g.past, i == In::kPastKey ? g.depth : g.value_depth};
    require_rank(c, i, 4, 4);
    for (int axis = 0; axis < 4; ++axis) require_dim(c.shape(i)[axis], dims[axis], i);
  }
  if (c.has_input(In::kNonpad)) {
    if (c.has_input(In::kPastKey)) fail(EVN_ERROR_INVALID_MODEL, "nonpad_kv_seqlen with past keys");
    require_dtype(c, In::kNonpad, dtype_bit(DType::kInt64));
    require_vector(c, In::kNonpad, g.batch);
  }
}

void check_mask(const InferContext& c, const AttentionGeometry& g) {
  if (!c.has_input(In::kMask)) return;
  if (c.inputs[In::kMask].dtype != c.inputs[In::kQ].dtype) require_dtype(c, In::kMask, dtype_bit(DType::kBool));
  require_rank(c, In::kMask, 1, 4);
  const Shape& mask = c.shape(In::kMask);
  const std::int64_t dims[] = {g.batch, g.heads, g.queries, g.total()};
  for (int i = 0; i < mask.rank(); ++i) {
    const std::int64_t whole = dims[4 - mask.rank() + i];
    const bool last = i + 1 == mask.rank();
    if (last && mask[i] >= 0 && whole >= 0 && mask[i] > whole) fail(EVN_ERROR_INVALID_MODEL, "the mask has more columns than keys");
    if (!last && mask[i] != 1) require_dim(mask[i], whole, In::kMask);
  }
}

DType attention_dtype(const Node& node, std::span<const DType> inputs, int) {
  const std::int64_t type = attr_int(node, Attr::kPrecision);
  if (type != 0 && type != EVN_DTYPE_FLOAT32 && type != EVN_DTYPE_FLOAT64 && type != EVN_DTYPE_FLOAT16 &&
      type != EVN_DTYPE_BFLOAT16) {
    fail(EVN_ERROR_INVALID_MODEL,
         "attribute 'softmax_precision' is %lld, which is none of float32 (1), float16 (10), float64 (11) and bfloat16 (16)",
         static_cast<long long>(type));
  }
  return inputs[0];
}

double to_half(double x) { return Float16::from(x).value(); }
double to_bfloat(double x) { return Bfloat16::from(x).value(); }

void infer_attention(InferContext& c) {
  for (int i = 0; i < 3; ++i) require_rank(c, i, 3, 4);
  require_rank(c, In::kK, c.shape(In::kQ).rank(), c.shape(In::kQ).rank());
  require_rank(c, In::kV, c.shape(In::kQ).rank(), c.shape(In::kQ).rank());
  require_rank(c, In::kPastKey, 4, 4);
  for (int i : {In::kK, In::kV, In::kPastKey, In::kPastValue}) {
    if (c.has_input(i) && c.inputs[i].dtype != c.inputs[In::kQ].dtype)
      fail(EVN_ERROR_INVALID_MODEL, "input %d has another dtype", i);
  }
  const Shape* past = c.has_input(In::kPastKey) ? &c.shape(In::kPastKey) : nullptr;
  const AttentionGeometry g = attention_geometry(c.node, c.shape(In::kQ), c.shape(In::kK), c.shape(In::kV), past);
  check_attention_inputs(c, g);
  const std::int64_t mode = attr_int(c.node, Attr::kMode);
  if (mode < 0 || mode > 3) fail(EVN_ERROR_INVALID_MODEL, "qk_matmul_output_mode is %lld", static_cast<long long>(mode));
  const Shape outputs[] = {attention_output(g),
                           {g.batch, g.kv_heads, g.total(), g.depth},
                           {g.batch, g.kv_heads, g.total(), g.value_depth},
                           {g.batch, g.heads, g.queries, g.total()}};
  for (std::size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i].shape = outputs[i];
}

// Past and new steps, one behind the other, head by head.
template <typename T>
void store_present(const ReferenceContext& c, const AttentionGeometry& g, int input, int output) {
  if (c.outputs.size() <= static_cast<std::size_t>(output) || !c.output(output).present()) return;
  const std::int64_t depth = input == In::kK ? g.depth : g.value_depth;
  T* to = c.output(output).as<T>();
  for (std::int64_t b = 0; b < g.batch; ++b) {
    cancellation_point();
    for (std::int64_t h = 0; h < g.kv_heads; ++h) {
      cancellation_point();
      for (std::int64_t t = 0; t < g.total(); ++t, to += depth) {
        cancellation_point();
        const T* from = t < g.past ? attention_row<T>(c.input(input == In::kK ? In::kPastKey : In::kPastValue), false, b, h, t,
                                                      g.kv_heads, g.past, depth)
                                   : attention_row<T>(c.input(input), g.flat, b, h, t - g.past, g.kv_heads, g.keys, depth);
        copy_in_pieces(from, depth, to);
      }
    }
  }
}

void reference_attention(const ReferenceContext& c) {
  const Shape* past = c.has_input(In::kPastKey) ? &c.input(In::kPastKey).desc.shape : nullptr;
  const AttentionGeometry g =
      attention_geometry(c.node, c.input(In::kQ).desc.shape, c.input(In::kK).desc.shape, c.input(In::kV).desc.shape, past);
  const AttentionSizes sizes = {g.batch, g.heads, g.kv_heads, g.queries, g.total(), g.depth, g.value_depth};
  AttentionRule rule = {attention_scale(attr_float(c.node, Attr::kScale), g.depth), attr_float(c.node, Attr::kSoftcap)};
  const std::int64_t precision = attr_int(c.node, Attr::kPrecision);
  if (precision == EVN_DTYPE_FLOAT16) rule.round = to_half;
  if (precision == EVN_DTYPE_BFLOAT16) rule.round = to_bfloat;
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    AttentionRows<T> rows(c, g);
    attend(sizes, rule, rows);
    store_present<T>(c, g, In::kK, 1);
    store_present<T>(c, g, In::kV, 2);
  });
}

constexpr OpDef row(int since, int inputs, std::size_t attributes) {
  return {.name = "Attention",
          .since = since,
          .min_inputs = 3,
          .max_inputs = inputs,
          .max_outputs = 4,
          .attributes = std::span<const AttributeSpec>(kAttentionAttributes).first(attributes),
          .dtypes = kFloats,
          .output_dtype = attention_dtype,
          .infer = infer_attention,
          .reference = reference_attention,
          .tolerance = {1e-4, 1e-5}};
}
constexpr OpDef kOps[] = {row(23, 6, 7), row(24, 7, 7), row(25, 7, 9)};

}  // namespace

Shape attention_output(const AttentionGeometry& g) {
  if (!g.flat) return {g.batch, g.heads, g.queries, g.value_depth};
  return {g.batch, g.queries, g.value_depth < 0 ? -1 : checked_mul(g.heads, g.value_depth)};
}

void check_attention_inputs(const InferContext& c, const AttentionGeometry& g) {
  check_tensors(c, g);
  check_mask(c, g);
}

extern const OpFamily attention_family;
const OpFamily attention_family = {kOps};

}  // namespace evn
