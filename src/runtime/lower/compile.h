// What a session knows of its graph before it sees any shape: the device slot of each node, packed constants, last uses.
#pragma once

#include <vector>

#include "ops/op.h"
#include "runtime/lower/pass.h"
#include "runtime/placement/placement.h"

namespace evn {

inline constexpr int kMaxSlots = 32;  // devices of one session

// An operand of a node that may be computed with another one, as a further input of that one's kernel.
struct FusedOperand {
  enum class Role : std::uint8_t { kBias, kResidual } role = Role::kResidual;
  std::int32_t node = -1;  // whose operand it is
  ValueId value = kNoValue;
  std::int32_t maker = -1;  // the node that makes the value; -1: none
  bool of_bytes = false;    // the node is a QLinearAdd
  ByteSum bytes = {};

  const ByteSum* byte_sum() const { return of_bytes ? &bytes : nullptr; }
};

struct CompiledNode {
  NodeMode mode = NodeMode::kKernel;
  std::uint8_t slot = 0;  // index into CompiledGraph::devices
  const Kernel* kernel = nullptr;
  Precision precision = Precision::kFloat32;  // as in OpDesc, and the next three
  bool strict = false;
  bool small = false;
  Products products = Products::kAuto;
  const Kernel* rival = nullptr;     // NodePlacement::rival
  bool has_planned_input = false;    // an input is known only when a run is planned
  std::int32_t segment = -1;         // NodeMode::kSegment: index into CompiledGraph::segments
  bool choose_late = false;          // a rank is not known yet: the kernel is chosen when a run is planned
  std::vector<WeightPtr> constants;  // per input
  std::vector<Buffer> packed;        // per input
  std::vector<Layout> layouts;       // per input, then per output; empty: all plain
  std::uint8_t views = 0;            // what KernelFusion::channel_views said
  std::vector<FusedOperand> fused;   // if the shapes of a run allow it; behind its own inputs, in this order

  // Writes what was chosen for the node into an OpDesc.
  void set_choices(OpDesc* desc) const {
    desc->precision = precision;
    desc->strict = strict;
    desc->small = small;
    desc->products = products;
  }

  const FusedOperand* fused_as(FusedOperand::Role role) const {
    for (const FusedOperand& f : fused) {
      if (f.role == role) return &f;
    }
    return nullptr;
  }
};

// Nodes that a device runs as one step, contiguous in CompiledGraph::graph().
struct CompiledSegment {
  std::int32_t first = -1;
  std::vector<std::int32_t> others;  // the nodes behind it
  SegmentValues values;
  std::vector<WeightPtr> constants;  // per input
  std::vector<Buffer> packed;        // per input: none
};

class ProductTrials;  // product_trials.h

// A pass that found something in the graph.
struct ActivePass {
  std::uint8_t number;  // in lowering_passes()
  std::unique_ptr<LoweringPass> pass;
};

struct CompiledGraph {
  ModelPtr model;                  // null: a graph without a model was compiled, to be estimated
  const Graph* source = nullptr;   // the model's, or `ordered`
  std::unique_ptr<Graph> ordered;  // the model's with its nodes in an order in which those of each segment stand together
  SettingsPtr settings;            // by which it is placed
  Placement placement;
  std::vector<Device*> devices;  // slot 0 is the CPU
  std::vector<CompiledNode> nodes;
  std::vector<CompiledSegment> segments;
  std::vector<std::int32_t> last_user;      // per value: last node that reads it; INT32_MAX for graph outputs; -1: none
  std::vector<bool> needed;                 // per value: a shape depends on its bytes
  std::vector<ConstTensor> constants;       // per value: data null where it is no constant, or all that read it have packed copies
  std::vector<ValueId> conditions;          // per region of the graph
  std::vector<bool> viewed;                 // per value: it may be some channels of another one; empty: none
  std::vector<bool> stored_16bit;           // per value: it is stored as bfloat16 or float16; empty: none
  std::vector<ActivePass> passes;           // that found something
  std::vector<std::int32_t> input_of;       // per value: position among the graph inputs, or -1
  std::vector<std::int32_t> readers;        // of each value, one after the other: the nodes that read it, sums' operands included
  std::vector<std::uint32_t> reader_begin;  // per value, and behind the last: where its readers begin
  // Per graph input and output: bit s: what reads or makes it on slot s may do so in memory of the host. Empty: no device may.
  std::vector<std::uint32_t> shared_inputs, shared_outputs;
  std::size_t most_step_args = 0;  // inputs and outputs of no step are more
  std::size_t kernel_nodes = 0;    // nodes that kernels run
  int pipeline_depth = 0;          // requests that keep all devices at work: one for each, and one whose values are copied
  std::size_t packed_count = 0;
  std::unique_ptr<KeptCopies> kept = std::make_unique<KeptCopies>();  // copies of constants that this and its plans use
  std::shared_ptr<ProductTrials> trials;       // of products with a rival; null: there are none, or compiled to be estimated
  std::shared_ptr<SharedPlans> plans;          // of the sessions that have this; null: compiled to be estimated
  bool raw_outputs = false;                    // SessionRole's
  bool is_small = false;                       // compiled for MemoryPlan::kSmall
  std::uint64_t arena_limit = 0;               // SessionOptions'
  bool is_paged = false;                       // some packed copies may be dropped (loaded/weight_pager.h)
  std::string spared;                          // what the memory ladder did when it was compiled, for explain; "": nothing
  std::shared_ptr<const Assignment> assigned;  // SessionRole's; null: none
  bool unpacked = false;                       // compiled to be estimated, with nothing packed
  bool has_runtime_values = false;             // some node runs on the host, or an input is no tensor

  const Graph& graph() const { return *source; }
  const Limits& limits() const { return settings->config.limits; }
  bool only_estimated() const { return unpacked; }
};

// Requests that keep all devices of the session at work; 0: it uses one (CompiledGraph::pipeline_depth).
int pipeline_depth_of(const CompiledGraph& c);

// Finds which inputs and outputs lie in memory of the host that devices use where it is.
void find_sharing(CompiledGraph& c);

// The node that alone reads what this one, which has one output, makes, and as its input 0, in the same region. -1: there is none.
std::int32_t only_reader(const CompiledGraph& c, std::int32_t node);

// Descs of a node's inputs, then of its outputs, as far as they are known before a run.
std::vector<TensorDesc> descs_of(const Graph& graph, const Node& node);
OpDesc desc_of(const Node& node, const CompiledNode& n, std::span<const TensorDesc> descs);

// Places the model and packs its constants, or takes their packed copies from a cache file.
CompiledGraph compile(ModelPtr model, const SessionRequest& request, const CacheConfig& cache);

// Compiles as compile() does, but packs nothing, to tell what a run would take: in the place of packed copies there are buffers of
// their sizes that lie nowhere. Nothing of it can run.
CompiledGraph compile_unpacked(ModelPtr model, const SessionRequest& request);

// Compiles a graph whose nodes all go to the CPU, to tell what a run of it takes (estimate.cc): in the place of packed copies there
// are buffers of their sizes that lie nowhere. Nodes that no kernel takes have NodeMode::kHost. The graph outlives the result.
CompiledGraph compile_for_estimate(const Graph& graph, Runtime& runtime);

}  // namespace evn
