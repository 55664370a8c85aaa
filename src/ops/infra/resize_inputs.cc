#include "ops/infra/resize_inputs.h"

#include <algorithm>
#include <cmath>
#include <utility>

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
    if (r->sizes[i] < 0) fail(EVN_ERROR_INVALID_MODEL, "a size of %lld", static_cast<long long>(r->sizes[i]));
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

__extension__ using Wide = __int128;

// A scale as a ratio of whole numbers.
struct Ratio {
  std::int64_t resized, original;
  bool operator<(const Ratio& other) const { return Wide{resized} * other.original < Wide{other.resized} * original; }
  float value() const { return static_cast<float>(resized) / static_cast<float>(original); }
};

Ratio ratio_of(std::int64_t size, std::int64_t dim) {
  if (size == 0 && dim > 0) fail(EVN_ERROR_INVALID_MODEL, "a size of 0");
  if (dim == 0 && size != 0) fail(EVN_ERROR_INVALID_MODEL, "an axis without elements cannot be resized");
  return dim == 0 ? Ratio{1, 1} : Ratio{size, dim};
}

// Finds the one scale for all axes. False when a dim that it depends on is not known.
bool keep_aspect_ratio(const std::string& policy, const ResizeInputs& given, const Shape& x, Ratio* scale) {
  const bool larger = policy == "not_smaller";
  if (!larger && policy != "not_larger") {
    fail(EVN_ERROR_INVALID_MODEL, "keep_aspect_ratio_policy must not be '%s'", policy.c_str());
  }
  bool is_found = false;
  for (int i = 0; i < given.count; ++i) {
    const std::int64_t dim = x[given.order[i]];
    if (dim < 0) return false;
    if (dim == 0 && given.sizes[i] == 0) continue;  // no rows: any scale
    const Ratio one = ratio_of(given.sizes[i], dim);
    if (!is_found || (larger ? *scale < one : one < *scale)) *scale = one;
    is_found = true;
  }
  return true;
}

// Sets step, start and unit, in lowest terms. They stay 0 where products of the dims are too long for them, which no tensor's are.
void set_exact_places(CoordinateMode mode, const Ratio& scale, ResizeAxis* a) {
  const Wide resized = scale.resized, original = scale.original;
  Wide step = 2 * original, start = original - resized, unit = 2 * resized;  // of half_pixel
  switch (mode) {
    case CoordinateMode::kHalfPixel: break;
    case CoordinateMode::kHalfPixelSymmetric: start += resized * a->input - original * a->output; break;
    case CoordinateMode::kPytorchHalfPixel:
      if (a->output <= 1) step = start = 0, unit = 1;
      break;
    case CoordinateMode::kAlignCorners:
      step = (a->input - 1) * original;
      start = 0;
      unit = resized * a->input - original;
      if (a->output <= 1 || unit == 0) step = 0, unit = 1;
      break;
    case CoordinateMode::kAsymmetric: step = original, start = 0, unit = resized; break;
    case CoordinateMode::kTfCropAndResize: return;
    case CoordinateMode::kTfHalfPixelForNn: start = original; break;
  }
  const auto common = [](Wide x, Wide y) {
    for (x = x < 0 ? -x : x; y != 0; std::swap(x, y)) x %= y;
    return x;
  };
  const Wide divisor = common(common(start, step), unit);
  step /= divisor, start /= divisor, unit /= divisor;
  constexpr Wide kMost = Wide{1} << 50;  // a double has the quotient of two such numbers on the right side of any half
  if (unit > kMost || step * a->output + (start < 0 ? -start : start) > kMost) return;
  a->step = static_cast<std::int64_t>(step);
  a->start = static_cast<std::int64_t>(start);
  a->unit = static_cast<std::int64_t>(unit);
}

// dim * scale, rounded to the nearest whole number, halves up.
double round_half_up(const Ratio& scale, std::int64_t dim) {
  return static_cast<double>((2 * Wide{scale.resized} * dim + scale.original) / (2 * Wide{scale.original}));
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
  Ratio common = {1, 1};
  const bool keep =
      given.by_sizes && resize_version(node) >= 18 && attr_string(node, ResizeAttr::kKeepAspectRatioPolicy) != "stretch";
  const bool keep_known = keep && keep_aspect_ratio(attr_string(node, ResizeAttr::kKeepAspectRatioPolicy), given, x, &common);
  for (int n = 0; n < given.count; ++n) {
    ResizeAxis& a = g->axis[given.order[n]];
    a.roi_begin = given.roi_begin[n];
    a.roi_end = given.roi_end[n];
    if (given.by_sizes) {
      const bool is_known = a.input >= 0 && (keep_known || !keep);
      const Ratio scale = keep ? common : ratio_of(given.sizes[n], a.input);
      a.output = given.sizes[n];
      if (keep) a.output = keep_known ? to_dim(round_half_up(common, a.input)) : -1;
      a.scale = scale.value();
      if (is_known && a.output > 0) set_exact_places(g->coordinates, scale, &a);
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
