// The operators of com.microsoft but for those that stand with the operators of ONNX that they resemble.
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

}  // namespace

void add_contrib_cases(Cases* all) {
  add_quantized_elements(all);
  add_quantized_rows(all);
  add_quantized_products(all);
}

}  // namespace evn::conformance
