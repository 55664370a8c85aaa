// Runs the nodes whose inputs are all constants, with the reference kernels. What a hostile model could blow up is left to the run:
// an output far larger than the constants that it comes from, and work far larger than its data, which is counted while it is done.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>

#include "base/checked.h"
#include "base/guarded.h"
#include "base/heap.h"
#include "graph/edit.h"
#include "graph/infer.h"
#include "graph/passes/rewrites.h"
#include "ops/merge.h"
#include "ops/multiply_adds.h"

namespace evn {
namespace {

constexpr std::size_t kSmallBytes = 1 << 20;  // up to here a constant may be made from nothing (ConstantOfShape, Expand)
constexpr std::size_t kMaxGrowth = 4;         // above: so many times the bytes of the model's constants behind it
// Units of work (base/cancel.h). What is linear in inputs and outputs is no more than so many, whatever the attributes are, and
// free; what takes more is taken from PassContext::fold_work.
constexpr std::int64_t kFreeWork = 1 << 16;
constexpr std::int64_t kFreeWorkPerElement = 16;
constexpr std::int64_t kMaxWork = std::int64_t{1} << 28;  // of one node, beyond what is free
// The weight of a product may be made from nothing while the constants of the model are no more than this in all: packed kernels
// want constants, and a run that makes a weight each time takes longer than the product.
constexpr std::size_t kMaxConstants = std::size_t{1} << 30;

// Left alone where they have more than one number, for the rewrites of quantized graphs look for them (fold_dequantize takes what
// is left).
constexpr const char* kLater[] = {"DequantizeLinear", "QuantizeLinear"};

// Operators whose input 1 is a weight that kernels pack.
constexpr const char* kProducts[] = {"Conv", "ConvTranspose", "Gemm", "MatMul"};

template <std::size_t N>
bool is_in(const char* const (&list)[N], const std::string& name) {
  return std::any_of(std::begin(list), std::end(list), [&](const char* entry) { return name == entry; });
}

bool may_fold(const Node& node) {
  if (node.outputs.empty() || is_merge(node) || node.op->custom != nullptr) return false;
  if (node.op->reference == nullptr || (node.op->flags & kOpRandom) != 0) return false;
  return std::none_of(node.attributes.begin(), node.attributes.end(),
                      [](const Attribute& a) { return attribute_type(a.value) == AttributeType::kGraph; });
}

// No more than any tensor has, so that sums and products of a few stay numbers.
std::int64_t elements(const TensorDesc& desc) {
  return desc.dtype == DType::kUndefined || !desc.shape.is_known() ? 0 : std::min(desc.shape.elements(), std::int64_t{1} << 48);
}

class ConstantFolder {
 public:
  ConstantFolder(Graph& graph, const PassContext& context) : edit_(graph), context_(context), origin_(graph.values.size(), 0) {
    cancel_.deadline_ns = context.deadline_ns;
    cancel_.over = "the time to load the model is over";
    if (const Cancel* outer = CancelScope::current()) {
      cancel_.join(*outer);
      cancel_.cancelled = outer->cancelled;
    }
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      if (graph.values[v].constant == nullptr) continue;
      origin_[v] = graph.values[v].constant->size_bytes;
      constant_bytes_ = checked_add(constant_bytes_, origin_[v]);
    }
  }

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      try {
        completing_errors([&] { fold(n); }, [](Error&) {});
      } catch (Error& e) {
        // A branch that may never be taken. A load that is out of time is.
        if (edit_.node(n).region >= 0 && e.status != EVN_ERROR_TIMEOUT && e.status != EVN_ERROR_CANCELLED) continue;
        // All inputs are the model's own.
        if (e.status == EVN_ERROR_INVALID_ARGUMENT) e.status = EVN_ERROR_INVALID_MODEL;
        if (e.node[0] == '\0') e.with_node(edit_.node(n).name.c_str());
        throw;
      }
    }
    return edit_.commit();
  }

 private:
  // Whether all inputs are known; fills in inputs_ and the sum of their origins.
  bool gather(const Node& node) {
    inputs_.assign(node.inputs.size(), ConstTensor{});
    if (copies_.size() < node.inputs.size()) copies_.resize(node.inputs.size());
    origin_bytes_ = 0;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      if (v == kNoValue) continue;
      const Value& value = edit_.value(v);
      if (i == 0 && (node.op->flags & kOpShapeOnly) != 0 && shape_is_certain(v)) {
        inputs_[i].desc = {value.dtype, value.shape};
        continue;
      }
      if (value.constant == nullptr || !is_stored(value.dtype)) return false;
      origin_bytes_ = checked_add(origin_bytes_, origin_[v]);
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue || inputs_[i].present()) continue;
      const Weight& w = *edit_.value(node.inputs[i]).constant;
      inputs_[i] = {w.desc, aligned_bytes(w, copies_[i])};
    }
    return true;
  }

  // A computed graph output may have dims that only its declaration knows; nothing may be built on those.
  bool shape_is_certain(ValueId v) const {
    const Value& value = edit_.value(v);
    return value.has_shape && value.shape.is_known() && (edit_.producer(v) < 0 || !edit_.is_output(v));
  }

  // Whether a product alone reads v, itself or reshaped, as its weight.
  bool is_weight(ValueId v) const {
    for (int n = edit_.only_consumer(v); n >= 0; n = edit_.only_consumer(v)) {
      const Node& reader = edit_.graph().nodes[n];
      if (reader.inputs.size() > 1 && reader.inputs[1] == v) return reader.domain.empty() && is_in(kProducts, reader.op_type);
      if ((reader.op->flags & kOpView) == 0 || reader.inputs[0] != v) return false;
      v = reader.outputs[0];
    }
    return false;
  }

  // Whether the outputs have known, stored and reasonable sizes; fills in descs_.
  bool infer_outputs(const Node& node) {
    std::vector<TensorDesc> inputs;
    for (const ConstTensor& t : inputs_) inputs.push_back(t.desc);
    descs_.assign(node.outputs.size(), TensorDesc{});
    infer_node(node, inputs, inputs_, descs_);
    made_bytes_ = 0;
    free_work_ = kFreeWork;
    for (const TensorDesc& d : inputs) free_work_ += kFreeWorkPerElement * elements(d);
    for (std::size_t i = 0; i < descs_.size(); ++i) {
      const TensorDesc& d = descs_[i];
      if (d.dtype == DType::kUndefined) continue;
      if (!d.shape.is_known() || !is_stored(d.dtype)) return false;
      const std::size_t bytes = d.size_bytes();
      if (bytes > context_.limits.tensor_bytes) fail(EVN_ERROR_LIMIT, "a constant of %zu bytes is above the limit", bytes);
      if (bytes > kSmallBytes && bytes / kMaxGrowth > origin_bytes_) {
        if (!is_weight(node.outputs[i]) || checked_add(constant_bytes_, bytes) > kMaxConstants) return false;
        made_bytes_ = checked_add(made_bytes_, bytes);
      }
      free_work_ += kFreeWorkPerElement * elements(d);
    }
    return multiply_adds(node, inputs, descs_) <= static_cast<double>(work_limit());  // a start in vain costs time
  }

  std::int64_t work_limit() const { return free_work_ + std::min(kMaxWork, context_.fold_work); }

  void fold(int n) {
    const Node& node = edit_.node(n);
    if (!may_fold(node)) return;
    // A graph output stays computed: a session hands out what its steps wrote.
    for (ValueId v : node.outputs) {
      if (v != kNoValue && edit_.is_output(v)) return;
    }
    if (!gather(node) || !infer_outputs(node)) return;
    if (is_in(kLater, node.op_type) && descs_[0].shape.elements() > 1) return;
    if (!allocate(node)) return;
    const auto texts = std::make_shared<TextPool>(context_.ledger);
    // Outputs without elements are not computed, as in a run.
    const bool computes = std::any_of(descs_.begin(), descs_.end(), [](const TensorDesc& d) { return elements(d) > 0; });
    if (computes && !evaluate(node, texts.get())) {
      weights_.clear();
      return;
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i].desc.dtype == DType::kString) own_texts(outputs_[i], texts, *weights_[i]);
    }
    store(n);
  }

  // False when it would be too much work.
  bool evaluate(const Node& node, TextPool* texts) {
    const CancelScope scope(cancel_, work_limit());
    const auto charge = [&] { context_.fold_work -= std::clamp<std::int64_t>(scope.work() - free_work_, 0, context_.fold_work); };
    try {
      run_reference({node, inputs_, outputs_, {texts, 0}});
    } catch (const Error&) {
      charge();
      if (scope.is_spent()) return false;
      throw;
    }
    charge();
    return true;
  }

  // The texts of the inputs' constants may go before those that are made of them.
  static void own_texts(const MutableTensor& t, const TextPoolPtr& texts, Weight& weight) {
    auto* elements = t.as<TextElement>();
    texts->copy(elements, static_cast<std::size_t>(t.desc.shape.elements()), elements);
    keep_texts(weight, texts);
  }

  // False when the cap leaves no memory for what is made from nothing: then the run makes it.
  bool allocate(const Node& node) {
    weights_.assign(node.outputs.size(), nullptr);
    outputs_.assign(node.outputs.size(), MutableTensor{});
    const std::optional<Error> failure = error_of([&] {
      for (std::size_t i = 0; i < node.outputs.size(); ++i) {
        if (descs_[i].dtype == DType::kUndefined) continue;
        outputs_[i].desc = descs_[i];
        weights_[i] = make_weight(descs_[i], context_.ledger, &outputs_[i].data);
      }
    });
    if (!failure) return true;
    if (made_bytes_ == 0 || failure->status != EVN_ERROR_OUT_OF_MEMORY) throw *failure;
    weights_.clear();
    return false;
  }

  void store(int n) {
    const Node& node = edit_.node(n);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (weights_[i] == nullptr) continue;
      Value& value = edit_.value(node.outputs[i]);
      value.dtype = descs_[i].dtype;
      value.has_shape = true;
      value.shape = descs_[i].shape;
      origin_[node.outputs[i]] = std::min(checked_add(origin_bytes_, made_bytes_), weights_[i]->size_bytes);
      constant_bytes_ = checked_add(constant_bytes_, weights_[i]->size_bytes);
      value.constant = std::move(weights_[i]);
    }
    edit_.remove_node(n);
  }

  GraphEditor edit_;
  const PassContext& context_;
  Cancel cancel_;
  std::int64_t free_work_ = 0;  // of the node
  // Per constant: bytes of the model that it was made from. Chains of Tile and Expand grow by these, not by each other.
  std::vector<std::size_t> origin_;
  std::size_t origin_bytes_ = 0;
  std::size_t made_bytes_ = 0;      // of the node's outputs: what is made from nothing
  std::size_t constant_bytes_ = 0;  // of all constants, those that are folded away included
  std::vector<ConstTensor> inputs_;
  std::vector<MutableTensor> outputs_;
  std::vector<std::shared_ptr<Weight>> weights_;
  std::vector<TensorDesc> descs_;
  std::vector<std::vector<std::uint64_t>> copies_;
};

}  // namespace

bool fold_constants(Graph& graph, const PassContext& context) { return ConstantFolder(graph, context).run(); }

}  // namespace evn
