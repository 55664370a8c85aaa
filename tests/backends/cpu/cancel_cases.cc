#include "tests/backends/cpu/cancel_cases.h"

#include <tuple>

namespace evn::test {
namespace {

using conformance::Case;
using conformance::Ints;
using conformance::kF32;
using conformance::kF64;
using conformance::kI32;

constexpr DType kU8 = DType::kUint8, kI8 = DType::kInt8;
constexpr int kOpset = 23;

using Cases = std::vector<CancelCase>;

// A case whose outputs are written at the end only, or change until then: sums, states, normalized lines.
CancelCase at_end(std::string kernel, Case node) { return {std::move(kernel), std::move(node), Precision::kFloat32, false}; }

Case contrib(const char* op) { return Case(std::string("com.microsoft::") + op, 1); }
Case linear_conv(const Shape& x, const Shape& w, Ints pads, std::int64_t group = 1) {
  Case c =
      Case("QLinearConv", 10).in(kU8, x, 0, 255).scalar(kF32, 0.02).scalar(kU8, 100).constant(kI8, w, -90, 90).scalar(kF32, 0.01);
  return c.scalar(kI8, 0).scalar(kF32, 9).scalar(kU8, 90).ints("pads", std::move(pads)).integer("group", group);
}

Case own(const char* op) { return Case(std::string("evener::") + op, 1); }

void add_elementwise(Cases* all) {
  struct Unary {
    const char *kernel, *op;
    int opset = kOpset;
  };
  const Unary ops[] = {{"identity", "Identity"},
                       {"relu", "Relu"},
                       {"clip", "Clip"},
                       {"leaky_relu", "LeakyRelu"},
                       {"hard_sigmoid", "HardSigmoid"},
                       {"hard_swish", "HardSwish"},
                       {"sigmoid", "Sigmoid"},
                       {"tanh", "Tanh"},
                       {"sqrt", "Sqrt"},
                       {"exp", "Exp"},
                       {"erf", "Erf"},
                       {"abs", "Abs"},
                       {"neg", "Neg"},
                       {"reciprocal", "Reciprocal"},
                       {"softplus", "Softplus"},
                       {"floor", "Floor"},
                       {"ceil", "Ceil"},
                       {"log", "Log"},
                       {"sin", "Sin"},
                       {"cos", "Cos"},
                       {"swish", "Swish", 24},
                       {"round", "Round"},
                       {"sign", "Sign"},
                       {"softsign", "Softsign"},
                       {"thresholded_relu", "ThresholdedRelu"},
                       {"elu", "Elu"},
                       {"selu", "Selu"},
                       {"celu", "Celu"},
                       {"mish", "Mish"},
                       {"tan", "Tan"},
                       {"asin", "Asin"},
                       {"acos", "Acos"},
                       {"atan", "Atan"},
                       {"sinh", "Sinh"},
                       {"cosh", "Cosh"},
                       {"asinh", "Asinh"},
                       {"acosh", "Acosh"},
                       {"atanh", "Atanh"},
                       {"is_nan", "IsNaN"},
                       {"is_inf", "IsInf"}};
  for (const Unary& u : ops) all->push_back({u.kernel, Case(u.op, u.opset).x({1, kMany}, 0.1, 2)});
  all->push_back({"gelu", Case("Gelu", kOpset).x({1, kMany})});
  all->push_back({"gelu_tanh", Case("Gelu", kOpset).x({1, kMany}).word("approximate", "tanh")});
  for (const auto& [kernel, op] : {std::pair{"add", "Add"},
                                   {"sub", "Sub"},
                                   {"mul", "Mul"},
                                   {"div", "Div"},
                                   {"min", "Min"},
                                   {"max", "Max"},
                                   {"prelu", "PRelu"},
                                   {"sum", "Sum"}}) {
    all->push_back({kernel, Case(op, kOpset).x({1024, 1024}, 0.5, 2).x({1024, 1024}, 0.5, 2)});
  }
  all->push_back({"pow", Case("Pow", kOpset).x({1, kMany / 8}, 0.5, 2).x({1, kMany / 8}, 0.5, 2)});
  // Short runs, for each of which it must be found out where they lie.
  all->push_back({"mul", Case("Mul", kOpset).x({8, 1, 16, 1, 32, 1, 64, 2}).x({8, 2, 1, 2, 1, 2, 64, 1})});
  all->push_back(
      {"where", Case("Where", kOpset).in(DType::kBool, {8, 1, 16, 1, 32, 1, 64, 2}, 0, 2).x({8, 2, 1, 2, 1, 2, 64, 1}).x({})});
  all->push_back({"not", Case("Not", kOpset).in(DType::kBool, {1, kMany}, 0, 2)});
  for (const auto& [kernel, op] : {std::pair{"and", "And"}, {"or", "Or"}, {"xor", "Xor"}}) {
    all->push_back(
        {kernel,
         Case(op, kOpset).in(DType::kBool, {8, 1, 16, 1, 32, 1, 64, 2}, 0, 2).in(DType::kBool, {8, 2, 1, 2, 1, 2, 64, 1}, 0, 2)});
  }
  for (const auto& [kernel, op] : {std::pair{"equal", "Equal"},
                                   {"less", "Less"},
                                   {"greater", "Greater"},
                                   {"less_or_equal", "LessOrEqual"},
                                   {"greater_or_equal", "GreaterOrEqual"}}) {
    all->push_back({kernel, Case(op, kOpset).x({8, 1, 16, 1, 32, 1, 64, 2}).x({8, 2, 1, 2, 1, 2, 64, 1})});
  }
  all->push_back({"cast_to_half", Case("Cast", kOpset).x({1, kMany}).integer("to", EVN_DTYPE_FLOAT16)});
  all->push_back({"cast", Case("Cast", kOpset).x({1, kMany}).integer("to", EVN_DTYPE_INT64)});
  all->push_back({"cast_from_half", Case("Cast", kOpset).in(DType::kFloat16, {1, kMany}).integer("to", EVN_DTYPE_FLOAT32)});
}

void add_moves(Cases* all) {
  all->push_back({"gather", Case("Gather", kOpset).in(kU8, {3, 8 * kMany}, 0, 255).list({2})});
  all->push_back(
      {"gather", Case("Gather", kOpset).x({1, kMany / 4}).in(DType::kInt64, {kMany}, 0, kMany / 4 - 1).integer("axis", 1)});
  all->push_back({"pad", Case("Pad", kOpset).x({1, 4 * kMany}).list({0, 99, 0, 99})});
  all->push_back({"pad", Case("Pad", kOpset).x({1, kMany}).list({0, kMany - 1, 0, kMany - 1}).word("mode", "reflect")});
  all->push_back({"transpose", Case("Transpose", kOpset).x({2048, 1024})});
  all->push_back({"transpose", Case("Transpose", kOpset).in(kU8, {64, 2, 32, 2, 64, 2}, 0, 255).ints("perm", {4, 3, 2, 1, 0, 5})});
  all->push_back({"expand", Case("Expand", kOpset).x({1, 2048}).list({2048, 2048})});
  all->push_back({"tile", Case("Tile", kOpset).x({1, 2048}).list({2048, 1})});
  all->push_back({"depth_to_space", Case("DepthToSpace", kOpset).x({1, 64, 256, 256}).integer("blocksize", 2)});
  all->push_back({"space_to_depth", Case("SpaceToDepth", kOpset).x({1, 16, 512, 512}).integer("blocksize", 2)});
  all->push_back({"slice", Case("Slice", kOpset).x({1, 8 * kMany}).list({0}).list({8 * kMany}).list({1}).list({2})});
  all->push_back({"concat", Case("Concat", kOpset).x({1, 2 * kMany}).x({1, 2 * kMany}).integer("axis", 1)});
  all->push_back({"split", Case("Split", 13).x({1, 4 * kMany}).integer("axis", 1).outputs(2)});
  // Where each column lies is found first.
  all->push_back(
      at_end("resize", Case("Resize", kOpset).x({1, 1, 1, kMany / 2}).absent().floats({1, 1, 1, 2}).word("mode", "nearest")));
  all->push_back({"resize", Case("Resize", kOpset).x({1, 1, 8, kMany / 8}).absent().floats({1, 1, 4, 2}).word("mode", "linear")});
  all->push_back(
      at_end("resize",
             Case("Resize", kOpset).in(kU8, {1, 2, 1, kMany / 2}, 0, 255).absent().floats({1, 1, 1, 2}).word("mode", "nearest")));
  all->push_back(at_end("upsample", Case("Upsample", 9).x({1, 1, 1, kMany / 2}).floats({1, 1, 1, 2})));
  // One long line, lines that are added up, and a few long sums.
  const auto axes = [](const Shape& x, const conformance::Floats& scales, const char* mode) {
    return Case("Resize", kOpset).x(x).absent().floats(scales).word("mode", mode);
  };
  all->push_back(at_end("resize_axes", axes({1, kMany}, {1, 4}, "cubic")));
  all->push_back(at_end("resize_axes", axes({2, kMany * 2}, {2, 1}, "linear").integer("antialias", 1)));
  all->push_back(at_end("resize_axes", axes({1, kMany * 2}, {1, 1e-5f}, "cubic").integer("antialias", 1)));
  all->push_back(at_end("upsample_axes", Case("Upsample", 9).x({8, kMany / 8, 2}).floats({2, 1, 2}).word("mode", "linear")));
}

void add_rows(Cases* all) {
  for (const auto& [kernel, op] : {std::pair{"reduce_sum", "ReduceSum"},
                                   {"reduce_mean", "ReduceMean"},
                                   {"reduce_max", "ReduceMax"},
                                   {"reduce_min", "ReduceMin"},
                                   {"reduce_l1", "ReduceL1"},
                                   {"reduce_l2", "ReduceL2"},
                                   {"reduce_sum_square", "ReduceSumSquare"},
                                   {"reduce_log_sum", "ReduceLogSum"}}) {
    all->push_back(at_end(kernel, Case(op, 18).x({4 * kMany}).list({0})));
    all->push_back(at_end(kernel, Case(op, 18).x({kMany / 16, 40}).list({0})));
  }
  // Not of maxima: the maximum of a part is often that of the whole, and the test would take it for finished.
  for (const auto& [kernel, op] : {std::pair{"reduce_mean", "ReduceMean"}, {"reduce_l2", "ReduceL2"}}) {
    all->push_back(at_end(kernel, Case(op, 18).x({kMany / 8, 2, 8}).list({0, 2})));
    all->push_back(at_end(kernel, Case(op, 18).x({kMany / 16, 2, 4, 3}).list({0, 2})));
  }
  all->push_back(at_end("softmax", Case("Softmax", 13).x({1, kMany})));
  all->push_back(at_end("softmax", Case("Softmax", 13).x({kMany / 16, 17}).integer("axis", 0)));
  all->push_back(at_end("log_softmax", Case("LogSoftmax", 13).x({1, kMany})));
  all->push_back({"batch_norm", Case("BatchNormalization", 15).x({1, 1, 1, 4 * kMany}).x({1}).x({1}).x({1}).x({1}, 0.5, 2)});
  all->push_back(
      at_end("batch_norm", Case("BatchNormalization", 15).x({1, kMany, 2, 1}).x({kMany}).x({kMany}).x({kMany}).x({kMany}, 0.5, 2)));
  all->push_back(at_end("instance_norm", Case("InstanceNormalization", kOpset).x({1, 2, kMany}).w({2}).w({2})));
  all->push_back(at_end("group_norm", Case("GroupNormalization", kOpset).x({1, 4, kMany}).w({4}).w({4}).integer("num_groups", 2)));
  all->push_back(at_end("layer_norm", Case("LayerNormalization", 17).x({1, 2 * kMany}).w({2 * kMany}).w({2 * kMany})));
  all->push_back(at_end("rms_norm", Case("RMSNormalization", 23).x({1, 2 * kMany}).w({2 * kMany})));
  all->push_back(at_end("rms_norm_simplified", Case("SimplifiedLayerNormalization", 17).x({1, 2 * kMany}).w({2 * kMany})));
  all->push_back(
      at_end("skip_layer_norm", contrib("SkipLayerNormalization").x({1, 1, kMany}).x({1, 1, kMany}).x({kMany}).x({kMany})));
  all->push_back(at_end("skip_rms_norm", contrib("SkipSimplifiedLayerNormalization").x({1, 1, kMany}).x({1, 1, kMany}).x({kMany})));
  all->push_back({"lrn", Case("LRN", 13).x({1, 512, 8, 8}).integer("size", 511)});
}

void add_attention(Cases* all) {
  const Shape few{1, 1, 4, 32}, long_keys{1, 1, 16384, 32};
  all->push_back(at_end("fused_attention", own("Attention").x(few).x(long_keys).x(long_keys)));
  all->push_back(at_end("fused_attention", own("Attention").x({1, 1, 1, 32}).x(long_keys).x(long_keys).x({1, 16384})));
  const Shape queries = {1, 1, 1024, 32}, keys = {1, 1, 1024, 32};  // the gradient of queries comes row by row
  Case gradient = own("AttentionGradient").x(queries).x(keys).x(keys).absent().absent().absent().absent();
  all->push_back({"attention_gradient", gradient.x(queries).outputs(3), Precision::kFloat32, false});
  Case past = Case("Attention", 23).x({1, 1, 4, 33}).x({1, 1, 4, 33}).x({1, 1, 4, 33}).absent();
  all->push_back(at_end("attention", past.x({1, 1, 16384, 33}).x({1, 1, 16384, 33}).outputs(3)));
  Case group = contrib("GroupQueryAttention").x({1, 4, 33}).x({1, 4, 33}).x({1, 4, 33}).x({1, 1, 16384, 33}).x({1, 1, 16384, 33});
  group.list({16387}, kI32).list({16388}, kI32).integer("num_heads", 1).integer("kv_num_heads", 1);
  all->push_back(at_end("group_query_attention", group.outputs(3)));
  all->push_back({"fused_attention_bf16", own("Attention").x({1, 1, 64, 64}).x({1, 1, 32768, 64}).x({1, 1, 32768, 64}),
                  Precision::kBfloat16, false});
}

void add_recurrent_gradients(Cases* all) {
  struct Net {
    const char *kernel, *op;
    std::int64_t gates, hidden;
  };
  for (const Net& n : {Net{"lstm_gradient", "LSTMGradient", 4, 128}, Net{"gru_gradient", "GRUGradient", 3, 160},
                       Net{"rnn_gradient", "RNNGradient", 1, 256}}) {
    const std::int64_t steps = 60, batch = 2, width = n.gates * n.hidden;
    Case c = own(n.op).x({steps, 1, batch, n.hidden}).x({steps * batch, width}).x({1, width, n.hidden}, -0.05, 0.05).absent();
    c.x({steps, 1, batch, n.hidden}).x({1, batch, n.hidden});
    if (n.gates == 4) c.x({1, batch, n.hidden}).x({1, batch, n.hidden});
    if (n.gates == 3) c.x({steps * batch, n.hidden}).x({steps * batch, 2 * n.hidden});
    all->push_back({n.kernel, c.outputs(n.gates == 1 ? 2 : 3)});
  }
}

void add_recurrent(Cases* all) {
  struct Net {
    const char *kernel, *op;
    std::int64_t gates, hidden;
  };
  for (const Net& n : {Net{"lstm_gemm", "LSTM", 4, 128}, Net{"gru_gemm", "GRU", 3, 160}, Net{"rnn_gemm", "RNN", 1, 256},
                       Net{"lstm_bf16", "LSTM", 4, 128}, Net{"gru_bf16", "GRU", 3, 160}, Net{"rnn_bf16", "RNN", 1, 256}}) {
    for (const std::int64_t batch : {1, 3}) {
      Case c = Case(n.op, 14)
                   .x({120 / batch, batch, 64})
                   .w({1, n.gates * n.hidden, 64}, -0.05, 0.05)
                   .w({1, n.gates * n.hidden, n.hidden}, -0.05, 0.05);
      const bool is_bfloat = std::string_view(n.kernel).ends_with("_bf16");
      all->push_back({n.kernel, c.integer("hidden_size", n.hidden), is_bfloat ? Precision::kBfloat16 : Precision::kFloat32});
    }
  }
  for (const Net& n : {Net{"lstm_dynamic", "LSTM", 4, 128}, Net{"gru_dynamic", "GRU", 3, 160}, Net{"rnn_dynamic", "RNN", 1, 256}}) {
    Case c =
        Case(n.op, 14).x({60, 2, 64}).x({1, n.gates * n.hidden, 64}, -0.05, 0.05).x({1, n.gates * n.hidden, n.hidden}, -0.05, 0.05);
    all->push_back({n.kernel, c.integer("hidden_size", n.hidden)});
  }
  add_recurrent_gradients(all);
  // All sequences have ended before they began.
  Case ended = Case("LSTM", 14).x({32768, 1, 1}).w({1, 512, 1}).w({1, 512, 128}).absent().list({0}, kI32);
  all->push_back({"lstm_gemm", ended.integer("hidden_size", 128), Precision::kFloat32, true, false});
  Case quantized =
      contrib("DynamicQuantizeLSTM").x({200, 1, 128}).constant(kI8, {1, 128, 1024}, -90, 90).constant(kI8, {1, 256, 1024}, -90, 90);
  quantized.w({1, 2048}).absent().absent().absent().absent();
  for (int i = 0; i < 2; ++i) quantized.w({1}, 0.0002, 0.0004).constant(kI8, {1}, -3, 3);
  all->push_back({"dynamic_quantize_lstm_packed", quantized.integer("hidden_size", 256)});
}

void add_products(Cases* all) {
  const std::int64_t k = 1 << 15;
  all->push_back(at_end("matmul_gemm", Case("MatMul", 13).x({32, k}).x({k, 8})));
  all->push_back({"matmul_gemm", Case("MatMul", 13).x({k, 32}).x({32, 8})});
  all->push_back(at_end("matmul_packed", Case("MatMul", 13).x({32, k}).w({k, 8})));
  all->push_back({"matmul_packed", Case("MatMul", 13).x({1, 512}).w({512, 1 << 15})});
  all->push_back(at_end("gemm_gemm", Case("Gemm", 13).x({k, 32}).w({k, 8}).x({32, 8}).integer("transA", 1)));
  all->push_back({"gemm_gemm", Case("Gemm", 13).x({16, k}).x({16, 16}).x({k, 1}).integer("transA", 1)});
  all->push_back(at_end("gemm_packed", Case("Gemm", 13).x({32, k}).w({8, k}).integer("transB", 1)));
  all->push_back(at_end("matmul_openblas", Case("MatMul", 13).in(kF64, {64, k / 4}).in(kF64, {k / 4, 16})));
  all->push_back(
      at_end("gemm_openblas", Case("Gemm", 13).in(kF64, {61, k / 4}).in(kF64, {40, k / 4}).in(kF64, {61, 1}).integer("transB", 1)));
  CancelCase single = at_end("matmul_openblas", Case("MatMul", 13).x({64, k / 2}).x({k / 2, 16}));
  single.products = Products::kOpenBlas;
  all->push_back(single);
  single.kernel = "gemm_openblas";
  single.node = Case("Gemm", 13).x({61, k / 2}).x({40, k / 2}).x({61, 1}).integer("transB", 1);
  all->push_back(single);
  for (const std::int64_t rows : {1, 3, 8}) {
    const std::int64_t nk = rows == 1 ? k : 4096, n = rows == 1 ? 256 : 1024;
    Case c = contrib("MatMulNBits").x({rows, nk}).constant(kU8, {n, nk / 32, 16}, 0, 255).w({n, nk / 32}, 0.01, 0.02);
    c = c.integer("K", nk).integer("N", n).integer("bits", 4).integer("block_size", 32);
    all->push_back({"matmul_nbits", c});
    all->push_back({"matmul_nbits_dot", c.integer("accuracy_level", 4)});
  }
  for (const Precision p : {Precision::kBfloat16, Precision::kFloat16}) {
    const std::string end = p == Precision::kBfloat16 ? "_bf16" : "_fp16";
    all->push_back({"matmul" + end, Case("MatMul", 13).x({64, k / 4}).w({k / 4, 64}), p, false});
    all->push_back({"gemm" + end, Case("Gemm", 13).x({64, k / 4}).w({64, k / 4}).integer("transB", 1), p, false});
    all->push_back({"conv" + end, Case("Conv", 11).x({1, 64, 32, 64}).w({64, 64, 3, 5}).ints("pads", {1, 2, 1, 2}), p, false});
  }
}

void add_byte_products(Cases* all) {
  const std::int64_t k = 1 << 15;
  const Shape a{4, k}, b{k, 192};
  Case linear = Case("QLinearMatMul", 10)
                    .in(kU8, a, 0, 255)
                    .scalar(kF32, 0.02)
                    .scalar(kU8, 100)
                    .constant(kI8, b, -90, 90)
                    .scalar(kF32, 0.001);
  all->push_back(at_end("qlinear_matmul_packed", linear.scalar(kI8, 3).scalar(kF32, 9).scalar(kU8, 90)));
  all->push_back(at_end("matmul_integer_packed",
                        Case("MatMulInteger", 10).in(kU8, a, 0, 255).constant(kI8, b, -90, 90).scalar(kU8, 3).scalar(kI8, 2)));
  // A tile packs what it needs of a computed B.
  all->push_back(
      at_end("matmul_integer_packed", Case("MatMulInteger", 10).in(kU8, {2, 512}, 0, 255).in(kI8, {512, 1 << 14}, -90, 90)));
  Case gemm =
      contrib("QGemm").in(kU8, a, 0, 255).scalar(kF32, 0.02).scalar(kU8, 3).constant(kI8, {192, k}, -90, 90).scalar(kF32, 0.004);
  all->push_back(at_end("qgemm_packed", gemm.scalar(kI8, 5).absent().scalar(kF32, 90).scalar(kU8, 9).integer("transB", 1)));
  all->push_back(
      at_end("matmul_integer_to_float_packed",
             contrib("MatMulIntegerToFloat").in(kI8, a, -90, 90).constant(kI8, b, -90, 90).scalar(kF32, 0.02).scalar(kF32, 0.01)));
  all->push_back(
      at_end("dynamic_quantize_matmul_packed", contrib("DynamicQuantizeMatMul").x(a).constant(kI8, b, -90, 90).scalar(kF32, 0.01)));
}

// Its inputs are x, w and dy, or w, x and dy.
Case conv_gradient(bool of_weight, const Shape& x, const Shape& w, const Shape& dy, Ints pads, std::int64_t group = 1) {
  return Case(of_weight ? "evener::ConvWeightGradient" : "evener::ConvInputGradient", 1)
      .x(of_weight ? w : x)
      .x(of_weight ? x : w)
      .x(dy)
      .ints("pads", std::move(pads))
      .integer("group", group);
}

void add_conv_gradients(Cases* all) {
  for (const bool of_weight : {false, true}) {
    const std::string name = of_weight ? "conv_weight_gradient" : "conv_input_gradient";
    const bool gradual = !of_weight;  // sums over all images end together
    const auto add = [&](const Case& node) { all->push_back({name, node, Precision::kFloat32, gradual}); };
    add(conv_gradient(of_weight, {2, 32, 32, 64}, {32, 32, 3, 3}, {2, 32, 32, 64}, {1, 1, 1, 1}));
    add(conv_gradient(of_weight, {1, 1, 1, kMany / 2}, {32, 1, 1, 3}, {1, 32, 1, kMany / 2}, {0, 1, 0, 1}));
    add(conv_gradient(of_weight, {1, 1, 1, 32768 + 4095}, {32, 1, 1, 4096}, {1, 32, 1, 32768}, {0, 0, 0, 0}));
    const auto add_depthwise = [&](const Case& node) { all->push_back({name + "_depthwise", node, Precision::kFloat32, gradual}); };
    add_depthwise(conv_gradient(of_weight, {2, 1, 4, kMany / 2}, {1, 1, 3, 3}, {2, 1, 4, kMany / 2}, {1, 1, 1, 1}));
    add_depthwise(conv_gradient(of_weight, {1, 1, 2, 16384 + 4095}, {1, 1, 1, 4096}, {1, 1, 2, 16384}, {0, 0, 0, 0}));
  }
}

// Products of training whose operands are rounded.
void add_rounded_products(Cases* all) {
  const std::int64_t k = 1 << 15;
  for (const Precision p : {Precision::kBfloat16, Precision::kFloat16Operands}) {
    const auto add = [&](const std::string& kernel, const Case& node) {
      all->push_back({kernel + (p == Precision::kBfloat16 ? "_bf16" : "_half"), node, p, false});
    };
    add("matmul_dynamic", Case("MatMul", 13).x({64, k}).x({k, 64}));
    add("matmul_dynamic", Case("MatMul", 13).x({k, 64}).x({64, 32}));
    add("gemm_dynamic", Case("Gemm", 13).x({k, 64}).x({k, 32}).integer("transA", 1));
    add("gemm_dynamic", Case("Gemm", 13).x({64, 32}).x({k, 32}).integer("transB", 1));
    add("conv_dynamic_weight", Case("Conv", 11).x({2, 32, 32, 64}).x({32, 32, 3, 3}).ints("pads", {1, 1, 1, 1}));
    add("conv_dynamic_weight", Case("Conv", 11).x({1, 1, 1, 32768 + 4095}).x({32, 1, 1, 4096}));
    add("conv_transpose_dynamic_weight", Case("ConvTranspose", 11).x({2, 64, 32, 32}).x({64, 32, 3, 3}).ints("strides", {2, 2}));
    for (const bool of_weight : {false, true}) {
      add(of_weight ? "conv_weight_gradient" : "conv_input_gradient",
          conv_gradient(of_weight, {2, 32, 32, 64}, {32, 32, 3, 3}, {2, 32, 32, 64}, {1, 1, 1, 1}));
    }
  }
}

void add_pointwise_gradients(Cases* all) {
  all->push_back({"conv_weight_gradient_winograd",
                  conv_gradient(true, {2, 64, 32, 64}, {64, 64, 3, 3}, {2, 64, 32, 64}, {1, 1, 1, 1}), Precision::kFloat32, false});
  all->push_back(
      {"conv_input_gradient_winograd", conv_gradient(false, {2, 64, 32, 64}, {64, 64, 3, 3}, {2, 64, 32, 64}, {1, 1, 1, 1})});
  all->push_back(
      {"conv_input_gradient_pointwise", conv_gradient(false, {2, 32, 64, 128}, {64, 32, 1, 1}, {2, 64, 64, 128}, {0, 0, 0, 0})});
  all->push_back(at_end("conv_input_gradient_pointwise",
                        conv_gradient(false, {1, 32, 4, 8}, {32768, 32, 1, 1}, {1, 32768, 4, 8}, {0, 0, 0, 0})));
}

void add_convolutions(Cases* all) {
  const auto conv = [](const Shape& x, const Shape& w, Ints pads, std::int64_t group = 1) {
    return Case("Conv", 11).x(x).w(w).ints("pads", std::move(pads)).integer("group", group);
  };
  all->push_back({"conv_gemm", conv({1, 32, 32, 64}, {32, 32, 3, 3}, {1, 1, 1, 1})});
  all->push_back(at_end("conv_gemm", conv({1, 1, 1, 32768 + 15}, {32, 1, 1, 32768}, {0, 0, 0, 0})));
  const auto computed = [](const Shape& x, const Shape& w, Ints pads) {
    return Case("Conv", 11).x(x).x(w).ints("pads", std::move(pads));
  };
  all->push_back({"conv_dynamic_weight", computed({2, 32, 32, 64}, {32, 32, 3, 3}, {1, 1, 1, 1})});
  all->push_back({"conv_dynamic_weight", computed({1, 1, 1, 32768 + 4095}, {32, 1, 1, 4096}, {0, 0, 0, 0})});
  all->push_back({"conv_dynamic_weight", computed({1, 4, 1, 32768 + 4095}, {2, 4, 1, 4096}, {0, 0, 0, 0})});
  all->push_back({"conv_dynamic_weight_winograd", computed({2, 64, 32, 64}, {64, 64, 3, 3}, {1, 1, 1, 1})});
  all->push_back({"conv_nhwc", conv({1, 32, 32, 64}, {32, 32, 3, 3}, {1, 1, 1, 1})});
  all->push_back({"conv_grouped", conv({1, 64, 32, 64}, {64, 16, 3, 3}, {1, 1, 1, 1}, 4)});
  all->push_back({"conv_grouped", conv({1, 64, 8, 1 << 12}, {64, 32, 3, 3}, {1, 1, 1, 1}, 2)});
  all->push_back({"conv_small_groups", conv({1, 64, 32, 64}, {64, 16, 3, 3}, {1, 1, 1, 1}, 4)});
  all->push_back({"conv_small_groups", conv({1, 16, 4, 1 << 15}, {16, 4, 3, 3}, {1, 1, 1, 1}, 4)});
  all->push_back({"conv_winograd", conv({1, 32, 48, 64}, {32, 32, 3, 3}, {1, 1, 1, 1})});
  all->push_back({"conv_winograd_small", conv({1, 1024, 8, 16}, {64, 1024, 3, 3}, {1, 1, 1, 1})});
  all->push_back({"conv_depthwise", conv({1, 1, 4, kMany / 2}, {1, 1, 3, 3}, {1, 1, 1, 1})});
  all->push_back({"conv_depthwise", conv({1, 1, 2, 16384}, {1, 1, 1, 4096}, {0, 0, 0, 0})});
  all->push_back({"conv_depthwise_nhwc", conv({1, 16, 4, 1 << 15}, {16, 1, 3, 3}, {1, 1, 1, 1}, 16)});
  all->push_back({"conv_depthwise_nhwc", conv({1, 1 << 14, 3, 8}, {1 << 14, 1, 7, 7}, {3, 3, 3, 3}, 1 << 14)});
  all->push_back({"conv_few_channels", conv({1, 3, 8, 1 << 13}, {16, 3, 3, 3}, {1, 1, 1, 1})});

  const auto up = [](const Shape& x, const Shape& w, std::int64_t stride, std::int64_t group = 1) {
    return Case("ConvTranspose", 11).x(x).w(w).ints("strides", {stride, stride}).integer("group", group);
  };
  all->push_back(at_end("conv_transpose_gemm", up({1, 2048, 8, 8}, {2048, 8, 3, 3}, 2)));
  all->push_back(at_end("conv_transpose_dynamic_weight",
                        Case("ConvTranspose", 11).x({2, 64, 32, 32}).x({64, 32, 3, 3}).ints("strides", {2, 2})));
  all->push_back({"conv_transpose_blocks", up({1, 64, 64, 64}, {64, 32, 2, 2}, 2, 2)});
  all->push_back({"conv_transpose_nhwc", up({1, 64, 2, 4096}, {64, 16, 2, 2}, 2)});
  all->push_back(at_end("conv_transpose_nhwc", up({1, 64, 1, 1 << 16}, {64, 1, 2, 2}, 2)));

  const auto integer = [](const Shape& x, const Shape& w, Ints pads, std::int64_t group = 1) {
    return Case("ConvInteger", 10)
        .in(kU8, x, 0, 255)
        .constant(kI8, w, -90, 90)
        .scalar(kU8, 3)
        .ints("pads", std::move(pads))
        .integer("group", group);
  };
  const auto to_float = [](const Shape& x, const Shape& w, Ints pads, std::int64_t group = 1) {
    Case c =
        own("ConvIntegerToFloat").in(kU8, x, 0, 255).constant(kI8, w, -90, 90).scalar(kF32, 0.02).scalar(kF32, 0.01).scalar(kU8, 3);
    return c.ints("pads", std::move(pads)).integer("group", group);
  };
  const Shape x{1, 64, 32, 64}, w{64, 64, 3, 3}, wide{1, 64, 32, 512}, taps{64, 1, 3, 3};
  const Ints one = {1, 1, 1, 1};
  all->push_back({"qlinear_conv_nhwc", linear_conv(x, w, one)});
  all->push_back({"qlinear_conv_nhwc", linear_conv({1, 1 << 14, 1, 64}, {32, 1 << 14, 1, 1}, {0, 0, 0, 0})});
  all->push_back({"qlinear_conv_winograd", linear_conv(x, w, one)});
  all->push_back({"conv_integer_nhwc", integer(x, w, one)});
  all->push_back({"conv_integer_to_float_nhwc", to_float(x, w, one)});
  all->push_back({"qlinear_conv_depthwise", linear_conv(wide, taps, one, 64)});
  all->push_back({"qlinear_conv_depthwise_planes", linear_conv(wide, taps, one, 64)});
  all->push_back({"conv_integer_depthwise", integer(wide, taps, one, 64)});
  all->push_back({"conv_integer_to_float_depthwise", to_float(wide, taps, one, 64)});
}

void add_pools(Cases* all) {
  for (const auto& [kernel, op] : {std::pair{"max_pool", "MaxPool"}, {"average_pool", "AveragePool"}}) {
    all->push_back({kernel, Case(op, 12).x({1, 1, 4, kMany / 2}).ints("kernel_shape", {3, 3}).ints("pads", {1, 1, 1, 1})});
    all->push_back({kernel, Case(op, 12).x({1, 4096, 3, 48}).ints("kernel_shape", {3, 33})});
    all->push_back(
        {kernel, Case(op, kOpset).x({1, 4, 16, 256, 256}).ints("kernel_shape", {3, 3, 3}).ints("pads", {1, 1, 1, 1, 1, 1})});
    all->push_back(at_end(kernel, Case(op, 12).x({1, 1, 64, kMany / 16}).ints("kernel_shape", {64, 5}).ints("strides", {1, 3})));
  }
  all->push_back(at_end("global_average_pool", Case("GlobalAveragePool", 1).x({1, 2, 1, kMany})));
  all->push_back(at_end("global_max_pool", Case("GlobalMaxPool", 1).x({1, 2, 1, kMany})));
  const auto bytes = [](Case c, const Shape& x) { return c.in(kU8, x, 0, 255); };
  all->push_back(
      {"max_pool_bytes", bytes(Case("MaxPool", 12), {1, 64, 4, 1 << 14}).ints("kernel_shape", {3, 3}).ints("pads", {1, 1, 1, 1})});
  Case average = bytes(contrib("QLinearAveragePool"), {1, 64, 128, 128}).scalar(kF32, 0.02).scalar(kU8, 3).scalar(kF32, 0.013);
  all->push_back({"qlinear_average_pool", average.scalar(kU8, 3).ints("kernel_shape", {128, 97})});
  Case mean = bytes(contrib("QLinearGlobalAveragePool"), {1, 3, 1, 2 * kMany}).scalar(kF32, 0.05).scalar(kU8, 7).scalar(kF32, 0.06);
  all->push_back(at_end("qlinear_global_average_pool", mean.scalar(kU8, 11)));
}

void add_quantized(Cases* all) {
  all->push_back({"quantize", Case("QuantizeLinear", 13).x({1, 4 * kMany}).scalar(kF32, 0.02).scalar(kU8, 7)});
  all->push_back({"quantize", Case("QuantizeLinear", 13)
                                  .x({1, 2 * kMany})
                                  .w({2 * kMany}, 0.01, 0.02)
                                  .constant(kU8, {2 * kMany}, 0, 9)
                                  .integer("axis", 1)});
  all->push_back(
      {"quantize", Case("QuantizeLinear", 13).x({2, 2 * kMany}).w({2}, 0.01, 0.02).constant(kU8, {2}, 0, 9).integer("axis", 0)});
  all->push_back({"dequantize", Case("DequantizeLinear", 13)
                                    .in(kU8, {2, 2 * kMany}, 0, 255)
                                    .w({2}, 0.01, 0.02)
                                    .constant(kU8, {2}, 0, 9)
                                    .integer("axis", 0)});
  all->push_back({"dynamic_quantize", Case("DynamicQuantizeLinear", 11).x({1, 4 * kMany}).outputs(3)});
  Case add = contrib("QLinearAdd").in(kU8, {1, 4 * kMany}, 0, 255).scalar(kF32, 0.021).scalar(kU8, 3);
  all->push_back(
      {"qlinear_add", add.in(kU8, {1, 4 * kMany}, 0, 255).scalar(kF32, 0.013).scalar(kU8, 5).scalar(kF32, 0.017).scalar(kU8, 0)});
  Case mul = contrib("QLinearMul").in(kU8, {kMany, 2}, 0, 255).scalar(kF32, 0.021).scalar(kU8, 3);
  all->push_back(
      {"qlinear_mul", mul.in(kU8, {kMany, 1}, 0, 255).scalar(kF32, 0.013).scalar(kU8, 5).scalar(kF32, 0.017).scalar(kU8, 0)});
  all->push_back({"byte_table", own("ByteTable").in(kU8, {1, 8 * kMany}, 0, 255).constant(kU8, {256}, 0, 255)});
}

void add_training(Cases* all) {
  const Shape line = {1, kMany};
  const std::vector<float> rates = {0.1f, 0.01f, 1, 0, 3, 0, 0, 0};
  Case step = own("OptimizerStep").floats(rates).scalar(DType::kBool, 1).x(line).x(line).x(line).x(line, 0, 2);
  all->push_back({"optimizer_step", step.word("kind", "adam").outputs(3)});
  all->push_back(at_end("gradient_norm", own("GradientNorm").x({}).x({4 * kMany}).outputs(2)));
  for (const auto& [kernel, op] : {std::pair{"relu_gradient", "ReluGradient"},
                                   {"sigmoid_gradient", "SigmoidGradient"},
                                   {"tanh_gradient", "TanhGradient"},
                                   {"hard_swish_gradient", "HardSwishGradient"},
                                   {"erf_gradient", "ErfGradient"},
                                   {"gelu_gradient", "GeluGradient"}}) {
    all->push_back({kernel, own(op).x(line).x(line)});
  }
  all->push_back(at_end("max_pool_gradient", own("MaxPoolGradient").x({1, 1, kMany}).x({1, 1, kMany}).ints("kernel_shape", {1})));
  all->push_back(
      at_end("average_pool_gradient", own("AveragePoolGradient").x({1, 1, kMany}).x({1, 1, kMany - 2}).ints("kernel_shape", {3})));
  all->push_back(
      {"max_pool_gradient",
       own("MaxPoolGradient").x({1, 1, 2, kMany}).x({1, 1, 1, kMany / 2}).ints("kernel_shape", {2, 2}).ints("strides", {2, 2})});
  all->push_back(at_end("sum_to", own("SumTo").x({1}).x({1, 4 * kMany})));
  all->push_back(at_end("sum_to", own("SumTo").x({1, 4 * kMany}).x({1, 4 * kMany})));
  all->push_back({"repeat_to", own("RepeatTo").x({2048, 2048}).x({1, 2048})});
  Case loss = Case("SoftmaxCrossEntropyLoss", 13).x({1, kMany}).list({5}).outputs(2);
  all->push_back(at_end("cross_entropy_loss", loss));
  all->push_back(at_end("cross_entropy_loss", Case("SoftmaxCrossEntropyLoss", 13).x({1, kMany / 64, 64}).in(kI32, {1, 64}, 0, 9)));
  all->push_back(at_end("likelihood_loss", Case("NegativeLogLikelihoodLoss", 13).x({kMany, 2}).in(kI32, {kMany}, 0, 2)));
  for (const auto& [kernel, op] :
       {std::pair{"cross_entropy_gradient", "CrossEntropyGradient"}, {"loss_gradient", "LossGradient"}}) {
    all->push_back(at_end(kernel, own(op).x({1, 4 * kMany}).list({5}).x({})));
    all->push_back(at_end(kernel, own(op).x({kMany, 2}).in(kI32, {kMany}, 0, 2).x({})));
    all->push_back(at_end(kernel, own(op).x({1, kMany / 16, 64}).in(kI32, {1, 64}, 0, 9).x({})));
  }
  const Shape plane = {1, 1, 1, 2 * kMany};
  Case norm = Case("BatchNormalization", 15).x(plane).x({1}).x({1}).x({1}).x({1}).integer("training_mode", 1).outputs(3);
  all->push_back(at_end("batch_norm_training", norm));
  all->push_back(at_end("batch_norm_gradient",
                        own("BatchNormalizationGradient").x(plane).x({1}).x(plane).integer("training_mode", 1).outputs(3)));
  const Shape lines = {1, 2 * kMany};
  all->push_back(at_end("layer_norm_gradient", own("LayerNormalizationGradient").x(lines).x({2 * kMany}).x(lines).outputs(3)));
  all->push_back(at_end("gather_gradient", own("GatherGradient").x({3, 4 * kMany}).list({2}).x({1, 4 * kMany})));
  all->push_back(at_end("gather_gradient", own("GatherGradient").x({8, 2}).in(kI32, {kMany}, 0, 7).x({kMany, 2})));
}

}  // namespace

std::vector<CancelCase> cancel_cases() {
  Cases all;
  add_recurrent(&all);
  add_convolutions(&all);
  add_conv_gradients(&all);
  add_rounded_products(&all);
  add_pointwise_gradients(&all);
  add_attention(&all);
  add_rows(&all);
  add_products(&all);
  add_byte_products(&all);
  add_pools(&all);
  add_moves(&all);
  add_elementwise(&all);
  add_quantized(&all);
  add_training(&all);
  return all;
}

std::vector<std::pair<CancelCase, CancelCase>> largest_cases() {
  std::vector<std::pair<CancelCase, CancelCase>> all;
  const auto add = [&](const char* kernel, std::int64_t most, std::int64_t more, auto&& make, Precision p = Precision::kFloat32) {
    all.push_back({{kernel, make(most), p}, {kernel, make(more), p}});
  };
  constexpr std::int64_t kTaps = 4096, kDepth = 1 << 17, kChain = 1 << 12, kBlock = 1 << 15;
  add("max_pool", kTaps, kTaps + 1, [](std::int64_t n) {
    return Case("MaxPool", 12).x({1, 1, 1, 8192}).ints("kernel_shape", {1, n});
  });
  add("average_pool", kTaps, kTaps + 1, [](std::int64_t n) {
    return Case("AveragePool", 12).x({1, 1, 1, 8192}).ints("kernel_shape", {1, n});
  });
  add("conv_depthwise", kTaps, kTaps + 1, [](std::int64_t n) { return Case("Conv", 11).x({1, 1, 1, 8192}).w({1, 1, 1, n}); });
  add("conv_depthwise_nhwc", kTaps, kTaps + 1, [](std::int64_t n) {
    return Case("Conv", 11).x({1, 16, 1, 8192}).w({16, 1, 1, n}).integer("group", 16);
  });
  add(
      "matmul_bf16", kDepth, kDepth + 1,
      [](std::int64_t n) {
        return Case("MatMul", 13).x({1, n}).w({n, 32});
      },
      Precision::kBfloat16);
  add(
      "conv_bf16", kDepth, kDepth + 1,
      [](std::int64_t n) {
        return Case("Conv", 11).x({1, n, 1, 1}).w({32, n, 1, 1});
      },
      Precision::kBfloat16);
  for (const auto& [kernel, level, block] : {std::tuple{"matmul_nbits", 0, kChain}, {"matmul_nbits_dot", 4, kBlock}}) {
    add(kernel, block, 2 * block, [level = level](std::int64_t n) {
      Case c = contrib("MatMulNBits").x({1, n}).constant(kU8, {16, 1, n / 2}, 0, 255).w({16, 1}, 0.01, 0.02);
      return c.integer("K", n).integer("N", 16).integer("bits", 4).integer("block_size", n).integer("accuracy_level", level);
    });
  }
  return all;
}

std::vector<std::pair<CancelCase, CancelCase>> cancelled_cascades() {
  const auto conv = [](const Shape& x, const Shape& w, std::int64_t pad, std::int64_t group = 1) {
    return Case("Conv", 11).x(x).w(w).ints("pads", {pad, pad, pad, pad}).integer("group", group);
  };
  const Shape image{1, 16, 24, 2048}, photo{1, 3, 24, 2048};
  return {{{"conv_depthwise_nhwc", conv(image, {16, 1, 3, 3}, 1, 16)}, {"conv_nhwc", conv(image, {16, 16, 1, 1}, 0)}},
          {{"conv_few_channels", conv(photo, {16, 3, 3, 3}, 1)}, {"conv_depthwise_nhwc", conv(image, {16, 1, 3, 3}, 1, 16)}},
          {{"qlinear_conv_depthwise", linear_conv(image, {16, 1, 3, 3}, {1, 1, 1, 1}, 16)},
           {"qlinear_conv_nhwc", linear_conv(image, {16, 16, 1, 1}, {0, 0, 0, 0})}}};
}

}  // namespace evn::test
