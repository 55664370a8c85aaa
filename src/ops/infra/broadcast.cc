#include "ops/infra/broadcast.h"

#include "ops/infra/walk.h"

namespace evn {

std::int64_t parts_of_pairs(const ReferenceContext& c) { return c.output().desc.shape.elements(); }

void apply_pairs(const ReferenceContext& c, PairLoop loop) {
  const TensorDesc &a = c.input(0).desc, &b = c.input(1).desc, &y = c.output().desc;
  const WalkAxes<2> axes(y.shape, {broadcast_strides(a.shape, y.shape), broadcast_strides(b.shape, y.shape)});
  const std::int64_t end = std::min(c.end, y.shape.elements());
  if (c.begin >= end) return;
  const auto a_size = static_cast<std::int64_t>(dtype_size(a.dtype)), b_size = static_cast<std::int64_t>(dtype_size(b.dtype));
  const std::int64_t length = axes.dims[0], a_step = axes.steps[0][0], b_step = axes.steps[0][1];
  walk_lines(
      axes,
      [&](std::int64_t position, const std::int64_t* base) {
        // What of the line lies in the parts.
        const std::int64_t first = std::max(c.begin - position, std::int64_t{0});
        in_pieces(std::min(length, end - position) - first, 1, [&](std::int64_t i, std::int64_t last) {
          const std::int64_t at = first + i;
          loop(c.output().as<char>() + (position + at) * static_cast<std::int64_t>(dtype_size(y.dtype)),
               c.input(0).as<char>() + (base[0] + at * a_step) * a_size, a_step,
               c.input(1).as<char>() + (base[1] + at * b_step) * b_size, b_step, last - i);
        });
      },
      nullptr, c.begin / length, (end - 1) / length + 1);
}

}  // namespace evn
