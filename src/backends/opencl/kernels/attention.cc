// The attention that graph/passes/fuse_attention makes, float32.
#include <algorithm>

#include "backends/opencl/kernels/grouped.h"
#include "backends/opencl/kernels/product.h"
#include "backends/opencl/kernels/support.h"
#include "backends/opencl/kernels/tiled.h"
#include "ops/fused_attention.h"

namespace evn {
namespace {

constexpr OpenClFunction kAttention{"attention", "attention"};
constexpr TiledFunctions kTiled = EVN_TILES("tiled", "strided", kCostOfMatrices);

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

// ---- on a GPU: scores by tiles, Softmax, and values by tiles ----

// The struct that tiled.cl takes, laid out as there.
struct Strided {
  std::int64_t heads;
  std::int64_t a[2], b[2], c[2], y[2];
  std::int64_t b_line, b_step;
  std::int64_t y_row;
};

bool takes_tiles(const Attention& p) {
  const auto in_runs = [](const std::int64_t* step) { return step[2] == 1 || step[3] == 1; };
  return in_runs(p.q_step) && in_runs(p.k_step) && in_runs(p.v_step) && p.y_step[3] == 1 &&
         (p.mask_step[3] == 0 || p.mask_step[3] == 1);
}

Buffer moved(Buffer buffer, std::int64_t elements) {
  buffer.offset += static_cast<std::size_t>(elements) * sizeof(float);
  return buffer;
}

void run_tiles(Launcher& cl, const Attention& p, const KernelArgs& args, const Buffer& mask) {
  const std::int64_t products = p.queries == 0 ? 0 : p.rows / p.queries;
  Product scores{};
  scores.m = p.queries, scores.n = p.keys, scores.k = p.depth;
  scores.a_row = p.q_step[2], scores.a_step = p.q_step[3];
  scores.alpha = p.scale, scores.beta = 1.0f;
  scores.has_c = p.has_mask, scores.c_row = p.mask_step[2], scores.c_column = p.mask_step[3];
  const Strided of_scores{p.heads,
                          {p.q_step[0], p.q_step[1]},
                          {p.k_step[0], p.k_step[1]},
                          {p.mask_step[0], p.mask_step[1]},
                          {p.heads * p.queries * p.keys, p.queries * p.keys},
                          p.k_step[2],
                          p.k_step[3],
                          p.keys};
  run_tiled(cl, kTiled, scores.m, scores.n, scores.k, products, moved(args.inputs[Input::kQ], p.q_offset),
            moved(args.inputs[Input::kK], p.k_offset), mask, args.scratch, scores, of_scores, Epilogue{});
  cl.run(kGroupedSoftmax, row_grid(p.rows), args.scratch, args.scratch, p.keys, std::int32_t{0}, Epilogue{});
  Product values{};
  values.m = p.queries, values.n = p.value_depth, values.k = p.keys;
  values.a_row = p.keys, values.a_step = 1;
  values.alpha = 1.0f;
  const Strided of_values{p.heads,
                          {p.heads * p.queries * p.keys, p.queries * p.keys},
                          {p.v_step[0], p.v_step[1]},
                          {},
                          {p.y_step[0], p.y_step[1]},
                          p.v_step[3],
                          p.v_step[2],
                          p.y_step[2]};
  run_tiled(cl, kTiled, values.m, values.n, values.k, products, args.scratch, moved(args.inputs[Input::kV], p.v_offset),
            args.scratch, args.outputs[0], values, of_values, Epilogue{});
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Attention p = args.plan->state<Attention>();
  Launcher& cl = launcher(args);
  const Buffer& q = args.inputs[Input::kQ];
  const Buffer& mask = p.has_mask != 0 ? args.inputs[Input::kMask] : q;
  if (!cl.is_cpu() && takes_tiles(p)) return run_tiles(cl, p, args, mask);
  p.chunk = cl.is_cpu() ? std::max<std::int64_t>(1, p.rows / 64) : 1;
  cl.run(kAttention, {ceil_div(p.rows, p.chunk)}, q, args.inputs[Input::kK], args.inputs[Input::kV], mask, args.scratch,
         args.outputs[0], p);
}

constexpr Kernel kKernels[] = {
    {.name = "attention",
     .op = kFusedAttention,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports,
     .plan = plan,
     .run = run},
};

}  // namespace

extern const KernelFamily attention_opencl_kernels;
const KernelFamily attention_opencl_kernels = {kKernels};

}  // namespace evn
