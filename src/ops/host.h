// Operators that run on the host between the parts of a plan: over values that are more than tensors (sequences, optionals, maps),
// and those that run a graph of their own many times (Loop, Scan, SequenceMap). docs/decisions/0015.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/limits.h"
#include "ops/infra/part_list.h"
#include "ops/op.h"

namespace evn {

// A value while a run is under way: a tensor, or what is made of runtime values. Never changes once others can see it, and is
// shared freely.
struct RuntimeValue {
  TensorDesc desc;                   // dtype, and the shape of a tensor or the wraps of anything else
  std::shared_ptr<const void> data;  // of a tensor: row-major bytes, aligned for the dtype; may be null where there are no elements
  std::shared_ptr<const void> texts;  // of a string tensor: keeps its texts
  PartList parts;                     // sequence: the elements; optional: none or one; map: keys and values, both of rank 1
  bool borrowed = false;  // the bytes are an arena's, for this call only: HostServices::keep makes a runtime value to hold on to

  bool is_tensor() const { return !desc.wraps; }
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data.get());
  }
  ConstTensor tensor() const { return {desc, data.get()}; }
};

// What a run lends to a host operator.
class HostServices {
 public:
  virtual ~HostServices() = default;
  // A tensor of zeroed bytes, counted by the CPU device; `*bytes` receives where to write. Throws EVN_ERROR_LIMIT (tensor_bytes),
  // EVN_ERROR_OUT_OF_MEMORY.
  virtual std::shared_ptr<RuntimeValue> make_tensor(const TensorDesc& desc, void** bytes) = 0;
  // The value in a runtime value that may outlive the call.
  virtual RuntimeValuePtr keep(const RuntimeValuePtr& runtime_value) = 0;
  // Runs the node's body once; the runtime values given must not be borrowed. `iteration` tells calls apart where something random
  // is drawn.
  virtual std::vector<RuntimeValuePtr> run_body(std::span<const RuntimeValuePtr> inputs, std::uint64_t iteration) = 0;
  // Throws EVN_ERROR_TIMEOUT or EVN_ERROR_CANCELLED when the run is to end.
  virtual void check_stop() = 0;
  virtual const Limits& limits() const = 0;
};

struct HostContext {
  const Node& node;
  std::span<const RuntimeValuePtr> inputs;  // null: not given
  std::span<RuntimeValuePtr> outputs;       // to be filled in where the node has an output; an output may be one of the inputs
  HostServices& services;

  bool has_input(std::size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
  bool wants(std::size_t i) const { return i < node.outputs.size() && node.outputs[i] != kNoValue; }
};

// How the body of a Loop, Scan or SequenceMap is fed.
struct BodyRule {
  // The types of the body's inputs, as far as the node's own (whose shapes may be InferContext's unknown rank) tell them. The
  // captured ones, at the end, are filled in already. `body_inputs` without its captures is how many the body has.
  void (*inputs)(const Node& node, std::span<const TensorDesc> inputs, std::span<TensorDesc> body_inputs);
  // The body's output that becomes its input number `input` in the next iteration, or -1.
  int (*feedback)(const Node& node, int input);
  // How often it runs, or at most runs, as far as the node's inputs tell (data: null where not constant); -1: not known.
  std::int64_t (*iterations)(const Node& node, std::span<const ConstTensor> inputs);
};

// The one element of a bool or integer tensor. Throws EVN_ERROR_INVALID_ARGUMENT, calling it `what`, when there is not just one.
std::int64_t runtime_value_integer(const RuntimeValuePtr& runtime_value, const char* what);

// A sequence or optional of `element` (its type without the wrap), with these parts.
RuntimeValuePtr make_runtime_value(const TensorDesc& element, Wrap outer, PartList parts);

}  // namespace evn
