// Attention of the format, float32, without past keys and values. attention.cc has what graph/passes/fuse_attention makes.
#include "backends/opencl/kernels/attention_params.h"

namespace evn {
namespace {

using In = AttentionInput;
using Attr = AttentionAttr;

constexpr OpenClFunction kPackAcross{"attention_rows", "pack_across"};
constexpr OpenClFunction kAttentionRows{"attention_rows", "attention_rows"};

struct State {
  AttentionParams p;
  std::int64_t q, sums;  // floats of the parts of the scratch block
};

Refusal supports(const OpDesc& desc) {
  if (!desc.node->epilogue.empty()) return "no fused steps";
  if (desc.has_input(In::kPastKey)) return "no past keys and values";
  const std::int64_t precision = attr_int(*desc.node, Attr::kPrecision);
  if (precision == EVN_DTYPE_FLOAT16 || precision == EVN_DTYPE_BFLOAT16) return "no softmax that is rounded";
  for (const TensorDesc& output : desc.outputs.subspan(1)) {
    if (output.dtype != DType::kUndefined) return "only the first output";
  }
  for (const int i : {In::kQ, In::kK, In::kV}) {
    if (!is_float(desc.inputs[static_cast<std::size_t>(i)])) return "only float32";
  }
  return refuse_attention_mask(desc);
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  State& s = plan->state<State>();
  s = State{};
  s.p = attention_params(desc);
  const AttentionParams& p = s.p;
  const std::int64_t heads = checked_mul(p.batch, p.heads), rows = checked_mul(heads, p.padded_queries);
  s.q = checked_mul(rows, p.depth);
  s.sums = checked_mul(checked_mul(rows, p.value_depth), std::int64_t{2});
  plan->scratch_bytes = checked_mul(static_cast<std::size_t>(checked_add(s.q, s.sums)), sizeof(float));
  plan->flops = 2.0 * static_cast<double>(heads) * static_cast<double>(p.queries) * static_cast<double>(p.keys) *
                static_cast<double>(p.depth + p.value_depth);
  count_bytes(desc, plan);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  const AttentionParams& p = s.p;
  Launcher& cl = launcher(args);
  const std::size_t of_q = static_cast<std::size_t>(s.q) * sizeof(float);
  const Buffer across{args.scratch.memory, args.scratch.offset, of_q};
  const Buffer sums{args.scratch.memory, args.scratch.offset + of_q, static_cast<std::size_t>(s.sums) * sizeof(float)};
  const Buffer& q = args.inputs[In::kQ];
  const Grid grid{p.padded_queries / cl.lanes(), p.heads, p.batch};
  cl.run(kPackAcross, grid, q, across, p.q_step[0], p.q_step[1], p.q_step[2], p.queries, p.padded_queries, p.depth);
  cl.run(kAttentionRows, grid, across, args.inputs[In::kK], args.inputs[In::kV], p.mask != 0 ? args.inputs[In::kMask] : q,
         p.has_nonpad != 0 ? args.inputs[In::kNonpad] : q, sums, args.outputs[0], p);
}

constexpr Kernel kKernels[] = {
    {.name = "attention_rows", .op = "Attention", .rank = 10, .supports = supports, .plan = plan, .run = run},
};

}  // namespace

extern const KernelFamily attention_rows_opencl_kernels;
const KernelFamily attention_rows_opencl_kernels = {kKernels};

}  // namespace evn
