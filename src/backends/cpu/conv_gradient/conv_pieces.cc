#include "backends/cpu/conv_gradient/conv_pieces.h"

#include <algorithm>

#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"

namespace evn {
namespace {

constexpr std::int64_t kPlaneFloats = 1 << 17;  // that it reads
constexpr std::int64_t kFewestInLine = 64;      // where lines are cut
constexpr std::int64_t kBeyond = 64;            // that copies may write beyond their end

constexpr std::int64_t kMostStride = 16;
constexpr double kMostWindow = 4 << 20;        // floats under a window, of all channels of a group
constexpr std::int64_t kMostPacked = 1 << 20;  // floats that a tile packs, unless one panel has more
constexpr std::int64_t kFewColumns = 16, kManyColumns = 64;
constexpr std::int64_t kFewPositions = 512, kManyPositions = 4096;  // of a tile

// Parts of like size, at most `most` each.
std::int64_t even_part(std::int64_t count, std::int64_t most) {
  return count <= most ? std::max<std::int64_t>(1, count) : ceil_div(count, ceil_div(count, most));
}

std::int64_t plane_floats(const AxisView& v, const AxisView& h, std::int64_t rows, std::int64_t columns) {
  // An odd number of lines, so that planes do not fall into one set of the cache.
  const std::int64_t lines = ceil_div(checked_mul(v.length(rows), h.length(columns)), std::int64_t{16});
  return checked_mul<std::int64_t>(lines | 1, 16);
}

}  // namespace

PlaneAxes::PlaneAxes(const Window& window) {
  if (window.rank == 3) z = window.axis[0];
  if (window.rank >= 2) v = window.axis[window.rank - 2];
  h = window.axis[window.rank - 1];
}

Refusal refuse_product(const OpDesc& d, int weight) {
  if (!all_float32(d)) return kNeedsFloat32;
  const Shape& w = d.inputs[static_cast<std::size_t>(weight)].shape;
  if (w.rank() < 3 || w.rank() > 5) return "only one to three spatial axes";
  if (!w.is_known()) return "the weight's shape is not known";
  if (w.elements(2, w.rank()) > kMostTaps) return "the kernel is too large";
  const auto strides = attr_ints(*d.node, ConvAttr::kStrides), dilations = attr_ints(*d.node, ConvAttr::kDilations);
  double window = static_cast<double>(std::max(w[1], w[0] / attr_int(*d.node, ConvAttr::kGroup)));
  for (std::size_t i = 0; i + 2 < static_cast<std::size_t>(w.rank()); ++i) {
    if (i < strides.size() && strides[i] > kMostStride) return "the strides are too large";
    const bool is_depth = i == 0 && w.rank() == 5;
    const double dilation = i < dilations.size() && !is_depth ? static_cast<double>(dilations[i]) : 1;
    window *= static_cast<double>(w[static_cast<int>(i) + 2] - 1) * dilation + 1;
  }
  return window > kMostWindow ? "the window is too large" : nullptr;
}

Refusal refuse_product(const OpDesc& d, int weight, Operands operands, std::int64_t columns) {
  constexpr std::int64_t kFewest = 16;           // columns: less wastes most of a vector
  constexpr std::int64_t kFewestPointwise = 96;  // channels of a 1 x 1: of fewer it takes longer to copy them than what it spares
  if (const Refusal refusal = refuse_product(d, weight)) return refusal;
  const Shape& w = d.inputs[static_cast<std::size_t>(weight)].shape;
  const bool is_depthwise = w[1] == 1 && attr_int(*d.node, ConvAttr::kGroup) > 1;
  if (operands == Operands::kFloat16 && is_depthwise) return "depthwise convolutions stay float32";
  if (operands != Operands::kBfloat16) return nullptr;
  if (!isa_includes(bfloat16_isa(), Isa::k_avx512_bf16)) return "no AVX512-BF16";
  const auto strides = attr_ints(*d.node, ConvAttr::kStrides);
  const bool is_strided = std::any_of(strides.begin(), strides.end(), [](std::int64_t s) { return s != 1; });
  const bool is_pointwise = w.elements(2, w.rank()) == 1 && !is_strided;
  const std::int64_t least = std::min(w[1], w[0] / attr_int(*d.node, ConvAttr::kGroup));
  if (is_pointwise && least < kFewestPointwise) return "a product without copies is faster";
  return columns < kFewest ? "too narrow" : nullptr;
}

Pieces cut_into_pieces(const Pieces& all, std::int64_t channels, std::int64_t positions) {
  Pieces p = all;
  const auto fits = [&](std::int64_t count, std::int64_t rows, std::int64_t columns) {
    const double floats = static_cast<double>(plane_floats(p.v, p.h, rows, columns)) * static_cast<double>(channels);
    return static_cast<double>(count) * floats <= static_cast<double>(kPlaneFloats);
  };
  // Pieces overlap by the window: they are not cut where that would be most of what they read.
  const auto is_long = [](const AxisView& view, std::int64_t n) { return n > 1 && view.length(n) > 2 * view.extent; };
  std::int64_t columns = even_part(p.width, positions);
  while (columns > kFewestInLine && is_long(p.h, columns) && !fits(1, 1, columns)) columns = even_part(p.width, columns / 2);
  std::int64_t rows = columns < p.width ? 1 : even_part(p.height, positions / columns);
  while (is_long(p.v, rows) && !fits(1, rows, columns)) rows = even_part(p.height, rows - 1 - rows / 8);
  std::int64_t count = 1;
  if (rows >= p.height && columns >= p.width) {
    count = even_part(p.images, std::max<std::int64_t>(1, positions / std::max<std::int64_t>(1, checked_mul(rows, columns))));
    while (count > 1 && !fits(count, rows, columns)) count = even_part(p.images, count - 1);
  }
  p.most = {0, count, 0, rows, 0, columns};
  p.image_pieces = ceil_div(p.images, count);
  p.row_pieces = ceil_div(p.height, rows);
  p.column_pieces = ceil_div(p.width, columns);
  return p;
}

Piece Pieces::at(std::int64_t i) const {
  Piece p = most;
  p.column = i % column_pieces * most.columns;
  p.row = i / column_pieces % row_pieces * most.rows;
  p.image = i / column_pieces / row_pieces * most.images;
  p.columns = std::min(most.columns, width - p.column);
  p.rows = std::min(most.rows, height - p.row);
  p.images = std::min(most.images, images - p.image);
  return p;
}

PlaneSteps PlaneSteps::of_copies(const Pieces& pieces, std::int64_t rows, std::int64_t columns, std::int64_t channels) {
  const std::int64_t plane = plane_floats(pieces.v, pieces.h, rows, columns);
  return {checked_mul(plane, channels), plane, pieces.h.length(columns)};
}

std::int64_t copies_floats(const Pieces& pieces, std::int64_t channels) {
  const PlaneSteps steps = PlaneSteps::of_copies(pieces, pieces.most.rows, pieces.most.columns, channels);
  return checked_add(checked_mul(steps.image, pieces.most.images), kBeyond);
}

bool round_floats(Isa isa, Operands operands, float* x, std::int64_t n, CancelPoints* points) {
  constexpr std::int64_t kPart = 512;
  if (operands != Operands::kFloat16) return true;
  const simd_elementwise::Loops& loops = simd_elementwise::loops(isa);
  std::uint16_t halves[kPart];
  for (std::int64_t i = 0; i < n; i += kPart) {
    const std::int64_t part = std::min(kPart, n - i);
    if (stops(points, part)) return false;
    loops.narrow_half(x + i, halves, part);
    loops.widen_half(halves, x + i, part);
  }
  return true;
}

namespace {

// Where a plane of an image lies; nullptr: it is all 0.
const float* find_plane(const Slices& slices, const PlaneCopies& copies, std::int64_t image, std::int64_t plane) {
  const std::int64_t channel = plane / slices.kernel, k = plane % slices.kernel;
  const std::int64_t at = image % slices.images * slices.step + k * slices.delta + slices.offset;
  if (at < 0 || at % slices.divisor != 0 || at / slices.divisor >= slices.depth) return nullptr;
  return copies.from + image / slices.images * copies.volume_step +
         (channel * slices.depth + at / slices.divisor) * copies.cut.height * copies.cut.width;
}

void copy_words(const Slices& slices, const PlaneCopies& copies, std::int64_t image, std::int64_t plane, float* to,
                CancelPoints* points) {
  const std::int64_t first = 2 * (copies.pairs_images ? image : plane);
  const auto find = [&](std::int64_t i) {
    if (i >= copies.end) return static_cast<const float*>(nullptr);
    return copies.pairs_images ? find_plane(slices, copies, i, plane) : find_plane(slices, copies, image, i);
  };
  product_loops(Isa::k_baseline, Operands::kBfloat16).cut_words(copies.cut, find(first), find(first + 1), to, points);
}

}  // namespace

void copy_planes(Isa isa, const Slices& slices, const PlaneCopies& copies, const PlaneSteps& steps, float* to,
                 CancelPoints* points) {
  const simd_implicit_gemm::Loops& loops = simd_implicit_gemm::loops(isa);
  for (std::int64_t i = 0; i < copies.images; ++i) {
    for (std::int64_t p = 0; p < copies.planes && !points->stopped; ++p) {
      float* const at = to + i * steps.image + p * steps.plane;
      if (copies.operands == Operands::kBfloat16) {
        copy_words(slices, copies, copies.image + i, copies.plane + p, at, points);
        continue;
      }
      simd_implicit_gemm::Cut cut = copies.cut;
      const float* const from = find_plane(slices, copies, copies.image + i, copies.plane + p);
      if (from == nullptr) cut.height = 0;
      loops.cut(cut, from == nullptr ? copies.from : from, at, points);
      round_floats(isa, copies.operands, at, cut.rows * cut.columns, points);
    }
  }
}

ProductTiles tile_product(Isa isa, const Pieces& pieces, const ProductWork& work) {
  const std::int64_t lanes = simd_implicit_gemm::loops(isa).lanes;
  ProductTiles t{};
  const auto cut = [&](std::int64_t columns) {
    t.columns = std::min(work.columns, round_up(even_part(work.columns, columns), lanes));
    t.column_tiles = ceil_div(work.columns, t.columns);
  };
  const auto share = [&](std::int64_t positions) {
    t.pieces = std::min(pieces.count(), ceil_div(positions, pieces.most.positions()));
    t.piece_tiles = t.pieces == 0 ? 0 : ceil_div(pieces.count(), t.pieces);
  };
  std::int64_t columns = std::min(work.columns, std::max(kManyColumns, kMostPacked / std::max<std::int64_t>(1, work.depth)));
  std::int64_t positions = kManyPositions;
  cut(columns);
  share(positions);
  const double wanted = work.threads < 2 ? 1 : std::min(2.0 * work.threads, work.flops / (2 * kTileCost));
  while (static_cast<double>(work.groups * t.column_tiles * t.piece_tiles) < wanted) {
    if (t.pieces > 1 && (positions > kFewPositions || columns <= kManyColumns)) {
      share(positions = ceil_div(positions, std::int64_t{2}));
    } else if (columns > kFewColumns) {
      cut(columns = ceil_div(columns, std::int64_t{2}));
    } else {
      break;
    }
  }
  return t;
}

bool start_sums(const float* bias, std::int64_t count, std::int64_t columns, std::int64_t row, float* sums, CancelPoints* points) {
  for (std::int64_t i = 0; bias != nullptr && i < count; ++i) {
    if (stops(points, row)) return false;
    std::copy_n(bias, columns, sums + i * row);
  }
  return true;
}

void list_positions(const Pieces& pieces, const Piece& piece, const PlaneSteps& steps, std::int64_t* to) {
  for (std::int64_t i = 0; i < piece.images; ++i) {
    for (std::int64_t y = 0; y < piece.rows; ++y) {
      const std::int64_t line = i * steps.image + y * pieces.v.step * steps.row;
      for (std::int64_t x = 0; x < piece.columns; ++x) *to++ = line + x * pieces.h.step;
    }
  }
}

}  // namespace evn
