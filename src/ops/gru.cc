// GRU, over the steps of a sequence, with gates in the order z, r, h in the rows of W, R and B:
//   z = f(W x + R h + Wb + Rb)      r = f(W x + R h + Wb + Rb)
//   g = g(W x + R (r . h) + Wb + Rb), or with linear_before_reset g(W x + r . (R h + Rb) + Wb)
//   h' = (1 - z) . g + z . h
// Inputs: x, W, R, then optional B, lengths of the sequences (int32), initial h. Outputs, each optional: h of all steps (0 after a
// sequence's end), the last h. The direction "reverse" goes from a sequence's last step to its first.
// Attributes: `activations` f, g for each direction, `clip` bounds their inputs, `layout` 1 puts the batch first.
// dtypes: floating point. Failures: shapes that do not fit, activations that are unknown or not 2 for each direction, a length
// beyond the steps of x. Tolerance: rtol 1e-4, atol 1e-5.
#include "ops/recurrent.h"

namespace evn {
namespace {

constexpr int kZ = 0, kReset = 1, kNew = 2;  // gates

void infer_gru(InferContext& c) { infer_recurrent(c, kGruForm); }

void step(const RecurrentLayer& layer, const std::vector<double>& wx, std::vector<double>& h, std::vector<double>&) {
  const std::vector<double> before = h;
  const std::int64_t hidden = layer.hidden;
  const auto gate = [&](int number, std::int64_t j) {
    const std::int64_t row = number * hidden + j;
    return layer.activate(0, wx[row] + layer.recur(row, before) + layer.w_bias[row] + layer.r_bias[row]);
  };
  std::vector<double> reset(h.size());
  for (std::int64_t j = 0; j < hidden; ++j) {
    cancellation_point();
    reset[j] = gate(kReset, j);
  }
  std::vector<double> kept = before;
  for (std::int64_t j = 0; j < hidden; ++j) {
    cancellation_point();
    kept[j] *= reset[j];
  }
  for (std::int64_t j = 0; j < hidden; ++j) {
    cancellation_point();
    const std::int64_t row = kNew * hidden + j;
    const double recurrent =
        layer.spec->own ? reset[j] * (layer.recur(row, before) + layer.r_bias[row]) : layer.recur(row, kept) + layer.r_bias[row];
    const double candidate = layer.activate(1, wx[row] + recurrent + layer.w_bias[row]);
    const double z = gate(kZ, j);
    h[j] = (1 - z) * candidate + z * before[j];
  }
}

void reference_gru(const ReferenceContext& c) { reference_recurrent(c, kGruForm, step); }

constexpr AttributeSpec kAttributes[] = {optional_attribute("activation_alpha", AttributeType::kFloats),
                                         optional_attribute("activation_beta", AttributeType::kFloats),
                                         optional_attribute("activations", AttributeType::kStrings),
                                         float_attribute("clip", 0),
                                         string_attribute("direction", "forward"),
                                         int_attribute("hidden_size", 0),
                                         int_attribute("linear_before_reset", 0),
                                         int_attribute("layout", 0)};
constexpr std::span<const AttributeSpec> kAll(kAttributes);

constexpr OpDef kOps[] = {
    {.name = "GRU",
     .since = 7,
     .min_inputs = 3,
     .max_inputs = 6,
     .min_outputs = 0,
     .max_outputs = 2,
     .attributes = kAll.first(7),
     .dtypes = kFloats,
     .infer = infer_gru,
     .reference = reference_gru,
     .tolerance = {1e-4, 1e-5}},
    {.name = "GRU",
     .since = 14,
     .min_inputs = 3,
     .max_inputs = 6,
     .min_outputs = 0,
     .max_outputs = 2,
     .attributes = kAll,
     .dtypes = kFloats,
     .infer = infer_gru,
     .reference = reference_gru,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

extern const OpFamily gru_family;
const OpFamily gru_family = {kOps};

}  // namespace evn
