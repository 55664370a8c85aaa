// Cast between float32 and float16, and between float32, bool and integers as exported models mix them. A tile is a run of
// elements.
#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/elementwise/numbers_loops.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

struct CastState {
  Isa isa;
  std::int64_t count;
};

template <bool Widens>
Refusal supports(const OpDesc& d) {
  const DType from = Widens ? DType::kFloat16 : DType::kFloat32, to = Widens ? DType::kFloat32 : DType::kFloat16;
  if (d.inputs[0].dtype != from || d.outputs[0].dtype != to) return "only between float32 and float16";
  return d.node->epilogue.empty() ? nullptr : "no fused steps";
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<CastState>();
  s.isa = cpu_isa();
  s.count = d.outputs[0].shape.elements();
  p->tiles = ceil_div(s.count, kElementsPerTile);
  p->flops = static_cast<double>(s.count);
  p->bytes = bytes_of(d);
}

template <bool Widens>
void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<CastState>();
  const simd_elementwise::Loops& loops = simd_elementwise::loops(s.isa);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index * kElementsPerTile;
    const std::int64_t n = std::min(s.count - first, kElementsPerTile);
    if constexpr (Widens) {
      loops.widen_half(args.in<std::uint16_t>(0) + first, args.out<float>() + first, n);
    } else {
      loops.narrow_half(args.in<float>(0) + first, args.out<std::uint16_t>() + first, n);
    }
  }
}

// ---- numbers of other types ----

const simd_numbers::Conversion* conversion_of(const OpDesc& d) {
  for (const simd_numbers::Conversion& c : simd_numbers::loops(cpu_isa()).conversions) {
    if (c.from == d.inputs[0].dtype && c.to == d.outputs[0].dtype) return &c;
  }
  return nullptr;
}

Refusal supports_numbers(const OpDesc& d) {
  if (conversion_of(d) == nullptr) return "not between these types";
  return d.node->epilogue.empty() ? nullptr : "no fused steps";
}

void run_numbers(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const simd_numbers::EachFn convert = conversion_of(*args.desc)->run;
  const std::size_t from = dtype_size(args.desc->inputs[0].dtype), to = dtype_size(args.desc->outputs[0].dtype);
  const std::int64_t count = args.plan->state<CastState>().count;
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index * kElementsPerTile;
    const auto at = static_cast<std::size_t>(first);
    convert(args.in<char>(0) + at * from, args.out<char>() + at * to, std::min(count - first, kElementsPerTile));
  }
}

constexpr Kernel kKernels[] = {
    {.name = "cast", .op = "Cast", .rank = 9, .supports = supports_numbers, .plan = plan, .run = run_numbers},
    {.name = "cast_from_half", .op = "Cast", .rank = 10, .supports = supports<true>, .plan = plan, .run = run<true>},
    {.name = "cast_to_half", .op = "Cast", .rank = 11, .supports = supports<false>, .plan = plan, .run = run<false>},
};

}  // namespace

extern const KernelFamily cast_kernels;
const KernelFamily cast_kernels = {kKernels};

}  // namespace evn
