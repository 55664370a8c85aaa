#include "tests/cancellation/host_cases.h"

#include <cstring>

#include "base/error.h"
#include "ops/infra/runtime_values.h"

namespace evn::test {
namespace {

constexpr std::int64_t kMany = 40'000;

TestServices& services() {
  static TestServices all;
  return all;
}

template <typename T>
RuntimeValuePtr tensor(const Shape& shape, const std::vector<T>& values) {
  void* to = nullptr;
  const std::shared_ptr<RuntimeValue> runtime_value = services().make_tensor({kDTypeOf<T>, shape}, &to);
  std::memcpy(to, values.data(), values.size() * sizeof(T));
  return runtime_value;
}

RuntimeValuePtr integer(std::int64_t value) { return tensor<std::int64_t>({}, {value}); }
RuntimeValuePtr floats(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  return tensor<float>({count}, values);
}

// A sequence of tensors of one element.
RuntimeValuePtr sequence(std::int64_t count) {
  std::vector<RuntimeValuePtr> parts;
  for (std::int64_t i = 0; i < count; ++i) parts.push_back(tensor<float>({1}, {static_cast<float>(i)}));
  return make_runtime_value({DType::kFloat32, {}}, Wrap::kSequence, std::move(parts));
}

// From 0, 1, ... to their halves.
RuntimeValuePtr map_of_floats(std::int64_t count) {
  std::vector<std::int64_t> keys(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<std::int64_t>(i);
  return make_runtime_value({DType::kFloat32, {}}, Wrap::kMapOfInts, {tensor<std::int64_t>({count}, keys), floats(count)});
}

HostCase make(const std::string& op, int opset, std::vector<RuntimeValuePtr> inputs, std::vector<Attribute> attributes = {},
              int outputs = 1) {
  GraphBuilder b(opset);
  std::vector<ValueId> ids;
  for (const RuntimeValuePtr& runtime_value : inputs) {
    ids.push_back(runtime_value == nullptr
                      ? kNoValue
                      : b.input("x" + std::to_string(ids.size()), runtime_value->desc.shape, runtime_value->desc.dtype));
  }
  b.nodes(op, ids, outputs, std::move(attributes), "node");
  return {b.graph().nodes.back(), std::move(inputs)};
}

// A body that hands on its inputs but the first `skipped`.
std::shared_ptr<Graph> body(std::vector<TensorDesc> inputs, std::size_t skipped) {
  auto graph = std::make_shared<Graph>();
  for (const TensorDesc& d : inputs) {
    Value v;
    v.dtype = d.dtype;
    v.has_shape = true;
    v.shape = d.shape;
    graph->inputs.push_back(static_cast<ValueId>(graph->values.size()));
    graph->values.push_back(v);
  }
  graph->outputs.assign(graph->inputs.begin() + static_cast<std::ptrdiff_t>(skipped), graph->inputs.end());
  return graph;
}

HostCase with_body(HostCase c, std::vector<TensorDesc> inputs, std::size_t skipped) {
  c.node.body = body(std::move(inputs), skipped);
  return c;
}

std::vector<std::int64_t> numbers(std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  return all;
}

std::string text_of_runtime_value(const RuntimeValue& runtime_value) {
  std::string text = runtime_value.desc.type_string() + runtime_value.desc.shape.to_string();
  if (runtime_value.is_tensor() && runtime_value.desc.dtype == DType::kString) {
    for (std::int64_t i = 0; i < runtime_value.desc.shape.elements(); ++i)
      (text += text_of(runtime_value.as<TextElement>()[i])) += '\n';
  } else if (runtime_value.is_tensor() && runtime_value.data != nullptr) {
    text.append(runtime_value.as<char>(), runtime_value.desc.size_bytes());
  }
  for (const RuntimeValuePtr& part : runtime_value.parts) text += text_of_runtime_value(*part);
  return text;
}

}  // namespace

std::shared_ptr<RuntimeValue> TestServices::make_tensor(const TensorDesc& desc, void** bytes) {
  auto runtime_value = std::make_shared<RuntimeValue>();
  runtime_value->desc = desc;
  const std::shared_ptr<char[]> memory(new char[desc.size_bytes() + 8]());
  *bytes = memory.get();
  runtime_value->data = memory;
  return runtime_value;
}

// Loop, whose inputs begin with the iteration and the condition, gives the condition and what it carries; Scan and SequenceMap all.
std::vector<RuntimeValuePtr> TestServices::run_body(std::span<const RuntimeValuePtr> inputs, std::uint64_t) {
  std::size_t first = 0;
  if (inputs.size() > 1 && inputs[1]->desc.dtype == DType::kBool) first = 1;
  return {inputs.begin() + static_cast<std::ptrdiff_t>(first), inputs.end()};
}

std::map<std::string, HostCase> host_cases() {
  const TensorDesc one = {DType::kFloat32, {1}}, scalar = {DType::kFloat32, {}}, count = {DType::kInt64, {}},
                   truth = {DType::kBool, {}};
  std::map<std::string, HostCase> all;
  all["SequenceConstruct 11"] = make("SequenceConstruct", 13, sequence(kMany)->parts.all());
  all["SplitToSequence 11"] = make("SplitToSequence", 13, {floats(kMany)}, {{"axis", std::int64_t{0}}});
  all["ConcatFromSequence 11"] = make("ConcatFromSequence", 13, {sequence(kMany)}, {{"axis", std::int64_t{0}}});
  all["SequenceMap 17"] = with_body(make("SequenceMap", 17, {sequence(kMany)}), {one}, 0);
  all["Loop 1"] = with_body(make("Loop", 13, {integer(kMany), nullptr, floats(1)}, {}, 1), {count, truth, one}, 1);
  all["Scan 8"] = with_body(make("Scan", 8, {nullptr, tensor<float>({1, kMany}, std::vector<float>(kMany, 1.0f))},
                                 {{"num_scan_inputs", std::int64_t{1}}}),
                            {scalar}, 0);
  all["Scan 9"] = with_body(make("Scan", 13, {floats(kMany)}, {{"num_scan_inputs", std::int64_t{1}}}), {scalar}, 0);
  all["ai.onnx.ml::ZipMap 1"] = make("ai.onnx.ml::ZipMap", 1, {tensor<float>({kMany, 1}, std::vector<float>(kMany, 0.5f))},
                                     {{"classlabels_int64s", numbers(1)}});
  all["ai.onnx.ml::DictVectorizer 1"] =
      make("ai.onnx.ml::DictVectorizer", 1, {map_of_floats(kMany)}, {{"int64_vocabulary", numbers(kMany)}});
  all["ai.onnx.ml::CastMap 1"] = make("ai.onnx.ml::CastMap", 1, {map_of_floats(kMany)});
  return all;
}

std::vector<std::string> results_of(const HostCase& c) {
  std::vector<RuntimeValuePtr> outputs(c.node.outputs.size());
  HostContext context{c.node, c.inputs, outputs, services()};
  c.node.op->host(context);
  std::vector<std::string> results;
  for (const RuntimeValuePtr& runtime_value : outputs)
    results.push_back(runtime_value == nullptr ? "" : text_of_runtime_value(*runtime_value));
  return results;
}

}  // namespace evn::test
