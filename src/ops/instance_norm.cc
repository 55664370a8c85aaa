// Normalizations that take mean and variance from parts of one image or row:
//   InstanceNormalization      of each channel: y = (x - mean) / sqrt(variance + epsilon) * scale[c] + bias[c]
//   GroupNormalization         of num_groups groups of channels; scale and bias one for each group (18) or channel (21)
//   MeanVarianceNormalization  over `axes` (default 0, 2, 3): y = (x - mean) / (sqrt(variance) + 1e-9)
//   LpNormalization            along `axis`: y = x / (sum |x|^p)^(1/p), p 1 or 2; a row of zeros stays 0
//   RMSNormalization           over the axes from `axis` on: y = x / sqrt(mean of x^2 + epsilon) * scale; scale broadcasts to x
//   SimplifiedLayerNormalization   ONNX Runtime's name for the same; output 1, when wanted: 1 / sqrt(mean of x^2 + epsilon),
//   float32
// dtypes: floating point. Failures: ranks and dims that do not fit, groups that do not divide the channels.
// Tolerance: rtol 1e-4, atol 1e-5.
#include <algorithm>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/line_sums.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"
#include "ops/layer_norm.h"

namespace evn {
namespace {

// ------------------------------------------------------------------------------------------------------ groups --

void infer_instance_norm(InferContext& c) {
  require_same_dtype(c, 0, 2);
  require_rank(c, 0, 2);
  require_vector(c, 1, c.shape(0)[1]);
  require_vector(c, 2, c.shape(0)[1]);
  infer_same_shape(c);
}

DType group_dtype(const Node& node, std::span<const DType> inputs, int) {
  require_stash_type(node, GroupNormAttr::kStashType, true);
  return inputs[0];
}

void infer_group_norm(InferContext& c) {
  require_same_dtype(c, 0, 2);
  require_rank(c, 0, 2);
  const std::int64_t groups = attr_int(c.node, GroupNormAttr::kGroups);
  const std::int64_t channels = c.shape(0)[1];
  if (groups < 1) fail(EVN_ERROR_INVALID_MODEL, "num_groups is %lld", static_cast<long long>(groups));
  if (channels >= 0 && channels % groups != 0) fail(EVN_ERROR_INVALID_MODEL, "num_groups does not divide the channels");
  const std::int64_t length = c.node.op->since < 21 ? groups : channels;
  require_vector(c, 1, length);
  require_vector(c, 2, length);
  infer_same_shape(c);
}

// Mean, and 1 / sqrt(variance + epsilon).
struct Moments {
  double mean;
  double inverse;
};

template <typename T>
Moments moments_of(const T* x, std::int64_t count, double epsilon) {
  double mean = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    cancellation_point();
    mean += static_cast<double>(x[i]);
  }
  mean /= static_cast<double>(count);
  double variance = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    cancellation_point();
    variance += (static_cast<double>(x[i]) - mean) * (static_cast<double>(x[i]) - mean);
  }
  return {mean, 1 / std::sqrt(variance / static_cast<double>(count) + epsilon)};
}

// `groups` parts of the channels; element i of scale and bias is for `span` channels.
void normalize_groups(const ReferenceContext& c, std::int64_t groups, std::int64_t span) {
  const Shape& x = c.input(0).desc.shape;
  const double epsilon = attr_float(c.node, GroupNormAttr::kEpsilon);
  const std::int64_t inner = x.elements(2, x.rank());
  if (x.elements() == 0) return;
  const std::int64_t size = x[1] / groups * inner;
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t part = 0; part < x[0] * groups; ++part) {
      cancellation_point();
      const T* from = c.input(0).as<T>() + part * size;
      const Moments m = moments_of(from, size, epsilon);
      for (std::int64_t i = 0; i < size; ++i) {
        cancellation_point();
        const std::int64_t at = ((part % groups * size + i) / inner) / span;
        const double scale = static_cast<double>(c.input(1).as<T>()[at]);
        const double bias = static_cast<double>(c.input(2).as<T>()[at]);
        c.output().as<T>()[part * size + i] = static_cast<T>((static_cast<double>(from[i]) - m.mean) * m.inverse * scale + bias);
      }
    }
  });
}

void reference_instance_norm(const ReferenceContext& c) { normalize_groups(c, c.input(0).desc.shape[1], 1); }

void reference_group_norm(const ReferenceContext& c) {
  const std::int64_t groups = attr_int(c.node, GroupNormAttr::kGroups);
  normalize_groups(c, groups, c.node.op->since < 21 ? c.input(0).desc.shape[1] / groups : 1);
}

// ---------------------------------------------------------------------------------- MeanVarianceNormalization --

std::uint32_t mean_variance_axes(const Node& node, int rank) {
  constexpr std::int64_t kDefault[] = {0, 2, 3};
  const std::span<const std::int64_t> given = attr_ints(node, 0);
  return axes_mask(given.empty() ? std::span<const std::int64_t>(kDefault) : given, rank);
}

void infer_mean_variance(InferContext& c) {
  mean_variance_axes(c.node, c.shape(0).rank());
  infer_same_shape(c);
}

// The axes that are kept, each of whose positions is a part, and those over which is normalized.
struct Moving {
  WalkAxes<1> kept, reduced;
  std::int64_t groups, count;

  explicit Moving(const ReferenceContext& c) {
    const Shape& x = c.input(0).desc.shape;
    const std::uint32_t mask = mean_variance_axes(c.node, x.rank());
    const Strides dense = dense_strides(x);
    Shape shapes[2];
    Strides strides[2];
    for (int i = 0; i < x.rank(); ++i) {
      const int which = static_cast<int>(mask >> i & 1u);
      strides[which].step[shapes[which].rank()] = dense.step[i];
      shapes[which].push_back(x[i]);
    }
    kept = {shapes[0], {strides[0]}};
    reduced = {shapes[1], {strides[1]}};
    groups = shapes[0].elements();
    count = shapes[1].elements();
  }
};

std::int64_t parts_of_mean_variance(const ReferenceContext& c) { return Moving(c).groups; }

void reference_mean_variance(const ReferenceContext& c) {
  const Moving axes(c);
  const std::int64_t length = axes.reduced.dims[0], step = axes.reduced.steps[0][0];
  const auto count = static_cast<double>(axes.count);
  if (axes.count == 0) return;
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto normalize = [&](std::int64_t start) {
      const T* x = c.input(0).as<T>() + start;
      const auto sum = [&](LineSum what, double center) {
        double all = 0;
        walk_lines(axes.reduced,
                   [&](std::int64_t, const std::int64_t* at) { all += line_sum(what, x + at[0], length, step, center); });
        return all;
      };
      const double mean = sum(LineSum::kElements, 0) / count;
      const double divisor = std::sqrt(sum(LineSum::kSquares, mean) / count) + 1e-9;
      walk_lines(axes.reduced, [&](std::int64_t, const std::int64_t* at) {
        normalize_line(x + at[0], c.output().as<T>() + start + at[0], length, step, mean, divisor);
      });
    };
    // A line of what is kept, of which only some positions may lie in the parts.
    const std::int64_t end = std::min(c.end, axes.groups), row = axes.kept.dims[0];
    const auto normalize_row = [&](std::int64_t position, const std::int64_t* at) {
      for (std::int64_t i = std::max(position, c.begin); i < std::min(end, position + row); ++i) {
        cancellation_point();
        normalize(at[0] + (i - position) * axes.kept.steps[0][0]);
      }
    };
    if (c.begin < end) walk_lines(axes.kept, normalize_row, nullptr, c.begin / row, (end - 1) / row + 1);
  });
}

// --------------------------------------------------------------------------------- LpNormalization and RMS --

enum : int { kLpAxis, kP };

void infer_lp(InferContext& c) {
  normalize_axis(attr_int(c.node, kLpAxis), c.shape(0).rank());
  if (attr_int(c.node, kP) != 1 && attr_int(c.node, kP) != 2) fail(EVN_ERROR_INVALID_MODEL, "p is neither 1 nor 2");
  infer_same_shape(c);
}

std::int64_t parts_of_lp(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const std::int64_t length = x[normalize_axis(attr_int(c.node, kLpAxis), x.rank())];
  return length > 0 ? x.elements() / length : 0;
}

void reference_lp(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, kLpAxis), x.rank());
  const bool squares = attr_int(c.node, kP) == 2;
  const std::int64_t inner = x.elements(axis + 1, x.rank());
  const std::int64_t rows = std::min(c.end, parts_of_lp(c));
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t row = c.begin; row < rows; ++row) {
      cancellation_point();
      const std::int64_t begin = row / inner * x[axis] * inner + row % inner;
      const T* from = c.input(0).as<T>() + begin;
      T* to = c.output().as<T>() + begin;
      double norm = line_sum(squares ? LineSum::kSquares : LineSum::kMagnitudes, from, x[axis], inner);
      if (squares) norm = std::sqrt(norm);
      if (norm == 0) {
        each_element(x[axis], [=](std::int64_t i) { to[i * inner] = 0; });
      } else {
        normalize_line(from, to, x[axis], inner, 0, norm);
      }
    }
  });
}

enum : int { kRmsAxis, kRmsEpsilon, kRmsStash };

void infer_rms(InferContext& c) {
  require_same_dtype(c, 0, 1);
  const Shape& x = c.shape(0);
  normalize_axis(attr_int(c.node, kRmsAxis), x.rank());
  const Shape both = broadcast_partial(x, c.shape(1));
  if (both.rank() != x.rank()) fail(EVN_ERROR_INVALID_MODEL, "the scale has a higher rank than x");
  for (int i = 0; i < x.rank(); ++i) require_dim(x[i], both[i], 1);
  infer_same_shape(c);
  if (c.outputs.size() < 2) return;
  for (int i = normalize_axis(attr_int(c.node, kRmsAxis), x.rank()); i < x.rank(); ++i) c.outputs[1].shape[i] = 1;
}

DType rms_dtype(const Node& node, std::span<const DType> inputs, int) {
  require_stash_type(node, kRmsStash, true);
  return inputs[0];
}

DType simplified_dtype(const Node& node, std::span<const DType> inputs, int output) {
  require_stash_type(node, kRmsStash, false);
  return output == 0 ? inputs[0] : DType::kFloat32;
}

void reference_rms(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, kRmsAxis), x.rank());
  const double epsilon = attr_float(c.node, kRmsEpsilon);
  const std::int64_t size = x.elements(axis, x.rank());
  if (x.elements() == 0) return;
  std::vector<double> factors;
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t row = 0; row < x.elements(0, axis); ++row) {
      cancellation_point();
      double sum = 0;
      for (std::int64_t i = 0; i < size; ++i) {
        cancellation_point();
        const auto element = static_cast<double>(c.input(0).as<T>()[row * size + i]);
        sum += element * element;
      }
      factors.push_back(1 / std::sqrt(sum / static_cast<double>(size) + epsilon));
      if (c.outputs.size() > 1 && c.output(1).present()) c.output(1).as<float>()[row] = static_cast<float>(factors.back());
    }
    walk<1>(x, {broadcast_strides(c.input(1).desc.shape, x)}, [&](std::int64_t i, const std::int64_t* at) {
      const double factor = factors[static_cast<std::size_t>(i / size)] * static_cast<double>(c.input(1).as<T>()[at[0]]);
      c.output().as<T>()[i] = static_cast<T>(static_cast<double>(c.input(0).as<T>()[i]) * factor);
    });
  });
}

constexpr AttributeSpec kGroup[] = {float_attribute("epsilon", 1e-5f), required_attribute("num_groups", AttributeType::kInt),
                                    int_attribute("stash_type", 1)};
constexpr std::span<const AttributeSpec> kGroup18 = std::span<const AttributeSpec>(kGroup).first(2);
constexpr std::span<const AttributeSpec> kInstance = std::span<const AttributeSpec>(kGroup).first(1);
constexpr AttributeSpec kAxes[] = {optional_attribute("axes", AttributeType::kInts)};
constexpr AttributeSpec kLp[] = {int_attribute("axis", -1), int_attribute("p", 2)};
constexpr AttributeSpec kRms[] = {int_attribute("axis", -1), float_attribute("epsilon", 1e-5f), int_attribute("stash_type", 1)};
constexpr Tolerance kNear = {1e-4, 1e-5};
constexpr OpDef kOps[] = {
    {.name = "InstanceNormalization",
     .since = 6,
     .min_inputs = 3,
     .max_inputs = 3,
     .attributes = kInstance,
     .dtypes = kFloats,
     .infer = infer_instance_norm,
     .reference = reference_instance_norm,
     .tolerance = kNear},
    {.name = "GroupNormalization",
     .since = 18,
     .min_inputs = 3,
     .max_inputs = 3,
     .attributes = kGroup18,
     .dtypes = kFloats,
     .output_dtype = group_dtype,
     .infer = infer_group_norm,
     .reference = reference_group_norm,
     .tolerance = kNear},
    {.name = "GroupNormalization",
     .since = 21,
     .min_inputs = 3,
     .max_inputs = 3,
     .attributes = kGroup,
     .dtypes = kFloats,
     .output_dtype = group_dtype,
     .infer = infer_group_norm,
     .reference = reference_group_norm,
     .tolerance = kNear},
    {.name = "MeanVarianceNormalization",
     .since = 9,
     .attributes = kAxes,
     .dtypes = kFloats,
     .infer = infer_mean_variance,
     .reference = reference_mean_variance,
     .tolerance = kNear,
     .parts = parts_of_mean_variance},
    {.name = "LpNormalization",
     .since = 1,
     .attributes = kLp,
     .dtypes = kFloats,
     .infer = infer_lp,
     .reference = reference_lp,
     .tolerance = kNear,
     .parts = parts_of_lp},
    {.name = "RMSNormalization",
     .since = 23,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kRms,
     .dtypes = kFloats,
     .output_dtype = rms_dtype,
     .infer = infer_rms,
     .reference = reference_rms,
     .tolerance = kNear},
    {.name = "SimplifiedLayerNormalization",
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 2,
     .max_outputs = 2,
     .attributes = kRms,
     .dtypes = kFloats,
     .output_dtype = simplified_dtype,
     .infer = infer_rms,
     .reference = reference_rms,
     .tolerance = kNear},
};

}  // namespace

extern const OpFamily instance_norm_family;
const OpFamily instance_norm_family = {kOps};

}  // namespace evn
