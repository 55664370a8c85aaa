// Rows through products, and through operators that work with samples: convolutions, pools, attention, recurrent layers.
#include <algorithm>

#include "ops/batch_norm.h"
#include "ops/byte_table.h"
#include "ops/conv.h"
#include "ops/fused_attention.h"
#include "ops/recurrent.h"
#include "runtime/rows/rows.h"

namespace evn {
namespace {

constexpr std::uint32_t bits(std::initializer_list<int> list) {
  std::uint32_t b = 0;
  for (const int i : list) b |= 1u << i;
  return b;
}

// Samples are the first axis of those inputs (bits), where they are there, and of all outputs. The first of them must have rows.
void first_axis(NodeRows& c, std::uint32_t samples) {
  c.require_alike(samples);
  for (std::size_t k = 0; k < c.one.size() && k < 32; ++k) {
    if ((samples >> k & 1u) != 0 && c.has(k)) c.require_rows(k, 0);
  }
  c.set_all_rows(0);
}
void samples(NodeRows& c) { first_axis(c, 1); }

// An operand with one number per sample, or none of its own for any: an axis of 1, or fewer than `rank` axes.
bool is_shared(const NodeRows& c, std::size_t k, int rank) {
  return c.has(k) && c.is_alike(k) && (c.rank(k) < rank || c.shape(k)[0] == 1);
}

void pool(NodeRows& c) {
  if (c.node.outputs.size() > 1 && c.node.outputs[1] != kNoValue) c.refuse("gives positions that count through the whole batch");
  samples(c);
}

void fused_conv(NodeRows& c) { first_axis(c, bits({0, 3})); }

void batch_norm(NodeRows& c) {
  if (batch_norm_trains(c.node)) c.refuse("is in training: it takes mean and variance over all rows of the batch");
  samples(c);
}

void resize(NodeRows& c) {
  if (!c.is_rows(0)) c.refuse("takes rows of the batch for a parameter");
  const int at = c.axis(0);
  const bool crops = c.text_attribute("coordinate_transformation_mode") == "tf_crop_and_resize";
  if (crops || c.gives("axes")) c.refuse("resizes in a way of which it is not known that it keeps rows apart");
  const std::span<const ConstTensor> in = c.many;
  for (std::size_t k = 1; k < in.size(); ++k) {
    const bool scales =
        in[k].present() && in[k].desc.dtype == DType::kFloat32 && in[k].desc.shape.elements() == c.rank(0) && in[k].data != nullptr;
    if (scales && in[k].as<float>()[at] != 1.0f) c.refuse("resizes the batch along its rows");
    if (in[k].present() && in[k].desc.dtype == DType::kFloat32 && !c.is_alike(k)) c.refuse("resizes by the size of the batch");
  }
  if (c.gives("scales")) c.refuse("resizes in a way of which it is not known that it keeps rows apart");
  if (c.one_out[0].shape[at] != c.shape(0)[at]) c.refuse("resizes the batch along its rows");
  c.set_rows(0, at);
}

// A B, operands `a` and `b` of which one or both have rows; batches broadcast. `columns`: the axes of the matrices are swapped.
void multiply(NodeRows& c, std::size_t a, std::size_t b, bool swaps_a) {
  c.require_alike(1u << a | 1u << b);
  const int rank = c.one_out[0].shape.rank();
  const int rank_a = c.rank(a);
  const int rank_b = c.rank(b);
  // Axes of the output's batch that the operands' own become; its matrix has two, one or no axes.
  const int batch_axes = rank - (rank_a > 1 ? 1 : 0) - (rank_b > 1 ? 1 : 0);
  const auto batch_axis = [&](int axis, int own) { return own > 2 ? axis + batch_axes - (own - 2) : -1; };
  const bool a_in_batch = c.is_rows(a) && c.axis(a) < rank_a - 2;
  const bool b_in_batch = c.is_rows(b) && c.axis(b) < rank_b - 2;
  if (c.is_rows(b) && !b_in_batch) c.refuse("multiplies by a matrix whose rows or columns are rows of the batch");
  if (c.is_rows(a) && !a_in_batch) {
    const bool sums = swaps_a ? c.axis(a) == rank_a - 2 : c.axis(a) == rank_a - 1;
    if (sums) c.refuse("sums up over the rows of the batch");
    if (!c.is_alike(b)) c.refuse("multiplies rows of the batch by rows of the batch");
    return c.set_rows(0, batch_axes);
  }
  if (!a_in_batch && !b_in_batch) c.refuse("computes with the size of the batch");
  const int at = a_in_batch ? batch_axis(c.axis(a), rank_a) : batch_axis(c.axis(b), rank_b);
  if (a_in_batch && b_in_batch && batch_axis(c.axis(b), rank_b) != at)
    c.refuse("brings together values that have the batch's rows at different axes");
  for (const std::size_t k : {a, b}) {
    if (c.is_rows(k)) continue;
    if (!c.is_alike(k)) c.refuse("computes with the size of the batch");
    const int own = at - batch_axes + c.rank(k) - 2;
    if (c.rank(k) > 2 && own >= 0 && c.shape(k)[own] != 1)
      c.refuse("has an operand with numbers of its own for each row of a batch");
  }
  c.set_rows(0, at);
}
void matmul(NodeRows& c) { multiply(c, 0, 1, false); }
void qlinear_matmul(NodeRows& c) { multiply(c, 0, 3, false); }
void fused_matmul(NodeRows& c) {
  if (c.int_attribute("transBatchA", 0) != 0 || c.int_attribute("transBatchB", 0) != 0)
    c.refuse("multiplies in a way of which it is not known that it keeps rows apart");
  multiply(c, 0, 1, c.int_attribute("transA", 0) != 0);
}

// With weights that are alike.
void matmul_n_bits(NodeRows& c) {
  c.require_alike(1);
  if (!c.is_rows(0)) c.refuse("takes rows of the batch for a parameter");
  if (c.axis(0) == c.rank(0) - 1) c.refuse("sums up over the rows of the batch");
  c.set_rows(0, c.axis(0));
}

// `addend`: the input that is added, [rows, columns] or what broadcasts to it.
void multiply_matrix(NodeRows& c, std::size_t addend) {
  c.require_alike(1u | 1u << addend);
  if (!c.is_rows(0)) c.refuse("adds rows of the batch to a product without");
  if (c.axis(0) != (c.int_attribute("transA", 0) != 0 ? 1 : 0)) c.refuse("sums up over the rows of the batch");
  if (!c.is_rows(addend) && !c.is_alike(addend)) c.refuse("computes with the size of the batch");
  if (c.has(addend) && !c.is_rows(addend) && c.rank(addend) == 2 && c.shape(addend)[0] != 1)
    c.refuse("adds numbers of its own to each row of a batch");
  if (c.is_rows(addend) && (c.rank(addend) != 2 || c.axis(addend) != 0)) c.refuse("adds rows of the batch to columns");
  c.set_rows(0, 0);
}
void gemm(NodeRows& c) { multiply_matrix(c, 2); }
void quantized_gemm(NodeRows& c) { multiply_matrix(c, 6); }

// The letter of the rows is the same in all that have them, stands in nothing else, and stays.
void einsum(NodeRows& c) {
  const std::string_view equation = c.text_attribute("equation");
  const std::size_t arrow = equation.find("->");
  if (arrow == std::string_view::npos || equation.find('.') != std::string_view::npos)
    c.refuse("has an equation without an arrow, or with dots, in which rows are not followed");
  const auto letters = [](std::string_view part, std::string* out) {
    out->clear();
    for (const char ch : part) {
      if (ch != ' ') out->push_back(ch);
    }
  };
  char rows = 0;
  std::string term;
  for (int pass = 0; pass < 2; ++pass) {
    std::string_view rest = equation.substr(0, arrow);
    for (std::size_t k = 0; k < c.one.size(); ++k) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      letters(rest.substr(0, comma), &term);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      if (!c.is_rows(k) && !c.is_alike(k)) c.refuse("computes with the size of the batch");
      const bool fits = static_cast<int>(term.size()) == c.rank(k);
      if (pass == 0 && c.is_rows(k) && fits) rows = term[static_cast<std::size_t>(c.axis(k))];
      const auto count = std::count(term.begin(), term.end(), rows);
      const bool right = c.is_rows(k) ? fits && count == 1 && term[static_cast<std::size_t>(c.axis(k))] == rows : count == 0;
      if (pass == 1 && !right) c.refuse("brings together rows of the batch and other axes");
    }
  }
  letters(equation.substr(arrow + 2), &term);
  const std::size_t to = term.find(rows);
  if (to == std::string::npos) c.refuse("sums up over the rows of the batch");
  c.set_rows(0, static_cast<int>(to));
}

void recurrent(NodeRows& c) {
  using In = RecurrentInput;
  const bool batch_first = c.int_attribute("layout", 0) != 0;
  c.require_alike(bits({In::kX, In::kLengths, In::kInitialH, In::kInitialC}));
  c.require_rows(In::kX, batch_first ? 0 : 1);
  if (c.has(In::kLengths)) c.require_rows(In::kLengths, 0);
  for (const int k : {In::kInitialH, In::kInitialC}) {
    if (c.has(static_cast<std::size_t>(k))) c.require_rows(static_cast<std::size_t>(k), batch_first ? 0 : 1);
  }
  c.set_rows(0, batch_first ? 0 : 2);
  for (std::size_t k = 1; k < c.out.size(); ++k) c.set_rows(k, batch_first ? 0 : 1);
}

// Scores' addends [batch, heads, queries, keys], or what broadcasts to it.
void require_addend(NodeRows& c, std::size_t k) {
  if (!c.has(k) || is_shared(c, k, 4)) return;
  if (!c.is_rows(k) || c.rank(k) != 4 || c.axis(k) != 0) c.refuse("has a mask that does not go with the rows of the batch");
}

void require_samples(NodeRows& c, std::initializer_list<std::size_t> inputs) {
  for (const std::size_t k : inputs) {
    if (c.has(k)) c.require_rows(k, 0);
  }
}

void attention(NodeRows& c) {
  c.require_alike(bits({0, 1, 2, 3, 4, 5, 6}));
  require_samples(c, {0, 1, 2, 4, 5, 6});
  require_addend(c, 3);
  c.set_all_rows(0);
}

// Masks of the contributed operators: lengths, [batch, keys] or more; not what counts begin and end for the whole batch.
void require_key_mask(NodeRows& c, std::size_t k) {
  if (!c.has(k)) return;
  c.require_rows(k, 0);
  if (c.shape(k)[0] != 1) c.refuse("has a mask that does not go with the rows of the batch");
}

void multi_head_attention(NodeRows& c) {
  c.require_alike(bits({0, 1, 2, 4, 5, 6, 7}));
  require_samples(c, {0, 1, 2, 6, 7});
  require_key_mask(c, 4);
  require_addend(c, 5);
  c.set_all_rows(0);
}

void packed_attention(NodeRows& c, std::size_t mask, std::size_t past, std::size_t addend) {
  c.require_alike(1u | 1u << mask | 1u << past | 1u << addend);
  c.require_rows(0, 0);
  require_key_mask(c, mask);
  if (c.has(past)) c.require_rows(past, 1);
  if (addend != 0) require_addend(c, addend);
  c.set_rows(0, 0);
  c.set_rows(1, 1);
}
void contrib_attention(NodeRows& c) { packed_attention(c, 3, 4, 5); }
void quantized_attention(NodeRows& c) { packed_attention(c, 5, 8, 0); }

void group_query_attention(NodeRows& c) {
  c.require_alike(bits({0, 1, 2, 3, 4, 5, 9, 10}));
  require_samples(c, {0, 1, 2, 3, 4, 5, 9});
  require_addend(c, 10);
  c.set_all_rows(0);
}

// The axis of an operand that is the batch, or the heads, once its axes are in order.
int role_of(const NodeRows& c, std::string_view perm, int axis) {
  const std::span<const std::int64_t> order = c.ints_attribute(perm);
  for (int i = 0; i < 4; ++i) {
    if ((order.empty() ? i : order[static_cast<std::size_t>(i)]) == axis) return i;
  }
  return -1;
}

void fused_attention(NodeRows& c) {
  static constexpr const char* kPerms[] = {"q_perm", "k_perm", "v_perm"};
  static constexpr const char* kViews[] = {"q_view", "k_view", "v_view"};
  c.require_alike(bits({0, 1, 2, 3}));
  int role = -1;
  for (std::size_t k = 0; k < 3; ++k) {
    if (!c.is_rows(k)) continue;
    if (c.gives(kViews[k])) c.refuse("reads parts of a tensor of a batch of one size");
    const int here = role_of(c, kPerms[k], c.axis(k));
    if (here < 0 || here > 1 || (role >= 0 && here != role)) c.refuse("works along the axis of the batch's rows");
    role = here;
  }
  if (role < 0) c.refuse("has rows of the batch in its mask alone");
  for (std::size_t k = 0; k < 3; ++k) {
    if (c.is_rows(k)) continue;
    if (!c.is_alike(k)) c.refuse("computes with the size of the batch");
    if (c.gives(kViews[k])) c.refuse("reads parts of a tensor of a batch of one size");
    for (int axis = 0; axis < 4; ++axis) {
      if (role_of(c, kPerms[k], axis) == role && c.shape(k)[axis] != 1)
        c.refuse("has an operand with numbers of its own for each row of a batch");
    }
  }
  if (c.has(3)) {
    const int own = role - 4 + c.rank(3);
    const bool fits = c.is_rows(3) ? c.axis(3) == own : c.is_alike(3) && (own < 0 || c.shape(3)[own] == 1);
    if (!fits) c.refuse("has a mask that does not go with the rows of the batch");
  }
  const std::span<const std::int64_t> order = c.ints_attribute("y_perm");
  int to = role;
  for (int i = 0; i < 4 && !order.empty(); ++i) to = order[static_cast<std::size_t>(i)] == role ? i : to;
  c.set_rows(0, to);
}

// Positions that are the same for all rows have one row, or count from one number.
void require_positions(NodeRows& c, std::size_t k) {
  if (!c.has(k) || (c.is_alike(k) && (c.rank(k) < 2 || c.shape(k)[0] == 1))) return;
  c.require_rows(k, 0);
}

void rotary(NodeRows& c) {
  c.require_alike(bits({0, 1, 2, 3}));
  c.require_rows(0, 0);
  const bool contrib = !c.node.domain.empty();
  require_positions(c, contrib ? 1 : 3);
  for (const std::size_t k : {contrib ? 2 : 1, contrib ? 3 : 2}) {
    if (!c.is_alike(k)) c.require_rows(k, 0);
    else if (c.rank(k) > 2) c.refuse("has angles of its own for each row of a batch");
  }
  c.set_rows(0, 0);
}

void embed_layer_norm(NodeRows& c) {
  c.require_alike(bits({0, 1, 7, 8}));
  require_samples(c, {0, 1, 7});
  require_positions(c, 8);
  c.set_all_rows(0);
}

void byte_table(NodeRows& c) {
  c.require_alike(1);
  c.require_rows(0, c.axis(0));
  c.set_rows(0, c.axis(0));
}

void biased(NodeRows& c) { broadcast_rows(c, UINT32_MAX); }

// [samples, features]; one axis alone is one sample.
void features(NodeRows& c) {
  if (c.rank(0) < 2) c.refuse("takes one axis for the features of one sample");
  samples(c);
}

constexpr RowRuleOf kRules[] = {
    {"Conv", nullptr, samples},
    {"FusedConv", nullptr, fused_conv},
    {"NhwcConv", nullptr, samples},
    {"ConvInteger", nullptr, samples},
    {kConvIntegerToFloat, nullptr, samples},
    {"QLinearConv", nullptr, samples},
    {"ConvTranspose", nullptr, samples},
    {"MaxPool", nullptr, pool},
    {"AveragePool", nullptr, samples},
    {"LpPool", nullptr, samples},
    {"QLinearAveragePool", nullptr, samples},
    {"GlobalAveragePool", nullptr, samples},
    {"GlobalMaxPool", nullptr, samples},
    {"GlobalLpPool", nullptr, samples},
    {"QLinearGlobalAveragePool", nullptr, samples},
    {"BatchNormalization", nullptr, batch_norm},
    {"InstanceNormalization", nullptr, samples},
    {"GroupNormalization", nullptr, samples},
    {"LRN", nullptr, samples},
    {"DepthToSpace", nullptr, samples},
    {"SpaceToDepth", nullptr, samples},
    {"Resize", nullptr, resize},
    {"Upsample", nullptr, resize},
    {"MatMul", nullptr, matmul},
    {"MatMulInteger", nullptr, matmul},
    {"MatMulIntegerToFloat", nullptr, matmul},
    {"FusedMatMul", nullptr, fused_matmul},
    {"QLinearMatMul", nullptr, qlinear_matmul},
    {"MatMulNBits", nullptr, matmul_n_bits},
    {"Gemm", nullptr, gemm},
    {"FusedGemm", nullptr, gemm},
    {"QGemm", nullptr, quantized_gemm},
    {"Einsum", nullptr, einsum},
    {"LSTM", nullptr, recurrent},
    {"GRU", nullptr, recurrent},
    {"RNN", nullptr, recurrent},
    {kFusedAttention, kInternalDomain, fused_attention},
    {"Attention", "", attention},
    {"Attention", "com.microsoft", contrib_attention},
    {"QAttention", "com.microsoft", quantized_attention},
    {"MultiHeadAttention", "com.microsoft", multi_head_attention},
    {"GroupQueryAttention", "com.microsoft", group_query_attention},
    {"RotaryEmbedding", nullptr, rotary},
    {"EmbedLayerNormalization", nullptr, embed_layer_norm},
    {kByteTable, kInternalDomain, byte_table},
    {"BiasGelu", nullptr, biased},
    {"FastGelu", nullptr, biased},
    {"Gelu", nullptr, biased},
    {"QuickGelu", nullptr, biased},
    {"TreeEnsemble", nullptr, features},
    {"TreeEnsembleClassifier", nullptr, features},
    {"TreeEnsembleRegressor", nullptr, features},
    {"LinearRegressor", nullptr, features},
    {"Scaler", nullptr, features},
};

}  // namespace

std::span<const RowRuleOf> row_rules_of_products() { return kRules; }

}  // namespace evn
