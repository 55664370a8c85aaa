#include "runtime/rows/separable.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ops/merge.h"
#include "runtime/lower/shape_walk.h"
#include "runtime/rows/rows.h"

namespace evn {
namespace {

constexpr std::size_t kMostEvaluated = 65536;  // bytes of an output of shape arithmetic that no shape needs
constexpr std::size_t kMostWays = 64;          // through the Ifs of a graph
constexpr std::int64_t kTriedRows = 3;
constexpr std::int64_t kTriedLengths[] = {64, 48, 512, 640, 7};

// An If's condition that is not known, and which way is looked at.
struct Way {
  ValueId condition;
  bool taken;
};

// A walk ended where it needs a value that nobody knows before a run.
struct NotKnown {};

// Per value: whether its elements depend on inputs with rows.
std::vector<bool> of_rows(const Graph& graph, std::span<const int> axes) {
  std::vector<bool> depends(graph.values.size(), false);
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) depends[graph.inputs[i]] = axes[i] != kNoRows;
  for (const Node& node : graph.nodes) {
    bool any = false;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const bool by_shape = k == 0 && (node.op->flags & kOpShapeOnly) != 0;
      any = any || (!by_shape && node.inputs[k] != kNoValue && depends[node.inputs[k]]);
    }
    for (const ValueId v : node.outputs) {
      if (v != kNoValue) depends[v] = any;
    }
  }
  return depends;
}

[[noreturn]] void refuse(const Node& node, const char* why) {
  throw make_error(EVN_ERROR_UNSUPPORTED, "requests cannot be joined to batches: %.128s \"%.256s\" %s", node.op_type.c_str(),
                   node.name.c_str(), why)
      .with_node(node.name.c_str());
}

// The shapes of one of the two runs, and all values that follow from shapes alone.
class RowWalk {
 public:
  RowWalk(const CompiledGraph& c, std::span<const TensorDesc> inputs, const RowInputs& given) : w_(c, std::make_shared<Plan>()) {
    const std::size_t n = w_.graph.values.size();
    w_.state.descs.resize(n);
    w_.state.values.resize(n);
    for (std::size_t v = 0; v < n; ++v) {
      w_.state.descs[v] = w_.c.constants[v].desc;
      w_.state.values[v] = w_.c.constants[v].data;
    }
    w_.plan->known.resize(n);
    w_.state.without_step.assign(w_.graph.nodes.size(), false);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const ValueId v = w_.graph.inputs[i];
      w_.state.descs[v] = inputs[i];
      if (!given.values[i].empty()) w_.set_known(v, given.values[i].data(), given.values[i].size());
    }
  }

  // `ways` grows where an If's condition is not known. Throws NotKnown.
  void go(std::vector<Way>* ways, const std::vector<bool>& depends) {
    for (;;) {
      const ShapeWalk::End end = walk_.walk();
      if (end == ShapeWalk::End::kGraph) break;
      const Node& node = w_.graph.nodes[w_.state.next_node];
      if (end == ShapeWalk::End::kHost) refuse(node, "runs on the host, where rows are not followed");
      for (const ValueId v : walk_.missing()) {
        if (depends[v]) refuse(node, "depends on what the rows hold: in its shape, or in whether it runs");
      }
      if (pass_unknown(node, ways != nullptr)) continue;
      for (const ValueId v : walk_.missing()) choose(v, ways);
    }
    for (std::size_t i = 0; i < w_.graph.nodes.size(); ++i) evaluate_small(i);
  }

  const TensorDesc& desc(ValueId v) const { return w_.state.descs[v]; }
  const void* value(ValueId v) const { return w_.state.values[v]; }
  bool is_left_out(std::size_t node) const { return w_.state.without_step[node]; }
  ValueId chosen_by(const Node& merge) const { return walk_.chosen_by(merge); }
  ConstTensor input(ValueId v) const { return v == kNoValue ? ConstTensor{} : ConstTensor{w_.state.descs[v], w_.state.values[v]}; }

 private:
  PlanWork w_;
  ShapeWalk walk_{w_};

  // Shape arithmetic with what nobody knows yet, which comes to an If's condition perhaps.
  bool pass_unknown(const Node& node, bool may) {
    if (!may || w_.c.nodes[w_.state.next_node].mode != NodeMode::kPlanned || is_merge(node)) return false;
    const auto shaping = [&](std::size_t k) { return node.op->reads_value(k); };
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      if (shaping(k) && node.inputs[k] != kNoValue && w_.state.values[node.inputs[k]] == nullptr) return false;
    }
    for (const ValueId v : walk_.missing()) {
      if (std::find(node.inputs.begin(), node.inputs.end(), v) == node.inputs.end()) return false;  // whether it runs
    }
    const std::span<const TensorDesc> outputs = walk_.infer(node);
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] != kNoValue) w_.state.descs[node.outputs[k]] = outputs[k];
    }
    ++w_.state.next_node;
    return true;
  }

  void choose(ValueId v, std::vector<Way>* ways) {
    const bool is_condition = std::find(w_.c.conditions.begin(), w_.c.conditions.end(), v) != w_.c.conditions.end();
    if (ways == nullptr || !is_condition || w_.state.descs[v].dtype != DType::kBool || w_.state.descs[v].shape.elements() != 1)
      throw NotKnown();
    auto way = std::find_if(ways->begin(), ways->end(), [&](const Way& w) { return w.condition == v; });
    if (way == ways->end()) way = ways->insert(ways->end(), {v, true});
    const std::uint8_t bit = way->taken ? 1 : 0;
    w_.set_known(v, &bit, 1);
  }

  // What planning has no need of.
  void evaluate_small(std::size_t index) {
    const Node& node = w_.graph.nodes[index];
    if (w_.state.without_step[index] || node.op->custom != nullptr || (node.op->flags & kOpRandom) != 0) return;
    if (is_merge(node)) {
      w_.state.values[node.outputs[0]] = w_.state.values[walk_.chosen_by(node)];
      return;
    }
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId v = node.inputs[k];
      const bool by_shape = k == 0 && (node.op->flags & kOpShapeOnly) != 0;
      if (v != kNoValue && !by_shape && (w_.state.values[v] == nullptr || w_.state.descs[v].dtype == DType::kString)) return;
    }
    for (const ValueId v : node.outputs) {
      if (v != kNoValue && (w_.state.values[v] != nullptr || w_.state.descs[v].size_bytes() > kMostEvaluated)) return;
    }
    walk_.infer(node);
    walk_.evaluate(node);
  }
};

// One pass over the nodes, beside both walks.
class Follower {
 public:
  Follower(const CompiledGraph& c, const RowWalk& one, const RowWalk& many, std::int64_t rows, bool on_any_device)
      : c_(c),
        graph_(c.graph()),
        one_(one),
        many_(many),
        rows_(rows),
        on_any_device_(on_any_device),
        places_(graph_.values.size()) {}

  RowOutputs run(std::span<const int> axes) {
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      if (axes[i] != kNoRows) places_[graph_.inputs[i]] = {RowPlace::Kind::kRows, axes[i]};
    }
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      follow(i);
    }
    RowOutputs outputs;
    for (const ValueId v : graph_.outputs) {
      if (places_[v].kind != RowPlace::Kind::kRows && places_[v].kind != RowPlace::Kind::kAlike) {
        fail(EVN_ERROR_UNSUPPORTED, "requests cannot be joined to batches: output \"%s\" depends on how many rows there are",
             graph_.values[v].name.c_str());
      }
      outputs.one.push_back(one_.desc(v));
      outputs.axes.push_back(places_[v].kind == RowPlace::Kind::kRows ? places_[v].axis : kNoRows);
    }
    return outputs;
  }

 private:
  void follow(std::size_t index) {
    const Node& node = graph_.nodes[index];
    if (one_.is_left_out(index) != many_.is_left_out(index)) refuse(node, "runs, or does not, by the size of the batch");
    if (one_.is_left_out(index)) return;
    if (!on_any_device_ && !c_.devices[c_.nodes[index].slot]->traits().host_addressable) {
      refuse(node, "runs on a device whose kernels may round otherwise for other sizes of a batch");
    }
    if (is_merge(node)) return follow_merge(node);
    if (compare_known(node)) return;
    use_rule(node);
  }

  void follow_merge(const Node& node) {
    const ValueId from = one_.chosen_by(node);
    if (from != many_.chosen_by(node)) refuse(node, "takes a branch by the size of the batch");
    places_[node.outputs[0]] = places_[from];
  }

  // Outputs of which the elements are known need no rule.
  bool compare_known(const Node& node) {
    for (const ValueId v : node.outputs) {
      const bool known = v == kNoValue || (one_.value(v) != nullptr && many_.value(v) != nullptr);
      if (!known || (v != kNoValue && one_.desc(v).dtype == DType::kString)) return false;
    }
    for (const ValueId v : node.outputs) {
      if (v != kNoValue) places_[v] = place_of_known(v);
    }
    return true;
  }

  RowPlace place_of_known(ValueId v) const {
    const TensorDesc& a = one_.desc(v);
    const TensorDesc& b = many_.desc(v);
    if (a == b && std::memcmp(one_.value(v), many_.value(v), a.size_bytes()) == 0) return {};
    const RowPlace unlike = {RowPlace::Kind::kUnlike, 0};
    int at = -1;
    for (int i = 0; a.shape.rank() == b.shape.rank() && i < a.shape.rank(); ++i) {
      if (a.shape[i] == b.shape[i]) continue;
      if (at >= 0 || b.shape[i] != rows_ * a.shape[i]) return unlike;
      at = i;
    }
    if (at < 0) return unlike;
    if (a.dtype == DType::kInt64 && a.shape[at] == 1) {
      const RowPlace::Kind kind = kind_of_numbers(v, at);
      if (kind != RowPlace::Kind::kUnlike) return {kind, at};
    }
    const auto before = static_cast<std::size_t>(a.shape.elements(0, at));
    const std::size_t block = before == 0 ? 0 : a.size_bytes() / before;
    if (block * before * static_cast<std::size_t>(rows_) != b.size_bytes()) return unlike;  // elements of less than a byte
    const auto* x = static_cast<const unsigned char*>(one_.value(v));
    const auto* y = static_cast<const unsigned char*>(many_.value(v));
    for (std::size_t p = 0; p < before; ++p) {
      for (std::int64_t r = 0; r < rows_; ++r, y += block) {
        if (std::memcmp(x + p * block, y, block) != 0) return unlike;
      }
    }
    return {RowPlace::Kind::kRows, at};
  }

  // Whether each row has its number, or lists that begin with it, where the run of one row has 0 and the same lists.
  RowPlace::Kind kind_of_numbers(ValueId v, int at) const {
    const Shape& shape = one_.desc(v).shape;
    const std::int64_t list = shape[shape.rank() - 1];
    const std::int64_t inner = shape.elements(at + 1, shape.rank());
    const auto* x = static_cast<const std::int64_t*>(one_.value(v));
    const auto* y = static_cast<const std::int64_t*>(many_.value(v));
    bool numbers = true, lists = at < shape.rank() - 1 && list > 1;
    for (std::int64_t i = 0; i < many_.desc(v).shape.elements(); ++i) {
      const std::int64_t row = i / inner % rows_;
      const std::int64_t alone = x[i / inner / rows_ * inner + i % inner];
      const bool counts = y[i] == row && alone == 0;
      numbers = numbers && counts;
      lists = lists && (i % list == 0 ? counts : y[i] == alone);
    }
    return numbers ? RowPlace::Kind::kRowNumbers : lists ? RowPlace::Kind::kIndices : RowPlace::Kind::kUnlike;
  }

  void use_rule(const Node& node) {
    std::vector<ConstTensor> one, many;
    std::vector<TensorDesc> one_out, many_out;
    std::vector<RowPlace> in, out(node.outputs.size());
    for (const ValueId v : node.inputs) {
      one.push_back(one_.input(v));
      many.push_back(many_.input(v));
      in.push_back(v == kNoValue ? RowPlace{} : places_[v]);
    }
    for (const ValueId v : node.outputs) {
      one_out.push_back(v == kNoValue ? TensorDesc{} : one_.desc(v));
      many_out.push_back(v == kNoValue ? TensorDesc{} : many_.desc(v));
    }
    NodeRows c{node, rows_, one, many, one_out, many_out, in, out};
    follow_rows(c);
    for (std::size_t k = 0; k < out.size(); ++k) {
      if (node.outputs[k] != kNoValue) places_[node.outputs[k]] = out[k];
    }
  }

  const CompiledGraph& c_;
  const Graph& graph_;
  const RowWalk& one_;
  const RowWalk& many_;
  const std::int64_t rows_;
  const bool on_any_device_;
  std::vector<RowPlace> places_;
};

std::vector<TensorDesc> joined_descs(std::span<const int> axes, const RowInputs& inputs, std::int64_t rows) {
  std::vector<TensorDesc> many = inputs.one;
  for (std::size_t i = 0; i < many.size(); ++i) {
    if (axes[i] != kNoRows) many[i].shape[axes[i]] *= rows;
  }
  return many;
}

RowOutputs prove(const CompiledGraph& graph, std::span<const int> axes, const RowInputs& inputs, std::int64_t rows,
                 std::vector<Way>* ways) {
  for (const Node& node : graph.graph().nodes) {
    if (node.op->custom != nullptr) refuse(node, "is an operator of the host's, of which nothing is known");
  }
  const std::vector<bool> depends = of_rows(graph.graph(), axes);
  RowWalk one(graph, inputs.one, inputs);
  one.go(ways, depends);
  const std::vector<TensorDesc> descs = joined_descs(axes, inputs, rows);
  RowWalk many(graph, descs, inputs);
  many.go(ways, depends);
  return Follower(graph, one, many, rows, inputs.on_any_device).run(axes);
}

// The next way through the Ifs; false: that was the last.
bool go_on(std::vector<Way>* ways) {
  while (!ways->empty() && !ways->back().taken) ways->pop_back();
  if (ways->empty()) return false;
  ways->back().taken = false;
  return true;
}

// Whether the graph takes open dims of that length, on some way through its Ifs.
bool try_length(const CompiledGraph& graph, std::span<const int> axes, std::int64_t length, bool on_any_device) {
  RowInputs inputs;
  inputs.on_any_device = on_any_device;
  for (std::size_t i = 0; i < graph.graph().inputs.size(); ++i) {
    const Value& v = graph.graph().values[graph.graph().inputs[i]];
    TensorDesc desc{v.dtype, v.shape};
    for (int k = 0; k < desc.shape.rank(); ++k) {
      if (k == axes[i]) desc.shape[k] = 1;
      else if (desc.shape[k] < 0) desc.shape[k] = length;
    }
    inputs.one.push_back(desc);
  }
  inputs.values.resize(inputs.one.size());
  bool any = false;
  std::vector<Way> ways;
  std::size_t count = 0;
  do {
    try {
      prove(graph, axes, inputs, kTriedRows, &ways);
      any = true;
    } catch (const NotKnown&) {
    } catch (const Error& e) {  // an If's other branch may be for other shapes
      if (e.status != EVN_ERROR_INVALID_ARGUMENT && e.status != EVN_ERROR_INVALID_MODEL && e.status != EVN_ERROR_LIMIT) throw;
    }
  } while (go_on(&ways) && ++count < kMostWays);
  return any;
}

}  // namespace

std::vector<int> row_axes(const Graph& graph) {
  const auto symbol = [](const Value& v, int axis) -> std::string_view {
    return static_cast<std::size_t>(axis) < v.symbols.size() ? std::string_view(v.symbols[static_cast<std::size_t>(axis)]) : "";
  };
  std::string_view name;
  for (const ValueId id : graph.inputs) {
    const Value& v = graph.values[id];
    if (v.wraps || v.dtype == DType::kString || !v.has_shape) {
      fail(EVN_ERROR_UNSUPPORTED, "requests cannot be joined to batches: input \"%s\" is no tensor of numbers of a known rank",
           v.name.c_str());
    }
    if (name.empty() && v.shape.rank() > 0 && v.shape[0] < 0) name = symbol(v, 0);
  }
  std::vector<int> axes;
  bool any = false;
  for (const ValueId id : graph.inputs) {
    const Value& v = graph.values[id];
    int at = kNoRows;
    for (int i = v.shape.rank() - 1; i >= 0; --i) {
      if (v.shape[i] < 0 && (name.empty() ? symbol(v, i).empty() : symbol(v, i) == name)) at = i;
    }
    if (v.shape.rank() > 0 && v.shape[0] < 0) at = 0;
    axes.push_back(at);
    any = any || at != kNoRows;
  }
  if (any) return axes;
  if (graph.inputs.empty()) fail(EVN_ERROR_UNSUPPORTED, "requests cannot be joined to batches: the model has no inputs");
  const Value& first = graph.values[graph.inputs[0]];
  if (first.shape.rank() == 0)
    fail(EVN_ERROR_UNSUPPORTED, "requests cannot be joined to batches: input \"%s\" has no axes", first.name.c_str());
  fail(EVN_ERROR_UNSUPPORTED, "requests cannot be joined to batches: dim 0 of input \"%s\" is %lld in the model's file",
       first.name.c_str(), static_cast<long long>(first.shape[0]));
}

RowOutputs prove_rows(const CompiledGraph& graph, std::span<const int> axes, const RowInputs& inputs, std::int64_t rows) {
  try {
    return prove(graph, axes, inputs, rows, nullptr);
  } catch (const NotKnown&) {
    fail(EVN_ERROR_UNSUPPORTED, "requests cannot be joined to batches: a shape depends on what the run computes");
  }
}

bool prove_rows_beforehand(const CompiledGraph& graph, std::span<const int> axes, bool on_any_device) {
  for (const std::int64_t length : kTriedLengths) {
    if (try_length(graph, axes, length, on_any_device)) return true;
  }
  return false;
}

}  // namespace evn
