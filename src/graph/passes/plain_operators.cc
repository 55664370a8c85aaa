// com.microsoft's fused operators of float32 become the ONNX operators that they are made of, with what follows as steps of those,
// so that the kernels of those run them: FusedConv without z, FusedGemm, FusedMatMul, which is MatMul, behind Transposes of its
// operands, or, of two matrices, Gemm; Gelu, BiasGelu, FastGelu and QuickGelu, whose bias becomes an Add.
#include <algorithm>
#include <numeric>

#include "graph/edit.h"
#include "graph/passes/match.h"
#include "graph/passes/rewrites.h"
#include "ops/infra/fused_activation.h"

namespace evn {
namespace {

const AttributeValue* given(const Node& node, const char* name) {
  for (const Attribute& a : node.attributes) {
    if (a.name == name) return &a.value;
  }
  return nullptr;
}

float given_float(const Node& node, const char* name, float otherwise) {
  const AttributeValue* value = given(node, name);
  return value != nullptr ? std::get<float>(*value) : otherwise;
}

bool is_set(const Node& node, const char* name) {
  const AttributeValue* value = given(node, name);
  return value != nullptr && std::get<std::int64_t>(*value) != 0;
}

class Plain {
 public:
  explicit Plain(Graph& graph) : edit_(graph), match_(edit_) {}

  bool run(const PassContext& context) {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context, static_cast<std::size_t>(n));
      if (!edit_.removed(n) && edit_.node(n).domain == "com.microsoft" && match_.plain(n)) changed_ |= rewrite(n);
    }
    const bool committed = edit_.commit();
    return committed || changed_;
  }

 private:
  bool rewrite(int n) {
    const Node& node = edit_.node(n);
    if (node.op_type == "Gelu") return become(n, "Gelu", 20, {});
    if (node.op_type == "BiasGelu") return biased(n, "Gelu", 20, {});
    if (node.op_type == "FastGelu") return biased(n, "Gelu", 20, {{"approximate", std::string("tanh")}});
    if (node.op_type == "QuickGelu") return biased(n, "Swish", 24, {{"alpha", given_float(node, "alpha", 1.702f)}});
    if (node.op_type == "FusedConv") return conv(n);
    if (node.op_type == "FusedGemm") return gemm(n);
    if (node.op_type == "FusedMatMul") return matmul(n);
    return false;
  }

  // A new node before node n, and its output.
  ValueId insert(int n, const char* op_type, int since, std::vector<ValueId> inputs, std::vector<Attribute> attributes = {}) {
    const std::string name = edit_.node(n).name + "/" + op_type + std::to_string(edit_.graph().values.size());
    Node node = Matcher::made(op_type, "", since, name, edit_.node(n).region, std::move(attributes));
    node.model_op = edit_.node(n).op_type;
    node.inputs = std::move(inputs);
    const ValueId made = edit_.add_value(name + "/0", DType::kFloat32);
    node.outputs.push_back(made);
    edit_.insert_node(n, std::move(node));
    return made;
  }

  // A function of the first input, or of its sum with the second.
  bool biased(int n, const char* op_type, int since, std::vector<Attribute> attributes) {
    const std::vector<ValueId> inputs = edit_.node(n).inputs;
    const bool has_bias = inputs.size() > 1 && inputs[1] != kNoValue;
    match_.replace(n, op_type, since, std::move(attributes), {has_bias ? insert(n, "Add", 7, inputs) : inputs[0]});
    return true;
  }

  bool conv(int n) {
    const Node& node = edit_.node(n);
    if (node.inputs.size() > 3 && node.inputs[3] != kNoValue) return false;
    Epilogue steps;
    if (const AttributeValue* name = given(node, "activation")) {
      const AttributeValue* numbers = given(node, "activation_params");
      const std::vector<float> parameters = numbers != nullptr ? std::get<std::vector<float>>(*numbers) : std::vector<float>();
      if (!steps.push(fused_step(std::get<std::string>(*name), parameters))) return false;
    }
    return become(n, "Conv", 1, steps);
  }

  bool gemm(int n) {
    const Node& node = edit_.node(n);
    Epilogue steps;
    if (const AttributeValue* name = given(node, "activation")) {
      const float numbers[] = {given_float(node, "activation_alpha", 0), given_float(node, "activation_beta", 0)};
      if (!steps.push(fused_step(std::get<std::string>(*name), numbers))) return false;
    }
    return become(n, "Gemm", 11, steps);
  }

  bool matmul(int n) {
    const Node& node = edit_.node(n);
    const bool batches[] = {is_set(node, "transBatchA"), is_set(node, "transBatchB")};
    const bool transposed[] = {is_set(node, "transA"), is_set(node, "transB")};
    int ranks[2];
    for (int i = 0; i < 2; ++i) ranks[i] = value_rank(edit_.value(node.inputs[static_cast<std::size_t>(i)]));
    const bool moves = transposed[0] || transposed[1] || batches[0] || batches[1];
    if (moves && ranks[0] == 2 && ranks[1] == 2) return become(n, "Gemm", 11, {});
    Epilogue steps;
    const float alpha = given_float(node, "alpha", 1);
    if (alpha != 1 && !steps.push({EpilogueOpKind::kScale, alpha, 0})) return false;
    for (int i = 0; i < 2; ++i) {
      if ((transposed[i] || batches[i]) && ranks[i] < 2) return false;
    }
    for (int i = 0; i < 2; ++i) {
      const ValueId operand = edit_.node(n).inputs[static_cast<std::size_t>(i)];
      std::vector<std::int64_t> axes(static_cast<std::size_t>(ranks[i] < 2 ? 0 : ranks[i]));
      std::iota(axes.begin(), axes.end(), 0);
      if (batches[i]) std::rotate(axes.begin(), axes.begin() + 1, axes.end() - 1);
      if (transposed[i]) std::swap(axes[axes.size() - 2], axes.back());
      if (transposed[i] || batches[i]) edit_.set_input(n, i, insert(n, "Transpose", 1, {operand}, {{"perm", axes}}));
    }
    return become(n, "MatMul", 1, steps);
  }

  // Keeps the attributes that the operator has too.
  bool become(int n, const char* op_type, int since, const Epilogue& steps) {
    const OpDef* op = find_op("", op_type, since);
    if (op == nullptr) return false;
    std::vector<Attribute> kept;
    for (const Attribute& a : edit_.node(n).attributes) {
      const auto same = [&](const AttributeSpec& spec) { return a.name == spec.name; };
      if (std::any_of(op->attributes.begin(), op->attributes.end(), same)) kept.push_back(a);
    }
    if (!match_.set_op(n, op_type, since, std::move(kept))) return false;
    edit_.node(n).domain.clear();
    edit_.node(n).epilogue = steps;
    return true;
  }

  GraphEditor edit_;
  Matcher match_;
  bool changed_ = false;
};

}  // namespace

bool plain_operators(Graph& graph, const PassContext& context) { return Plain(graph).run(context); }

}  // namespace evn
