// com.microsoft's attention of as many heads of keys as of queries: softmax(scale * Q K^T + mask + attention_bias) V, head by head.
//   Attention            Q, K, V = parts of x W + bias: x [B, S, I], W [I, q + k + v], which `qkv_hidden_sizes` parts, else thirds
//   QAttention           the same of whole numbers: (x - zero point) (W - zero point) * scales + bias; scale and zero point of W
//                        one number, or one for each column
//   MultiHeadAttention   Q [B, S, N * D] and K, V [B, L, N * D] plus bias; or K, V [B, N, L, D] as they are; or all packed in
//                        [B, S, N, 3, D], or K and V in [B, L, N, 2, D]. Output 3, when wanted: what the softmax gets
// The past, [2, B, N, P, D] or two of [B, N, P, D], goes before K and V; present outputs have both. Masks, int32, add
// mask_filter_value (-10000) where they are 0: [B, T] or [B, S, T]; or lengths: [B], where keys end, [2B], also where they begin,
// [3B + 2], where they end and numbers that nothing needs.
// With `unidirectional` query i sees keys up to P + i. attention_bias broadcasts to [B, N, S, T].
// MultiHeadAttention's past_sequence_length P makes past and present buffers of one size, of which P rows are past; then
// cache_indirection [B / beams, beams, rows] names the beam whose row each past key and value is, for one query.
// dtypes: float32; QAttention int8 and uint8, whose result and scales are float32, float16 or bfloat16. Failures: dims that do not
// fit; Attention's rotary embedding, buffer sharing and masks of rank 4 (UNSUPPORTED). Tolerance: rtol 1e-4, atol 1e-5.
#include "ops/attention_core.h"
#include "ops/contrib_attention_rows.h"
#include "ops/infra/quantized.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

using namespace contrib_attention;

constexpr std::uint32_t kFloat = dtype_bit(DType::kFloat32);
constexpr std::uint32_t kInt = dtype_bit(DType::kInt32);

std::int64_t heads_of(const Node& node) {
  const std::int64_t heads = attr_int(node, kHeads);
  if (heads < 1) fail(EVN_ERROR_INVALID_MODEL, "num_heads is %lld", static_cast<long long>(heads));
  return heads;
}

constexpr AttentionInputs kPlain = {0, 1, 2, 3, 4, -1, 5};
constexpr AttentionInputs kQuantized = {0, 1, 2, 5, 8, -1, -1};
constexpr AttentionInputs kMulti = {0, -1, 3, 4, 6, 7, 5};

// ------------------------------------------------------------------------------------------------ shape rules --

void check_mask(const InferContext& c, int input, const AttentionSizes& z) {
  if (!c.has_input(input)) return;
  require_dtype(c, input, kInt);
  const Shape& mask = c.shape(input);
  if (mask.rank() > 3) fail(EVN_ERROR_UNSUPPORTED, "an attention mask of rank %d", mask.rank());
  require_rank(c, input, 1, 3);
  if (mask.rank() == 1) {
    if (mask[0] < 0 || z.batch < 0 || mask[0] == z.batch) return;
    if (mask[0] == checked_mul<std::int64_t>(2, z.batch) || mask[0] - 2 == checked_mul<std::int64_t>(3, z.batch)) return;
    fail(EVN_ERROR_UNSUPPORTED, "a mask of %lld numbers for a batch of %lld", static_cast<long long>(mask[0]),
         static_cast<long long>(z.batch));
  }
  require_dim(mask[0], z.batch, input);
  if (mask.rank() == 3) require_dim(mask[1], z.queries, input);
  require_dim(mask[mask.rank() - 1], z.keys, input);
}

void check_bias(const InferContext& c, int input, const AttentionSizes& z) {
  if (input < 0 || !c.has_input(input)) return;
  require_dtype(c, input, kFloat);
  require_rank(c, input, 4, 4);
  const std::int64_t dims[] = {z.batch, z.heads, z.queries, z.keys};
  for (int i = 0; i < 4; ++i) {
    if (i > 1 || c.shape(input)[i] != 1) require_dim(c.shape(input)[i], dims[i], input);
  }
}

void require_dims(const InferContext& c, int input, std::initializer_list<std::int64_t> dims) {
  const int rank = static_cast<int>(dims.size());
  require_rank(c, input, rank, rank);
  for (int i = 0; i < rank; ++i) require_dim(c.shape(input)[i], dims.begin()[i], input);
}

// What is unknown makes the sum unknown.
std::int64_t add_dims(std::int64_t a, std::int64_t b) { return a < 0 || b < 0 ? -1 : checked_add(a, b); }

// The widths of Q, K and V: -1 where they are not known.
struct Widths {
  std::int64_t q, k, v;
};

Widths widths_of(const Node& node, std::int64_t all) {
  const bool may_differ = node.op->attributes.size() > kHiddenSizes;
  const std::span<const std::int64_t> given = may_differ ? attr_ints(node, kHiddenSizes) : std::span<const std::int64_t>();
  if (given.empty()) {
    const std::int64_t third = split_depth(all, 3);
    return {third, third, third};
  }
  if (given.size() != 3 || given[0] < 1 || given[1] != given[0] || given[2] < 1) {
    fail(EVN_ERROR_INVALID_MODEL, "qkv_hidden_sizes are not the widths of Q, K and V");
  }
  const std::int64_t sum = checked_add(checked_mul<std::int64_t>(2, given[0]), given[2]);
  if (all >= 0 && all != sum) fail(EVN_ERROR_INVALID_MODEL, "qkv_hidden_sizes do not fit the weight");
  return {given[0], given[1], given[2]};
}

AttentionSizes projected_sizes(const Node& node, const Shape& x, const Shape& weight, std::int64_t past) {
  const Widths width = widths_of(node, weight[1]);
  const std::int64_t heads = heads_of(node);
  return {.batch = x[0],
          .heads = heads,
          .kv_heads = heads,
          .queries = x[1],
          .keys = add_dims(past, x[1]),
          .depth = split_depth(width.q, heads),
          .value_depth = split_depth(width.v, heads)};
}

void infer_projected(InferContext& c, const AttentionInputs& in, std::uint32_t floats) {
  if (attr_int(c.node, kDoRotary) != 0) fail(EVN_ERROR_UNSUPPORTED, "attention with rotary embedding");
  if (attr_int(c.node, kShareBuffer) != 0) fail(EVN_ERROR_UNSUPPORTED, "past and present in one buffer");
  require_rank(c, in.x, 3, 3);
  require_rank(c, in.weight, 2, 2);
  const Shape& weight = c.shape(in.weight);
  require_dim(weight[0], c.shape(in.x)[2], in.weight);
  require_dtype(c, in.bias, floats);
  require_vector(c, in.bias, weight[1]);
  const bool has_past = c.has_input(in.past);
  if (has_past) {
    require_dtype(c, in.past, floats);
    require_rank(c, in.past, 5, 5);
  }
  const AttentionSizes z = projected_sizes(c.node, c.shape(in.x), weight, has_past ? c.shape(in.past)[3] : 0);
  if (has_past || c.outputs.size() > 1) {
    if (z.depth >= 0 && z.value_depth >= 0 && z.depth != z.value_depth) {
      fail(EVN_ERROR_INVALID_MODEL, "a past of keys and values of unlike widths");
    }
  }
  if (has_past) require_dims(c, in.past, {2, z.batch, z.heads, c.shape(in.past)[3], z.depth});
  check_mask(c, in.mask, z);
  check_bias(c, in.attention_bias, z);
  c.outputs[0].shape = {z.batch, z.queries, z.value_depth < 0 ? -1 : checked_mul(z.heads, z.value_depth)};
  if (c.outputs.size() > 1) c.outputs[1].shape = {2, z.batch, z.heads, z.keys, z.depth};
}

void infer_plain(InferContext& c) {
  require_same_dtype(c, kPlain.x, kPlain.bias);
  infer_projected(c, kPlain, kFloat);
}

enum : int { kXScale = 3, kWeightScale = 4, kXZero = 6, kWeightZero = 7 };

void infer_quantized(InferContext& c) {
  require_rank(c, kQuantized.weight, 2, 2);
  require_quantized(c, kQuantized.x, kXScale, kXZero, 1, kScaleDtypes);
  const std::uint32_t floats = dtype_bit(c.inputs[kXScale].dtype);
  require_quantized(c, kQuantized.weight, kWeightScale, kWeightZero, c.shape(kQuantized.weight)[1], floats);
  infer_projected(c, kQuantized, floats);
}

DType scale_output(const Node&, std::span<const DType> inputs, int) { return inputs[kXScale]; }

// How MultiHeadAttention's inputs give Q, K and V.
enum class Packing { kNone, kAll, kKeys };

Packing packing_of(const Shape& q, const Shape* k) {
  if (q.rank() == 5) return Packing::kAll;
  return k != nullptr && k->rank() == 5 ? Packing::kKeys : Packing::kNone;
}

AttentionSizes multi_sizes(const Node& node, const Shape& q, const Shape* k, const Shape* v, std::int64_t past) {
  const std::int64_t heads = heads_of(node);
  const Packing packing = packing_of(q, k);
  AttentionSizes z = {.batch = q[0],
                      .heads = heads,
                      .kv_heads = heads,
                      .queries = q[1],
                      .keys = q[1],
                      .depth = packing == Packing::kAll ? q[4] : split_depth(q[2], heads)};
  z.value_depth = z.depth;
  if (packing == Packing::kKeys) z.keys = (*k)[1];
  if (packing == Packing::kNone) {
    z.keys = (*k)[k->rank() == 4 ? 2 : 1];
    z.value_depth = v->rank() == 4 ? (*v)[3] : split_depth((*v)[2], heads);
  }
  z.keys = add_dims(z.keys, past);
  return z;
}

void check_keys(const InferContext& c, const AttentionSizes& z, std::int64_t steps) {
  const Shape& q = c.shape(0);
  const Packing packing = packing_of(q, c.has_input(1) ? &c.shape(1) : nullptr);
  if (packing == Packing::kAll) require_dims(c, 0, {z.batch, z.queries, z.heads, 3, z.depth});
  if (packing == Packing::kKeys) require_dims(c, 1, {z.batch, steps, z.heads, 2, z.depth});
  if (packing != Packing::kNone) return;
  for (int i = 1; i < 3; ++i) {
    const std::int64_t depth = i == 1 ? z.depth : z.value_depth;
    if (c.shape(i).rank() == 4) {
      require_dims(c, i, {z.batch, z.heads, steps, depth});
    } else {
      require_dims(c, i, {z.batch, steps, depth < 0 ? -1 : checked_mul(z.heads, depth)});
    }
  }
}

// The rows of the past that count, -1 where that is not known; `rows` are those that it has.
std::int64_t past_steps(const InferContext& c, std::int64_t rows) {
  if (!c.has_input(kPastLength)) return rows;
  require_dtype(c, kPastLength, kInt);
  require_scalar(c, kPastLength);
  InferContext::Ints length;
  if (!c.int_value(kPastLength, &length) || length.count != 1 || rows < 0) return -1;
  if (length.v[0] < 0 || length.v[0] > rows) fail(EVN_ERROR_INVALID_ARGUMENT, "past_sequence_length does not fit the past");
  return length.v[0];
}

// Inputs of past and present that are one buffer; `rows` is its size.
void check_shared(const InferContext& c, const AttentionSizes& z, std::int64_t rows) {
  if (c.has_input(kPastLength) && !c.has_input(kMulti.past)) fail(EVN_ERROR_INVALID_MODEL, "past_sequence_length without a past");
  if (c.has_input(kPastLength) && z.keys > rows && rows >= 0) fail(EVN_ERROR_INVALID_ARGUMENT, "the keys do not fit the buffer");
  if (!c.has_input(kIndirection)) return;
  if (!c.has_input(kPastLength)) fail(EVN_ERROR_INVALID_MODEL, "cache_indirection without past_sequence_length");
  require_dtype(c, kIndirection, kInt);
  require_rank(c, kIndirection, 3, 3);
  const Shape& beams = c.shape(kIndirection);
  if (beams[0] >= 0 && beams[1] >= 0) require_dim(z.batch, checked_mul(beams[0], beams[1]), 0);
  require_dim(beams[2], rows, kIndirection);
  if (z.queries >= 0 && z.queries != 1) fail(EVN_ERROR_UNSUPPORTED, "cache_indirection with more than one query");
}

void infer_multi(InferContext& c) {
  for (const int i : {0, 1, 2, 3, 6, 7}) require_dtype(c, i, kFloat);
  const Shape& q = c.shape(0);
  if (q.rank() != 5) require_rank(c, 0, 3, 3);
  if (q.rank() != 5) require_input(c, 1);
  if (c.has_input(1)) require_rank(c, 1, 3, 5);
  const Packing packing = packing_of(q, c.has_input(1) ? &c.shape(1) : nullptr);
  if (packing == Packing::kNone) {
    require_input(c, 2);
    require_rank(c, 2, 3, 4);
  } else if (c.has_input(packing == Packing::kAll ? 1 : 2)) {
    fail(EVN_ERROR_INVALID_MODEL, "keys or values beside those that are packed");
  }
  const bool has_past = c.has_input(kMulti.past);
  if (has_past != c.has_input(kMulti.past_value)) fail(EVN_ERROR_INVALID_MODEL, "past_key and past_value go together");
  if (has_past) require_rank(c, kMulti.past, 4, 4);
  const std::int64_t rows = has_past ? c.shape(kMulti.past)[2] : 0, past = past_steps(c, rows);
  const auto shape_of = [&](int i) { return c.has_input(i) ? &c.shape(i) : nullptr; };
  const AttentionSizes z = multi_sizes(c.node, q, shape_of(1), shape_of(2), past);
  check_keys(c, z, z.keys < 0 || past < 0 ? -1 : z.keys - past);
  const std::int64_t hidden = z.value_depth < 0 ? -1 : checked_mul(z.heads, z.value_depth);
  const std::int64_t both = z.depth < 0 ? -1 : checked_mul<std::int64_t>(2, checked_mul(z.heads, z.depth));
  require_vector(c, kMulti.bias, add_dims(both, hidden));
  if (has_past) require_dims(c, kMulti.past, {z.batch, z.heads, rows, z.depth});
  if (has_past) require_dims(c, kMulti.past_value, {z.batch, z.heads, rows, z.value_depth});
  check_shared(c, z, rows);
  check_mask(c, kMulti.mask, z);
  check_bias(c, kMulti.attention_bias, z);
  const std::int64_t present = c.has_input(kPastLength) ? rows : z.keys;
  const Shape outputs[] = {{z.batch, z.queries, hidden},
                           {z.batch, z.heads, present, z.depth},
                           {z.batch, z.heads, present, z.value_depth},
                           {z.batch, z.heads, z.queries, z.keys}};
  for (std::size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i].shape = outputs[i];
}

// -------------------------------------------------------------------------------------------------- reference --

void attend_rows(const ReferenceContext& c, const AttentionSizes& z, Rows& rows) {
  attend(z, {attention_scale(static_cast<double>(attr_float(c.node, kScale)), z.depth), 0}, rows);
  rows.store_result();
  rows.store_present();
}

// product(b, s, column) is an element of x W.
template <typename Product>
void run_projected(const ReferenceContext& c, const AttentionInputs& in, Product&& product) {
  const Shape& weight = c.input(in.weight).desc.shape;
  const std::int64_t past = c.has_input(in.past) ? c.input(in.past).desc.shape[3] : 0;
  const AttentionSizes z = projected_sizes(c.node, c.input(in.x).desc.shape, weight, past);
  const Widths width = widths_of(c.node, weight[1]);
  Rows rows(c, in, z, past);
  rows.fill([&](int which, double* row, std::int64_t b, std::int64_t h, std::int64_t s) {
    const std::int64_t depth = which == 2 ? z.value_depth : z.depth;
    const std::int64_t first = (which == 0 ? 0 : which == 1 ? width.q : width.q + width.k) + h * depth;
    for (std::int64_t d = 0; d < depth; ++d) {
      cancellation_point();
      const double bias = c.has_input(in.bias) ? static_cast<double>(scale_value(c.input(in.bias), first + d)) : 0;
      row[d] = product(b * z.queries + s, first + d) + bias;
    }
  });
  attend_rows(c, z, rows);
}

void reference_plain(const ReferenceContext& c) {
  const std::int64_t inner = c.input(kPlain.weight).desc.shape[0], columns = c.input(kPlain.weight).desc.shape[1];
  const auto* x = c.input(kPlain.x).as<float>();
  const auto* weight = c.input(kPlain.weight).as<float>();
  run_projected(c, kPlain, [&](std::int64_t row, std::int64_t column) {
    double sum = 0;
    for (std::int64_t i = 0; i < inner; ++i) {
      cancellation_point();
      sum += static_cast<double>(x[row * inner + i]) * static_cast<double>(weight[i * columns + column]);
    }
    return sum;
  });
}

void reference_quantized(const ReferenceContext& c) {
  const std::int64_t inner = c.input(kQuantized.weight).desc.shape[0], columns = c.input(kQuantized.weight).desc.shape[1];
  const std::vector<std::int32_t> x = centered(c, kQuantized.x, kXZero, 1, 1);
  const std::vector<std::int32_t> w = centered(c, kQuantized.weight, kWeightZero, 1, std::max<std::int64_t>(columns, 1));
  run_projected(c, kQuantized, [&](std::int64_t row, std::int64_t column) {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < inner; ++i) {
      cancellation_point();
      sum += std::int64_t{x[static_cast<std::size_t>(row * inner + i)]} * w[static_cast<std::size_t>(i * columns + column)];
    }
    return static_cast<double>(sum) * scale_at(c, kXScale) * scale_at(c, kWeightScale, column);
  });
}

void reference_multi(const ReferenceContext& c) {
  const auto shape_of = [&](int i) { return c.has_input(i) ? &c.input(i).desc.shape : nullptr; };
  std::int64_t past = c.has_input(kMulti.past) ? c.input(kMulti.past).desc.shape[2] : 0;
  if (c.has_input(kPastLength)) past = *c.input(kPastLength).as<std::int32_t>();
  const AttentionSizes z = multi_sizes(c.node, *shape_of(0), shape_of(1), shape_of(2), past);
  const Packing packing = packing_of(*shape_of(0), shape_of(1));
  Rows rows(c, kMulti, z, past);
  rows.fill([&](int which, double* row, std::int64_t b, std::int64_t h, std::int64_t s) {
    const std::int64_t depth = which == 2 ? z.value_depth : z.depth, steps = which == 0 ? z.queries : z.keys - past;
    const std::int64_t parts = packing == Packing::kAll ? 3 : packing == Packing::kKeys && which > 0 ? 2 : 1;
    const std::int64_t part = parts == 3 ? which : parts == 2 ? which - 1 : 0;
    const int input = parts == 3 ? 0 : parts == 2 ? 1 : which;
    const bool by_head = c.input(input).desc.shape.rank() == 4;
    const std::int64_t at = by_head ? (b * z.heads + h) * steps + s : ((b * steps + s) * z.heads + h) * parts + part;
    const float* from = c.input(input).as<float>() + at * depth;
    const std::int64_t first = which * z.heads * z.depth + h * depth;  // of the bias
    const bool has_bias = c.has_input(kMulti.bias) && !by_head;
    for (std::int64_t d = 0; d < depth; ++d) {
      cancellation_point();
      row[d] = static_cast<double>(from[d]) + (has_bias ? static_cast<double>(c.input(kMulti.bias).as<float>()[first + d]) : 0);
    }
  });
  attend_rows(c, z, rows);
}

constexpr const char* kDomain = "com.microsoft";
constexpr AttributeSpec kAttributes[] = {float_attribute("mask_filter_value", -10000),
                                         required_attribute("num_heads", AttributeType::kInt),
                                         float_attribute("scale", 0),  // 0: 1 / sqrt(D)
                                         int_attribute("unidirectional", 0),
                                         int_attribute("do_rotary", 0),
                                         int_attribute("past_present_share_buffer", 0),
                                         optional_attribute("qkv_hidden_sizes", AttributeType::kInts),
                                         int_attribute("rotary_embedding_dim", 0)};
constexpr std::span<const AttributeSpec> kAll(kAttributes);
constexpr Tolerance kNear = {1e-4, 1e-5};
constexpr OpDef kOps[] = {
    {.name = "Attention",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 7,
     .max_outputs = 2,
     .attributes = kAll,
     .dtypes = kFloat,
     .infer = infer_plain,
     .reference = reference_plain,
     .tolerance = kNear},
    {.name = "QAttention",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 5,
     .max_inputs = 9,
     .max_outputs = 2,
     .attributes = kAll.first(6),
     .dtypes = kByteDtypes,
     .output_dtype = scale_output,
     .infer = infer_quantized,
     .reference = reference_quantized,
     .tolerance = kNear},
    {.name = "MultiHeadAttention",
     .domain = kDomain,
     .since = 1,
     .max_inputs = 10,
     .max_outputs = 4,
     .attributes = kAll.first(4),
     .dtypes = kFloat,
     .value_inputs = 1u << kPastLength,
     .infer = infer_multi,
     .reference = reference_multi,
     .tolerance = kNear},
};

}  // namespace

extern const OpFamily contrib_attention_family;
const OpFamily contrib_attention_family = {kOps};

}  // namespace evn
