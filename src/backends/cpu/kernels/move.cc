// Operators that only move elements, of any dtype: Transpose, Slice, Expand, Concat. A tile is a run of elements of the output, or
// for Concat a run of rows.
#include "backends/cpu/simd/elementwise.h"
#include "backends/cpu/strided_copy.h"
#include "backends/cpu/support.h"
#include "ops/concat.h"
#include "ops/slice.h"
#include "ops/transpose.h"

namespace evn {
namespace {

constexpr std::int64_t kBytesPerTile = 1 << 17;

struct MoveState {
  Isa isa;
  std::int64_t count, per_tile;
  std::size_t element;
  StridedCopy copy;  // Slice makes its own in run, where its lists are known
};

Refusal supports(const OpDesc& d) {
  if (dtype_size(d.outputs[0].dtype) == 0) return "not for this element type";
  if (!d.node->epilogue.empty() && d.outputs[0].dtype != DType::kFloat32) return "fused steps are for float32";
  return nullptr;
}

void plan_common(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<MoveState>();
  s.isa = cpu_isa();
  s.count = d.outputs[0].shape.elements();
  s.element = dtype_size(d.outputs[0].dtype);
  s.per_tile = kBytesPerTile / static_cast<std::int64_t>(s.element);
  p->tiles = ceil_div(s.count, s.per_tile);
  p->bytes = 2.0 * static_cast<double>(s.count) * static_cast<double>(s.element);
}

void run_copy(const KernelArgs& args, const StridedCopy& copy, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<MoveState>();
  const Epilogue* epilogue = epilogue_of(*args.desc);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index * s.per_tile;
    const std::int64_t last = first + s.per_tile < s.count ? first + s.per_tile : s.count;
    strided_copy(copy, s.element, args.inputs[0].address(), args.outputs[0].address(), first, last);
    if (epilogue != nullptr) simd_elementwise::loops(s.isa).chain(args.out<float>() + first, last - first, epilogue);
  }
}

void run_planned(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  run_copy(args, args.plan->state<MoveState>().copy, begin, end, cancel);
}

// -------------------------------------------------------------------------------------------------- Transpose --

void transpose_plan(const OpDesc& d, KernelPlan* p) {
  plan_common(d, p);
  const Shape& x = d.inputs[0].shape;
  int perm[kMaxRank];
  std::int64_t dense[kMaxRank], steps[kMaxRank];
  transpose_perm(*d.node, x.rank(), perm);
  row_major_strides(x, dense);
  for (int i = 0; i < x.rank(); ++i) steps[i] = dense[perm[i]];
  p->state<MoveState>().copy = make_strided_copy(d.outputs[0].shape, steps, 0);
}

// ----------------------------------------------------------------------------------------------------- Expand --

void expand_plan(const OpDesc& d, KernelPlan* p) {
  plan_common(d, p);
  const Shape& x = d.inputs[0].shape;
  const Shape& y = d.outputs[0].shape;
  std::int64_t dense[kMaxRank], steps[kMaxRank];
  row_major_strides(x, dense);
  for (int i = 0; i < y.rank(); ++i) {
    const int axis = i - (y.rank() - x.rank());
    steps[i] = axis < 0 || x[axis] == 1 ? 0 : dense[axis];
  }
  p->state<MoveState>().copy = make_strided_copy(y, steps, 0);
}

// ------------------------------------------------------------------------------------------------------ Slice --

void slice_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const OpDesc& d = *args.desc;
  const Shape& x = d.inputs[0].shape;
  ConstTensor lists[5];
  const std::size_t given = d.inputs.size() < 5 ? d.inputs.size() : 5;
  for (std::size_t i = 0; i < given; ++i) {
    lists[i] = {d.inputs[i], d.inputs[i].dtype == DType::kUndefined ? nullptr : args.inputs[i].address()};
  }
  SliceAxis axes[kMaxRank];
  resolve_slice(*d.node, {lists, given}, x, axes);
  std::int64_t steps[kMaxRank];
  row_major_strides(x, steps);
  std::int64_t start = 0;
  for (int i = 0; i < x.rank(); ++i) {
    start += axes[i].start * steps[i];
    steps[i] = axes[i].count > 1 ? steps[i] * axes[i].step : 0;
  }
  run_copy(args, make_strided_copy(d.outputs[0].shape, steps, start), begin, end, cancel);
}

// ----------------------------------------------------------------------------------------------------- Concat --

struct ConcatState {
  Isa isa;
  std::int64_t outer, row, unit, per_tile;  // row: bytes of the output for each index of the axes before; unit: bytes of one index
  int axis;
};

void concat_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<ConcatState>();
  const Shape& y = d.outputs[0].shape;
  s.isa = cpu_isa();
  s.axis = normalize_axis(attr_int(*d.node, ConcatAttr::kAxis), y.rank());
  s.outer = y.elements(0, s.axis);
  s.unit = checked_mul(y.elements(s.axis + 1, y.rank()), static_cast<std::int64_t>(dtype_size(d.outputs[0].dtype)));
  s.row = checked_mul(s.unit, y[s.axis]);
  // Pieces are numbered input by input inside a row, so that one long row is shared out too.
  const auto inputs = static_cast<std::int64_t>(d.inputs.size());
  s.per_tile = units_per_tile(checked_mul(s.outer, inputs), static_cast<double>(s.row) / static_cast<double>(inputs), kBytesPerTile);
  p->tiles = ceil_div(s.outer * inputs, s.per_tile);
  p->bytes = 2.0 * static_cast<double>(s.outer) * static_cast<double>(s.row);
}

void concat_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<ConcatState>();
  const OpDesc& d = *args.desc;
  const auto inputs = static_cast<std::int64_t>(d.inputs.size());
  const std::int64_t pieces = s.outer * inputs;
  const Epilogue* epilogue = epilogue_of(d);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t last = (index + 1) * s.per_tile < pieces ? (index + 1) * s.per_tile : pieces;
    std::int64_t offset = 0;
    for (std::int64_t i = 0; i < index * s.per_tile % inputs; ++i) offset += d.inputs[static_cast<std::size_t>(i)].shape[s.axis] * s.unit;
    for (std::int64_t piece = index * s.per_tile; piece < last; ++piece) {
      const std::int64_t input = piece % inputs;
      const std::int64_t row = piece / inputs;
      if (input == 0) offset = 0;
      const std::int64_t bytes = d.inputs[static_cast<std::size_t>(input)].shape[s.axis] * s.unit;
      if (bytes == 0) continue;
      char* to = static_cast<char*>(args.outputs[0].address()) + row * s.row + offset;
      const char* from = static_cast<const char*>(args.inputs[static_cast<std::size_t>(input)].address()) + row * bytes;
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
      if (epilogue != nullptr) {
        simd_elementwise::loops(s.isa).chain(reinterpret_cast<float*>(to), bytes / static_cast<std::int64_t>(sizeof(float)), epilogue);
      }
      offset += bytes;
    }
  }
}

constexpr Kernel kKernels[] = {
    {"transpose", "Transpose", "", 10, supports, nullptr, nullptr, nullptr, transpose_plan, run_planned},
    {"expand", "Expand", "", 10, supports, nullptr, nullptr, nullptr, expand_plan, run_planned},
    {"slice", "Slice", "", 10, supports, nullptr, nullptr, nullptr, plan_common, slice_run},
    {"concat", "Concat", "", 10, supports, nullptr, nullptr, nullptr, concat_plan, concat_run},
};

}  // namespace

extern const KernelFamily move_kernels;
const KernelFamily move_kernels = {kKernels};

}  // namespace evn
