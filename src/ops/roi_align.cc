// RoiAlign: y[r, c, i, j] = the mean (mode max: the maximum of weighted elements) of bilinear samples of plane c of image
// batch_indices[r], taken in bin (i, j) of the region rois[r] = x1, y1, x2, y2, scaled by spatial_scale.
// coordinate_transformation_mode half_pixel (from 16) moves the region by half an element and lets it be smaller than one;
// output_half_pixel, and opset 10, do not. sampling_ratio: samples along each side of a bin, 0: as many as the bin has elements.
// Samples up to one element outside the image read its edge, farther ones 0.
// dtypes: floating point, x and rois alike; indices int64. Failures: dims that do not fit; at run: an index that is no image;
// regions so large that a bin would need more than 4096 samples along a side (LIMIT). Tolerance: rtol 1e-4, atol 1e-5.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/terms.h"

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

// Samples of some bins of one axis.
struct Samples {
  Terms terms;               // per bin, the elements that its samples inside the image read
  std::vector<bool> inside;  // per bin: all its samples are inside the image
};

// `step`: distance of the axis's elements. `merged`: each element once.
void find_samples(const Side& side, std::int64_t first, std::int64_t bins, std::int64_t size, std::int64_t step, bool merged,
                  Samples* samples) {
  samples->terms.clear();
  samples->inside.assign(static_cast<std::size_t>(bins), true);
  for (std::int64_t i = 0; i < bins; ++i) {
    cancellation_point();
    for (std::int64_t k = 0; k < side.samples; ++k) {
      cancellation_point();
      const Between at = between(side.at(first + i, k), size);
      if (!at.inside) {
        samples->inside[static_cast<std::size_t>(i)] = false;
        continue;
      }
      const auto add = merged ? &Terms::merge : &Terms::add;
      (samples->terms.*add)(at.low * step, 1 - at.weight);
      (samples->terms.*add)(at.high * step, at.weight);
    }
    samples->terms.close();
  }
}

// Bins whose samples are found together.
std::int64_t bins_at_once(const Side& side, std::int64_t left) {
  return std::min<std::int64_t>(
      left, std::max<std::int64_t>(static_cast<std::int64_t>(kMaxSamples) / std::max<std::int64_t>(side.samples, 1), 1));
}

// Channels [first, last) of region r.
void align_region(const ReferenceContext& c, std::int64_t r, std::int64_t first, std::int64_t last) {
  const Shape& x = c.input(0).desc.shape;
  const Shape& out = c.output().desc.shape;
  const bool half_pixel = attr_given(c.node, kTransform) && attr_string(c.node, kTransform) == "half_pixel";
  const double shift = half_pixel ? 0.5 : 0;
  const double scale = attr_float(c.node, kScale);
  const std::int64_t ratio = attr_int(c.node, kRatio);
  const bool average = attr_string(c.node, kMode) == "avg";
  const std::int64_t image = c.input(2).as<std::int64_t>()[r];
  if (image < 0 || image >= x[0]) fail(EVN_ERROR_INVALID_ARGUMENT, "region %lld is of no image", static_cast<long long>(r));
  const auto edge = [&](int i) { return number_at({c.input(1), r * 4 + i}) * scale - shift; };
  const Side horizontal = side_of(edge(0), edge(2), out[3], ratio, !half_pixel);
  const Side vertical = side_of(edge(1), edge(3), out[2], ratio, !half_pixel);
  const double count = static_cast<double>(vertical.samples) * static_cast<double>(horizontal.samples);
  const double unit = count == 0 ? 0 : 1 / count;
  Samples rows, columns;
  std::vector<double> zeros,
      least;  // per column: what its maximum begins with, in rows that are partly outside the image and others
  for (std::int64_t top = 0, height; top < out[2]; top += height) {
    height = bins_at_once(vertical, out[2] - top);
    find_samples(vertical, top, height, x[2], x[3], average, &rows);
    for (std::int64_t left = 0, width; left < out[3]; left += width) {
      width = bins_at_once(horizontal, out[3] - left);
      find_samples(horizontal, left, width, x[3], 1, average, &columns);
      // A sample outside the image is 0, and so is a bin without samples.
      zeros.assign(static_cast<std::size_t>(width), 0.0);
      least = zeros;
      for (std::size_t j = 0; j < least.size() && count > 0; ++j) {
        if (columns.inside[j]) least[j] = -std::numeric_limits<double>::infinity();
      }
      for (std::int64_t channel = first; channel < last; ++channel) {
        const Place plane = {c.input(0), (image * x[1] + channel) * x[2] * x[3]};
        for (std::int64_t i = 0; i < height; ++i) {
          const Target to = {c.output(), ((r * x[1] + channel) * out[2] + top + i) * out[3] + left};
          if (average) add_pairs(plane, rows.terms.of(i), columns.terms, unit, to);
          else largest_pairs(plane, rows.terms.of(i), columns.terms, rows.inside[static_cast<std::size_t>(i)] ? least : zeros, to);
        }
      }
    }
  }
}

// A part is a channel of a region.
std::int64_t parts_of_roi_align(const ReferenceContext& c) { return c.output().desc.shape.elements(0, 2); }

void reference_roi_align(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  if (c.output().desc.shape.elements() == 0) return;
  if (x[2] == 0 || x[3] == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "an image without elements");
  const std::int64_t end = std::min(c.end, parts_of_roi_align(c));
  for (std::int64_t part = c.begin; part < end;) {
    const std::int64_t first = part % x[1], last = std::min(x[1], first + (end - part));
    align_region(c, part / x[1], first, last);
    part += last - first;
  }
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
          .tolerance = {1e-4, 1e-5},
          .parts = parts_of_roi_align};
}
constexpr OpDef kOps[] = {row(10, 5), row(16, 6)};

}  // namespace

extern const OpFamily roi_align_family;
const OpFamily roi_align_family = {kOps};

}  // namespace evn
