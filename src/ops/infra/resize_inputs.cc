#include "ops/infra/resize_inputs.h"

#include <algorithm>
#include <cmath>

#include "ops/infra/check.h"

namespace evn {
namespace {

// Longer axes than this are no picture's.
constexpr double kMaxDim = 1e12;

// A list that was not given is as one without elements. `inputs` index -1: no such input.
const ConstTensor* find_list(std::span<const ConstTensor> inputs, int i) {
  if (i < 0 || static_cast<std::size_t>(i) >= inputs.size() || !inputs[i].present()) return nullptr;
  const Shape& shape = inputs[i].desc.shape;
  if (shape.rank() != 1) fail(EVN_ERROR_INVALID_MODEL, "input %d must be a list", i);
  return shape[0] == 0 ? nullptr : &inputs[i];
}

void check_length(const ConstTensor& list, std::int64_t length, const char* what) {
  const std::int64_t given = list.desc.shape[0];
  if (given >= 0 && given != length) {
    fail(EVN_ERROR_INVALID_MODEL, "%s has %lld values, not %lld", what, static_cast<long long>(given),
         static_cast<long long>(length));
  }
}

double float_at(const ConstTensor& list, int i) {
  switch (list.desc.dtype) {
    case DType::kFloat32: return list.as<float>()[i];
    case DType::kFloat64: return list.as<double>()[i];
    default: fail(EVN_ERROR_INVALID_MODEL, "roi and scales must be floating point, not %s", dtype_name(list.desc.dtype));
  }
}

void set_axes(const Node& node, int rank, ResizeInputs* r) {
  std::span<const std::int64_t> given;
  if (resize_version(node) >= 18) given = attr_ints(node, ResizeAttr::kAxes);
  if (given.empty()) {
    r->axes = (1u << rank) - 1;
    r->count = rank;
    for (int i = 0; i < rank; ++i) r->order[i] = i;
    return;
  }
  r->axes = axes_mask(given, rank);
  r->count = static_cast<int>(given.size());
  for (int i = 0; i < r->count; ++i) r->order[i] = normalize_axis(given[i], rank);
}

void check_scale(float scale) {
  if (!(scale > 0) || !std::isfinite(scale)) fail(EVN_ERROR_INVALID_MODEL, "a scale is not positive and finite");
}

void read_scales(const ConstTensor& list, ResizeInputs* r) {
  check_length(list, r->count, "scales");
  if (list.data == nullptr) return;
  for (int i = 0; i < r->count; ++i) {
    r->scales[i] = static_cast<float>(float_at(list, i));
    check_scale(r->scales[i]);
  }
  r->known = true;
}

void read_sizes(const ConstTensor& list, ResizeInputs* r) {
  r->by_sizes = true;
  check_length(list, r->count, "sizes");
  if (list.data == nullptr) return;
  read_ints(list, r->sizes);
  for (int i = 0; i < r->count; ++i) {
    if (r->sizes[i] < 1) fail(EVN_ERROR_INVALID_MODEL, "a size of %lld", static_cast<long long>(r->sizes[i]));
  }
  r->known = true;
}

void read_roi(const Node& node, const ConstTensor* list, ResizeInputs* r) {
  std::fill_n(r->roi_end, kMaxRank, 1.0f);
  if (resize_version(node) < 11 || attr_string(node, ResizeAttr::kCoordinateTransformationMode) != "tf_crop_and_resize") return;
  if (list == nullptr) fail(EVN_ERROR_INVALID_MODEL, "tf_crop_and_resize needs a roi");
  check_length(*list, 2 * r->count, "roi");
  if (list->data == nullptr) return;
  for (int i = 0; i < r->count; ++i) {
    r->roi_begin[i] = static_cast<float>(float_at(*list, i));
    r->roi_end[i] = static_cast<float>(float_at(*list, i + r->count));
    if (!std::isfinite(r->roi_begin[i]) || !std::isfinite(r->roi_end[i])) fail(EVN_ERROR_INVALID_MODEL, "roi is not finite");
  }
}

// Replaces sizes by those that one scale for all axes gives. False when a dim that it depends on is not known.
bool keep_aspect_ratio(const std::string& policy, const ResizeInputs& given, const Shape& x, float* scale) {
  const bool larger = policy == "not_smaller";
  if (!larger && policy != "not_larger") {
    fail(EVN_ERROR_INVALID_MODEL, "keep_aspect_ratio_policy must not be '%s'", policy.c_str());
  }
  for (int i = 0; i < given.count; ++i) {
    const std::int64_t dim = x[given.order[i]];
    if (dim < 0) return false;
    if (dim == 0) fail(EVN_ERROR_INVALID_MODEL, "an axis without elements cannot be resized");
    const float one = static_cast<float>(given.sizes[i]) / static_cast<float>(dim);
    *scale = i == 0 ? one : larger ? std::max(*scale, one) : std::min(*scale, one);
  }
  return true;
}

std::int64_t to_dim(double length) {
  if (length > kMaxDim) fail(EVN_ERROR_LIMIT, "a resized axis is too long");
  return static_cast<std::int64_t>(length);
}

}  // namespace

ResizeInputs resize_inputs(const Node& node, std::span<const ConstTensor> inputs, int rank) {
  ResizeInputs r;
  set_axes(node, rank, &r);
  const int since = resize_version(node);
  if (node.op->max_inputs == 1) {
    const std::span<const float> scales = attr_floats(node, ResizeAttr::kScales);
    if (scales.size() != static_cast<std::size_t>(rank)) fail(EVN_ERROR_INVALID_MODEL, "scales has %zu values", scales.size());
    std::copy(scales.begin(), scales.end(), r.scales);
    for (float scale : scales) check_scale(scale);
    r.known = true;
    read_roi(node, nullptr, &r);
    return r;
  }
  const ConstTensor* scales = find_list(inputs, since < 11 ? 1 : 2);
  const ConstTensor* sizes = find_list(inputs, since < 11 ? -1 : 3);
  // A list of unknown length may be empty.
  const bool both = scales != nullptr && sizes != nullptr;
  if (both && scales->desc.shape[0] < 0 && scales->data == nullptr) return r;
  if (both) fail(EVN_ERROR_INVALID_MODEL, "both scales and sizes are given");
  if (scales == nullptr && sizes == nullptr) fail(EVN_ERROR_INVALID_MODEL, "neither scales nor sizes are given");
  read_roi(node, find_list(inputs, since < 11 ? -1 : 1), &r);
  scales != nullptr ? read_scales(*scales, &r) : read_sizes(*sizes, &r);
  return r;
}

Shape apply_resize_inputs(const Node& node, const ResizeInputs& given, const Shape& x, ResizeGeometry* g) {
  g->rank = x.rank();
  for (int i = 0; i < x.rank(); ++i) g->axis[i] = {x[i], x[i], 1, 0, 1};
  float common = 0;
  const bool keep =
      given.by_sizes && resize_version(node) >= 18 && attr_string(node, ResizeAttr::kKeepAspectRatioPolicy) != "stretch";
  const bool keep_known = keep && keep_aspect_ratio(attr_string(node, ResizeAttr::kKeepAspectRatioPolicy), given, x, &common);
  for (int n = 0; n < given.count; ++n) {
    ResizeAxis& a = g->axis[given.order[n]];
    a.roi_begin = given.roi_begin[n];
    a.roi_end = given.roi_end[n];
    if (keep) {
      a.scale = common;
      a.output = keep_known ? to_dim(std::floor(static_cast<double>(common * static_cast<float>(a.input)) + 0.5)) : -1;
    } else if (given.by_sizes) {
      if (a.input == 0) fail(EVN_ERROR_INVALID_MODEL, "an axis without elements cannot be resized");
      a.output = given.sizes[n];
      a.scale = static_cast<float>(a.output) / static_cast<float>(a.input);
    } else {
      a.scale = given.scales[n];
      a.output = a.input < 0 ? -1 : to_dim(std::floor(a.scale * static_cast<float>(a.input)));
    }
  }
  Shape out = x;
  for (int i = 0; i < x.rank(); ++i) out[i] = g->axis[i].output;
  return out;
}

}  // namespace evn
