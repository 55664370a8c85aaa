// MaxRoiPool: for each region of interest the maximum of each of pooled_shape bins, x [N, C, H, W], rois [R, 5] -> y [R, C, h, w].
//   A region is (image, x1, y1, x2, y2); its corners times spatial_scale are rounded half away from zero, both ends belong to it,
//   and it is at least one element wide. A bin takes in each element that it touches; one outside the image gives 0.
// Source: R. Girshick, "Fast R-CNN", 2015. dtypes: floating, both alike. Failures: ranks, pooled_shape of other than two positive
// sizes; at run an image that there is not, a corner that is not finite. Exact.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/terms.h"

namespace evn {
namespace {

enum : int { kPooledShape, kSpatialScale };

void infer(InferContext& c) {
  require_same_dtype(c, 0, 1);
  require_rank(c, 0, 4, 4);
  require_rank(c, 1, 2, 2);
  require_dim(c.shape(1)[1], 5, 1);
  const std::span<const std::int64_t> pooled = attr_ints(c.node, kPooledShape);
  if (pooled.size() != 2 || pooled[0] < 1 || pooled[1] < 1) fail(EVN_ERROR_INVALID_MODEL, "pooled_shape is not two positive sizes");
  c.outputs[0].shape = {c.shape(1)[0], c.shape(0)[1], pooled[0], pooled[1]};
}

// The elements of an axis of `size` that bin `n` of `count` touches.
Bin bin_of(std::int64_t first, std::int64_t last, std::int64_t n, std::int64_t count, std::int64_t size) {
  const double length = static_cast<double>(std::max<std::int64_t>(last - first + 1, 1));
  const double step = length / static_cast<double>(count);
  const auto begin = static_cast<std::int64_t>(std::floor(static_cast<double>(n) * step)) + first;
  const auto end = static_cast<std::int64_t>(std::ceil(static_cast<double>(n + 1) * step)) + first;
  return {std::clamp<std::int64_t>(begin, 0, size), std::clamp<std::int64_t>(end, 0, size)};
}

void fill_bins(std::int64_t first, std::int64_t last, std::int64_t size, std::vector<Bin>* bins) {
  const auto count = static_cast<std::int64_t>(bins->size());
  each_element(count, [&](std::int64_t n) { (*bins)[static_cast<std::size_t>(n)] = bin_of(first, last, n, count, size); });
}

// A part is a channel of a region.
std::int64_t parts_of_pool(const ReferenceContext& c) { return c.output().desc.shape.elements(0, 2); }

void reference(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const Shape& y = c.output().desc.shape;
  const double scale = attr_float(c.node, kSpatialScale);
  std::int64_t roi[5];
  std::vector<Bin> rows(static_cast<std::size_t>(y[2])), columns(static_cast<std::size_t>(y[3]));
  const std::int64_t last = std::min(c.end, parts_of_pool(c));
  for (std::int64_t part = c.begin; part < last; ++part) {
    cancellation_point();
    if (part == c.begin || part % x[1] == 0) {
      for (int i = 0; i < 5; ++i) {
        const double given = number_at({c.input(1), part / x[1] * 5 + i});
        const double value = std::round(i == 0 ? given : given * scale);
        if (!(std::fabs(value) < 0x1p40)) fail(EVN_ERROR_INVALID_ARGUMENT, "a region of MaxRoiPool is not finite");
        roi[i] = static_cast<std::int64_t>(value);
      }
      if (roi[0] < 0 || roi[0] >= x[0])
        fail(EVN_ERROR_INVALID_ARGUMENT, "a region is of image %lld of %lld", static_cast<long long>(roi[0]),
             static_cast<long long>(x[0]));
      fill_bins(roi[2], roi[4], x[2], &rows);
      fill_bins(roi[1], roi[3], x[3], &columns);
    }
    for (std::int64_t i = 0; i < y[2]; ++i) {
      largest_of_bins({c.input(0), (roi[0] * x[1] + part % x[1]) * x[2] * x[3]}, x[3], rows[static_cast<std::size_t>(i)], columns,
                      {c.output(), (part * y[2] + i) * y[3]});
    }
  }
}

constexpr AttributeSpec kAttributes[] = {required_attribute("pooled_shape", AttributeType::kInts),
                                         float_attribute("spatial_scale", 1)};
constexpr OpDef kOps[] = {
    {.name = "MaxRoiPool",
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kAttributes,
     .dtypes = kFloats,
     .infer = infer,
     .reference = reference,
     .parts = parts_of_pool},
};

}  // namespace

extern const OpFamily max_roi_pool_family;
const OpFamily max_roi_pool_family = {kOps};

}  // namespace evn
