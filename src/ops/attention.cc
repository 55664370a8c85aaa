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
#include "ops/attention_core.h"

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

enum : int { kIsCausal, kKvHeads, kQHeads, kMode, kScale, kSoftcap, kPrecision, kLeft, kRight };
enum : int { kQ, kK, kV, kMask, kPastKey, kPastValue, kNonpad };
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Dims may be -1 while a model loads.
struct Geometry {
  bool flat = false;  // [B, S, heads * D]
  std::int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, past = 0, depth = 0, value_depth = 0;

  std::int64_t total() const { return keys < 0 || past < 0 ? -1 : checked_add(keys, past); }
};

Geometry geometry_of(const Node& node, const Shape& q, const Shape& k, const Shape& v, const Shape* past) {
  Geometry g;
  g.flat = q.rank() == 3;
  g.batch = q[0];
  if (g.flat) {
    g.heads = attr_int(node, kQHeads);
    g.kv_heads = attr_int(node, kKvHeads);
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

void check_inputs(const InferContext& c, const Geometry& g) {
  const Shape& k = c.shape(kK);
  const Shape& v = c.shape(kV);
  require_dim(k[0], g.batch, kK);
  require_dim(v[0], g.batch, kV);
  require_dim(v[g.flat ? 1 : 2], g.keys, kV);
  require_dim(g.flat ? split_depth(k[2], g.kv_heads) : k[3], g.depth, kK);
  if (!g.flat) require_dim(v[1], g.kv_heads, kV);
  if (g.heads >= 0 && g.kv_heads == 0 && g.heads != 0) fail(EVN_ERROR_INVALID_MODEL, "keys without heads");
  if (g.heads >= 0 && g.kv_heads > 0 && g.heads % g.kv_heads != 0) {
    fail(EVN_ERROR_INVALID_MODEL, "the heads of the keys do not divide those of the queries");
  }
  if (c.has_input(kPastKey) != c.has_input(kPastValue)) fail(EVN_ERROR_INVALID_MODEL, "past_key and past_value go together");
  for (int i = kPastKey; i <= kPastValue && c.has_input(i); ++i) {
    const std::int64_t dims[] = {g.batch, g.kv_heads, g.past, i == kPastKey ? g.depth : g.value_depth};
    require_rank(c, i, 4, 4);
    for (int axis = 0; axis < 4; ++axis) require_dim(c.shape(i)[axis], dims[axis], i);
  }
  if (c.has_input(kNonpad)) {
    if (c.has_input(kPastKey)) fail(EVN_ERROR_INVALID_MODEL, "nonpad_kv_seqlen with past keys");
    require_dtype(c, kNonpad, dtype_bit(DType::kInt64));
    require_vector(c, kNonpad, g.batch);
  }
}

void check_mask(const InferContext& c, const Geometry& g) {
  if (!c.has_input(kMask)) return;
  if (c.inputs[kMask].dtype != c.inputs[kQ].dtype) require_dtype(c, kMask, dtype_bit(DType::kBool));
  require_rank(c, kMask, 1, 4);
  const Shape& mask = c.shape(kMask);
  const std::int64_t dims[] = {g.batch, g.heads, g.queries, g.total()};
  for (int i = 0; i < mask.rank(); ++i) {
    const std::int64_t whole = dims[4 - mask.rank() + i];
    const bool last = i + 1 == mask.rank();
    if (last && mask[i] >= 0 && whole >= 0 && mask[i] > whole) fail(EVN_ERROR_INVALID_MODEL, "the mask has more columns than keys");
    if (!last && mask[i] != 1) require_dim(mask[i], whole, kMask);
  }
}

DType attention_dtype(const Node& node, std::span<const DType> inputs, int) {
  const std::int64_t type = attr_int(node, kPrecision);
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
  require_rank(c, kK, c.shape(kQ).rank(), c.shape(kQ).rank());
  require_rank(c, kV, c.shape(kQ).rank(), c.shape(kQ).rank());
  require_rank(c, kPastKey, 4, 4);
  for (int i : {kK, kV, kPastKey, kPastValue}) {
    if (c.has_input(i) && c.inputs[i].dtype != c.inputs[kQ].dtype) fail(EVN_ERROR_INVALID_MODEL, "input %d has another dtype", i);
  }
  const Shape* past = c.has_input(kPastKey) ? &c.shape(kPastKey) : nullptr;
  const Geometry g = geometry_of(c.node, c.shape(kQ), c.shape(kK), c.shape(kV), past);
  check_inputs(c, g);
  check_mask(c, g);
  const std::int64_t mode = attr_int(c.node, kMode);
  if (mode < 0 || mode > 3) fail(EVN_ERROR_INVALID_MODEL, "qk_matmul_output_mode is %lld", static_cast<long long>(mode));
  const std::int64_t hidden = g.value_depth < 0 ? -1 : checked_mul(g.heads, g.value_depth);
  const Shape outputs[] = {g.flat ? Shape{g.batch, g.queries, hidden} : Shape{g.batch, g.heads, g.queries, g.value_depth},
                           {g.batch, g.kv_heads, g.total(), g.depth},
                           {g.batch, g.kv_heads, g.total(), g.value_depth},
                           {g.batch, g.heads, g.queries, g.total()}};
  for (std::size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i].shape = outputs[i];
}

// Row (batch, head, step) of Q, K or V.
template <typename T>
const T* row_of(const ConstTensor& t, bool flat, std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t heads,
                std::int64_t steps, std::int64_t depth) {
  return t.as<T>() + (flat ? (b * steps + s) * heads + h : (b * heads + h) * steps + s) * depth;
}

// The rows of attention_core.h.
template <typename T>
class Rows {
 public:
  Rows(const ReferenceContext& c, const Geometry& g) : c_(c), g_(g) {
    causal_ = attr_int(c.node, kIsCausal) != 0;
    left_ = attr_given(c.node, kLeft) ? attr_int(c.node, kLeft) : -1;
    right_ = attr_given(c.node, kRight) ? attr_int(c.node, kRight) : -1;
    if (c.has_input(kMask)) {
      const Shape& mask = c.input(kMask).desc.shape;
      mask_strides_ = broadcast_strides(mask, {g.batch, g.heads, g.queries, g.total()});
      mask_columns_ = mask[mask.rank() - 1];
    }
  }

  const T* q(std::int64_t b, std::int64_t h, std::int64_t s) const {
    return row_of<T>(c_.input(kQ), g_.flat, b, h, s, g_.heads, g_.queries, g_.depth);
  }
  const T* k(std::int64_t b, std::int64_t h, std::int64_t t) const { return key_or_value(kK, b, h, t); }
  const T* v(std::int64_t b, std::int64_t h, std::int64_t t) const { return key_or_value(kV, b, h, t); }
  T* y(std::int64_t b, std::int64_t h, std::int64_t s) const {
    return c_.output().as<T>() + (g_.flat ? (b * g_.queries + s) * g_.heads + h : row_number(b, h, s)) * g_.value_depth;
  }
  double sink(std::int64_t) const { return -kInfinity; }

  double bias(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t t) const {
    const std::int64_t valid = c_.has_input(kNonpad) ? c_.input(kNonpad).as<std::int64_t>()[b] : g_.total();
    if (t >= valid) return -kInfinity;
    const std::int64_t bounded = std::max<std::int64_t>(valid, 0);
    const std::int64_t place = s + (c_.has_input(kNonpad) ? bounded - g_.queries : g_.past);
    if (causal_ && t > place) return -kInfinity;
    if ((left_ >= 0 && place - t > left_) || (right_ >= 0 && t - place > right_)) return -kInfinity;
    return mask_at(b, h, s, t);
  }

  void scores(int stage, std::int64_t b, std::int64_t h, std::int64_t s, std::span<const double> row) const {
    if (c_.outputs.size() < 4 || !c_.output(3).present() || attr_int(c_.node, kMode) != stage) return;
    T* to = c_.output(3).as<T>() + row_number(b, h, s) * g_.total();
    for (const double x : row) {
      cancellation_point();
      *to++ = static_cast<T>(x);
    }
  }

 private:
  std::int64_t row_number(std::int64_t b, std::int64_t h, std::int64_t s) const { return (b * g_.heads + h) * g_.queries + s; }

  const T* key_or_value(int input, std::int64_t b, std::int64_t h, std::int64_t t) const {
    const std::int64_t depth = input == kK ? g_.depth : g_.value_depth;
    if (t < g_.past) return row_of<T>(c_.input(input == kK ? kPastKey : kPastValue), false, b, h, t, g_.kv_heads, g_.past, depth);
    return row_of<T>(c_.input(input), g_.flat, b, h, t - g_.past, g_.kv_heads, g_.keys, depth);
  }

  double mask_at(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t t) const {
    if (!c_.has_input(kMask)) return 0;
    if (t >= mask_columns_) return -kInfinity;
    const auto& step = mask_strides_.step;
    const std::int64_t at = b * step[0] + h * step[1] + s * step[2] + t;
    const ConstTensor& mask = c_.input(kMask);
    if (mask.desc.dtype == DType::kBool) return mask.as<std::uint8_t>()[at] != 0 ? 0 : -kInfinity;
    return static_cast<double>(mask.as<T>()[at]);
  }

  const ReferenceContext& c_;
  const Geometry& g_;
  bool causal_ = false;
  std::int64_t left_ = -1, right_ = -1;
  Strides mask_strides_;
  std::int64_t mask_columns_ = 0;
};

// Past and new steps, one behind the other, head by head.
template <typename T>
void store_present(const ReferenceContext& c, const Geometry& g, int input, int output) {
  if (c.outputs.size() <= static_cast<std::size_t>(output) || !c.output(output).present()) return;
  const std::int64_t depth = input == kK ? g.depth : g.value_depth;
  T* to = c.output(output).as<T>();
  for (std::int64_t b = 0; b < g.batch; ++b) {
    cancellation_point();
    for (std::int64_t h = 0; h < g.kv_heads; ++h) {
      cancellation_point();
      for (std::int64_t t = 0; t < g.total(); ++t, to += depth) {
        cancellation_point();
        const T* from = t < g.past
                            ? row_of<T>(c.input(input == kK ? kPastKey : kPastValue), false, b, h, t, g.kv_heads, g.past, depth)
                            : row_of<T>(c.input(input), g.flat, b, h, t - g.past, g.kv_heads, g.keys, depth);
        copy_in_pieces(from, depth, to);
      }
    }
  }
}

void reference_attention(const ReferenceContext& c) {
  const Shape* past = c.has_input(kPastKey) ? &c.input(kPastKey).desc.shape : nullptr;
  const Geometry g = geometry_of(c.node, c.input(kQ).desc.shape, c.input(kK).desc.shape, c.input(kV).desc.shape, past);
  const AttentionSizes sizes = {g.batch, g.heads, g.kv_heads, g.queries, g.total(), g.depth, g.value_depth};
  AttentionRule rule = {attention_scale(attr_float(c.node, kScale), g.depth), attr_float(c.node, kSoftcap)};
  const std::int64_t precision = attr_int(c.node, kPrecision);
  if (precision == EVN_DTYPE_FLOAT16) rule.round = to_half;
  if (precision == EVN_DTYPE_BFLOAT16) rule.round = to_bfloat;
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    Rows<T> rows(c, g);
    attend(sizes, rule, rows);
    store_present<T>(c, g, kK, 1);
    store_present<T>(c, g, kV, 2);
  });
}

constexpr AttributeSpec kAttributes[] = {
    int_attribute("is_causal", 0),         int_attribute("kv_num_heads", 0),
    int_attribute("q_num_heads", 0),       int_attribute("qk_matmul_output_mode", 0),
    float_attribute("scale", 0),  // 0: 1 / sqrt(D)
    float_attribute("softcap", 0),         int_attribute("softmax_precision", 0),
    int_attribute("left_window_size", -1), int_attribute("right_window_size", -1),
};

constexpr OpDef row(int since, int inputs, std::size_t attributes) {
  return {.name = "Attention",
          .since = since,
          .min_inputs = 3,
          .max_inputs = inputs,
          .max_outputs = 4,
          .attributes = std::span<const AttributeSpec>(kAttributes).first(attributes),
          .dtypes = kFloats,
          .output_dtype = attention_dtype,
          .infer = infer_attention,
          .reference = reference_attention,
          .tolerance = {1e-4, 1e-5}};
}
constexpr OpDef kOps[] = {row(23, 6, 7), row(24, 7, 7), row(25, 7, 9)};

}  // namespace

extern const OpFamily attention_family;
const OpFamily attention_family = {kOps};

}  // namespace evn
