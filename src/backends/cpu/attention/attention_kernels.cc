// Attention, float32: the operator of ai.onnx, and the one that fused graphs have (ops/fused_attention.h), the latter with products
// of bfloat16 too. A tile is some blocks of query rows; a block is rows of one head, whose scores stay in the thread's scratch.
#include <algorithm>
#include <cmath>

#include "backends/cpu/attention/attention_loops.h"
#include "backends/cpu/bfloat/bfloat_attention.h"
#include "backends/cpu/support.h"
#include "device/paged.h"
#include "ops/fused_attention.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

constexpr std::int64_t kBlockRows = 128;        // of queries, unless their scores would not fit
constexpr std::int64_t kBlockScores = 1 << 17;  // floats
constexpr std::int64_t kLeastRows = 16;
constexpr std::int64_t kLeastBfloatRows = 64;  // of a block, that are worth packing keys and values
constexpr std::int64_t kBlocksPerThread = 3;
constexpr double kBfloatTileCost = 3 * kTileCost;            // as much is softmax, which takes as long as ever
constexpr std::int64_t kEverything = std::int64_t{1} << 40;  // keys to either side, where nothing bounds them

constexpr Refusal kNoSteps = "no fused steps";

struct AttentionState {
  Isa isa;
  float scale, softcap;
  bool bool_mask, has_mask, blind_is_zero;
  AttentionOperand q, k, v;
  std::int64_t batch, heads, group, queries, keys, past, depth, value_depth;
  std::int64_t y_step[4], mask_step[4];
  std::int64_t visible, left, right;    // keys that the mask has; how far a query sees
  std::int64_t together;                // heads of a block, more than 1 where there is one query
  std::int64_t rows, blocks, per_tile;  // of a block; blocks of as many heads; units of a tile
  bool k_paged, v_paged;
  Isa bfloat_isa;  // of the products, where they have operands of bfloat16
  bool is_bfloat;
};

void finish_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<AttentionState>();
  s.isa = cpu_isa();
  // The number of rows does not depend on the batch, so that a batch has the blocks that it has alone.
  s.rows = std::clamp<std::int64_t>(kBlockScores / std::max<std::int64_t>(s.keys, 1), kLeastRows, kBlockRows);
  s.blocks = std::max<std::int64_t>(1, ceil_div(s.queries, s.rows));
  const bool is_stored = d.outputs.size() > 1;  // keys and values, also where there are no queries
  const bool is_empty = s.batch == 0 || s.heads == 0 || (!is_stored && (s.queries == 0 || (s.value_depth == 0 && s.past == 0)));
  const std::int64_t heads = checked_mul(s.batch, s.heads);
  s.together = s.queries == 1 && !is_empty ? simd_attention::heads_together(s.group, heads / s.group, d.threads) : 1;
  s.rows = s.together > 1 ? s.together : std::max<std::int64_t>(1, ceil_div(s.queries, s.blocks));
  const std::int64_t units = is_empty ? 0 : checked_mul(heads / s.together, s.blocks);
  const double cost = static_cast<double>(s.rows) * static_cast<double>(s.keys) * static_cast<double>(s.depth + s.value_depth);
  s.per_tile = units_per_tile(units, simd_attention::cost_of_rows(s.rows, s.keys, s.depth + s.value_depth));
  p->tiles = ceil_div(units, s.per_tile);
  const std::int64_t floats = simd_attention::loops(s.isa).buffer_floats(s.rows, s.keys, s.depth, s.value_depth);
  p->thread_scratch_bytes = static_cast<std::size_t>(checked_mul<std::int64_t>(floats, sizeof(float)));
  p->flops = 2.0 * static_cast<double>(units) * cost;
  p->bytes = bytes_of(d);
}

// Cuts into as many blocks as keep threads busy: each packs its head's keys and values for itself.
void finish_bfloat_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<AttentionState>();
  const simd_bfloat_gemm::Loops& loops = simd_bfloat_gemm::loops(s.bfloat_isa);
  const std::int64_t heads = checked_mul(s.batch, s.heads);
  const std::int64_t wanted = d.threads < 2 ? 1 : kBlocksPerThread * static_cast<std::int64_t>(d.threads);
  const std::int64_t most = ceil_div(s.queries, kLeastBfloatRows);
  s.blocks = std::clamp<std::int64_t>(ceil_div(wanted, std::max<std::int64_t>(heads, 1)), 1, std::max<std::int64_t>(most, 1));
  s.rows = ceil_div(ceil_div(s.queries, s.blocks), kBfloatQueries) * kBfloatQueries;
  s.blocks = ceil_div(s.queries, s.rows);
  const std::int64_t units = checked_mul(heads, s.blocks);
  const double cost = static_cast<double>(s.rows) * static_cast<double>(s.keys) * static_cast<double>(s.depth + s.value_depth);
  s.per_tile = units_per_tile(units, cost, kBfloatTileCost);
  p->tiles = ceil_div(units, s.per_tile);
  p->thread_scratch_bytes = bfloat_attention_bytes(loops, {s.keys, s.depth, s.value_depth});
  p->flops = 2.0 * static_cast<double>(units) * cost;
  p->bytes = bytes_of(d);
}

// ------------------------------------------------------------------------------------------------------- fused --

using Fused = FusedAttentionInput;

Refusal fused_supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  if (!d.node->epilogue.empty()) return kNoSteps;
  const auto innermost = [&](int perm, int view) {
    if (attr_given(*d.node, view)) return attr_ints(*d.node, view)[7] == 1;
    const std::span<const std::int64_t> axes = attr_ints(*d.node, perm);
    return axes.empty() || axes[3] == 3;
  };
  const std::span<const std::int64_t> k_axes = attr_ints(*d.node, FusedAttentionAttr::kKPerm);
  const bool k_lies_across = !attr_given(*d.node, FusedAttentionAttr::kKView) && !k_axes.empty() && k_axes[2] == 3;
  if (!innermost(FusedAttentionAttr::kQPerm, FusedAttentionAttr::kQView) ||
      !innermost(FusedAttentionAttr::kVPerm, FusedAttentionAttr::kVView) ||
      (!k_lies_across && !innermost(FusedAttentionAttr::kKPerm, FusedAttentionAttr::kKView))) {
    return "rows that do not lie together";
  }
  const std::span<const std::int64_t> y_axes = attr_ints(*d.node, FusedAttentionAttr::kYPerm);
  return y_axes.empty() || y_axes[3] == 3 ? nullptr : "rows that do not lie together";
}

void fused_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<AttentionState>();
  s = AttentionState{};
  s.has_mask = d.has_input(Fused::kMask);
  const FusedAttentionSizes z = fused_attention_sizes(*d.node, d.inputs[0].shape, d.inputs[1].shape, d.inputs[2].shape,
                                                      s.has_mask ? &d.inputs[3].shape : nullptr);
  s.scale = attr_float(*d.node, FusedAttentionAttr::kScale);
  s.q = z.q;
  s.k = z.k;
  s.v = z.v;
  s.batch = z.batch;
  s.heads = z.heads;
  s.group = 1;
  s.queries = z.queries;
  s.keys = s.visible = z.keys;
  s.depth = z.depth;
  s.value_depth = z.value_depth;
  std::copy_n(z.y_step, 4, s.y_step);
  std::copy_n(z.mask_step, 4, s.mask_step);
  s.left = s.right = kEverything;
  s.k_paged = (d.fusion.paged >> Fused::kK & 1) != 0;
  s.v_paged = (d.fusion.paged >> Fused::kV & 1) != 0;
  finish_plan(d, p);
}

// Keys and values whose axes are in the order of a cache.
std::uint32_t fused_paged_inputs(const OpDesc& d) {
  const auto lies_so = [&](int input, int perm, int view) {
    if (attr_given(*d.node, view) || d.inputs[static_cast<std::size_t>(input)].shape.rank() != 4) return false;
    const std::span<const std::int64_t> axes = attr_ints(*d.node, perm);
    return axes.empty() || (axes[0] == 0 && axes[1] == 1 && axes[2] == 2);
  };
  return (lies_so(Fused::kK, FusedAttentionAttr::kKPerm, FusedAttentionAttr::kKView) ? 1u << Fused::kK : 0) |
         (lies_so(Fused::kV, FusedAttentionAttr::kVPerm, FusedAttentionAttr::kVView) ? 1u << Fused::kV : 0);
}

Refusal bfloat_supports(const OpDesc& d) {
  const Refusal refusal = refuses_half(d);
  return refusal != nullptr ? refusal : fused_supports(d);
}

void bfloat_plan(const OpDesc& d, KernelPlan* p) {
  fused_plan(d, p);
  auto& s = p->state<AttentionState>();
  s.bfloat_isa = bfloat16_isa();
  s.is_bfloat = s.queries > kFewBfloatQueries && s.keys > 0 && s.depth > 0 && s.value_depth > 0 && p->tiles > 0;
  if (s.is_bfloat) finish_bfloat_plan(d, p);
}

// -------------------------------------------------------------------------------------------------- of ai.onnx --

struct Input {
  enum : int { kQ, kK, kV, kMask, kPastKey, kPastValue, kNonpad };
};
struct Attr {
  enum : int { kIsCausal, kKvHeads, kQHeads, kMode, kScale, kSoftcap, kPrecision, kLeft, kRight };
};

Refusal supports(const OpDesc& d) {
  if (!d.node->epilogue.empty()) return kNoSteps;
  for (int i = 0; i <= Input::kPastValue; ++i) {
    if (!d.has_input(i)) continue;
    const DType dtype = d.inputs[static_cast<std::size_t>(i)].dtype;
    if (dtype != DType::kFloat32 && !(i == Input::kMask && dtype == DType::kBool)) return kNeedsFloat32;
  }
  const std::int64_t precision = attr_int(*d.node, Attr::kPrecision);
  if (precision != 0 && precision != EVN_DTYPE_FLOAT32) return "softmax_precision is not float32";
  if (d.outputs.size() > 3 && d.outputs[3].dtype != DType::kUndefined) return "scores are an output";
  return nullptr;
}

// Q, K or V: [batch, steps, heads * depth] or [batch, heads, steps, depth].
AttentionOperand operand_of(const Shape& shape, std::int64_t heads) {
  AttentionOperand o;
  if (shape.rank() == 4) {
    std::int64_t dense[kMaxRank];
    row_major_strides(shape, dense);
    for (int i = 0; i < 4; ++i) {
      o.dims[i] = shape[i];
      o.step[i] = dense[i];
    }
    return o;
  }
  const std::int64_t depth = shape[2] / heads;
  const std::int64_t dims[] = {shape[0], heads, shape[1], depth};
  const std::int64_t steps[] = {shape[1] * shape[2], depth, shape[2], 1};
  std::copy_n(dims, 4, o.dims);
  std::copy_n(steps, 4, o.step);
  return o;
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<AttentionState>();
  s = AttentionState{};
  const Node& node = *d.node;
  s.q = operand_of(d.inputs[Input::kQ].shape, attr_int(node, Attr::kQHeads));
  s.k = operand_of(d.inputs[Input::kK].shape, attr_int(node, Attr::kKvHeads));
  s.v = operand_of(d.inputs[Input::kV].shape, attr_int(node, Attr::kKvHeads));
  s.past = d.has_input(Input::kPastKey) ? d.inputs[Input::kPastKey].shape[2] : 0;
  s.batch = s.q.dims[0];
  s.heads = s.q.dims[1];
  s.group = s.k.dims[1] > 0 ? s.heads / s.k.dims[1] : 1;
  s.queries = s.q.dims[2];
  s.keys = s.visible = checked_add(s.k.dims[2], s.past);
  s.depth = s.q.dims[3];
  s.value_depth = s.v.dims[3];
  const AttentionOperand y = operand_of(d.outputs[0].shape, s.heads);
  std::copy_n(y.step, 4, s.y_step);
  s.has_mask = d.has_input(Input::kMask);
  if (s.has_mask) {
    const Shape& mask = d.inputs[Input::kMask].shape;
    const Strides steps = broadcast_strides(mask, {s.batch, s.heads, s.queries, s.keys});
    std::copy_n(steps.step, 4, s.mask_step);
    s.visible = std::min(s.visible, mask[mask.rank() - 1]);
    s.bool_mask = d.inputs[Input::kMask].dtype == DType::kBool;
  }
  const auto window = [&](int attribute) {
    const std::int64_t given = attr_given(node, attribute) ? attr_int(node, attribute) : -1;
    return given < 0 ? kEverything : std::min(given, kEverything);
  };
  const bool has_windows = node.resolved.size() > static_cast<std::size_t>(Attr::kRight);
  s.left = has_windows ? window(Attr::kLeft) : kEverything;
  s.right = has_windows ? window(Attr::kRight) : kEverything;
  if (attr_int(node, Attr::kIsCausal) != 0) s.right = 0;
  const float given = attr_float(node, Attr::kScale);
  s.scale = given != 0 ? given : static_cast<float>(1 / std::sqrt(static_cast<double>(s.depth)));
  s.softcap = attr_float(node, Attr::kSoftcap);
  s.blind_is_zero = true;
  finish_plan(d, p);
}

// Past and new rows of one head of K or V, one behind the other.
void store_present(const simd_attention::Rows& rows, std::int64_t count, std::int64_t depth, float* to, CancelPoints* points) {
  for (std::int64_t t = 0; t < count; ++t, to += depth) {
    if (stops(points, depth)) return;
    std::copy_n(rows.at(t), depth, to);
  }
}

// --------------------------------------------------------------------------------------------------------- run --

simd_attention::Rows rows_of(const AttentionOperand& o, const float* data, std::int64_t b, std::int64_t h) {
  simd_attention::Rows r;
  r.row = data + o.offset + b * o.step[0] + h * o.step[1];
  r.step = o.step[2];
  r.element_step = o.dims[3] == 1 ? 1 : o.step[3];
  return r;
}

// Rows of a paged cache; `data` is its PageTable.
simd_attention::Rows paged_rows_of(const AttentionOperand& o, const void* data, std::int64_t b, std::int64_t h) {
  simd_attention::Rows r;
  r.past_count = o.dims[2];
  r.set_pages(*static_cast<const PageTable*>(data), (o.dims[0] == 1 ? 0 : b) * o.dims[1] + (o.dims[1] == 1 ? 0 : h));
  return r;
}

class Blocks {
 public:
  Blocks(const KernelArgs& args, bool is_fused, CancelPoints* points)
      : args_(args), s_(args.plan->state<AttentionState>()), is_fused_(is_fused), points_(points) {}

  void run(std::int64_t unit) {
    const std::int64_t block = unit % s_.blocks;
    const std::int64_t head = unit / s_.blocks * s_.together, h = head % s_.heads, b = head / s_.heads;
    const std::int64_t first = block * s_.rows;
    const bool across = s_.together > 1;  // rows are heads
    simd_attention::Block a{};
    a.queries = across ? s_.together : std::min(s_.rows, s_.queries - first);
    if (a.queries > 0) {
      a.q = args_.in<float>(0) + s_.q.offset + b * s_.q.step[0] + h * s_.q.step[1] + first * s_.q.step[2];
      a.y = args_.out<float>() + b * s_.y_step[0] + h * s_.y_step[1] + first * s_.y_step[2];
    }
    a.q_step = s_.q.step[across ? 1 : 2];
    a.k = s_.k_paged ? paged_rows_of(s_.k, args_.in<char>(1), b, h) : rows_of(s_.k, args_.in<float>(1), b, h / s_.group);
    a.v = s_.v_paged ? paged_rows_of(s_.v, args_.in<char>(2), b, h) : rows_of(s_.v, args_.in<float>(2), b, h / s_.group);
    a.keys = s_.keys;
    a.depth = s_.depth;
    a.value_depth = s_.value_depth;
    a.scale = s_.scale;
    a.softcap = s_.softcap;
    a.visible_keys = s_.visible;
    a.blind_is_zero = s_.blind_is_zero;
    a.y_step = s_.y_step[across ? 1 : 2];
    a.buffer = static_cast<float*>(args_.thread_scratch);
    a.points = points_;
    add_mask(b, h, first, &a);
    if (is_fused_) {
      a.first_high = kEverything;
    } else {
      add_past(b, h, &a);
      add_bounds(b, first, &a);
      if (block == 0 && h % s_.group == 0) store_presents(b, h / s_.group, a);
    }
    if (a.queries <= 0 || points_->stopped) return;
    const simd_attention::Loops& loops = simd_attention::loops(s_.isa);
    if (!s_.is_bfloat) return loops.run(a);
    run_bfloat_attention(simd_bfloat_gemm::loops(s_.bfloat_isa), loops, a, head == packed_head_);
    packed_head_ = head;
  }

 private:
  void add_mask(std::int64_t b, std::int64_t h, std::int64_t first, simd_attention::Block* a) const {
    if (!s_.has_mask) return;
    const std::int64_t at = b * s_.mask_step[0] + h * s_.mask_step[1] + first * s_.mask_step[2];
    if (s_.bool_mask) {
      a->bool_mask = args_.in<std::uint8_t>(Input::kMask) + at;
    } else {
      a->mask = args_.in<float>(Input::kMask) + at;
    }
    a->mask_row = s_.mask_step[s_.together > 1 ? 1 : 2];
    a->mask_step = s_.mask_step[3];
  }

  void add_past(std::int64_t b, std::int64_t h, simd_attention::Block* a) const {
    if (s_.past == 0) return;
    const std::int64_t head = b * s_.k.dims[1] + h / s_.group;
    a->k.set_past(args_.in<float>(Input::kPastKey) + head * s_.past * s_.depth, s_.past, s_.depth);
    a->v.set_past(args_.in<float>(Input::kPastValue) + head * s_.past * s_.value_depth, s_.past, s_.value_depth);
  }

  // Query i stands at key i + offset and sees from `left` before it to `right` behind it.
  void add_bounds(std::int64_t b, std::int64_t first, simd_attention::Block* a) const {
    std::int64_t offset = s_.past;
    if (args_.desc->has_input(Input::kNonpad)) {
      const std::int64_t valid = std::clamp<std::int64_t>(args_.in<std::int64_t>(Input::kNonpad)[b], 0, kEverything);
      a->visible_keys = std::min(a->visible_keys, valid);
      offset = valid - s_.queries;
    }
    a->slope = s_.together == 1 && (s_.left < kEverything || s_.right < kEverything) ? 1 : 0;
    a->first_low = s_.left < kEverything ? first + offset - s_.left : -kEverything;
    a->first_high = s_.right < kEverything ? first + offset + s_.right + 1 : kEverything;
  }

  void store_presents(std::int64_t b, std::int64_t kv_head, const simd_attention::Block& a) const {
    const OpDesc& d = *args_.desc;
    const std::int64_t head = b * s_.k.dims[1] + kv_head;
    const auto wanted = [&](std::size_t i) { return d.outputs.size() > i && d.outputs[i].dtype != DType::kUndefined; };
    if (wanted(1)) store_present(a.k, s_.keys, s_.depth, args_.out<float>(1) + head * s_.keys * s_.depth, points_);
    if (wanted(2)) store_present(a.v, s_.keys, s_.value_depth, args_.out<float>(2) + head * s_.keys * s_.value_depth, points_);
  }

  const KernelArgs& args_;
  const AttentionState& s_;
  bool is_fused_;
  CancelPoints* const points_;
  std::int64_t packed_head_ = -1;  // of which the thread's scratch has keys and values
};

template <bool Fused>
void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<AttentionState>();
  CancelPoints points = points_of(cancel);
  Blocks blocks(args, Fused, &points);
  const std::int64_t units = s.batch * (s.heads / s.together) * s.blocks;
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t last = std::min((index + 1) * s.per_tile, units);
    for (std::int64_t unit = index * s.per_tile; unit < last && !points.stopped; ++unit) blocks.run(unit);
  }
}

constexpr Kernel kKernels[] = {
    {.name = "attention",
     .op = "Attention",
     .rank = 10,
     .supports = supports,
     .plan = plan,
     .run = run<false>,
     .takes_empty = true},
    {.name = "fused_attention",
     .op = kFusedAttention,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = fused_supports,
     .plan = fused_plan,
     .run = run<true>,
     .fusion = {.paged_inputs = fused_paged_inputs}},
    {.name = "fused_attention_bf16",
     .op = kFusedAttention,
     .domain = kInternalDomain,
     .rank = 20,
     .supports = bfloat_supports,
     .plan = bfloat_plan,
     .run = run<true>,
     .operands = Precision::kBfloat16},
};

}  // namespace

extern const KernelFamily attention_kernels;
const KernelFamily attention_kernels = {kKernels};

}  // namespace evn
