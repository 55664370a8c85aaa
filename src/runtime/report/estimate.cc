// What a run of a graph would take: its plan for the shapes that the graph declares, with the kernels that the CPU device would
// choose, of which nothing is packed and nothing runs.
#include <algorithm>
#include <set>

#include "base/checked.h"
#include "ops/host.h"
#include "ops/merge.h"
#include "ops/multiply_adds.h"
#include "ops/op.h"
#include "runtime/loaded/plain_weights.h"
#include "runtime/lower/plan_arenas.h"
#include "runtime/lower/plan_builder.h"
#include "runtime/report/inspect.h"

namespace evn {
namespace {

Signature declared_signature(const Graph& graph) {
  Signature s;
  for (const ValueId v : graph.inputs) s.inputs.push_back({graph.values[v].dtype, graph.values[v].shape, graph.values[v].wraps});
  s.input_slots.resize(graph.inputs.size());
  s.values.resize(graph.inputs.size());
  s.output_slots.resize(graph.outputs.size());
  return s;
}

class Estimator {
 public:
  // `weights`: those that have been counted. `compiled`: for an estimate.
  Estimator(const CompiledGraph& compiled, Runtime& runtime, std::set<std::uint64_t>& weights)
      : w_(compiled, std::make_shared<Plan>()), runtime_(runtime), weights_(weights) {
    w_.plan->signature = std::make_shared<const Signature>(declared_signature(w_.graph));
    builder_.start();
    for (std::size_t v = 0; v < w_.graph.values.size(); ++v)
      w_.state.descs[v] = {w_.graph.values[v].dtype, w_.graph.values[v].shape};
    w_.state.next_node = w_.graph.nodes.size();
  }

  Estimate run(const ModelBytes& bytes) {
    bytes_ = bytes;
    for (std::size_t i = 0; i < w_.graph.nodes.size(); ++i) add(static_cast<std::int32_t>(i));
    for (std::size_t j = 0; j < w_.graph.outputs.size(); ++j) {
      if (is_made(w_.graph.outputs[j])) builder_.add_output(j);
    }
    count_weights();
    if (in_file_) e_.weights_bytes += bytes.held;
    for (const ValueId v : w_.graph.inputs) e_.input_bytes += bytes_of(v);
    for (const ValueId v : w_.graph.outputs) e_.output_bytes += bytes_of(v);
    PlanArenas(w_).assign_offsets();
    e_.arena_bytes = w_.plan->arena_bytes[0];
    return std::move(e_);
  }

 private:
  PlanWork w_;
  PlanRoots roots_{w_};
  PlanBuilder builder_{w_, roots_};
  Runtime& runtime_;
  std::set<std::uint64_t>& weights_;
  ModelBytes bytes_;
  bool in_file_ = false;  // some weight of this graph or its bodies lies in the file's bytes, and keeps all of them
  Estimate e_;
  std::set<const Weight*> read_plain_;  // by a node

  bool is_known(ValueId v) const {
    if (v == kNoValue) return true;
    const Value& value = w_.graph.values[v];
    return value.has_shape && value.shape.is_known() && is_stored(value.dtype);
  }
  // Whether an output is there: of a model with errors it may not be.
  bool is_made(ValueId v) {
    return is_known(v) && (w_.state.values[v] != nullptr || w_.root(v, 0) >= 0 || w_.root(v, 0, Layout::kChannelsLast) >= 0);
  }
  std::uint64_t bytes_of(ValueId v) const { return is_known(v) ? w_.state.descs[v].size_bytes() : 0; }

  void add(std::int32_t index) {
    const Node& node = w_.graph.nodes[index];
    const CompiledNode& n = w_.c.nodes[index];
    count_plain(index);
    const auto known = [&](ValueId v) { return is_known(v); };
    const bool all_known =
        std::all_of(node.inputs.begin(), node.inputs.end(), known) && std::all_of(node.outputs.begin(), node.outputs.end(), known);
    const bool has_body = node.body != nullptr && node.op->body != nullptr;
    if (n.mode == NodeMode::kPlanned || (!all_known && !has_body)) {
      if (n.mode != NodeMode::kPlanned) count_unknown(node);
      for (const ValueId v : node.outputs) {
        if (v != kNoValue) w_.root(v, 0) = add_absent_root();
      }
    } else if (has_body) {
      add_body(node);
    } else if (n.mode == NodeMode::kMerge) {
      roots_.need(node.inputs[1], 0);
      builder_.share(node.inputs[1], node.outputs[0]);
    } else if (n.mode == NodeMode::kHost) {
      add_opaque(node, 0);
    } else {
      if (n.mode == NodeMode::kKernel) add_work(node);
      if (!w_.state.without_step[static_cast<std::size_t>(index)]) builder_.add_node(index);
    }
  }

  // A root for a value that takes no memory of the arena, or of unknown size.
  std::int32_t add_absent_root() {
    PlanRoot r;
    r.source = Source::kFixed;
    r.last_user = INT32_MAX;
    return roots_.add_root(r);
  }

  void count_unknown(const Node& node) {
    if (e_.nodes_of_unknown_shape++ == 0) e_.first_unknown = node.name;
    e_.complete = false;
  }

  // Packed copies, and which constants are read as they are.
  void count_plain(std::int32_t index) {
    const CompiledNode& n = w_.c.nodes[index];
    for (std::size_t k = 0; k < n.packed.size(); ++k) {
      e_.packed_bytes = checked_add<std::uint64_t>(e_.packed_bytes, n.packed[k].size);
      if (n.constants[k] != nullptr && n.packed[k].memory == nullptr) read_plain_.insert(n.constants[k].get());
    }
  }

  void count_weights() {
    for (std::size_t i = 0; i < w_.graph.values.size(); ++i) {
      const Weight* w = w_.graph.values[i].constant.get();
      if (w == nullptr || !weights_.insert(w->id).second) continue;
      const auto* at = static_cast<const unsigned char*>(w->data.get());
      const bool inside = at >= bytes_.all.data() && at < bytes_.all.data() + bytes_.all.size();
      const bool all_packed =
          w_.c.last_user[i] >= 0 && w_.c.last_user[i] != INT32_MAX && !read_plain_.contains(w) && !w_.c.needed[i];
      const bool let_go = bytes_.may_let_go && all_packed && w->size_bytes >= PlainWeights::kLeastBytes;
      in_file_ |= inside;
      if (!inside && !let_go) e_.weights_bytes += w->size_bytes;
    }
  }

  void add_work(const std::string& op, double work) {
    if (work <= 0) return;
    e_.multiply_adds += work;
    e_.by_operator[op] += work;
  }

  void add_work(const Node& node) {
    std::vector<TensorDesc> inputs, outputs;
    for (const ValueId v : node.inputs) inputs.push_back(v == kNoValue ? TensorDesc{} : w_.state.descs[v]);
    for (const ValueId v : node.outputs) outputs.push_back(v == kNoValue ? TensorDesc{} : w_.state.descs[v]);
    add_work(node.domain.empty() ? node.op_type : node.domain + "::" + node.op_type, multiply_adds(node, inputs, outputs));
  }

  // The iterations of a node's body follow each other: they take the work of all and the memory of one, with what goes in and comes
  // out.
  void add_body(const Node& node) {
    const CompiledGraph compiled = compile_for_estimate(*node.body, runtime_);
    Estimator body(compiled, runtime_, weights_);
    const Estimate one = body.run({bytes_.all, bytes_.held, false});
    in_file_ |= body.in_file_;
    std::vector<ConstTensor> inputs;
    for (const ValueId v : node.inputs) {
      const WeightPtr constant = v == kNoValue ? nullptr : w_.graph.values[v].constant;
      inputs.push_back({v == kNoValue ? TensorDesc{} : w_.state.descs[v], constant == nullptr ? nullptr : constant->bytes()});
    }
    const std::int64_t iterations = node.op->body->iterations(node, inputs);
    for (const auto& [op, work] : one.by_operator) add_work(op, work * static_cast<double>(iterations < 0 ? 1 : iterations));
    e_.bodies_of_unknown_iterations += one.bodies_of_unknown_iterations + (iterations < 0 ? 1 : 0);
    if (e_.nodes_of_unknown_shape == 0) e_.first_unknown = one.first_unknown;
    e_.nodes_of_unknown_shape += one.nodes_of_unknown_shape;
    e_.complete &= one.complete && iterations >= 0;
    e_.weights_bytes += one.weights_bytes - (body.in_file_ ? bytes_.held : 0);
    e_.packed_bytes += one.packed_bytes;
    add_opaque(node, one.arena_bytes + one.input_bytes + one.output_bytes);
  }

  // A node that no kernel runs: a step that reads its inputs and makes its outputs, as far as they are known, and needs so many
  // bytes meanwhile.
  void add_opaque(const Node& node, std::size_t bytes) {
    for (const ValueId v : node.inputs) {
      if (v != kNoValue && is_known(v)) roots_.add_buffer(roots_.need(v, 0));
    }
    roots_.add_scratch_root(0, bytes, w_.now());
    for (const ValueId v : node.outputs) {
      if (v == kNoValue) continue;
      const bool is_output = w_.state.output_of[v] >= 0;
      w_.root(v, 0) = !is_known(v) ? add_absent_root()
                      : is_output  ? roots_.add_output_root(static_cast<std::size_t>(w_.state.output_of[v]), 0)
                                   : roots_.add_arena_root(v, 0, w_.now());
      roots_.add_buffer(w_.root(v, 0));
    }
    w_.plan->steps.emplace_back();
  }
};

}  // namespace

Estimate estimate_run(const Graph& graph, Runtime& runtime, const ModelBytes& bytes) {
  std::set<std::uint64_t> weights;
  const CompiledGraph compiled = compile_for_estimate(graph, runtime);
  return Estimator(compiled, runtime, weights).run(bytes);
}

}  // namespace evn
