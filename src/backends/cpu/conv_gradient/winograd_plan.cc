#include "backends/cpu/conv_gradient/winograd_plan.h"

#include <algorithm>

#include "backends/cpu/move/transpose_loops.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"

namespace evn::winograd {
namespace {

// Channels are summed between two cancellation points. Sums over more than 1,024 (packed_gemm_loops.cc, kMatrixKc) are cut, so that
// their bits would depend on the number of blocks.
constexpr std::int64_t kFewestChannels = 16, kMostChannels = 1024;
constexpr std::int64_t kMostInLine = 1 << 18;  // channels of both sides by the tiles of a line, which a block has at least
constexpr std::int64_t kUsualBatch = 8;        // assumed for a Conv, and where the number of images is not known
// A product of bfloat16 takes so much of the time of one of float32.
constexpr double kOfBfloat16 = 0.55;

bool is_plain_3x3(const OpDesc& d, const Shape& x, const Shape& w) {
  const Window window = conv_window(*d.node, x, w);
  for (int i = 0; i < window.rank; ++i) {
    const WindowAxis& a = window.axis[i];
    if (a.kernel != 3 || a.stride != 1 || a.dilation != 1) return false;
  }
  return true;
}

Refusal refuse(const OpDesc& d, int weight, const Shape& x, const Shape& y, std::int64_t images) {
  const Shape& w = d.inputs[static_cast<std::size_t>(weight)].shape;
  if (!all_float32(d)) return kNeedsFloat32;
  if (d.strict) return kStrictRefusesWinograd;
  if (d.small) return "transformed filters are larger than they must be";
  if (d.precision == Precision::kFloat16Operands) return "operands are rounded to float16";
  if (x.rank() != 4 || y.rank() != 4) return "only two spatial axes";
  if (attr_int(*d.node, ConvAttr::kGroup) != 1) return "only one group";
  if (w[2] != 3 || w[3] != 3 || w[0] < kFewestChannels || w[1] < kFewestChannels) return "only 3 x 3 of 16 channels and more";
  if (w[0] > kMostChannels || w[1] > kMostChannels) return "more than 1,024 channels";
  if (x[2] <= 0 || x[3] <= 0 || y[2] <= 0 || y[3] <= 0) return "images of any size";
  if (!is_plain_3x3(d, x, w)) return "only without strides and dilations";
  if (std::max(x[3], y[3]) / kTile > kMostInLine / (w[0] + w[1])) return "the lines are too long";
  const double pairs = static_cast<double>(w[0]) * static_cast<double>(w[1]), tiles = count_tiles(images, y[2], y[3]);
  const double direct = 9 * static_cast<double>(images) * static_cast<double>(y[2]) * static_cast<double>(y[3]) * pairs *
                        (d.precision == Precision::kBfloat16 ? kOfBfloat16 : 1.0);
  const double here = kPositions * (tiles * pairs + pixel_work(w[1], w[0], tiles) + filter_work(w[1], w[0]));
  return here < direct ? nullptr : "direct products are faster";
}

}  // namespace

Refusal refuse(const OpDesc& d, int weight, const Shape& x, const Shape& y) {
  return refuse(d, weight, x, y, y.rank() == 0 || y[0] < 0 ? kUsualBatch : std::max<std::int64_t>(1, y[0]));
}

Refusal refuse_conv(const OpDesc& d) { return refuse(d, 1, d.inputs[0].shape, d.outputs[0].shape, kUsualBatch); }

std::int64_t block_tiles(std::int64_t channels, std::int64_t outputs) {
  constexpr std::int64_t kBytes = 768 << 10, kFewest = 32, kMost = 128;
  const std::int64_t sides = channels + outputs, in_l2 = kBytes / (kPositions * sides * static_cast<std::int64_t>(sizeof(float)));
  return std::clamp(std::max(in_l2, channels * outputs / (2 * sides)), kFewest, kMost);
}

Blocks::Blocks(std::int64_t all_images, std::int64_t out_height, std::int64_t out_width, std::int64_t most,
               std::int64_t most_images)
    : images(all_images), height(out_height), width(out_width) {
  tiles_y = ceil_div(height, std::int64_t{kTile});
  tiles_x = ceil_div(width, std::int64_t{kTile});
  block_images = std::clamp<std::int64_t>(most / (tiles_y * tiles_x), 1, std::max<std::int64_t>(1, std::min(images, most_images)));
  image_blocks = ceil_div(images, block_images);
  if (image_blocks > 1) block_images = ceil_div(images, image_blocks);
  block_rows = std::clamp<std::int64_t>(most / tiles_x, 1, tiles_y);
  row_blocks = ceil_div(tiles_y, block_rows);
  block_rows = ceil_div(tiles_y, row_blocks);
}

Block Blocks::at(std::int64_t i) const {
  const std::int64_t image = i / row_blocks * block_images, row = i % row_blocks * block_rows * kTile;
  return {image, std::min(block_images, images - image), row, std::min(block_rows * kTile, height - row)};
}

Lines lines_of(const Block& block, const WindowAxis& v, const WindowAxis& h, std::int64_t channels) {
  const std::int64_t top = block.row - v.pad_begin;  // line of the input under the first line of the output
  Lines lines{{}, std::clamp<std::int64_t>(top, 0, v.input)};
  simd_winograd::Geometry& g = lines.geometry;
  g.height = std::clamp<std::int64_t>(top + block.rows + 2, lines.begin, v.input) - lines.begin;
  g.width = h.input;
  g.channels = g.pixel = channels;
  g.out_height = block.rows;
  g.out_width = h.output;
  g.pad_top = lines.begin - top;
  g.pad_left = h.pad_begin;
  g.tiles_y = ceil_div(block.rows, std::int64_t{kTile});
  g.tiles_x = ceil_div(h.output, std::int64_t{kTile});
  return lines;
}

bool turn(Isa isa, const Planes& planes, float* to, CancelPoints* points) {
  for (std::int64_t i = 0; i < planes.images; ++i, to += planes.positions * planes.channels) {
    const float* const from = planes.from + i * planes.image_step;
    const bool done = by_parts(points, planes.channels, 16, 2 * planes.positions, [&](std::int64_t c, std::int64_t end) {
      simd_transpose::loops(isa).transpose(from + c * planes.plane, planes.plane, end - c, planes.positions, to + c,
                                           planes.channels);
    });
    if (!done) return false;
  }
  return true;
}

}  // namespace evn::winograd
