// Conv: y[n, m, o...] = bias[m] + sum over c, k of x[n, g * C/group + c, o * stride + k * dilation - pad_begin] * w[m, c, k...]
// where g is the group of m, and positions of x outside it are 0. 1, 2 or 3 spatial axes.
// FusedConv (com.microsoft): act(y + z), with an optional input z of y's shape, where `activation` names act
// (infra/fused_activation.h) and `activation_params` are its numbers.
// NhwcConv (com.microsoft): Conv of x [N, spatial..., C] to y [N, spatial..., M]; w as in Conv.
//   inputs      x [N, C, spatial...], w [M, C / group, kernel...], optional bias [M]
//   attributes  auto_pad, kernel_shape, pads, strides, dilations, group; window.h has the geometry
// dtypes: floating point. Failures: those of window.h, a group that does not divide C and M, dims that do not fit.
// Tolerance: rtol 1e-4, atol 1e-5 (sums of some thousand products in float32).
#include "ops/conv.h"

#include "base/checked.h"
#include "ops/infra/check.h"
#include "ops/infra/fused_activation.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

enum : int { kActivation = ConvAttr::kGroup + 1, kActivationParams };  // FusedConv's
constexpr int kAdded = 3;                                              // its input z

// The output's shape of a convolution over x [N, C, spatial...], which is input x_input as the operator sees it.
Shape convolution_shape(const InferContext& c, const Shape& x, int x_input, int w_input) {
  const Shape& w = c.shape(w_input);
  require_rank(c, w_input, x.rank(), x.rank());
  const std::int64_t group = attr_int(c.node, ConvAttr::kGroup);
  if (group < 1) fail(EVN_ERROR_INVALID_MODEL, "group is %lld", static_cast<long long>(group));
  if (w[0] >= 0 && w[0] % group != 0) fail(EVN_ERROR_INVALID_MODEL, "group does not divide the output channels");
  if (w[1] >= 0) require_dim(x[1], checked_mul(w[1], group), x_input);
  const Window window = conv_window(c.node, x, w);
  Shape out = {x[0], w[0]};
  for (int i = 0; i < window.rank; ++i) out.push_back(window.axis[i].output);
  return out;
}

void infer_conv(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  infer_convolution(c, 0, 1);
  require_vector(c, 2, c.shape(1)[0]);
}

Shape channels_first(const Shape& x) {
  Shape s = {x[0], x[x.rank() - 1]};
  for (int i = 1; i + 1 < x.rank(); ++i) s.push_back(x[i]);
  return s;
}

template <typename T>
void conv(const ReferenceContext& c, bool channels_last) {
  const Shape x = channels_last ? channels_first(c.input(0).desc.shape) : c.input(0).desc.shape;
  const Shape& w = c.input(1).desc.shape;
  if (c.output().desc.shape.elements() == 0) return;
  const Window window = conv_window(c.node, x, w);
  const std::int64_t group = attr_int(c.node, ConvAttr::kGroup);
  const std::int64_t channels = w[1];
  const std::int64_t outputs = w[0];
  const ImageSteps step = channels_last ? ImageSteps{x[1], 1} : ImageSteps{1, window.input_elements()};
  for (std::int64_t n = 0; n < x[0]; ++n) {
    cancellation_point();
    for (std::int64_t m = 0; m < outputs; ++m) {
      cancellation_point();
      const std::int64_t places = window.output_elements();
      T* y = c.output().as<T>() + (channels_last ? n * places * outputs + m : (n * outputs + m) * places);
      const double bias = c.has_input(2) ? c.input(2).as<T>()[m] : 0;
      const T* image = c.input(0).as<T>() + n * x[1] * window.input_elements() + m / (outputs / group) * channels * step.channel;
      const T* weight = c.input(1).as<T>() + m * channels * window.kernel_elements();
      for (std::int64_t o0 = 0; o0 < window.axis[0].output; ++o0) {
        cancellation_point();
        for (std::int64_t o1 = 0; o1 < window.axis[1].output; ++o1) {
          cancellation_point();
          for (std::int64_t o2 = 0; o2 < window.axis[2].output; ++o2) {
            cancellation_point();
            *y = static_cast<T>(bias + window_dot<double>(window, step, image, weight, channels, {o0, o1, o2}));
            y += channels_last ? outputs : 1;
          }
        }
      }
    }
  }
}

void reference_conv(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { conv<decltype(zero)>(c, false); });
}

// ------------------------------------------------------------------------------------------ FusedConv, NhwcConv --

EpilogueOp fused_step_of(const Node& node) {
  return fused_step(attr_string(node, kActivation), attr_floats(node, kActivationParams));
}

void infer_fused(InferContext& c) {
  infer_conv(c);
  if (attr_given(c.node, kActivation)) fused_step_of(c.node);
  if (!c.has_input(kAdded)) return;
  const Shape& y = c.outputs[0].shape;
  require_rank(c, kAdded, y.rank(), y.rank());
  for (int i = 0; i < y.rank(); ++i) require_dim(c.shape(kAdded)[i], y[i], kAdded);
}

void reference_fused(const ReferenceContext& c) {
  conv<float>(c, false);
  float* y = c.output().as<float>();
  const std::int64_t count = c.output().desc.shape.elements();
  for (std::int64_t i = 0; i < count && c.has_input(kAdded); ++i) {
    cancellation_point();
    y[i] += c.input(kAdded).as<float>()[i];
  }
  if (attr_given(c.node, kActivation)) apply_to_all(fused_step_of(c.node), c.output());
}

void infer_nhwc(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  require_rank(c, 0, 3);
  const Shape y = convolution_shape(c, channels_first(c.shape(0)), 0, 1);
  require_vector(c, 2, c.shape(1)[0]);
  Shape out = {y[0]};
  for (int i = 2; i < y.rank(); ++i) out.push_back(y[i]);
  out.push_back(y[1]);
  c.outputs[0].shape = out;
}

void reference_nhwc(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { conv<decltype(zero)>(c, true); });
}

constexpr AttributeSpec kFusedAttributes[] = {
    kConvAttributes[0],
    kConvAttributes[1],
    kConvAttributes[2],
    kConvAttributes[3],
    kConvAttributes[4],
    kConvAttributes[5],
    optional_attribute("activation", AttributeType::kString),
    optional_attribute("activation_params", AttributeType::kFloats),
};
constexpr Tolerance kNear = {1e-4, 1e-5};

constexpr OpDef kOps[] = {
    {.name = "Conv",
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 3,
     .attributes = kConvAttributes,
     .dtypes = kFloats,
     .infer = infer_conv,
     .reference = reference_conv,
     .tolerance = kNear},
    {.name = "FusedConv",
     .domain = "com.microsoft",
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 4,
     .attributes = kFusedAttributes,
     .dtypes = dtype_bit(DType::kFloat32),
     .infer = infer_fused,
     .reference = reference_fused,
     .tolerance = kNear},
    {.name = "NhwcConv",
     .domain = "com.microsoft",
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 3,
     .attributes = kConvAttributes,
     .dtypes = kFloats,
     .infer = infer_nhwc,
     .reference = reference_nhwc,
     .tolerance = kNear},
};

}  // namespace

void infer_convolution(InferContext& c, int x_input, int w_input) {
  require_rank(c, x_input, 3);
  c.outputs[0].shape = convolution_shape(c, c.shape(x_input), x_input, w_input);
}

Window conv_window(const Node& node, const Shape& x, const Shape& w) {
  WindowAttributes attributes;
  attributes.auto_pad = parse_auto_pad(attr_string(node, ConvAttr::kAutoPad));
  attributes.kernel_shape = attr_ints(node, ConvAttr::kKernelShape);
  attributes.pads = attr_ints(node, ConvAttr::kPads);
  attributes.strides = attr_ints(node, ConvAttr::kStrides);
  attributes.dilations = attr_ints(node, ConvAttr::kDilations);
  return forward_window(attributes, x, resolve_kernel(attributes, w).dims());
}

extern const OpFamily conv_family;
const OpFamily conv_family = {kOps};

}  // namespace evn
