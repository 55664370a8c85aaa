// How the positions that an implicit matrix product goes through are cut into pieces: some images, or a rectangle of one. What a
// piece reads is copied into padded planes that stay in L2.
#pragma once

#include <cstdint>

#include "backends/cpu/conv_gradient/implicit_gemm_loops.h"
#include "backends/cpu/conv_gradient/shifted_planes_loops.h"
#include "device/kernel.h"
#include "ops/infra/window.h"

namespace evn {

inline constexpr std::int64_t kMostTaps = 4096;  // of a filter: what is between two cancellation points

// What a product's operands are rounded to when they are copied. Two values of kBfloat16 share a word, so that planes, or images,
// are counted by twos; kFloat16 stays float32 in memory.
enum class Operands : std::int32_t { kFloat32, kBfloat16, kFloat16 };

constexpr std::int64_t words_of(Operands operands, std::int64_t n) { return operands == Operands::kBfloat16 ? (n + 1) / 2 : n; }
// The loops that multiply such operands.
inline const simd_implicit_gemm::Loops& product_loops(Isa isa, Operands operands) {
  return simd_implicit_gemm::loops(operands == Operands::kBfloat16 ? Isa::k_avx512_bf16 : isa);
}
// Rounds floats where they lie, as the operands say. Returns false if the run is to stop.
bool round_floats(Isa isa, Operands operands, float* x, std::int64_t n, CancelPoints* points);

// Why an implicit product does not take a convolution with this weight, or its derivative, whose product has so many columns.
Refusal refuse_product(const OpDesc& d, int weight);
Refusal refuse_product(const OpDesc& d, int weight, Operands operands, std::int64_t columns);

// The depth, the vertical and the horizontal axis of a window of one to three axes.
struct PlaneAxes {
  WindowAxis z, v, h;

  explicit PlaneAxes(const Window& window);
  PlaneAxes() = default;
};

// An axis of the input as the gradient of the output reaches it. Input position i is position j of phase f: i + pad = j * stride +
// f. Tap k reaches it from output position j - back(k), if it is a tap of the phase.
struct PhaseAxis {
  WindowAxis a;

  std::int64_t phase(std::int64_t tap) const { return tap * a.dilation % a.stride; }
  std::int64_t back(std::int64_t tap) const { return tap * a.dilation / a.stride; }
  std::int64_t most_back() const { return back(a.kernel - 1); }
  std::int64_t first() const { return a.pad_begin / a.stride; }  // of all phases
  std::int64_t count() const { return (a.input - 1 + a.pad_begin) / a.stride - first() + 1; }
  std::int64_t begin(std::int64_t f) const { return f >= a.pad_begin ? 0 : ceil_div(a.pad_begin - f, a.stride); }
  std::int64_t end(std::int64_t f) const {
    const std::int64_t last = a.input - 1 + a.pad_begin - f;
    return last < 0 ? 0 : last / a.stride + 1;
  }
  bool has_empty_phases() const {
    std::int64_t reached = 0;  // one bit for each phase
    for (std::int64_t k = 0; k < a.kernel; ++k) reached |= std::int64_t{1} << phase(k);
    return reached != (std::int64_t{1} << a.stride) - 1;
  }
  std::int64_t input(std::int64_t j, std::int64_t f) const { return j * a.stride + f - a.pad_begin; }
};

// What `n` positions of an axis read: (n - 1) * step + extent.
struct AxisView {
  std::int64_t step, extent;

  std::int64_t length(std::int64_t n) const { return (n - 1) * step + extent; }
};

struct Piece {
  std::int64_t image, images, row, rows, column, columns;

  std::int64_t positions() const { return images * rows * columns; }
};

struct Pieces {
  std::int64_t images, height, width;  // positions of all
  AxisView v, h;
  Piece most = {};  // the counts of the largest piece
  std::int64_t image_pieces = 0, row_pieces = 0, column_pieces = 0;

  std::int64_t count() const { return image_pieces * row_pieces * column_pieces; }
  Piece at(std::int64_t i) const;
};

// `all` has the counts of positions and what they read. `channels`: planes of an image that a piece reads; `positions`: that it
// has, at most.
Pieces cut_into_pieces(const Pieces& all, std::int64_t channels, std::int64_t positions = 512);

// Where the planes of a piece lie.
struct PlaneSteps {
  std::int64_t image, plane, row;

  // Dense copies of what a piece of `rows` x `columns` positions reads.
  static PlaneSteps of_copies(const Pieces& pieces, std::int64_t rows, std::int64_t columns, std::int64_t channels);
  std::int64_t at(std::int64_t plane_index, std::int64_t row_index, std::int64_t column) const {
    return plane_index * plane + row_index * row + column;
  }
};

// Floats of the copies of `channels` planes of the largest piece.
std::int64_t copies_floats(const Pieces& pieces, std::int64_t channels);

// A volume is as many images as it has slices, and each of its channels is as many as its kernel has. Image z sees as channel k the
// slice (z * step + k * delta + offset) / divisor, if it is there.
struct Slices {
  std::int64_t images;  // of a volume
  std::int64_t kernel, depth;
  std::int64_t step, delta, offset, divisor;

  // What a convolution reads for a slice of its output.
  static Slices of(const WindowAxis& z) { return {z.output, z.kernel, z.input, z.stride, z.dilation, -z.pad_begin, 1}; }
  // What the gradient by the input reads of dy for a slice of dx.
  static Slices back_of(const WindowAxis& z) { return {z.input, z.kernel, z.output, 1, -z.dilation, z.pad_begin, z.stride}; }
};

// Some planes of some images. `from`: channel 0 of volume 0. Of bfloat16, planes or images are counted by twos, of which there are
// `end` in all.
struct PlaneCopies {
  Operands operands;
  bool pairs_images;
  std::int64_t end;
  simd_implicit_gemm::Cut cut;
  const float* from;
  std::int64_t volume_step;
  std::int64_t image, images, plane, planes;
};

void copy_planes(Isa isa, const Slices& slices, const PlaneCopies& copies, const PlaneSteps& steps, float* to,
                 CancelPoints* points);

// How a product of the rows of all pieces and a matrix of `columns` columns, which is packed by each tile, is cut into tiles: some
// columns by some pieces. Sums do not depend on it.
struct ProductTiles {
  std::int64_t columns, column_tiles, pieces, piece_tiles;
};

struct ProductWork {
  std::int64_t columns, depth, groups;
  std::uint32_t threads;
  double flops;
};

ProductTiles tile_product(Isa isa, const Pieces& pieces, const ProductWork& work);

// What `count` rows of sums begin with, where there is a bias of the columns. Returns false if the run is to stop.
bool start_sums(const float* bias, std::int64_t count, std::int64_t columns, std::int64_t row, float* sums, CancelPoints* points);

// A product of few columns, in which vectors run over positions: lines of an image of a piece, as they follow each other in the
// copies.
struct FewColumns {
  const float* planes;         // of the image
  const std::int64_t* depths;  // offsets of the rows of the weights
  std::int64_t depth;
  const float* weights;
  std::int64_t width;  // floats of a row of the weights
  std::int64_t columns;
  const float* bias;  // null: none
  std::int64_t lines, line_columns, line_step;
  float* sums;  // kOutputs lines of `sums_step` floats (simd_shifted_planes)
  std::int64_t sums_step;
};

// Calls f(column, its sums): `lines` lines, line_step apart, of line_columns floats each.
template <typename F>
void run_few_columns(Isa isa, const FewColumns& few, CancelPoints* points, F&& f) {
  constexpr std::int64_t kOutputs = simd_shifted_planes::kOutputs;
  const simd_shifted_planes::Loops& loops = simd_shifted_planes::loops(isa);
  const std::int64_t n = (few.lines - 1) * few.line_step + few.line_columns;
  for (std::int64_t c = 0; c < few.columns && !points->stopped; c += kOutputs) {
    const std::int64_t count = few.columns - c < kOutputs ? few.columns - c : kOutputs;
    float start[kOutputs] = {};
    for (std::int64_t o = 0; few.bias != nullptr && o < count; ++o) start[o] = few.bias[c + o];
    (few.columns == 1 ? loops.sum : loops.sums)(
        {few.planes, few.depths, few.weights + c, few.width, few.depth, n, start, few.sums, few.sums_step, points});
    for (std::int64_t o = 0; o < count && !points->stopped; ++o) f(c + o, few.sums + o * few.sums_step);
  }
}

// The offsets of the piece's positions.
void list_positions(const Pieces& pieces, const Piece& piece, const PlaneSteps& steps, std::int64_t* to);

// A block of scratch memory that is handed out in parts of whole lines.
class ScratchParts {
 public:
  explicit ScratchParts(void* memory = nullptr) : memory_(static_cast<char*>(memory)) {}
  template <typename T>
  T* take(std::int64_t count) {
    constexpr std::int64_t kLine = 64;
    T* const part = reinterpret_cast<T*>(memory_ + bytes_);
    const std::int64_t bytes = checked_mul<std::int64_t>(count, sizeof(T));
    bytes_ = checked_add(bytes_, checked_mul(ceil_div(bytes, kLine), kLine));
    return memory_ == nullptr ? nullptr : part;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  char* memory_;
  std::int64_t bytes_ = 0;
};

}  // namespace evn
