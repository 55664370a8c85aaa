// Cast between float32 and float16, and between float32, bool and integers as exported models mix them. A tile is a run of
// elements.
#include <limits>

#include "backends/cpu/elementwise/elementwise_loops.h"
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

// ---- numbers of other types, by plain loops ----

struct Bool {
  std::uint8_t byte;
};

// As ops/cast.cc says: towards zero, the nearest end of the range, NaN to 0; integers modulo 2^bits.
template <typename To, typename From>
inline To converted(From x) {
  if constexpr (std::is_same_v<From, Bool>) {
    return static_cast<To>(x.byte != 0 ? 1 : 0);
  } else if constexpr (std::is_same_v<To, Bool>) {
    return Bool{static_cast<std::uint8_t>(x != 0 ? 1 : 0)};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr auto kEnd = static_cast<From>(std::numeric_limits<To>::max());  // of 32 and 64 bits rounded up, to what is outside
    constexpr auto kBegin = static_cast<From>(std::numeric_limits<To>::min());
    if (x != x) return 0;
    return x >= kEnd ? std::numeric_limits<To>::max() : x <= kBegin ? std::numeric_limits<To>::min() : static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <typename From, typename To>
void convert(const void* x, void* y, std::int64_t first, std::int64_t n) {
  const From* const from = static_cast<const From*>(x) + first;
  To* const to = static_cast<To*>(y) + first;
  for (std::int64_t i = 0; i < n; ++i) to[i] = converted<To>(from[i]);
}

struct Conversion {
  DType from, to;
  void (*run)(const void* x, void* y, std::int64_t first, std::int64_t n);
};
constexpr Conversion kConversions[] = {
    {DType::kUint8, DType::kFloat32, convert<std::uint8_t, float>},
    {DType::kInt8, DType::kFloat32, convert<std::int8_t, float>},
    {DType::kBool, DType::kFloat32, convert<Bool, float>},
    {DType::kInt32, DType::kFloat32, convert<std::int32_t, float>},
    {DType::kInt64, DType::kFloat32, convert<std::int64_t, float>},
    {DType::kFloat32, DType::kUint8, convert<float, std::uint8_t>},
    {DType::kFloat32, DType::kBool, convert<float, Bool>},
    {DType::kFloat32, DType::kInt32, convert<float, std::int32_t>},
    {DType::kFloat32, DType::kInt64, convert<float, std::int64_t>},
    {DType::kInt32, DType::kInt64, convert<std::int32_t, std::int64_t>},
    {DType::kInt64, DType::kInt32, convert<std::int64_t, std::int32_t>},
    {DType::kBool, DType::kInt64, convert<Bool, std::int64_t>},
    {DType::kBool, DType::kInt32, convert<Bool, std::int32_t>},
    {DType::kInt64, DType::kBool, convert<std::int64_t, Bool>},
    {DType::kInt32, DType::kBool, convert<std::int32_t, Bool>},
};

const Conversion* conversion_of(const OpDesc& d) {
  for (const Conversion& c : kConversions) {
    if (c.from == d.inputs[0].dtype && c.to == d.outputs[0].dtype) return &c;
  }
  return nullptr;
}

Refusal supports_numbers(const OpDesc& d) {
  if (conversion_of(d) == nullptr) return "not between these types";
  return d.node->epilogue.empty() ? nullptr : "no fused steps";
}

void run_numbers(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const Conversion& c = *conversion_of(*args.desc);
  const std::int64_t count = args.plan->state<CastState>().count;
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index * kElementsPerTile;
    c.run(args.in<char>(0), args.out<char>(), first, std::min(count - first, kElementsPerTile));
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
