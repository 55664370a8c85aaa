// AttentionGradient: the derivatives of Attention's output 0 by Q, K, V and, where it is wanted, a mask that is added. The scores
// are computed once more. With weights P of a query over its keys, and dP = dy V^T:
//   dV = P^T dy;  dS = P (dP - sum of P dP), which is also the mask's;  dQ = dS' K, dK = dS'^T Q,
// where dS' is dS times the scale and, with softcap, times 1 - tanh^2 of the score / softcap. A query that sees nothing gives
// zeros. A hidden key is not read: the derivatives by keys and values behind nonpad_kv_seqlen are 0 whatever bits the padding has.
// Not an operator of the format (ops/gradient.h). dtypes: floating point, all alike. Failures: dims that do not fit; past
// keys and values. Tolerance: rtol 1e-4, atol 1e-5.
#include "ops/training/attention_gradient.h"

#include "ops/attention_rows.h"
#include "ops/infra/check.h"
#include "ops/merge.h"

namespace evn {
namespace {

using In = AttentionInput;
using Attr = AttentionAttr;
using Out = AttentionGradientOutput;

constexpr int kDy = AttentionGradientInput::kDy;

void infer_gradient(InferContext& c) {
  for (const int i : {int{In::kPastKey}, int{In::kPastValue}}) {
    if (c.has_input(i)) fail(EVN_ERROR_INVALID_MODEL, "AttentionGradient takes no past keys and values");
  }
  const std::int64_t precision = attr_int(c.node, Attr::kPrecision);
  if (precision == EVN_DTYPE_FLOAT16 || precision == EVN_DTYPE_BFLOAT16 || attr_int(c.node, Attr::kMode) != 0) {
    fail(EVN_ERROR_INVALID_MODEL, "AttentionGradient has no softmax that is rounded, and gives no scores");
  }
  require_input(c, kDy);
  for (const int i : {int{In::kQ}, int{In::kK}, int{In::kV}, kDy}) {
    require_rank(c, i, c.shape(In::kQ).rank(), c.shape(In::kQ).rank());
    require_dtype(c, i, dtype_bit(c.inputs[In::kQ].dtype));
  }
  require_rank(c, In::kQ, 3, 4);
  const AttentionGeometry g = attention_geometry(c.node, c.shape(In::kQ), c.shape(In::kK), c.shape(In::kV), nullptr);
  check_attention_inputs(c, g);
  const Shape y = attention_output(g);
  for (int i = 0; i < y.rank(); ++i) require_dim(c.shape(kDy)[i], y[i], kDy);
  for (std::size_t i = 0; i < c.outputs.size(); ++i) {
    const int input = static_cast<int>(i);
    if (i == Out::kDMask) {
      require_input(c, In::kMask);
      require_dtype(c, In::kMask, dtype_bit(c.inputs[In::kQ].dtype));
    }
    c.outputs[i].shape = c.shape(input);
  }
}

// One query of one head after another.
template <typename T>
class Back {
 public:
  Back(const ReferenceContext& c, const AttentionGeometry& g)
      : c_(c),
        g_(g),
        rows_(c, g),
        scale_(attention_scale(static_cast<double>(attr_float(c.node, Attr::kScale)), g.depth)),
        softcap_(static_cast<double>(attr_float(c.node, Attr::kSoftcap))),
        weights_(static_cast<std::size_t>(g.keys)),
        slopes_(weights_.size()),
        dscores_(weights_.size()) {
    for (int i = 0; i < 3; ++i) sums_[i].resize(static_cast<std::size_t>(c.input(i).desc.shape.elements()));
    if (wants_mask()) {
      sums_[Out::kDMask].resize(static_cast<std::size_t>(c.input(In::kMask).desc.shape.elements()));
      mask_ = broadcast_strides(c.input(In::kMask).desc.shape, {g.batch, g.heads, g.queries, g.keys});
    }
  }

  void run() {
    for (std::int64_t b = 0; b < g_.batch; ++b) {
      for (std::int64_t h = 0; h < g_.heads; ++h) {
        for (std::int64_t s = 0; s < g_.queries; ++s) {
          cancellation_point();
          run_query(b, h, s);
        }
      }
    }
    for (std::size_t i = 0; i < c_.outputs.size(); ++i) {
      if (c_.outputs[i].present())
        copy_in_pieces(sums_[i].data(), static_cast<std::int64_t>(sums_[i].size()), c_.outputs[i].as<T>());
    }
  }

 private:
  const ReferenceContext& c_;
  const AttentionGeometry& g_;
  const AttentionRows<T> rows_;
  const double scale_, softcap_;
  std::vector<double> weights_, slopes_, dscores_;  // of one query
  std::vector<double> sums_[4];
  Strides mask_;

  bool wants_mask() const { return c_.outputs.size() > Out::kDMask && c_.outputs[Out::kDMask].present(); }

  // The sum that stands for an element of an input.
  double* sum_at(int input, const T* element) { return sums_[input].data() + (element - c_.input(input).as<T>()); }

  void weigh(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t kv_head) {
    const T* const q = rows_.q(b, h, s);
    constexpr double kHidden = -std::numeric_limits<double>::infinity();
    double largest_bias = kHidden;
    for (std::int64_t t = 0; t < g_.keys; ++t) {
      cancellation_point();
      const double bias = rows_.bias(b, h, s, t);
      const auto i = static_cast<std::size_t>(t);
      weights_[i] = bias;
      largest_bias = std::max(largest_bias, bias);
      if (bias == kHidden) continue;
      const T* const k = rows_.k(b, kv_head, t);
      double sum = 0;
      for (std::int64_t d = 0; d < g_.depth; ++d) {
        cancellation_point();
        sum += static_cast<double>(q[d]) * static_cast<double>(k[d]);
      }
      sum *= scale_;
      const double bent = softcap_ != 0 ? std::tanh(sum / softcap_) : 0;
      slopes_[i] = scale_ * (1 - bent * bent);
      weights_[i] += softcap_ != 0 ? softcap_ * bent : sum;
    }
    attention_softmax(weights_, largest_bias, kHidden);
  }

  void run_query(std::int64_t b, std::int64_t h, std::int64_t s) {
    const std::int64_t kv_head = h / (g_.heads / g_.kv_heads);
    weigh(b, h, s, kv_head);
    const T* const dy = attention_row<T>(c_.input(kDy), g_.flat, b, h, s, g_.heads, g_.queries, g_.value_depth);
    double along = 0;
    for (std::int64_t t = 0; t < g_.keys; ++t) {
      const auto i = static_cast<std::size_t>(t);
      const T* const v = rows_.v(b, kv_head, t);
      double* const dv = sum_at(In::kV, v);
      dscores_[i] = 0;
      if (weights_[i] == 0) continue;
      for (std::int64_t d = 0; d < g_.value_depth; ++d) {
        cancellation_point();
        dscores_[i] += static_cast<double>(dy[d]) * static_cast<double>(v[d]);
        dv[d] += weights_[i] * static_cast<double>(dy[d]);
      }
      along += weights_[i] * dscores_[i];
    }
    const T* const q = rows_.q(b, h, s);
    double* const dq = sum_at(In::kQ, q);
    for (std::int64_t t = 0; t < g_.keys; ++t) {
      const auto i = static_cast<std::size_t>(t);
      if (weights_[i] == 0) continue;
      const double by_score = weights_[i] * (dscores_[i] - along), by_product = by_score * slopes_[i];
      if (wants_mask()) add_to_mask(b, h, s, t, by_score);
      const T* const k = rows_.k(b, kv_head, t);
      double* const dk = sum_at(In::kK, k);
      for (std::int64_t d = 0; d < g_.depth; ++d) {
        cancellation_point();
        dq[d] += by_product * static_cast<double>(k[d]);
        dk[d] += by_product * static_cast<double>(q[d]);
      }
    }
  }

  void add_to_mask(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t t, double by_score) {
    const auto& step = mask_.step;
    sums_[Out::kDMask][static_cast<std::size_t>(b * step[0] + h * step[1] + s * step[2] + t)] += by_score;
  }
};

void reference_gradient(const ReferenceContext& c) {
  const AttentionGeometry g =
      attention_geometry(c.node, c.input(In::kQ).desc.shape, c.input(In::kK).desc.shape, c.input(In::kV).desc.shape, nullptr);
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { Back<decltype(zero)>(c, g).run(); });
}

constexpr OpDef kOps[] = {
    {.name = kAttentionGradient,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 8,
     .max_outputs = 4,
     .attributes = kAttentionAttributes,
     .dtypes = kFloats,
     .infer = infer_gradient,
     .reference = reference_gradient,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

extern const OpFamily attention_gradient_family;
const OpFamily attention_gradient_family = {kOps};

}  // namespace evn
