// The attention that graph/passes/fuse_attention makes, float32.
#include <algorithm>

#include "backends/opencl/kernels/support.h"
#include "ops/fused_attention.h"

namespace evn {
namespace {

constexpr OpenClFunction kAttention{"attention", "attention"};

using Input = FusedAttentionInput;

// The struct that attention.cl takes, laid out as there.
struct Attention {
  std::int64_t q_step[4], k_step[4], v_step[4], y_step[4], mask_step[4];
  std::int64_t q_offset, k_offset, v_offset;
  std::int64_t heads, queries, keys, depth, value_depth, rows, chunk;
  float scale;
  std::int32_t has_mask;
};

Refusal supports(const OpDesc& desc) {
  if (!desc.node->epilogue.empty()) return "no fused steps";
  return refuse_unless_float(desc);
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  Attention& p = plan->state<Attention>();
  p = Attention{};
  p.has_mask = desc.has_input(Input::kMask) ? 1 : 0;
  const FusedAttentionSizes z =
      fused_attention_sizes(*desc.node, desc.inputs[Input::kQ].shape, desc.inputs[Input::kK].shape, desc.inputs[Input::kV].shape,
                            p.has_mask != 0 ? &desc.inputs[Input::kMask].shape : nullptr);
  std::copy_n(z.q.step, 4, p.q_step);
  std::copy_n(z.k.step, 4, p.k_step);
  std::copy_n(z.v.step, 4, p.v_step);
  std::copy_n(z.y_step, 4, p.y_step);
  std::copy_n(z.mask_step, 4, p.mask_step);
  p.q_offset = z.q.offset;
  p.k_offset = z.k.offset;
  p.v_offset = z.v.offset;
  p.heads = z.heads;
  p.queries = z.queries;
  p.keys = z.keys;
  p.depth = z.depth;
  p.value_depth = z.value_depth;
  p.rows = checked_mul(checked_mul(z.batch, z.heads), z.queries);
  p.scale = attr_float(*desc.node, FusedAttentionAttr::kScale);
  plan->scratch_bytes = static_cast<std::size_t>(checked_mul<std::int64_t>(checked_mul(p.rows, p.keys), sizeof(float)));
  plan->flops = 2.0 * static_cast<double>(p.rows) * static_cast<double>(p.keys) * static_cast<double>(p.depth + p.value_depth);
  count_bytes(desc, plan);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Attention p = args.plan->state<Attention>();
  Launcher& cl = launcher(args);
  p.chunk = cl.is_cpu() ? std::max<std::int64_t>(1, p.rows / 64) : 1;
  const Buffer& q = args.inputs[Input::kQ];
  cl.run(kAttention, {ceil_div(p.rows, p.chunk)}, q, args.inputs[Input::kK], args.inputs[Input::kV],
         p.has_mask != 0 ? args.inputs[Input::kMask] : q, args.scratch, args.outputs[0], p);
}

constexpr Kernel kKernels[] = {
    {.name = "attention",
     .op = kFusedAttention,
     .domain = kMergeDomain,
     .rank = 10,
     .supports = supports,
     .plan = plan,
     .run = run},
};

}  // namespace

extern const KernelFamily attention_opencl_kernels;
const KernelFamily attention_opencl_kernels = {kKernels};

}  // namespace evn
