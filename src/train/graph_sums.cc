// The model that sums gradients of several steps.
#include "train/graphs.h"
#include "train/node_writer.h"

namespace evn_train {

OnnxModel empty_model(const OnnxModel& like) {
  OnnxModel m;
  m.ir_version = like.ir_version;
  m.opsets = like.opsets;
  m.graph_name = "evener";
  return m;
}

std::string dims_text(const std::vector<std::int64_t>& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(dims[i]);
  return text + "]";
}

std::string gradient_name(const std::string& name) { return "evener/gradient/" + name; }

std::string TrainingGraphs::adding_model() const {
  OnnxModel m = empty_model(model_);
  NodeWriter w(&m);
  for (const Parameter& p : parameters_) m.inputs.push_back(tensor_value("evener/sum/" + p.name, kFloat, p.dims));
  for (const Parameter& p : parameters_) m.inputs.push_back(tensor_value(gradient_name(p.name), kFloat, p.dims));
  for (const Parameter& p : parameters_) {
    const std::string sum = w.op("Add", {"evener/sum/" + p.name, gradient_name(p.name)});
    m.outputs.push_back(tensor_value(sum, kFloat, p.dims));
  }
  return write_onnx(m);
}

}  // namespace evn_train
