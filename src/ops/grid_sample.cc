// GridSample: y[n, c, o...] = x[n, c, ...] read at the place that grid[n, o..., :] gives: one coordinate for each spatial axis, the
// last axis first, from -1 to 1 over the image (align_corners: between the centers of its corner elements, else over its edges).
//   mode          linear (bilinear before 20), nearest (ties to even), cubic (bicubic; a = -0.75)
//   padding_mode  outside the image: zeros, border (the nearest element), reflection (at the same edges or centers)
//   cubic_border  not an attribute of the format: what border means for cubic. location (the default, as in ONNX's own
//                 evaluator): a place outside the image moves to its border before its elements are found, so that it reads
//                 the border's value. taps (as in PyTorch and ONNX Runtime): the place stays, and each of its elements
//                 outside is replaced.
// 1, 2 or 3 spatial axes. A coordinate that is no number lies outside.
// dtypes: floating point, of which x and the grid may have two; x may be complex, with the grid of the type of its parts.
// Failures: dims that do not fit, unknown modes. Tolerance: rtol 1e-4, atol 1e-5.
#include <algorithm>

#include "ops/infra/check.h"
#include "ops/infra/complex_parts.h"
#include "ops/infra/numeric.h"
#include "ops/infra/round.h"
#include "ops/infra/terms.h"
#include "ops/infra/window.h"

namespace evn {
namespace {

enum : int { kAlign, kMode, kPadding, kCubicBorder };
enum class Mode { kLinear, kNearest, kCubic };
enum class Padding { kZeros, kBorder, kReflection };

Mode mode_of(const Node& node) {
  const std::string& word = attr_string(node, kMode);
  const bool old = node.op->since < 20;
  if (word == (old ? "bilinear" : "linear")) return Mode::kLinear;
  if (word == "nearest") return Mode::kNearest;
  if (word == (old ? "bicubic" : "cubic")) return Mode::kCubic;
  fail(EVN_ERROR_INVALID_MODEL, "mode must not be '%s'", word.c_str());
}

Padding padding_of(const Node& node) {
  const std::string& word = attr_string(node, kPadding);
  if (word == "zeros") return Padding::kZeros;
  if (word == "border") return Padding::kBorder;
  if (word == "reflection") return Padding::kReflection;
  fail(EVN_ERROR_INVALID_MODEL, "padding_mode must not be '%s'", word.c_str());
}

// True if a place outside the image stays there, and only elements are replaced.
bool keeps_place(const Node& node) {
  const std::string& word = attr_string(node, kCubicBorder);
  if (word == "location") return false;
  if (word != "taps") fail(EVN_ERROR_INVALID_MODEL, "cubic_border must not be '%s'", word.c_str());
  return mode_of(node) == Mode::kCubic && padding_of(node) == Padding::kBorder;
}

void infer_grid_sample(InferContext& c) {
  if (is_complex(c.inputs[0].dtype)) {
    require_dtype(c, 1, dtype_bit(complex_part(c.inputs[0].dtype)));
  } else {
    require_dtype(c, 1, kFloats);
  }
  require_rank(c, 0, 3);
  const Shape& x = c.shape(0);
  if (x.rank() > 2 + kMaxSpatial) fail(EVN_ERROR_UNSUPPORTED, "GridSample over more than %d spatial axes", kMaxSpatial);
  require_rank(c, 1, x.rank(), x.rank());
  require_dim(c.shape(1)[0], x[0], 1);
  require_dim(c.shape(1)[x.rank() - 1], x.rank() - 2, 1);
  mode_of(c.node);
  padding_of(c.node);
  keeps_place(c.node);
  Shape out = {x[0], x[1]};
  for (int i = 1; i + 1 < x.rank(); ++i) out.push_back(c.shape(1)[i]);
  c.outputs[0].shape = out;
}

// The elements of one axis that a place reads, and their weights; what is outside the image is 0.
struct Taps {
  int count = 0;
  std::int64_t index[4] = {};
  double weight[4] = {};
};

// Takes out those whose index is -1.
void keep_inside(Taps* taps) {
  int kept = 0;
  for (int i = 0; i < taps->count; ++i) {
    if (taps->index[i] < 0) continue;
    taps->index[kept] = taps->index[i];
    taps->weight[kept++] = taps->weight[i];
  }
  taps->count = kept;
}

double reflect(double x, double low, double high) {
  const double range = high - low;
  if (!(range > 0)) return low;
  const double distance = x < low ? low - x : x > high ? x - high : 0;
  if (distance == 0) return x;
  const double turns = std::floor(distance / range);
  const double rest = distance - turns * range;
  const bool back = std::fmod(turns, 2) == 0;
  return (x < low) == back ? low + rest : high - rest;
}

// The index of the element that stands for position `i`.
std::int64_t padded(double i, std::int64_t size, Padding padding, double low, double high) {
  const auto last = static_cast<double>(size - 1);
  if (i >= 0 && i <= last) return static_cast<std::int64_t>(i);
  if (padding == Padding::kZeros) return -1;
  const double inside = padding == Padding::kBorder ? i : reflect(i, low, high);
  return static_cast<std::int64_t>(std::clamp(inside, 0.0, last));
}

double cubic_weight(double distance) {
  constexpr double a = -0.75;
  const double d = std::fabs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

constexpr std::int64_t kTapsWork = 8;  // of the taps of one place

// Options of a node.
struct Sampling {
  Mode mode;
  Padding padding;
  bool align, keeps_place;
};

void find_taps(float coordinate, std::int64_t size, const Sampling& how, Taps* to) {
  const auto [mode, padding, align, stays] = how;
  Taps& taps = *to;
  taps.count = 0;
  const auto length = static_cast<float>(size);
  // In float32, so that places that lie between two elements do so everywhere.
  const float place = align ? (coordinate + 1) / 2.0f * (length - 1) : ((coordinate + 1) * length - 1) / 2.0f;
  const double low = align ? 0 : -0.5;
  const double high = static_cast<double>(size) - (align ? 1 : 0.5);
  // Most places lie between two elements.
  if (mode == Mode::kLinear && place >= 0 && static_cast<double>(place) < static_cast<double>(size - 1)) {
    taps.index[0] = static_cast<std::int64_t>(place);
    taps.index[1] = taps.index[0] + 1;
    taps.weight[1] = static_cast<double>(place) - static_cast<double>(taps.index[0]);
    taps.weight[0] = 1 - taps.weight[1];
    taps.count = 2;
    return;
  }
  double x = place;
  if (!std::isfinite(x)) {
    if (padding != Padding::kBorder || std::isnan(x)) return;
    x = x < 0 ? 0 : static_cast<double>(size - 1);
  }
  if (mode == Mode::kNearest) x = round_even(x);
  if (x < low || x > high) {
    if (padding == Padding::kBorder && !stays) x = std::clamp(x, 0.0, static_cast<double>(size - 1));
    if (padding == Padding::kReflection) x = reflect(x, low, high);
  }
  // Distances are those of the fraction: beyond 2^53 elements have no whole numbers of their own.
  const double first = mode == Mode::kNearest ? x : std::floor(x), fraction = x - first;
  const int before = mode == Mode::kCubic ? 1 : 0;
  taps.count = mode == Mode::kNearest ? 1 : mode == Mode::kLinear ? 2 : 4;
  for (int i = 0; i < taps.count; ++i) {
    const double distance = std::fabs(fraction + (before - i));
    taps.index[i] = padded(first + (i - before), size, padding, low, high);
    taps.weight[i] = mode == Mode::kNearest ? 1 : mode == Mode::kLinear ? 1 - distance : cubic_weight(distance);
  }
  keep_inside(to);
}

// The elements of a plane that a place is the sum of.
void add_place(const std::int64_t (&size)[kMaxSpatial], const Taps (&taps)[kMaxSpatial], Terms* terms) {
  Term* to = terms->grow(static_cast<std::size_t>(taps[0].count * taps[1].count * taps[2].count));
  for (int i = 0; i < taps[0].count; ++i) {
    for (int j = 0; j < taps[1].count; ++j) {
      const std::int64_t line = (taps[0].index[i] * size[1] + taps[1].index[j]) * size[2];
      const double weight = taps[0].weight[i] * taps[1].weight[j];
      for (int k = 0; k < taps[2].count; ++k) *to++ = {line + taps[2].index[k], weight * taps[2].weight[k]};
    }
  }
  terms->close();
}

// Places whose terms are found together, for all channels.
constexpr std::int64_t kPlacesAtOnce = 512;

void grid_sample(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axes = x.rank() - 2;
  const Sampling how = {mode_of(c.node), padding_of(c.node), attr_int(c.node, kAlign) != 0, keeps_place(c.node)};
  std::int64_t size[kMaxSpatial] = {1, 1, 1};
  for (int i = 0; i < axes; ++i) size[kMaxSpatial - axes + i] = x[2 + i];
  const std::int64_t plane = x.elements(2, x.rank());
  const std::int64_t places = c.input(1).desc.shape.elements(1, axes + 1);
  const std::int64_t last = std::min(c.end, x[0] * places);
  Taps taps[kMaxSpatial];
  for (Taps& one : taps) {
    one.count = 1;
    one.weight[0] = 1;
  }
  Terms all;
  for (std::int64_t first = c.begin, count; first < last; first += count) {
    const std::int64_t image = first / places, place = first % places;
    count = std::min({kPlacesAtOnce, places - place, last - first});
    all.clear();
    for (std::int64_t i = 0; i < count; ++i) {
      cancellation_point(kTapsWork);
      for (int axis = 0; axis < axes; ++axis) {
        const int to = kMaxSpatial - 1 - axis;
        find_taps(static_cast<float>(number_at({c.input(1), (first + i) * axes + axis})), size[to], how, &taps[to]);
      }
      add_place(size, taps, &all);
    }
    add_terms({c.input(0), image * x[1] * plane}, plane, all, {c.output(), image * x[1] * places + place}, places, x[1]);
  }
}

// A part is a place of an image; of complex numbers both parts are made as a whole.
std::int64_t parts_of_grid_sample(const ReferenceContext& c) {
  const Shape& grid = c.input(1).desc.shape;
  return is_complex(c.input(0).desc.dtype) ? 1 : grid.elements(0, grid.rank() - 1);
}

void reference_grid_sample(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  if (c.output().desc.shape.elements() == 0) return;
  if (x.elements(2, x.rank()) == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "an image without elements");
  if (is_complex(c.input(0).desc.dtype)) {
    for_each_complex_part(c, [](const ReferenceContext& part, int) { grid_sample(part); });
    return;
  }
  grid_sample(c);
}

constexpr AttributeSpec kAttributes16[] = {int_attribute("align_corners", 0), string_attribute("mode", "bilinear"),
                                           string_attribute("padding_mode", "zeros"), string_attribute("cubic_border", "location")};
constexpr AttributeSpec kAttributes20[] = {int_attribute("align_corners", 0), string_attribute("mode", "linear"),
                                           string_attribute("padding_mode", "zeros"), string_attribute("cubic_border", "location")};
constexpr OpDef row(int since, std::span<const AttributeSpec> attributes) {
  return {.name = "GridSample",
          .since = since,
          .min_inputs = 2,
          .max_inputs = 2,
          .attributes = attributes,
          .dtypes = kFloats | kComplex,
          .infer = infer_grid_sample,
          .reference = reference_grid_sample,
          .tolerance = {1e-4, 1e-5},
          .parts = parts_of_grid_sample};
}
constexpr OpDef kOps[] = {row(16, kAttributes16), row(20, kAttributes20)};

}  // namespace

extern const OpFamily grid_sample_family;
const OpFamily grid_sample_family = {kOps};

}  // namespace evn
