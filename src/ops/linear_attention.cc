// LinearAttention: a state S [d_k, d_v] for each head goes through the sequence (Yang et al., "Parallelizing Linear Transformers
// with the Delta Rule", 2024); at each step, with key k, value v, decay g, rate beta:
//   linear S += k v'    gated S = exp(g) S + k v'    delta S += beta k (v - S' k)'    gated_delta: exp(g) S first, then delta
// and y = scale * S' q. Query heads share the state of their key and value head. The state is carried from past_state (0) to
// output 1.
//   inputs      query [B, T, Hq * d_k], key [B, T, H * d_k], value [B, T, H * d_v], past_state [B, H, d_k, d_v],
//               decay [B, T, H * d_k] or [B, T, H], beta [B, T, H] or [B, T, 1]
//   attributes  scale: 0 is 1 / sqrt(d_k); chunk_size is for other implementations
// CausalConvWithState: y[b, c, t] = bias[c] + sum over i < k of w[c, 0, i] * x[b, c, t + i - (k - 1)], where x before the beginning
// is past_state (0); output 1 has the last k - 1 elements of both. `activation` silu or swish follows. dtypes: floating point, all
// alike. Failures: ranks and dims that do not fit, other words, a rule without the decay or rate that it needs. Tolerance: rtol
// 1e-4, atol 1e-5.
#include <cmath>
#include <vector>

#include "base/checked.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

// -------------------------------------------------------------------------------------------- LinearAttention --

enum : int { kChunk, kHeads, kQueryHeads, kScale, kRule };
enum : int { kQuery, kKey, kValue, kPast, kDecay, kBeta };

struct Rule {
  bool gated, delta;
};

Rule rule_of(const Node& node) {
  const std::string& word = attr_string(node, kRule);
  if (word == "linear") return {false, false};
  if (word == "gated") return {true, false};
  if (word == "delta") return {false, true};
  if (word == "gated_delta") return {true, true};
  fail(EVN_ERROR_INVALID_MODEL, "update_rule must not be '%s'", word.c_str());
}

std::int64_t per_head(std::int64_t size, std::int64_t heads, int input) {
  if (size >= 0 && size % heads != 0) fail(EVN_ERROR_INVALID_MODEL, "the heads do not divide input %d", input);
  return size < 0 ? -1 : size / heads;
}

void infer_attention(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  const Rule rule = rule_of(c.node);
  const std::int64_t heads = attr_int(c.node, kHeads), query_heads = attr_int(c.node, kQueryHeads);
  if (heads < 1 || query_heads < 1 || query_heads % heads != 0) {
    fail(EVN_ERROR_INVALID_MODEL, "%lld query heads for %lld others", static_cast<long long>(query_heads),
         static_cast<long long>(heads));
  }
  if (rule.gated && !c.has_input(kDecay)) fail(EVN_ERROR_INVALID_MODEL, "the rule needs a decay");
  if (rule.delta && !c.has_input(kBeta)) fail(EVN_ERROR_INVALID_MODEL, "the rule needs a rate");
  for (const int i : {kQuery, kKey, kValue, kDecay, kBeta}) {
    if (!c.has_input(i)) continue;
    require_rank(c, i, 3, 3);
    require_dim(c.shape(i)[0], c.shape(kQuery)[0], i);
    require_dim(c.shape(i)[1], c.shape(kQuery)[1], i);
  }
  const Shape& q = c.shape(kQuery);
  const std::int64_t d_k = per_head(c.shape(kKey)[2], heads, kKey), d_v = per_head(c.shape(kValue)[2], heads, kValue);
  require_dim(per_head(q[2], query_heads, kQuery), d_k, kQuery);
  const Shape state = {q[0], heads, d_k, d_v};
  require_rank(c, kPast, 4, 4);
  for (int i = 0; i < 4 && c.has_input(kPast); ++i) require_dim(c.shape(kPast)[i], state[i], kPast);
  if (c.has_input(kDecay) && c.shape(kDecay)[2] != heads && c.shape(kKey)[2] >= 0)
    require_dim(c.shape(kDecay)[2], c.shape(kKey)[2], kDecay);
  if (c.has_input(kBeta) && c.shape(kBeta)[2] != 1) require_dim(c.shape(kBeta)[2], heads, kBeta);
  c.outputs[0].shape = {q[0], q[1], d_v < 0 ? -1 : checked_mul(query_heads, d_v)};
  if (c.outputs.size() > 1) c.outputs[1].shape = state;
}

template <typename T>
double at(const ConstTensor& t, std::int64_t i) {
  return static_cast<double>(t.as<T>()[i]);
}

// One head of one batch element.
template <typename T>
class Head {
 public:
  Head(const ReferenceContext& c, std::int64_t batch, std::int64_t head)
      : c_(c),
        rule_(rule_of(c.node)),
        heads_(attr_int(c.node, kHeads)),
        groups_(attr_int(c.node, kQueryHeads) / heads_),
        d_k_(c.input(kKey).desc.shape[2] / heads_),
        d_v_(c.input(kValue).desc.shape[2] / heads_),
        batch_(batch),
        head_(head),
        state_(static_cast<std::size_t>(d_k_ * d_v_), 0.0) {
    scale_ = static_cast<double>(attr_float(c.node, kScale));
    if (scale_ == 0) scale_ = 1 / std::sqrt(static_cast<double>(d_k_));
    for (std::size_t i = 0; c.has_input(kPast) && i < state_.size(); ++i) {
      cancellation_point();
      state_[i] = at<T>(c.input(kPast), state_at(i));
    }
  }

  void run() {
    const std::int64_t steps = c_.input(kQuery).desc.shape[1];
    for (std::int64_t t = 0; t < steps; ++t) {
      cancellation_point();
      const std::int64_t row = batch_ * steps + t;
      if (rule_.gated) decay(row);
      update(row);
      answer(row);
    }
    if (c_.outputs.size() < 2 || !c_.output(1).present()) return;
    for (std::size_t i = 0; i < state_.size(); ++i) {
      cancellation_point();
      c_.output(1).template as<T>()[state_at(i)] = static_cast<T>(state_[i]);
    }
  }

 private:
  std::int64_t state_at(std::size_t i) const { return (batch_ * heads_ + head_) * d_k_ * d_v_ + static_cast<std::int64_t>(i); }
  double& state(std::int64_t k, std::int64_t v) { return state_[static_cast<std::size_t>(k * d_v_ + v)]; }
  double key(std::int64_t row, std::int64_t k) const { return at<T>(c_.input(kKey), (row * heads_ + head_) * d_k_ + k); }

  void decay(std::int64_t row) {
    const ConstTensor& g = c_.input(kDecay);
    const bool one = g.desc.shape[2] == heads_;
    for (std::int64_t k = 0; k < d_k_; ++k) {
      cancellation_point();
      const double factor = std::exp(at<T>(g, one ? row * heads_ + head_ : (row * heads_ + head_) * d_k_ + k));
      for (std::int64_t v = 0; v < d_v_; ++v) {
        cancellation_point();
        state(k, v) *= factor;
      }
    }
  }

  void update(std::int64_t row) {
    for (std::int64_t v = 0; v < d_v_; ++v) {
      cancellation_point();
      double value = at<T>(c_.input(kValue), (row * heads_ + head_) * d_v_ + v);
      if (rule_.delta) {
        for (std::int64_t k = 0; k < d_k_; ++k) {
          cancellation_point();
          value -= state(k, v) * key(row, k);
        }
        const ConstTensor& beta = c_.input(kBeta);
        value *= at<T>(beta, beta.desc.shape[2] == 1 ? row : row * heads_ + head_);
      }
      for (std::int64_t k = 0; k < d_k_; ++k) {
        cancellation_point();
        state(k, v) += key(row, k) * value;
      }
    }
  }

  void answer(std::int64_t row) {
    for (std::int64_t g = 0; g < groups_; ++g) {
      cancellation_point();
      const std::int64_t first = row * heads_ * groups_ + head_ * groups_ + g;
      for (std::int64_t v = 0; v < d_v_; ++v) {
        cancellation_point();
        double sum = 0;
        for (std::int64_t k = 0; k < d_k_; ++k) {
          cancellation_point();
          sum += at<T>(c_.input(kQuery), first * d_k_ + k) * state(k, v);
        }
        if (c_.output().present()) c_.output().template as<T>()[first * d_v_ + v] = static_cast<T>(scale_ * sum);
      }
    }
  }

  const ReferenceContext& c_;
  const Rule rule_;
  const std::int64_t heads_, groups_, d_k_, d_v_, batch_, head_;
  double scale_ = 1;
  std::vector<double> state_;
};

void reference_attention(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    for (std::int64_t b = 0; b < c.input(kQuery).desc.shape[0]; ++b) {
      cancellation_point();
      for (std::int64_t h = 0; h < attr_int(c.node, kHeads); ++h) {
        cancellation_point();
        Head<decltype(zero)>(c, b, h).run();
      }
    }
  });
}

// ---------------------------------------------------------------------------------------- CausalConvWithState --

enum : int { kX, kWeight, kBias, kState };

bool has_silu(const Node& node) {
  const std::string& word = attr_string(node, 0);
  if (word != "none" && word != "silu" && word != "swish")
    fail(EVN_ERROR_INVALID_MODEL, "activation must not be '%s'", word.c_str());
  return word != "none";
}

void infer_conv(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  require_rank(c, kX, 3, 3);
  require_rank(c, kWeight, 3, 3);
  require_rank(c, kState, 3, 3);
  has_silu(c.node);
  const Shape& x = c.shape(kX);
  const Shape& w = c.shape(kWeight);
  require_dim(w[0], x[1], kWeight);
  require_dim(w[1], 1, kWeight);
  if (w[2] == 0) fail(EVN_ERROR_INVALID_MODEL, "a kernel without elements");
  require_vector(c, kBias, x[1]);
  const Shape state = {x[0], x[1], w[2] < 0 ? -1 : w[2] - 1};
  for (int i = 0; i < 3 && c.has_input(kState); ++i) require_dim(c.shape(kState)[i], state[i], kState);
  c.outputs[0].shape = x;
  if (c.outputs.size() > 1) c.outputs[1].shape = state;
}

template <typename T>
void conv(const ReferenceContext& c) {
  const Shape& x = c.input(kX).desc.shape;
  const std::int64_t length = x[2], taps = c.input(kWeight).desc.shape[2], before = taps - 1;
  const bool silu = has_silu(c.node);
  for (std::int64_t row = 0; row < x[0] * x[1]; ++row) {
    cancellation_point();
    // Element i of the state and x together.
    const auto element = [&](std::int64_t i) {
      if (i >= before) return at<T>(c.input(kX), row * length + i - before);
      return c.has_input(kState) ? at<T>(c.input(kState), row * before + i) : 0.0;
    };
    const std::int64_t channel = row % x[1];
    for (std::int64_t t = 0; t < length && c.output().present(); ++t) {
      cancellation_point();
      double sum = c.has_input(kBias) ? at<T>(c.input(kBias), channel) : 0;
      for (std::int64_t i = 0; i < taps; ++i) {
        cancellation_point();
        sum += at<T>(c.input(kWeight), channel * taps + i) * element(t + i);
      }
      c.output().as<T>()[row * length + t] = static_cast<T>(silu ? sum / (1 + std::exp(-sum)) : sum);
    }
    for (std::int64_t i = 0; i < before && c.outputs.size() > 1 && c.output(1).present(); ++i) {
      cancellation_point();
      c.output(1).as<T>()[row * before + i] = static_cast<T>(element(length + i));
    }
  }
}

void reference_conv(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { conv<decltype(zero)>(c); });
}

constexpr AttributeSpec kAttention[] = {int_attribute("chunk_size", 64), required_attribute("kv_num_heads", AttributeType::kInt),
                                        required_attribute("q_num_heads", AttributeType::kInt), float_attribute("scale", 0),
                                        string_attribute("update_rule", "gated_delta")};
constexpr AttributeSpec kConv[] = {string_attribute("activation", "none")};
constexpr OpDef kOps[] = {
    {.name = "LinearAttention",
     .since = 27,
     .min_inputs = 3,
     .max_inputs = 6,
     .max_outputs = 2,
     .attributes = kAttention,
     .dtypes = kFloats,
     .infer = infer_attention,
     .reference = reference_attention,
     .tolerance = {1e-4, 1e-5}},
    {.name = "CausalConvWithState",
     .since = 27,
     .min_inputs = 2,
     .max_inputs = 4,
     .max_outputs = 2,
     .attributes = kConv,
     .dtypes = kFloats,
     .infer = infer_conv,
     .reference = reference_conv,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

extern const OpFamily linear_attention_family;
const OpFamily linear_attention_family = {kOps};

}  // namespace evn
