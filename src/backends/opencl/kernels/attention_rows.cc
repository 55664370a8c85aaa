// Attention of the format, float32, without past keys and values. attention.cc has what graph/passes/fuse_attention makes.
#include "ops/attention_rows.h"

#include <algorithm>

#include "backends/opencl/kernels/support.h"

namespace evn {
namespace {

using In = AttentionInput;
using Attr = AttentionAttr;

constexpr OpenClFunction kPackAcross{"attention_rows", "pack_across"};
constexpr OpenClFunction kAttentionRows{"attention_rows", "attention_rows"};

constexpr std::int64_t kMostLanes = 16;                      // of any device
constexpr std::int64_t kEverything = std::int64_t{1} << 40;  // keys to either side, where nothing bounds them

// The struct that attention_rows.cl takes, laid out as there.
struct Attention {
  std::int64_t k_step[3], v_step[3], y_step[3], mask_step[3];
  std::int64_t mask_columns, left, right;
  std::int64_t heads, kv_heads, queries, keys, depth, value_depth, padded;
  float scale, softcap;
  std::int32_t mask, has_nonpad;
};

struct State {
  Attention p;
  std::int64_t batch, q_step[3];
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
  const bool takes_mask =
      !desc.has_input(In::kMask) || is_float(desc.inputs[In::kMask]) || desc.inputs[In::kMask].dtype == DType::kBool;
  return takes_mask ? nullptr : "only float32";
}

void set_steps(const AttentionGeometry& g, std::int64_t heads, std::int64_t rows, std::int64_t depth, std::int64_t (&step)[3]) {
  step[0] = checked_mul(checked_mul(heads, rows), depth);
  step[1] = g.flat ? depth : rows * depth;
  step[2] = g.flat ? heads * depth : depth;
}

void set_mask(const OpDesc& desc, Attention* p) {
  p->mask_columns = p->keys;
  if (!desc.has_input(In::kMask)) return;
  const Shape& mask = desc.inputs[In::kMask].shape;
  p->mask = is_float(desc.inputs[In::kMask]) ? 1 : 2;
  p->mask_columns = mask[mask.rank() - 1];
  std::int64_t step = p->mask_columns;
  for (int i = mask.rank() - 2, axis = 2; i >= 0; --i, --axis) {
    p->mask_step[axis] = mask[i] == 1 ? 0 : step;
    step *= mask[i];
  }
}

// Bounds that only later versions have read as not given.
std::int64_t window(const Node& node, int attribute) {
  const std::int64_t given = attr_given(node, attribute) ? attr_int(node, attribute) : -1;
  return given < 0 ? kEverything : std::min(given, kEverything);
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  const Node& node = *desc.node;
  const AttentionGeometry g =
      attention_geometry(node, desc.inputs[In::kQ].shape, desc.inputs[In::kK].shape, desc.inputs[In::kV].shape, nullptr);
  State& s = plan->state<State>();
  s = State{};
  Attention& p = s.p;
  s.batch = g.batch;
  p.heads = g.heads;
  p.kv_heads = std::max<std::int64_t>(g.kv_heads, 1);
  p.queries = g.queries;
  p.keys = to_int(g.keys);
  p.depth = g.depth;
  p.value_depth = g.value_depth;
  p.padded = checked_mul<std::int64_t>(ceil_div(g.queries, kMostLanes), kMostLanes);
  set_steps(g, g.heads, g.queries, g.depth, s.q_step);
  set_steps(g, g.kv_heads, g.keys, g.depth, p.k_step);
  set_steps(g, g.kv_heads, g.keys, g.value_depth, p.v_step);
  set_steps(g, g.heads, g.queries, g.value_depth, p.y_step);
  set_mask(desc, &p);
  p.left = window(node, Attr::kLeft);
  p.right = attr_int(node, Attr::kIsCausal) != 0 ? 0 : window(node, Attr::kRight);
  p.scale = static_cast<float>(attention_scale(static_cast<double>(attr_float(node, Attr::kScale)), g.depth));
  p.softcap = attr_float(node, Attr::kSoftcap);
  p.has_nonpad = desc.has_input(In::kNonpad);
  const std::int64_t rows = checked_mul(checked_mul(g.batch, g.heads), p.padded);
  s.q = checked_mul(rows, g.depth);
  s.sums = checked_mul(rows, g.value_depth);
  plan->scratch_bytes = checked_mul(static_cast<std::size_t>(checked_add(s.q, s.sums)), sizeof(float));
  plan->flops = 2.0 * static_cast<double>(g.batch * g.heads) * static_cast<double>(g.queries) * static_cast<double>(g.keys) *
                static_cast<double>(g.depth + g.value_depth);
  count_bytes(desc, plan);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  const Attention& p = s.p;
  Launcher& cl = launcher(args);
  const std::size_t of_q = static_cast<std::size_t>(s.q) * sizeof(float);
  const Buffer across{args.scratch.memory, args.scratch.offset, of_q};
  const Buffer sums{args.scratch.memory, args.scratch.offset + of_q, static_cast<std::size_t>(s.sums) * sizeof(float)};
  const Buffer& q = args.inputs[In::kQ];
  const Grid grid{p.padded / cl.lanes(), p.heads, s.batch};
  cl.run(kPackAcross, grid, q, across, s.q_step[0], s.q_step[1], s.q_step[2], p.queries, p.padded, p.depth);
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
