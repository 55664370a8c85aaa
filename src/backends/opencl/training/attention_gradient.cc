// AttentionGradient of float32: scores are computed once more in each launch, by queries and by keys, and never stored. Scratch
// memory has Q, K, V and dy with rows as lanes, sums of that form, and three numbers of each query's row.
#include "ops/training/attention_gradient.h"

#include "backends/opencl/kernels/attention_params.h"
#include "backends/opencl/training/support.h"

namespace evn {
namespace {

using In = AttentionInput;
using Out = AttentionGradientOutput;

constexpr int kDy = AttentionGradientInput::kDy;

constexpr OpenClFunction kPackAcross{"attention_rows", "pack_across"};  // of the library
constexpr OpenClFunction kQueries{"attention_gradient", "attention_queries"};
constexpr OpenClFunction kKeys{"attention_gradient", "attention_keys"};
constexpr OpenClFunction kMask{"attention_gradient", "attention_mask"};

// Floats of the parts of the scratch block, in its order.
struct State {
  AttentionParams p;
  std::int64_t q, dy, k, v;  // packed; sums are as long as what they are of
  std::int64_t rows;
};

Refusal supports(const OpDesc& desc) {
  if (!desc.node->epilogue.empty()) return "no fused steps";
  for (const int i : {int{In::kQ}, int{In::kK}, int{In::kV}, kDy}) {
    if (!is_float(desc.inputs[static_cast<std::size_t>(i)])) return "only float32";
  }
  return refuse_attention_mask(desc);
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  State& s = plan->state<State>();
  s = State{};
  s.p = attention_params(desc);
  const AttentionParams& p = s.p;
  const std::int64_t query_heads = checked_mul(p.batch, p.heads), key_heads = checked_mul(p.batch, p.kv_heads);
  s.q = checked_mul(checked_mul(query_heads, p.padded_queries), p.depth);
  s.dy = checked_mul(checked_mul(query_heads, p.padded_queries), p.value_depth);
  s.k = checked_mul(checked_mul(key_heads, p.padded_keys), p.depth);
  s.v = checked_mul(checked_mul(key_heads, p.padded_keys), p.value_depth);
  s.rows = checked_mul<std::int64_t>(checked_mul(query_heads, p.padded_queries), 3);
  std::int64_t floats = s.rows;
  // Sums are stored in two parts.
  for (const std::int64_t part : {s.q, s.q, s.q, s.dy, s.k, s.k, s.k, s.v, s.v, s.v}) floats = checked_add(floats, part);
  plan->scratch_bytes = checked_mul(static_cast<std::size_t>(floats), sizeof(float));
  plan->flops = 2.0 * static_cast<double>(query_heads) * static_cast<double>(p.queries) * static_cast<double>(p.keys) *
                static_cast<double>(5 * p.depth + 4 * p.value_depth);
  count_bytes(desc, plan);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  const AttentionParams& p = s.p;
  const OpDesc& desc = *args.desc;
  Launcher& cl = launcher(args);
  std::size_t used = 0;
  const auto take = [&](std::int64_t floats) {
    const Buffer taken = part_of(args.scratch, used, static_cast<std::size_t>(floats) * sizeof(float));
    used += taken.size;
    return taken;
  };
  const Buffer &q = args.inputs[In::kQ], &k = args.inputs[In::kK], &v = args.inputs[In::kV], &dy = args.inputs[kDy];
  const Buffer& mask = p.mask != 0 ? args.inputs[In::kMask] : q;
  const Buffer& nonpad = p.has_nonpad != 0 ? args.inputs[In::kNonpad] : q;
  const auto pack = [&](const Buffer& from, const Buffer& to, const std::int64_t(&step)[3], std::int64_t heads, std::int64_t rows,
                        std::int64_t padded, std::int64_t depth) {
    cl.run(kPackAcross, {padded / cl.lanes(), heads, p.batch}, from, to, step[0], step[1], step[2], rows, padded, depth);
  };
  const auto output_or = [&](std::size_t i, const Buffer& other) { return is_wanted(desc, i) ? args.outputs[i] : other; };

  const Buffer rows = take(s.rows), q_across = take(s.q), dy_across = take(s.dy), q_sums = take(2 * s.q);
  pack(q, q_across, p.q_step, p.heads, p.queries, p.padded_queries, p.depth);
  pack(dy, dy_across, p.y_step, p.heads, p.queries, p.padded_queries, p.value_depth);
  const std::int32_t has_dq = is_wanted(desc, Out::kDQ), has_dk = is_wanted(desc, Out::kDK), has_dv = is_wanted(desc, Out::kDV);
  const bool has_dmask = is_wanted(desc, Out::kDMask);
  cl.run(kQueries, {p.padded_queries / cl.lanes(), p.heads, p.batch}, q_across, dy_across, k, v, mask, nonpad, rows, q_sums,
         output_or(Out::kDQ, rows), p, has_dq);
  if (has_dk + has_dv == 0 && !has_dmask) return;
  const Buffer k_across = take(s.k), v_across = take(s.v), k_sums = take(2 * s.k), v_sums = take(2 * s.v);
  pack(k, k_across, p.k_step, p.kv_heads, p.keys, p.padded_keys, p.depth);
  pack(v, v_across, p.v_step, p.kv_heads, p.keys, p.padded_keys, p.value_depth);
  if (has_dk + has_dv != 0) {
    cl.run(kKeys, {p.padded_keys / cl.lanes(), p.kv_heads, p.batch}, q, dy, k_across, v_across, mask, nonpad, rows, k_sums, v_sums,
           output_or(Out::kDK, k_sums), output_or(Out::kDV, v_sums), p, has_dk, has_dv);
  }
  if (!has_dmask) return;
  cl.run(kMask, {ceil_div(p.mask_columns, std::int64_t{cl.lanes()}), p.mask_dim[0] * p.mask_dim[1] * p.mask_dim[2]}, q, dy,
         k_across, v_across, mask, nonpad, rows, args.outputs[Out::kDMask], p);
}

constexpr Kernel kKernels[] = {
    {.name = "attention_gradient",
     .op = kAttentionGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports,
     .plan = plan,
     .run = run},
};

}  // namespace

extern const KernelFamily attention_gradient_opencl_kernels;
const KernelFamily attention_gradient_opencl_kernels = {kKernels};

}  // namespace evn
