// LSTM, over the steps of a sequence, with gates in the order i, o, f, c in the rows of W, R and B, and i, o, f in P:
//   i = f(W x + R h + P . c + Wb + Rb)      f likewise, or 1 - i with input_forget
//   c' = f . c + i . g(W x + R h + Wb + Rb)
//   o = f(W x + R h + P . c' + Wb + Rb)
//   h' = o . h(c')
// Inputs: x, W, R, then optional B, lengths of the sequences (int32), initial h and c, P. Outputs, each optional: h of all steps (0
// after a sequence's end), the last h and c. The direction "reverse" goes from a sequence's last step to its first.
// Attributes: `activations` f, g, h for each direction, `clip` bounds the inputs of f and g (not of h, as in ONNX Runtime),
// `layout` 1 puts the batch first. dtypes: floating point. Failures: shapes that do not fit, activations that are unknown or not 3
// for each direction, a length beyond the steps of x. Tolerance: rtol 1e-4, atol 1e-5.
#include "ops/recurrent.h"

namespace evn {
namespace {

void infer_lstm(InferContext& c) { infer_recurrent(c, kLstmForm); }

// Gates, in the order of their rows; the first three are P's too.
struct Gate {
  enum : int { kI, kO, kF, kC };
};

// `sums` are W x + R h + Wb + Rb, [4 * hidden].
void lstm_cell(const RecurrentLayer& layer, const std::vector<double>& sums, std::vector<double>& h, std::vector<double>& c) {
  const auto hidden = static_cast<std::size_t>(layer.hidden);
  for (std::size_t j = 0; j < hidden; ++j) {
    cancellation_point();
    const auto sum = [&](int gate) { return sums[static_cast<std::size_t>(gate) * hidden + j]; };
    const auto peephole = [&](int gate) { return layer.peephole[static_cast<std::size_t>(gate) * hidden + j]; };
    const double i = layer.activate(0, sum(Gate::kI) + peephole(Gate::kI) * c[j]);
    const double f = layer.spec->own ? 1 - i : layer.activate(0, sum(Gate::kF) + peephole(Gate::kF) * c[j]);
    c[j] = f * c[j] + i * layer.activate(1, sum(Gate::kC));
    const double o = layer.activate(0, sum(Gate::kO) + peephole(Gate::kO) * c[j]);
    h[j] = o * layer.apply(2, c[j]);
  }
}

void step(const RecurrentLayer& layer, const std::vector<double>& wx, std::vector<double>& h, std::vector<double>& c) {
  std::vector<double> sums(wx.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    cancellation_point();
    sums[i] = wx[i] + layer.recur(static_cast<std::int64_t>(i), h) + layer.w_bias[i] + layer.r_bias[i];
  }
  lstm_cell(layer, sums, h, c);
}

void reference_lstm(const ReferenceContext& c) { reference_recurrent(c, kLstmForm, step); }

constexpr AttributeSpec kAttributes[] = {optional_attribute("activation_alpha", AttributeType::kFloats),
                                         optional_attribute("activation_beta", AttributeType::kFloats),
                                         optional_attribute("activations", AttributeType::kStrings),
                                         float_attribute("clip", 0),
                                         string_attribute("direction", "forward"),
                                         int_attribute("hidden_size", 0),
                                         int_attribute("input_forget", 0),
                                         int_attribute("layout", 0)};
constexpr std::span<const AttributeSpec> kAll(kAttributes);

constexpr OpDef kOps[] = {
    {.name = "LSTM",
     .since = 7,
     .min_inputs = 3,
     .max_inputs = 8,
     .min_outputs = 0,
     .max_outputs = 3,
     .attributes = kAll.first(7),
     .dtypes = kFloats,
     .infer = infer_lstm,
     .reference = reference_lstm,
     .tolerance = {1e-4, 1e-5}},
    {.name = "LSTM",
     .since = 14,
     .min_inputs = 3,
     .max_inputs = 8,
     .min_outputs = 0,
     .max_outputs = 3,
     .attributes = kAll,
     .dtypes = kFloats,
     .infer = infer_lstm,
     .reference = reference_lstm,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

extern const OpFamily lstm_family;
const OpFamily lstm_family = {kOps};

}  // namespace evn
