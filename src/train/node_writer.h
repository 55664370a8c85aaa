// Puts nodes at the end of a model.
#pragma once

#include "train/onnx.h"

namespace evn_train {

class NodeWriter {
 public:
  explicit NodeWriter(OnnxModel* model) : model_(model) {}

  // Several outputs. The names of what is new begin with "evener/".
  std::vector<std::string> ops(const char* op, std::vector<std::string> inputs, std::size_t outputs,
                               std::vector<std::string> attributes = {}, const char* domain = "") {
    OnnxNode& node = model_->nodes.emplace_back();
    node.op_type = op;
    node.domain = domain;
    node.name = fresh(op);
    node.inputs = std::move(inputs);
    node.attributes = std::move(attributes);
    for (std::size_t i = 0; i < outputs; ++i) node.outputs.push_back(node.name + ":" + std::to_string(i));
    return node.outputs;
  }
  std::string op(const char* op, std::vector<std::string> inputs, std::vector<std::string> attributes = {}) {
    return ops(op, std::move(inputs), 1, std::move(attributes))[0];
  }
  std::string number(float value) { return op("Constant", {}, {float_attribute("value_float", value)}); }
  std::string integer(std::int64_t value) { return op("Constant", {}, {int_attribute("value_int", value)}); }
  std::string integers(const std::vector<std::int64_t>& values) {
    return op("Constant", {}, {ints_attribute("value_ints", values)});
  }
  std::string cast(const std::string& value, std::int32_t dtype) { return op("Cast", {value}, {int_attribute("to", dtype)}); }
  // Over all elements.
  std::string mean(const std::string& value) { return op("ReduceMean", {value}, {int_attribute("keepdims", 0)}); }
  std::string sum(const std::string& value) { return op("ReduceSum", {value}, {int_attribute("keepdims", 0)}); }

  // `value` under the name, as an output of the model.
  void give(const std::string& value, const std::string& name, OnnxValue declared) {
    OnnxNode& node = model_->nodes.emplace_back();
    node.op_type = "Identity";
    node.name = fresh("Identity");
    node.inputs = {value};
    node.outputs = {name};
    declared.name = name;
    model_->outputs.push_back(std::move(declared));
  }

 private:
  std::string fresh(const char* op) { return "evener/" + std::string(op) + "_" + std::to_string(model_->nodes.size()); }
  OnnxModel* model_;
};

}  // namespace evn_train
