// Looking at values while a model runs, also where they cannot be outputs: in branches and bodies. A node of an operator that
// models do not have stands in the way of the value, hands it on as it is, and calls back.
#pragma once

#include "quant/graph_writer.h"
#include "runtime/objects/runtime.h"

namespace evn {

inline constexpr const char kQuantizerDomain[] = "evener.quantizer";

// The number that the node was made with, and what it reads. Not called by two threads at once. What it throws ends the run.
using WatchFunction = void (*)(void* user, std::size_t what, std::span<const ConstTensor> tensors);

class Watching {
 public:
  // Nodes of models that are loaded into this runtime, which must live longer, call `function` as long as this object is there.
  Watching(Runtime& runtime, WatchFunction function, void* user);
  ~Watching();
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

  // Puts a node between the value's maker, whose number is `maker`, and its readers. It also reads `beside`, unless that is
  // kNoValue.
  void watch_value(GraphWriter& writer, std::int32_t maker, ValueId v, std::size_t what, ValueId beside = kNoValue) const;
  // Puts a node in front of an input of a node.
  void watch_input(GraphWriter& writer, std::size_t node, std::size_t input, std::size_t what) const;
  // So that the model may have such nodes.
  static void import_into(Model& model);

 private:
  const CustomOp* op_ = nullptr;
  std::int64_t id_ = 0;

  void add_node(GraphWriter& writer, std::int32_t region, std::span<const ValueId> inputs, ValueId output, std::size_t what) const;
};

}  // namespace evn
