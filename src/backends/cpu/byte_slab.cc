#include "backends/cpu/byte_slab.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace evn {
namespace {

void copy_bytes(const simd_dot::Loops& loops, bool flip, const std::uint8_t* from, std::int64_t n, std::uint8_t* to) {
  if (flip) {
    loops.flip(from, n, to);
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(n));
  }
}

void pad_bytes(std::uint8_t pad, std::int64_t n, std::uint8_t* to) {
  if (n > 0) std::memset(to, pad, static_cast<std::size_t>(n));
}

}  // namespace

std::int64_t ByteSlab::bytes(std::int64_t output_lines, std::int64_t output_width) const {
  return checked_mul(checked_mul(lines(output_lines), pixels(output_width)), channels);
}

// A line from a line of the image; `first` is where it begins there.
void ByteSlab::fill_line(const simd_dot::Loops& loops, const std::uint8_t* from, std::int64_t first, std::int64_t count, std::uint8_t pad,
                         std::uint8_t* to) const {
  const std::int64_t skip = skip_x();
  if (skip > 1) {
    for (std::int64_t i = 0; i < count; ++i, to += channels) {
      const std::int64_t at = first + i * skip;
      if (at >= 0 && at < x.input) {
        copy_bytes(loops, flip, from + at * pixel, channels, to);
      } else {
        pad_bytes(pad, channels, to);
      }
    }
    return;
  }
  const std::int64_t begin = std::clamp<std::int64_t>(-first, 0, count);
  const std::int64_t end = std::clamp(x.input - first, begin, count);
  pad_bytes(pad, begin * channels, to);
  if (pixel == channels && end > begin) {
    copy_bytes(loops, flip, from + (first + begin) * pixel, (end - begin) * channels, to + begin * channels);
  } else {
    for (std::int64_t i = begin; i < end; ++i) copy_bytes(loops, flip, from + (first + i) * pixel, channels, to + i * channels);
  }
  pad_bytes(pad, (count - end) * channels, to + end * channels);
}

void ByteSlab::fill(const simd_dot::Loops& loops, const std::uint8_t* image, const SlabPart& part, std::uint8_t pad, std::uint8_t* to) const {
  const std::int64_t first_y = part.line * y.stride - y.pad_begin, first_x = part.x * x.stride - x.pad_begin;
  const std::int64_t count = pixels(part.width), line_count = lines(part.lines);
  for (std::int64_t i = 0; i < line_count; ++i, to += width * channels) {
    const std::int64_t line = first_y + i * skip_y();
    if (line < 0 || line >= y.input) {
      pad_bytes(pad, count * channels, to);
    } else {
      fill_line(loops, image + line * x.input * pixel, first_x, count, pad, to);
    }
  }
}

}  // namespace evn
