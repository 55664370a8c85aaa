// Col2Im: the columns that a sliding window makes of images, put back: y[n, c, p...] is the sum of all x[n, c * K + k, l] whose
// element k of the block at window l lies at p. K is the number of elements of a block; windows are counted in row-major order.
//   inputs      x [N, C * K, L]; image_shape, block_shape: lists of the spatial axes
//   attributes  dilations, pads, strides
// dtypes: all numbers, complex ones too. Failures: list lengths, sizes and strides below 1, dims that do not fit. Tolerance: rtol
// 1e-5, atol 1e-6; integers exact (sums wrap).
#include <algorithm>

#include "base/checked.h"
#include "ops/infra/check.h"
#include "ops/infra/complex_parts.h"
#include "ops/infra/index.h"
#include "ops/infra/numeric.h"
#include "ops/infra/window.h"

namespace evn {
namespace {

enum : int { kDilations, kPads, kStrides };
constexpr int kMaxAxes = kMaxRank - 2;

struct Geometry {
  int rank = 0;
  std::int64_t image[kMaxAxes], block[kMaxAxes], stride[kMaxAxes], dilation[kMaxAxes], pad[kMaxAxes], windows[kMaxAxes];
  std::int64_t block_elements = 1, window_count = 1, image_elements = 1;
};

void fill(std::span<const std::int64_t> given, int count, std::int64_t fallback, std::int64_t least, const char* name,
          std::int64_t* out) {
  if (!given.empty() && given.size() != static_cast<std::size_t>(count))
    fail(EVN_ERROR_INVALID_MODEL, "%s has another length than the image", name);
  for (int i = 0; i < count; ++i) {
    out[i] = given.empty() ? fallback : given[static_cast<std::size_t>(i)];
    if (out[i] < least) fail(EVN_ERROR_INVALID_MODEL, "%s has a value below %lld", name, static_cast<long long>(least));
  }
}

[[gnu::cold]] Geometry geometry_of(const Node& node, std::span<const std::int64_t> image, std::span<const std::int64_t> block) {
  Geometry g;
  if (image.size() > kMaxAxes || image.size() != block.size() || image.empty()) {
    fail(EVN_ERROR_INVALID_MODEL, "image_shape and block_shape have %zu and %zu values", image.size(), block.size());
  }
  g.rank = static_cast<int>(image.size());
  std::int64_t pads[2 * kMaxAxes];
  fill(image, g.rank, 0, 0, "image_shape", g.image);
  fill(block, g.rank, 0, 1, "block_shape", g.block);
  fill(attr_ints(node, kStrides), g.rank, 1, 1, "strides", g.stride);
  fill(attr_ints(node, kDilations), g.rank, 1, 1, "dilations", g.dilation);
  fill(attr_ints(node, kPads), 2 * g.rank, 0, 0, "pads", pads);
  for (int i = 0; i < g.rank; ++i) {
    g.pad[i] = pads[i];
    const std::int64_t padded = checked_add(checked_add(g.image[i], pads[i]), pads[g.rank + i]);
    const std::int64_t extent = checked_add(checked_mul(g.block[i] - 1, g.dilation[i]), std::int64_t{1});
    if (extent > padded) fail(EVN_ERROR_INVALID_MODEL, "a block is larger than the image along axis %d", i);
    g.windows[i] = (padded - extent) / g.stride[i] + 1;
    g.block_elements = checked_mul(g.block_elements, g.block[i]);
    g.window_count = checked_mul(g.window_count, g.windows[i]);
    g.image_elements = checked_mul(g.image_elements, g.image[i]);
  }
  return g;
}

[[gnu::cold]] void infer_col2im(InferContext& c) {
  require_rank(c, 0, 3, 3);
  for (const int i : {1, 2}) {
    require_dtype(c, i, dtype_bit(DType::kInt64));
    require_rank(c, i, 1, 1);
  }
  const Shape& x = c.shape(0);
  const std::int64_t rank = c.shape(1)[0] >= 0 ? c.shape(1)[0] : c.shape(2)[0];
  if (rank < 0) return c.set_unknown_rank(0);
  if (rank < 1 || rank > kMaxAxes) fail(EVN_ERROR_INVALID_MODEL, "an image of %lld axes", static_cast<long long>(rank));
  Shape y = {x[0], -1};
  for (int i = 0; i < rank; ++i) y.push_back(-1);
  InferContext::Ints image, block;
  if (c.int_value(1, &image) && c.int_value(2, &block)) {
    const Geometry g =
        geometry_of(c.node, {image.v, static_cast<std::size_t>(image.count)}, {block.v, static_cast<std::size_t>(block.count)});
    if (x[1] >= 0 && x[1] % g.block_elements != 0) fail(EVN_ERROR_INVALID_MODEL, "the block's elements do not divide axis 1");
    require_dim(x[2], g.window_count, 0);
    if (x[1] >= 0) y[1] = x[1] / g.block_elements;
    for (int i = 0; i < g.rank; ++i) y[2 + i] = g.image[i];
  }
  c.outputs[0].shape = y;
}

// Element k of the blocks of all windows: where it lies in the image, row by row of windows along the last axis.
class BlockElement {
 public:
  BlockElement(const Geometry& g, std::int64_t k) : g_(g) {
    std::int64_t unit = 1;
    for (int i = g.rank - 1; i >= 0; --i) {
      offset_[i] = k % g.block[i] * g.dilation[i] - g.pad[i];
      unit_[i] = unit;
      unit *= g.image[i];
      k /= g.block[i];
    }
    const int last = g.rank - 1;
    inside_ = indices_inside(offset_[last], g.stride[last], g.windows[last], g.image[last]);
  }

  // Window w of the next row has the element at the returned place + w * stride, for w in windows().
  std::int64_t next_row() {
    std::int64_t place = offset_[g_.rank - 1];
    bool inside = true;
    for (int i = 0; i + 1 < g_.rank; ++i) {
      const std::int64_t p = at_[i] * g_.stride[i] + offset_[i];
      inside = inside && p >= 0 && p < g_.image[i];
      place += p * unit_[i];
    }
    for (int i = g_.rank - 2; i >= 0 && ++at_[i] == g_.windows[i]; --i) at_[i] = 0;
    return inside ? place : kOutside;
  }
  const IndexRange& windows() const { return inside_; }
  static constexpr std::int64_t kOutside = INT64_MIN;

 private:
  const Geometry& g_;
  std::int64_t offset_[kMaxAxes], unit_[kMaxAxes], at_[kMaxAxes] = {};  // of the row's first window
  IndexRange inside_ = {0, 0};
};

template <typename T>
T sum_of(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a + b;
  else return wrap_add(a, b);
}

// to[i * step] += x[i].
template <typename T>
[[gnu::noinline]] void add_line(const T* __restrict x, std::int64_t count, T* __restrict to, std::int64_t step) {
  constexpr std::int64_t kBlock = 4;
  std::int64_t i = 0;
  for (; step == 1 && i + kBlock <= count; i += kBlock) {
    for (std::int64_t j = 0; j < kBlock; ++j) to[i + j] = sum_of(to[i + j], x[i + j]);
  }
  for (; i < count; ++i) to[i * step] = sum_of(to[i * step], x[i]);
}

constexpr std::int64_t kPiece = 1024;  // windows between two cancellation points

// A part is a plane of the output.
template <typename T>
void add_planes(const ReferenceContext& c, const Geometry& g) {
  const std::int64_t width = g.windows[g.rank - 1], step = g.stride[g.rank - 1];
  const std::int64_t last = std::min(c.end, c.output().desc.shape.elements(0, 2));
  for (std::int64_t plane = c.begin; plane < last; ++plane) {
    const T* x = c.input(0).as<T>() + plane * g.block_elements * g.window_count;
    T* const y = c.output().as<T>() + plane * g.image_elements;
    fill_in_pieces(y, g.image_elements, T{0});
    for (std::int64_t k = 0; k < g.block_elements; ++k) {
      BlockElement element(g, k);
      for (std::int64_t row = 0; row < g.window_count / width; ++row, x += width) {
        const std::int64_t place = element.next_row();
        cancellation_point();
        if (place == BlockElement::kOutside) continue;
        const IndexRange windows = element.windows();
        for (std::int64_t first = windows.low; first < windows.high; first += kPiece) {
          const std::int64_t count = std::min(kPiece, windows.high - first);
          cancellation_point(count);
          add_line(x + first, count, y + place + first * step, step);
        }
      }
    }
  }
}

void reference_col2im(const ReferenceContext& c) {
  if (is_complex(c.input(0).desc.dtype)) {
    for_each_complex_part(c, [](const ReferenceContext& part, int) { reference_col2im(part); });
    return;
  }
  const auto list = [&](int i) {
    return std::span<const std::int64_t>(c.input(i).as<std::int64_t>(), static_cast<std::size_t>(c.input(i).desc.shape.elements()));
  };
  const Geometry g = geometry_of(c.node, list(1), list(2));
  switch (c.input(0).desc.dtype) {
    case DType::kFloat32: return add_planes<float>(c, g);
    case DType::kFloat64: return add_planes<double>(c, g);
    default: break;
  }
  // Sums of integers wrap: signed ones have the bits of unsigned ones.
  switch (dtype_size(c.input(0).desc.dtype)) {
    case 1: return add_planes<std::uint8_t>(c, g);
    case 2: return add_planes<std::uint16_t>(c, g);
    case 4: return add_planes<std::uint32_t>(c, g);
    default: return add_planes<std::uint64_t>(c, g);
  }
}

std::int64_t parts_of_col2im(const ReferenceContext& c) {
  return is_complex(c.input(0).desc.dtype) ? 1 : c.output().desc.shape.elements(0, 2);
}

constexpr AttributeSpec kAttributes[] = {optional_attribute("dilations", AttributeType::kInts),
                                         optional_attribute("pads", AttributeType::kInts),
                                         optional_attribute("strides", AttributeType::kInts)};
constexpr OpDef kOps[] = {
    {.name = "Col2Im",
     .since = 18,
     .min_inputs = 3,
     .max_inputs = 3,
     .attributes = kAttributes,
     .dtypes = kNumbers | kComplex,
     .value_inputs = 6,
     .infer = infer_col2im,
     .reference = reference_col2im,
     .tolerance = {1e-5, 1e-6},
     .parts = parts_of_col2im},
};

}  // namespace

extern const OpFamily col2im_family;
const OpFamily col2im_family = {kOps};

}  // namespace evn
