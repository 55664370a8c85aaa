// GroupQueryAttention of com.microsoft, float32: new keys and queries are turned (rotary embedding) as they are used, by each block
// of query rows for itself; the first block of a group's first head writes what the caches get. Caches of a state (PageTable) get
// their new rows in place. A single step has heads in the place of query rows: those that share keys and values read them once.
#include <algorithm>
#include <cmath>

#include "backends/cpu/attention/attention_loops.h"
#include "backends/cpu/support.h"
#include "base/error.h"
#include "device/paged.h"
#include "ops/group_query_attention.h"
#include "ops/infra/walk.h"
#include "ops/op.h"

namespace evn {
namespace {

constexpr std::int64_t kBlockRows = 128;        // of queries, unless their scores would not fit
constexpr std::int64_t kBlockScores = 1 << 17;  // floats
constexpr std::int64_t kLeastRows = 16;
constexpr std::int64_t kEverything = std::int64_t{1} << 40;

using Input = GroupQueryInput;
using Attr = GroupQueryAttr;

struct GroupQueryState {
  Isa isa;
  float scale, softcap;
  std::int64_t bias_step[4];
  std::int64_t batch, heads, groups, steps, depth;
  std::int64_t past, total, present;    // rows of the past caches; as the model says; rows of the present ones
  std::int64_t pairs, positions;        // of the rotary caches
  std::int64_t window;                  // <= 0: none
  std::int64_t together;                // heads of a block, more than 1 where there is one step
  std::int64_t rows, blocks, per_tile;  // of a block; blocks of as many heads; units of a tile
  std::int64_t buffer_floats;           // of the loops
  bool causal, rotates, interleaved, packed, smooth, k_paged, v_paged;
};

Refusal supports(const OpDesc& d) {
  const Node& node = *d.node;
  if (!node.epilogue.empty()) return "no fused steps";
  for (const int i : {int{Input::kQuery}, int{Input::kPastKey}, int{Input::kPastValue}, int{Input::kBias}, int{Input::kSink}}) {
    if (d.has_input(i) && d.inputs[static_cast<std::size_t>(i)].dtype != DType::kFloat32) return kNeedsFloat32;
  }
  if (attr_string(node, Attr::kKeyQuantized) != "NONE") return "quantized caches";
  if (attr_int(node, Attr::kSlidingCache) != 0) return "sliding caches";
  if (d.outputs.size() > 3 && d.outputs[3].dtype != DType::kUndefined) return "scores are an output";
  return nullptr;
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<GroupQueryState>();
  s = GroupQueryState{};
  const Node& node = *d.node;
  const Shape& query = d.inputs[Input::kQuery].shape;
  s.isa = cpu_isa();
  s.batch = query[0];
  s.steps = query[1];
  s.heads = attr_int(node, Attr::kHeads);
  s.groups = attr_int(node, Attr::kGroups);
  s.packed = !d.has_input(Input::kKey);
  s.depth = query[2] / (s.packed ? s.heads + 2 * s.groups : s.heads);
  s.past = d.has_input(Input::kPastKey) ? d.inputs[Input::kPastKey].shape[2] : 0;
  s.total = *static_cast<const std::int32_t*>(d.constant(Input::kTotal)->bytes());
  s.present = std::max(s.past, s.total);
  s.rotates = attr_int(node, Attr::kDoRotary) != 0;
  s.interleaved = attr_int(node, Attr::kInterleaved) != 0;
  if (s.rotates) {
    s.positions = d.inputs[Input::kCosine].shape[0];
    s.pairs = d.inputs[Input::kCosine].shape[1];
  }
  s.window = attr_int(node, Attr::kWindow);
  s.softcap = attr_float(node, Attr::kSoftcap);
  s.smooth = attr_int(node, Attr::kSmooth) == 1;
  if (d.has_input(Input::kBias)) {
    const Strides steps = broadcast_strides(d.inputs[Input::kBias].shape, {s.batch, s.heads, s.steps, s.total});
    std::copy_n(steps.step, 4, s.bias_step);
  }
  s.causal = attr_int(node, Attr::kCausal) != 0;
  s.k_paged = (d.fusion.paged >> Input::kPastKey & 1) != 0;
  s.v_paged = (d.fusion.paged >> Input::kPastValue & 1) != 0;
  const float given = attr_float(node, Attr::kScale);
  s.scale = given != 0 ? given : static_cast<float>(1 / std::sqrt(static_cast<double>(s.depth)));
  s.together = s.steps == 1 ? simd_attention::heads_together(s.heads / s.groups, checked_mul(s.batch, s.groups), d.threads) : 1;
  s.rows = std::clamp<std::int64_t>(kBlockScores / std::max<std::int64_t>(s.present, 1), kLeastRows, kBlockRows);
  s.blocks = std::max<std::int64_t>(1, ceil_div(s.steps, s.rows));
  s.rows = s.together > 1 ? s.together : std::max<std::int64_t>(1, ceil_div(s.steps, s.blocks));
  const std::int64_t units = s.depth == 0 || s.present == 0 ? 0 : checked_mul(checked_mul(s.batch, s.heads / s.together), s.blocks);
  const double cost = 2.0 * static_cast<double>(s.rows) * static_cast<double>(s.present) * static_cast<double>(s.depth);
  s.per_tile = units_per_tile(units, simd_attention::cost_of_rows(s.rows, s.present, 2 * s.depth));
  p->tiles = ceil_div(units, s.per_tile);
  s.buffer_floats = simd_attention::loops(s.isa).buffer_floats(s.rows, s.present, s.depth, s.depth);
  const std::int64_t turned = s.rotates ? checked_mul(checked_add(s.rows, s.steps), s.depth) : 0;
  p->thread_scratch_bytes =
      static_cast<std::size_t>(checked_mul<std::int64_t>(checked_add(s.buffer_floats, turned), sizeof(float)));
  p->flops = 2.0 * static_cast<double>(units) * cost;
  p->bytes = bytes_of(d);
}

// Caches in pages get new rows there.
std::uint32_t paged_inputs(const OpDesc&) { return 1u << Input::kPastKey | 1u << Input::kPastValue; }

// The first 2 * pairs elements of a row, turned by the angles of its position.
void turn(const GroupQueryState& s, const float* x, const float* cosines, const float* sines, float* y) {
  if (!s.interleaved) return simd_attention::loops(s.isa).rotate(x, cosines, sines, s.pairs, s.depth - 2 * s.pairs, y);
  for (std::int64_t p = 0; p < s.pairs; ++p) {
    const float a = x[2 * p], b = x[2 * p + 1];
    y[2 * p] = cosines[p] * a - sines[p] * b;
    y[2 * p + 1] = sines[p] * a + cosines[p] * b;
  }
  std::copy(x + 2 * s.pairs, x + s.depth, y + 2 * s.pairs);
}

class Blocks {
 public:
  Blocks(const KernelArgs& args, CancelPoints* points)
      : args_(args), s_(args.plan->state<GroupQueryState>()), points_(points), buffer_(static_cast<float*>(args.thread_scratch)) {}

  void run(std::int64_t unit) {
    const std::int64_t block = unit % s_.blocks, at = unit / s_.blocks * s_.together, h = at % s_.heads, b = at / s_.heads;
    const std::int64_t group = h / (s_.heads / s_.groups), first = s_.together > 1 ? 0 : block * s_.rows;
    const std::int64_t length = length_of(b), past = past_of(length);
    simd_attention::Block a{};
    a.queries = s_.together > 1 ? s_.together : std::min(s_.rows, s_.steps - first);
    a.keys = past + s_.steps;
    a.visible_keys = std::min(a.keys, length);  // a prompt may be filled up behind its end
    a.depth = a.value_depth = s_.depth;
    a.scale = s_.scale;
    a.softcap = s_.softcap;
    add_sinks(h, &a);
    add_bias(b, h, first, &a);
    a.blind_is_zero = true;
    a.slope = s_.causal && s_.together == 1 ? 1 : 0;
    a.first_low = s_.window > 0 ? past + first - s_.window + 1 : -kEverything;
    a.first_high = s_.causal ? past + first + 1 : kEverything;
    a.points = points_;
    a.buffer = buffer_;
    a.q_step = s_.together > 1 ? s_.depth : step_of(0);
    a.q = given(0, b, h, first);
    a.k = rows_of(1, b, group, past);
    a.v = rows_of(2, b, group, past);
    const bool stores = block == 0 && h % (s_.heads / s_.groups) == 0;
    if (s_.rotates && !turn_rows(b, first, past, stores, &a)) return;
    if (stores) {
      store(1, b, group, past, a.k);
      store(2, b, group, past, a.v);
    }
    if (a.queries <= 0) return;  // the caches go on
    a.y = args_.out<float>() + ((b * s_.steps + first) * s_.heads + h) * s_.depth;
    a.y_step = s_.together > 1 ? s_.depth : s_.heads * s_.depth;
    if (!points_->stopped) simd_attention::loops(s_.isa).run(a);
  }

 private:
  void add_sinks(std::int64_t h, simd_attention::Block* a) const {
    static constexpr float kZero = 0;
    if (args_.desc->has_input(Input::kSink)) {
      a->sinks = args_.in<float>(Input::kSink) + h;
      a->sink_row = s_.together > 1 ? 1 : 0;
    } else if (s_.smooth) {
      a->sinks = &kZero;
    }
  }

  void add_bias(std::int64_t b, std::int64_t h, std::int64_t first, simd_attention::Block* a) const {
    if (!args_.desc->has_input(Input::kBias)) return;
    a->mask = args_.in<float>(Input::kBias) + b * s_.bias_step[0] + h * s_.bias_step[1] + first * s_.bias_step[2];
    a->mask_row = s_.bias_step[s_.together > 1 ? 1 : 2];
    a->mask_step = s_.bias_step[3];
  }

  std::int64_t length_of(std::int64_t b) const { return std::int64_t{args_.in<std::int32_t>(Input::kLengths)[b]} + 1; }
  // Rows that are past, of a batch of so many in all. Throws where the lengths do not fit.
  std::int64_t past_of(std::int64_t length) const {
    const std::int64_t past = s_.steps == s_.total ? 0 : length - s_.steps;
    if (length < 0 || length > s_.total || past < 0 || past > s_.past || past + s_.steps > s_.present)
      fail(EVN_ERROR_INVALID_ARGUMENT, "seqlens_k does not fit the past and the new keys");
    if ((s_.k_paged || s_.v_paged) && (past != s_.past || past + s_.steps != s_.present)) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "seqlens_k says that %lld rows are past, the state has %lld", static_cast<long long>(past),
           static_cast<long long>(s_.past));
    }
    return past;
  }

  // For Q (0), K (1) or V (2): the distance from one step to the next, and row `step` of head h.
  std::int64_t step_of(int which) const {
    return (s_.packed ? s_.heads + 2 * s_.groups : which == 0 ? s_.heads : s_.groups) * s_.depth;
  }
  const float* given(int which, std::int64_t b, std::int64_t h, std::int64_t step) const {
    if (s_.steps == 0) return nullptr;
    const std::int64_t first = s_.packed && which > 0 ? s_.heads + (which - 1) * s_.groups : 0;
    return args_.in<float>(s_.packed ? 0 : which) + (b * s_.steps + step) * step_of(which) + (first + h) * s_.depth;
  }

  bool is_paged(int which) const { return which == 1 ? s_.k_paged : s_.v_paged; }
  const PageTable& table(int which) const { return *static_cast<const PageTable*>(args_.inputs[2 + which].address()); }

  simd_attention::Rows rows_of(int which, std::int64_t b, std::int64_t group, std::int64_t past) const {
    simd_attention::Rows r;
    r.row = given(which, b, group, 0);
    r.step = step_of(which);
    r.past_count = past;
    if (past == 0) return r;
    const std::int64_t head = b * s_.groups + group;
    if (is_paged(which)) {
      r.set_pages(table(which), head);
    } else {
      r.set_past(args_.in<float>(2 + which) + head * s_.past * s_.depth, past, s_.depth);
    }
    return r;
  }

  // Where row `step` of batch b stands. With no past, the first of position_ids stands for all.
  std::int64_t position_of(std::int64_t b, std::int64_t step, std::int64_t past) const {
    std::int64_t position = past + step;
    if (args_.desc->has_input(Input::kPositions)) {
      const auto* ids = args_.in<std::int64_t>(Input::kPositions);
      const bool prompt = s_.steps == s_.total;
      position = !prompt ? ids[b * s_.steps + step] : ids[0] < 0 || ids[0] >= s_.positions ? -1 : ids[0] + step;
    }
    if (position < 0 || position >= s_.positions)
      fail(EVN_ERROR_INVALID_ARGUMENT, "position %lld is outside the caches", static_cast<long long>(position));
    return position;
  }

  // Puts turned queries and new keys in the place of those given; keys that no query of the block sees only where the block
  // `stores` them. False: the run is to stop.
  bool turn_rows(std::int64_t b, std::int64_t first, std::int64_t past, bool stores, simd_attention::Block* a) const {
    float* const q = buffer_ + s_.buffer_floats;
    float* const k = q + s_.rows * s_.depth;
    const auto* const cosines = args_.in<float>(Input::kCosine);
    const auto* const sines = args_.in<float>(Input::kSine);
    const std::int64_t end = stores || !s_.causal ? s_.steps : std::min(s_.steps, first + a->queries);
    for (std::int64_t step = 0; step < end; ++step) {
      if (stops(points_, 8 * s_.depth)) return false;
      const std::int64_t at = position_of(b, step, past) * s_.pairs;
      turn(s_, a->k.row + step * a->k.step, cosines + at, sines + at, k + step * s_.depth);
      for (std::int64_t i = 0; i < (s_.together > 1 ? s_.together : 0); ++i) {
        turn(s_, a->q + i * a->q_step, cosines + at, sines + at, q + i * s_.depth);
      }
      if (s_.together == 1 && step >= first && step < first + a->queries)
        turn(s_, a->q + (step - first) * a->q_step, cosines + at, sines + at, q + (step - first) * s_.depth);
    }
    a->q = q;
    a->k.row = k;
    a->q_step = a->k.step = s_.depth;
    return true;
  }

  // The present rows of one group: behind those of the past, what is new, and zeros; in pages what is new alone.
  void store(int which, std::int64_t b, std::int64_t group, std::int64_t past, const simd_attention::Rows& rows) const {
    const std::int64_t head = b * s_.groups + group;
    if (is_paged(which)) {
      for (std::int64_t step = 0; step < s_.steps; ++step) {
        if (stops(points_, s_.depth)) return;
        simd_attention::loops(s_.isa).rows.store(table(which).format, rows.row + step * rows.step, s_.depth,
                                                 table(which).row(head, past + step));
      }
      return;
    }
    const auto output = static_cast<std::size_t>(which);
    if (args_.desc->outputs.size() <= output || args_.desc->outputs[output].dtype == DType::kUndefined) return;
    float* to = args_.out<float>(which) + head * s_.present * s_.depth;
    for (std::int64_t t = 0; t < s_.present; ++t, to += s_.depth) {
      if (stops(points_, s_.depth)) return;
      if (t >= past + s_.steps) {
        std::fill_n(to, s_.depth, 0.0f);
      } else {
        std::copy_n(rows.at(t), s_.depth, to);
      }
    }
  }

  const KernelArgs& args_;
  const GroupQueryState& s_;
  CancelPoints* const points_;
  float* const buffer_;
};

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<GroupQueryState>();
  CancelPoints points = points_of(cancel);
  Blocks blocks(args, &points);
  const std::int64_t units = s.batch * (s.heads / s.together) * s.blocks;
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t last = std::min((index + 1) * s.per_tile, units);
    for (std::int64_t unit = index * s.per_tile; unit < last && !points.stopped; ++unit) blocks.run(unit);
  }
}

constexpr Kernel kKernels[] = {
    {.name = "group_query_attention",
     .op = "GroupQueryAttention",
     .domain = "com.microsoft",
     .rank = 10,
     .supports = supports,
     .plan = plan,
     .run = run,
     .takes_empty = true,
     .fusion = {.paged_inputs = paged_inputs}},
};

}  // namespace

extern const KernelFamily group_query_kernels;
const KernelFamily group_query_kernels = {kKernels};

}  // namespace evn
