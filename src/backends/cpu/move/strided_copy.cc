#include "backends/cpu/move/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/move/transpose_loops.h"
#include "base/error.h"

namespace evn {
namespace {

// An element of 16 bytes.
struct Pair {
  std::uint64_t first, second;
};

constexpr std::int64_t kShortLine = 1024;  // elements from which on memcpy is as fast as a loop
constexpr std::int64_t kBlock = 16;        // of a transposition: 16 lines of up to 64 bytes on either side

// Where lines begin in the input, one after the other: lines of axis 0, counted along the other axes.
class LineWalk {
 public:
  LineWalk(const StridedCopy& copy, std::int64_t line) : c_(copy), offset_(copy.start) {
    for (int i = 1; i < c_.rank; ++i) {
      at_[i] = line % c_.dims[i];
      offset_ += at_[i] * c_.steps[i];
      line /= c_.dims[i];
    }
  }

  std::int64_t offset() const { return offset_; }
  // How many lines from this one on differ along axis 1 only.
  std::int64_t run() const { return c_.rank > 1 ? c_.dims[1] - at_[1] : 1; }

  // How many whole runs of axis 1 follow from this line on that differ along axis 2 only.
  std::int64_t planes() const { return c_.rank > 2 && at_[1] == 0 ? c_.dims[2] - at_[2] : 0; }

  // How often so many planes from this line on follow once more.
  std::int64_t repeats(std::int64_t planes) const {
    return c_.rank > 3 && c_.steps[3] == 0 && planes == c_.dims[2] ? c_.dims[3] - at_[3] - 1 : 0;
  }

  // Lines, of which there are at most run(), or whole runs of them (axis 2), at most planes(), or all of
  // these (axis 3).
  void skip(std::int64_t count, int axis = 1) {
    if (c_.rank == 1) return;
    at_[axis] += count;
    offset_ += count * c_.steps[axis];
    for (int i = axis; i < c_.rank && at_[i] == c_.dims[i]; ++i) {
      at_[i] = 0;
      offset_ -= c_.dims[i] * c_.steps[i];
      if (i + 1 == c_.rank) break;
      ++at_[i + 1];
      offset_ += c_.steps[i + 1];
    }
  }

 private:
  const StridedCopy& c_;
  std::int64_t offset_;
  std::int64_t at_[StridedCopy::kMostAxes] = {};
};

// By whole cache lines: the speed of a loop over elements depends on where it lies.
template <typename T>
void fill_run(const T& value, T* to, std::int64_t n) {
  constexpr std::int64_t kElements = 64 / sizeof(T);
  T line[kElements];
  std::fill_n(line, kElements, value);
  for (; n >= kElements; n -= kElements, to += kElements) std::memcpy(to, line, sizeof line);
  std::memcpy(to, line, static_cast<std::size_t>(n) * sizeof(T));
}

template <typename T>
void copy_run(const T* from, std::int64_t step, T* to, std::int64_t n) {
  if (step == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  } else if (step == 0) {
    fill_run(*from, to, n);
  } else {
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i * step];
  }
}

// Lines [line, line + count) where the next line starts at the next input element: a transposition, in blocks. A function of its
// own, so that its loops are aligned alike whatever is around them.
template <typename T>
__attribute__((noinline)) void transpose_lines(Isa, const T* from, std::int64_t step, T* to, std::int64_t count,
                                               std::int64_t width) {
  for (std::int64_t r0 = 0; r0 < count; r0 += kBlock) {
    const std::int64_t r1 = std::min(r0 + kBlock, count);
    for (std::int64_t x0 = 0; x0 < width; x0 += kBlock) {
      const std::int64_t x1 = std::min(x0 + kBlock, width);
      for (std::int64_t r = r0; r < r1; ++r) {
        for (std::int64_t x = x0; x < x1; ++x) to[r * width + x] = from[x * step + r];
      }
    }
  }
}

void transpose_lines(Isa isa, const std::uint32_t* from, std::int64_t step, std::uint32_t* to, std::int64_t count,
                     std::int64_t width) {
  simd_transpose::loops(isa).transpose(reinterpret_cast<const float*>(from), step, width, count, reinterpret_cast<float*>(to),
                                       width);
}

// Whole lines whose elements lie `step` apart, and which begin `line_step` apart.
template <typename T>
void copy_lines(Isa, const T* from, std::int64_t step, std::int64_t line_step, T* to, std::int64_t lines, std::int64_t width) {
  for (std::int64_t r = 0; r < lines; ++r) copy_run(from + r * line_step, step, to + r * width, width);
}

void copy_lines(Isa isa, const std::uint32_t* from, std::int64_t step, std::int64_t line_step, std::uint32_t* to,
                std::int64_t lines, std::int64_t width) {
  const auto* const x = reinterpret_cast<const float*>(from);
  if (step == 1 && width <= kShortLine) {
    simd_transpose::loops(isa).copy(x, line_step, lines, width, reinterpret_cast<float*>(to), width);
  } else if (step == 2) {
    simd_transpose::loops(isa).copy_even(x, line_step, lines, width, reinterpret_cast<float*>(to), width);
  } else {
    for (std::int64_t r = 0; r < lines; ++r) copy_run(from + r * line_step, step, to + r * width, width);
  }
}

// Whole runs of axis 1 that differ along axis 2 only, and what repeats all of axis 2, where that is within `n` elements. Returns
// how many it has written, which may be none. Elements of other sizes are too rare for the code.
template <typename T>
std::int64_t copy_planes(Isa isa, const StridedCopy& c, LineWalk* walk, const T* from, T* to, std::int64_t n) {
  if constexpr (sizeof(T) != 4 && sizeof(T) != 8) {
    return 0;
  } else {
    const std::int64_t plane = c.dims[0] * (c.rank > 1 ? c.dims[1] : 1), planes = std::min(walk->planes(), n / plane);
    if (planes < 2) return 0;
    for (std::int64_t p = 0; p < planes; ++p)
      copy_lines(isa, from + p * c.steps[2], c.steps[0], c.steps[1], to + p * plane, c.dims[1], c.dims[0]);
    const std::int64_t block = planes * plane, repeats = std::min(walk->repeats(planes), n / block - 1);
    if (repeats < 1) {
      walk->skip(planes, 2);
      return block;
    }
    for (std::int64_t i = 1; i <= repeats; ++i) std::copy_n(to, block, to + i * block);
    walk->skip(1 + repeats, 3);
    return (1 + repeats) * block;
  }
}

template <typename T>
void copy_range(Isa isa, const StridedCopy& c, const T* from, T* to, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = c.dims[0], line_step = c.rank > 1 ? c.steps[1] : 0;
  const bool transposes = c.rank > 1 && c.steps[1] == 1 && c.steps[0] != 1 && c.steps[0] != 0;
  LineWalk walk(c, begin / width);
  for (std::int64_t at = begin, x = begin % width; at < end; x = 0) {
    const T* const source = from + walk.offset();
    const std::int64_t lines = std::min((end - at) / width, walk.run());
    if (x != 0 || lines == 0) {  // a part of one
      const std::int64_t n = std::min(width - x, end - at);
      copy_run(source + x * c.steps[0], c.steps[0], to + at, n);
      walk.skip(1);
      at += n;
      continue;
    }
    if (const std::int64_t written = transposes ? 0 : copy_planes(isa, c, &walk, source, to + at, end - at); written > 0) {
      at += written;
      continue;
    }
    if (transposes && lines > 1) {
      transpose_lines(isa, source, c.steps[0], to + at, lines, width);
    } else {
      copy_lines(isa, source, c.steps[0], line_step, to + at, lines, width);
    }
    walk.skip(lines);
    at += lines * width;
  }
}

}  // namespace

void StridedCopy::add_axis(std::int64_t dim, std::int64_t step) {
  if (dim == 1) return;
  if (rank > 0 && step == steps[rank - 1] * dims[rank - 1]) {
    dims[rank - 1] *= dim;
    return;
  }
  dims[rank] = dim;
  steps[rank++] = step;
}

StridedCopy make_strided_copy(const Shape& out, const std::int64_t* steps, std::int64_t start) {
  StridedCopy c;
  c.start = start;
  for (int i = out.rank() - 1; i >= 0; --i) c.add_axis(out[i], steps[i]);
  if (c.rank == 0) {
    c.dims[0] = 1;
    c.rank = 1;
  }
  return c;
}

void strided_copy(Isa isa, const StridedCopy& c, std::size_t element, const void* from, void* to, std::int64_t begin,
                  std::int64_t end) {
  switch (element) {
    case 1: return copy_range(isa, c, static_cast<const std::uint8_t*>(from), static_cast<std::uint8_t*>(to), begin, end);
    case 2: return copy_range(isa, c, static_cast<const std::uint16_t*>(from), static_cast<std::uint16_t*>(to), begin, end);
    case 4: return copy_range(isa, c, static_cast<const std::uint32_t*>(from), static_cast<std::uint32_t*>(to), begin, end);
    case 8: return copy_range(isa, c, static_cast<const std::uint64_t*>(from), static_cast<std::uint64_t*>(to), begin, end);
    case 16: return copy_range(isa, c, static_cast<const Pair*>(from), static_cast<Pair*>(to), begin, end);
    default: fail(EVN_ERROR_INTERNAL, "an element of %zu bytes", element);
  }
}

}  // namespace evn
