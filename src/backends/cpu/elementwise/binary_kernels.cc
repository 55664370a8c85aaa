// Arithmetic of two broadcast float32 inputs, in any layout (broadcast_plan.h). A tile is a run of elements of the output.
#include "backends/cpu/elementwise/broadcast_plan.h"
#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/follow.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

using simd_elementwise::Binary;

constexpr std::int64_t kPowWork = 32;  // of an element
constexpr std::int64_t kPowsAtOnce = 1024;

Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  if (d.inputs.size() != 2) return "only two inputs";
  return nullptr;
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<BroadcastState>();
  plan_broadcast(d, 0, 1, &s);
  p->tiles = ceil_div(s.count, kElementsPerTile);
  const Shape& same = d.outputs[0].shape;
  p->in_place = (d.inputs[0].shape == same ? 1u : 0u) | (d.inputs[1].shape == same ? 2u : 0u);
  p->flops = 2.0 * static_cast<double>(s.count);
  p->bytes = bytes_of(d);
}

template <Binary Op>
void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<BroadcastState>();
  const simd_elementwise::Loops& loops = simd_elementwise::loops(s.isa);
  const Epilogue* epilogue = epilogue_of(*args.desc);
  const bool past = goes_past_caches(args) && args.outputs[0].address() != args.inputs[1].address();
  [[maybe_unused]] CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t at = index * kElementsPerTile;
    const std::int64_t last = std::min(s.count, at + kElementsPerTile);
    for_each_run(s, at, last, [&](std::int64_t x, std::int64_t z, std::int64_t y, std::int64_t n, std::int64_t count) {
      simd_elementwise::Rows rows = {1, 0, 0, 0};
      if constexpr (Op == Binary::kPow) {                                    // takes long
        const std::int64_t at_once = n < kPowsAtOnce ? kPowsAtOnce / n : 1;  // short rows
        for (std::int64_t r = 0; r < count; r += at_once) {
          const std::int64_t some = std::min(at_once, count - r);
          if (some > 1) rows = {some, s.x_step[1], s.z_step[1], s.y_step[1]};
          else rows = {1, 0, 0, 0};
          const float* const bases = args.in<float>(0) + x + r * s.x_step[1];
          const float* const powers = args.in<float>(1) + z + r * s.z_step[1];
          float* const to = args.out<float>() + y + r * s.y_step[1];
          const bool goes_on = by_parts(&points, n, kPowsAtOnce, some * kPowWork, [&](std::int64_t first, std::int64_t until) {
            loops.binary(Op, bases + first * s.x_step[0], s.x_step[0], powers + first * s.z_step[0], s.z_step[0], to + first,
                         until - first, rows, past, epilogue);
          });
          if (!goes_on) return;
        }
      } else {
        if (count > 1) rows = {count, s.x_step[1], s.z_step[1], s.y_step[1]};
        loops.binary(Op, args.in<float>(0) + x, s.x_step[0], args.in<float>(1) + z, s.z_step[0], args.out<float>() + y, n, rows,
                     past, epilogue);
      }
    });
  }
}

template <Binary Op>
constexpr Kernel row(const char* name, const char* op) {
  return {.name = name,
          .op = op,
          .rank = 10,
          .supports = supports,
          .plan = plan,
          .run = run<Op>,
          .layouts = follow_broadcast,
          .fusion = {.channel_views = channel_views<kViewInputs | kViewOutputs>}};
}

constexpr Kernel kKernels[] = {
    row<Binary::kAdd>("add", "Add"), row<Binary::kSub>("sub", "Sub"),       row<Binary::kMul>("mul", "Mul"),
    row<Binary::kDiv>("div", "Div"), row<Binary::kMin>("min", "Min"),       row<Binary::kMax>("max", "Max"),
    row<Binary::kPow>("pow", "Pow"), row<Binary::kPRelu>("prelu", "PRelu"), row<Binary::kAdd>("sum", "Sum"),
};

}  // namespace

extern const KernelFamily binary_kernels;
const KernelFamily binary_kernels = {kKernels};

}  // namespace evn
