// RoiAlign: y[r, c, i, j] = the mean (mode max: the maximum of weighted elements) of bilinear samples of plane c of image
// batch_indices[r], taken in bin (i, j) of the region rois[r] = x1, y1, x2, y2, scaled by spatial_scale.
// coordinate_transformation_mode half_pixel (from 16) moves the region by half an element and lets it be smaller than one;
// output_half_pixel, and opset 10, do not. sampling_ratio: samples along each side of a bin, 0: as many as the bin has elements.
// Samples up to one element outside the image read its edge, farther ones 0.
// dtypes: floating point, x and rois alike; indices int64. Failures: dims that do not fit; at run: an index that is no image;
// regions so large that a bin would need more than 4096 samples along a side (LIMIT). Tolerance: rtol 1e-4, atol 1e-5.
#include <algorithm>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

enum : int { kMode, kHeight, kWidth, kRatio, kScale, kTransform };
constexpr double kMaxSamples = 1 << 12;  // along one side of a bin

void infer_roi_align(InferContext& c) {
  require_same_dtype(c, 0, 1);
  require_dtype(c, 2, dtype_bit(DType::kInt64));
  require_rank(c, 0, 4, 4);
  require_rank(c, 1, 2, 2);
  require_dim(c.shape(1)[1], 4, 1);
  require_vector(c, 2, c.shape(1)[0]);
  const std::string& mode = attr_string(c.node, kMode);
  if (mode != "avg" && mode != "max") fail(EVN_ERROR_INVALID_MODEL, "mode must not be '%s'", mode.c_str());
  if (attr_given(c.node, kTransform)) {
    const std::string& word = attr_string(c.node, kTransform);
    if (word != "half_pixel" && word != "output_half_pixel") {
      fail(EVN_ERROR_INVALID_MODEL, "coordinate_transformation_mode must not be '%s'", word.c_str());
    }
  }
  const std::int64_t height = attr_int(c.node, kHeight);
  const std::int64_t width = attr_int(c.node, kWidth);
  if (height < 1 || width < 1 || attr_int(c.node, kRatio) < 0) fail(EVN_ERROR_INVALID_MODEL, "an output without elements");
  c.outputs[0].shape = {c.shape(1)[0], c.shape(0)[1], height, width};
}

// One side of a region: where its bins begin, how long they are, and their samples.
struct Side {
  double start, bin;
  std::int64_t samples;
  double at(std::int64_t i, std::int64_t k) const {
    return start + bin * (static_cast<double>(i) + (static_cast<double>(k) + 0.5) / static_cast<double>(samples));
  }
};

Side side_of(double begin, double end, std::int64_t bins, std::int64_t ratio, bool at_least_one) {
  const double length = at_least_one ? std::max(end - begin, 1.0) : end - begin;
  const double bin = length / static_cast<double>(bins);
  const double samples = ratio > 0 ? static_cast<double>(ratio) : std::ceil(bin);
  if (!(samples <= kMaxSamples)) fail(EVN_ERROR_LIMIT, "a region needs more than 4096 samples along a side of a bin");
  return {begin, bin, std::max<std::int64_t>(static_cast<std::int64_t>(samples), 0)};
}

// The two elements that a position lies between.
struct Between {
  bool inside;
  std::int64_t low, high;
  double weight;  // of `high`
};

Between between(double x, std::int64_t size) {
  if (!(x >= -1 && x <= static_cast<double>(size))) return {false, 0, 0, 0};
  x = std::max(x, 0.0);
  const auto low = static_cast<std::int64_t>(x);
  if (low >= size - 1) return {true, size - 1, size - 1, 0};
  return {true, low, low + 1, x - static_cast<double>(low)};
}

template <typename T>
double bin_value(const T* plane, std::int64_t height, std::int64_t width, const Side& y, const Side& x, std::int64_t i,
                 std::int64_t j, bool average) {
  double sum = 0, top = -std::numeric_limits<double>::infinity();
  for (std::int64_t k = 0; k < y.samples; ++k) {
    cancellation_point();
    const Between v = between(y.at(i, k), height);
    for (std::int64_t l = 0; l < x.samples; ++l) {
      cancellation_point();
      const Between h = between(x.at(j, l), width);
      double parts[4] = {};
      if (v.inside && h.inside) {
        const auto value = [&](std::int64_t row, std::int64_t column) { return static_cast<double>(plane[row * width + column]); };
        parts[0] = (1 - v.weight) * (1 - h.weight) * value(v.low, h.low);
        parts[1] = (1 - v.weight) * h.weight * value(v.low, h.high);
        parts[2] = v.weight * (1 - h.weight) * value(v.high, h.low);
        parts[3] = v.weight * h.weight * value(v.high, h.high);
      }
      sum += parts[0] + parts[1] + parts[2] + parts[3];
      top = std::max({top, parts[0], parts[1], parts[2], parts[3]});
    }
  }
  const double count = static_cast<double>(y.samples) * static_cast<double>(x.samples);
  if (count == 0) return 0;
  return average ? sum / count : top;
}

template <typename T>
void roi_align(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const Shape& out = c.output().desc.shape;
  const bool half_pixel = attr_given(c.node, kTransform) && attr_string(c.node, kTransform) == "half_pixel";
  const double shift = half_pixel ? 0.5 : 0;
  const double scale = attr_float(c.node, kScale);
  const std::int64_t ratio = attr_int(c.node, kRatio);
  const bool average = attr_string(c.node, kMode) == "avg";
  T* to = c.output().as<T>();
  for (std::int64_t r = 0; r < out[0]; ++r) {
    cancellation_point();
    const std::int64_t image = c.input(2).as<std::int64_t>()[r];
    if (image < 0 || image >= x[0]) fail(EVN_ERROR_INVALID_ARGUMENT, "region %lld is of no image", static_cast<long long>(r));
    const T* roi = c.input(1).as<T>() + r * 4;
    const auto edge = [&](int i) { return static_cast<double>(roi[i]) * scale - shift; };
    const Side horizontal = side_of(edge(0), edge(2), out[3], ratio, !half_pixel);
    const Side vertical = side_of(edge(1), edge(3), out[2], ratio, !half_pixel);
    for (std::int64_t channel = 0; channel < x[1]; ++channel) {
      cancellation_point();
      const T* plane = c.input(0).as<T>() + (image * x[1] + channel) * x[2] * x[3];
      for (std::int64_t i = 0; i < out[2]; ++i) {
        cancellation_point();
        for (std::int64_t j = 0; j < out[3]; ++j) {
          cancellation_point();
          *to++ = static_cast<T>(bin_value(plane, x[2], x[3], vertical, horizontal, i, j, average));
        }
      }
    }
  }
}

void reference_roi_align(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  if (c.output().desc.shape.elements() == 0) return;
  if (x[2] == 0 || x[3] == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "an image without elements");
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { roi_align<decltype(zero)>(c); });
}

constexpr AttributeSpec kAttributes[] = {
    string_attribute("mode", "avg"),     int_attribute("output_height", 1),
    int_attribute("output_width", 1),    int_attribute("sampling_ratio", 0),
    float_attribute("spatial_scale", 1), string_attribute("coordinate_transformation_mode", "half_pixel")};
constexpr OpDef row(int since, std::size_t attributes) {
  return {.name = "RoiAlign",
          .since = since,
          .min_inputs = 3,
          .max_inputs = 3,
          .attributes = std::span<const AttributeSpec>(kAttributes).first(attributes),
          .dtypes = kFloats,
          .infer = infer_roi_align,
          .reference = reference_roi_align,
          .tolerance = {1e-4, 1e-5}};
}
constexpr OpDef kOps[] = {row(10, 5), row(16, 6)};

}  // namespace

extern const OpFamily roi_align_family;
const OpFamily roi_align_family = {kOps};

}  // namespace evn
