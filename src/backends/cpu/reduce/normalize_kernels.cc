// BatchNormalization (one multiply-add for each element), Softmax and LogSoftmax, float32.
#include "backends/cpu/bfloat/bfloat_gemm_loops.h"
#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/follow.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/reduce/rows_loops.h"
#include "backends/cpu/support.h"
#include "ops/batch_norm.h"
#include "ops/softmax.h"

namespace evn {
namespace {

constexpr std::int64_t kColumnsPerTile = 256;
constexpr std::int64_t kFloatsAtOnce = 2048;  // of an output that is kept as bfloat16: they are still near when they are rounded

// ----------------------------------------------------------------------------------------- BatchNormalization --

// Plain, a line is a plane of one channel; channels last, and where a plane is one element, it is a position.
struct BatchNormState {
  Isa isa;
  bool last;
  std::int64_t channels, lines, line, per_tile;
};

Refusal batch_norm_supports(const OpDesc& d) {
  if (const char* reason = why_not_plain_batch_norm(*d.node)) return reason;
  if (d.inputs[0].shape.rank() < 2) return "only with a channel axis";
  return all_float32(d) ? nullptr : kNeedsFloat32;
}

void batch_norm_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<BatchNormState>();
  const Shape& x = d.inputs[0].shape;
  s.isa = cpu_isa();
  s.channels = x[1];
  s.last = d.output_layout() == Layout::kChannelsLast || x.elements(2, x.rank()) == 1;
  s.lines = s.last ? checked_mul(x[0], x.elements(2, x.rank())) : x.elements(0, 2);
  s.line = s.last ? x[1] : x.elements(2, x.rank());
  s.per_tile = units_per_tile(s.lines, static_cast<double>(s.line), kElementsPerTile);
  p->tiles = ceil_div(s.lines, s.per_tile);
  std::int64_t floats = s.last ? 2 * s.channels : 0;
  if (d.writes_16bit()) floats = checked_add(floats, std::max(s.last ? s.channels : 0, kFloatsAtOnce));
  p->thread_scratch_bytes = sizeof(float) * static_cast<std::size_t>(floats);
  p->in_place = d.writes_16bit() ? 0 : 1;  // elements of two widths do not lie in each other's place
  p->flops = 2.0 * static_cast<double>(x.elements());
  p->bytes = bytes_of(d);
}

simd_elementwise::ChannelNorm batch_norm_of(const KernelArgs& args, std::int64_t channel) {
  return {args.in<float>(BatchNormInput::kScale) + channel, args.in<float>(BatchNormInput::kBias) + channel,
          args.in<float>(BatchNormInput::kMean) + channel, args.in<float>(BatchNormInput::kVariance) + channel,
          static_cast<double>(attr_float(*args.desc->node, BatchNormAttr::kEpsilon))};
}

void batch_norm_last(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<BatchNormState>();
  float* scale = static_cast<float*>(args.thread_scratch);
  float* offset = scale + s.channels;
  const simd_elementwise::Loops& loops = simd_elementwise::loops(s.isa);
  CancelPoints points = points_of(cancel);
  const bool begins = by_parts(&points, s.channels, 64, kFunction, [&](std::int64_t from, std::int64_t until) {
    loops.norm_of_channels(batch_norm_of(args, from), until - from, scale + from, offset + from);
  });
  if (!begins) return;
  const std::int64_t pitch = args.desc->input_pitch(0), to_pitch = args.desc->output_pitch();
  const bool to_16bit = args.desc->writes_16bit();
  float* const floats = offset + s.channels;
  const Epilogue* const epilogue = epilogue_of(*args.desc);
  const std::int64_t work = epilogue == nullptr ? 1 : kFunction;
  const std::int64_t most = to_16bit ? kFloatsAtOnce : kElementsPerTile;
  const std::int64_t at_once = std::max<std::int64_t>(1, most / std::max<std::int64_t>(1, s.channels));
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t last = std::min((index + 1) * s.per_tile, s.lines);
    for (std::int64_t line = index * s.per_tile; line < last; line += at_once) {
      const std::int64_t count = std::min(at_once, last - line);
      const float* const x = args.in<float>(0) + line * pitch;
      float* const y = to_16bit ? floats : args.out<float>() + line * to_pitch;
      const bool goes_on = by_parts(&points, s.line, kElementsPerTile, count * work, [&](std::int64_t from, std::int64_t until) {
        loops.affine_rows(scale + from, offset + from, x + from, pitch, y + from, to_16bit ? s.line : to_pitch, count, until - from,
                          epilogue);
      });
      if (!goes_on) return;
      if (to_16bit) simd_bfloat_gemm::loops(bfloat16_isa()).convert(y, count * s.line, args.out<std::uint16_t>() + line * s.line);
    }
  }
}

void batch_norm_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<BatchNormState>();
  if (s.last) return batch_norm_last(args, begin, end, cancel);
  const simd_elementwise::Loops& loops = simd_elementwise::loops(s.isa);
  CancelPoints points = points_of(cancel);
  const Epilogue* const epilogue = epilogue_of(*args.desc);
  const bool to_16bit = args.desc->writes_16bit();
  const std::int64_t at_once = to_16bit ? kFloatsAtOnce : kElementsPerTile / 4;
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t last = (index + 1) * s.per_tile < s.lines ? (index + 1) * s.per_tile : s.lines;
    for (std::int64_t line = index * s.per_tile; line < last; ++line) {
      if (stops(&points, kFarElement)) return;
      float scale, offset;
      loops.norm_of_channels(batch_norm_of(args, line % s.channels), 1, &scale, &offset);
      const std::int64_t end_of_line = (line + 1) * s.line;
      for (std::int64_t at = line * s.line; at < end_of_line; at += at_once) {
        const std::int64_t count = std::min(at_once, end_of_line - at);
        if (stops(&points, count * (epilogue == nullptr ? 1 : kFunction))) return;
        float* const y = to_16bit ? static_cast<float*>(args.thread_scratch) : args.out<float>() + at;
        loops.affine(0, scale, offset, args.in<float>(0) + at, y, count, epilogue);
        if (to_16bit) simd_bfloat_gemm::loops(bfloat16_isa()).convert(y, count, args.out<std::uint16_t>() + at);
      }
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
  if (d.output_layout() != Layout::kPlain) {
    const Shape x = stored_shape(d.inputs[0].shape, d.output_layout());
    const int axis = stored_axis(normalize_axis(attr_int(*d.node, SoftmaxAttr::kAxis), x.rank()), x.rank(), d.output_layout());
    s.view = {x.elements(0, axis), x[axis], x.elements(axis + 1, x.rank())};
  }
  s.lines = s.view.inner == 1 ? s.view.outer : checked_mul(s.view.outer, ceil_div(s.view.inner, kColumnsPerTile));
  const std::int64_t width = s.view.inner < kColumnsPerTile ? s.view.inner : kColumnsPerTile;
  s.per_tile = units_per_tile(s.lines, static_cast<double>(s.view.length) * static_cast<double>(width), kElementsPerTile / 2);
  p->tiles = ceil_div(s.lines, s.per_tile);
  p->in_place = 1;
  p->flops = 16.0 * static_cast<double>(d.inputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

// Over the channels, lines lie together channels last; over another axis they would lie as far apart as there are channels, which
// may be few (the heads of talking-heads attention). Before opset 13 all axes from the given one on are one line, in their plain
// order.
void softmax_layouts(const OpDesc& d, std::span<Layout> inputs, std::span<Layout> outputs) {
  const int rank = d.inputs[0].shape.rank();
  if (d.node->op->since >= 13 && normalize_axis(attr_int(*d.node, SoftmaxAttr::kAxis), rank) == 1) outputs[0] = inputs[0];
  inputs[0] = outputs[0];
}

template <bool Log>
void softmax_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<SoftmaxState>();
  const simd_rows::Loops& loops = simd_rows::loops(s.isa);
  const Epilogue* epilogue = epilogue_of(*args.desc);
  const std::int64_t blocks = ceil_div(s.view.inner, kColumnsPerTile);
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t last = (index + 1) * s.per_tile < s.lines ? (index + 1) * s.per_tile : s.lines;
    if (s.view.inner == 1) {
      const std::int64_t first = index * s.per_tile;
      const std::int64_t at = first * s.view.length;
      if (s.view.length <= kLongLine) {
        loops.softmax(args.in<float>(0) + at, args.out<float>() + at, last - first, s.view.length, Log, goes_past_caches(args),
                      epilogue);
        continue;
      }
      for (std::int64_t line = at; line < last * s.view.length; line += s.view.length) {
        softmax_long(s.isa, args.in<float>(0) + line, args.out<float>() + line, s.view.length, Log, epilogue, &points);
      }
      continue;
    }
    for (std::int64_t line = index * s.per_tile; line < last; ++line) {
      const std::int64_t column = line % blocks * kColumnsPerTile;
      const std::int64_t at = line / blocks * s.view.length * s.view.inner + column;
      const std::int64_t width = s.view.inner - column < kColumnsPerTile ? s.view.inner - column : kColumnsPerTile;
      softmax_columns(s.isa, args.in<float>(0) + at, args.out<float>() + at, s.view.length, s.view.inner, width, epilogue, &points);
    }
  }
}

constexpr Kernel kKernels[] = {
    {.name = "batch_norm",
     .op = "BatchNormalization",
     .rank = 10,
     .supports = batch_norm_supports,
     .plan = batch_norm_plan,
     .run = batch_norm_run,
     .layouts = follow_first,
     .fusion = {.channel_views = channel_views<kViewInput | kViewOutputs>, .storage_16bit = k16BitOutput}},
    {.name = "softmax",
     .op = "Softmax",
     .rank = 10,
     .supports = softmax_supports,
     .plan = softmax_plan,
     .run = softmax_run<false>,
     .layouts = softmax_layouts},
    {.name = "log_softmax",
     .op = "LogSoftmax",
     .rank = 10,
     .supports = log_softmax_supports,
     .plan = softmax_plan,
     .run = softmax_run<true>},
};

}  // namespace

extern const KernelFamily normalize_kernels;
const KernelFamily normalize_kernels = {kKernels};

}  // namespace evn
