// Where, for elements of any whole number of bytes up to 8, logic of bools, comparisons, IsNaN and IsInf: what models make masks
// of. Inputs broadcast; axes along which all move alike are merged. A tile is a run of elements of the output.
#include <algorithm>

#include "backends/cpu/support.h"
#include "ops/compare.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

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

// y[i] = op(x[i], z[i]), a bool. x is input `left`, and z the other one.
template <typename T, typename Op>
void run_pairs(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel, Op op, int left = 0) {
  const std::int64_t(&step)[kMost] = args.plan->state<SelectState>().axes.steps[0];
  const std::int64_t x_step = step[left], z_step = step[1 - left];
  each_run(args, begin, end, cancel, [&](const std::int64_t* from, std::int64_t at, std::int64_t n) {
    const T* x = args.in<T>(left) + from[left];
    const T* z = args.in<T>(1 - left) + from[1 - left];
    std::uint8_t* y = args.out<std::uint8_t>() + at;
    if (x_step == 1 && z_step == 1) {
      for (std::int64_t i = 0; i < n; ++i) y[i] = op(x[i], z[i]);
    } else if (x_step == 1 && z_step == 0) {
      const T b = *z;
      for (std::int64_t i = 0; i < n; ++i) y[i] = op(x[i], b);
    } else if (x_step == 0 && z_step == 1) {
      const T a = *x;
      for (std::int64_t i = 0; i < n; ++i) y[i] = op(a, z[i]);
    } else {
      for (std::int64_t i = 0; i < n; ++i) y[i] = op(x[i * x_step], z[i * z_step]);
    }
  });
}

// y[i] = op(x[i]), a bool.
template <typename T, typename Op>
void run_each(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel, Op op) {
  each_run(args, begin, end, cancel, [&](const std::int64_t*, std::int64_t at, std::int64_t n) {
    const T* x = args.in<T>(0) + at;
    std::uint8_t* y = args.out<std::uint8_t>() + at;
    for (std::int64_t i = 0; i < n; ++i) y[i] = op(x[i]);
  });
}

void run_not(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  run_each<std::uint8_t>(args, begin, end, cancel, [](std::uint8_t x) { return static_cast<std::uint8_t>(x == 0); });
}

Refusal float_supports(const OpDesc& d) {
  if (!d.node->epilogue.empty()) return "no fused steps";
  return d.inputs[0].dtype == DType::kFloat32 ? nullptr : kNeedsFloat32;
}

constexpr std::uint32_t kInfinity = 0x7f800000u, kSign = 0x80000000u;

void is_nan(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  run_each<std::int32_t>(args, begin, end, cancel, [](std::int32_t x) {
    return static_cast<std::uint8_t>((x & static_cast<std::int32_t>(~kSign)) > static_cast<std::int32_t>(kInfinity));
  });
}

// An infinity whose sign does not count is compared without it.
void is_inf(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const bool negative = attr_int(*args.desc->node, IsInfAttr::kDetectNegative) != 0;
  const bool positive = attr_int(*args.desc->node, IsInfAttr::kDetectPositive) != 0;
  const std::uint32_t mask = negative && positive ? ~kSign : ~0u;
  const std::uint32_t wanted = positive ? kInfinity : negative ? kInfinity | kSign : 1;
  const std::uint32_t none = positive || negative ? 0 : ~0u;
  run_each<std::uint32_t>(args, begin, end, cancel,
                          [=](std::uint32_t x) { return static_cast<std::uint8_t>(((x & mask) | none) == wanted); });
}

enum class Logic { kAnd, kOr, kXor };

template <Logic L>
void logic(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  run_pairs<std::uint8_t>(args, begin, end, cancel, [](std::uint8_t a, std::uint8_t b) {
    const int x = a != 0, z = b != 0;
    return static_cast<std::uint8_t>(L == Logic::kAnd ? x & z : L == Logic::kOr ? x | z : x ^ z);
  });
}

Refusal compare_supports(const OpDesc& d) {
  if (!d.node->epilogue.empty()) return "no fused steps";
  const DType dtype = d.inputs[0].dtype;
  return dtype == DType::kFloat32 || dtype == DType::kInt64 || dtype == DType::kInt32 ? nullptr : "not for this element type";
}

enum class Order { kEqual, kLess, kLessOrEqual };

// `left`: the input that is on the left. a > b is b < a.
template <Order O>
void compare_from(int left, const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto op = [](auto a, auto b) {
    return static_cast<std::uint8_t>(O == Order::kEqual ? a == b : O == Order::kLess ? a < b : a <= b);
  };
  switch (args.desc->inputs[0].dtype) {
    case DType::kFloat32: return run_pairs<float>(args, begin, end, cancel, op, left);
    case DType::kInt64: return run_pairs<std::int64_t>(args, begin, end, cancel, op, left);
    default: return run_pairs<std::int32_t>(args, begin, end, cancel, op, left);
  }
}

template <Order O, int X>
void compare(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  compare_from<O>(X, args, begin, end, cancel);
}

template <Order O, int X = 0>
constexpr Kernel comparison(const char* name, const char* op) {
  return {.name = name, .op = op, .rank = 10, .supports = compare_supports, .plan = plan, .run = compare<O, X>};
}

constexpr Kernel kKernels[] = {
    {.name = "where", .op = "Where", .rank = 10, .supports = supports, .plan = plan, .run = where},
    {.name = "and", .op = "And", .rank = 10, .supports = supports, .plan = plan, .run = logic<Logic::kAnd>},
    {.name = "or", .op = "Or", .rank = 10, .supports = supports, .plan = plan, .run = logic<Logic::kOr>},
    {.name = "xor", .op = "Xor", .rank = 10, .supports = supports, .plan = plan, .run = logic<Logic::kXor>},
    comparison<Order::kEqual>("equal", "Equal"),
    comparison<Order::kLess>("less", "Less"),
    comparison<Order::kLess, 1>("greater", "Greater"),
    comparison<Order::kLessOrEqual>("less_or_equal", "LessOrEqual"),
    comparison<Order::kLessOrEqual, 1>("greater_or_equal", "GreaterOrEqual"),
    {.name = "not", .op = "Not", .rank = 10, .supports = supports, .plan = plan, .run = run_not},
    {.name = "is_nan", .op = "IsNaN", .rank = 10, .supports = float_supports, .plan = plan, .run = is_nan},
    {.name = "is_inf", .op = "IsInf", .rank = 10, .supports = float_supports, .plan = plan, .run = is_inf},
};

}  // namespace

extern const KernelFamily select_kernels;
const KernelFamily select_kernels = {kKernels};

}  // namespace evn
