// com.microsoft's fused operators of float32 become the ONNX operators that they are made of, with what follows as steps of those,
// so that the kernels of those run them: FusedConv without z, FusedGemm, Gelu, and FusedMatMul, which is MatMul or, of two matrices
// that are transposed, Gemm.
#include <algorithm>

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
    if (node.op_type == "FusedConv") return conv(n);
    if (node.op_type == "FusedGemm") return gemm(n);
    if (node.op_type == "FusedMatMul") return matmul(n);
    return false;
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
    if (is_set(node, "transBatchA") || is_set(node, "transBatchB")) return false;
    const float alpha = given_float(node, "alpha", 1);
    if (!is_set(node, "transA") && !is_set(node, "transB")) {
      Epilogue steps;
      if (alpha != 1 && !steps.push({EpilogueOpKind::kScale, alpha, 0})) return false;
      return become(n, "MatMul", 1, steps);
    }
    for (int i = 0; i < 2; ++i) {
      if (value_rank(edit_.value(node.inputs[static_cast<std::size_t>(i)])) != 2) return false;
    }
    return become(n, "Gemm", 11, {});
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
