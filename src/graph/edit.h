// What the rewrites share: an index of producers and uses that stays right while a graph is edited, and questions about
// constants. The rewrites themselves are in graph/passes/.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/graph.h"
#include "graph/passes/passes.h"

namespace evn {

// Built once per pass, in linear time. Each edit costs the number of uses that it changes. Removed nodes stay in graph.nodes,
// empty, until commit(): node numbers hold until then.
class GraphEditor {
 public:
  explicit GraphEditor(Graph& graph);
  GraphEditor(const GraphEditor&) = delete;
  GraphEditor& operator=(const GraphEditor&) = delete;

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  int node_count() const { return static_cast<int>(graph_.nodes.size()); }
  Node& node(int n) { return graph_.nodes[n]; }
  Value& value(ValueId v) { return graph_.values[v]; }
  bool removed(int n) const { return removed_[n]; }
  bool changed() const { return changed_; }

  // -1 for graph inputs, constants and kNoValue.
  int producer(ValueId v) const { return v == kNoValue ? -1 : producer_[v]; }
  // Index of v among the outputs of its producer.
  int output_index(ValueId v) const { return output_index_[v]; }
  const Value& value(ValueId v) const { return graph_.values[v]; }
  bool is_output(ValueId v) const { return is_output_[v]; }
  bool is_input(ValueId v) const { return is_input_[v]; }
  // How often nodes read it; graph outputs are not counted.
  int use_count(ValueId v) const { return use_count_[v]; }
  bool is_dead(ValueId v) const { return use_count_[v] == 0 && !is_output_[v] && !is_read_by_inserted_[v]; }
  // The node that is alone in reading v, once; -1 when there is none, or v is a graph output.
  int only_consumer(ValueId v) const;

  // Constants that nobody reads any more lose their bytes at once, here and below.
  void set_input(int n, int input, ValueId v);  // past the end: inputs between are not given
  void shrink_inputs(int n, int count);
  void set_output(int n, int output, ValueId v);  // the value's former producer must be gone or about to be
  // Uses by nodes only; the graph's outputs stay what they are.
  void replace_uses(ValueId from, ValueId to);
  void remove_node(int n);
  ValueId add_constant(std::string name, WeightPtr weight);
  // A value that a node will compute.
  ValueId add_value(std::string name, DType dtype);
  // A new node, which commit() puts in front of node n. What it reads and writes is not in the index until then, but constants that
  // it reads stay.
  void insert_node(int n, Node node);

  // Drops the removed nodes; the order of the others stays. Returns whether anything was changed.
  bool commit();

 private:
  struct Use {
    ValueId value = kNoValue;
    std::int32_t node = -1;
    std::int32_t next = -1;
    std::int32_t previous = -1;
  };
  void link(int use, ValueId v);
  void unlink(int use);
  void forget_if_dead(ValueId v);
  ValueId append(Value v);
  void merge_inserted();
  void grow_inputs(int n, int count);

  Graph& graph_;
  std::vector<Use> uses_;                // the uses of one node are neighbours
  std::vector<std::int32_t> first_use_;  // per node: its input 0 in uses_
  std::vector<std::int32_t> head_;       // per value: its list in uses_
  std::vector<std::int32_t> use_count_;
  std::vector<std::int32_t> producer_;
  std::vector<std::int32_t> output_index_;  // per value that a node makes
  std::vector<bool> is_output_;
  std::vector<bool> is_input_;
  std::vector<bool> is_read_by_inserted_;
  std::vector<bool> removed_;
  std::vector<std::pair<int, Node>> inserted_;  // and before which node
  bool changed_ = false;
};

// Throws EVN_ERROR_TIMEOUT when the context's deadline has passed. Looks at the clock every 64th call for a `count` that grows.
void check_deadline(const PassContext& context, std::size_t count = 0);

// True for a node of this ONNX operator (domain ai.onnx).
bool is_op(const Node& node, const char* op_type);

// The value as one float32 constant that, as an operand beside a tensor of `rank` dims (-1: unknown), leaves that tensor's shape
// alone.
bool scalar_constant(const Graph& graph, ValueId v, int rank, float* out);

// The rank of a value, or -1.
inline int value_rank(const Value& v) { return v.has_shape ? v.shape.rank() : -1; }

// All of a float32 constant's elements as doubles; false when it is no such constant.
bool float_constant(const Graph& graph, ValueId v, std::vector<double>* out);

// All of an int64 constant's elements; false when it is no such constant.
bool int_constant(const Graph& graph, ValueId v, std::vector<std::int64_t>* out);

// The bytes of a weight, aligned for its dtype: its own, or a copy in `storage`.
const void* aligned_bytes(const Weight& weight, std::vector<std::uint64_t>& storage);

}  // namespace evn
