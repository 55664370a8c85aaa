// Conv with a weight that is computed, as in training, over one to three spatial axes: an implicit matrix product with output
// positions as rows and output channels as columns, which are turned when they are stored. A tile packs the weight that it needs.
#include <algorithm>

#include "backends/cpu/conv_gradient/conv_pieces.h"
#include "backends/cpu/conv_gradient/winograd_plan.h"
#include "backends/cpu/move/transpose_loops.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"

namespace evn {
namespace {

enum : int { kInput, kWeight, kBias };

struct ConvState {
  Isa isa;
  Operands operands;
  PlaneAxes axes;
  Pieces pieces;
  std::int64_t groups, channels, outputs;  // of a group; channels: those of planes (Slices)
  std::int64_t planes, depth;              // channels in words; planes by taps
  ProductTiles tiles;

  // Whether most of a vector of output channels would be empty, so that vectors run over positions; only without strides.
  bool has_few_outputs() const {
    return axes.v.stride == 1 && axes.h.stride == 1 && 2 * outputs <= simd_implicit_gemm::loops(isa).lanes;
  }
  std::int64_t taps() const { return axes.v.kernel * axes.h.kernel; }
  std::int64_t width() const { return round_up(tiles.columns, simd_implicit_gemm::loops(isa).lanes); }
};

// A thread's memory.
struct Parts {
  float *planes, *weights, *sums;
  std::int64_t *rows, *depths;
  std::int64_t bytes;

  Parts(const ConvState& s, void* memory) {
    ScratchParts parts(memory);
    const std::int64_t most = s.pieces.most.positions() + simd_implicit_gemm::kRows;
    planes = parts.take<float>(copies_floats(s.pieces, s.planes));
    weights = parts.take<float>(checked_mul(s.depth, s.width()));
    const std::int64_t lines = copies_floats(s.pieces, 1) * simd_shifted_planes::kOutputs;  // of few outputs
    sums = parts.take<float>(s.has_few_outputs() ? lines : checked_mul(most, s.width()));
    rows = parts.take<std::int64_t>(most);
    depths = parts.take<std::int64_t>(s.depth);
    bytes = parts.bytes();
  }
};

template <Operands operands>
Refusal supports(const OpDesc& d) {
  const Shape& w = d.inputs[kWeight].shape;
  const std::int64_t columns = w.rank() == 0 ? 0 : w[0] / attr_int(*d.node, ConvAttr::kGroup);
  if (const Refusal refusal = refuse_product(d, kWeight, operands, columns)) return refusal;
  if (operands != Operands::kFloat16 && d.constant(kWeight) != nullptr) return "the weight is constant";
  if (operands == Operands::kBfloat16 && winograd::refuse_conv(d) == nullptr) return winograd::kIsFaster;
  if (operands != Operands::kFloat32) return nullptr;
  const auto strides = attr_ints(*d.node, ConvAttr::kStrides);
  const bool has_strides = std::any_of(strides.begin(), strides.end(), [](std::int64_t s) { return s != 1; });
  if (!has_strides) return w.elements(2, w.rank()) == 1 ? "a matrix product without copies is faster" : nullptr;
  const std::int64_t outputs = w[0] / attr_int(*d.node, ConvAttr::kGroup);
  return 2 * outputs <= simd_implicit_gemm::loops(cpu_isa()).lanes ? "strides, and few output channels" : nullptr;
}

template <Operands operands>
void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<ConvState>();
  s.operands = operands;
  const Shape &x = d.inputs[kInput].shape, &w = d.inputs[kWeight].shape;
  s.isa = cpu_isa();
  s.axes = PlaneAxes(conv_window(*d.node, x, w));
  const WindowAxis &v = s.axes.v, &h = s.axes.h;
  s.groups = attr_int(*d.node, ConvAttr::kGroup);
  s.channels = checked_mul(w[1], s.axes.z.kernel);
  s.outputs = w[0] / s.groups;
  s.planes = words_of(operands, s.channels);
  s.depth = checked_mul(s.planes, s.taps());
  p->flops = 2.0 * static_cast<double>(checked_mul(s.channels, s.taps())) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
  p->tiles = 0;
  if (d.outputs[0].shape.elements() == 0) return;
  s.pieces = cut_into_pieces(
      {checked_mul(x[0], s.axes.z.output), v.output, h.output, {v.stride, v.extent()}, {h.stride, h.extent()}}, s.planes);
  s.tiles = tile_product(s.isa, s.pieces, {s.outputs, s.depth, s.groups, d.threads, p->flops});
  p->tiles = checked_mul(checked_mul(s.groups, s.tiles.column_tiles), s.tiles.piece_tiles);
  p->thread_scratch_bytes = static_cast<std::size_t>(Parts(s, nullptr).bytes);
}

class Tile {
 public:
  Tile(const KernelArgs& args, CancelPoints* points)
      : args_(args),
        s_(args.plan->state<ConvState>()),
        loops_(simd_implicit_gemm::loops(s_.isa)),
        product_(product_loops(s_.isa, s_.operands)),
        parts_(s_, args.thread_scratch),
        points_(points) {}

  void run(std::int64_t index) {
    const std::int64_t block = index / s_.tiles.piece_tiles;
    if (block != block_) {
      block_ = block;
      group_ = block / s_.tiles.column_tiles;
      output_ = block % s_.tiles.column_tiles * s_.tiles.columns;
      outputs_ = std::min(s_.tiles.columns, s_.outputs - output_);
      width_ = round_up(outputs_, loops_.lanes);
      pack_weights();
    }
    const std::int64_t first = index % s_.tiles.piece_tiles * s_.tiles.pieces;
    const std::int64_t end = std::min(first + s_.tiles.pieces, s_.pieces.count());
    for (std::int64_t i = first; i < end && !points_->stopped; ++i) run_piece(s_.pieces.at(i));
  }

 private:
  static constexpr std::int64_t kPart = 256;  // rows of a panel that are packed between two cancellation points

  const KernelArgs& args_;
  const ConvState& s_;
  const simd_implicit_gemm::Loops &loops_, &product_;
  const Parts parts_;
  CancelPoints* const points_;
  std::int64_t block_ = -1, group_ = 0, output_ = 0, outputs_ = 0, width_ = 0;

  void pack_weights() {
    const std::int64_t taps = s_.taps(), filter = s_.channels * taps;
    const float* const from = args_.in<float>(kWeight) + (group_ * s_.outputs + output_) * filter;
    if (outputs_ < width_ && !fill_by_parts(points_, parts_.weights, s_.depth * width_, 0.0f)) return;
    simd_implicit_gemm::for_each_panel(loops_.lanes, loops_.panel_vectors, outputs_, [&](std::int64_t m, std::int64_t count) {
      const std::int64_t width = round_up(count, loops_.lanes);
      for (std::int64_t c = 0; s_.operands == Operands::kBfloat16 && c < s_.planes && !points_->stopped; ++c) {
        const float *const low = from + m * filter + 2 * c * taps, *const high = 2 * c + 1 < s_.channels ? low + taps : nullptr;
        product_.turn_words({low, high, filter, count, taps, width}, parts_.weights + m * s_.depth + c * taps * width, points_);
      }
      for (std::int64_t k = 0; s_.operands != Operands::kBfloat16 && k < s_.depth; k += kPart) {
        const std::int64_t rows = std::min(kPart, s_.depth - k);
        if (stops(points_, 2 * rows * width)) return;
        simd_transpose::loops(s_.isa).transpose(from + m * s_.depth + k, s_.depth, count, rows,
                                                parts_.weights + m * s_.depth + k * width, width);
      }
    });
    round_floats(s_.isa, s_.operands, parts_.weights, s_.depth * width_, points_);
  }

  void run_piece(const Piece& piece) {
    const WindowAxis &v = s_.axes.v, &h = s_.axes.h;
    const PlaneSteps steps = PlaneSteps::of_copies(s_.pieces, piece.rows, piece.columns, s_.planes);
    const simd_implicit_gemm::Cut cut{v.input,
                                      h.input,
                                      piece.row * v.stride - v.pad_begin,
                                      s_.pieces.v.length(piece.rows),
                                      piece.column * h.stride - h.pad_begin,
                                      steps.row};
    const std::int64_t group = s_.channels / s_.axes.z.kernel * s_.axes.z.input * v.input * h.input;
    copy_planes(s_.isa, Slices::of(s_.axes.z),
                {s_.operands, false, s_.channels, cut, args_.in<float>(kInput) + group_ * group, s_.groups * group, piece.image,
                 piece.images, 0, s_.planes},
                steps, parts_.planes, points_);
    for (std::int64_t k = 0; k < s_.depth; ++k) {
      const std::int64_t tap = k % s_.taps();
      parts_.depths[k] = steps.at(k / s_.taps(), tap / h.kernel * v.dilation, tap % h.kernel * h.dilation);
    }
    const float* const bias = args_.desc->has_input(kBias) ? args_.in<float>(kBias) + group_ * s_.outputs + output_ : nullptr;
    if (points_->stopped) return;
    if (s_.has_few_outputs()) {
      for (std::int64_t i = 0; i < piece.images; ++i) run_few(piece, i, steps, bias);
      return;
    }
    list_positions(s_.pieces, piece, steps, parts_.rows);
    const std::int64_t count = piece.positions();
    std::fill_n(parts_.rows + count, simd_implicit_gemm::kRows, std::int64_t{0});
    if (!start_sums(bias, count, outputs_, width_, parts_.sums, points_)) return;
    product_.run({count, outputs_, s_.depth, parts_.planes, parts_.rows, parts_.depths, parts_.weights, parts_.sums, width_,
                  bias != nullptr, points_});
    if (!points_->stopped) put(piece);
  }

  // Where the piece is in plane `m` of the tile, of its image `i`.
  float* place_of(const Piece& piece, std::int64_t i, std::int64_t m) const {
    const std::int64_t slices = s_.axes.z.output, volume = (piece.image + i) / slices, slice = (piece.image + i) % slices;
    const std::int64_t plane = ((volume * s_.groups + group_) * s_.outputs + output_ + m) * slices + slice;
    return args_.out<float>() + (plane * s_.axes.v.output + piece.row) * s_.axes.h.output + piece.column;
  }

  void run_few(const Piece& piece, std::int64_t image, const PlaneSteps& steps, const float* bias) {
    const Epilogue* const epilogue = epilogue_of(*args_.desc);
    run_few_columns(s_.isa,
                    {parts_.planes + image * steps.image, parts_.depths, s_.depth, parts_.weights, width_, outputs_, bias,
                     piece.rows, piece.columns, steps.row, parts_.sums, copies_floats(s_.pieces, 1)},
                    points_, [&](std::int64_t m, const float* sums) {
                      float* const to = place_of(piece, image, m);
                      loops_.spread({piece.rows, piece.columns, steps.row, s_.axes.h.output, 1}, sums, to, points_);
                      if (epilogue != nullptr) chain_long(s_.isa, to, piece.rows * piece.columns, epilogue, points_);
                    });
  }

  void put(const Piece& piece) {
    const std::int64_t plane = s_.axes.v.output * s_.axes.h.output, here = piece.rows * piece.columns;
    const std::int64_t step = s_.axes.z.output * plane;
    const Epilogue* const epilogue = epilogue_of(*args_.desc);
    for (std::int64_t i = 0; i < piece.images; ++i) {
      if (stops(points_, 2 * here * width_)) return;
      float* const to = place_of(piece, i, 0);
      simd_transpose::loops(s_.isa).transpose(parts_.sums + i * here * width_, width_, here, outputs_, to, step);
      for (std::int64_t m = 0; epilogue != nullptr && m < outputs_ && !points_->stopped; ++m) {
        chain_long(s_.isa, to + m * step, here, epilogue, points_);
      }
    }
  }
};

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  CancelPoints points = points_of(cancel);
  Tile tile(args, &points);
  for (std::int64_t i = begin; i < end && !cancel.stop() && !points.stopped; ++i) tile.run(i);
}

template <Operands operands>
constexpr Kernel kernel(const char* name, int rank, Precision precision) {
  return {.name = name,
          .op = "Conv",
          .rank = rank,
          .supports = supports<operands>,
          .plan = plan<operands>,
          .run = run,
          .operands = precision};
}
constexpr Kernel kKernels[] = {
    kernel<Operands::kFloat32>("conv_dynamic_weight", 12, Precision::kFloat32),
    kernel<Operands::kBfloat16>("conv_dynamic_weight_bf16", 34, Precision::kBfloat16),
    kernel<Operands::kFloat16>("conv_dynamic_weight_half", 35, Precision::kFloat16Operands),
};

}  // namespace

extern const KernelFamily conv_dynamic_weight_kernels;
const KernelFamily conv_dynamic_weight_kernels = {kKernels};

}  // namespace evn
