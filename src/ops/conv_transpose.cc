// ConvTranspose: the gradient of Conv with respect to its input, as a forward operator:
//   y[n, m, i * stride + k * dilation - pad_begin] += x[n, c, i] * w[c, m, k], plus bias[m]
// over the c of m's group; positions outside y are left out.
//   inputs      x [N, C, spatial...], w [C, M / group, kernel...], optional bias [M]
//   attributes  as Conv, and output_padding (added to the end of y) and output_shape
//   output dim  stride * (input - 1) + output_padding + extent - pad_begin - pad_end. With output_shape, or SAME_UPPER / SAME_LOWER
//               (input * stride), the dim is given and the pads follow from it: the odd one at the end for SAME_UPPER, else at the
//               beginning
// dtypes: floating point. Failures: as Conv; output_padding negative or not below max(stride, dilation); an output dim < 1.
// Tolerance: rtol 1e-4, atol 1e-5.
#include "ops/conv_transpose.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

void infer_conv_transpose(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  require_rank(c, 0, 3);
  const Shape& x = c.shape(0);
  const Shape& w = c.shape(1);
  require_rank(c, 1, x.rank(), x.rank());
  require_dim(x[1], w[0], 0);
  const std::int64_t group = attr_int(c.node, ConvTransposeAttr::kGroup);
  if (group < 1) fail(EVN_ERROR_INVALID_MODEL, "group is %lld", static_cast<long long>(group));
  if (w[0] >= 0 && w[0] % group != 0) fail(EVN_ERROR_INVALID_MODEL, "group does not divide the input channels");
  const std::int64_t outputs = w[1] < 0 ? -1 : checked_mul(w[1], group);
  require_vector(c, 2, outputs);
  const Window window = conv_transpose_window(c.node, x, w);
  Shape out = {x[0], outputs};
  for (int i = 0; i < window.rank; ++i) out.push_back(window.axis[i].output);
  c.outputs[0].shape = out;
}

// One output element without its bias: the taps that reach it.
template <typename T>
double gather_taps(const Window& window, const T* x, const T* w, std::int64_t channels, std::int64_t w_step,
                   const std::int64_t (&at)[kMaxSpatial]) {
  const WindowAxis* axis = window.axis;
  // The input position that reaches output position `o` through tap k, or -1.
  const auto source = [&](int i, std::int64_t o, std::int64_t k) -> std::int64_t {
    const std::int64_t scaled = o + axis[i].pad_begin - k * axis[i].dilation;
    if (scaled < 0 || scaled % axis[i].stride != 0) return -1;
    return scaled / axis[i].stride < axis[i].input ? scaled / axis[i].stride : -1;
  };
  double sum = 0;
  for (std::int64_t k0 = 0; k0 < axis[0].kernel; ++k0) {
    cancellation_point();
    const std::int64_t i0 = source(0, at[0], k0);
    for (std::int64_t k1 = 0; k1 < axis[1].kernel && i0 >= 0; ++k1) {
      cancellation_point();
      const std::int64_t i1 = source(1, at[1], k1);
      for (std::int64_t k2 = 0; k2 < axis[2].kernel && i1 >= 0; ++k2) {
        cancellation_point();
        const std::int64_t i2 = source(2, at[2], k2);
        if (i2 < 0) continue;
        const T* image = x + (i0 * axis[1].input + i1) * axis[2].input + i2;
        const T* weight = w + (k0 * axis[1].kernel + k1) * axis[2].kernel + k2;
        for (std::int64_t c = 0; c < channels; ++c) {
          cancellation_point();
          sum += static_cast<double>(image[c * window.input_elements()]) * static_cast<double>(weight[c * w_step]);
        }
      }
    }
  }
  return sum;
}

template <typename T>
void conv_transpose(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const Shape& w = c.input(1).desc.shape;
  if (c.output().desc.shape.elements() == 0) return;
  const Window window = conv_transpose_window(c.node, x, w);
  const std::int64_t group = attr_int(c.node, ConvTransposeAttr::kGroup);
  const std::int64_t channels = x[1] / group;
  const std::int64_t w_step = w[1] * window.kernel_elements();
  T* y = c.output().as<T>();
  for (std::int64_t n = 0; n < x[0]; ++n) {
    cancellation_point();
    for (std::int64_t m = 0; m < w[1] * group; ++m) {
      cancellation_point();
      const std::int64_t g = m / w[1];
      const double bias = c.has_input(2) ? c.input(2).as<T>()[m] : 0;
      const T* image = c.input(0).as<T>() + (n * x[1] + g * channels) * window.input_elements();
      const T* weight = c.input(1).as<T>() + g * channels * w_step + m % w[1] * window.kernel_elements();
      for (std::int64_t o0 = 0; o0 < window.axis[0].output; ++o0) {
        cancellation_point();
        for (std::int64_t o1 = 0; o1 < window.axis[1].output; ++o1) {
          cancellation_point();
          for (std::int64_t o2 = 0; o2 < window.axis[2].output; ++o2) {
            cancellation_point();
            *y++ = static_cast<T>(bias + gather_taps(window, image, weight, channels, w_step, {o0, o1, o2}));
          }
        }
      }
    }
  }
}

void reference_conv_transpose(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { conv_transpose<decltype(zero)>(c); });
}

// Output and pads of one axis. `wanted` is its entry of output_shape, or -1.
void resolve_axis(WindowAxis& a, AutoPad auto_pad, std::int64_t extra, std::int64_t wanted) {
  const std::int64_t full = checked_add(checked_mul(a.stride, a.input - 1), extra + a.extent());
  if (wanted < 0 && (auto_pad == AutoPad::kSameUpper || auto_pad == AutoPad::kSameLower)) wanted = checked_mul(a.input, a.stride);
  if (wanted < 0) {
    a.output = full - a.pad_begin - a.pad_end;
    return;
  }
  a.output = wanted;
  const std::int64_t total = std::max(full, wanted) - wanted;
  a.pad_begin = auto_pad == AutoPad::kSameUpper ? total / 2 : total - total / 2;
  a.pad_end = total - a.pad_begin;
}

constexpr AttributeSpec kAttributes[] = {
    string_attribute("auto_pad", "NOTSET"),
    optional_attribute("kernel_shape", AttributeType::kInts),
    optional_attribute("pads", AttributeType::kInts),
    optional_attribute("strides", AttributeType::kInts),
    optional_attribute("dilations", AttributeType::kInts),
    int_attribute("group", 1),
    optional_attribute("output_padding", AttributeType::kInts),
    optional_attribute("output_shape", AttributeType::kInts),
};

constexpr OpDef kOps[] = {
    {.name = "ConvTranspose",
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 3,
     .attributes = kAttributes,
     .dtypes = kFloats,
     .infer = infer_conv_transpose,
     .reference = reference_conv_transpose,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

Window conv_transpose_window(const Node& node, const Shape& x, const Shape& w) {
  WindowAttributes attributes;
  attributes.auto_pad = parse_auto_pad(attr_string(node, ConvTransposeAttr::kAutoPad));
  attributes.kernel_shape = attr_ints(node, ConvTransposeAttr::kKernelShape);
  attributes.pads = attr_ints(node, ConvTransposeAttr::kPads);
  attributes.strides = attr_ints(node, ConvTransposeAttr::kStrides);
  attributes.dilations = attr_ints(node, ConvTransposeAttr::kDilations);
  Window window = window_from_attributes(attributes, x.rank() - 2, resolve_kernel(attributes, w).dims());
  const std::span<const std::int64_t> extra = attr_ints(node, ConvTransposeAttr::kOutputPadding);
  std::span<const std::int64_t> wanted = attr_ints(node, ConvTransposeAttr::kOutputShape);
  const auto rank = static_cast<std::size_t>(window.rank);
  // Some exporters list the batch and channel axes too.
  if (wanted.size() == rank + 2) wanted = wanted.subspan(2);
  if (!extra.empty() && extra.size() != rank) fail(EVN_ERROR_INVALID_MODEL, "output_padding has %zu values", extra.size());
  if (!wanted.empty() && wanted.size() != rank) fail(EVN_ERROR_INVALID_MODEL, "output_shape has %zu values", wanted.size());
  for (int i = 0; i < window.rank; ++i) {
    WindowAxis& a = window.axis[i];
    a.input = x[i + 2];
    const std::int64_t added = extra.empty() ? 0 : extra[i];
    if (added < 0 || added >= std::max(a.stride, a.dilation)) {
      fail(EVN_ERROR_INVALID_MODEL, "output_padding has a value of %lld", static_cast<long long>(added));
    }
    if (!wanted.empty() && wanted[i] < 1) fail(EVN_ERROR_INVALID_MODEL, "output_shape has a value below 1");
    if (a.input < 0 || a.kernel < 0) {
      a.output = wanted.empty() ? -1 : wanted[i];
      continue;
    }
    resolve_axis(a, attributes.auto_pad, added, wanted.empty() ? -1 : wanted[i]);
    if (a.output <= 0) fail(EVN_ERROR_INVALID_MODEL, "a spatial axis would have %lld elements", static_cast<long long>(a.output));
  }
  return window;
}

extern const OpFamily conv_transpose_family;
const OpFamily conv_transpose_family = {kOps};

}  // namespace evn
