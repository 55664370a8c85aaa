// Re-layout as a transposition of each image: [channels][positions] to [positions][channels] or back; or, where channels last come
// and go, a copy of some channels of a wider value. A tile is some positions of one image.
#include "backends/cpu/move/relayout.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/move/transpose_loops.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

constexpr std::int64_t kChannels = 64;      // very many channels are split into parts of a multiple of this
constexpr std::int64_t kWholeSquares = 64;  // a tile is a multiple of this many positions, so that only the last one has edges

struct RelayoutState {
  Isa isa;
  std::int64_t channels, positions;
  std::int64_t pitch;            // of the channels-last input
  std::int64_t per_tile, tiles;  // positions of a tile; tiles of an image
  std::int32_t element;          // bytes
  bool from_last, to_last;
};

Refusal supports(const OpDesc&) { return nullptr; }

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<RelayoutState>();
  const Shape& x = d.inputs[0].shape;
  s.isa = cpu_isa();
  s.channels = x[1];
  s.positions = x.elements(2, x.rank());
  s.element = static_cast<std::int32_t>(dtype_size(d.inputs[0].dtype));
  s.from_last = d.input_layout(0) == Layout::kChannelsLast;
  s.pitch = d.input_pitch(0);
  s.to_last = d.output_layout() == Layout::kChannelsLast;
  s.per_tile =
      ceil_div(units_per_tile(s.positions, static_cast<double>(s.channels), static_cast<double>(kElementsPerTile)), kWholeSquares) *
      kWholeSquares;
  s.tiles = ceil_div(s.positions, s.per_tile);
  p->tiles = checked_mul(x[0], s.tiles);
  p->bytes = bytes_of(d);
}

// y[j * y_step + i] = x[i * x_step + j] for i < rows, j < columns.
template <typename T>
void transpose(Isa, const T* x, std::int64_t x_step, std::int64_t rows, std::int64_t columns, T* y, std::int64_t y_step) {
  constexpr std::int64_t kBlock = 16;
  for (std::int64_t i0 = 0; i0 < rows; i0 += kBlock) {
    const std::int64_t i1 = std::min(rows, i0 + kBlock);
    for (std::int64_t j = 0; j < columns; ++j) {
      for (std::int64_t i = i0; i < i1; ++i) y[j * y_step + i] = x[i * x_step + j];
    }
  }
}

void transpose(Isa isa, const float* x, std::int64_t x_step, std::int64_t rows, std::int64_t columns, float* y,
               std::int64_t y_step) {
  simd_transpose::loops(isa).transpose(x, x_step, rows, columns, y, y_step);
}

typedef std::uint8_t Bytes __attribute__((vector_size(16)));
constexpr std::int64_t kSquare = sizeof(Bytes);

// 16 rows of 16 bytes become columns: four times, rows are dealt out like cards.
void transpose_square(const std::uint8_t* x, std::int64_t x_step, std::uint8_t* y, std::int64_t y_step) {
  Bytes v[kSquare], w[kSquare];
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < kSquare; ++i) std::memcpy(&v[i], x + i * x_step, sizeof(Bytes));
#pragma GCC unroll 4
  for (int round = 0; round < 4; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < kSquare / 2; ++i) {
      w[2 * i] = __builtin_shufflevector(v[i], v[i + kSquare / 2], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      w[2 * i + 1] =
          __builtin_shufflevector(v[i], v[i + kSquare / 2], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kSquare; ++i) v[i] = w[i];
  }
#pragma GCC unroll 16
  for (std::int64_t j = 0; j < kSquare; ++j) std::memcpy(y + j * y_step, &v[j], sizeof(Bytes));
}

// Four pixels of four bytes, of which the last is 0, to twelve bytes, and four that are 0.
Bytes without_fourth(Bytes v) {
  typedef std::uint64_t Pairs __attribute__((vector_size(16)));
  const Pairs p = reinterpret_cast<Pairs>(v), first = {0xffffff, 0xffffff}, second = {0xffffff000000, 0xffffff000000};
  const Bytes six = reinterpret_cast<Bytes>((p & first) | (p >> 8 & second));
  const Bytes later = __builtin_shufflevector(six, Bytes{}, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17);
  const Pairs before = {0xffffffffffff, 0}, behind = {0xffff000000000000, ~std::uint64_t{0}};
  return reinterpret_cast<Bytes>((reinterpret_cast<Pairs>(six) & before) | (reinterpret_cast<Pairs>(later) & behind));
}

// Three or four rows of 16 bytes become pixels side by side; four bytes more are written.
template <int Rows>
void interleave_pixels(const std::uint8_t* x, std::int64_t x_step, std::uint8_t* y) {
  Bytes v[4] = {};
#pragma GCC unroll 4
  for (int i = 0; i < Rows; ++i) std::memcpy(&v[i], x + i * x_step, sizeof(Bytes));
  const auto low = [](Bytes a, Bytes b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  };
  const auto high = [](Bytes a, Bytes b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  };
  // First and third, second and fourth; then these.
  const Bytes even[2] = {low(v[0], v[2]), high(v[0], v[2])}, odd[2] = {low(v[1], v[3]), high(v[1], v[3])};
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const Bytes pixels[2] = {low(even[half], odd[half]), high(even[half], odd[half])};
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const Bytes dense = Rows == 3 ? without_fourth(pixels[i]) : pixels[i];
      std::memcpy(y + (2 * half + i) * 4 * Rows, &dense, sizeof dense);
    }
  }
}

// Bytes, by squares; the last ones of rows and columns overlap those before. Pictures of three channels, or four, are stored four
// pixels at a time, of which the next ones write over the last four bytes; the last pixels are not.
void transpose(Isa isa, const std::uint8_t* x, std::int64_t x_step, std::int64_t rows, std::int64_t columns, std::uint8_t* y,
               std::int64_t y_step) {
  if (columns < kSquare || (rows < kSquare && (rows < 3 || rows > 4 || y_step != rows))) {
    return transpose<std::uint8_t>(isa, x, x_step, rows, columns, y, y_step);
  }
  if (rows < kSquare) {
    std::int64_t j = 0;
    for (; j + kSquare + 1 < columns; j += kSquare)
      (rows == 3 ? interleave_pixels<3> : interleave_pixels<4>)(x + j, x_step, y + j * rows);
    return transpose<std::uint8_t>(isa, x + j, x_step, rows, columns - j, y + j * y_step, y_step);
  }
  for (std::int64_t i = 0; i < rows; i += kSquare) {
    const std::int64_t row = std::min(i, rows - kSquare);
    for (std::int64_t j = 0; j < columns; j += kSquare) {
      const std::int64_t column = std::min(j, columns - kSquare);
      transpose_square(x + row * x_step + column, x_step, y + column * y_step + row, y_step);
    }
  }
}

// y[i * y_step + j] = x[i * x_step + j] for i < rows, j < columns.
template <typename T>
void copy(Isa, const T* x, std::int64_t x_step, std::int64_t rows, std::int64_t columns, T* y, std::int64_t y_step) {
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(x + i * x_step, columns, y + i * y_step);
}

void copy(Isa isa, const float* x, std::int64_t x_step, std::int64_t rows, std::int64_t columns, float* y, std::int64_t y_step) {
  simd_transpose::loops(isa).copy(x, x_step, rows, columns, y, y_step);
}

template <typename T>
void run_typed(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<RelayoutState>();
  CancelPoints points = points_of(cancel);
  for (std::int64_t t = begin; t < end && !cancel.stop(); ++t) {
    const std::int64_t image = t / s.tiles * s.positions;
    const std::int64_t first = t % s.tiles * s.per_tile;
    const std::int64_t count = std::min(s.per_tile, s.positions - first);
    const T* x = args.in<T>(0) + image * s.pitch;
    T* y = args.out<T>() + image * s.channels;
    // All channels, unless these are very many.
    const std::int64_t most = std::max(kChannels, kTileWorkPerLook / 4 / count / kChannels * kChannels);
    for (std::int64_t c = 0; c < s.channels; c += most) {
      const std::int64_t channels = std::min(most, s.channels - c);
      if (stops(&points, count * channels * 2)) return;
      if (s.from_last && s.to_last) {
        copy(s.isa, x + first * s.pitch + c, s.pitch, count, channels, y + first * s.channels + c, s.channels);
      } else if (s.to_last) {
        transpose(s.isa, x + c * s.positions + first, s.positions, channels, count, y + first * s.channels + c, s.channels);
      } else {
        transpose(s.isa, x + first * s.pitch + c, s.pitch, count, channels, y + c * s.positions + first, s.positions);
      }
    }
  }
}

// Element of 16 bytes (complex128).
struct Words {
  std::uint64_t first, second;
};

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  switch (args.plan->state<RelayoutState>().element) {
    case 1: return run_typed<std::uint8_t>(args, begin, end, cancel);
    case 2: return run_typed<std::uint16_t>(args, begin, end, cancel);
    case 4: return run_typed<float>(args, begin, end, cancel);
    case 8: return run_typed<std::uint64_t>(args, begin, end, cancel);
    default: return run_typed<Words>(args, begin, end, cancel);
  }
}

}  // namespace

const Kernel cpu_relayout_kernel = {.name = "relayout",
                                    .rank = 0,
                                    .supports = supports,
                                    .plan = plan,
                                    .run = run,
                                    .fusion = {.channel_views = channel_views<kViewInput>}};

}  // namespace evn
