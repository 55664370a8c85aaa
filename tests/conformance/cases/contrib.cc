// The operators of com.microsoft but for those that stand with the operators of ONNX that they resemble.
#include "ops/op.h"
#include "tests/conformance/case.h"

namespace evn::conformance {
namespace {

constexpr DType kByteKinds[] = {DType::kInt8, DType::kUint8};

Case contrib(const char* name) { return Case(std::string("com.microsoft::") + name, 1); }

// A tensor, its scale and its zero point.
Case& quantized(Case& c, DType d, const Shape& shape, double scale = 0.02) {
  return c.in(d, shape, -120, 120).literal({kF32, {}}, {scale}).scalar(d, 7);
}

void add_quantized_elements(Cases* all) {
  for (const DType d : kByteKinds) {
    for (const char* op : {"QLinearAdd", "QLinearMul"}) {
      Case c = contrib(op);
      quantized(c, d, {4, 1, 9});
      quantized(c, d, {3, 9}, 0.03);
      all->push_back(c.literal({kF32, {}}, {0.05}).scalar(d, 3));
    }
    for (const char* op : {"QLinearSigmoid", "QLinearLeakyRelu"}) {
      Case c = contrib(op);
      quantized(c, d, {5, 17});
      all->push_back(c.literal({kF32, {}}, {0.01}).batch());
    }
    Case where = contrib("QLinearWhere").in(DType::kBool, {4, 1});
    quantized(where, d, {4, 9});
    quantized(where, d, {9}, 0.03);
    all->push_back(where.literal({kF32, {}}, {0.03}).scalar(d, 3));
  }
}

void add_quantized_rows(Cases* all) {
  for (const DType d : kByteKinds) {
    Case join = contrib("QLinearConcat").literal({kF32, {}}, {0.03}).scalar(d, 3);
    quantized(join, d, {2, 3, 4});
    quantized(join, d, {2, 5, 4}, 0.04);
    all->push_back(join.integer("axis", 1));
    for (const std::int64_t last : {0, 1}) {
      Case pool = contrib("QLinearGlobalAveragePool");
      quantized(pool, d, {2, 5, 3, 4});
      all->push_back(pool.literal({kF32, {}}, {0.005}).scalar(d, 3).integer("channels_last", last).batch());
    }
    struct Pool {
      Shape x;
      Ints kernel, strides, pads;
      std::int64_t include_pad, ceil_mode;
    };
    const Pool pools[] = {{{2, 37, 9, 8}, {3, 3}, {2, 1}, {1, 1, 1, 1}, 0, 0},
                          {{1, 5, 9, 8}, {2, 3}, {1, 2}, {0, 2, 1, 0}, 1, 1},
                          {{2, 70, 17}, {4}, {2}, {1, 1}, 1, 0},
                          {{1, 64, 7, 7}, {7, 7}, {1, 1}, {0, 0, 0, 0}, 0, 0},
                          {{1, 20, 9, 10}, {3, 2}, {2, 2}, {0, 0, 0, 0}, 0, 1}};
    for (const Pool& p : pools) {
      Case average = contrib("QLinearAveragePool");
      quantized(average, d, p.x);
      average.literal({kF32, {}}, {0.013})
          .scalar(d, 3)
          .ints("kernel_shape", p.kernel)
          .ints("strides", p.strides)
          .ints("pads", p.pads);
      all->push_back(average.integer("count_include_pad", p.include_pad).integer("ceil_mode", p.ceil_mode));
    }
    for (const Shape& shape : {Shape{1, 4, 6, 5}, Shape{2, 3, 4, 5, 6}}) {
      Case average = contrib("QLinearAveragePool");
      quantized(average, d, shape);
      average.literal({kF32, {}}, {0.013}).scalar(d, 3).ints("kernel_shape", Ints(static_cast<std::size_t>(shape.rank()) - 2, 2));
      all->push_back(average.integer("channels_last", shape.rank() == 4 ? 1 : 0));
    }
    for (const std::int64_t opset : {11, 13}) {
      Case softmax = contrib("QLinearSoftmax");
      quantized(softmax, d, {3, 5, 4});
      all->push_back(softmax.literal({kF32, {}}, {1.0 / 256}).scalar(d, 3).integer("axis", 1).integer("opset", opset).batch());
    }
  }
}

void add_quantized_products(Cases* all) {
  for (const DType d : kByteKinds) {
    for (const bool to_float : {false, true}) {
      Case gemm = contrib("QGemm");
      quantized(gemm, d, {7, 5});
      gemm.in(DType::kInt8, {9, 7}, -90, 90).in(kF32, {9}, 0.01, 0.03).in(DType::kInt8, {9}, -9, 9);
      gemm.in(kI32, {9}, -900, 900).integer("transA", 1).integer("transB", 1).real("alpha", 0.5f);
      all->push_back(to_float ? gemm : gemm.literal({kF32, {}}, {0.2}).scalar(d, 3));
    }
    all->push_back(contrib("MatMulIntegerToFloat")
                       .in(d, {2, 5, 7}, -90, 90)
                       .in(d, {7, 9}, -90, 90)
                       .literal({kF32, {}}, {0.02})
                       .in(kF32, {9}, 0.01, 0.03)
                       .scalar(d, 3)
                       .in(d, {9}, 0, 9)
                       .x({9})
                       .batch());
    Case dynamic = contrib("DynamicQuantizeMatMul").x({2, 5, 7}).in(d, {7, 9}, -90, 90);
    all->push_back(dynamic.in(kF32, {9}, 0.01, 0.03).scalar(d, 3).x({9}));
  }
  for (const DType d : {kF32, kF64}) {
    all->push_back(contrib("FusedMatMul").in(d, {3, 2, 5}).in(d, {5, 2, 4}).integer("transBatchA", 1).integer("transBatchB", 1));
  }
}

void add_fused_layers(Cases* all) {
  for (const DType d : {kF32, kF64}) {
    all->push_back(Case("SimplifiedLayerNormalization", 17).in(d, {5, 8}).in(d, {8}).outputs(2).batch());
    Case skip = contrib("SkipSimplifiedLayerNormalization").in(d, {2, 3, 8}).in(d, {1, 3, 8}).in(d, {8}).in(d, {8});
    all->push_back(skip.real("epsilon", 1e-5f).outputs(4).flat());  // the mean is 0
    all->push_back(contrib("SkipSimplifiedLayerNormalization")
                       .in(d, {2, 3, 37})
                       .in(d, {2, 3, 37})
                       .in(d, {37})
                       .in(d, {37})
                       .real("epsilon", 1e-5f));
    all->push_back(Case("SimplifiedLayerNormalization", 17).in(d, {50, 33}).in(d, {33}).batch());
    all->push_back(contrib("BiasSplitGelu").in(d, {2, 3, 8}).in(d, {8}).batch());
    Case nhwc = contrib("NhwcConv").in(d, {2, 6, 5, 4}).in(d, {6, 2, 3, 3}).in(d, {6});
    all->push_back(nhwc.integer("group", 2).ints("pads", {1, 0, 1, 0}).batch());
    all->push_back(contrib("Inverse").in(d, {3, 4, 4}).batch());
    for (const std::int64_t interleaved : {0, 1}) {
      Case rotary = contrib("RotaryEmbedding").in(d, {2, 3, 16}).literal({kI64, {2, 3}}, {0, 4, 2, 1, 1, 3});
      all->push_back(rotary.in(d, {5, 2}).in(d, {5, 2}).integer("interleaved", interleaved));
    }
  }
  for (const char* activation : {"Relu", "Sigmoid", "Tanh"}) {
    Case conv = contrib("FusedConv").x({2, 4, 6, 5}).w({4, 2, 3, 3}).w({4}).x({2, 4, 4, 3});
    all->push_back(conv.integer("group", 2).word("activation", activation).batch(9));
    all->push_back(contrib("FusedGemm").x({5, 7}).w({9, 7}).w({9}).integer("transB", 1).word("activation", activation).batch());
  }
  Case embed = contrib("EmbedLayerNormalization").literal({kI32, {2, 3}}, {3, 0, 4, 1, 2, 2}).variable();
  embed.literal({kI32, {2, 3}}, {0, 0, 1, 1, 1, 0}).w({5, 8}).w({4, 8}).w({2, 8}).w({8}).w({8});
  all->push_back(embed.literal({kI32, {2, 3}}, {1, 1, 0, 1, 1, 1}).outputs(3));
}

void add_blocks(Cases* all) {
  for (const std::int64_t bits : {2, 4, 8}) {
    Case product = contrib("MatMulNBits").x({2, 3, 40}).constant(DType::kUint8, {5, 3, 2 * bits}, 0, 256);
    product.w({5, 3}, 0.01, 0.1).constant(DType::kUint8, {5, (3 * bits + 7) / 8}, 0, 256).absent().w({5});
    all->push_back(product.integer("bits", bits).integer("block_size", 16).integer("K", 40).integer("N", 5).batch());
    const auto quantized = [&] {
      Case c = contrib("MatMulNBits").x({2, 7, 72}).constant(DType::kUint8, {37, 3, 4 * bits}, 0, 256).w({37, 3}, 0.01, 0.1);
      return c.integer("bits", bits)
          .integer("block_size", 32)
          .integer("K", 72)
          .integer("N", 37)
          .integer("accuracy_level", 4)
          .batch();
    };
    all->push_back(quantized());
    all->push_back(quantized().constant(DType::kUint8, {37, (3 * bits + 7) / 8}, 0, 256).absent().w({37}));
    all->push_back(quantized().w({37, 3}, 0, 9));
  }
  for_dtypes(find_op("com.microsoft", "GatherBlockQuantized", 1)->dtypes, [&](DType d) {
    Case gather = contrib("GatherBlockQuantized").constant(d, {6, d == DType::kUint8 ? 20 : 40}, 0, 256);
    all->push_back(gather.literal({kI64, {2, 2}}, {3, 0, -1, 5}).w({6, 3}, 0.01, 0.1).integer("block_size", 16));
  });
}

void add_moved(Cases* all) {
  for_dtypes(kAnyDtype, [&](DType d) { all->push_back(contrib("Trilu").in(d, {2, 4, 5}, -9, 9)); });
  for_dtypes(kNumbers | dtype_bit(DType::kBool), [&](DType d) {
    const double second = d == DType::kBool ? 0 : 5;
    all->push_back(contrib("Unique").literal({d, {5}}, {1, second, 1, 1, second}).outputs(3));
  });
}

void add_attentions(Cases* all) {
  const auto past = [] { return Shape{2, 2, 3, 4, 8}; };
  Case plain = contrib("Attention").x({2, 5, 7}).w({7, 72}, -0.5, 0.5).w({72});
  plain.literal({kI32, {2, 9}}, {1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1});
  all->push_back(plain.x(past()).x({1, 3, 5, 9}).integer("num_heads", 3).integer("unidirectional", 1).outputs(2));
  Case narrow = contrib("Attention").x({2, 5, 7}).w({7, 60}, -0.5, 0.5).integer("num_heads", 3);
  all->push_back(narrow.ints("qkv_hidden_sizes", {24, 24, 12}).batch());
  for (const DType d : kByteKinds) {
    Case c = contrib("QAttention").in(d, {2, 5, 7}, -90, 90).constant(DType::kInt8, {7, 72}, -90, 90).w({72});
    c.literal({kF32, {}}, {0.02}).in(kF32, {72}, 0.005, 0.01).literal({kI32, {4}}, {4, 5, 0, 1}).scalar(d, 3);
    all->push_back(c.scalar(DType::kInt8, 1).integer("num_heads", 3).outputs(d == DType::kInt8 ? 2 : 1));
  }
  Case multi = contrib("MultiHeadAttention").x({2, 5, 24}).x({2, 4, 24}).x({2, 4, 12}).w({60}).literal({kI32, {2}}, {6, 5});
  all->push_back(multi.x({2, 1, 5, 6}).x({2, 3, 2, 8}).x({2, 3, 2, 4}).integer("num_heads", 3).outputs(4));
  all->push_back(contrib("MultiHeadAttention").x({2, 5, 3, 3, 8}).absent().absent().w({72}).integer("num_heads", 3).batch());
  all->push_back(contrib("MultiHeadAttention").x({2, 5, 24}).x({2, 4, 3, 2, 8}).integer("num_heads", 3).batch(3));
  Case group = contrib("GroupQueryAttention").x({2, 1, 32}).x({2, 1, 16}).x({2, 1, 16}).x({2, 2, 6, 8}).x({2, 2, 6, 8});
  group.literal({kI32, {2}}, {3, 6}).scalar(kI32, 7).x({9, 4}).x({9, 4}).integer("num_heads", 4).integer("kv_num_heads", 2);
  all->push_back(group.integer("do_rotary", 1).integer("local_window_size", 4).outputs(4));
  // What the CPU has a kernel for: steps and prompts, a past that is not full, one or several heads to a group, angles for a part
  // of each row, windows, blocks of rows.
  for (const std::int64_t steps : {1, 3, 150}) {
    for (const bool interleaved : {false, true}) {
      const std::int64_t groups = interleaved ? 4 : 2, past = 6;
      const std::int64_t total = steps + past;
      Case c = contrib("GroupQueryAttention").x({2, steps, 4 * 24}).x({2, steps, groups * 24}).x({2, steps, groups * 24});
      c.x({2, groups, past, 24})
          .x({2, groups, past, 24})
          .literal({kI32, {2}}, {static_cast<double>(total - 1), static_cast<double>(total - 3)})
          .scalar(kI32, static_cast<double>(total));
      c.x({total + 2, interleaved ? 12 : 5})
          .x({total + 2, interleaved ? 12 : 5})
          .integer("num_heads", 4)
          .integer("kv_num_heads", groups);
      c.integer("do_rotary", 1).integer("rotary_interleaved", interleaved ? 1 : 0).outputs(3);
      all->push_back(interleaved ? c.integer("local_window_size", 4) : c);
    }
    Case prompt = contrib("GroupQueryAttention").x({1, steps, 3 * 16}).absent().absent().absent().absent();
    prompt.literal({kI32, {1}}, {static_cast<double>(steps - 1)}).scalar(kI32, static_cast<double>(steps));
    all->push_back(prompt.integer("num_heads", 1).integer("kv_num_heads", 1).real("scale", 0.5f).outputs(3));
    Case full =
        contrib("GroupQueryAttention").x({1, steps, 16}).x({1, steps, 16}).x({1, steps, 16}).x({1, 1, 200, 16}).x({1, 1, 200, 16});
    full.literal({kI32, {1}}, {static_cast<double>(steps + 2)}).scalar(kI32, static_cast<double>(steps + 3));
    all->push_back(full.integer("num_heads", 1).integer("kv_num_heads", 1).integer("causal", 0).outputs(3));
  }
  // A single step, whose heads stand in the place of rows: some of a group, odd ones, more than a block has; long pasts.
  struct Step {
    std::int64_t heads, groups, depth, past;
    int window;
  };
  for (const Step& t :
       {Step{8, 2, 64, 130, 0}, Step{14, 2, 16, 70, 0}, Step{3, 1, 20, 65, 9}, Step{22, 1, 8, 17, 0}, Step{6, 3, 24, 1, 0}}) {
    const double total = static_cast<double>(t.past + 1);
    Case c = contrib("GroupQueryAttention").x({1, 1, (t.heads + 2 * t.groups) * t.depth}).absent().absent();
    c.x({1, t.groups, t.past, t.depth}).x({1, t.groups, t.past, t.depth}).literal({kI32, {1}}, {total - 1}).scalar(kI32, total);
    c.x({t.past + 1, t.depth / 2}).x({t.past + 1, t.depth / 2}).integer("num_heads", t.heads).integer("kv_num_heads", t.groups);
    if (t.window > 0) c.integer("local_window_size", t.window);
    all->push_back(c.integer("do_rotary", 1).outputs(3));
  }
  // Windows of a prompt, whose blocks of rows begin behind keys that none of them sees.
  for (const std::int64_t past : {0, 90}) {
    const std::int64_t steps = 200, total = past + steps;
    Case c = contrib("GroupQueryAttention").x({1, steps, 2 * 16}).x({1, steps, 16}).x({1, steps, 16});
    if (past == 0) {
      c.absent().absent();
    } else {
      c.x({1, 1, past, 16}).x({1, 1, past, 16});
    }
    c.literal({kI32, {1}}, {static_cast<double>(total - 1)}).scalar(kI32, static_cast<double>(total));
    all->push_back(c.integer("num_heads", 2).integer("kv_num_heads", 1).integer("local_window_size", 40).outputs(3));
  }
  // Sinks, a cap and a bias, of a step whose heads are rows and of a prompt.
  for (const std::int64_t steps : {1, 5}) {
    const std::int64_t total = 40 + steps;
    Case c = contrib("GroupQueryAttention").x({2, steps, 8 * 8}).x({2, steps, 2 * 8}).x({2, steps, 2 * 8});
    c.x({2, 2, 40, 8}).x({2, 2, 40, 8}).literal({kI32, {2}}, {static_cast<double>(total - 1), static_cast<double>(total - 9)});
    c.scalar(kI32, static_cast<double>(total)).absent().absent().absent().x({1, 8, steps, total}).x({8});
    all->push_back(c.integer("num_heads", 8).integer("kv_num_heads", 2).real("softcap", 2).outputs(3));
  }
  Case packed = contrib("GroupQueryAttention").x({2, 5, 64}).absent().absent().absent().absent();
  packed.literal({kI32, {2}}, {4, 4}).scalar(kI32, 5);
  all->push_back(packed.integer("num_heads", 4).integer("kv_num_heads", 2).integer("smooth_softmax", 1).real("softcap", 1.5f));
}

void add_lstm(Cases* all) {
  for (const std::int64_t directions : {1, 2}) {
    Case c = contrib("DynamicQuantizeLSTM").x({5, 2, 6}).constant(DType::kInt8, {directions, 6, 32}, -90, 90);
    c.constant(DType::kInt8, {directions, 8, 32}, -90, 90).w({directions, 64}).list({5, 3}, kI32).absent().absent().absent();
    for (int i = 0; i < 2; ++i) c.w({directions}, 0.002, 0.004).constant(DType::kInt8, {directions}, -3, 3);
    all->push_back(c.integer("hidden_size", 8).word("direction", directions == 2 ? "bidirectional" : "reverse").outputs(3));
  }
  // Gates of whole vectors and of parts of them; a scale for each row; one sequence and several, more steps than are projected at
  // once.
  for (const std::int64_t hidden : {16, 20, 64}) {
    for (const std::int64_t batch : {1, 5}) {
      const DType dtype = hidden == 20 ? DType::kUint8 : DType::kInt8;
      const bool is_signed = dtype == DType::kInt8;
      Case c = contrib("DynamicQuantizeLSTM").x({70 / batch, batch, 17});
      c.constant(dtype, {1, 17, 4 * hidden}, is_signed ? -90 : 10, is_signed ? 90 : 250)
          .constant(dtype, {1, hidden, 4 * hidden}, is_signed ? -90 : 10, is_signed ? 90 : 250)
          .w({1, 8 * hidden})
          .absent();
      c.w({1, batch, hidden}).w({1, batch, hidden}).w({1, 3 * hidden});
      for (int i = 0; i < 2; ++i)
        c.w({1, 4 * hidden}, 0.001, 0.002).constant(dtype, {1, 4 * hidden}, is_signed ? -3 : 125, is_signed ? 3 : 131);
      all->push_back(c.integer("hidden_size", hidden).word("direction", batch == 5 ? "reverse" : "forward").outputs(3));
    }
  }
  // Every activation, as f, g and h of a direction; large sums too.
  for (const auto& [f, g, h] : {std::array{"HardSigmoid", "Affine", "Softsign"}, std::array{"Elu", "ScaledTanh", "Softplus"},
                                std::array{"ThresholdedRelu", "LeakyRelu", "Relu"}, std::array{"Tanh", "Sigmoid", "Tanh"}}) {
    Case c = contrib("DynamicQuantizeLSTM")
                 .x({6, 3, 20})
                 .constant(DType::kInt8, {2, 20, 96}, -90, 90)
                 .constant(DType::kInt8, {2, 24, 96}, -90, 90);
    c.w({2, 192}).absent().w({2, 3, 24}).w({2, 3, 24}).w({2, 72});
    for (int i = 0; i < 2; ++i) c.w({2}, 0.01, 0.02).constant(DType::kInt8, {2}, -3, 3);
    c.integer("hidden_size", 24)
        .word("direction", "bidirectional")
        .attr("activations", std::vector<std::string>{f, g, h, "Sigmoid", "Tanh", "Tanh"});
    all->push_back(c.real("clip", 5).integer("input_forget", f[0] == 'E' ? 1 : 0).outputs(3));
  }
}

}  // namespace

void add_contrib_cases(Cases* all) {
  add_quantized_elements(all);
  add_quantized_rows(all);
  add_quantized_products(all);
  add_fused_layers(all);
  add_blocks(all);
  add_moved(all);
  add_attentions(all);
  add_lstm(all);
}

}  // namespace evn::conformance
