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

constexpr std::int64_t kBlock = 16;  // of a transposition: 16 lines of up to 64 bytes on either side

std::int64_t line_start(const StridedCopy& c, std::int64_t line) {
  std::int64_t at = c.start;
  for (int i = 1; i < c.rank; ++i) {
    at += line % c.dims[i] * c.steps[i];
    line /= c.dims[i];
  }
  return at;
}

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

// Lines [line, line + count) where the next line starts at the next input element: a transposition, in blocks.
template <typename T>
void transpose_lines(Isa, const T* from, std::int64_t step, T* to, std::int64_t count, std::int64_t width) {
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

template <typename T>
void copy_range(Isa isa, const StridedCopy& c, const T* from, T* to, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = c.dims[0];
  const bool transposes = c.rank > 1 && c.steps[1] == 1 && c.steps[0] != 1 && c.steps[0] != 0;
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t line = at / width;
    const std::int64_t x = at % width;
    const T* source = from + line_start(c, line);
    const std::int64_t whole = (end - at) / width;
    if (transposes && x == 0 && whole > 1) {
      const std::int64_t lines = std::min(whole, c.dims[1] - line % c.dims[1]);
      transpose_lines(isa, source, c.steps[0], to + at, lines, width);
      at += lines * width;
      continue;
    }
    if (c.rank > 1 && c.steps[0] == 1 && x == 0 && whole > 1) {
      const std::int64_t lines = std::min(whole, c.dims[1] - line % c.dims[1]);
      for (std::int64_t r = 0; r < lines; ++r) copy_run(source + r * c.steps[1], 1, to + at + r * width, width);
      at += lines * width;
      continue;
    }
    const std::int64_t n = std::min(width - x, end - at);
    copy_run(source + x * c.steps[0], c.steps[0], to + at, n);
    at += n;
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
