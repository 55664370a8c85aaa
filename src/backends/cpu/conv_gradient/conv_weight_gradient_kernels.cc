// The derivative of a Conv by its weight, over one to three spatial axes, any group: the product of what im2col makes of the input,
// one row for each input channel and tap, and the gradient of the output, turned piece by piece so that vectors run over output
// channels. A tile is some rows by some output channels of one group, summed up over all images.
#include <algorithm>

#include "backends/cpu/conv_gradient/conv_pieces.h"
#include "backends/cpu/conv_gradient/winograd_plan.h"
#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/move/transpose_loops.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"
#include "ops/gradient.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr std::int64_t kMostOutputs = 128;     // output channels of a tile
constexpr std::int64_t kMostSums = 96 * 1024;  // of a tile: they stay in L2
constexpr std::int64_t kChain = 1 << 12;       // multiply-adds that follow each other, and the positions of a piece
constexpr std::int64_t kFewOutputs = 16, kFewRows = 16;
enum : int { kWeight, kInput, kGradient };

struct WeightGradientState {
  Isa isa;
  Operands operands;
  PlaneAxes axes;
  std::int64_t images;  // slices of volumes are images; pieces have them in words
  Pieces pieces;
  std::int64_t chain;  // pieces whose products are summed up by themselves, so that errors of long sums do not add up
  bool in_place;       // the input has no pads: its planes are read where they lie
  std::int64_t groups, channels, outputs, depth;  // of a group; channels: those of planes (Slices)
  std::int64_t out_plane;
  std::int64_t tile_outputs, tile_rows, output_tiles, row_tiles;

  std::int64_t taps() const { return axes.v.kernel * axes.h.kernel; }
  // Input channels that a tile reads.
  std::int64_t channels_of(std::int64_t rows) const { return std::min(channels, (rows - 1) / taps() + 2); }
};

// A thread's memory.
struct Parts {
  float *planes, *turned, *sums, *totals;
  std::int64_t *rows, *positions;
  std::int64_t bytes;

  Parts(const WeightGradientState& s, void* memory) {
    ScratchParts parts(memory);
    const std::int64_t width = round_up(s.tile_outputs, simd_implicit_gemm::loops(s.isa).lanes);
    const std::int64_t most = s.pieces.most.positions(), all_rows = s.tile_rows + simd_implicit_gemm::kRows;
    planes = parts.take<float>(s.in_place ? 0 : copies_floats(s.pieces, s.channels_of(s.tile_rows)));
    turned = parts.take<float>(checked_mul(most, width));
    sums = parts.take<float>(checked_mul(all_rows, width));
    totals = parts.take<float>(s.pieces.count() <= s.chain ? 0 : checked_mul(all_rows, width));
    rows = parts.take<std::int64_t>(all_rows);
    positions = parts.take<std::int64_t>(most);
    bytes = parts.bytes();
  }
};

template <Operands operands>
Refusal supports(const OpDesc& d) {
  const Shape& w = d.inputs[kWeight].shape;
  if (operands == Operands::kBfloat16 && winograd::refuse(d, kWeight, d.inputs[kInput].shape, d.inputs[kGradient].shape) == nullptr)
    return winograd::kIsFaster;
  return refuse_product(d, kWeight, operands, w.rank() == 0 ? 0 : w[0] / attr_int(*d.node, ConvAttr::kGroup));
}

// Rows of a tile, however many threads there are.
std::int64_t most_rows(const WeightGradientState& s) { return std::min(s.depth, kMostSums / std::min(s.outputs, kMostOutputs)); }

void choose_tiles(WeightGradientState* s, std::uint32_t threads, double flops) {
  const std::int64_t lanes = simd_implicit_gemm::loops(s->isa).lanes;
  const auto cut = [&](std::int64_t outputs, std::int64_t rows) {
    s->output_tiles = ceil_div(s->outputs, outputs);
    s->tile_outputs = std::min(s->outputs, round_up(ceil_div(s->outputs, s->output_tiles), lanes));
    s->output_tiles = ceil_div(s->outputs, s->tile_outputs);
    s->row_tiles = ceil_div(s->depth, rows);
    s->tile_rows = ceil_div(s->depth, s->row_tiles);
  };
  std::int64_t outputs = std::min(s->outputs, kMostOutputs);
  std::int64_t rows = most_rows(*s);
  cut(outputs, rows);
  // The sums do not depend on the tiles.
  const double wanted = threads < 2 ? 1 : std::min(2.0 * threads, flops / (2 * kTileCost));
  while (static_cast<double>(s->groups * s->output_tiles * s->row_tiles) < wanted) {
    if (outputs > 4 * kFewOutputs || (rows <= 8 * kFewRows && outputs > kFewOutputs)) {
      outputs = ceil_div(outputs, std::int64_t{2});
    } else if (rows > kFewRows) {
      rows = ceil_div(rows, std::int64_t{2});
    } else {
      break;
    }
    cut(outputs, rows);
  }
}

template <Operands operands>
void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<WeightGradientState>();
  s.operands = operands;
  const Shape &w = d.inputs[kWeight].shape, &x = d.inputs[kInput].shape;
  s.isa = cpu_isa();
  s.axes = PlaneAxes(conv_window(*d.node, x, w));
  const WindowAxis &v = s.axes.v, &h = s.axes.h;
  s.groups = attr_int(*d.node, ConvAttr::kGroup);
  s.channels = checked_mul(w[1], s.axes.z.kernel);
  s.outputs = w[0] / s.groups;
  s.depth = checked_mul(s.channels, s.taps());
  s.out_plane = checked_mul(v.output, h.output);
  p->flops = 2.0 * static_cast<double>(s.depth) * static_cast<double>(d.inputs[kGradient].shape.elements());
  p->bytes = bytes_of(d);
  p->tiles = 0;
  if (w.elements() == 0) return;
  choose_tiles(&s, d.threads, p->flops);
  const AxisView view_v{v.stride, v.extent()}, view_h{h.stride, h.extent()};
  const auto inside = [](const WindowAxis& a) { return a.pad_begin == 0 && (a.output - 1) * a.stride + a.extent() <= a.input; };
  const WindowAxis& z = s.axes.z;
  s.in_place = operands == Operands::kFloat32 && inside(v) && inside(h) && z.input == 1 && z.output == 1 && z.kernel == 1;
  s.images = checked_mul(x[0], z.output);
  s.pieces = cut_into_pieces({words_of(operands, s.images), v.output, h.output, view_v, view_h},
                             s.in_place ? 1 : s.channels_of(most_rows(s)));
  s.chain = std::max<std::int64_t>(1, words_of(operands, kChain) / s.pieces.most.positions());
  p->tiles = checked_mul(checked_mul(s.groups, s.output_tiles), s.row_tiles);
  p->thread_scratch_bytes = static_cast<std::size_t>(Parts(s, nullptr).bytes);
}

class Tile {
 public:
  Tile(const KernelArgs& args, CancelPoints* points)
      : args_(args),
        s_(args.plan->state<WeightGradientState>()),
        loops_(product_loops(s_.isa, s_.operands)),
        parts_(s_, args.thread_scratch),
        points_(points) {}

  void run(std::int64_t index) {
    const std::int64_t row_tile = index % s_.row_tiles, output_tile = index / s_.row_tiles % s_.output_tiles;
    group_ = index / s_.row_tiles / s_.output_tiles;
    row_ = row_tile * s_.tile_rows;
    rows_ = std::min(s_.tile_rows, s_.depth - row_);
    output_ = output_tile * s_.tile_outputs;
    outputs_ = std::min(s_.tile_outputs, s_.outputs - output_);
    width_ = round_up(outputs_, loops_.lanes);
    if (!sum_up()) return;
    if (stops(points_, rows_ * outputs_)) return;
    float* const to = args_.out<float>() + (group_ * s_.outputs + output_) * s_.depth + row_;
    simd_transpose::loops(s_.isa).transpose(totals_of(), width_, rows_, outputs_, to, s_.depth);
    const Epilogue* const epilogue = epilogue_of(*args_.desc);
    for (std::int64_t m = 0; epilogue != nullptr && m < outputs_; ++m) {
      chain_long(s_.isa, to + m * s_.depth, rows_, epilogue, points_);
    }
  }

 private:
  const KernelArgs& args_;
  const WeightGradientState& s_;
  const simd_implicit_gemm::Loops& loops_;
  const Parts parts_;
  CancelPoints* const points_;
  std::int64_t group_ = 0, row_ = 0, rows_ = 0, output_ = 0, outputs_ = 0, width_ = 0;

  float* totals_of() const { return s_.pieces.count() <= s_.chain ? parts_.sums : parts_.totals; }

  // All products of the tile. Returns false if the run is to stop.
  bool sum_up() {
    const std::int64_t pieces = s_.pieces.count(), floats = rows_ * width_;
    if (pieces == 0) return fill_by_parts(points_, parts_.sums, floats, 0.0f);
    for (std::int64_t i = 0; i < pieces; ++i) {
      add(s_.pieces.at(i), i % s_.chain != 0);
      if (points_->stopped) return false;
      if (pieces <= s_.chain || (i + 1 < pieces && (i + 1) % s_.chain != 0)) continue;
      if (stops(points_, 2 * floats)) return false;
      if (i < s_.chain) {
        std::copy_n(parts_.sums, floats, parts_.totals);
      } else {
        simd_elementwise::loops(s_.isa).binary(simd_elementwise::Binary::kAdd, parts_.totals, 1, parts_.sums, 1, parts_.totals,
                                               floats, {1, 0, 0, 0}, false, nullptr);
      }
    }
    return true;
  }

  void add(const Piece& piece, bool goes_on) {
    const WindowAxis &v = s_.axes.v, &h = s_.axes.h;
    const std::int64_t taps = s_.taps(), channel = row_ / taps, channels = (row_ + rows_ - 1) / taps + 1 - channel;
    const std::int64_t in_plane = v.input * h.input, all_channels = s_.groups * s_.channels;
    const float* x = parts_.planes;
    PlaneSteps steps{all_channels * in_plane, in_plane, h.input};
    if (s_.in_place) {
      x = args_.in<float>(kInput) + (piece.image * all_channels + group_ * s_.channels + channel) * in_plane +
          piece.row * v.stride * h.input + piece.column * h.stride;
    } else {
      steps = PlaneSteps::of_copies(s_.pieces, piece.rows, piece.columns, channels);
      copy_planes(piece, channel, channels, steps);
    }
    for (std::int64_t r = 0; r < rows_ + simd_implicit_gemm::kRows; ++r) {
      const std::int64_t row = row_ + std::min(r, rows_ - 1), tap = row % taps;
      parts_.rows[r] = steps.at(row / taps - channel, tap / h.kernel * v.dilation, tap % h.kernel * h.dilation);
    }
    list_positions(s_.pieces, piece, steps, parts_.positions);
    turn_gradient(piece);
    if (points_->stopped) return;
    loops_.run({rows_, outputs_, piece.positions(), x, parts_.rows, parts_.positions, parts_.turned, parts_.sums, width_, goes_on,
                points_});
  }

  void copy_planes(const Piece& piece, std::int64_t channel, std::int64_t channels, const PlaneSteps& steps) {
    const WindowAxis &v = s_.axes.v, &h = s_.axes.h;
    const simd_implicit_gemm::Cut cut{v.input,
                                      h.input,
                                      piece.row * v.stride - v.pad_begin,
                                      s_.pieces.v.length(piece.rows),
                                      piece.column * h.stride - h.pad_begin,
                                      steps.row};
    const std::int64_t group = s_.channels / s_.axes.z.kernel * s_.axes.z.input * v.input * h.input;
    evn::copy_planes(s_.isa, Slices::of(s_.axes.z),
                     {s_.operands, true, s_.images, cut, args_.in<float>(kInput) + group_ * group, s_.groups * group, piece.image,
                      piece.images, channel, channels},
                     steps, parts_.planes, points_);
  }

  // The gradient of the output in panels of output channels, a row for each position.
  void turn_gradient(const Piece& piece) {
    const std::int64_t here = piece.rows * piece.columns, all = piece.positions();
    const std::int64_t slices = s_.axes.z.output, step = slices * s_.out_plane;
    const float* const from =
        args_.in<float>(kGradient) + (group_ * s_.outputs + output_) * step + piece.row * s_.axes.h.output + piece.column;
    simd_implicit_gemm::for_each_panel(loops_.lanes, loops_.panel_vectors, outputs_, [&](std::int64_t m, std::int64_t count) {
      const std::int64_t width = round_up(count, loops_.lanes);
      float* to = parts_.turned + m * all;
      if (count < width && !fill_by_parts(points_, to, all * width, 0.0f)) return;
      const auto image = [&](std::int64_t i) {
        return i >= s_.images ? nullptr : from + (i / slices * s_.groups * s_.outputs + m) * step + i % slices * s_.out_plane;
      };
      for (std::int64_t i = piece.image; i < piece.image + piece.images; ++i, to += here * width) {
        if (stops(points_, here * width)) return;
        if (s_.operands == Operands::kBfloat16) {
          loops_.turn_words({image(2 * i), image(2 * i + 1), step, count, here, width}, to, points_);
        } else {
          simd_transpose::loops(s_.isa).transpose(image(i), step, count, here, to, width);
        }
      }
    });
    round_floats(s_.isa, s_.operands, parts_.turned, all * width_, points_);
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
          .op = kConvWeightGradient,
          .domain = kInternalDomain,
          .rank = rank,
          .supports = supports<operands>,
          .plan = plan<operands>,
          .run = run,
          .takes_empty = true,
          .operands = precision};
}
constexpr Kernel kKernels[] = {
    kernel<Operands::kFloat32>("conv_weight_gradient", 10, Precision::kFloat32),
    kernel<Operands::kBfloat16>("conv_weight_gradient_bf16", 34, Precision::kBfloat16),
    kernel<Operands::kFloat16>("conv_weight_gradient_half", 35, Precision::kFloat16Operands),
};

}  // namespace

extern const KernelFamily conv_weight_gradient_kernels;
const KernelFamily conv_weight_gradient_kernels = {kKernels};

}  // namespace evn
