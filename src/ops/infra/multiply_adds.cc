// See multiply_adds.h.
#include "ops/multiply_adds.h"

#include <map>
#include <string_view>

#include "ops/conv.h"
#include "ops/merge.h"

namespace evn {
namespace {

struct Work {
  const Node& node;
  std::span<const TensorDesc> inputs;
  std::span<const TensorDesc> outputs;

  bool has(std::size_t i) const { return i < inputs.size() && inputs[i].dtype != DType::kUndefined; }
  double size(std::size_t i) const { return has(i) ? elements(inputs[i]) : 0; }
  double out(std::size_t i = 0) const {
    return i < outputs.size() && outputs[i].dtype != DType::kUndefined ? elements(outputs[i]) : 0;
  }
  // The dim of an input, from the end where it is negative; 1 where there is none.
  double dim(std::size_t i, int d) const {
    if (!has(i)) return 1;
    const Shape& s = inputs[i].shape;
    const int at = d < 0 ? s.rank() + d : d;
    return at < 0 || at >= s.rank() ? 1 : static_cast<double>(s[at]);
  }
  std::int64_t attribute(std::string_view name, std::int64_t otherwise) const {
    for (const Attribute& a : node.attributes) {
      if (a.name != name) continue;
      if (const auto* v = std::get_if<std::int64_t>(&a.value)) return *v;
    }
    return otherwise;
  }

  static double elements(const TensorDesc& d) {
    double n = 1;
    for (const std::int64_t dim : d.shape.dims()) n *= static_cast<double>(dim);
    return n;
  }
};

// Each output takes one product per weight of its channel.
template <int kWeights>
double conv(const Work& w) {
  const double channels = w.dim(kWeights, 0);
  return channels > 0 ? w.out() * w.size(kWeights) / channels : 0;
}

// Each input goes into as many products as its channel has weights.
double conv_transpose(const Work& w) {
  const double channels = w.dim(1, 0);
  return channels > 0 ? w.size(0) * w.size(1) / channels : 0;
}

double matmul(const Work& w) { return w.out() * w.dim(0, -1); }

double gemm(const Work& w) { return w.out() * w.dim(0, w.attribute("transA", 0) != 0 ? -2 : -1); }

double fused_matmul(const Work& w) { return w.out() * w.dim(0, w.attribute("transA", 0) != 0 ? -2 : -1); }

// X is [steps, batch, inputs] or [batch, steps, inputs]; W and R are [directions, gates * hidden, inputs or hidden].
double recurrent(const Work& w) { return w.dim(0, 0) * w.dim(0, 1) * (w.size(1) + w.size(2)); }

// Q times K, and the scores times V: each takes one row of keys per query. What a cache brings is part of the keys.
double attention(const Work& w) {
  const double past = w.has(4) ? w.dim(4, -2) : 0;
  return (w.size(0) + w.out()) * (w.dim(1, -2) + past);
}

// The form of com.microsoft with one packed input: X [batch, steps, inputs], weights [inputs, q + k + v].
double packed_attention(const Work& w) { return w.dim(0, 0) * w.dim(0, 1) * w.size(1) + 2 * w.out() * w.dim(0, 1); }

double multi_head_attention(const Work& w) {
  const double keys = w.has(1) ? w.dim(1, w.inputs[1].shape.rank() == 4 ? 2 : 1) : w.dim(0, 1);
  return (w.size(0) + w.out()) * keys;
}

double group_query_attention(const Work& w) {
  const double past = w.has(3) ? w.dim(3, 2) : 0;
  return 2 * w.out() * (w.dim(0, 1) + past);
}

double matmul_nbits(const Work& w) { return w.out() * static_cast<double>(w.attribute("K", 0)); }

// The product of the sizes of all labels, for each operand but one. An ellipsis counts by the largest that stands for it.
double einsum(const Work& w) {
  std::string_view equation;
  for (const Attribute& a : w.node.attributes) {
    if (const auto* text = std::get_if<std::string>(&a.value); text != nullptr && a.name == "equation") equation = *text;
  }
  std::map<char, double> sizes;
  double ellipsis = 1;
  std::size_t at = 0;
  for (std::size_t i = 0; i < w.inputs.size() && at <= equation.size(); ++i) {
    const std::size_t end = std::min(equation.find(',', at), std::min(equation.find("->", at), equation.size()));
    std::string term;
    for (const char c : equation.substr(at, end - at)) {
      if (c != ' ') term += c;
    }
    at = end + 1;
    const int rank = w.inputs[i].shape.rank();
    const std::size_t dots = term.find("...");
    const int labels = static_cast<int>(term.size()) - (dots == std::string::npos ? 0 : 3);
    if (labels > rank) return 0;
    double hidden = 1;
    int d = 0;
    for (std::size_t k = 0; k < term.size(); ++k) {
      if (k == dots) {
        for (int n = rank - labels; n > 0; --n) hidden *= w.dim(i, d++);
        k += 2;
      } else {
        double& size = sizes[term[k]];
        size = std::max(size, w.dim(i, d++));
      }
    }
    ellipsis = std::max(ellipsis, hidden);
  }
  double product = ellipsis;
  for (const auto& [label, size] : sizes) product *= size;
  return product * static_cast<double>(w.inputs.size() > 1 ? w.inputs.size() - 1 : 0);
}

struct Row {
  std::string_view domain;
  std::string_view op;
  double (*count)(const Work& w);
};

constexpr Row kRows[] = {
    {"", "Conv", conv<1>},
    {"", "ConvInteger", conv<1>},
    {kInternalDomain, kConvIntegerToFloat, conv<1>},
    {"", "QLinearConv", conv<3>},
    {"", "DeformConv", conv<1>},
    {"", "ConvTranspose", conv_transpose},
    {"", "MatMul", matmul},
    {"", "MatMulInteger", matmul},
    {"", "QLinearMatMul", matmul},
    {"", "Gemm", gemm},
    {"", "LSTM", recurrent},
    {"", "GRU", recurrent},
    {"", "RNN", recurrent},
    {"", "Attention", attention},
    {"", "Einsum", einsum},
    {"com.microsoft", "FusedConv", conv<1>},
    {"com.microsoft", "NhwcFusedConv", conv<1>},
    {"com.microsoft", "NhwcConv", conv<1>},
    {"com.microsoft", "FusedMatMul", fused_matmul},
    {"com.microsoft", "FusedGemm", gemm},
    {"com.microsoft", "QGemm", gemm},
    {"com.microsoft", "DynamicQuantizeMatMul", matmul},
    {"com.microsoft", "MatMulIntegerToFloat", matmul},
    {"com.microsoft", "MatMulNBits", matmul_nbits},
    {"com.microsoft", "DynamicQuantizeLSTM", recurrent},
    {"com.microsoft", "Attention", packed_attention},
    {"com.microsoft", "QAttention", packed_attention},
    {"com.microsoft", "MultiHeadAttention", multi_head_attention},
    {"com.microsoft", "GroupQueryAttention", group_query_attention},
};

}  // namespace

double multiply_adds(const Node& node, std::span<const TensorDesc> inputs, std::span<const TensorDesc> outputs) {
  for (const Row& row : kRows) {
    if (row.op == node.op_type && row.domain == node.domain) return row.count({node, inputs, outputs});
  }
  return 0;
}

}  // namespace evn
