// QLinearAdd and QLinearMul of two broadcast tensors of bytes, and tables of bytes (ops/byte_table.h), in any layout. A tile is a
// run of elements of the output, or, of some channels of wider values, of positions.
#include "backends/cpu/elementwise/broadcast_plan.h"
#include "backends/cpu/elementwise/bytes_loops.h"
#include "backends/cpu/follow.h"
#include "ops/byte_table.h"
#include "ops/infra/quantized.h"
#include "ops/merge.h"

namespace evn {
namespace {

enum : int {
  kA = 0,
  kB = 3,
  kY = 6
};  // each is followed by its scale and zero point; of y there is no tensor: its scale is input 6

constexpr std::int64_t kPerTile = 2 * kElementsPerTile;

Refusal supports(const OpDesc& d) { return d.node->epilogue.empty() ? nullptr : "no fused steps"; }

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<BroadcastState>();
  plan_broadcast(d, kA, kB, &s);
  p->tiles = ceil_div(s.count, kPerTile);
  const Shape& same = d.outputs[0].shape;
  p->in_place = (d.inputs[kA].shape == same ? 1u << kA : 0u) | (d.inputs[kB].shape == same ? 1u << kB : 0u);
  p->flops = 4.0 * static_cast<double>(s.count);
  p->bytes = bytes_of(d);
}

std::int32_t zero_of(const KernelArgs& args, int input) {
  if (!args.desc->has_input(input)) return 0;
  const bool is_signed = args.desc->inputs[static_cast<std::size_t>(input)].dtype == DType::kInt8;
  return is_signed ? *args.in<std::int8_t>(input) : *args.in<std::uint8_t>(input);
}

template <bool Product>
void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<BroadcastState>();
  const simd_bytes::Loops& loops = simd_bytes::loops(s.isa);
  const float a_scale = *args.in<float>(kA + 1), b_scale = *args.in<float>(kB + 1), y_scale = *args.in<float>(kY);
  simd_bytes::Arithmetic a{};
  a.x_scale = Product ? quantized_factor(a_scale, b_scale, y_scale) : a_scale / y_scale;
  a.z_scale = Product ? 0 : b_scale / y_scale;
  a.x_zero = zero_of(args, kA + 2);
  a.z_zero = zero_of(args, kB + 2);
  a.zero = static_cast<float>(zero_of(args, kY + 1));
  a.is_signed = args.desc->outputs[0].dtype == DType::kInt8;
  const auto loop = Product ? loops.multiply : loops.add;
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t at = index * kPerTile;
    const std::int64_t last = std::min(s.count, at + kPerTile);
    for_each_run(s, at, last, [&](std::int64_t x, std::int64_t z, std::int64_t y, std::int64_t n, std::int64_t rows) {
      if (stops(&points, kFarElement * s.rank)) return;
      for (std::int64_t r = 0; r < rows; ++r) {
        if (stops(&points, 2 * n + kFarElement)) return;
        loop(a, args.in<std::uint8_t>(kA) + x, s.x_step[0], args.in<std::uint8_t>(kB) + z, s.z_step[0],
             args.out<std::uint8_t>() + y, n);
        if (r + 1 == rows) break;
        x += s.x_step[1];
        z += s.z_step[1];
        y += s.y_step[1];
      }
    });
  }
}

// ------------------------------------------------------------------------------------------------------------- table --

struct TableState {
  Isa isa;
  std::int64_t rows, row, x_step, y_step;  // rows of elements that lie together
  std::int64_t per_tile;                   // elements where there is one row
};

void table_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<TableState>();
  const Shape& x = d.inputs[0].shape;
  s.isa = cpu_isa();
  s.rows = 1;
  s.row = s.x_step = s.y_step = x.elements();
  if (d.output_layout() == Layout::kChannelsLast && d.fusion.pitches != nullptr &&
      (d.input_pitch(0) != x[1] || d.output_pitch() != x[1])) {
    s.row = x[1];
    s.rows = x[1] == 0 ? 0 : x.elements() / x[1];
    s.x_step = d.input_pitch(0);
    s.y_step = d.output_pitch();
  } else {
    p->in_place = 1;
  }
  s.per_tile = s.rows == 1 ? kPerTile : units_per_tile(s.rows, static_cast<double>(s.row), static_cast<double>(kPerTile));
  p->tiles = ceil_div(s.rows == 1 ? s.row : s.rows, s.per_tile);
  p->bytes = bytes_of(d);
}

void table_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<TableState>();
  const simd_bytes::Loops& loops = simd_bytes::loops(s.isa);
  const std::uint8_t* table = args.in<std::uint8_t>(1);
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index * s.per_tile;
    if (s.rows == 1) {
      loops.look_up(table, args.in<std::uint8_t>(0) + first, args.out<std::uint8_t>() + first, std::min(s.per_tile, s.row - first));
      continue;
    }
    for (std::int64_t r = first; r < std::min(first + s.per_tile, s.rows); ++r) {
      const bool goes_on = by_parts(&points, s.row, 64, 4, [&](std::int64_t from, std::int64_t until) {
        loops.look_up(table, args.in<std::uint8_t>(0) + r * s.x_step + from, args.out<std::uint8_t>() + r * s.y_step + from,
                      until - from);
      });
      if (!goes_on || stops(&points, kFarElement)) return;
    }
  }
}

constexpr const char* kContrib = "com.microsoft";
constexpr Kernel kKernels[] = {
    {.name = "qlinear_add",
     .op = "QLinearAdd",
     .domain = kContrib,
     .rank = 10,
     .supports = supports,
     .plan = plan,
     .run = run<false>,
     .layouts = follow_broadcast,
     .fusion = {.channel_views = channel_views<kViewInputs | kViewOutputs>}},
    {.name = "qlinear_mul",
     .op = "QLinearMul",
     .domain = kContrib,
     .rank = 10,
     .supports = supports,
     .plan = plan,
     .run = run<true>,
     .layouts = follow_broadcast,
     .fusion = {.channel_views = channel_views<kViewInputs | kViewOutputs>}},
    {.name = "byte_table",
     .op = kByteTable,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports,
     .plan = table_plan,
     .run = table_run,
     .layouts = follow_first,
     .fusion = {.channel_views = channel_views<kViewInput | kViewOutputs>}},
};

}  // namespace

extern const KernelFamily quantized_elementwise_kernels;
const KernelFamily quantized_elementwise_kernels = {kKernels};

}  // namespace evn
