// The derivatives of a depthwise Conv (one filter for each channel) over one or two spatial axes, plane by plane. Of its input:
// each phase of the strides is a sum of shifted copies of the gradient's plane. Of its weight: each tap is a dot product of the
// gradient's plane and a shifted copy of the input's, whose columns are dealt out by the stride so that they lie side by side.
#include <algorithm>

#include "backends/cpu/conv_gradient/conv_pieces.h"
#include "backends/cpu/conv_gradient/shifted_planes_loops.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"
#include "ops/gradient.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr std::int64_t kPositions = 1 << 12;  // of a piece of a plane, at most
constexpr double kMoved = 8;                  // multiply-adds in the time that a copied element takes

struct DepthwiseState {
  Isa isa;
  PhaseAxis v, h;
  Pieces pieces;  // of a plane
  std::int64_t images, channels;
  std::int64_t per_tile;  // planes, or channels over all images

  std::int64_t taps() const { return v.a.kernel * h.a.kernel; }
  std::int64_t padded_taps() const { return round_up(taps(), simd_shifted_planes::kTaps); }
  // Whether some tap of a line is of the phase.
  bool has_columns(std::int64_t phase) const {
    for (std::int64_t x = 0; x < h.a.kernel; ++x) {
      if (h.phase(x) == phase) return true;
    }
    return false;
  }
};

Refusal supports(const OpDesc& d, int weight) {
  if (const Refusal refusal = refuse_product(d, weight)) return refusal;
  const Shape& w = d.inputs[static_cast<std::size_t>(weight)].shape;
  if (w.rank() == 5) return "only one or two spatial axes";
  return w[1] != 1 || w[0] != attr_int(*d.node, ConvAttr::kGroup) ? "only one filter for each channel" : nullptr;
}

// Returns false where there is nothing to do.
bool plan_common(const OpDesc& d, const Shape& x, const Shape& w, KernelPlan* p) {
  auto& s = p->state<DepthwiseState>();
  s.isa = cpu_isa();
  const PlaneAxes axes(conv_window(*d.node, x, w));
  s.v = {axes.v};
  s.h = {axes.h};
  s.images = x[0];
  s.channels = x[1];
  p->flops = 2.0 * static_cast<double>(s.taps()) * static_cast<double>(d.inputs[2].shape.elements());
  p->bytes = bytes_of(d);
  p->tiles = 0;
  return d.outputs[0].shape.elements() > 0;
}

// --------------------------------------------------------------------------------------------- of the input --

enum : int { kWeight = 1, kGradient = 2 };

struct InputParts {
  float *plane, *weights, *sums;
  std::int64_t* offsets;  // of the taps, phase by phase
  std::int64_t* order;    // of the taps
  std::int64_t bytes;

  InputParts(const DepthwiseState& s, void* memory) {
    ScratchParts parts(memory);
    const std::int64_t floats = copies_floats(s.pieces, 1);
    plane = parts.take<float>(floats);
    sums = parts.take<float>(floats);
    weights = parts.take<float>(s.taps());
    offsets = parts.take<std::int64_t>(s.taps());
    order = parts.take<std::int64_t>(s.taps());
    bytes = parts.bytes();
  }
};

Refusal input_supports(const OpDesc& d) { return supports(d, 1); }

void input_plan(const OpDesc& d, KernelPlan* p) {
  if (!plan_common(d, d.inputs[0].shape, d.inputs[1].shape, p)) return;
  auto& s = p->state<DepthwiseState>();
  s.pieces = cut_into_pieces({1, s.v.count(), s.h.count(), {1, s.v.most_back() + 1}, {1, s.h.most_back() + 1}}, 1, kPositions);
  const std::int64_t planes = checked_mul(s.images, s.channels);
  const double plane = static_cast<double>(s.v.a.input * s.h.a.input) * (static_cast<double>(s.taps()) + 2 * kMoved);
  s.per_tile = units_per_tile(std::max<std::int64_t>(1, planes / kManyTiles), plane);
  p->tiles = ceil_div(planes, s.per_tile);
  p->thread_scratch_bytes = static_cast<std::size_t>(InputParts(s, nullptr).bytes);
}

class InputTile {
 public:
  InputTile(const KernelArgs& args, CancelPoints* points)
      : args_(args), s_(args.plan->state<DepthwiseState>()), parts_(s_, args.thread_scratch), points_(points) {}

  void run(std::int64_t index) {
    const std::int64_t begin = index * s_.per_tile, end = std::min(begin + s_.per_tile, s_.images * s_.channels);
    for (std::int64_t i = 0; i < s_.pieces.count(); ++i) {
      piece_ = s_.pieces.at(i);
      width_ = s_.pieces.h.length(piece_.columns);
      list_taps();
      for (std::int64_t plane = begin; plane < end && !points_->stopped; ++plane) run_plane(plane);
    }
    const std::int64_t floats = s_.v.a.input * s_.h.a.input;
    const Epilogue* const epilogue = epilogue_of(*args_.desc);
    if (epilogue != nullptr) chain_long(s_.isa, args_.out<float>() + begin * floats, (end - begin) * floats, epilogue, points_);
  }

 private:
  const KernelArgs& args_;
  const DepthwiseState& s_;
  const InputParts parts_;
  CancelPoints* const points_;
  Piece piece_ = {};
  std::int64_t width_ = 0;  // of a line of the copy

  template <typename F>
  void for_each_phase(F&& f) const {
    for (std::int64_t v = 0; v < s_.v.a.stride; ++v) {
      for (std::int64_t h = 0; h < s_.h.a.stride; ++h) f(v, h);
    }
  }

  void list_taps() {
    std::int64_t n = 0;
    for_each_phase([&](std::int64_t v, std::int64_t h) {
      for (std::int64_t t = 0; t < s_.taps(); ++t) {
        const std::int64_t y = t / s_.h.a.kernel, x = t % s_.h.a.kernel;
        if (s_.v.phase(y) != v || s_.h.phase(x) != h) continue;
        parts_.order[n] = t;
        parts_.offsets[n++] = (s_.v.most_back() - s_.v.back(y)) * width_ + s_.h.most_back() - s_.h.back(x);
      }
    });
  }

  void run_plane(std::int64_t plane) {
    const WindowAxis &v = s_.v.a, &h = s_.h.a;
    const std::int64_t row = s_.v.first() + piece_.row, column = s_.h.first() + piece_.column;
    simd_implicit_gemm::loops(s_.isa).cut(
        {v.output, h.output, row - s_.v.most_back(), s_.pieces.v.length(piece_.rows), column - s_.h.most_back(), width_},
        args_.in<float>(kGradient) + plane * v.output * h.output, parts_.plane, points_);
    const float* const filter = args_.in<float>(kWeight) + plane % s_.channels * s_.taps();
    for (std::int64_t t = 0; t < s_.taps(); ++t) parts_.weights[t] = filter[parts_.order[t]];
    float* const to = args_.out<float>() + plane * v.input * h.input;
    std::int64_t begin = 0;
    for_each_phase([&](std::int64_t phase_v, std::int64_t phase_h) {
      std::int64_t end = begin;
      const auto is_here = [&](std::int64_t t) {
        return s_.v.phase(t / h.kernel) == phase_v && s_.h.phase(t % h.kernel) == phase_h;
      };
      while (end < s_.taps() && is_here(parts_.order[end])) ++end;
      if (points_->stopped) return;
      simd_shifted_planes::loops(s_.isa).sum({parts_.plane, parts_.offsets + begin, parts_.weights + begin, 1, end - begin,
                                              (piece_.rows - 1) * width_ + piece_.columns, nullptr, parts_.sums, 0, points_});
      put(phase_v, phase_h, to);
      begin = end;
    });
  }

  void put(std::int64_t phase_v, std::int64_t phase_h, float* to) {
    const WindowAxis& h = s_.h.a;
    const std::int64_t row = s_.v.first() + piece_.row, column = s_.h.first() + piece_.column;
    const std::int64_t rows = std::min(row + piece_.rows, s_.v.end(phase_v));
    const std::int64_t first = std::max(column, s_.h.begin(phase_h));
    const std::int64_t columns = std::min(column + piece_.columns, s_.h.end(phase_h)) - first;
    if (columns <= 0) return;
    const std::int64_t top = std::max(row, s_.v.begin(phase_v));
    simd_implicit_gemm::loops(s_.isa).spread({rows - top, columns, width_, s_.v.a.stride * h.input, h.stride},
                                             parts_.sums + (top - row) * width_ + first - column,
                                             to + s_.v.input(top, phase_v) * h.input + s_.h.input(first, phase_h), points_);
  }
};

void input_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  CancelPoints points = points_of(cancel);
  InputTile tile(args, &points);
  for (std::int64_t i = begin; i < end && !cancel.stop() && !points.stopped; ++i) tile.run(i);
}

// -------------------------------------------------------------------------------------------- of the weight --

struct WeightParts {
  float *planes, *sums;  // a plane for each phase of the columns
  std::int64_t* offsets;
  std::int64_t bytes;

  WeightParts(const DepthwiseState& s, void* memory) {
    ScratchParts parts(memory);
    planes = parts.take<float>(checked_mul(copies_floats(s.pieces, 1), s.h.a.stride));
    sums = parts.take<float>(
        checked_mul(checked_mul(s.per_tile, s.padded_taps()), std::int64_t{simd_shifted_planes::loops(s.isa).lanes}));
    offsets = parts.take<std::int64_t>(s.padded_taps());
    bytes = parts.bytes();
  }
};

Refusal weight_supports(const OpDesc& d) { return supports(d, 0); }

void weight_plan(const OpDesc& d, KernelPlan* p) {
  if (!plan_common(d, d.inputs[1].shape, d.inputs[0].shape, p)) return;
  auto& s = p->state<DepthwiseState>();
  const WindowAxis &v = s.v.a, &h = s.h.a;
  s.pieces = cut_into_pieces({1, v.output, h.output, {v.stride, v.extent()}, {1, s.h.most_back() + 1}}, 1, kPositions);
  const double plane = static_cast<double>(v.input * h.input) * kMoved +
                       static_cast<double>(v.output * h.output) * static_cast<double>(s.padded_taps());
  s.per_tile = units_per_tile(std::max<std::int64_t>(1, s.channels / kManyTiles), plane * static_cast<double>(s.images));
  p->tiles = ceil_div(s.channels, s.per_tile);
  p->thread_scratch_bytes = static_cast<std::size_t>(WeightParts(s, nullptr).bytes);
}

class WeightTile {
 public:
  WeightTile(const KernelArgs& args, CancelPoints* points)
      : args_(args),
        s_(args.plan->state<DepthwiseState>()),
        loops_(simd_shifted_planes::loops(s_.isa)),
        parts_(s_, args.thread_scratch),
        points_(points) {}

  void run(std::int64_t index) {
    const std::int64_t begin = index * s_.per_tile, end = std::min(begin + s_.per_tile, s_.channels);
    const std::int64_t floats = s_.padded_taps() * loops_.lanes;  // of the sums of a channel
    if (!fill_by_parts(points_, parts_.sums, (end - begin) * floats, 0.0f)) return;
    for (std::int64_t i = 0; i < s_.pieces.count(); ++i) {
      piece_ = s_.pieces.at(i);
      const PlaneSteps steps = PlaneSteps::of_copies(s_.pieces, piece_.rows, piece_.columns, 1);
      for (std::int64_t t = 0; t < s_.padded_taps(); ++t) {
        const std::int64_t tap = std::min(t, s_.taps() - 1), y = tap / s_.h.a.kernel, x = tap % s_.h.a.kernel;
        parts_.offsets[t] = steps.at(s_.h.phase(x), y * s_.v.a.dilation, s_.h.back(x));
      }
      for (std::int64_t c = begin; c < end; ++c) {
        for (std::int64_t n = 0; n < s_.images && !points_->stopped; ++n) {
          add(n * s_.channels + c, steps, parts_.sums + (c - begin) * floats);
        }
      }
    }
    for (std::int64_t c = begin; c < end; ++c) {
      if (stops(points_, 16 * floats)) return;
      loops_.sum_lanes(parts_.sums + (c - begin) * floats, s_.taps(), args_.out<float>() + c * s_.taps());
    }
    const Epilogue* const epilogue = epilogue_of(*args_.desc);
    if (epilogue == nullptr) return;
    chain_long(s_.isa, args_.out<float>() + begin * s_.taps(), (end - begin) * s_.taps(), epilogue, points_);
  }

 private:
  const KernelArgs& args_;
  const DepthwiseState& s_;
  const simd_shifted_planes::Loops& loops_;
  const WeightParts parts_;
  CancelPoints* const points_;
  Piece piece_ = {};

  void add(std::int64_t plane, const PlaneSteps& steps, float* sums) {
    const WindowAxis &v = s_.v.a, &h = s_.h.a;
    const float* const x = args_.in<float>(1) + plane * v.input * h.input;
    for (std::int64_t phase = 0; phase < h.stride; ++phase) {
      if (!s_.has_columns(phase) || points_->stopped) continue;
      simd_implicit_gemm::loops(s_.isa).cut({v.input, h.input, piece_.row * v.stride - v.pad_begin, s_.pieces.v.length(piece_.rows),
                                             piece_.column * h.stride - h.pad_begin + phase, steps.row, h.stride},
                                            x, parts_.planes + phase * steps.plane, points_);
    }
    if (points_->stopped) return;
    const float* const y = args_.in<float>(kGradient) + (plane * v.output + piece_.row) * h.output + piece_.column;
    loops_.dots(
        {parts_.planes, parts_.offsets, s_.taps(), v.stride * steps.row, y, h.output, piece_.rows, piece_.columns, sums, points_});
  }
};

void weight_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  CancelPoints points = points_of(cancel);
  WeightTile tile(args, &points);
  for (std::int64_t i = begin; i < end && !cancel.stop() && !points.stopped; ++i) tile.run(i);
}

constexpr Kernel kKernels[] = {
    {.name = "conv_input_gradient_depthwise",
     .op = kConvInputGradient,
     .domain = kInternalDomain,
     .rank = 20,
     .supports = input_supports,
     .plan = input_plan,
     .run = input_run,
     .takes_empty = true},
    {.name = "conv_weight_gradient_depthwise",
     .op = kConvWeightGradient,
     .domain = kInternalDomain,
     .rank = 20,
     .supports = weight_supports,
     .plan = weight_plan,
     .run = weight_run,
     .takes_empty = true},
};

}  // namespace

extern const KernelFamily depthwise_gradient_kernels;
const KernelFamily depthwise_gradient_kernels = {kKernels};

}  // namespace evn
