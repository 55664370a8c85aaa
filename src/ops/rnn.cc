// RNN, over the steps of a sequence: h' = f(W x + R h + Wb + Rb).
// Inputs: x, W, R, then optional B, lengths of the sequences (int32), initial h. Outputs, each optional: h of all steps (0 after a
// sequence's end), the last h. The direction "reverse" goes from a sequence's last step to its first.
// Attributes: `activations` f for each direction, `clip` bounds its input, `layout` 1 puts the batch first.
// dtypes: floating point. Failures: shapes that do not fit, activations that are unknown or not 1 for each direction, a length
// beyond the steps of x. Tolerance: rtol 1e-4, atol 1e-5.
#include "ops/recurrent.h"

namespace evn {
namespace {

void infer_rnn(InferContext& c) { infer_recurrent(c, kRnnForm); }

void step(const RecurrentLayer& layer, const std::vector<double>& wx, std::vector<double>& h, std::vector<double>&) {
  const std::vector<double> before = h;
  for (std::int64_t j = 0; j < layer.hidden; ++j) {
    cancellation_point();
    h[j] = layer.activate(0, wx[j] + layer.recur(j, before) + layer.w_bias[j] + layer.r_bias[j]);
  }
}

void reference_rnn(const ReferenceContext& c) { reference_recurrent(c, kRnnForm, step); }

constexpr AttributeSpec kAttributes[] = {optional_attribute("activation_alpha", AttributeType::kFloats),
                                         optional_attribute("activation_beta", AttributeType::kFloats),
                                         optional_attribute("activations", AttributeType::kStrings),
                                         float_attribute("clip", 0),
                                         string_attribute("direction", "forward"),
                                         int_attribute("hidden_size", 0),
                                         int_attribute("layout", 0)};
constexpr std::span<const AttributeSpec> kAll(kAttributes);

constexpr OpDef kOps[] = {
    {.name = "RNN",
     .since = 7,
     .min_inputs = 3,
     .max_inputs = 6,
     .min_outputs = 0,
     .max_outputs = 2,
     .attributes = kAll.first(6),
     .dtypes = kFloats,
     .infer = infer_rnn,
     .reference = reference_rnn,
     .tolerance = {1e-4, 1e-5}},
    {.name = "RNN",
     .since = 14,
     .min_inputs = 3,
     .max_inputs = 6,
     .min_outputs = 0,
     .max_outputs = 2,
     .attributes = kAll,
     .dtypes = kFloats,
     .infer = infer_rnn,
     .reference = reference_rnn,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

extern const OpFamily rnn_family;
const OpFamily rnn_family = {kOps};

}  // namespace evn
