// Reductions and ArgMax of integers, ReduceLogSum and ReduceLogSumExp of float32, CumSum and CumProd.
#include <algorithm>

#include "backends/opencl/kernels/integer.h"
#include "ops/reduce.h"

namespace evn {
namespace {

constexpr OpenClFunction kFoldIntegers{"integer", "fold_integers"};
constexpr OpenClFunction kFoldLogs{"integer", "fold_logs"};
constexpr OpenClFunction kArgIntegers{"integer", "arg_integers"};
constexpr OpenClFunction kAccumulateIntegers{"integer", "accumulate_integers"};
constexpr OpenClFunction kAccumulateFloats{"integer", "accumulate_floats"};

// Outputs of one work item.
std::int64_t output_chunk(const Launcher& cl, std::int64_t outputs, std::int64_t length) {
  return cl.is_cpu() ? std::max<std::int64_t>(1, chunk_elements(cl, outputs * length) / std::max<std::int64_t>(length, 1)) : 1;
}

// ---- reductions ----

// Numbers as integer.cl has them.
enum : std::int32_t { kSum, kMean, kMax, kMin, kProd, kL1, kSumSquare, kLogSum, kLogSumExp };
struct Fold {
  std::int32_t op, type, kept, reduced;
  std::int64_t outputs, count, chunk;
  std::int64_t kept_dim[kMaxRank], kept_stride[kMaxRank];
  std::int64_t reduced_dim[kMaxRank], reduced_stride[kMaxRank];
};

// Bools are bytes to a maximum.
std::int32_t type_of(DType dtype) { return whole_type(dtype == DType::kBool ? DType::kUint8 : dtype); }

Refusal supports_integers(const OpDesc& desc) { return type_of(desc.inputs[0].dtype) < 0 ? "only integers" : nullptr; }
Refusal supports_logs(const OpDesc& desc) { return is_float(desc.inputs[0]) ? nullptr : "only float32"; }

std::uint32_t axes_of(const OpDesc& desc) {
  std::int64_t values[kMaxRank];
  const std::size_t n = reduce_axes_is_input(*desc.node) ? read_axes(desc, 1, values) : 0;
  return reduce_axes(*desc.node, desc.inputs[0].shape.rank(), {values, n});
}

template <std::int32_t kOp>
void plan_fold(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const std::uint32_t axes = axes_of(desc);
  std::int64_t strides[kMaxRank] = {};
  row_major_strides(x, strides);
  Fold& p = plan->state<Fold>();
  p = Fold{};
  p.op = kOp;
  p.type = type_of(desc.inputs[0].dtype);
  p.outputs = p.count = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if ((axes >> i & 1u) != 0) {
      p.reduced_dim[p.reduced] = x[i];
      p.reduced_stride[p.reduced++] = strides[i];
      p.count *= x[i];
    } else {
      p.kept_dim[p.kept] = x[i];
      p.kept_stride[p.kept++] = strides[i];
      p.outputs *= x[i];
    }
  }
  plan->flops = static_cast<double>(x.elements());
  count_bytes(desc, plan);
}

void run_integers(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Fold p = args.plan->state<Fold>();
  Launcher& cl = launcher(args);
  p.chunk = output_chunk(cl, p.outputs, p.count);
  cl.run(kFoldIntegers, {ceil_div(p.outputs, p.chunk)}, args.inputs[0], args.outputs[0], p);
}

void run_logs(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Fold p = args.plan->state<Fold>();
  Launcher& cl = launcher(args);
  p.chunk = output_chunk(cl, p.outputs, p.count);
  cl.run(kFoldLogs, {ceil_div(p.outputs, p.chunk)}, args.inputs[0], args.outputs[0], p, args.desc->node->epilogue);
}

// ---- ArgMax and ArgMin ----

enum : int { kAxis, kKeepDims, kSelectLast };

struct ArgState {
  std::int64_t outputs, length, inner;
  std::int32_t last, type;
};

Refusal supports_arg(const OpDesc& desc) {
  if (desc.inputs[0].shape.rank() == 0) return "a scalar";
  return refuse_unless_whole(desc);
}

void plan_arg(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const int axis = normalize_axis(attr_int(*desc.node, kAxis), x.rank());
  const bool last = attr_given(*desc.node, kSelectLast) && attr_int(*desc.node, kSelectLast) != 0;
  plan->state<ArgState>() = {desc.outputs[0].shape.elements(), x[axis], x.elements(axis + 1, x.rank()), last ? 1 : 0,
                             whole_type(desc.inputs[0].dtype)};
  count_bytes(desc, plan);
}

template <std::int32_t kMaximum>
void run_arg(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const ArgState& s = args.plan->state<ArgState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = output_chunk(cl, s.outputs, s.length);
  cl.run(kArgIntegers, {ceil_div(s.outputs, chunk)}, args.inputs[0], args.outputs[0], s.outputs, s.length, s.inner, chunk,
         std::int32_t{kMaximum}, s.last, s.type);
}

// ---- CumSum and CumProd ----

struct AccumulateState {
  std::int64_t rows, length, inner;
  std::int32_t product, exclusive, backwards, type;
};

Refusal supports_accumulate(const OpDesc& desc) {
  if (!is_float(desc.inputs[0]) && whole_type(desc.inputs[0].dtype) < 0) return "only float32 and integers";
  return desc.constant(1) == nullptr ? "the axis is not constant" : nullptr;
}

template <std::int32_t kProduct>
void plan_accumulate(const OpDesc& desc, KernelPlan* plan) {
  enum : int { kExclusive, kReverse };
  const Shape& x = desc.inputs[0].shape;
  const Weight& given = *desc.constant(1);
  const bool wide = given.desc.dtype == DType::kInt64;
  const int axis = normalize_axis(wide ? *given.as<std::int64_t>() : *given.as<std::int32_t>(), x.rank());
  const std::int64_t inner = x.elements(axis + 1, x.rank());
  plan->state<AccumulateState>() = {x.elements(0, axis) * inner,
                                    x[axis],
                                    inner,
                                    kProduct,
                                    attr_int(*desc.node, kExclusive) != 0,
                                    attr_int(*desc.node, kReverse) != 0,
                                    whole_type(desc.inputs[0].dtype)};
  plan->flops = static_cast<double>(x.elements());
  count_bytes(desc, plan);
}

void run_accumulate(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const AccumulateState& s = args.plan->state<AccumulateState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = output_chunk(cl, s.rows, s.length);
  const Grid grid{ceil_div(s.rows, chunk)};
  if (s.type < 0) {
    return cl.run(kAccumulateFloats, grid, args.inputs[0], args.outputs[0], s.rows, s.length, s.inner, chunk, s.product,
                  s.exclusive, s.backwards, args.desc->node->epilogue);
  }
  cl.run(kAccumulateIntegers, grid, args.inputs[0], args.outputs[0], s.rows, s.length, s.inner, chunk, s.product, s.exclusive,
         s.backwards, s.type);
}

template <std::int32_t kOp>
constexpr Kernel integers(const char* name, const char* op) {
  return {.name = name, .op = op, .rank = 10, .supports = supports_integers, .plan = plan_fold<kOp>, .run = run_integers};
}

constexpr Kernel kKernels[] = {
    integers<kSum>("reduce_sum_integer", "ReduceSum"),
    integers<kMean>("reduce_mean_integer", "ReduceMean"),
    integers<kMax>("reduce_max_integer", "ReduceMax"),
    integers<kMin>("reduce_min_integer", "ReduceMin"),
    integers<kProd>("reduce_prod_integer", "ReduceProd"),
    integers<kL1>("reduce_l1_integer", "ReduceL1"),
    integers<kSumSquare>("reduce_sum_square_integer", "ReduceSumSquare"),
    {.name = "reduce_log_sum",
     .op = "ReduceLogSum",
     .rank = 10,
     .supports = supports_logs,
     .plan = plan_fold<kLogSum>,
     .run = run_logs},
    {.name = "reduce_log_sum_exp",
     .op = "ReduceLogSumExp",
     .rank = 10,
     .supports = supports_logs,
     .plan = plan_fold<kLogSumExp>,
     .run = run_logs},
    {.name = "arg_max_integer", .op = "ArgMax", .rank = 10, .supports = supports_arg, .plan = plan_arg, .run = run_arg<1>},
    {.name = "arg_min_integer", .op = "ArgMin", .rank = 10, .supports = supports_arg, .plan = plan_arg, .run = run_arg<0>},
    {.name = "cum_sum",
     .op = "CumSum",
     .rank = 10,
     .supports = supports_accumulate,
     .plan = plan_accumulate<0>,
     .run = run_accumulate},
    {.name = "cum_prod",
     .op = "CumProd",
     .rank = 10,
     .supports = supports_accumulate,
     .plan = plan_accumulate<1>,
     .run = run_accumulate},
};

}  // namespace

extern const KernelFamily reductions_opencl_kernels;
const KernelFamily reductions_opencl_kernels = {kKernels};

}  // namespace evn
