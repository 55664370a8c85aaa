// GroupQueryAttention (com.microsoft): softmax(softcap(scale * Q K^T) + attention_bias) V where heads of Q share one of K and V.
//   inputs   query [B, S, N * D], key and value [B, S, G * D], or all packed in query [B, S, (N + 2 G) * D]; past_key, past_value
//            [B, G, P, D]; seqlens_k [B] int32, how many keys count in all, less 1; total_sequence_length, int32; cos and sin
//            caches [positions, pairs]; position_ids [B, S] int64; attention_bias [B or 1, N or 1, S, total]; head_sink [N]
//   outputs  [B, S, N * D]; present_key, present_value [B, G, max(P, total), D], zeros behind what counts; the scores
//            [B, N, S, total], before (qk_output 1) or after (2) the softmax, 0 for what a query does not see
// While S < total_sequence_length, the new keys of batch b go behind the first seqlens_k[b] + 1 - S of the past; otherwise nothing
// is past. With do_rotary Q and the new K are turned (RotaryEmbedding) by position_ids (with no past by the first of them, and on)
// or by where the keys go. Query i sees keys up to its own, with local_window_size the last that many; with causal 0 all that
// count. head_sink[n], or with smooth_softmax 0, stands for a key without a value. Quantized caches (k_quant_type, v_quant_type)
// are int8, or with kv_cache_bit_width 4 uint8 of two numbers; k_scale and v_scale have one number, or one for each of [G, D]. New
// keys and values are rounded before they are used. With sliding_window_cache a cache has P >= local_window_size rows for the
// newest positions only (attention_cache.h), and present_key is of its size. dtypes: float32. Failures: dims that do not fit;
// caches of float8e4m3fn, normalized Q and K, the scores of a sliding cache (UNSUPPORTED); at run: lengths or positions that do not
// fit. Tolerance: rtol 1e-4, atol 1e-5.
#include <cstring>

#include "ops/attention_cache.h"
#include "ops/attention_core.h"
#include "ops/group_query_attention.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"
#include "ops/rotary.h"

namespace evn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Input = GroupQueryInput;
using Attr = GroupQueryAttr;

struct Sizes {
  std::int64_t batch, heads, groups, steps, past, depth;
};

Sizes sizes_of(const Node& node, const Shape& query, bool packed, const Shape* past) {
  Sizes z = {query[0], attr_int(node, Attr::kHeads), attr_int(node, Attr::kGroups), query[1], past != nullptr ? (*past)[2] : 0, 0};
  if (z.heads < 1 || z.groups < 1 || z.heads % z.groups != 0) {
    fail(EVN_ERROR_INVALID_MODEL, "the heads of the keys do not divide those of the queries");
  }
  z.depth = split_depth(query[2], packed ? checked_add(z.heads, checked_mul<std::int64_t>(2, z.groups)) : z.heads);
  return z;
}

// 0: the caches are float32.
int cache_bits(const Node& node) {
  const bool quantized = attr_string(node, Attr::kKeyQuantized) != "NONE";
  if (quantized != (attr_string(node, Attr::kValueQuantized) != "NONE")) {
    fail(EVN_ERROR_UNSUPPORTED, "k_quant_type and v_quant_type: one of the caches is quantized, the other is not");
  }
  const std::int64_t bits = attr_int(node, Attr::kBitWidth);
  if (quantized && bits != 4 && bits != 8) {
    fail(EVN_ERROR_INVALID_MODEL, "kv_cache_bit_width is %lld, not 4 or 8", static_cast<long long>(bits));
  }
  return quantized ? static_cast<int>(bits) : 0;
}

bool is_per_channel(const Node& node, int attribute) {
  const std::string& type = attr_string(node, attribute);
  if (type != "NONE" && type != "PER_TENSOR" && type != "PER_CHANNEL") {
    fail(EVN_ERROR_INVALID_MODEL, "k_quant_type and v_quant_type are not \"%s\"", type.c_str());
  }
  return type == "PER_CHANNEL";
}

DType cache_dtype(const Node& node) {
  const int bits = cache_bits(node);
  return bits == 8 ? DType::kInt8 : bits == 4 ? DType::kUint8 : DType::kFloat32;
}

bool is_sliding(const Node& node) { return attr_int(node, Attr::kSlidingCache) != 0; }

DType output_dtype(const Node& node, std::span<const DType> inputs, int output) {
  const bool quantized = (output == 1 || output == 2) && cache_bits(node) != 0;
  return quantized ? cache_dtype(node) : inputs[0];
}

void check_attributes(const InferContext& c) {
  for (int i = Input::kFirstRefused; i < static_cast<int>(c.inputs.size()); ++i) {
    if (c.has_input(i)) fail(EVN_ERROR_UNSUPPORTED, "input %d: normalized queries and keys", i);
  }
  const std::int64_t causal = attr_int(c.node, Attr::kCausal), window = attr_int(c.node, Attr::kWindow);
  if (causal != 0 && causal != 1) fail(EVN_ERROR_INVALID_MODEL, "causal is %lld", static_cast<long long>(causal));
  if (causal == 0 && window > 0) fail(EVN_ERROR_INVALID_MODEL, "local_window_size needs causal 1");
  if (!is_sliding(c.node)) return;
  if (window < 1) fail(EVN_ERROR_INVALID_MODEL, "sliding_window_cache needs local_window_size");
  if (!c.has_input(Input::kPastKey)) fail(EVN_ERROR_INVALID_MODEL, "sliding_window_cache needs past_key and past_value");
  if (c.outputs.size() > 3 && c.node.outputs[3] != kNoValue) fail(EVN_ERROR_UNSUPPORTED, "the scores of a sliding cache");
}

void check_cache(const InferContext& c, const Sizes& z) {
  const DType dtype = cache_dtype(c.node);
  for (const int i : {int{Input::kPastKey}, int{Input::kPastValue}}) {
    if (!c.has_input(i)) continue;
    if (dtype != DType::kFloat32 && c.inputs[static_cast<std::size_t>(i)].dtype == DType::kFloat8E4M3FN) {
      fail(EVN_ERROR_UNSUPPORTED, "caches of float8e4m3fn");
    }
    require_dtype(c, i, dtype_bit(dtype));
  }
  for (int i = 0; i < 2; ++i) {
    const bool per_channel = is_per_channel(c.node, Attr::kKeyQuantized + i);
    if (dtype == DType::kFloat32) continue;
    require_input(c, Input::kKeyScale + i);
    const Shape& scale = c.shape(Input::kKeyScale + i);
    const std::int64_t count = !per_channel ? 1 : z.depth < 0 ? -1 : checked_mul(z.groups, z.depth);
    require_dim(dim_elements(scale, 0, scale.rank()), count, Input::kKeyScale + i);
  }
  if (is_sliding(c.node) && z.past >= 0 && z.past < attr_int(c.node, Attr::kWindow)) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "the sliding cache has fewer rows than local_window_size");
  }
}

void require_dims(const InferContext& c, int input, std::initializer_list<std::int64_t> dims) {
  if (!c.has_input(input)) return;
  const int rank = static_cast<int>(dims.size());
  require_rank(c, input, rank, rank);
  for (int i = 0; i < rank; ++i) require_dim(c.shape(input)[i], dims.begin()[i], input);
}

// The width of a cache's row, in elements; -1 where it is not known.
std::int64_t row_width(const Node& node, std::int64_t depth) {
  return depth < 0 ? -1 : CacheFormat{cache_bits(node), depth}.row_width();
}

void check_inputs(const InferContext& c, const Sizes& z) {
  const std::int64_t hidden = z.depth < 0 ? -1 : checked_mul(z.groups, z.depth);
  require_dims(c, Input::kKey, {z.batch, z.steps, hidden});
  require_dims(c, Input::kValue, {z.batch, z.steps, hidden});
  const std::int64_t width = row_width(c.node, z.depth);
  require_dims(c, Input::kPastKey, {z.batch, z.groups, z.past, width});
  require_dims(c, Input::kPastValue, {z.batch, z.groups, z.past, width});
  check_cache(c, z);
  require_dtype(c, Input::kLengths, dtype_bit(DType::kInt32));
  require_dtype(c, Input::kTotal, dtype_bit(DType::kInt32));
  require_scalar(c, Input::kTotal);
  const std::int64_t lengths = dim_elements(c.shape(Input::kLengths), 0, c.shape(Input::kLengths).rank());
  require_dim(lengths, z.batch, Input::kLengths);
  require_dtype(c, Input::kPositions, dtype_bit(DType::kInt64));
  require_dims(c, Input::kPositions, {z.batch, z.steps});
  require_vector(c, Input::kSink, z.heads);
  if (attr_int(c.node, Attr::kDoRotary) == 0) return;
  for (const int i : {int{Input::kCosine}, int{Input::kSine}}) {
    require_input(c, i);
    require_dims(c, i, {c.shape(Input::kCosine)[0], c.shape(Input::kCosine)[1]});
  }
  if (z.depth >= 0 && c.shape(Input::kCosine)[1] > z.depth / 2) {
    fail(EVN_ERROR_INVALID_MODEL, "the caches are wider than the heads");
  }
}

void infer_group(InferContext& c) {
  check_attributes(c);
  require_input(c, Input::kLengths);
  require_input(c, Input::kTotal);
  for (int i = 0; i < static_cast<int>(c.inputs.size()); ++i) {
    const bool is_float =
        i != Input::kLengths && i != Input::kTotal && i != Input::kPositions && i != Input::kPastKey && i != Input::kPastValue;
    if (is_float) require_dtype(c, i, dtype_bit(DType::kFloat32));
  }
  if (c.has_input(Input::kKey) != c.has_input(Input::kValue)) fail(EVN_ERROR_INVALID_MODEL, "key and value go together");
  if (c.has_input(Input::kPastKey) != c.has_input(Input::kPastValue)) {
    fail(EVN_ERROR_INVALID_MODEL, "past_key and past_value go together");
  }
  require_rank(c, Input::kQuery, 3, 3);
  require_rank(c, Input::kPastKey, 4, 4);
  const Sizes z = sizes_of(c.node, c.shape(Input::kQuery), !c.has_input(Input::kKey),
                           c.has_input(Input::kPastKey) ? &c.shape(Input::kPastKey) : nullptr);
  check_inputs(c, z);
  InferContext::Ints total;
  std::int64_t keys = -1, scores = -1;
  if (c.int_value(Input::kTotal, &total) && total.count == 1) {
    if (total.v[0] < 0) fail(EVN_ERROR_INVALID_ARGUMENT, "total_sequence_length is negative");
    keys = z.past < 0 || is_sliding(c.node) ? z.past : std::max(z.past, total.v[0]);
    scores = total.v[0];
    if (c.has_input(Input::kBias)) require_rank(c, Input::kBias, 4, 4);
    if (c.has_input(Input::kBias)) require_dim(c.shape(Input::kBias)[3], total.v[0], Input::kBias);
  }
  for (int i = 0; i < 3 && c.has_input(Input::kBias); ++i) {
    require_rank(c, Input::kBias, 4, 4);
    const std::int64_t dims[] = {z.batch, z.heads, z.steps};
    if (i == 2 || c.shape(Input::kBias)[i] != 1) require_dim(c.shape(Input::kBias)[i], dims[i], Input::kBias);
  }
  const Shape cache = {z.batch, z.groups, keys, row_width(c.node, z.depth)};
  const std::int64_t hidden = z.depth < 0 ? -1 : checked_mul(z.heads, z.depth);
  const Shape outputs[] = {{z.batch, z.steps, hidden}, cache, cache, {z.batch, z.heads, z.steps, scores}};
  for (std::size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i].shape = outputs[i];
}

// The rows of attention_core.h; keys and values with the past are made first.
class Rows {
 public:
  Rows(const ReferenceContext& c, const Sizes& z, std::int64_t keys)
      : c_(c), z_(z), keys_(keys), query_(size_of(z.heads, z.steps)), key_(size_of(z.groups, keys)), value_(key_.size()) {
    total_ = *c.input(Input::kTotal).as<std::int32_t>();
    prompt_ = z.steps == total_;
    window_ = attr_int(c.node, Attr::kWindow);
    causal_ = attr_int(c.node, Attr::kCausal) != 0;
    sliding_ = is_sliding(c.node);
    for (int i = 0; i < 2; ++i) {
      const int bits = cache_bits(c.node);
      const float* scales = bits == 0 ? nullptr : c.input(Input::kKeyScale + i).as<float>();
      format_[i] = {bits, z.depth, scales, is_per_channel(c.node, Attr::kKeyQuantized + i)};
    }
    for (std::int64_t b = 0; b < z.batch; ++b) {
      cancellation_point();
      fill_batch(b);
    }
  }

  const double* q(std::int64_t b, std::int64_t h, std::int64_t s) { return &query_[at(b, z_.heads, h, z_.steps, s)]; }
  const double* k(std::int64_t b, std::int64_t h, std::int64_t t) { return &key_[at(b, z_.groups, h, keys_, t)]; }
  const double* v(std::int64_t b, std::int64_t h, std::int64_t t) { return &value_[at(b, z_.groups, h, keys_, t)]; }
  float* y(std::int64_t b, std::int64_t h, std::int64_t s) {
    return c_.output().as<float>() + ((b * z_.steps + s) * z_.heads + h) * z_.depth;
  }

  double sink(std::int64_t h) const {
    if (c_.has_input(Input::kSink)) return static_cast<double>(c_.input(Input::kSink).as<float>()[h]);
    return attr_int(c_.node, Attr::kSmooth) == 1 ? 0 : -kInfinity;
  }

  double bias(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t t) const {
    t += first_of(b);
    if (!sees(b, s, t)) return -kInfinity;
    if (!c_.has_input(Input::kBias)) return 0;
    const ConstTensor& added = c_.input(Input::kBias);
    const Strides step = broadcast_strides(added.desc.shape, {z_.batch, z_.heads, z_.steps, total_});
    return static_cast<double>(added.as<float>()[b * step.step[0] + h * step.step[1] + s * step.step[2] + t * step.step[3]]);
  }

  void scores(int stage, std::int64_t b, std::int64_t h, std::int64_t s, std::span<const double> row) const {
    const std::int64_t wanted = attr_int(c_.node, Attr::kQkOutput);
    if (c_.outputs.size() < 4 || !c_.output(3).present() || stage != (wanted == 1 ? 2 : 3)) return;
    float* to = c_.output(3).as<float>() + ((b * z_.heads + h) * z_.steps + s) * total_;
    for (std::int64_t t = 0; t < total_; ++t) {
      cancellation_point();
      to[t] = sees(b, s, t) ? static_cast<float>(row[static_cast<std::size_t>(t)]) : 0.0f;
    }
  }

  void store_present() const {
    for (std::size_t i = 1; i < 3 && i < c_.outputs.size(); ++i) {
      if (c_.outputs[i].present()) store_present(c_.outputs[i], i == 1 ? key_ : value_, format_[i - 1]);
    }
  }

 private:
  std::size_t size_of(std::int64_t heads, std::int64_t steps) const {
    return static_cast<std::size_t>(Shape{z_.batch, heads, steps, z_.depth}.elements());
  }
  std::size_t at(std::int64_t b, std::int64_t heads, std::int64_t h, std::int64_t steps, std::int64_t s) const {
    return static_cast<std::size_t>(((b * heads + h) * steps + s) * z_.depth);
  }

  std::int64_t length_of(std::int64_t b) const { return std::int64_t{c_.input(Input::kLengths).as<std::int32_t>()[b]} + 1; }
  std::int64_t past_of(std::int64_t b) const { return prompt_ ? 0 : length_of(b) - z_.steps; }
  // Whether query s counts the key at position t.
  bool sees(std::int64_t b, std::int64_t s, std::int64_t t) const {
    const std::int64_t place = past_of(b) + s;
    return t < length_of(b) && (!causal_ || t <= place) && (window_ <= 0 || place - t < window_);
  }
  std::int64_t resident_past(std::int64_t b) const { return sliding_ ? resident_rows(past_of(b), z_.past, window_) : past_of(b); }
  // The position of the first row of K and V.
  std::int64_t first_of(std::int64_t b) const { return past_of(b) - resident_past(b); }

  void store_present(const MutableTensor& to, const std::vector<double>& from, const CacheFormat& format) const {
    const std::int64_t capacity = to.desc.shape[2];
    fill_in_pieces(to.data, 0, to.desc.size_bytes());
    for (std::int64_t b = 0; b < z_.batch; ++b) {
      cancellation_point();
      std::int64_t first = 0, count = resident_past(b) + z_.steps;  // the rows that stay
      if (sliding_) {
        count = resident_rows(length_of(b), capacity, window_);
        first = length_of(b) - count - first_of(b);
      }
      for (std::int64_t h = 0; h < z_.groups; ++h) {
        cancellation_point();
        for (std::int64_t i = 0; i < count; ++i) {
          cancellation_point();
          format.write(&from[at(b, z_.groups, h, keys_, first + i)], h, to.data, (b * z_.groups + h) * capacity + i);
        }
      }
    }
  }

  // The position of a new row, for its rotation. Where nothing is past, the first of position_ids stands for all.
  std::int64_t position_of(std::int64_t b, std::int64_t s) const {
    if (!c_.has_input(Input::kPositions)) return past_of(b) + s;
    const auto* positions = c_.input(Input::kPositions).as<std::int64_t>();
    if (!prompt_) return positions[b * z_.steps + s];
    return positions[0] < 0 || positions[0] >= c_.input(Input::kCosine).desc.shape[0] ? -1 : positions[0] + s;
  }

  // Row (b, s) of head h of Q (0), K (1) or V (2).
  const float* given(int which, std::int64_t b, std::int64_t h, std::int64_t s) const {
    const bool packed = !c_.has_input(Input::kKey);
    const std::int64_t heads = packed ? z_.heads + 2 * z_.groups : which == 0 ? z_.heads : z_.groups;
    const std::int64_t first = packed && which > 0 ? z_.heads + (which - 1) * z_.groups : 0;
    return c_.input(packed ? Input::kQuery : Input::kQuery + which).as<float>() +
           ((b * z_.steps + s) * heads + first + h) * z_.depth;
  }

  void copy_row(const float* from, double* to, std::int64_t position, bool turn) const {
    copy_in_pieces(from, z_.depth, to);
    if (!turn || attr_int(c_.node, Attr::kDoRotary) == 0) return;
    const Shape& cache = c_.input(Input::kCosine).desc.shape;
    if (position < 0 || position >= cache[0]) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "position %lld is outside the caches", static_cast<long long>(position));
    }
    const float* cosines = c_.input(Input::kCosine).as<float>() + position * cache[1];
    const float* sines = c_.input(Input::kSine).as<float>() + position * cache[1];
    turn_pairs(to, to, z_.depth, cosines, sines, cache[1], attr_int(c_.node, Attr::kInterleaved) != 0);
  }

  void check_length(std::int64_t b) const {
    const std::int64_t past = past_of(b);
    const bool fits = sliding_ || (past <= z_.past && past + z_.steps <= keys_);
    if (length_of(b) < 0 || length_of(b) > total_ || past < 0 || !fits) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "seqlens_k does not fit the past and the new keys");
    }
  }

  void fill_batch(std::int64_t b) {
    check_length(b);
    const std::int64_t resident = resident_past(b);
    for (std::int64_t s = 0; s < z_.steps; ++s) {
      cancellation_point();
      const std::int64_t position = position_of(b, s);
      for (std::int64_t h = 0; h < z_.heads; ++h) {
        cancellation_point();
        copy_row(given(0, b, h, s), &query_[at(b, z_.heads, h, z_.steps, s)], position, true);
      }
      for (std::int64_t h = 0; h < z_.groups; ++h) {
        cancellation_point();
        const std::size_t to = at(b, z_.groups, h, keys_, resident + s);
        copy_row(given(1, b, h, s), &key_[to], position, true);
        copy_row(given(2, b, h, s), &value_[to], position, false);
        format_[0].round(&key_[to], h);
        format_[1].round(&value_[to], h);
      }
    }
    for (std::int64_t i = 0; i < z_.groups * resident; ++i) {
      cancellation_point();
      const std::int64_t h = i / resident, row = (b * z_.groups + h) * z_.past + i % resident;
      const std::size_t to = at(b, z_.groups, h, keys_, i % resident);
      format_[0].read(c_.input(Input::kPastKey).data, row, h, &key_[to]);
      format_[1].read(c_.input(Input::kPastValue).data, row, h, &value_[to]);
    }
  }

  const ReferenceContext& c_;
  const Sizes& z_;
  std::int64_t keys_, total_ = 0, window_ = -1;
  bool prompt_ = false, causal_ = true, sliding_ = false;
  CacheFormat format_[2];  // of keys and values
  std::vector<double> query_, key_, value_;
};

void reference_group(const ReferenceContext& c) {
  const Shape* past = c.has_input(Input::kPastKey) ? &c.input(Input::kPastKey).desc.shape : nullptr;
  const Sizes z = sizes_of(c.node, c.input(Input::kQuery).desc.shape, !c.has_input(Input::kKey), past);
  const std::int64_t total = *c.input(Input::kTotal).as<std::int32_t>();
  const std::int64_t keys = is_sliding(c.node) ? checked_add(z.past, z.steps) : std::max(z.past, total);
  if (z.depth == 0 && c.outputs.size() > 3 && c.output(3).present()) {
    fill_in_pieces(c.output(3).data, 0, c.output(3).desc.size_bytes());
  }
  if (z.depth == 0 || z.batch == 0) return;
  Rows rows(c, z, keys);
  const AttentionRule rule = {attention_scale(static_cast<double>(attr_float(c.node, Attr::kScale)), z.depth),
                              static_cast<double>(attr_float(c.node, Attr::kSoftcap))};
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
    {.name = "GroupQueryAttention",
     .domain = "com.microsoft",
     .since = 1,
     .max_inputs = 16,
     .max_outputs = 4,
     .attributes = kAttributes,
     .dtypes = dtype_bit(DType::kFloat32),
     .value_inputs = 1u << Input::kTotal,
     .output_dtype = output_dtype,
     .infer = infer_group,
     .reference = reference_group,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

extern const OpFamily group_query_attention_family;
const OpFamily group_query_attention_family = {kOps};

}  // namespace evn
