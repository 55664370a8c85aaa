// EmbedLayerNormalization (com.microsoft): s[b, t] = word[ids[b, t]] + position[t] + segment[segment_ids[b, t]], or with
// position_ids position[position_ids[b, t]]; y = (s - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis.
//   inputs   ids [B, T], segment_ids [B, T] (optional), word [W, H], position [P, H], segment [S, H] (optional), gamma [H],
//            beta [H], mask [B, T] (optional), position_ids [B, T] or [1, T] (optional); ids and mask int32
//   outputs  y [B, T, H]; optional: of each row of the mask how many are 1 (without a mask 0), [B] int32; s
// dtypes: float32, float16, bfloat16. Failures: dims that do not fit, one of segment and segment_ids without the other; at run: an
// id that is no row. Tolerance: rtol 1e-4, atol 1e-5.
#include <vector>

#include "ops/infra/quantized.h"

namespace evn {
namespace {

enum : int { kIds, kSegmentIds, kWord, kPosition, kSegment, kGamma, kBeta, kMask, kPositionIds };
constexpr std::uint32_t kInt = dtype_bit(DType::kInt32);

DType embed_dtype(const Node&, std::span<const DType> inputs, int output) { return output == 1 ? DType::kInt32 : inputs[kWord]; }

void infer_embed(InferContext& c) {
  require_dtype(c, kWord, kScaleDtypes);
  for (const int i : {kPosition, kSegment, kGamma, kBeta}) require_dtype(c, i, dtype_bit(c.inputs[kWord].dtype));
  for (const int i : {kIds, kSegmentIds, kMask, kPositionIds}) require_dtype(c, i, kInt);
  for (const int i : {kWord, kPosition, kGamma, kBeta}) require_input(c, i);
  for (const int i : {kIds, kSegmentIds, kWord, kPosition, kSegment, kMask, kPositionIds}) require_rank(c, i, 2, 2);
  if (c.has_input(kSegment) != c.has_input(kSegmentIds)) fail(EVN_ERROR_INVALID_MODEL, "segment ids and their table go together");
  const std::int64_t batch = c.shape(kIds)[0], steps = c.shape(kIds)[1], hidden = c.shape(kWord)[1];
  for (const int i : {kSegmentIds, kMask, kPositionIds}) {
    if (!c.has_input(i)) continue;
    if (i != kPositionIds || c.shape(i)[0] != 1) require_dim(c.shape(i)[0], batch, i);
    require_dim(c.shape(i)[1], steps, i);
  }
  require_dim(c.shape(kPosition)[1], hidden, kPosition);
  if (c.has_input(kSegment)) require_dim(c.shape(kSegment)[1], hidden, kSegment);
  require_vector(c, kGamma, hidden);
  require_vector(c, kBeta, hidden);
  for (std::size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i].shape = i == 1 ? Shape{batch} : Shape{batch, steps, hidden};
}

// Adds row `id` of a table to the sum.
void add_row(const ConstTensor& table, std::int64_t id, std::vector<double>& sum) {
  if (id < 0 || id >= table.desc.shape[0]) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "id %lld is no row of an embedding of %lld", static_cast<long long>(id),
         static_cast<long long>(table.desc.shape[0]));
  }
  const auto size = static_cast<std::int64_t>(sum.size());
  for (std::int64_t i = 0; i < size; ++i) {
    cancellation_point();
    sum[static_cast<std::size_t>(i)] += static_cast<double>(scale_value(table, id * size + i));
  }
}

void normalize(const ReferenceContext& c, const std::vector<double>& sum, std::int64_t begin) {
  const auto size = static_cast<double>(sum.size());
  double mean = 0, variance = 0;
  for (const double x : sum) {
    cancellation_point();
    mean += x / size;
  }
  for (const double x : sum) {
    cancellation_point();
    variance += (x - mean) * (x - mean) / size;
  }
  const double inverse = 1 / std::sqrt(variance + static_cast<double>(attr_float(c.node, 0)));
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(sum.size()); ++i) {
    cancellation_point();
    const double scaled =
        (sum[static_cast<std::size_t>(i)] - mean) * inverse * static_cast<double>(scale_value(c.input(kGamma), i));
    put_scaled(c.output(), begin + i, scaled + static_cast<double>(scale_value(c.input(kBeta), i)));
  }
}

bool wanted(const ReferenceContext& c, std::size_t i) { return c.outputs.size() > i && c.outputs[i].present(); }

void count_mask(const ReferenceContext& c, std::int64_t batch, std::int64_t steps) {
  for (std::int64_t b = 0; b < batch; ++b) {
    cancellation_point();
    std::int32_t count = 0;
    for (std::int64_t t = 0; t < steps && c.has_input(kMask); ++t) {
      cancellation_point();
      if (c.input(kMask).as<std::int32_t>()[b * steps + t] == 1) ++count;
    }
    c.output(1).as<std::int32_t>()[b] = count;
  }
}

void reference_embed(const ReferenceContext& c) {
  const std::int64_t batch = c.input(kIds).desc.shape[0], steps = c.input(kIds).desc.shape[1];
  const std::int64_t hidden = c.input(kWord).desc.shape[1];
  const auto id_at = [&](int input, std::int64_t i) { return c.input(input).as<std::int32_t>()[i]; };
  for (std::int64_t i = 0; i < batch * steps && hidden > 0; ++i) {
    cancellation_point();
    std::vector<double> sum(static_cast<std::size_t>(hidden), 0.0);
    add_row(c.input(kWord), id_at(kIds, i), sum);
    const bool shared = c.has_input(kPositionIds) && c.input(kPositionIds).desc.shape[0] == 1;
    add_row(c.input(kPosition), c.has_input(kPositionIds) ? id_at(kPositionIds, shared ? i % steps : i) : i % steps, sum);
    if (c.has_input(kSegment)) add_row(c.input(kSegment), id_at(kSegmentIds, i), sum);
    if (c.output().present()) normalize(c, sum, i * hidden);
    for (std::int64_t h = 0; h < hidden && wanted(c, 2); ++h) {
      cancellation_point();
      put_scaled(c.output(2), i * hidden + h, sum[static_cast<std::size_t>(h)]);
    }
  }
  if (wanted(c, 1)) count_mask(c, batch, steps);
}

constexpr AttributeSpec kAttributes[] = {float_attribute("epsilon", 1e-12f), int_attribute("mask_index_type", 0)};
constexpr OpDef kOps[] = {
    {.name = "EmbedLayerNormalization",
     .domain = "com.microsoft",
     .since = 1,
     .max_inputs = 9,
     .max_outputs = 3,
     .attributes = kAttributes,
     .dtypes = kInt,
     .output_dtype = embed_dtype,
     .infer = infer_embed,
     .reference = reference_embed,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

extern const OpFamily embed_layer_norm_family;
const OpFamily embed_layer_norm_family = {kOps};

}  // namespace evn
