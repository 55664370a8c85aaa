// Where, for elements of any whole number of bytes up to 8, logic of bools, comparisons, IsNaN and IsInf: what models make masks
// of. Inputs broadcast; axes along which all move alike are merged. A tile is a run of elements of the output.
#include <algorithm>

#include "backends/cpu/elementwise/numbers_loops.h"
#include "backends/cpu/support.h"
#include "ops/compare.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

using simd_numbers::EachFn, simd_numbers::Loops, simd_numbers::PairFn;

constexpr int kMost = 3;  // inputs

struct SelectState {
  std::int64_t count;
  WalkAxes<kMost> axes;
};

Refusal supports(const OpDesc& d) {
  if (!d.node->epilogue.empty()) return "no fused steps";
  const DType dtype = d.outputs[0].dtype;
  const std::size_t size = dtype_size(dtype);
  return dtype != DType::kString && (size == 1 || size == 2 || size == 4 || size == 8) ? nullptr : "not for this element type";
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<SelectState>();
  const Shape& out = d.outputs[0].shape;
  Strides strides[kMost];
  for (std::size_t k = 0; k < d.inputs.size(); ++k) strides[k] = broadcast_strides(d.inputs[k].shape, out);
  s.count = out.elements();
  s.axes = WalkAxes<kMost>(out, strides);
  p->tiles = ceil_div(s.count, kElementsPerTile);
  p->flops = static_cast<double>(s.count);
  p->bytes = bytes_of(d);
}

// Elements [at, at + n) of the output, whose inputs begin at `from`. `context`: what run_tiles was given.
using RunFn = void (*)(const void* context, const std::int64_t* from, std::int64_t at, std::int64_t n);

// Calls `run` for the elements of the tiles.
void run_tiles(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel, RunFn run, const void* context) {
  const auto& s = args.plan->state<SelectState>();
  const WalkAxes<kMost>& axes = s.axes;
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t last = std::min(s.count, (index + 1) * kElementsPerTile);
    for (std::int64_t at = index * kElementsPerTile; at < last;) {
      const std::int64_t start = at % axes.dims[0];
      const std::int64_t n = std::min(last - at, axes.dims[0] - start);
      std::int64_t from[kMost];
      for (int k = 0; k < kMost; ++k) from[k] = start * axes.steps[0][k];
      std::int64_t row = at / axes.dims[0];
      for (int i = 1; i < axes.rank; ++i) {
        for (int k = 0; k < kMost; ++k) from[k] += row % axes.dims[i] * axes.steps[i][k];
        row /= axes.dims[i];
      }
      if (stops(&points, n * 2 + kFarElement * axes.rank)) return;
      run(context, from, at, n);
      at += n;
    }
  }
}

// f(where each input begins, where the output does, elements of this run) for the elements of the tiles.
template <typename F>
void each_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel, const F& f) {
  const RunFn run = [](const void* context, const std::int64_t* from, std::int64_t at, std::int64_t n) {
    (*static_cast<const F*>(context))(from, at, n);
  };
  run_tiles(args, begin, end, cancel, run, &f);
}

template <typename T>
void run_where(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const std::int64_t(&step)[kMost] = args.plan->state<SelectState>().axes.steps[0];
  each_run(args, begin, end, cancel, [&](const std::int64_t* from, std::int64_t at, std::int64_t n) {
    const std::uint8_t* condition = args.in<std::uint8_t>(0) + from[0];
    const T* x = args.in<T>(1) + from[1];
    const T* z = args.in<T>(2) + from[2];
    T* y = args.out<T>() + at;
    if (step[0] == 1 && step[1] == 0 && step[2] == 0) {
      const T a = *x, b = *z;
      for (std::int64_t i = 0; i < n; ++i) y[i] = condition[i] != 0 ? a : b;
      return;
    }
    // Both are read, for there to be no branch.
    const auto select = [](std::uint8_t c, T a, T b) {
      const T mask = static_cast<T>(-static_cast<T>(c != 0));
      return static_cast<T>((a & mask) | (b & ~mask));
    };
    if (step[0] == 1 && step[1] == 1 && step[2] == 1) {
      for (std::int64_t i = 0; i < n; ++i) y[i] = select(condition[i], x[i], z[i]);
    } else if (step[0] == 1 && step[1] == 1 && step[2] == 0) {
      const T b = *z;
      for (std::int64_t i = 0; i < n; ++i) y[i] = select(condition[i], x[i], b);
    } else if (step[0] == 1 && step[1] == 0 && step[2] == 1) {
      const T a = *x;
      for (std::int64_t i = 0; i < n; ++i) y[i] = select(condition[i], a, z[i]);
    } else {
      for (std::int64_t i = 0; i < n; ++i) y[i] = select(condition[i * step[0]], x[i * step[1]], z[i * step[2]]);
    }
  });
}

void where(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  switch (dtype_size(args.desc->outputs[0].dtype)) {
    case 1: return run_where<std::uint8_t>(args, begin, end, cancel);
    case 2: return run_where<std::uint16_t>(args, begin, end, cancel);
    case 4: return run_where<std::uint32_t>(args, begin, end, cancel);
    default: return run_where<std::uint64_t>(args, begin, end, cancel);
  }
}

constexpr std::int64_t kAtOnce = 256;  // elements

// An element, so many times.
template <typename T>
void repeat(const void* from, void* to, std::int64_t n) {
  std::fill_n(static_cast<T*>(to), n, *static_cast<const T*>(from));
}
void repeat(const char* from, std::size_t element, void* to, std::int64_t n) {
  if (element == 1) repeat<std::uint8_t>(from, to, n);
  else if (element == 4) repeat<std::uint32_t>(from, to, n);
  else repeat<std::uint64_t>(from, to, n);
}

// A bool from each pair of elements. x is input `left`, and z the other one; one that stays where it is (steps are 0 or 1) is
// repeated, so that a single loop does for all.
void run_pairs(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel, PairFn pair, int left = 0) {
  const std::int64_t(&step)[kMost] = args.plan->state<SelectState>().axes.steps[0];
  const std::size_t element = dtype_size(args.desc->inputs[0].dtype);
  each_run(args, begin, end, cancel, [&](const std::int64_t* from, std::int64_t at, std::int64_t n) {
    std::uint64_t repeated[2][kAtOnce];
    const char* x[2];
    for (int i = 0; i < 2; ++i) {
      const int input = i == 0 ? left : 1 - left;
      x[i] = args.in<char>(input) + static_cast<std::size_t>(from[input]) * element;
      if (step[input] != 0) continue;
      repeat(x[i], element, repeated[i], std::min(n, kAtOnce));
      x[i] = reinterpret_cast<const char*>(repeated[i]);
    }
    std::uint8_t* const y = args.out<std::uint8_t>() + at;
    const bool all_move = step[0] != 0 && step[1] != 0;
    const std::int64_t at_once = all_move ? n : kAtOnce;
    for (std::int64_t i = 0; i < n; i += at_once) {
      pair(x[0], x[1], y + i, std::min(n - i, at_once));
      if (step[left] != 0) x[0] += static_cast<std::size_t>(at_once) * element;
      if (step[1 - left] != 0) x[1] += static_cast<std::size_t>(at_once) * element;
    }
  });
}

// f(x, y, n) for runs of one input.
template <typename F>
void run_each(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel, F f) {
  const std::size_t element = dtype_size(args.desc->inputs[0].dtype);
  each_run(args, begin, end, cancel, [&](const std::int64_t*, std::int64_t at, std::int64_t n) {
    f(args.in<char>(0) + static_cast<std::size_t>(at) * element, args.out<std::uint8_t>() + at, n);
  });
}

template <EachFn Loops::*Each>
void each(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  run_each(args, begin, end, cancel, simd_numbers::loops(cpu_isa()).*Each);
}

Refusal float_supports(const OpDesc& d) {
  if (!d.node->epilogue.empty()) return "no fused steps";
  return d.inputs[0].dtype == DType::kFloat32 ? nullptr : kNeedsFloat32;
}

constexpr std::uint32_t kInfinity = 0x7f800000u, kSign = 0x80000000u;

// An infinity whose sign does not count is compared without it.
void is_inf(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const bool negative = attr_int(*args.desc->node, IsInfAttr::kDetectNegative) != 0;
  const bool positive = attr_int(*args.desc->node, IsInfAttr::kDetectPositive) != 0;
  const simd_numbers::Infinities wanted = {.mask = negative && positive ? ~kSign : ~0u,
                                           .none = positive || negative ? 0 : ~0u,
                                           .wanted = positive   ? kInfinity
                                                     : negative ? kInfinity | kSign
                                                                : 1};
  run_each(args, begin, end, cancel,
           [&](const void* x, void* y, std::int64_t n) { simd_numbers::loops(cpu_isa()).is_inf(wanted, x, y, n); });
}

template <PairFn Loops::*Pair>
void logic(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  run_pairs(args, begin, end, cancel, simd_numbers::loops(cpu_isa()).*Pair);
}

Refusal compare_supports(const OpDesc& d) {
  if (!d.node->epilogue.empty()) return "no fused steps";
  const DType dtype = d.inputs[0].dtype;
  return dtype == DType::kFloat32 || dtype == DType::kInt64 || dtype == DType::kInt32 ? nullptr : "not for this element type";
}

// `Left`: the input that is on the left. a > b is b < a.
template <simd_numbers::Comparisons Loops::*Of, int Left>
void compare(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const simd_numbers::Comparisons& of = simd_numbers::loops(cpu_isa()).*Of;
  const DType dtype = args.desc->inputs[0].dtype;
  const PairFn pair = dtype == DType::kFloat32 ? of.float32 : dtype == DType::kInt64 ? of.int64 : of.int32;
  run_pairs(args, begin, end, cancel, pair, Left);
}

template <simd_numbers::Comparisons Loops::*Of, int Left = 0>
constexpr Kernel comparison(const char* name, const char* op) {
  return {.name = name, .op = op, .rank = 10, .supports = compare_supports, .plan = plan, .run = compare<Of, Left>};
}

constexpr Kernel kKernels[] = {
    {.name = "where", .op = "Where", .rank = 10, .supports = supports, .plan = plan, .run = where},
    {.name = "and", .op = "And", .rank = 10, .supports = supports, .plan = plan, .run = logic<&Loops::logic_and>},
    {.name = "or", .op = "Or", .rank = 10, .supports = supports, .plan = plan, .run = logic<&Loops::logic_or>},
    {.name = "xor", .op = "Xor", .rank = 10, .supports = supports, .plan = plan, .run = logic<&Loops::logic_xor>},
    comparison<&Loops::equal>("equal", "Equal"),
    comparison<&Loops::less>("less", "Less"),
    comparison<&Loops::less, 1>("greater", "Greater"),
    comparison<&Loops::less_or_equal>("less_or_equal", "LessOrEqual"),
    comparison<&Loops::less_or_equal, 1>("greater_or_equal", "GreaterOrEqual"),
    {.name = "not", .op = "Not", .rank = 10, .supports = supports, .plan = plan, .run = each<&Loops::logic_not>},
    {.name = "is_nan", .op = "IsNaN", .rank = 10, .supports = float_supports, .plan = plan, .run = each<&Loops::is_nan>},
    {.name = "is_inf", .op = "IsInf", .rank = 10, .supports = float_supports, .plan = plan, .run = is_inf},
};

}  // namespace

extern const KernelFamily select_kernels;
const KernelFamily select_kernels = {kKernels};

}  // namespace evn
