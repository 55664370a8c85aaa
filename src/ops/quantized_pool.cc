// QLinearAveragePool (com.microsoft): AveragePool of a quantized tensor, y = saturate(round(S * m) + y zero point), where S is the
// sum of a window's elements less their zero point, m = x scale / (y scale * count) is computed in float64 and is then a float32,
// as S is, and rounding is to even. `count` is AveragePool's. With channels_last x is [N, spatial..., C]. 1, 2 or 3 spatial axes.
// Scales and zero points are one number each. Pads add nothing to S.
// dtypes: int8 and uint8, x and y alike; scales float32. Failures: those of AveragePool, more than one scale. Exact; ONNX Runtime,
// which divides in float32, may be one step beside.
#include "ops/infra/quantized.h"
#include "ops/pool.h"

namespace evn {
namespace {

enum : int { kX, kXScale, kXZero, kYScale, kYZero };
bool channels_last(const Node& node) { return attr_int(node, AveragePoolAttr::kChannelsLast) != 0; }

// The shape as [N, C, spatial...].
Shape plain_shape(const Node& node, const Shape& x) {
  if (!channels_last(node)) return x;
  Shape plain = {x[0], x[x.rank() - 1]};
  for (int i = 1; i < x.rank() - 1; ++i) plain.push_back(x[i]);
  return plain;
}

void infer_average(InferContext& c) {
  require_rank(c, kX, 3);
  require_quantized(c, kX, kXScale, kXZero, 1, dtype_bit(DType::kFloat32));
  require_quantized_output(c, kYScale, c.inputs[kX].dtype);
  const Shape& x = c.shape(kX);
  const Window window = pool_window(c.node, plain_shape(c.node, x));
  const bool last = channels_last(c.node);
  Shape y = {x[0]};
  if (!last) y.push_back(x[1]);
  for (int i = 0; i < window.rank; ++i) y.push_back(window.axis[i].output);
  if (last) y.push_back(x[x.rank() - 1]);
  c.outputs[0].shape = y;
}

void reference_average(const ReferenceContext& c) {
  if (c.output().desc.shape.elements() == 0) return;
  const Shape x = plain_shape(c.node, c.input(kX).desc.shape);
  const Window window = pool_window(c.node, x);
  const bool last = channels_last(c.node), include_pad = attr_int(c.node, AveragePoolAttr::kCountIncludePad) != 0;
  const std::int64_t step = last ? x[1] : 1;
  const double x_scale = scale_at(c, kXScale), y_scale = scale_at(c, kYScale);
  for (std::int64_t plane = 0; plane < x[0] * x[1]; ++plane) {
    cancellation_point();
    const auto first = [&](std::int64_t positions) {
      return last ? plane / x[1] * positions * x[1] + plane % x[1] : plane * positions;
    };
    const std::int64_t from = first(window.input_elements());
    std::int64_t to = first(window.output_elements());
    for_each_window(window, [&](const Taps(&taps)[kMaxSpatial]) {
      std::int64_t sum = 0;
      double count = 1;
      for (const Taps& t : taps) {
        cancellation_point();
        count *= static_cast<double>(include_pad ? t.padded : t.count);
      }
      for_each_tap(window, taps, [&](std::int64_t i0, std::int64_t i1, std::int64_t i2) {
        const std::int64_t at = (i0 * window.axis[1].input + i1) * window.axis[2].input + i2;
        sum += byte_at(c.input(kX), from + at * step) - zero_at(c, kXZero);
      });
      const double scale = count == 0 ? 0 : x_scale / (y_scale * count);
      put_requantized(c.output(), to, wrapped(sum), static_cast<float>(scale), zero_at(c, kYZero));
      to += step;
    });
  }
}

constexpr AttributeSpec kAttributes[] = {
    kAveragePoolAttributes[0], kAveragePoolAttributes[1], kAveragePoolAttributes[2], kAveragePoolAttributes[3],
    kAveragePoolAttributes[4], kAveragePoolAttributes[5], kAveragePoolAttributes[6], int_attribute("channels_last", 0),
};
constexpr OpDef kOps[] = {
    {.name = "QLinearAveragePool",
     .domain = "com.microsoft",
     .since = 1,
     .min_inputs = 4,
     .max_inputs = 5,
     .attributes = kAttributes,
     .dtypes = kByteDtypes,
     .infer = infer_average,
     .reference = reference_average},
};

}  // namespace

extern const OpFamily quantized_pool_family;
const OpFamily quantized_pool_family = {kOps};

}  // namespace evn
