// The derivative of a Conv by its input, over one to three spatial axes, any group: a convolution of the gradient of the output
// with the filters turned around, one for each phase of the strides, that is for the positions of the input which the same taps
// reach. A tile is some pieces of the positions by some input channels of one group. A ConvTranspose by a weight that is computed,
// as in training, is the same: its input is the gradient, its output the derivative.
#include <algorithm>

#include "backends/cpu/conv_gradient/conv_pieces.h"
#include "backends/cpu/conv_gradient/winograd_plan.h"
#include "backends/cpu/move/transpose_loops.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"
#include "ops/conv_transpose.h"
#include "ops/gradient.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr int kWeight = 1, kTransposedBias = 2;

struct InputGradientState {
  Isa isa;
  Operands operands;
  int gradient;  // which input it is
  WindowAxis z;
  PhaseAxis v, h;
  Pieces pieces;
  std::int64_t groups, channels, outputs;  // of a group: of the input, and of the output's planes (Slices)
  std::int64_t planes, depth;              // outputs in words; planes by taps
  ProductTiles tiles;

  std::int64_t taps() const { return v.a.kernel * h.a.kernel; }
  bool has_empty_phases() const { return depth == 0 || v.has_empty_phases() || h.has_empty_phases(); }
  // Whether most of a vector of input channels would be empty, so that vectors run over positions.
  bool has_few_channels() const { return 2 * channels <= simd_implicit_gemm::loops(isa).lanes; }
  std::int64_t width() const { return round_up(tiles.columns, simd_implicit_gemm::loops(isa).lanes); }
};

struct Parts {
  float *planes, *weights, *filter, *sums, *turned;
  std::int64_t *rows, *depths;
  std::int64_t bytes;

  Parts(const InputGradientState& s, void* memory) {
    ScratchParts parts(memory);
    const std::int64_t most = s.pieces.most.positions() + simd_implicit_gemm::kRows;
    planes = parts.take<float>(copies_floats(s.pieces, s.planes));
    weights = parts.take<float>(checked_mul(s.depth, s.width()));
    filter = parts.take<float>(checked_mul(s.taps(), s.width()));
    const std::int64_t lines = copies_floats(s.pieces, 1) * simd_shifted_planes::kOutputs;  // of few channels
    sums = parts.take<float>(s.has_few_channels() ? lines : checked_mul(most, s.width()));
    turned = parts.take<float>(checked_mul(most, s.width()));
    rows = parts.take<std::int64_t>(most);
    depths = parts.take<std::int64_t>(s.depth);
    bytes = parts.bytes();
  }
};

// `window` is of the convolution that is turned around.
void plan_product(const OpDesc& d, const Window& window, int gradient, Operands operands, KernelPlan* p) {
  auto& s = p->state<InputGradientState>();
  s.operands = operands;
  const Shape &w = d.inputs[kWeight].shape, &x = d.outputs[0].shape;
  s.isa = cpu_isa();
  s.gradient = gradient;
  const PlaneAxes axes(window);
  s.z = axes.z;
  s.v = {axes.v};
  s.h = {axes.h};
  s.groups = attr_int(*d.node, ConvAttr::kGroup);
  s.channels = w[1];
  s.outputs = checked_mul(w[0] / s.groups, s.z.kernel);
  s.planes = words_of(operands, s.outputs);
  s.depth = checked_mul(s.planes, s.taps());
  p->flops = 2.0 * static_cast<double>(checked_mul(checked_mul(s.channels, s.z.kernel), s.taps())) *
             static_cast<double>(d.inputs[static_cast<std::size_t>(gradient)].shape.elements());
  p->bytes = bytes_of(d);
  p->tiles = 0;
  if (x.elements() == 0) return;
  s.pieces = cut_into_pieces(
      {checked_mul(x[0], s.z.input), s.v.count(), s.h.count(), {1, s.v.most_back() + 1}, {1, s.h.most_back() + 1}}, s.planes);
  s.tiles = tile_product(s.isa, s.pieces, {s.channels, s.depth, s.groups, d.threads, p->flops});
  p->tiles = checked_mul(checked_mul(s.groups, s.tiles.column_tiles), s.tiles.piece_tiles);
  p->thread_scratch_bytes = static_cast<std::size_t>(Parts(s, nullptr).bytes);
}

template <Operands operands>
Refusal any_supports(const OpDesc& d) {
  const Shape& w = d.inputs[kWeight].shape;
  return refuse_product(d, kWeight, operands, w.rank() < 2 ? 0 : w[1]);
}
template <Operands operands>
Refusal supports(const OpDesc& d) {
  if (operands == Operands::kBfloat16 && winograd::refuse(d, kWeight, d.outputs[0].shape, d.inputs[2].shape) == nullptr)
    return winograd::kIsFaster;
  return any_supports<operands>(d);
}
template <Operands operands>
void plan(const OpDesc& d, KernelPlan* p) {
  plan_product(d, conv_window(*d.node, d.inputs[0].shape, d.inputs[kWeight].shape), 2, operands, p);
}

template <Operands operands>
Refusal transposed_supports(const OpDesc& d) {
  static_assert(static_cast<int>(ConvAttr::kStrides) == static_cast<int>(ConvTransposeAttr::kStrides) &&
                static_cast<int>(ConvAttr::kDilations) == static_cast<int>(ConvTransposeAttr::kDilations) &&
                static_cast<int>(ConvAttr::kGroup) == static_cast<int>(ConvTransposeAttr::kGroup));
  if (const Refusal refusal = any_supports<operands>(d)) return refusal;
  return d.constant(kWeight) != nullptr ? "the weight is constant" : nullptr;
}
template <Operands operands>
void transposed_plan(const OpDesc& d, KernelPlan* p) {
  Window window = conv_transpose_window(*d.node, d.inputs[0].shape, d.inputs[kWeight].shape);
  for (WindowAxis& a : window.axis) std::swap(a.input, a.output);
  plan_product(d, window, 0, operands, p);
}

class Tile {
 public:
  Tile(const KernelArgs& args, CancelPoints* points)
      : args_(args),
        s_(args.plan->state<InputGradientState>()),
        loops_(simd_implicit_gemm::loops(s_.isa)),
        product_(product_loops(s_.isa, s_.operands)),
        parts_(s_, args.thread_scratch),
        points_(points) {}

  void run(std::int64_t index) {
    const std::int64_t block = index / s_.tiles.piece_tiles;
    if (block != block_) {
      block_ = block;
      group_ = block / s_.tiles.column_tiles;
      channel_ = block % s_.tiles.column_tiles * s_.tiles.columns;
      channels_ = std::min(s_.tiles.columns, s_.channels - channel_);
      width_ = round_up(channels_, loops_.lanes);
      const bool has_bias = s_.gradient == 0 && args_.desc->has_input(kTransposedBias);
      bias_ = has_bias ? args_.in<float>(kTransposedBias) + group_ * s_.channels + channel_ : nullptr;
      if (!pack_weights()) return;
    }
    const std::int64_t first = index % s_.tiles.piece_tiles * s_.tiles.pieces;
    for (std::int64_t i = first; i < std::min(first + s_.tiles.pieces, s_.pieces.count()); ++i) run_piece(s_.pieces.at(i));
  }

 private:
  const KernelArgs& args_;
  const InputGradientState& s_;
  const simd_implicit_gemm::Loops &loops_, &product_;
  const Parts parts_;
  CancelPoints* const points_;
  std::int64_t block_ = -1, group_ = 0, channel_ = 0, channels_ = 0, width_ = 0;
  const float* bias_ = nullptr;

  void run_piece(const Piece& piece) {
    const PlaneSteps steps = PlaneSteps::of_copies(s_.pieces, piece.rows, piece.columns, s_.planes);
    copy_planes(piece, steps);
    if (s_.has_empty_phases()) {
      for_each_part(piece, [&](float* to, std::int64_t count, std::int64_t c) {
        fill_by_parts(points_, to, count, bias_ == nullptr ? 0.0f : bias_[c]);
      });
    }
    std::int64_t depth = 0;
    for (std::int64_t v = 0; v < s_.v.a.stride; ++v) {
      for (std::int64_t h = 0; h < s_.h.a.stride; ++h) {
        if (points_->stopped) return;
        depth = run_phase(piece, steps, v, h, depth);
      }
    }
    const Epilogue* const epilogue = epilogue_of(*args_.desc);
    if (epilogue == nullptr) return;
    for_each_part(piece, [&](float* y, std::int64_t count, std::int64_t) { chain_long(s_.isa, y, count, epilogue, points_); });
  }

  template <typename F>
  void for_each_tap(std::int64_t phase_v, std::int64_t phase_h, F&& f) const {
    for (std::int64_t y = 0; y < s_.v.a.kernel; ++y) {
      if (s_.v.phase(y) != phase_v) continue;
      for (std::int64_t x = 0; x < s_.h.a.kernel; ++x) {
        if (s_.h.phase(x) == phase_h) f(y, x);
      }
    }
  }
  std::int64_t count_taps(std::int64_t phase_v, std::int64_t phase_h) const {
    std::int64_t n = 0;
    for_each_tap(phase_v, phase_h, [&](std::int64_t, std::int64_t) { ++n; });
    return n;
  }

  // For each phase a matrix of output channel and tap by input channel, in panels. Returns false if the run is to stop.
  bool pack_weights() {
    const std::int64_t taps = s_.taps();
    const simd_transpose::Loops& move = simd_transpose::loops(s_.isa);
    if (channels_ < width_ && !fill_by_parts(points_, parts_.weights, s_.depth * width_, 0.0f)) return false;
    const std::int64_t filter = taps * s_.z.kernel;  // floats of one, with all its slices
    const auto filter_at = [&](std::int64_t m) {
      return m >= s_.outputs
                 ? nullptr
                 : args_.in<float>(kWeight) + ((group_ * s_.outputs + m) / s_.z.kernel * s_.channels + channel_) * filter +
                       m % s_.z.kernel * taps;
    };
    const auto turn = [&](std::int64_t m, std::int64_t c, std::int64_t count, float* to, std::int64_t width) {
      if (s_.operands != Operands::kBfloat16) return move.transpose(filter_at(m) + c * filter, filter, count, taps, to, width);
      const float* const high = filter_at(2 * m + 1);
      product_.turn_words(
          {filter_at(2 * m) + c * filter, high == nullptr ? nullptr : high + c * filter, filter, count, taps, width}, to, points_);
    };
    for (std::int64_t m = 0; m < s_.planes; ++m) {
      if (stops(points_, 4 * taps * width_)) return false;
      if (s_.v.a.stride == 1 && s_.h.a.stride == 1) {
        simd_implicit_gemm::for_each_panel(loops_.lanes, loops_.panel_vectors, channels_, [&](std::int64_t c, std::int64_t count) {
          const std::int64_t width = round_up(count, loops_.lanes);
          turn(m, c, count, parts_.weights + c * s_.depth + m * taps * width, width);
        });
        continue;
      }
      turn(m, 0, channels_, parts_.filter, width_);
      deal_out_filter(m);
    }
    return round_floats(s_.isa, s_.operands, parts_.weights, s_.depth * width_, points_);
  }

  // The taps of a turned filter, each to the matrix of its phase.
  void deal_out_filter(std::int64_t m) {
    float* matrix = parts_.weights;
    for (std::int64_t v = 0; v < s_.v.a.stride; ++v) {
      for (std::int64_t h = 0; h < s_.h.a.stride; ++h) {
        const std::int64_t taps = count_taps(v, h);
        std::int64_t k = m * taps;
        for_each_tap(v, h, [&](std::int64_t y, std::int64_t x) {
          const float* const from = parts_.filter + (y * s_.h.a.kernel + x) * width_;
          simd_implicit_gemm::for_each_panel(loops_.lanes, loops_.panel_vectors, channels_,
                                             [&](std::int64_t c, std::int64_t count) {
                                               const std::int64_t width = round_up(count, loops_.lanes);
                                               std::copy_n(from + c, count, matrix + c * s_.planes * taps + k * width);
                                             });
          ++k;
        });
        matrix += s_.planes * taps * width_;
      }
    }
  }

  // Calls f(begin, count, channel of the tile) for the parts of the result that are the piece's, until the run is to stop.
  template <typename F>
  void for_each_part(const Piece& piece, F&& f) const {
    const WindowAxis &v = s_.v.a, &h = s_.h.a;
    const std::int64_t row = s_.v.first() + piece.row, column = s_.h.first() + piece.column;
    const std::int64_t top = std::max<std::int64_t>(0, s_.v.input(row, 0));
    const std::int64_t left = std::max<std::int64_t>(0, s_.h.input(column, 0));
    const std::int64_t rows = std::min(v.input, s_.v.input(row + piece.rows, 0)) - top;
    const std::int64_t columns = std::min(h.input, s_.h.input(column + piece.columns, 0)) - left;
    const std::int64_t at_once = columns == h.input ? rows : 1;  // lines
    for (std::int64_t i = 0; i < piece.images; ++i) {
      for (std::int64_t c = 0; c < channels_; ++c) {
        float* const to = plane_of(piece.image + i, c) + top * h.input + left;
        for (std::int64_t y = 0; y < rows && !points_->stopped; y += at_once) f(to + y * h.input, at_once * columns, c);
      }
    }
  }

  float* plane_of(std::int64_t image, std::int64_t channel) const {
    const std::int64_t plane = s_.v.a.input * s_.h.a.input, volume = image / s_.z.input, slice = image % s_.z.input;
    return args_.out<float>() + (((volume * s_.groups + group_) * s_.channels + channel_ + channel) * s_.z.input + slice) * plane;
  }

  void copy_planes(const Piece& piece, const PlaneSteps& steps) {
    const WindowAxis &v = s_.v.a, &h = s_.h.a;
    const simd_implicit_gemm::Cut cut{v.output,
                                      h.output,
                                      s_.v.first() + piece.row - s_.v.most_back(),
                                      s_.pieces.v.length(piece.rows),
                                      s_.h.first() + piece.column - s_.h.most_back(),
                                      steps.row};
    const std::int64_t group = s_.outputs / s_.z.kernel * s_.z.output * v.output * h.output;
    evn::copy_planes(s_.isa, Slices::back_of(s_.z),
                     {s_.operands, false, s_.outputs, cut, args_.in<float>(s_.gradient) + group_ * group, s_.groups * group,
                      piece.image, piece.images, 0, s_.planes},
                     steps, parts_.planes, points_);
  }

  // The positions of one phase, whose matrix of weights begins at row `depth`. Returns where the next one's begins.
  std::int64_t run_phase(const Piece& piece, const PlaneSteps& steps, std::int64_t phase_v, std::int64_t phase_h,
                         std::int64_t depth) {
    const std::int64_t row = s_.v.first() + piece.row, column = s_.h.first() + piece.column;
    const std::int64_t k = s_.planes * count_taps(phase_v, phase_h);
    Piece own = piece;  // in positions of the phase
    own.row = std::max(row, s_.v.begin(phase_v));
    own.rows = std::min(row + piece.rows, s_.v.end(phase_v)) - own.row;
    own.column = std::max(column, s_.h.begin(phase_h));
    own.columns = std::min(column + piece.columns, s_.h.end(phase_h)) - own.column;
    if (k == 0 || own.rows <= 0 || own.columns <= 0) return depth + k;
    std::int64_t* to = parts_.depths;
    for (std::int64_t m = 0; m < s_.planes; ++m) {
      for_each_tap(phase_v, phase_h, [&](std::int64_t y, std::int64_t x) {
        *to++ = steps.at(m, own.row - row + s_.v.most_back() - s_.v.back(y), own.column - column + s_.h.most_back() - s_.h.back(x));
      });
    }
    if (s_.has_few_channels()) {
      for (std::int64_t i = 0; i < own.images; ++i) sum_few(own, i, steps, depth, phase_v, phase_h);
      return depth + k;
    }
    list_positions(s_.pieces, own, steps, parts_.rows);
    const std::int64_t count = own.positions();
    std::fill_n(parts_.rows + count, simd_implicit_gemm::kRows, std::int64_t{0});
    if (!start_sums(bias_, count, channels_, width_, parts_.sums, points_)) return depth + k;
    product_.run({count, channels_, k, parts_.planes, parts_.rows, parts_.depths, parts_.weights + depth * width_, parts_.sums,
                  width_, bias_ != nullptr, points_});
    if (!points_->stopped) put(own, phase_v, phase_h);
    return depth + k;
  }

  // One image of the positions of a phase, whose sums are lines as long as those of the copies.
  void sum_few(const Piece& own, std::int64_t image, const PlaneSteps& steps, std::int64_t depth, std::int64_t phase_v,
               std::int64_t phase_h) {
    const std::int64_t k = s_.outputs * count_taps(phase_v, phase_h);
    const std::int64_t first = s_.v.input(own.row, phase_v) * s_.h.a.input + s_.h.input(own.column, phase_h);
    run_few_columns(s_.isa,
                    {parts_.planes + image * steps.image, parts_.depths, k, parts_.weights + depth * width_, width_, channels_,
                     bias_, own.rows, own.columns, steps.row, parts_.sums, copies_floats(s_.pieces, 1)},
                    points_, [&](std::int64_t c, const float* sums) {
                      loops_.spread({own.rows, own.columns, steps.row, s_.v.a.stride * s_.h.a.input, s_.h.a.stride}, sums,
                                    plane_of(own.image + image, c) + first, points_);
                    });
  }

  // Turns the sums and puts them where the positions of the phase are in the input.
  void put(const Piece& own, std::int64_t phase_v, std::int64_t phase_h) {
    const WindowAxis &v = s_.v.a, &h = s_.h.a;
    const simd_transpose::Loops& move = simd_transpose::loops(s_.isa);
    const std::int64_t step = s_.z.input * v.input * h.input, here = own.rows * own.columns;
    for (std::int64_t i = 0; i < own.images; ++i) {
      if (stops(points_, 2 * here * width_)) return;
      const float* const from = parts_.sums + i * here * width_;
      float* const to = plane_of(own.image + i, 0) + s_.v.input(own.row, phase_v) * h.input + s_.h.input(own.column, phase_h);
      if (v.stride == 1 && h.stride == 1) {
        move.transpose(from, width_, here, channels_, to, step);
        continue;
      }
      move.transpose(from, width_, here, channels_, parts_.turned, here);
      for (std::int64_t c = 0; c < channels_; ++c) {
        loops_.spread({own.rows, own.columns, own.columns, v.stride * h.input, h.stride}, parts_.turned + c * here, to + c * step,
                      points_);
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
          .op = kConvInputGradient,
          .domain = kInternalDomain,
          .rank = rank,
          .supports = supports<operands>,
          .plan = plan<operands>,
          .run = run,
          .takes_empty = true,
          .operands = precision};
}
template <Operands operands>
constexpr Kernel transposed_kernel(const char* name, int rank, Precision precision) {
  return {.name = name,
          .op = "ConvTranspose",
          .rank = rank,
          .supports = transposed_supports<operands>,
          .plan = transposed_plan<operands>,
          .run = run,
          .operands = precision};
}
constexpr Kernel kKernels[] = {
    kernel<Operands::kFloat32>("conv_input_gradient", 10, Precision::kFloat32),
    kernel<Operands::kBfloat16>("conv_input_gradient_bf16", 34, Precision::kBfloat16),
    kernel<Operands::kFloat16>("conv_input_gradient_half", 35, Precision::kFloat16Operands),
    transposed_kernel<Operands::kFloat32>("conv_transpose_dynamic_weight", 5, Precision::kFloat32),
    transposed_kernel<Operands::kBfloat16>("conv_transpose_dynamic_weight_bf16", 34, Precision::kBfloat16),
    transposed_kernel<Operands::kFloat16>("conv_transpose_dynamic_weight_half", 35, Precision::kFloat16Operands),
};

}  // namespace

extern const KernelFamily conv_input_gradient_kernels;
const KernelFamily conv_input_gradient_kernels = {kKernels};

}  // namespace evn
