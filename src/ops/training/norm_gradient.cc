// The derivatives of BatchNormalization and LayerNormalization, each of one node. Not operators of the format (ops/gradient.h).
//   BatchNormalizationGradient: of inputs x [N, C, ...], scale [C], dy, mean and variance [C], with epsilon and training_mode: dx,
//   dscale and dbias. In training mode, mean and variance are those of x; they may be left out then.
//   LayerNormalizationGradient: of inputs x, scale of the axes from `axis` on, dy, with epsilon: dx, dscale and dbias.
// With g = dy * scale, n = (x - mean) / sqrt(variance + epsilon), and means over what is normalized:
//   dx = (g - mean(g) - n * mean(g * n)) / sqrt(variance + epsilon), without the means where mean and variance are given numbers;
//   dscale = sum of dy * n, dbias = sum of dy.
// dtypes: floating point, all alike. Failures: dims that do not fit. Tolerance: rtol 1e-4, atol 1e-5.
#include <cmath>
#include <vector>

#include "ops/gradient.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/layer_norm.h"
#include "ops/merge.h"
#include "ops/training/norm_gradient.h"

namespace evn {
namespace {

using Input = NormGradientInput;

void infer_outputs(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  const Shape& x = c.shape(Input::kX);
  require_rank(c, Input::kDy, x.rank(), x.rank());
  for (int i = 0; i < x.rank(); ++i) require_dim(c.shape(Input::kDy)[i], x[i], Input::kDy);
  for (std::size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i].shape = i == 0 ? x : c.shape(Input::kScale);
}

void infer_batch_norm(InferContext& c) {
  require_rank(c, Input::kX, 2);
  require_vector(c, Input::kScale, c.shape(Input::kX)[1]);
  for (const int i : {int{Input::kMean}, int{Input::kVariance}}) {
    if (c.has_input(i)) require_vector(c, i, c.shape(Input::kX)[1]);
    else if (attr_int(c.node, BatchNormGradientAttr::kTrains) == 0) require_input(c, i);
  }
  infer_outputs(c);
}

void infer_layer_norm(InferContext& c) {
  const Shape& x = c.shape(Input::kX);
  const int axis = normalize_axis(attr_int(c.node, LayerNormGradientAttr::kAxis), x.rank());
  require_rank(c, Input::kScale, x.rank() - axis, x.rank() - axis);
  for (int i = axis; i < x.rank(); ++i) require_dim(c.shape(Input::kScale)[i - axis], x[i], Input::kScale);
  infer_outputs(c);
}

// The elements that are normalized together: element i lies at f(i).
template <typename T, typename F>
struct Group {
  const T *x, *dy;
  std::int64_t count;
  F at;

  // The mean of f(element).
  template <typename Term>
  double mean_of(Term term) const {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      cancellation_point();
      sum += term(i);
    }
    return sum / static_cast<double>(count);
  }
  double x_at(std::int64_t i) const { return static_cast<double>(x[at(i)]); }
  double dy_at(std::int64_t i) const { return static_cast<double>(dy[at(i)]); }
};

// Writes dx of a group, and calls put(i, dy * n, dy) for each element.
template <typename T, typename F, typename Scale, typename Put>
void differentiate(const Group<T, F>& g, double mean, double inverse, bool trains, Scale scale, T* dx, Put put) {
  const auto n = [&](std::int64_t i) { return (g.x_at(i) - mean) * inverse; };
  const auto of = [&](std::int64_t i) { return g.dy_at(i) * scale(i); };
  const double plain = trains ? g.mean_of(of) : 0;
  const double along = trains ? g.mean_of([&](std::int64_t i) { return of(i) * n(i); }) : 0;
  for (std::int64_t i = 0; i < g.count; ++i) {
    cancellation_point();
    if (dx != nullptr) dx[g.at(i)] = static_cast<T>((of(i) - plain - n(i) * along) * inverse);
    put(i, g.dy_at(i) * n(i), g.dy_at(i));
  }
}

template <typename T>
T* output_of(const ReferenceContext& c, std::size_t i) {
  return i < c.outputs.size() && c.outputs[i].present() ? c.outputs[i].as<T>() : nullptr;
}

template <typename T>
void put_sums(const ReferenceContext& c, std::size_t output, const std::vector<double>& sums) {
  T* const to = output_of<T>(c, output);
  if (to != nullptr) copy_in_pieces(sums.data(), static_cast<std::int64_t>(sums.size()), to);
}

template <typename T>
void batch_norm_gradient(const ReferenceContext& c) {
  const Shape& x = c.input(Input::kX).desc.shape;
  const std::int64_t channels = x[1], inner = x.elements(2, x.rank());
  const bool trains = attr_int(c.node, BatchNormGradientAttr::kTrains) != 0;
  const auto epsilon = static_cast<double>(attr_float(c.node, BatchNormGradientAttr::kEpsilon));
  std::vector<double> dscale(static_cast<std::size_t>(channels)), dbias(static_cast<std::size_t>(channels));
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    const auto at = [=](std::int64_t i) { return (i / inner * channels + channel) * inner + i % inner; };
    const Group<T, decltype(at)> g{c.input(Input::kX).as<T>(), c.input(Input::kDy).as<T>(), x[0] * inner, at};
    double mean, variance;
    if (trains) {
      mean = g.mean_of([&](std::int64_t i) { return g.x_at(i); });
      variance = g.mean_of([&](std::int64_t i) { return (g.x_at(i) - mean) * (g.x_at(i) - mean); });
    } else {
      mean = static_cast<double>(c.input(Input::kMean).as<T>()[channel]);
      variance = static_cast<double>(c.input(Input::kVariance).as<T>()[channel]);
    }
    const auto scale = static_cast<double>(c.input(Input::kScale).as<T>()[channel]);
    differentiate(
        g, mean, 1 / std::sqrt(variance + epsilon), trains, [=](std::int64_t) { return scale; }, output_of<T>(c, 0),
        [&](std::int64_t, double of_scale, double of_bias) {
          dscale[static_cast<std::size_t>(channel)] += of_scale;
          dbias[static_cast<std::size_t>(channel)] += of_bias;
        });
  }
  put_sums<T>(c, 1, dscale);
  put_sums<T>(c, 2, dbias);
}

template <typename T>
void layer_norm_gradient(const ReferenceContext& c) {
  const Shape& x = c.input(Input::kX).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, LayerNormGradientAttr::kAxis), x.rank());
  const std::int64_t lines = x.elements(0, axis), line = x.elements(axis, x.rank());
  const auto epsilon = static_cast<double>(attr_float(c.node, LayerNormGradientAttr::kEpsilon));
  std::vector<double> dscale(static_cast<std::size_t>(line)), dbias(static_cast<std::size_t>(line));
  const T* const scales = c.input(Input::kScale).as<T>();
  for (std::int64_t n = 0; n < lines; ++n) {
    const auto at = [=](std::int64_t i) { return n * line + i; };
    const Group<T, decltype(at)> g{c.input(Input::kX).as<T>(), c.input(Input::kDy).as<T>(), line, at};
    const double mean = g.mean_of([&](std::int64_t i) { return g.x_at(i); });
    const double variance = g.mean_of([&](std::int64_t i) { return (g.x_at(i) - mean) * (g.x_at(i) - mean); });
    differentiate(
        g, mean, 1 / std::sqrt(variance + epsilon), true, [=](std::int64_t i) { return static_cast<double>(scales[i]); },
        output_of<T>(c, 0),
        [&](std::int64_t i, double of_scale, double of_bias) {
          dscale[static_cast<std::size_t>(i)] += of_scale;
          dbias[static_cast<std::size_t>(i)] += of_bias;
        });
  }
  put_sums<T>(c, 1, dscale);
  put_sums<T>(c, 2, dbias);
}

void reference_batch_norm_gradient(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { batch_norm_gradient<decltype(zero)>(c); });
}
void reference_layer_norm_gradient(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { layer_norm_gradient<decltype(zero)>(c); });
}

constexpr AttributeSpec kBatchNorm[] = {float_attribute("epsilon", 1e-5f), int_attribute("training_mode", 0)};
constexpr AttributeSpec kLayerNorm[] = {float_attribute("epsilon", 1e-5f), int_attribute("axis", -1)};
constexpr Tolerance kNear = {1e-4, 1e-5};
constexpr OpDef kOps[] = {
    {.name = kBatchNormGradient,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 5,
     .max_outputs = 3,
     .attributes = kBatchNorm,
     .dtypes = kFloats,
     .infer = infer_batch_norm,
     .reference = reference_batch_norm_gradient,
     .tolerance = kNear},
    {.name = kLayerNormGradient,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 3,
     .max_outputs = 3,
     .attributes = kLayerNorm,
     .dtypes = kFloats,
     .infer = infer_layer_norm,
     .reference = reference_layer_norm_gradient,
     .tolerance = kNear},
};

}  // namespace

extern const OpFamily norm_gradient_family;
const OpFamily norm_gradient_family = {kOps};

}  // namespace evn
