// A plan: what a session does for one signature of inputs (their shapes, where they lie, the bytes of those that shapes depend
// on). Made once, run many times. Where a shape, or the branch of an If, depends on what the run computes, the plan ends and says
// what it needs to know; another plan goes on from there once the values are known.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "memory/planner.h"
#include "runtime/lower/compile.h"
#include "runtime/lower/shared_vector.h"

namespace evn {

// What a run is asked with; plans are found by it.
struct Signature {
  std::vector<TensorDesc> inputs;
  std::vector<std::uint8_t> input_slots;           // where each input lies
  std::vector<std::uint8_t> output_slots;          // where each output is wanted, or kAnySlot
  std::vector<std::vector<unsigned char>> values;  // per input: its bytes where they are part of the key, else empty
  std::vector<std::uint8_t> skipped;               // per output: 1: it is not wanted; empty: all are
  bool shares_inputs = false;   // inputs that lie on the host, and which devices may read there (shares_input), are read there
  bool shares_outputs = false;  // outputs that are wanted on the host likewise
};

// In the place of a slot: the input lies in the pages of a state, whose rows are those of axis slot - kPagedSlot; the output is
// what the run appends to such an input.
inline constexpr std::uint8_t kPagedSlot = 0x80;
inline bool is_paged_slot(std::uint8_t slot) { return slot >= kPagedSlot && slot < kPagedSlot + kMaxRank; }
// In the place of a slot: an output is wanted where it is made.
inline constexpr std::uint8_t kAnySlot = 0xfe;

// Whether an input's bytes are part of the key: a shape depends on them, and they are few. Others are fetched in the course of a
// run.
inline constexpr std::size_t kMaxKeyBytes = 4096;
inline bool is_key(const CompiledGraph& graph, std::size_t input, const TensorDesc& desc) {
  return graph.needed[graph.graph().inputs[input]] && desc.dtype != DType::kString && desc.size_bytes() <= kMaxKeyBytes;
}

// Below this a copy costs less than the order of the host's and the device's uses of the same memory.
inline constexpr std::size_t kLeastShared = std::size_t{512} << 10;
// Whether the device of a slot reads an input, or writes an output, of such a desc where it lies on the host, where the run allows
// it.
inline bool shares_input(const CompiledGraph& graph, std::size_t input, int slot, const TensorDesc& desc) {
  return !graph.shared_inputs.empty() && (graph.shared_inputs[input] >> slot & 1) != 0 && desc.size_bytes() >= kLeastShared;
}
inline bool shares_output(const CompiledGraph& graph, std::size_t output, int slot, const TensorDesc& desc) {
  return !graph.shared_outputs.empty() && (graph.shared_outputs[output] >> slot & 1) != 0 && desc.size_bytes() >= kLeastShared;
}

// Where the bytes behind a buffer come from.
enum class Source : std::uint8_t { kNone, kArena, kInput, kOutput, kFixed, kRuntimeValue };

struct BufferSource {
  Source source = Source::kNone;
  std::uint8_t slot = 0;      // the device slot
  std::uint16_t subplan = 0;  // kArena: the number, in its chain, of the subplan that has the arena
  std::int32_t index = -1;    // kInput, kOutput: position; kRuntimeValue: value
  Buffer buffer;              // kArena: offset and size; kFixed: the buffer; else the size
};

// Nodes that are computed with another: sums that follow it, parts of a cascade and the sum behind the last, or the others of its
// segment.
struct AbsorbedNodes {
  std::int32_t count = 0;
  std::int32_t nodes[kMaxStages];
  const std::int32_t* of_segment = nullptr;  // the compiled graph's

  void push(std::int32_t node) { nodes[count++] = node; }
  void refer(const std::vector<std::int32_t>& others) {
    of_segment = others.data();
    count = static_cast<std::int32_t>(others.size());
  }
  const std::int32_t* begin() const { return of_segment != nullptr ? of_segment : nodes; }
  const std::int32_t* end() const { return begin() + count; }
};

struct ProductTrial;  // product_trials.h

struct PlanStep {
  enum class Kind : std::uint8_t {
    kKernel,
    kCopy,
    kRelayout,
    kAppend,  // writes a value behind the rows of a paged one
    kExtend,  // makes room behind them, which a kernel writes to
    kGather   // writes a paged value in plain order
  };
  Kind kind = Kind::kKernel;
  std::uint8_t slot = 0;   // the device that does it
  std::int32_t node = -1;  // kKernel: graph node. Others: -1
  AbsorbedNodes absorbed;
  ValueId value = kNoValue;             // kCopy, kRelayout, kAppend, kGather: what is copied. kExtend: what the rows become
  std::uint8_t from_slot = 0;           // kCopy
  std::uint8_t to_slot = 0;             // kCopy
  std::uint32_t buffers = 0;            // first of: inputs, outputs, scratch (kKernel); from, to (kCopy); in plain order, paged
                                        // (kAppend, kGather)
  std::uint32_t first_desc = 0;         // kKernel: of its descs in Plan::descs; kRelayout: its desc in Plan::relayouts
  std::uint32_t passes = 0;             // kKernel: bit i: the i-th of lowering_passes() took part
  std::int32_t constants = -1;          // kKernel: which of the plan's constants its desc has; -1: the compiled node's
  const Kernel* kernel = nullptr;       // kKernel, kRelayout
  const ProductTrial* trial = nullptr;  // kKernel: what chose it, for explain; of CompiledGraph::trials
  const char* why_moved = nullptr;      // kKernel: why the CPU runs a node of another device, for explain; null: unknown ranks
  std::span<const Buffer> packed;       // kKernel: per input
  OpDesc desc;                          // kKernel, kRelayout: spans into the plan
  KernelPlan plan;
};

// Which rows of a paged value a step writes or reads: PlanStep::plan's state.
struct PagedRows {
  std::int64_t first = 0, count = 0;
  DType dtype = DType::kUndefined;  // in plain order
};

// A tensor of the caller's, not of the host, that the plan copies because it is wanted on, or made by, another device.
struct GivenCopy {
  bool is_output = false;
  std::int32_t index = 0;       // of the graph's inputs or outputs
  std::uint8_t given_slot = 0;  // where the tensor lies
  std::uint8_t plan_slot = 0;   // where the plan reads or makes the value
};

// A node that needs no step.
struct ElidedNode {
  std::int32_t node;
  std::uint32_t passes;  // as of a step
};

// What runs again so that the arenas stay under CompiledGraph::arena_limit (plan_recompute.h).
struct RecomputedSteps {
  std::uint64_t unlimited_bytes = 0;  // of the arenas, without a limit
  std::uint32_t steps = 0;            // that run again
  std::uint32_t values = 0;           // that are dropped and made again
  std::uint32_t kept_values = 0;      // that live at the fullest moment
};

struct PlanState;  // plan_state.h

struct Plan {
  Plan();
  ~Plan();

  // Shared with the plans that follow.
  std::shared_ptr<const Signature> signature = std::make_shared<const Signature>();
  SharedVector<TensorDesc> outputs;         // per graph output; kUndefined: known only to a plan that follows, or skipped
  SharedVector<std::uint8_t> output_slots;  // where each of these lies
  std::vector<PlanStep> steps;
  std::vector<BufferSource> buffers;
  std::vector<std::size_t> arena_bytes;  // per device slot
  std::vector<GivenCopy> given_copies;   // that RunRequest::allow_copies must allow
  std::size_t bookkeeping_bytes = 0;
  bool is_small = false;         // it was looked for the order of steps in which the fewest bytes live
  std::size_t spared_bytes = 0;  // by another order
  RecomputedSteps recomputed;

  // A chain of plans.
  std::shared_ptr<const Plan> before;        // null: the first
  std::uint16_t subplan = 0;                 // number in the chain
  std::vector<ValueId> fetch;                // what must be known to go on; empty: the plan is the last
  std::vector<std::uint32_t> fetch_buffers;  // where it lies, on the host, when the steps have run
  std::unique_ptr<PlanState> state;          // where the next plan begins
  // Or a node that runs on the host must be run to go on (ops/host.h); then `fetch` is empty.
  std::int32_t host_node = -1;
  std::vector<TensorDesc> host_inputs;  // per input of the node
  std::vector<std::uint32_t>
      host_buffers;              // per input that is a tensor where it lies, on the host; kNoBuffer: a runtime value, or absent
  std::vector<TensorDesc> made;  // what the host node that `before` ended with made, per output
  static constexpr std::uint32_t kNoBuffer = UINT32_MAX;
  bool has_continuation() const { return host_node >= 0 || !fetch.empty(); }

  // Owned by the plan so that the spans in `steps` stay valid.
  std::vector<TensorDesc> descs;
  std::deque<TensorDesc> relayouts;  // the value of each re-layout
  std::deque<std::vector<WeightPtr>> constants;
  std::deque<std::vector<Layout>> layouts;     // of kernels that were chosen now, and of cascades
  std::deque<std::vector<Buffer>> packed;      // the same
  std::deque<std::vector<OpDesc>> step_nodes;  // of cascades and segments
  std::deque<std::vector<std::int64_t>> pitches;
  std::vector<ElidedNode> elided;
  SharedVector<WeightPtr> known;    // per value: bytes known since planning, or null
  std::unique_ptr<TextPool> texts;  // of strings that were made while planning
};

// Throws EVN_ERROR_INVALID_ARGUMENT, EVN_ERROR_INVALID_MODEL or EVN_ERROR_UNSUPPORTED with the node, EVN_ERROR_LIMIT.
// `small`: steps in the order in which the fewest bytes live at a time, which takes longer to find.
std::shared_ptr<Plan> make_plan(const CompiledGraph& graph, Signature signature, bool small = false);
// Makes a plan by respecializing one that nobody else holds and that was made for other dims: takes the time of the nodes that
// these concern. Null where it cannot be done; `old` is gone either way.
std::shared_ptr<Plan> replan(const CompiledGraph& graph, std::shared_ptr<Plan> old, const Signature& signature);
// Goes on after `before`; `fetched` holds the bytes of before->fetch, or `made` what before->host_node made.
std::shared_ptr<Plan> continue_plan(const CompiledGraph& graph, std::shared_ptr<const Plan> before,
                                    std::span<const void* const> fetched, std::span<const TensorDesc> made);

}  // namespace evn
