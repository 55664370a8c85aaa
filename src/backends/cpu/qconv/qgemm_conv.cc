#include "backends/cpu/qconv/qgemm_conv.h"

#include <algorithm>

#include "backends/cpu/qgemm/qgemm_plan.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"

namespace evn {
namespace {

constexpr std::int64_t kLeastPositions = 32;  // of a tile

}  // namespace

bool is_by_tap(const OpDesc& d, const Shape& w) {
  const std::span<const std::int64_t> dilations = attr_ints(*d.node, ConvAttr::kDilations);
  return !dilations.empty() && dilations.back() > 1 && w[w.rank() - 1] > 1;
}

std::int64_t conv_groups(const OpDesc& d) { return attr_int(*d.node, ConvAttr::kGroup); }

void QgemmConv::set(const OpDesc& d, const Shape& w, std::int64_t pixel) {
  const Shape& x = d.inputs[0].shape;
  const Window window = conv_window(*d.node, x, w);
  slab.y = window.rank == 2 ? window.axis[0] : WindowAxis{};
  slab.x = window.axis[window.rank - 1];
  slab.pixel = pixel;
  slab.channels = w[1];
  images = x[0];
  groups = conv_groups(d);
  columns = w[0] / groups;
  by_tap = is_by_tap(d, w);
  unpadded = slab.y.pad_begin + slab.y.pad_end + slab.x.pad_begin + slab.x.pad_end == 0;
  if (unpadded && slab.y.kernel * slab.x.kernel * slab.y.stride * slab.x.stride == 1) {
    slab.x.input = slab.x.output = checked_mul(images, checked_mul(slab.y.output, slab.x.output));
    slab.y = WindowAxis{};
    images = 1;
  }
}

std::int64_t QgemmConv::positions() const { return checked_mul(images, checked_mul(slab.y.output, slab.x.output)); }

void QgemmConv::cut(std::int64_t all, std::int64_t k, std::int64_t most) {
  const std::int64_t pieces = ceil_div(all, std::max<std::int64_t>(1, images * groups));
  const std::int64_t column_blocks = ceil_div(columns, kQgemmColumnStep);
  const bool by_columns = columns * k > slab.y.input * slab.x.input * slab.channels;
  column_tiles = by_columns ? std::min(pieces, column_blocks) : 1;
  const std::int64_t rest = ceil_div(pieces, column_tiles);
  column_tiles = std::max(column_tiles, ceil_div(columns, kMostQgemmColumns));
  const bool one_line = slab.y.output == 1;
  lines = one_line ? 1 : ceil_div(slab.y.output, std::min(rest, slab.y.output));
  width = one_line ? std::max(kLeastPositions, ceil_div(slab.x.output, rest)) : slab.x.output;
  width = std::max<std::int64_t>(1, std::min(width, slab.x.output));
  while (lines > 1 && slab.bytes(lines, width) > most) lines = ceil_div(lines, std::int64_t{2});
  while (width > kLeastPositions && slab.bytes(lines, width) > most) {
    width = ceil_div(ceil_div(width, std::int64_t{2}), kLeastPositions) * kLeastPositions;
  }
  line_tiles = ceil_div(slab.y.output, lines);
  width_tiles = ceil_div(slab.x.output, width);
  tile_columns = ceil_div(column_blocks, column_tiles) * kQgemmColumnStep;
  column_tiles = ceil_div(columns, tile_columns);
  slab.width = slab.pixels(width);
}

std::int64_t QgemmConv::tiles() const {
  return checked_mul(checked_mul(images, groups), checked_mul(checked_mul(line_tiles, width_tiles), column_tiles));
}

QgemmConvTile QgemmConv::tile(std::int64_t i) const {
  const auto take = [&](std::int64_t count) {
    const std::int64_t place = i % count;
    i /= count;
    return place;
  };
  QgemmConvTile t;
  t.column = take(column_tiles) * tile_columns;
  t.from.x = take(width_tiles) * width;
  t.from.line = take(line_tiles) * lines;
  t.from.group = take(groups);
  t.from.image = i;
  t.lines = std::min(lines, slab.y.output - t.from.line);
  t.width = std::min(width, slab.x.output - t.from.x);
  t.columns = std::min(tile_columns, columns - t.column);
  t.first = t.from.image * slab.y.input * slab.x.input * slab.pixel + t.from.group * slab.channels;
  t.position = (t.from.image * slab.y.output + t.from.line) * slab.x.output + t.from.x;
  return t;
}

}  // namespace evn
