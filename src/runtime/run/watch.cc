#include "runtime/run/watch.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "base/cancel.h"
#include "base/error.h"
#include "base/mutex.h"

namespace evn {
namespace {

constexpr const char* kWatch = "Watch";

void run_watch(const ReferenceContext& c);

struct WatchOp final : CustomOp {
  mutable Mutex mutex;
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
  move_in_pieces(c.output().data, x.data, x.desc.size_bytes());
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
  const LockIfAlive lock(op.mutex);
  op.entries.erase(id_);
}

void Watching::add_node(GraphWriter& writer, std::int32_t region, std::span<const ValueId> inputs, ValueId output,
                        std::size_t what) const {
  writer.set_region(region);
  writer.add_node(kWatch, writer.value(output).name, "/watch", inputs, output, kQuantizerDomain);
  writer.set_int("watcher", id_);
  writer.set_int("what", static_cast<std::int64_t>(what));
}

void Watching::watch_value(GraphWriter& writer, std::int32_t maker, ValueId v, std::size_t what, ValueId beside) const {
  EVN_CHECK(maker >= 0);
  const ValueId inputs[] = {writer.add_value(writer.value(v).name, "/made", writer.value(v).dtype), beside};
  Node& node = writer.graph().nodes[static_cast<std::size_t>(maker)];
  const auto output = std::find(node.outputs.begin(), node.outputs.end(), v);
  EVN_CHECK(output != node.outputs.end());
  *output = inputs[0];
  add_node(writer, node.region, {inputs, beside == kNoValue ? 1u : 2u}, v, what);
}

void Watching::watch_input(GraphWriter& writer, std::size_t node, std::size_t input, std::size_t what) const {
  ValueId& read = writer.graph().nodes[node].inputs[input];
  const ValueId from = read, to = writer.add_value(writer.value(from).name, "/seen", writer.value(from).dtype);
  read = to;
  add_node(writer, writer.graph().nodes[node].region, {&from, 1}, to, what);
}

void Watching::import_into(Model& model) { model.opsets.push_back({kQuantizerDomain, 1}); }

}  // namespace evn
