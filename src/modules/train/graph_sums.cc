// The models that sum gradients: of several steps, and of several devices.
#include "modules/train/graphs.h"
#include "modules/train/node_writer.h"

namespace evn_train {

OnnxModel empty_model(const OnnxModel& like) {
  OnnxModel m;
  m.ir_version = like.ir_version;
  m.opsets = like.opsets;
  m.graph_name = "evener";
  return m;
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

std::string TrainingGraphs::combining_model(std::size_t replicas) const {
  OnnxModel m = empty_model(model_);
  NodeWriter w(&m);
  const auto weight = [](std::size_t r) { return "evener/weight" + std::to_string(r); };
  const auto part = [](std::size_t r, const char* kind, const std::string& name) {
    return "evener/" + std::string(kind) + std::to_string(r) + "/" + name;
  };
  for (std::size_t r = 0; r < replicas; ++r) m.inputs.push_back(tensor_value(weight(r), kFloat, {}));
  for (std::size_t r = 0; r < replicas; ++r) {
    for (const Parameter& p : parameters_) m.inputs.push_back(tensor_value(part(r, "gradient", p.name), kFloat, p.dims));
    for (const Statistic& s : statistics_) m.inputs.push_back(tensor_value(part(r, "statistic", s.name), kFloat, s.dims));
  }
  const auto add = [&](const char* kind, const Parameter& p) {
    std::string sum;
    for (std::size_t r = 0; r < replicas; ++r) {
      const std::string weighted = w.op("Mul", {part(r, kind, p.name), weight(r)});
      sum = r == 0 ? weighted : w.op("Add", {sum, weighted});
    }
    m.outputs.push_back(tensor_value(sum, kFloat, p.dims));
  };
  for (const Parameter& p : parameters_) add("gradient", p);
  for (const Statistic& s : statistics_) add("statistic", s);
  return write_onnx(m);
}

}  // namespace evn_train
