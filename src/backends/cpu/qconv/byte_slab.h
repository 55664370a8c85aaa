// A part of a channels-last image of bytes, copied with its pads into memory of a thread, so that a window is read without looking
// at edges. Bytes of int8 become uint8 on the way. A window of one line or one pixel has only the lines or pixels copied that it
// stops at.
#pragma once

#include "backends/cpu/qgemm/qgemm_loops.h"
#include "ops/infra/window.h"

namespace evn {

// Output positions.
struct SlabPart {
  std::int64_t line, x, lines, width;
};

struct ByteSlab {
  WindowAxis y, x;
  std::int64_t channels;  // that are copied
  std::int64_t pixel;     // bytes from one pixel of the image to the next
  std::int64_t width;     // pixels of a line of the slab
  bool flip;              // the image is int8
  bool words = false;     // bytes become 16 bits

  // From a line or pixel of the slab to the next, in the image.
  std::int64_t skip_y() const { return y.kernel == 1 ? y.stride : 1; }
  std::int64_t skip_x() const { return x.kernel == 1 ? x.stride : 1; }
  // From an output's line or pixel to the next one's, in the slab.
  std::int64_t step_y() const { return y.kernel == 1 ? 1 : y.stride; }
  std::int64_t step_x() const { return x.kernel == 1 ? 1 : x.stride; }
  // What outputs need.
  std::int64_t lines(std::int64_t outputs) const { return (outputs - 1) * step_y() + y.extent(); }
  std::int64_t pixels(std::int64_t outputs) const { return (outputs - 1) * step_x() + x.extent(); }
  std::int64_t bytes(std::int64_t output_lines, std::int64_t output_width) const;
  std::int64_t element() const { return words ? 2 : 1; }

  // `image` is the first of the channels. A fill that has been stopped is unfinished. Bytes that rows may read beside their own are
  // zero: the rest of lines that are shorter than `width`, and simd_qgemm::kOverread bytes behind the last line.
  void fill(const simd_qgemm::Loops& loops, const std::uint8_t* image, const SlabPart& part, std::uint8_t pad, std::uint8_t* to,
            CancelPoints* points) const;

 private:
  void copy_some(const simd_qgemm::Loops& loops, const std::uint8_t* from, std::int64_t n, std::uint8_t* to) const;
  void pad_some(std::uint8_t pad, std::int64_t n, std::uint8_t* to) const;
  void copy(const simd_qgemm::Loops& loops, const std::uint8_t* from, std::int64_t n, std::uint8_t* to, CancelPoints* points) const;
  void pad_with(std::uint8_t pad, std::int64_t n, std::uint8_t* to, CancelPoints* points) const;
  void fill_line(const simd_qgemm::Loops& loops, const std::uint8_t* from, std::int64_t first, std::int64_t count, std::uint8_t pad,
                 std::uint8_t* to, CancelPoints* points) const;
};

}  // namespace evn
