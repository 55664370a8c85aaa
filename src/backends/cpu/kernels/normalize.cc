// BatchNormalization (one multiply-add for each element), Softmax, LogSoftmax and LayerNormalization, float32.
#include <cmath>

#include "backends/cpu/simd/elementwise.h"
#include "backends/cpu/simd/rows.h"
#include "backends/cpu/support.h"
#include "ops/batch_norm.h"
#include "ops/layer_norm.h"
#include "ops/softmax.h"

namespace evn {
namespace {

constexpr std::int64_t kColumnsPerTile = 256;

// ----------------------------------------------------------------------------------------- BatchNormalization --

struct BatchNormState {
  Isa isa;
  std::int64_t channels, lines, line, per_tile;
};

Refusal batch_norm_supports(const OpDesc& d) {
  if (const char* reason = why_not_plain_batch_norm(*d.node)) return reason;
  return all_float32(d) ? nullptr : kNeedsFloat32;
}

void batch_norm_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<BatchNormState>();
  const Shape& x = d.inputs[0].shape;
  s.isa = cpu_isa();
  s.channels = x[1];
  s.lines = x.elements(0, 2);
  s.line = x.elements(2, x.rank());
  s.per_tile = units_per_tile(s.lines, static_cast<double>(s.line), kElementsPerTile);
  p->tiles = ceil_div(s.lines, s.per_tile);
  p->in_place = 1;
  p->flops = 2.0 * static_cast<double>(x.elements());
  p->bytes = bytes_of(d);
}

void batch_norm_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<BatchNormState>();
  const simd_elementwise::Loops& loops = simd_elementwise::loops(s.isa);
  const double epsilon = static_cast<double>(attr_float(*args.desc->node, BatchNormAttr::kEpsilon));
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t last = (index + 1) * s.per_tile < s.lines ? (index + 1) * s.per_tile : s.lines;
    for (std::int64_t line = index * s.per_tile; line < last; ++line) {
      const std::int64_t c = line % s.channels;
      const double scale = static_cast<double>(args.in<float>(BatchNormInput::kScale)[c]) /
                           std::sqrt(static_cast<double>(args.in<float>(BatchNormInput::kVariance)[c]) + epsilon);
      const double offset = static_cast<double>(args.in<float>(BatchNormInput::kBias)[c]) -
                            static_cast<double>(args.in<float>(BatchNormInput::kMean)[c]) * scale;
      loops.affine(static_cast<float>(scale), static_cast<float>(offset), args.in<float>(0) + line * s.line,
                   args.out<float>() + line * s.line, s.line, epilogue_of(*args.desc));
    }
  }
}

// ---------------------------------------------------------------------------------------------------- Softmax --

struct SoftmaxState {
  Isa isa;
  SoftmaxView view;
  std::int64_t lines, per_tile;  // inner 1: lines; else blocks of columns
};

Refusal softmax_supports(const OpDesc& d) { return all_float32(d) ? nullptr : kNeedsFloat32; }

Refusal log_softmax_supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  const int rank = d.inputs[0].shape.rank();
  const bool last_axis = rank > 0 && normalize_axis(attr_int(*d.node, SoftmaxAttr::kAxis), rank) == rank - 1;
  return last_axis || d.node->op->since < 13 ? nullptr : "only over the last axis";
}

void softmax_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<SoftmaxState>();
  s.isa = cpu_isa();
  s.view = softmax_view(*d.node, d.inputs[0].shape);
  s.lines = s.view.inner == 1 ? s.view.outer : checked_mul(s.view.outer, ceil_div(s.view.inner, kColumnsPerTile));
  const std::int64_t width = s.view.inner < kColumnsPerTile ? s.view.inner : kColumnsPerTile;
  s.per_tile = units_per_tile(s.lines, static_cast<double>(s.view.length) * static_cast<double>(width), kElementsPerTile / 2);
  p->tiles = ceil_div(s.lines, s.per_tile);
  p->in_place = 1;
  p->flops = 16.0 * static_cast<double>(d.inputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

template <bool Log>
void softmax_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<SoftmaxState>();
  const simd_rows::Loops& loops = simd_rows::loops(s.isa);
  const Epilogue* epilogue = epilogue_of(*args.desc);
  const std::int64_t blocks = ceil_div(s.view.inner, kColumnsPerTile);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t last = (index + 1) * s.per_tile < s.lines ? (index + 1) * s.per_tile : s.lines;
    for (std::int64_t line = index * s.per_tile; line < last; ++line) {
      if (s.view.inner == 1) {
        const std::int64_t at = line * s.view.length;
        loops.softmax(args.in<float>(0) + at, args.out<float>() + at, s.view.length, Log, epilogue);
      } else {
        const std::int64_t column = line % blocks * kColumnsPerTile;
        const std::int64_t at = line / blocks * s.view.length * s.view.inner + column;
        const std::int64_t width = s.view.inner - column < kColumnsPerTile ? s.view.inner - column : kColumnsPerTile;
        loops.softmax_columns(args.in<float>(0) + at, args.out<float>() + at, s.view.length, s.view.inner, width, epilogue);
      }
    }
  }
}

// ----------------------------------------------------------------------------------------- LayerNormalization --

struct LayerNormState {
  Isa isa;
  std::int64_t lines, line, per_tile;
  float epsilon;
};

Refusal layer_norm_supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  for (std::size_t i = 1; i < d.outputs.size(); ++i) {
    if (d.outputs[i].dtype != DType::kUndefined) return "only one output";
  }
  const Shape& x = d.inputs[0].shape;
  const int axis = normalize_axis(attr_int(*d.node, LayerNormAttr::kAxis), x.rank());
  for (int input = 1; input <= 2 && d.has_input(input); ++input) {
    const Shape& s = d.inputs[static_cast<std::size_t>(input)].shape;
    if (s.rank() != x.rank() - axis) return "scale and bias must have the normalized axes";
    for (int i = 0; i < s.rank(); ++i) {
      if (s[i] < 0 || x[axis + i] != s[i]) return "scale and bias must not be broadcast";
    }
  }
  return nullptr;
}

void layer_norm_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<LayerNormState>();
  const Shape& x = d.inputs[0].shape;
  const int axis = normalize_axis(attr_int(*d.node, LayerNormAttr::kAxis), x.rank());
  s.isa = cpu_isa();
  s.lines = x.elements(0, axis);
  s.line = x.elements(axis, x.rank());
  s.epsilon = attr_float(*d.node, LayerNormAttr::kEpsilon);
  s.per_tile = units_per_tile(s.lines, static_cast<double>(s.line), kElementsPerTile);
  p->tiles = ceil_div(s.lines, s.per_tile);
  p->in_place = 1;
  p->flops = 8.0 * static_cast<double>(x.elements());
  p->bytes = bytes_of(d);
}

void layer_norm_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<LayerNormState>();
  const simd_rows::Loops& loops = simd_rows::loops(s.isa);
  const float* bias = args.desc->has_input(2) ? args.in<float>(2) : nullptr;
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t last = (index + 1) * s.per_tile < s.lines ? (index + 1) * s.per_tile : s.lines;
    for (std::int64_t line = index * s.per_tile; line < last; ++line) {
      loops.layer_norm(args.in<float>(0) + line * s.line, args.in<float>(1), bias, s.epsilon, args.out<float>() + line * s.line, s.line,
                       epilogue_of(*args.desc));
    }
  }
}

constexpr Kernel kKernels[] = {
    {"batch_norm", "BatchNormalization", "", 10, batch_norm_supports, nullptr, nullptr, nullptr, batch_norm_plan, batch_norm_run},
    {"softmax", "Softmax", "", 10, softmax_supports, nullptr, nullptr, nullptr, softmax_plan, softmax_run<false>},
    {"log_softmax", "LogSoftmax", "", 10, log_softmax_supports, nullptr, nullptr, nullptr, softmax_plan, softmax_run<true>},
    {"layer_norm", "LayerNormalization", "", 10, layer_norm_supports, nullptr, nullptr, nullptr, layer_norm_plan, layer_norm_run},
};

}  // namespace

extern const KernelFamily normalize_kernels;
const KernelFamily normalize_kernels = {kKernels};

}  // namespace evn
