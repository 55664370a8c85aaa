// Spectra and windows, operators of quantized tensors that compute in integers, recurrences over a sequence, training steps.
#include "tests/conformance/case.h"

namespace evn::conformance {
namespace {

void add_spectra(Cases* all) {
  for_dtypes(kFloats, [&](DType d) {
    all->push_back(Case("DFT", 17).in(d, {2, 7, 1}).integer("axis", 1));
    all->push_back(Case("DFT", 20).in(d, {2, 6, 3, 2}).scalar(kI64, 8).scalar(kI64, 1));
    all->push_back(Case("STFT", 17).in(d, {2, 20, 1}).scalar(kI64, 4).in(d, {8}));
  });
  all->push_back(Case("DFT", 20).x({3, 10, 1}).integer("onesided", 1));
  all->push_back(Case("DFT", 20).x({3, 5, 2}).integer("inverse", 1));
  all->push_back(Case("DFT", 20).x({3, 5, 2}).integer("inverse", 1).integer("onesided", 1));
  all->push_back(Case("DFT", 20).x({3, 9, 1}).scalar(kI32, 4));
  all->push_back(Case("STFT", 17).x({2, 20, 2}).scalar(kI64, 5).absent().scalar(kI64, 6).integer("onesided", 0));
  for (const char* op : {"HannWindow", "HammingWindow", "BlackmanWindow"}) {
    for (const DType d : {kI32, kI64}) all->push_back(Case(op, 17).scalar(d, 10));
    all->push_back(Case(op, 17).scalar(kI64, 9).integer("periodic", 0).integer("output_datatype", EVN_DTYPE_FLOAT64));
    all->push_back(Case(op, 17).scalar(kI64, 1).flat());
    all->push_back(Case(op, 17).scalar(kI64, 7).integer("output_datatype", EVN_DTYPE_INT32).flat());
  }
  for (const DType d : {kI32, kI64}) {
    all->push_back(Case("MelWeightMatrix", 17).scalar(d, 8).scalar(d, 64).scalar(d, 8000).scalar(kF32, 0).scalar(kF32, 4000));
  }
}

void add_quantized(Cases* all) {
  for (const DType d : {DType::kInt8, DType::kUint8}) {
    for (const int opset : {10, 21}) {
      all->push_back(Case("QLinearMatMul", opset)
                         .in(d, {2, 3, 4}, -90, 90)
                         .scalar(kF32, 0.02)
                         .scalar(d, 3)
                         .in(DType::kUint8, {4, 5}, 0, 90)
                         .scalar(kF32, 0.01)
                         .scalar(DType::kUint8, 9)
                         .scalar(kF32, 0.05)
                         .scalar(d, 7));
    }
    all->push_back(Case("ConvInteger", 10)
                       .in(d, {1, 2, 5, 4}, -90, 90)
                       .in(DType::kInt8, {4, 1, 3, 2}, -90, 90)
                       .scalar(d, 5)
                       .in(DType::kInt8, {4}, 0, 9)
                       .integer("group", 2)
                       .ints("pads", {1, 0, 1, 1}));
    all->push_back(Case("QLinearConv", 10)
                       .in(d, {2, 2, 6}, -90, 90)
                       .scalar(kF32, 0.02)
                       .scalar(d, 4)
                       .in(DType::kInt8, {3, 2, 3}, -90, 90)
                       .floats({0.01f, 0.02f, 0.005f})
                       .in(DType::kInt8, {3}, -3, 3)
                       .scalar(kF32, 0.4)
                       .scalar(d, 6)
                       .in(kI32, {3}, -900, 900)
                       .ints("strides", {2}));
  }
  all->push_back(Case("QLinearMatMul", 10)
                     .in(DType::kInt8, {3, 4}, -90, 90)
                     .floats({0.02f, 0.01f, 0.03f})
                     .in(DType::kInt8, {3}, 0, 5)
                     .in(DType::kInt8, {4, 2}, -90, 90)
                     .floats({0.01f, 0.02f})
                     .in(DType::kInt8, {2}, 0, 5)
                     .scalar(kF32, 0.05)
                     .scalar(DType::kInt8, 0));
  all->push_back(Case("QLinearMatMul", 21)
                     .in(DType::kUint8, {3, 4}, 0, 90)
                     .scalar(DType::kFloat16, 0.02)
                     .scalar(DType::kUint8, 3)
                     .in(DType::kUint8, {4, 2}, 0, 90)
                     .scalar(DType::kFloat16, 0.01)
                     .scalar(DType::kUint8, 3)
                     .scalar(DType::kBfloat16, 0.05)
                     .scalar(DType::kUint8, 9));
}

void add_sequences(Cases* all) {
  for_dtypes(kFloats, [&](DType d) {
    const auto attention = [&](const char* rule) {
      return Case("LinearAttention", 27)
          .in(d, {2, 5, 12})
          .in(d, {2, 5, 6})
          .in(d, {2, 5, 8})
          .integer("kv_num_heads", 2)
          .integer("q_num_heads", 4)
          .word("update_rule", rule);
    };
    all->push_back(attention("linear").outputs(2));
    all->push_back(attention("gated").in(d, {2, 2, 3, 4}).in(d, {2, 5, 6}, -1, 0).outputs(2));
    all->push_back(attention("delta").absent().absent().in(d, {2, 5, 1}, 0, 1));
    all->push_back(attention("gated_delta")
                       .in(d, {2, 2, 3, 4}, -0.5, 0.5)
                       .in(d, {2, 5, 2}, -1, 0)
                       .in(d, {2, 5, 2}, 0, 0.5)
                       .outputs(2)
                       .batch(0x3f));
    all->push_back(Case("CausalConvWithState", 27).in(d, {2, 3, 6}).in(d, {3, 1, 4}).in(d, {3}).in(d, {2, 3, 3}).outputs(2));
    all->push_back(Case("CausalConvWithState", 27).in(d, {2, 3, 2}).in(d, {3, 1, 4}).outputs(2).word("activation", "silu"));
  });
}

void add_optimizers(Cases* all) {
  const std::string domain = "ai.onnx.preview.training::";
  for_dtypes(kFloats, [&](DType d) {
    const auto step = [&](const char* op) {
      return Case(domain + op, 1).scalar(d, 0.1).scalar(kI64, 3).in(d, {3, 4}).in(d, {3, 4});
    };
    for (const char* mode : {"standard", "nesterov"}) {
      all->push_back(step("Momentum")
                         .in(d, {3, 4})
                         .real("alpha", 0.9f)
                         .real("beta", 0.5f)
                         .real("norm_coefficient", 0.1f)
                         .word("mode", mode)
                         .outputs(2));
    }
    all->push_back(step("Adagrad").in(d, {3, 4}, 0, 2).real("decay_factor", 0.1f).outputs(2));
    all->push_back(step("Adam").in(d, {3, 4}).in(d, {3, 4}, 0, 2).real("norm_coefficient_post", 0.01f).outputs(3));
  });
  all->push_back(Case(domain + "Adagrad", 1)
                     .scalar(kF32, 0.1)
                     .scalar(kI64, 0)
                     .x({3})
                     .x({2, 2})
                     .x({3})
                     .x({2, 2})
                     .x({3}, 0, 2)
                     .x({2, 2}, 0, 2)
                     .outputs(4));
}

}  // namespace

void add_signal_cases(Cases* all) {
  add_spectra(all);
  add_quantized(all);
  add_sequences(all);
  add_optimizers(all);
}

}  // namespace evn::conformance
