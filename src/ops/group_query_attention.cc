// GroupQueryAttention (com.microsoft): softmax(softcap(scale * Q K^T) + attention_bias) V where heads of Q share one of K and V.
//   inputs   query [B, S, N * D], key and value [B, S, G * D], or all packed in query [B, S, (N + 2 G) * D]; past_key, past_value
//            [B, G, P, D]; seqlens_k [B] int32, how many keys count in all, less 1; total_sequence_length, int32; cos and sin
//            caches [positions, pairs]; position_ids [B, S] int64; attention_bias [B or 1, N or 1, S, total]; head_sink [N]
//   outputs  [B, S, N * D]; present_key, present_value [B, G, max(P, total), D], zeros behind what counts; the scores [B, N, S, T],
//            T that of present_key, before (qk_output 1) or after (2) the softmax
// While S < total_sequence_length, the new keys of batch b go behind the first seqlens_k[b] + 1 - S of the past; otherwise nothing
// is past. With do_rotary Q and the new K are turned (RotaryEmbedding) by position_ids or by where the keys go. Query i sees keys
// up to its own, with local_window_size the last that many; with causal 0 all that count. head_sink[n], or with smooth_softmax 0,
// stands for a key without a value.
// dtypes: float32. Failures: dims that do not fit, quantized and windowed caches, normalized Q and K (UNSUPPORTED); at run: lengths
// or positions that do not fit. Tolerance: rtol 1e-4, atol 1e-5.
#include "ops/attention_core.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"
#include "ops/rotary.h"

namespace evn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum : int {
  kQuery, kKey, kValue, kPastKey, kPastValue, kLengths, kTotal, kCosine, kSine, kPositions, kBias, kSink, kFirstRefused
};
enum : int {
  kHeads, kGroups, kScale, kSoftcap, kDoRotary, kInterleaved, kWindow, kSmooth, kCausal, kQkOutput, kSlidingCache, kKeyQuantized,
  kValueQuantized
};

struct Sizes {
  std::int64_t batch, heads, groups, steps, past, depth;
};

Sizes sizes_of(const Node& node, const Shape& query, bool packed, const Shape* past) {
  Sizes z = {query[0], attr_int(node, kHeads), attr_int(node, kGroups), query[1], past != nullptr ? (*past)[2] : 0, 0};
  if (z.heads < 1 || z.groups < 1 || z.heads % z.groups != 0) {
    fail(EVN_ERROR_INVALID_MODEL, "the heads of the keys do not divide those of the queries");
  }
  z.depth = split_depth(query[2], packed ? checked_add(z.heads, checked_mul<std::int64_t>(2, z.groups)) : z.heads);
  return z;
}

void refuse_unsupported(const InferContext& c) {
  for (int i = kFirstRefused; i < static_cast<int>(c.inputs.size()); ++i) {
    if (c.has_input(i)) fail(EVN_ERROR_UNSUPPORTED, "input %d: quantized caches and normalized queries", i);
  }
  if (attr_int(c.node, kSlidingCache) != 0) fail(EVN_ERROR_UNSUPPORTED, "a cache of the size of the window");
  for (const int attribute : {int{kKeyQuantized}, int{kValueQuantized}}) {
    if (attr_string(c.node, attribute) != "NONE") fail(EVN_ERROR_UNSUPPORTED, "quantized caches");
  }
}

void require_dims(const InferContext& c, int input, std::initializer_list<std::int64_t> dims) {
  if (!c.has_input(input)) return;
  const int rank = static_cast<int>(dims.size());
  require_rank(c, input, rank, rank);
  for (int i = 0; i < rank; ++i) require_dim(c.shape(input)[i], dims.begin()[i], input);
}

void check_inputs(const InferContext& c, const Sizes& z) {
  const std::int64_t hidden = z.depth < 0 ? -1 : checked_mul(z.groups, z.depth);
  require_dims(c, kKey, {z.batch, z.steps, hidden});
  require_dims(c, kValue, {z.batch, z.steps, hidden});
  require_dims(c, kPastKey, {z.batch, z.groups, z.past, z.depth});
  require_dims(c, kPastValue, {z.batch, z.groups, z.past, z.depth});
  require_dtype(c, kLengths, dtype_bit(DType::kInt32));
  require_dtype(c, kTotal, dtype_bit(DType::kInt32));
  require_scalar(c, kTotal);
  const std::int64_t lengths = dim_elements(c.shape(kLengths), 0, c.shape(kLengths).rank());
  require_dim(lengths, z.batch, kLengths);
  require_dtype(c, kPositions, dtype_bit(DType::kInt64));
  require_dims(c, kPositions, {z.batch, z.steps});
  require_vector(c, kSink, z.heads);
  if (attr_int(c.node, kDoRotary) == 0) return;
  for (const int i : {int{kCosine}, int{kSine}}) {
    require_input(c, i);
    require_dims(c, i, {c.shape(kCosine)[0], c.shape(kCosine)[1]});
  }
  if (z.depth >= 0 && c.shape(kCosine)[1] > z.depth / 2) fail(EVN_ERROR_INVALID_MODEL, "the caches are wider than the heads");
}

void infer_group(InferContext& c) {
  refuse_unsupported(c);
  require_input(c, kLengths);
  require_input(c, kTotal);
  for (int i = 0; i < static_cast<int>(c.inputs.size()); ++i) {
    if (i != kLengths && i != kTotal && i != kPositions) require_dtype(c, i, dtype_bit(DType::kFloat32));
  }
  if (c.has_input(kKey) != c.has_input(kValue)) fail(EVN_ERROR_INVALID_MODEL, "key and value go together");
  if (c.has_input(kPastKey) != c.has_input(kPastValue)) fail(EVN_ERROR_INVALID_MODEL, "past_key and past_value go together");
  require_rank(c, kQuery, 3, 3);
  require_rank(c, kPastKey, 4, 4);
  const Sizes z = sizes_of(c.node, c.shape(kQuery), !c.has_input(kKey), c.has_input(kPastKey) ? &c.shape(kPastKey) : nullptr);
  check_inputs(c, z);
  InferContext::Ints total;
  std::int64_t keys = -1;
  if (c.int_value(kTotal, &total) && total.count == 1) {
    if (total.v[0] < 0) fail(EVN_ERROR_INVALID_ARGUMENT, "total_sequence_length is negative");
    keys = z.past < 0 ? -1 : std::max(z.past, total.v[0]);
    if (c.has_input(kBias)) require_rank(c, kBias, 4, 4);
    if (c.has_input(kBias)) require_dim(c.shape(kBias)[3], total.v[0], kBias);
  }
  for (int i = 0; i < 3 && c.has_input(kBias); ++i) {
    require_rank(c, kBias, 4, 4);
    const std::int64_t dims[] = {z.batch, z.heads, z.steps};
    if (i == 2 || c.shape(kBias)[i] != 1) require_dim(c.shape(kBias)[i], dims[i], kBias);
  }
  const Shape cache = {z.batch, z.groups, keys, z.depth};
  const std::int64_t hidden = z.depth < 0 ? -1 : checked_mul(z.heads, z.depth);
  const Shape outputs[] = {{z.batch, z.steps, hidden}, cache, cache, {z.batch, z.heads, z.steps, keys}};
  for (std::size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i].shape = outputs[i];
}

// The rows of attention_core.h; keys and values with the past are made first.
class Rows {
 public:
  Rows(const ReferenceContext& c, const Sizes& z, std::int64_t keys)
      : c_(c), z_(z), keys_(keys), query_(size_of(z.heads, z.steps)), key_(size_of(z.groups, keys)), value_(key_.size()) {
    total_ = *c.input(kTotal).as<std::int32_t>();
    prompt_ = z.steps == total_;
    window_ = attr_int(c.node, kWindow);
    causal_ = attr_int(c.node, kCausal) != 0;
    for (std::int64_t b = 0; b < z.batch; ++b) fill_batch(b);
  }

  const double* q(std::int64_t b, std::int64_t h, std::int64_t s) { return &query_[at(b, z_.heads, h, z_.steps, s)]; }
  const double* k(std::int64_t b, std::int64_t h, std::int64_t t) { return &key_[at(b, z_.groups, h, keys_, t)]; }
  const double* v(std::int64_t b, std::int64_t h, std::int64_t t) { return &value_[at(b, z_.groups, h, keys_, t)]; }
  float* y(std::int64_t b, std::int64_t h, std::int64_t s) {
    return c_.output().as<float>() + ((b * z_.steps + s) * z_.heads + h) * z_.depth;
  }

  double sink(std::int64_t h) const {
    if (c_.has_input(kSink)) return static_cast<double>(c_.input(kSink).as<float>()[h]);
    return attr_int(c_.node, kSmooth) == 1 ? 0 : -kInfinity;
  }

  double bias(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t t) const {
    const std::int64_t place = past_of(b) + s;
    if (t >= length_of(b) || (causal_ && t > place)) return -kInfinity;
    if (window_ > 0 && place - t >= window_) return -kInfinity;
    if (!c_.has_input(kBias)) return 0;
    const ConstTensor& added = c_.input(kBias);
    const Strides step = broadcast_strides(added.desc.shape, {z_.batch, z_.heads, z_.steps, total_});
    return static_cast<double>(added.as<float>()[b * step.step[0] + h * step.step[1] + s * step.step[2] + t * step.step[3]]);
  }

  void scores(int stage, std::int64_t b, std::int64_t h, std::int64_t s, std::span<const double> row) const {
    const std::int64_t wanted = attr_int(c_.node, kQkOutput);
    if (c_.outputs.size() < 4 || !c_.output(3).present() || stage != (wanted == 1 ? 2 : 3)) return;
    float* to = c_.output(3).as<float>() + ((b * z_.heads + h) * z_.steps + s) * keys_;
    for (const double x : row) *to++ = static_cast<float>(x);
  }

  void store_present() const {
    for (std::size_t i = 1; i < 3 && i < c_.outputs.size(); ++i) {
      const MutableTensor& to = c_.outputs[i];
      const std::vector<double>& from = i == 1 ? key_ : value_;
      if (!to.present()) continue;
      std::transform(from.begin(), from.end(), to.as<float>(), [](double x) { return static_cast<float>(x); });
    }
  }

 private:
  std::size_t size_of(std::int64_t heads, std::int64_t steps) const {
    return static_cast<std::size_t>(Shape{z_.batch, heads, steps, z_.depth}.elements());
  }
  std::size_t at(std::int64_t b, std::int64_t heads, std::int64_t h, std::int64_t steps, std::int64_t s) const {
    return static_cast<std::size_t>(((b * heads + h) * steps + s) * z_.depth);
  }

  std::int64_t length_of(std::int64_t b) const { return std::int64_t{c_.input(kLengths).as<std::int32_t>()[b]} + 1; }
  std::int64_t past_of(std::int64_t b) const { return prompt_ ? 0 : length_of(b) - z_.steps; }

  // Row (b, s) of head h of Q (0), K (1) or V (2).
  const float* given(int which, std::int64_t b, std::int64_t h, std::int64_t s) const {
    const bool packed = !c_.has_input(kKey);
    const std::int64_t heads = packed ? z_.heads + 2 * z_.groups : which == 0 ? z_.heads : z_.groups;
    const std::int64_t first = packed && which > 0 ? z_.heads + (which - 1) * z_.groups : 0;
    return c_.input(packed ? kQuery : kQuery + which).as<float>() + ((b * z_.steps + s) * heads + first + h) * z_.depth;
  }

  void copy_row(const float* from, double* to, std::int64_t position, bool turn) const {
    std::copy_n(from, z_.depth, to);
    if (!turn || attr_int(c_.node, kDoRotary) == 0) return;
    const Shape& cache = c_.input(kCosine).desc.shape;
    if (position < 0 || position >= cache[0]) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "position %lld is outside the caches", static_cast<long long>(position));
    }
    const float* cosines = c_.input(kCosine).as<float>() + position * cache[1];
    const float* sines = c_.input(kSine).as<float>() + position * cache[1];
    turn_pairs(to, to, z_.depth, cosines, sines, cache[1], attr_int(c_.node, kInterleaved) != 0);
  }

  void fill_batch(std::int64_t b) {
    const std::int64_t past = past_of(b);
    if (length_of(b) < 0 || length_of(b) > keys_ || past < 0 || past > z_.past || past + z_.steps > keys_) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "seqlens_k does not fit the past and the new keys");
    }
    for (std::int64_t s = 0; s < z_.steps; ++s) {
      const std::int64_t position = c_.has_input(kPositions) ? c_.input(kPositions).as<std::int64_t>()[b * z_.steps + s] : past + s;
      for (std::int64_t h = 0; h < z_.heads; ++h) {
        copy_row(given(0, b, h, s), &query_[at(b, z_.heads, h, z_.steps, s)], position, true);
      }
      for (std::int64_t h = 0; h < z_.groups; ++h) {
        copy_row(given(1, b, h, s), &key_[at(b, z_.groups, h, keys_, past + s)], position, true);
        copy_row(given(2, b, h, s), &value_[at(b, z_.groups, h, keys_, past + s)], position, false);
      }
    }
    for (std::int64_t h = 0; h < z_.groups && past > 0; ++h) {
      const auto from = static_cast<std::int64_t>(at(b, z_.groups, h, z_.past, 0));
      std::copy_n(c_.input(kPastKey).as<float>() + from, past * z_.depth, &key_[at(b, z_.groups, h, keys_, 0)]);
      std::copy_n(c_.input(kPastValue).as<float>() + from, past * z_.depth, &value_[at(b, z_.groups, h, keys_, 0)]);
    }
  }

  const ReferenceContext& c_;
  const Sizes& z_;
  std::int64_t keys_, total_ = 0, window_ = -1;
  bool prompt_ = false, causal_ = true;
  std::vector<double> query_, key_, value_;
};

void reference_group(const ReferenceContext& c) {
  const Shape* past = c.has_input(kPastKey) ? &c.input(kPastKey).desc.shape : nullptr;
  const Sizes z = sizes_of(c.node, c.input(kQuery).desc.shape, !c.has_input(kKey), past);
  const std::int64_t keys = std::max<std::int64_t>(z.past, *c.input(kTotal).as<std::int32_t>());
  if (z.depth == 0 || z.batch == 0) return;
  Rows rows(c, z, keys);
  const AttentionRule rule = {attention_scale(static_cast<double>(attr_float(c.node, kScale)), z.depth),
                              static_cast<double>(attr_float(c.node, kSoftcap))};
  attend({z.batch, z.heads, z.groups, z.steps, keys, z.depth, z.depth}, rule, rows);
  rows.store_present();
}

constexpr AttributeSpec kAttributes[] = {
    required_attribute("num_heads", AttributeType::kInt),
    required_attribute("kv_num_heads", AttributeType::kInt),
    float_attribute("scale", 0),  // 0: 1 / sqrt(D)
    float_attribute("softcap", 0),
    int_attribute("do_rotary", 0),
    int_attribute("rotary_interleaved", 0),
    int_attribute("local_window_size", -1),
    int_attribute("smooth_softmax", -1),
    int_attribute("causal", 1),
    int_attribute("qk_output", 0),
    int_attribute("sliding_window_cache", 0),
    string_attribute("k_quant_type", "NONE"),
    string_attribute("v_quant_type", "NONE"),
    int_attribute("kv_cache_bit_width", 0),
    float_attribute("qk_norm_epsilon", 1e-6f),
};
constexpr OpDef kOps[] = {
    {"GroupQueryAttention", "com.microsoft", 1, 1, 16, 1, 4, kAttributes, dtype_bit(DType::kFloat32), 1u << kTotal, 0, nullptr,
     infer_group, reference_group, {1e-4, 1e-5}},
};

}  // namespace

extern const OpFamily group_query_attention_family;
const OpFamily group_query_attention_family = {kOps};

}  // namespace evn
