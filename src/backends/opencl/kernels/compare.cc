// Comparisons of float32 and integers, logic of bools, IsNaN, IsInf, and Where of any dtype.
#include "backends/opencl/kernels/broadcast.h"

namespace evn {
namespace {

constexpr OpenClFunction kCompareFloat{"compare", "compare_float"};
constexpr OpenClFunction kCompareInt{"compare", "compare_int"};
constexpr OpenClFunction kCompareLong{"compare", "compare_long"};
constexpr OpenClFunction kCompareUlong{"compare", "compare_ulong"};
constexpr OpenClFunction kCompareUint{"compare", "compare_uint"};
constexpr OpenClFunction kCompareShort{"compare", "compare_short"};
constexpr OpenClFunction kCompareUshort{"compare", "compare_ushort"};
constexpr OpenClFunction kCompareChar{"compare", "compare_char"};
constexpr OpenClFunction kCompareBool{"compare", "compare_bool"};
constexpr OpenClFunction kWhere1{"compare", "where_1"};
constexpr OpenClFunction kWhere2{"compare", "where_2"};
constexpr OpenClFunction kWhere4{"compare", "where_4"};
constexpr OpenClFunction kWhere8{"compare", "where_8"};

// Numbers as compare.cl has them.
enum : std::int32_t { kEqual, kLess, kGreater, kLessOrEqual, kGreaterOrEqual, kAnd, kOr, kXor, kAlike, kNot, kIsNan, kIsInf };
struct Select {
  std::int32_t op, rank;
  std::int64_t inner, rows, row_chunk, chunk;
  std::int32_t step[4];
  std::int64_t dim[kMaxRank];
  std::int64_t stride[3][kMaxRank];
};

template <int kInputs>
Select select_of(const Shape* const (&inputs)[kInputs], const Shape& output, std::int32_t op) {
  const Broadcast<kInputs> merged = merge_broadcast<kInputs>(inputs, output);
  Select p{};
  p.op = op;
  p.rank = merged.rank;
  p.inner = merged.inner;
  p.rows = merged.rows;
  std::memcpy(p.dim, merged.dim, sizeof p.dim);
  for (int k = 0; k < kInputs; ++k) {
    p.step[k] = merged.step[k];
    std::memcpy(p.stride[k], merged.stride[k], sizeof p.stride[k]);
  }
  return p;
}

Grid cut(const Launcher& cl, Select* p) {
  p->chunk = chunk_elements(cl, p->inner * p->rows);
  p->row_chunk = p->inner >= p->chunk ? 1 : ceil_div(p->chunk, p->inner > 0 ? p->inner : 1);
  return {ceil_div(p->inner, p->chunk), ceil_div(p->rows, p->row_chunk)};
}

const OpenClFunction* comparison_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return &kCompareFloat;
    case DType::kInt32: return &kCompareInt;
    case DType::kInt64: return &kCompareLong;
    case DType::kUint64: return &kCompareUlong;
    case DType::kUint32: return &kCompareUint;
    case DType::kInt16: return &kCompareShort;
    case DType::kUint16: return &kCompareUshort;
    case DType::kInt8: return &kCompareChar;
    case DType::kUint8:
    case DType::kBool: return &kCompareBool;
    default: return nullptr;
  }
}

Refusal supports_compare(const OpDesc& desc) {
  return comparison_of(desc.inputs[0].dtype) != nullptr ? nullptr : "only float32, integers and bool";
}

template <std::int32_t kOp>
void plan_compare(const OpDesc& desc, KernelPlan* plan) {
  const Shape& a = desc.inputs[0].shape;
  const Shape& b = desc.inputs.size() > 1 ? desc.inputs[1].shape : a;
  const std::int32_t op = kOp == kEqual && desc.inputs[0].dtype == DType::kBool ? kAlike : kOp;
  plan->state<Select>() = select_of<2>({&a, &b}, desc.outputs[0].shape, op);
  count_bytes(desc, plan);
}

// Which infinities count, bit 0: the negative one counts; bit 1: the positive one.
void plan_is_inf(const OpDesc& desc, KernelPlan* plan) {
  plan_compare<kIsInf>(desc, plan);
  plan->state<Select>().step[3] = (attr_int(*desc.node, 0) != 0 ? 1 : 0) | (attr_int(*desc.node, 1) != 0 ? 2 : 0);
}

void run_compare(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Select p = args.plan->state<Select>();
  Launcher& cl = launcher(args);
  const Grid grid = cut(cl, &p);
  cl.run(*comparison_of(args.desc->inputs[0].dtype), grid, args.inputs[0], args.inputs[args.inputs.size() > 1 ? 1 : 0],
         args.outputs[0], p);
}

Refusal supports_where(const OpDesc& desc) {
  const std::size_t size = dtype_size(desc.outputs[0].dtype);
  if (size == 0 || size > 8) return "not for this element type";
  return !desc.node->epilogue.empty() && !is_float(desc.outputs[0]) ? "fused steps are for float32" : nullptr;
}

void plan_where(const OpDesc& desc, KernelPlan* plan) {
  plan->state<Select>() =
      select_of<3>({&desc.inputs[0].shape, &desc.inputs[1].shape, &desc.inputs[2].shape}, desc.outputs[0].shape, 0);
  count_bytes(desc, plan);
}

void run_where(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Select p = args.plan->state<Select>();
  Launcher& cl = launcher(args);
  const Grid grid = cut(cl, &p);
  const std::span<const Buffer> in = args.inputs;
  const std::size_t element = dtype_size(args.desc->outputs[0].dtype);
  if (element == 4) return cl.run(kWhere4, grid, in[0], in[1], in[2], args.outputs[0], p, args.desc->node->epilogue);
  cl.run(element == 1 ? kWhere1 : element == 2 ? kWhere2 : kWhere8, grid, in[0], in[1], in[2], args.outputs[0], p);
}

template <std::int32_t kOp>
constexpr Kernel comparison(const char* name, const char* op) {
  return {.name = name, .op = op, .rank = 10, .supports = supports_compare, .plan = plan_compare<kOp>, .run = run_compare};
}

constexpr Kernel kKernels[] = {
    comparison<kEqual>("equal", "Equal"),
    comparison<kLess>("less", "Less"),
    comparison<kGreater>("greater", "Greater"),
    comparison<kLessOrEqual>("less_or_equal", "LessOrEqual"),
    comparison<kGreaterOrEqual>("greater_or_equal", "GreaterOrEqual"),
    comparison<kAnd>("and", "And"),
    comparison<kOr>("or", "Or"),
    comparison<kXor>("xor", "Xor"),
    comparison<kNot>("not", "Not"),
    comparison<kIsNan>("is_nan", "IsNaN"),
    {.name = "is_inf", .op = "IsInf", .rank = 10, .supports = supports_compare, .plan = plan_is_inf, .run = run_compare},
    {.name = "where", .op = "Where", .rank = 10, .supports = supports_where, .plan = plan_where, .run = run_where},
};

}  // namespace

extern const KernelFamily compare_opencl_kernels;
const KernelFamily compare_opencl_kernels = {kKernels};

}  // namespace evn
