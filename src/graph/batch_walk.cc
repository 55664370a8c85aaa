#include "graph/batch_walk.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "base/cancel.h"
#include "base/error.h"
#include "graph/infer.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr std::int64_t kMostComputed = 4096;                      // of a value that is computed
constexpr std::int64_t kMostWork = std::int64_t{1} << 16;         // of computing one
constexpr std::size_t kMostBytes = std::size_t{64} << 20;         // of all of them
constexpr std::int64_t kDims[] = {5, 7, 11, 13, 17, 19, 23, 29};  // of dims that are not known, in their order

bool is_inferred(const Node& node) {
  return node.op != nullptr && node.op->infer != nullptr && node.op->host == nullptr && node.op->custom == nullptr &&
         node.body == nullptr && !is_merge(node) && !node.outputs.empty();
}

bool is_computed(const Node& node) { return node.op->reference != nullptr && (node.op->flags & kOpRandom) == 0; }

bool ends_call(evn_status status) {
  return status == EVN_ERROR_CANCELLED || status == EVN_ERROR_TIMEOUT || status == EVN_ERROR_OUT_OF_MEMORY;
}

}  // namespace

BatchWalk::BatchWalk(const Graph& graph, std::int64_t batch) : known_(graph.values.size()) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (value.constant == nullptr) continue;
    Known& known = known_[v];
    known.desc = value.constant->desc;
    if (!is_stored(known.desc.dtype) || known.desc.shape.elements() > kMostComputed) continue;
    known.bytes.resize((known.desc.size_bytes() + 7) / 8);
    if (known.desc.size_bytes() > 0) std::memcpy(known.bytes.data(), value.constant->bytes(), known.desc.size_bytes());
    known.has_bytes = true;
  }
  std::map<std::string, std::int64_t> named;
  std::size_t next = 0;
  const auto dim_of = [&](const Value& value, int i) {
    const std::int64_t fresh = kDims[next % std::size(kDims)];
    const bool has_name = static_cast<std::size_t>(i) < value.symbols.size() && !value.symbols[static_cast<std::size_t>(i)].empty();
    if (!has_name) return ++next, fresh;
    const auto [at, is_new] = named.emplace(value.symbols[static_cast<std::size_t>(i)], fresh);
    next += is_new ? 1 : 0;
    return at->second;
  };
  for (const ValueId v : graph.inputs) {
    const Value& value = graph.values[static_cast<std::size_t>(v)];
    if (!value.has_shape || value.wraps) continue;
    Known& known = known_[static_cast<std::size_t>(v)];
    known.desc = {value.dtype, value.shape};
    for (int i = 0; i < value.shape.rank(); ++i) {
      if (i == 0) known.desc.shape[i] = batch;
      else if (value.shape[i] < 0) known.desc.shape[i] = dim_of(value, i);
    }
  }
}

const Shape* BatchWalk::shape(ValueId v) const {
  if (v == kNoValue || known_[static_cast<std::size_t>(v)].desc.dtype == DType::kUndefined) return nullptr;
  return &known_[static_cast<std::size_t>(v)].desc.shape;
}

const std::vector<std::int64_t>* BatchWalk::numbers(ValueId v) const {
  if (v == kNoValue) return nullptr;
  const Known& known = known_[static_cast<std::size_t>(v)];
  if (!known.has_bytes || known.desc.dtype != DType::kInt64) return nullptr;
  known.numbers.resize(known.desc.size_bytes() / sizeof(std::int64_t));
  std::transform(known.bytes.begin(), known.bytes.end(), known.numbers.begin(),
                 [](std::uint64_t bits) { return static_cast<std::int64_t>(bits); });
  return &known.numbers;
}

// Returns true if the shapes of all inputs, and the values that the node's shape rule reads, are known.
bool BatchWalk::gather(const Node& node, std::span<const Given> given) {
  inputs_.assign(node.inputs.size(), {});
  values_.assign(node.inputs.size(), {});
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    const Known& known = known_[static_cast<std::size_t>(node.inputs[i])];
    const auto own = std::find_if(given.begin(), given.end(), [&](const Given& g) { return g.input == i; });
    values_[i] = own != given.end() ? own->value : ConstTensor{known.desc, known.has_bytes ? known.bytes.data() : nullptr};
    inputs_[i] = values_[i].desc;
    if (inputs_[i].dtype == DType::kUndefined) return false;
    if (node.op->reads_value(i) && values_[i].data == nullptr) return false;
  }
  return true;
}

// Fills the outputs whose inputs' values are known too.
void BatchWalk::compute(const Node& node) {
  if (!is_computed(node)) return;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const bool is_read = i > 0 || (node.op->flags & kOpShapeOnly) == 0;
    if (is_read && values_[i].present() && values_[i].data == nullptr) return;
  }
  std::vector<MutableTensor> made(node.outputs.size());
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (outputs_[i].dtype == DType::kUndefined) continue;
    if (!is_stored(outputs_[i].dtype) || outputs_[i].dtype == DType::kString || outputs_[i].shape.elements() > kMostComputed)
      return;
    const std::size_t words = (outputs_[i].size_bytes() + 7) / 8;
    if (computed_bytes_ + words * sizeof(std::uint64_t) > kMostBytes) return;
    Known& known = known_[static_cast<std::size_t>(node.outputs[i])];
    known.bytes.assign(words, 0);
    computed_bytes_ += words * sizeof(std::uint64_t);
    made[i] = {outputs_[i], known.bytes.data()};
  }
  const Cancel* const outer = CancelScope::current();
  const Cancel cancel = outer != nullptr ? *outer : Cancel();
  const CancelScope scope(cancel, kMostWork);
  try {
    run_reference({node, values_, made});
  } catch (const Error&) {
    if (scope.is_spent()) return;
    throw;
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (made[i].present()) known_[static_cast<std::size_t>(node.outputs[i])].has_bytes = true;
  }
}

void BatchWalk::forget(const Node& node) {
  for (const ValueId v : node.outputs) {
    if (v == kNoValue) continue;
    Known& known = known_[static_cast<std::size_t>(v)];
    computed_bytes_ -= known.bytes.size() * sizeof(std::uint64_t);
    known = {};
  }
}

std::optional<Error> BatchWalk::infer(const Node& node, std::span<const Given> given) {
  forget(node);
  if (!is_inferred(node) || !gather(node, given)) return std::nullopt;
  try {
    outputs_.assign(node.outputs.size(), {});
    infer_node(node, inputs_, values_, outputs_);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      if (outputs_[i].wraps || InferContext::is_unknown_rank(outputs_[i].shape) || !outputs_[i].shape.is_known()) {
        outputs_[i] = {};
        continue;
      }
      known_[static_cast<std::size_t>(node.outputs[i])].desc = outputs_[i];
    }
    compute(node);
  } catch (const Error& e) {
    if (ends_call(e.status)) throw;
    forget(node);
    return e;
  }
  return std::nullopt;
}

}  // namespace evn
