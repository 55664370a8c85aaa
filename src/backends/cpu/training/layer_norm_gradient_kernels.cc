// LayerNormalizationGradient of float32. A tile is some lines; each leaves its sums of dscale and dbias in the scratch memory,
// where the last one adds them up. There are as many tiles for any number of threads.
#include <cmath>

#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/reduce/rows_loops.h"
#include "backends/cpu/support.h"
#include "backends/cpu/training/norm_gradient_loops.h"
#include "ops/gradient.h"
#include "ops/merge.h"
#include "ops/training/norm_gradient.h"

namespace evn {
namespace {

using Input = NormGradientInput;

constexpr std::int64_t kMostTiles = 32;  // each of which has sums of its own
constexpr std::int64_t kHeader = 64;     // bytes before the sums: how many tiles are done

struct LineState {
  Isa isa;
  std::int64_t lines, line, per_tile;
  float epsilon;
};

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<LineState>();
  const Shape& x = d.inputs[Input::kX].shape;
  const int axis = normalize_axis(attr_int(*d.node, LayerNormGradientAttr::kAxis), x.rank());
  s.isa = cpu_isa();
  s.lines = x.elements(0, axis);
  s.line = x.elements(axis, x.rank());
  s.epsilon = attr_float(*d.node, LayerNormGradientAttr::kEpsilon);
  s.per_tile = std::max(units_per_tile(s.lines, static_cast<double>(s.line), kElementsPerTile / 2), ceil_div(s.lines, kMostTiles));
  p->tiles = ceil_div(s.lines, s.per_tile);
  const std::int64_t floats = checked_mul(checked_mul<std::int64_t>(2, s.line), p->tiles);
  p->scratch_bytes = static_cast<std::size_t>(checked_add(kHeader, checked_mul<std::int64_t>(floats, sizeof(float))));
  p->cleared_bytes = kDoneBytes;
  p->in_place = 1u << Input::kX | 1u << Input::kDy;
  p->flops = 14.0 * static_cast<double>(x.elements());
  p->bytes = bytes_of(d);
}

float* sums_of(const KernelArgs& args, std::int64_t tile) {
  const std::int64_t line = args.plan->state<LineState>().line;
  return reinterpret_cast<float*>(static_cast<char*>(args.scratch.address()) + kHeader) + tile * 2 * line;
}

bool is_wanted(const KernelArgs& args, std::size_t output) {
  return output < args.desc->outputs.size() && args.desc->outputs[output].dtype != DType::kUndefined;
}

// The sum of squares, and two sums of products, of a line. Returns false if the run is to stop.
struct LineSums {
  float mean = 0, inverse = 0, plain = 0, along = 0;
};
bool sum_line(const KernelArgs& args, const LineState& s, std::int64_t at, LineSums* sums, CancelPoints* points) {
  const simd_rows::Loops& rows = simd_rows::loops(s.isa);
  const float *const x = args.in<float>(Input::kX) + at, *const dy = args.in<float>(Input::kDy) + at;
  const float* const scale = args.in<float>(Input::kScale);
  double sum = 0, squares = 0, plain = 0, along = 0;
  bool goes_on = in_parts(points, s.line, kLongLine, 1, [&](std::int64_t i, std::int64_t end) {
    sum += static_cast<double>(rows.reduce(simd_rows::Reduce::kSum, x + i, end - i));
  });
  if (!goes_on) return false;
  const auto count = static_cast<double>(s.line);
  sums->mean = static_cast<float>(sum / count);
  goes_on = in_parts(points, s.line, kLongLine, 3, [&](std::int64_t i, std::int64_t end) {
    float both[2];
    simd_norm_gradient::loops(s.isa).products(x + i, dy + i, scale + i, sums->mean, end - i, both);
    squares += static_cast<double>(rows.squares(x + i, sums->mean, end - i));
    plain += static_cast<double>(both[0]);
    along += static_cast<double>(both[1]);
  });
  const double inverse = 1 / std::sqrt(squares / count + static_cast<double>(s.epsilon));
  sums->inverse = static_cast<float>(inverse);
  sums->plain = static_cast<float>(plain / count);
  sums->along = static_cast<float>(-inverse * inverse * inverse * along / count);
  return goes_on;
}

bool differentiate_line(const KernelArgs& args, const LineState& s, std::int64_t tile, std::int64_t line, CancelPoints* points) {
  const simd_norm_gradient::Loops& loops = simd_norm_gradient::loops(s.isa);
  const std::int64_t at = line * s.line;
  const float *const x = args.in<float>(Input::kX) + at, *const dy = args.in<float>(Input::kDy) + at;
  LineSums sums;
  if (!sum_line(args, s, at, &sums, points)) return false;
  const simd_norm_gradient::Combination of = {sums.mean, sums.inverse, sums.along, sums.plain};
  float* const dscale = sums_of(args, tile);
  return in_parts(points, s.line, kLongLine, 4, [&](std::int64_t i, std::int64_t end) {
    loops.accumulate(x + i, dy + i, sums.mean, sums.inverse, dscale + i, dscale + s.line + i, end - i);
    if (is_wanted(args, 0))
      loops.combine(x + i, dy + i, args.in<float>(Input::kScale) + i, of, args.out<float>() + at + i, end - i);
  });
}

void add_sums(const KernelArgs& args, const LineState& s, CancelPoints* points) {
  for (std::size_t output = 1; output < 3; ++output) {
    if (!is_wanted(args, output)) continue;
    const float* const from = sums_of(args, 0) + (output == 1 ? 0 : s.line);
    float* const to = args.out<float>(static_cast<int>(output));
    by_parts(points, s.line, 64, args.plan->tiles, [&](std::int64_t i, std::int64_t end) {
      simd_rows::loops(s.isa).reduce_columns(simd_rows::Reduce::kSum, from + i, to + i, args.plan->tiles, 2 * s.line, end - i);
    });
  }
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<LineState>();
  CancelPoints points = points_of(cancel);
  for (std::int64_t tile = begin; tile < end; ++tile) {
    if (cancel.stop() || !fill_by_parts(&points, sums_of(args, tile), 2 * s.line, 0.0f)) return;
    const std::int64_t last = std::min((tile + 1) * s.per_tile, s.lines);
    for (std::int64_t line = tile * s.per_tile; line < last; ++line) {
      if (!differentiate_line(args, s, tile, line, &points)) return;
    }
  }
  if (are_all_done(args, end - begin)) add_sums(args, s, &points);
}

constexpr Kernel kKernels[] = {
    {.name = "layer_norm_gradient",
     .op = kLayerNormGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = plain_float32,
     .plan = plan,
     .run = run},
};

}  // namespace

extern const KernelFamily layer_norm_gradient_kernels;
const KernelFamily layer_norm_gradient_kernels = {kKernels};

}  // namespace evn
