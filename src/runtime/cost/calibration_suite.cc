// The suite: one model whose nodes have nothing to do with each other.
#include "base/checked.h"
#include "model/save.h"
#include "runtime/cost/calibrate.h"

namespace evn {
namespace {

using Dims = std::vector<std::int64_t>;

class SuiteBuilder {
 public:
  SuiteBuilder() {
    model_.ir_version = 8;
    model_.opsets = {{"", 17}};
    model_.graph.name = "calibration";
  }

  ValueId input(const Dims& dims, DType dtype = DType::kFloat32) {
    const ValueId v = value(dims, dtype);
    model_.graph.inputs.push_back(v);
    return v;
  }

  ValueId constant(const Dims& dims) {
    const ValueId v = value(dims, DType::kFloat32);
    const TensorDesc desc{DType::kFloat32, Shape(dims)};
    const auto data = std::make_shared<std::vector<float>>(static_cast<std::size_t>(desc.shape.elements()), 0.01f);
    at(v).constant = make_weight_over(desc, std::shared_ptr<const void>(data, data->data()));
    return v;
  }

  ValueId integers(const std::vector<std::int64_t>& values) {
    const Dims dims{static_cast<std::int64_t>(values.size())};
    const ValueId v = value(dims, DType::kInt64);
    const auto data = std::make_shared<std::vector<std::int64_t>>(values);
    at(v).constant = make_weight_over({DType::kInt64, Shape(dims)}, std::shared_ptr<const void>(data, data->data()));
    return v;
  }

  // Returns what the node makes, which is an output of the model unless `inner`.
  ValueId node(const char* op, std::vector<ValueId> inputs, std::vector<Attribute> attributes = {}, bool inner = false) {
    Node& n = model_.graph.nodes.emplace_back();
    n.name = std::string(op) + "_" + std::to_string(model_.graph.nodes.size());
    n.op_type = op;
    n.inputs = std::move(inputs);
    n.attributes = std::move(attributes);
    Value out;
    out.name = n.name + "_out";
    out.dtype = DType::kFloat32;
    n.outputs = {static_cast<ValueId>(model_.graph.values.size())};
    if (!inner) model_.graph.outputs.push_back(n.outputs[0]);
    model_.graph.values.push_back(std::move(out));
    return n.outputs[0];
  }

  void conv(std::int64_t channels, std::int64_t filters, std::int64_t side, std::int64_t kernel, std::int64_t stride = 1,
            std::int64_t groups = 1) {
    const std::int64_t pad = kernel / 2;
    node("Conv", {input({1, channels, side, side}), constant({filters, channels / groups, kernel, kernel}), constant({filters})},
         {{"kernel_shape", Dims{kernel, kernel}},
          {"strides", Dims{stride, stride}},
          {"pads", Dims{pad, pad, pad, pad}},
          {"group", groups}});
  }

  const Model& model() const { return model_; }

 private:
  Value& at(ValueId v) { return model_.graph.values[static_cast<std::size_t>(v)]; }

  ValueId value(const Dims& dims, DType dtype) {
    const auto id = static_cast<ValueId>(model_.graph.values.size());
    Value v;
    v.name = "v" + std::to_string(id);
    v.dtype = dtype;
    v.has_shape = true;
    v.shape = Shape(dims);
    model_.graph.values.push_back(std::move(v));
    return id;
  }

  Model model_;
};

void add_convolutions(SuiteBuilder& s) {
  for (const auto& [channels, side] : {std::pair{16, 56}, {64, 56}, {128, 28}, {256, 14}, {512, 7}})
    s.conv(channels, channels, side, 3);
  s.conv(3, 32, 112, 3, 2);
  s.conv(3, 64, 112, 7, 2);
  s.conv(64, 128, 56, 3, 2);
  s.conv(256, 512, 14, 3, 2);
  for (const auto& [channels, filters, side] :
       {std::array{16, 96, 56}, {64, 256, 56}, {256, 64, 56}, {96, 24, 28}, {256, 1024, 14}, {960, 160, 7}, {512, 2048, 7}})
    s.conv(channels, filters, side, 1);
  for (const auto& [channels, side, stride] : {std::array{32, 112, 1}, {96, 56, 2}, {144, 28, 1}, {384, 14, 1}, {960, 7, 1}})
    s.conv(channels, channels, side, 3, stride, channels);
  s.conv(192, 192, 14, 5, 1, 192);
}

void add_products(SuiteBuilder& s) {
  for (const auto& [m, k, n] : {std::array{128, 256, 256}, {128, 256, 1024}, {197, 768, 768}, {128, 768, 3072}, {1, 768, 768}})
    s.node("MatMul", {s.input({1, m, k}), s.constant({k, n})});
  for (const auto& [heads, rows, depth] : {std::array{4, 128, 64}, {12, 197, 64}}) {
    s.node("MatMul", {s.input({heads, rows, depth}), s.input({heads, depth, rows})});
    s.node("MatMul", {s.input({heads, rows, rows}), s.input({heads, rows, depth})});
    s.node("Softmax", {s.input({heads, rows, rows})}, {{"axis", std::int64_t{-1}}});
  }
  for (const auto& [m, k, n] : {std::array{1, 1280, 1000}, {1, 512, 512}, {32, 512, 512}})
    s.node("Gemm", {s.input({m, k}), s.constant({k, n}), s.constant({n})});
}

void add_elementwise(SuiteBuilder& s) {
  for (const Dims& dims : {Dims{1, 64, 56, 56}, Dims{1, 256, 14, 14}, Dims{1, 128, 768}}) {
    for (const char* op : {"Add", "Mul", "Sub", "Div"}) s.node(op, {s.input(dims), s.input(dims)});
    for (const char* op : {"Relu", "Sigmoid", "Tanh", "HardSwish", "Erf", "Sqrt", "Exp", "Neg"}) s.node(op, {s.input(dims)});
  }
}

void add_others(SuiteBuilder& s) {
  const Dims two{2, 2}, three{3, 3}, ones{1, 1, 1, 1};
  for (const auto& [channels, side] : {std::pair{64, 112}, {256, 14}}) {
    const ValueId x = s.input({1, channels, side, side});
    s.node("MaxPool", {x}, {{"kernel_shape", three}, {"strides", two}, {"pads", ones}});
    s.node("AveragePool", {x}, {{"kernel_shape", two}, {"strides", two}});
    s.node("GlobalAveragePool", {x});
    s.node("Concat", {x, s.input({1, channels, side, side})}, {{"axis", std::int64_t{1}}});
    s.node("Transpose", {x}, {{"perm", Dims{0, 2, 3, 1}}});
    s.node("Slice", {x, s.integers({0}), s.integers({channels / 2}), s.integers({1})});
    s.node("ReduceMean", {x}, {{"axes", Dims{2, 3}}});
  }
  for (const std::int64_t width : {256, 768}) {
    const ValueId x = s.input({1, 128, width});
    s.node("LayerNormalization", {x, s.constant({width}), s.constant({width})});
    s.node("ReduceMean", {x}, {{"axes", Dims{-1}}});
    s.node("Transpose", {s.input({1, 128, width / 64, 64})}, {{"perm", Dims{0, 2, 1, 3}}});
    s.node("Gather", {s.constant({2000, width}), s.input({1, 128}, DType::kInt64)});
  }
}

ModelPtr load(const std::shared_ptr<Runtime>& runtime, const SuiteBuilder& built) {
  const SavedModel saved = save_onnx(built.model());
  return load_model_bytes(runtime, model_bytes(saved, runtime->cpu().ledger()), saved.size, "calibration");
}

}  // namespace

ModelPtr calibration_chain(const std::shared_ptr<Runtime>& runtime) {
  constexpr int kSteps = 64;
  SuiteBuilder chain;
  ValueId at = chain.input({16});
  for (int i = 1; i <= kSteps; ++i) at = chain.node("Neg", {at}, {}, i != kSteps);
  return load(runtime, chain);
}

ModelPtr calibration_suite(const std::shared_ptr<Runtime>& runtime) {
  SuiteBuilder suite;
  add_convolutions(suite);
  add_products(suite);
  add_elementwise(suite);
  add_others(suite);
  return load(runtime, suite);
}

}  // namespace evn
