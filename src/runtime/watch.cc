#include "runtime/watch.h"

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "base/error.h"
#include "graph/subgraphs.h"

namespace evn {
namespace {

constexpr const char* kWatch = "Watch";

void run_watch(const ReferenceContext& c);

struct WatchOp final : CustomOp {
  mutable std::mutex mutex;
  mutable std::map<std::int64_t, std::pair<WatchFunction, void*>> entries;

  WatchOp() {
    domain = kQuantizerDomain;
    name = kWatch;
    def.name = kWatch;
    def.domain = kQuantizerDomain;
    def.since = 1;
    def.min_inputs = def.min_outputs = def.max_outputs = 1;
    def.max_inputs = 2;
    def.dtypes = UINT32_MAX;
    def.output_dtype = [](const Node&, std::span<const DType> inputs, int) { return inputs[0]; };
    def.infer = infer_same_shape;
    def.reference = run_watch;
    def.custom = this;
  }

  void infer(const Node& /*node*/, std::span<const TensorDesc> inputs, std::span<const ConstTensor> /*values*/,
             std::span<TensorDesc> outputs) const override {
    outputs[0] = inputs[0];
  }
};

std::int64_t number_of(const Node& node, std::string_view name) {
  for (const Attribute& a : node.attributes) {
    if (a.name == name && attribute_type(a.value) == AttributeType::kInt) return std::get<std::int64_t>(a.value);
  }
  return -1;
}

void run_watch(const ReferenceContext& c) {
  const ConstTensor& x = c.input(0);
  if (const std::size_t bytes = x.desc.size_bytes(); bytes > 0) std::memcpy(c.output().data, x.data, bytes);
  const auto& op = *static_cast<const WatchOp*>(c.node.op->custom);
  const std::lock_guard lock(op.mutex);
  if (const auto it = op.entries.find(number_of(c.node, "watcher")); it != op.entries.end()) {
    it->second.first(it->second.second, static_cast<std::size_t>(number_of(c.node, "what")), c.inputs);
  }
}

const WatchOp& op_of(Runtime& runtime) {
  if (runtime.operators().find(kQuantizerDomain, kWatch, 1) == nullptr) {
    try {
      runtime.operators().add(std::make_unique<WatchOp>());
    } catch (const Error& e) {
      if (e.status != EVN_ERROR_INVALID_ARGUMENT) throw;  // another thread was first
    }
  }
  return *static_cast<const WatchOp*>(runtime.operators().find(kQuantizerDomain, kWatch, 1)->custom);
}

}  // namespace

Watching::Watching(Runtime& runtime, WatchFunction function, void* user) {
  static std::atomic<std::int64_t> next{1};
  id_ = next++;
  const WatchOp& op = op_of(runtime);
  op_ = &op;
  const std::lock_guard lock(op.mutex);
  op.entries.emplace(id_, std::pair{function, user});
}

Watching::~Watching() {
  const auto& op = *static_cast<const WatchOp*>(op_);
  const std::lock_guard lock(op.mutex);
  op.entries.erase(id_);
}

void Watching::add_node(Graph& graph, std::int32_t region, std::vector<ValueId> inputs, ValueId output, std::size_t what) const {
  Node n;
  n.name = graph.values[static_cast<std::size_t>(output)].name + "/watch" + std::to_string(what);
  n.op_type = kWatch;
  n.domain = kQuantizerDomain;
  n.region = region;
  n.inputs = std::move(inputs);
  n.outputs = {output};
  add_int(n, "watcher", id_);
  add_int(n, "what", static_cast<std::int64_t>(what));
  graph.nodes.push_back(std::move(n));
}

void Watching::watch_value(Graph& graph, ValueId v, std::size_t what, ValueId beside) const {
  Value made = graph.values[static_cast<std::size_t>(v)];
  made.name += "/made";
  const auto from = static_cast<ValueId>(graph.values.size());
  graph.values.push_back(std::move(made));
  for (Node& node : graph.nodes) {
    for (ValueId& output : node.outputs) {
      if (output != v) continue;
      output = from;
      std::vector<ValueId> inputs{from};
      if (beside != kNoValue) inputs.push_back(beside);
      return add_node(graph, node.region, std::move(inputs), v, what);  // may move the nodes
    }
  }
  EVN_CHECK(false);
}

void Watching::watch_input(Graph& graph, std::size_t node, std::size_t input, std::size_t what) const {
  const ValueId from = graph.nodes[node].inputs[input];
  Value seen = graph.values[static_cast<std::size_t>(from)];
  seen.name += "/seen";
  const auto to = static_cast<ValueId>(graph.values.size());
  graph.values.push_back(std::move(seen));
  graph.nodes[node].inputs[input] = to;
  add_node(graph, graph.nodes[node].region, {from}, to, what);
}

void Watching::import_into(Model& model) { model.opsets.push_back({kQuantizerDomain, 1}); }

}  // namespace evn
