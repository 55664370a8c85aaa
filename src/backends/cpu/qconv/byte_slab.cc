#include "backends/cpu/qconv/byte_slab.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/support.h"
#include "base/checked.h"

namespace evn {

void ByteSlab::copy_some(const simd_qgemm::Loops& loops, const std::uint8_t* from, std::int64_t n, std::uint8_t* to) const {
  if (words) {
    loops.widen(from, flip, n, reinterpret_cast<std::int16_t*>(to));
  } else if (flip) {
    loops.flip(from, n, to);
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(n));
  }
}

void ByteSlab::pad_some(std::uint8_t pad, std::int64_t n, std::uint8_t* to) const {
  if (n <= 0) return;
  if (!words) {
    std::memset(to, pad, static_cast<std::size_t>(n));
    return;
  }
  std::uint64_t four = pad * std::uint64_t{0x0001000100010001};
  for (; n >= 4; n -= 4, to += sizeof four) std::memcpy(to, &four, sizeof four);
  std::memcpy(to, &four, static_cast<std::size_t>(n) * sizeof(std::int16_t));
}

// With null `points` the copy is made at once; fill() passes null for short lines.
void ByteSlab::copy(const simd_qgemm::Loops& loops, const std::uint8_t* from, std::int64_t n, std::uint8_t* to,
                    CancelPoints* points) const {
  if (points == nullptr) return copy_some(loops, from, n, to);
  by_parts(points, n, 64, 1,
           [&](std::int64_t begin, std::int64_t end) { copy_some(loops, from + begin, end - begin, to + begin * element()); });
}

void ByteSlab::pad_with(std::uint8_t pad, std::int64_t n, std::uint8_t* to, CancelPoints* points) const {
  if (points == nullptr) return pad_some(pad, n, to);
  by_parts(points, n, 64, 1, [&](std::int64_t begin, std::int64_t end) { pad_some(pad, end - begin, to + begin * element()); });
}

std::int64_t ByteSlab::bytes(std::int64_t output_lines, std::int64_t output_width) const {
  return checked_mul(checked_mul(lines(output_lines), pixels(output_width)), checked_mul(channels, element()));
}

// A line from a line of the image; `first` is where it begins there.
void ByteSlab::fill_line(const simd_qgemm::Loops& loops, const std::uint8_t* from, std::int64_t first, std::int64_t count,
                         std::uint8_t pad, std::uint8_t* to, CancelPoints* points) const {
  const std::int64_t skip = skip_x();
  if (skip > 1) {
    for (std::int64_t i = 0; i < count; ++i, to += channels * element()) {
      if (stops(points, kFarElement / 4)) return;
      const std::int64_t at = first + i * skip;
      if (at >= 0 && at < x.input) {
        copy(loops, from + at * pixel, channels, to, points);
      } else {
        pad_with(pad, channels, to, points);
      }
    }
    return;
  }
  const std::int64_t begin = std::clamp<std::int64_t>(-first, 0, count);
  const std::int64_t end = std::clamp(x.input - first, begin, count);
  pad_with(pad, begin * channels, to, points);
  if (pixel == channels && end > begin) {
    copy(loops, from + (first + begin) * pixel, (end - begin) * channels, to + begin * channels * element(), points);
  } else {
    for (std::int64_t i = begin; i < end && !stops(points, kFarElement / 4); ++i) {
      copy(loops, from + (first + i) * pixel, channels, to + i * channels * element(), points);
    }
  }
  pad_with(pad, (count - end) * channels, to + end * channels * element(), points);
}

void ByteSlab::fill(const simd_qgemm::Loops& loops, const std::uint8_t* image, const SlabPart& part, std::uint8_t pad,
                    std::uint8_t* to, CancelPoints* points) const {
  const std::int64_t first_y = part.line * y.stride - y.pad_begin, first_x = part.x * x.stride - x.pad_begin;
  const std::int64_t count = pixels(part.width), line_count = lines(part.lines);
  const std::int64_t line_work = count * (channels + kFarElement / 4) + kFarElement;
  const bool is_short = line_work <= kTileWorkPerPoint;
  CancelPoints* const within = is_short ? nullptr : points;
  for (std::int64_t i = 0; i < line_count; ++i, to += width * channels * element()) {
    if (stops(points, is_short ? line_work : kFarElement)) return;
    const std::int64_t line = first_y + i * skip_y();
    if (line < 0 || line >= y.input) {
      pad_with(pad, count * channels, to, within);
    } else {
      fill_line(loops, image + line * x.input * pixel, first_x, count, pad, to, within);
    }
    if (count < width) pad_with(0, (width - count) * channels, to + count * channels * element(), points);
  }
  std::memset(to, 0, simd_qgemm::kOverread);
}

}  // namespace evn
