// LayerNormalization, RMSNormalization, and what transformers of com.microsoft call them, with a sum in front: float32, over whole
// trailing axes. A tile is some lines.
#include "ops/layer_norm.h"

#include "backends/cpu/bfloat/bfloat_gemm_loops.h"
#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/reduce/rows_loops.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

using simd_elementwise::Binary;

struct NormState {
  Isa isa;
  std::int64_t lines, line, per_tile;
  std::int64_t skip_lines;  // of input 1, where a sum comes first
  float epsilon;
};

void finish_plan(const OpDesc& d, int axis, float epsilon, KernelPlan* p) {
  auto& s = p->state<NormState>();
  const Shape& x = d.inputs[0].shape;
  s = NormState{};
  s.isa = cpu_isa();
  s.lines = x.elements(0, axis);
  s.line = x.elements(axis, x.rank());
  s.epsilon = epsilon;
  s.per_tile = units_per_tile(s.lines, static_cast<double>(s.line), kElementsPerTile);
  p->tiles = ceil_div(s.lines, s.per_tile);
  p->in_place = 1;
  p->flops = 8.0 * static_cast<double>(x.elements());
  p->bytes = bytes_of(d);
}

// Calls body(first line, lines, cancellation points) for each tile.
template <typename F>
void for_each_tile(const NormState& s, std::int64_t begin, std::int64_t end, const Cancel& cancel, F&& body) {
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index * s.per_tile;
    body(first, s.lines - first < s.per_tile ? s.lines - first : s.per_tile, &points);
  }
}

void normalize(const NormState& s, const simd_rows::Norm& norm, const float* x, float* y, std::int64_t lines,
               CancelPoints* points) {
  if (s.line <= kLongLine) return simd_rows::loops(s.isa).layer_norm(norm, x, y, lines, s.line);
  for (std::int64_t i = 0; i < lines; ++i) layer_norm_long(s.isa, norm, x + i * s.line, y + i * s.line, s.line, points);
}

// --------------------------------------------------------------------------------------------- over one input --

// LayerNormalization has a bias and is centered; the others have none of both.
template <bool Centered>
Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  for (std::size_t i = 1; i < d.outputs.size(); ++i) {
    if (d.outputs[i].dtype != DType::kUndefined) return "only one output";
  }
  if (!stash_is_float32(*d.node, LayerNormAttr::kStashType)) return kStashRefusal;
  const Shape& x = d.inputs[0].shape;
  const int axis = normalize_axis(attr_int(*d.node, LayerNormAttr::kAxis), x.rank());
  for (int input = 1; input <= (Centered ? 2 : 1) && d.has_input(input); ++input) {
    const Shape& s = d.inputs[static_cast<std::size_t>(input)].shape;
    if (s.rank() != x.rank() - axis) return "scale and bias must have the normalized axes";
    for (int i = 0; i < s.rank(); ++i) {
      // A dimension of x that only a run knows is that of the scale, unless that is 1: else the run's shapes are refused.
      const bool unlike = x[axis + i] < 0 ? s[i] == 1 : x[axis + i] != s[i];
      if (s[i] < 0 || unlike) return "scale and bias must not be broadcast";
    }
  }
  return nullptr;
}

void plan(const OpDesc& d, KernelPlan* p) {
  const int axis = normalize_axis(attr_int(*d.node, LayerNormAttr::kAxis), d.inputs[0].shape.rank());
  finish_plan(d, axis, attr_float(*d.node, LayerNormAttr::kEpsilon), p);
  if (!d.writes_16bit()) return;
  p->in_place = 0;  // elements of two widths do not lie in each other's place
  p->thread_scratch_bytes = static_cast<std::size_t>(checked_mul<std::int64_t>(p->state<NormState>().line, sizeof(float)));
}

template <bool Centered>
void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<NormState>();
  const float* const bias = Centered && args.desc->has_input(2) ? args.in<float>(2) : nullptr;
  const bool to_16bit = args.desc->writes_16bit();
  const simd_rows::Norm norm = {args.in<float>(1),      bias, s.epsilon, Centered, !to_16bit && goes_past_caches(args),
                                epilogue_of(*args.desc)};
  for_each_tile(s, begin, end, cancel, [&](std::int64_t first, std::int64_t lines, CancelPoints* points) {
    auto* const floats = static_cast<float*>(args.thread_scratch);
    for (std::int64_t line = first; to_16bit && line < first + lines; ++line) {
      normalize(s, norm, args.in<float>(0) + line * s.line, floats, 1, points);
      std::uint16_t* const to = args.out<std::uint16_t>() + line * s.line;
      const bool goes_on = by_parts(points, s.line, 64, 1, [&](std::int64_t from, std::int64_t until) {
        simd_bfloat_gemm::loops(bfloat16_isa()).convert(floats + from, until - from, to + from);
      });
      if (!goes_on) return;
    }
    if (to_16bit) return;
    normalize(s, norm, args.in<float>(0) + first * s.line, args.out<float>() + first * s.line, lines, points);
  });
}

// --------------------------------------------------------------------------------------------- behind a sum --

// The numbers of optional inputs; -1: the operator has none.
template <bool Centered>
struct SkipInput {
  static constexpr int kBeta = Centered ? 3 : -1;
  static constexpr int kBias = Centered ? 4 : 3;
};

Refusal skip_supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  for (std::size_t i = 1; i < d.outputs.size() && i < 3; ++i) {
    if (d.outputs[i].dtype != DType::kUndefined) return "the mean and the deviation are no outputs";
  }
  return nullptr;
}

void skip_plan(const OpDesc& d, KernelPlan* p) {
  finish_plan(d, d.inputs[0].shape.rank() - 1, attr_float(*d.node, 0), p);
  auto& s = p->state<NormState>();
  s.skip_lines = s.line == 0 ? 0 : d.inputs[1].shape.elements() / s.line;
}

template <bool Centered>
void skip_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  using Input = SkipInput<Centered>;
  const auto& s = args.plan->state<NormState>();
  const OpDesc& d = *args.desc;
  const simd_elementwise::Loops& loops = simd_elementwise::loops(s.isa);
  const bool gives_sum = d.outputs.size() > 3 && d.outputs[3].dtype != DType::kUndefined;
  float* const sums = gives_sum ? args.out<float>(3) : args.out<float>();
  const float* beta = nullptr;
  if constexpr (Centered) beta = d.has_input(Input::kBeta) ? args.in<float>(Input::kBeta) : nullptr;
  const float* const bias = d.has_input(Input::kBias) ? args.in<float>(Input::kBias) : nullptr;
  const simd_rows::Norm norm = {args.in<float>(2), beta, s.epsilon, Centered, false, epilogue_of(d)};
  for_each_tile(s, begin, end, cancel, [&](std::int64_t first, std::int64_t lines, CancelPoints* points) {
    for (std::int64_t line = first; line < first + lines; ++line) {
      float* const sum = sums + line * s.line;
      const float* const skip = args.in<float>(1) + line % s.skip_lines * s.line;
      const float* const x = args.in<float>(0) + line * s.line;
      const bool goes_on = by_parts(points, s.line, 64, 1, [&](std::int64_t from, std::int64_t until) {
        const std::int64_t n = until - from;
        loops.binary(Binary::kAdd, x + from, 1, skip + from, 1, sum + from, n, {1, 0, 0, 0}, false, nullptr);
        if (bias != nullptr) loops.binary(Binary::kAdd, sum + from, 1, bias + from, 1, sum + from, n, {1, 0, 0, 0}, false, nullptr);
      });
      if (!goes_on) return;
      normalize(s, norm, sum, args.out<float>() + line * s.line, 1, points);
    }
  });
}

constexpr const char* kMicrosoft = "com.microsoft";
template <bool Centered>
constexpr Kernel norm(const char* name, const char* op) {
  return {.name = name,
          .op = op,
          .rank = 10,
          .supports = supports<Centered>,
          .plan = plan,
          .run = run<Centered>,
          .fusion = {.storage_16bit = k16BitOutput}};
}

constexpr Kernel kKernels[] = {
    norm<true>("layer_norm", "LayerNormalization"),
    norm<false>("rms_norm", "RMSNormalization"),
    norm<false>("rms_norm_simplified", "SimplifiedLayerNormalization"),
    {.name = "skip_layer_norm",
     .op = "SkipLayerNormalization",
     .domain = kMicrosoft,
     .rank = 10,
     .supports = skip_supports,
     .plan = skip_plan,
     .run = skip_run<true>},
    {.name = "skip_rms_norm",
     .op = "SkipSimplifiedLayerNormalization",
     .domain = kMicrosoft,
     .rank = 10,
     .supports = skip_supports,
     .plan = skip_plan,
     .run = skip_run<false>},
};

}  // namespace

extern const KernelFamily layer_norm_kernels;
const KernelFamily layer_norm_kernels = {kKernels};

}  // namespace evn
