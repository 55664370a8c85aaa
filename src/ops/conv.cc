// Conv: y[n, m, o...] = bias[m] + sum over c, k of x[n, g * C/group + c, o * stride + k * dilation - pad_begin] * w[m, c, k...]
// where g is the group of m, and positions of x outside it are 0. 1, 2 or 3 spatial axes.
//   inputs      x [N, C, spatial...], w [M, C / group, kernel...], optional bias [M]
//   attributes  auto_pad, kernel_shape, pads, strides, dilations, group; window.h has the geometry
// dtypes: floating point. Failures: those of window.h, a group that does not divide C and M, dims that do not fit.
// Tolerance: rtol 1e-4, atol 1e-5 (sums of some thousand products in float32).
#include "ops/conv.h"

#include "base/checked.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

void infer_conv(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  infer_convolution(c, 0, 1);
  require_vector(c, 2, c.shape(1)[0]);
}

// One output element without its bias. `x` and `w` begin at the group's and the output channel's first plane.
template <typename T>
double dot(const Window& window, const T* x, const T* w, std::int64_t channels, const std::int64_t (&at)[kMaxSpatial]) {
  const WindowAxis* axis = window.axis;
  double sum = 0;
  for (std::int64_t c = 0; c < channels; ++c, x += window.input_elements(), w += window.kernel_elements()) {
    for (std::int64_t k0 = 0; k0 < axis[0].kernel; ++k0) {
      const std::int64_t i0 = at[0] * axis[0].stride + k0 * axis[0].dilation - axis[0].pad_begin;
      if (i0 < 0 || i0 >= axis[0].input) continue;
      for (std::int64_t k1 = 0; k1 < axis[1].kernel; ++k1) {
        const std::int64_t i1 = at[1] * axis[1].stride + k1 * axis[1].dilation - axis[1].pad_begin;
        if (i1 < 0 || i1 >= axis[1].input) continue;
        for (std::int64_t k2 = 0; k2 < axis[2].kernel; ++k2) {
          const std::int64_t i2 = at[2] * axis[2].stride + k2 * axis[2].dilation - axis[2].pad_begin;
          if (i2 < 0 || i2 >= axis[2].input) continue;
          sum += static_cast<double>(x[(i0 * axis[1].input + i1) * axis[2].input + i2]) *
                 static_cast<double>(w[(k0 * axis[1].kernel + k1) * axis[2].kernel + k2]);
        }
      }
    }
  }
  return sum;
}

template <typename T>
void conv(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const Shape& w = c.input(1).desc.shape;
  if (c.output().desc.shape.elements() == 0) return;
  const Window window = conv_window(c.node, x, w);
  const std::int64_t group = attr_int(c.node, ConvAttr::kGroup);
  const std::int64_t channels = w[1];
  const std::int64_t outputs = w[0];
  T* y = c.output().as<T>();
  for (std::int64_t n = 0; n < x[0]; ++n) {
    for (std::int64_t m = 0; m < outputs; ++m) {
      const std::int64_t first = n * x[1] + m / (outputs / group) * channels;
      const double bias = c.has_input(2) ? c.input(2).as<T>()[m] : 0;
      const T* image = c.input(0).as<T>() + first * window.input_elements();
      const T* weight = c.input(1).as<T>() + m * channels * window.kernel_elements();
      for (std::int64_t o0 = 0; o0 < window.axis[0].output; ++o0) {
        for (std::int64_t o1 = 0; o1 < window.axis[1].output; ++o1) {
          for (std::int64_t o2 = 0; o2 < window.axis[2].output; ++o2) {
            *y++ = static_cast<T>(bias + dot(window, image, weight, channels, {o0, o1, o2}));
          }
        }
      }
    }
  }
}

void reference_conv(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { conv<decltype(zero)>(c); });
}

constexpr OpDef kOps[] = {
    {"Conv", "", 1, 2, 3, 1, 1, kConvAttributes, kFloats, 0, 0, nullptr, infer_conv, reference_conv, {1e-4, 1e-5}},
};

}  // namespace

void infer_convolution(InferContext& c, int x_input, int w_input) {
  require_rank(c, x_input, 3);
  const Shape& x = c.shape(x_input);
  const Shape& w = c.shape(w_input);
  require_rank(c, w_input, x.rank(), x.rank());
  const std::int64_t group = attr_int(c.node, ConvAttr::kGroup);
  if (group < 1) fail(EVN_ERROR_INVALID_MODEL, "group is %lld", static_cast<long long>(group));
  if (w[0] >= 0 && w[0] % group != 0) fail(EVN_ERROR_INVALID_MODEL, "group does not divide the output channels");
  if (w[1] >= 0) require_dim(x[1], checked_mul(w[1], group), x_input);
  const Window window = conv_window(c.node, x, w);
  Shape out = {x[0], w[0]};
  for (int i = 0; i < window.rank; ++i) out.push_back(window.axis[i].output);
  c.outputs[0].shape = out;
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
