// DeformConv: Conv whose taps are moved (Dai et al., "Deformable Convolutional Networks", 2017; Zhu et al., "Deformable ConvNets
// v2", 2018): y[n, m, o] = bias[m] + sum over c, k of w[m, c, k] * mask[n, k, o] * x[n, c, o * stride + k * dilation - pad +
// offset[n, k, o]], where x between its elements is interpolated bilinearly, and is 0 outside. Two spatial axes.
//   inputs      x [N, C, H, W], w [M, C / group, kH, kW], offset [N, offset_group * kH * kW * 2, oH, oW] (row, then column),
//               optional bias [M], optional mask [N, offset_group * kH * kW, oH, oW]
// dtypes: floating point, all alike. Failures: those of Conv, an offset_group that does not divide C; other numbers of spatial axes
// (UNSUPPORTED). Tolerance: rtol 1e-4, atol 1e-5.
#include <cmath>

#include "base/checked.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/window.h"

namespace evn {
namespace {

enum : int { kDilations, kGroup, kKernelShape, kOffsetGroup, kPads, kStrides };
enum : int { kX, kW, kOffset, kBias, kMask };

Window window_of(const Node& node, const Shape& x, const Shape& w) {
  WindowAttributes attributes;
  attributes.kernel_shape = attr_ints(node, kKernelShape);
  attributes.pads = attr_ints(node, kPads);
  attributes.strides = attr_ints(node, kStrides);
  attributes.dilations = attr_ints(node, kDilations);
  return forward_window(attributes, x, resolve_kernel(attributes, w).dims());
}

void infer_deform(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  const Shape& x = c.shape(kX);
  const Shape& w = c.shape(kW);
  require_rank(c, kX, 3);
  if (x.rank() != 4) fail(EVN_ERROR_UNSUPPORTED, "DeformConv over %d spatial axes", x.rank() - 2);
  for (const int i : {kW, kOffset, kMask}) require_rank(c, i, 4, 4);
  const std::int64_t group = attr_int(c.node, kGroup), offsets = attr_int(c.node, kOffsetGroup);
  if (group < 1 || offsets < 1) fail(EVN_ERROR_INVALID_MODEL, "a group below 1");
  if (w[0] >= 0 && w[0] % group != 0) fail(EVN_ERROR_INVALID_MODEL, "group does not divide the output channels");
  if (w[1] >= 0) require_dim(x[1], checked_mul(w[1], group), kX);
  if (x[1] >= 0 && x[1] % offsets != 0) fail(EVN_ERROR_INVALID_MODEL, "offset_group does not divide the channels");
  require_vector(c, kBias, w[0]);
  const Window window = window_of(c.node, x, w);
  const Shape y = {x[0], w[0], window.axis[0].output, window.axis[1].output};
  const bool taps_known = window.axis[0].kernel >= 0 && window.axis[1].kernel >= 0;
  for (const int i : {kOffset, kMask}) {
    if (!c.has_input(i)) continue;
    const Shape& s = c.shape(i);
    require_dim(s[0], y[0], i);
    if (taps_known)
      require_dim(s[1], checked_mul(checked_mul(offsets, window.kernel_elements()), std::int64_t{i == kOffset ? 2 : 1}), i);
    require_dim(s[2], y[2], i);
    require_dim(s[3], y[3], i);
  }
  c.outputs[0].shape = y;
}

// x at a place between its elements.
template <typename T>
double interpolate(const T* plane, std::int64_t height, std::int64_t width, double row, double column) {
  if (!(row > -1 && row < static_cast<double>(height) && column > -1 && column < static_cast<double>(width))) return 0;
  const double top = std::floor(row), left = std::floor(column);
  double sum = 0;
  for (int i = 0; i < 4; ++i) {
    const double r = top + i / 2, s = left + i % 2;
    if (r < 0 || s < 0 || r >= static_cast<double>(height) || s >= static_cast<double>(width)) continue;
    const auto at = static_cast<std::int64_t>(r) * width + static_cast<std::int64_t>(s);
    sum += static_cast<double>(plane[at]) * (1 - std::fabs(row - r)) * (1 - std::fabs(column - s));
  }
  return sum;
}

template <typename T>
void deform(const ReferenceContext& c) {
  const Shape& x = c.input(kX).desc.shape;
  const Shape& w = c.input(kW).desc.shape;
  const Shape& y = c.output().desc.shape;
  const Window window = window_of(c.node, x, w);
  const WindowAxis& rows = window.axis[0];
  const WindowAxis& columns = window.axis[1];
  const std::int64_t taps = window.kernel_elements(), places = window.output_elements();
  const std::int64_t per_group = w[0] / attr_int(c.node, kGroup), offset_groups = attr_int(c.node, kOffsetGroup);
  const std::int64_t per_offset = x[1] / offset_groups;
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    cancellation_point();
    const std::int64_t place = i % places, m = i / places % w[0], n = i / places / w[0];
    double sum = c.has_input(kBias) ? static_cast<double>(c.input(kBias).as<T>()[m]) : 0;
    for (std::int64_t tap = 0; tap < w[1] * taps; ++tap) {
      cancellation_point();
      const std::int64_t channel = m / per_group * w[1] + tap / taps, k = tap % taps;
      const std::int64_t moved = n * offset_groups * taps + channel / per_offset * taps + k;
      const T* offset = c.input(kOffset).as<T>() + 2 * moved * places + place;
      const double row =
          static_cast<double>(place / columns.output * rows.stride + k / columns.kernel * rows.dilation - rows.pad_begin) +
          static_cast<double>(offset[0]);
      const double column =
          static_cast<double>(place % columns.output * columns.stride + k % columns.kernel * columns.dilation - columns.pad_begin) +
          static_cast<double>(offset[places]);
      const double weight = static_cast<double>(c.input(kW).as<T>()[m * w[1] * taps + tap]) *
                            (c.has_input(kMask) ? static_cast<double>(c.input(kMask).as<T>()[moved * places + place]) : 1);
      sum += weight * interpolate(c.input(kX).as<T>() + (n * x[1] + channel) * x[2] * x[3], x[2], x[3], row, column);
    }
    c.output().as<T>()[i] = static_cast<T>(sum);
  }
}

void reference_deform(const ReferenceContext& c) {
  if (c.output().desc.shape.elements() == 0) return;
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { deform<decltype(zero)>(c); });
}

constexpr AttributeSpec kAttributes[] = {
    optional_attribute("dilations", AttributeType::kInts),    int_attribute("group", 1),
    optional_attribute("kernel_shape", AttributeType::kInts), int_attribute("offset_group", 1),
    optional_attribute("pads", AttributeType::kInts),         optional_attribute("strides", AttributeType::kInts),
};
constexpr OpDef kOps[] = {
    {.name = "DeformConv",
     .since = 19,
     .min_inputs = 3,
     .max_inputs = 5,
     .attributes = kAttributes,
     .dtypes = kFloats,
     .infer = infer_deform,
     .reference = reference_deform,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

extern const OpFamily deform_conv_family;
const OpFamily deform_conv_family = {kOps};

}  // namespace evn
