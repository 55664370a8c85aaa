// MaxPool, AveragePool and LpPool: the maximum, the mean or (sum |x|^p)^(1/p) of each window of each plane. 1, 2 or 3 spatial axes;
// window.h has the geometry.
//   inputs      x [N, C, spatial...]
//   attributes  auto_pad, kernel_shape, pads, strides, dilations, ceil_mode; count_include_pad (average: padding counts as zeros,
//               what lies beyond it does not); storage_order (of the indices: 1 counts the first spatial axis fastest)
// MaxPool's output 1: where in x the maximum is (the first one), counted over all of x. A NaN in a window is its maximum. A window
// without any element of x gives the lowest value, index -1, and an average of 0.
// dtypes: floating point; MaxPool int8 and uint8 too. Failures: those of window.h. Tolerance: average rtol 1e-5, maximum exact.
#include "ops/pool.h"

#include <algorithm>

#include "base/checked.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

constexpr int kLpP = 4;  // LpPool: p stands where the others have storage_order or count_include_pad

void infer_pool(InferContext& c) {
  const Shape& x = c.shape(0);
  require_rank(c, 0, 3);
  if (attr_given(c.node, MaxPoolAttr::kStorageOrder)) {
    const std::int64_t flag = attr_int(c.node, MaxPoolAttr::kStorageOrder);  // or count_include_pad
    if (flag != 0 && flag != 1) fail(EVN_ERROR_INVALID_MODEL, "storage_order or count_include_pad is neither 0 nor 1");
  }
  const Window window = pool_window(c.node, x);
  Shape out = {x[0], x[1]};
  for (int i = 0; i < window.rank; ++i) out.push_back(window.axis[i].output);
  for (TensorDesc& output : c.outputs) output.shape = out;
}

void infer_lp_pool(InferContext& c) {
  if (attr_int(c.node, kLpP) < 1) fail(EVN_ERROR_INVALID_MODEL, "p is below 1");
  require_rank(c, 0, 3);
  const Window window = pool_window(c.node, c.shape(0));
  Shape out = {c.shape(0)[0], c.shape(0)[1]};
  for (int i = 0; i < window.rank; ++i) out.push_back(window.axis[i].output);
  c.outputs[0].shape = out;
}

DType max_pool_dtype(const Node&, std::span<const DType> inputs, int output) { return output == 0 ? inputs[0] : DType::kInt64; }

template <typename T>
void max_pool(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const Window window = pool_window(c.node, x);
  const std::int64_t h = window.axis[0].input, w = window.axis[1].input, d = window.axis[2].input;
  const bool column_major = attr_given(c.node, MaxPoolAttr::kStorageOrder) && attr_int(c.node, MaxPoolAttr::kStorageOrder) != 0;
  T* y = c.output().as<T>();
  std::int64_t* indices = c.outputs.size() > 1 && c.output(1).present() ? c.output(1).as<std::int64_t>() : nullptr;
  const std::int64_t planes = x.elements(0, 2);
  for (std::int64_t p = 0; p < planes; ++p) {
    cancellation_point();
    const T* plane = c.input(0).as<T>() + p * window.input_elements();
    for_each_window(window, [&](const Taps(&taps)[kMaxSpatial]) {
      T best = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
      std::int64_t at = -1;
      for_each_tap(window, taps, [&](std::int64_t i0, std::int64_t i1, std::int64_t i2) {
        const T value = plane[(i0 * w + i1) * d + i2];
        if (at >= 0 && !beats(value, best)) return;
        best = value;
        at = p * window.input_elements() + (column_major ? i0 + h * (i1 + w * i2) : (i0 * w + i1) * d + i2);
      });
      *y++ = best;
      if (indices != nullptr) *indices++ = at;
    });
  }
}

template <typename T>
void average_pool(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const Window window = pool_window(c.node, x);
  const bool include_pad = attr_int(c.node, AveragePoolAttr::kCountIncludePad) != 0;
  T* y = c.output().as<T>();
  const std::int64_t planes = x.elements(0, 2);
  for (std::int64_t p = 0; p < planes; ++p) {
    cancellation_point();
    const T* plane = c.input(0).as<T>() + p * window.input_elements();
    for_each_window(window, [&](const Taps(&taps)[kMaxSpatial]) {
      double sum = 0;
      double count = 1;
      for (const Taps& t : taps) {
        cancellation_point();
        count *= static_cast<double>(include_pad ? t.padded : t.count);
      }
      for_each_tap(window, taps, [&](std::int64_t i0, std::int64_t i1, std::int64_t i2) {
        sum += static_cast<double>(plane[(i0 * window.axis[1].input + i1) * window.axis[2].input + i2]);
      });
      *y++ = static_cast<T>(count == 0 ? 0 : sum / count);
    });
  }
}

// |x|^p. Models ask for a p of 1 and 2, which need no call of pow.
double lp_power(double x, std::int64_t p) {
  return p == 2 ? x * x : p == 1 ? std::fabs(x) : std::pow(std::fabs(x), static_cast<double>(p));
}
double lp_root(double sum, std::int64_t p) {
  return p == 2 ? std::sqrt(sum) : p == 1 ? sum : std::pow(sum, 1 / static_cast<double>(p));
}

std::int64_t parts_of_lp_pool(const ReferenceContext& c) { return c.input(0).desc.shape.elements(0, 2); }

template <typename T>
void lp_pool(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const Window window = pool_window(c.node, x);
  const std::int64_t p = attr_int(c.node, kLpP), h = window.axis[1].input, w = window.axis[2].input;
  const std::int64_t planes = std::min(c.end, parts_of_lp_pool(c));
  T* y = c.output().as<T>() + c.begin * window.output_elements();
  for (std::int64_t plane = c.begin; plane < planes; ++plane) {
    cancellation_point();
    const T* from = c.input(0).as<T>() + plane * window.input_elements();
    for_each_window(window, [&](const Taps(&taps)[kMaxSpatial]) {
      double sum = 0;
      for_each_tap(window, taps, [&](std::int64_t i0, std::int64_t i1, std::int64_t i2) {
        sum += lp_power(static_cast<double>(from[(i0 * h + i1) * w + i2]), p);
      });
      *y++ = static_cast<T>(lp_root(sum, p));
    });
  }
}

void reference_lp_pool(const ReferenceContext& c) {
  if (c.output().desc.shape.elements() == 0) return;
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { lp_pool<decltype(zero)>(c); });
}

void reference_max_pool(const ReferenceContext& c) {
  if (c.output().desc.shape.elements() == 0) return;
  dispatch<float, double, std::int8_t, std::uint8_t>(c.input(0).desc.dtype, [&](auto zero) { max_pool<decltype(zero)>(c); });
}

void reference_average_pool(const ReferenceContext& c) {
  if (c.output().desc.shape.elements() == 0) return;
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { average_pool<decltype(zero)>(c); });
}

constexpr AttributeSpec kLpPool[] = {
    string_attribute("auto_pad", "NOTSET"),
    required_attribute("kernel_shape", AttributeType::kInts),
    optional_attribute("pads", AttributeType::kInts),
    optional_attribute("strides", AttributeType::kInts),
    int_attribute("p", 2),
    int_attribute("ceil_mode", 0),
    optional_attribute("dilations", AttributeType::kInts),
};

using Attributes = std::span<const AttributeSpec>;

constexpr OpDef max_row(int since, int outputs, std::size_t attributes) {
  const std::uint32_t dtypes = since < 12 ? kFloats : kFloats | dtype_bit(DType::kInt8) | dtype_bit(DType::kUint8);
  return {.name = "MaxPool",
          .since = since,
          .max_outputs = outputs,
          .attributes = Attributes(kMaxPoolAttributes).first(attributes),
          .dtypes = dtypes,
          .output_dtype = max_pool_dtype,
          .infer = infer_pool,
          .reference = reference_max_pool};
}

constexpr OpDef average_row(int since, std::size_t attributes) {
  return {.name = "AveragePool",
          .since = since,
          .attributes = Attributes(kAveragePoolAttributes).first(attributes),
          .dtypes = kFloats,
          .infer = infer_pool,
          .reference = reference_average_pool,
          .tolerance = {1e-5, 1e-6}};
}

constexpr OpDef lp_row(int since, std::size_t attributes) {
  return {.name = "LpPool",
          .since = since,
          .attributes = Attributes(kLpPool).first(attributes),
          .dtypes = kFloats,
          .infer = infer_lp_pool,
          .reference = reference_lp_pool,
          .tolerance = {1e-5, 1e-6},
          .parts = parts_of_lp_pool};
}

constexpr OpDef kOps[] = {
    max_row(1, 1, 4),   max_row(8, 2, 5),   max_row(10, 2, 7), max_row(12, 2, 7), average_row(7, 5),
    average_row(10, 6), average_row(19, 7), lp_row(2, 5),      lp_row(18, 7),
};

}  // namespace

Window pool_window(const Node& node, const Shape& x) {
  WindowAttributes attributes;
  attributes.auto_pad = parse_auto_pad(attr_string(node, MaxPoolAttr::kAutoPad));
  attributes.kernel_shape = attr_ints(node, MaxPoolAttr::kKernelShape);
  attributes.pads = attr_ints(node, MaxPoolAttr::kPads);
  attributes.strides = attr_ints(node, MaxPoolAttr::kStrides);
  attributes.dilations = attr_ints(node, MaxPoolAttr::kDilations);
  attributes.ceil_mode = attr_given(node, MaxPoolAttr::kCeilMode) && attr_int(node, MaxPoolAttr::kCeilMode) != 0;
  for (std::int64_t k : attributes.kernel_shape) {
    if (k < 1) fail(EVN_ERROR_INVALID_MODEL, "the kernel has a size of %lld", static_cast<long long>(k));
  }
  return forward_window(attributes, x, attributes.kernel_shape);
}

extern const OpFamily pool_family;
const OpFamily pool_family = {kOps};

}  // namespace evn
