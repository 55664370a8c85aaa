// Element-wise operators of one input, Clip, Cast and Dropout.
#include "tests/conformance/case.h"

namespace evn::conformance {
namespace {

struct Unary {
  const char* op;
  int opset;
  double low, high;
  std::uint32_t dtypes;
};

constexpr std::uint32_t kSigned = kFloats | kSignedInts;
constexpr Unary kUnary[] = {
    {"Sqrt", 13, 0, 9, kFloats},         {"Exp", 13, -5, 5, kFloats},
    {"Log", 13, 0.01, 9, kFloats},       {"Sin", 7, -9, 9, kFloats},
    {"Cos", 7, -9, 9, kFloats},          {"Tan", 7, -1.4, 1.4, kFloats},
    {"Atan", 7, -9, 9, kFloats},         {"Erf", 13, -4, 4, kFloats},
    {"Sigmoid", 13, -9, 9, kFloats},     {"Tanh", 13, -5, 5, kFloats},
    {"Softplus", 1, -20, 20, kFloats},   {"Softsign", 1, -9, 9, kFloats},
    {"Reciprocal", 13, 0.1, 9, kFloats}, {"Floor", 13, -9, 9, kFloats},
    {"Ceil", 13, -9, 9, kFloats},        {"Round", 11, -9, 9, kFloats},
    {"Abs", 13, -9, 9, kNumbers},        {"Neg", 13, -9, 9, kSigned},
    {"Sign", 13, -2, 2, kNumbers},       {"Relu", 14, -9, 9, kSigned},
    {"LeakyRelu", 16, -9, 9, kFloats},   {"Elu", 6, -5, 5, kFloats},
    {"Selu", 6, -5, 5, kFloats},         {"HardSigmoid", 6, -5, 5, kFloats},
    {"HardSwish", 14, -5, 5, kFloats},   {"Mish", 18, -9, 9, kFloats},
    {"Gelu", 20, -2, 5, kFloats},        {"Identity", 13, -9, 9, kFloats},
    {"Asin", 7, -1, 1, kFloats},         {"Acos", 7, -1, 1, kFloats},
    {"Sinh", 9, -5, 5, kFloats},         {"Cosh", 9, -5, 5, kFloats},
    {"Asinh", 9, -9, 9, kFloats},        {"Acosh", 9, 1, 9, kFloats},
    {"Atanh", 9, -0.9, 0.9, kFloats},    {"Celu", 12, -5, 5, kFloats},
    {"Swish", 24, -9, 9, kFloats},       {"ThresholdedRelu", 10, -5, 5, kFloats},
    {"Shrink", 9, -9, 9, kNumbers},
};

void add_unary(const Unary& u, Cases* all) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{2, 3, 17}, Shape{1, 5, 1, 33}, Shape{2, 3, 4, 5, 2}}) {
    all->push_back(Case(u.op, u.opset).x(shape, u.low, u.high));
  }
  // Several tiles, and a last one that is no multiple of a vector.
  all->push_back(Case(u.op, u.opset).x({2, 34567}, u.low, u.high).batch());
  all->push_back(Case(u.op, u.opset).x({3, 7}, u.low, u.high).batch());
  all->push_back(Case(u.op, u.opset).x({30, 21}, u.low, u.high).batch());
  all->push_back(Case(u.op, u.opset).x({101}, u.low, u.high).specials());
  all->push_back(Case(u.op, u.opset).x({2, 0, 3}, u.low, u.high));
  for_dtypes(u.dtypes & ~dtype_bit(kF32), [&](DType d) { all->push_back(Case(u.op, u.opset).in(d, {3, 11}, u.low, u.high)); });
}

void add_parameters(Cases* all) {
  all->push_back(Case("LeakyRelu", 6).x({3, 19}).real("alpha", 0.3f));
  all->push_back(Case("LeakyRelu", 6).x({3, 19}).real("alpha", -1.5f));
  all->push_back(Case("Elu", 6).x({3, 19}).real("alpha", 0.3f));
  all->push_back(Case("Selu", 6).x({3, 19}).real("alpha", 1.3f).real("gamma", 0.9f));
  all->push_back(Case("HardSigmoid", 6).x({3, 19}, -4, 4).real("alpha", 0.4f).real("beta", 0.3f));
  all->push_back(Case("Gelu", 20).x({3, 19}, -4, 4).word("approximate", "tanh"));
  all->push_back(Case("Gelu", 20).x({3, 19}, -9, 9));
  all->push_back(Case("Softplus", 1).x({40}, -200, 200));
  all->push_back(Case("Exp", 13).x({40}, -110, 95));
  all->push_back(Case("Tanh", 13).x({40}, -1e-3, 1e-3));
  all->push_back(Case("Erf", 13).x({40}, -1e-3, 1e-3));
  all->push_back(Case("Sigmoid", 13).x({40}, -100, 100));
  all->push_back(Case("Reciprocal", 13).x({40}, -3e3, 3e3));
  all->push_back(Case("Floor", 13).x({40}, -3e9, 3e9));
  all->push_back(Case("Ceil", 13).x({40}, -1, 1));
  all->push_back(Case("Sqrt", 13).x({40}, -1, 1));
  all->push_back(Case("Log", 13).x({40}, -1, 1e30));
  // Beside infinities, which drivers may take apart with all of their vector.
  for (const char* op : {"Sin", "Cos", "Tan"}) all->push_back(Case(op, 7).x({40}, -1e-3, 1e-3).specials());
}

void add_clip(Cases* all) {
  all->push_back(Case("Clip", 6).x({2, 3, 19}).batch());
  all->push_back(Case("Clip", 6).x({2, 3, 19}).real("min", -0.5f).real("max", 1.25f).batch());
  all->push_back(Case("Clip", 11).x({57}));
  all->push_back(Case("Clip", 11).x({57}).scalar(kF32, -0.5));
  all->push_back(Case("Clip", 11).x({57}).absent().scalar(kF32, 0.5));
  all->push_back(Case("Clip", 13).x({57}).scalar(kF32, -0.5).scalar(kF32, 0.75));
  all->push_back(Case("Clip", 13).x({2, 40001}).scalar(kF32, -0.5).scalar(kF32, 0.75).batch());
  all->push_back(Case("Clip", 13).x({57}).specials().scalar(kF32, -0.5).scalar(kF32, 0.75));
  all->push_back(Case("Clip", 13).x({57}).x({}, -1, -0.5).x({}, 0.5, 1));
  all->push_back(Case("Clip", 13).x({57}).scalar(kF32, 1).scalar(kF32, -1).flat());
  all->push_back(Case("Clip", 13).x({0}).scalar(kF32, -1).scalar(kF32, 1));
  for_dtypes(kNumbers & ~dtype_bit(kF32),
             [&](DType d) { all->push_back(Case("Clip", 13).in(d, {57}, -9, 9).scalar(d, 1).scalar(d, 5)); });
}

void add_cast(Cases* all) {
  constexpr std::uint32_t kCastable = kStoredDtype & ~kComplex;
  for_dtypes(kCastable, [&](DType from) {
    for_dtypes(kCastable & ~kString, [&](DType to) {  // texts that are made have other addresses each time
      const bool small = ((kFloat8s | kSubByte) & dtype_bit(to)) != 0;
      const double reach = to == DType::kBool ? 1.5 : small ? 6 : 300;
      Case c = Case("Cast", 13).in(from, {2, 19}, -reach, reach).integer("to", static_cast<std::int64_t>(to));
      if (to == DType::kBool) c.whole();
      all->push_back(to == DType::kBool && from == DType::kFloat8E8M0 ? c.flat() : c);  // a scale is never 0
    });
    all->push_back(Case("CastLike", 15).in(from, {2, 19}, -300, 300).in(kI32, {1}));
  });
  for_dtypes(kFloat8s | kSubByte, [&](DType to) {
    for (const int saturate : {0, 1}) {
      all->push_back(Case("Cast", 19)
                         .x({31}, -999, 999)
                         .specials()
                         .integer("to", static_cast<std::int64_t>(to))
                         .integer("saturate", saturate));
    }
    for (const char* mode : {"up", "down", "nearest"}) {
      all->push_back(
          Case("Cast", 24).x({31}, 0.1, 9).integer("to", static_cast<std::int64_t>(to)).attr("round_mode", std::string(mode)));
    }
    all->push_back(Case("CastLike", 24).x({31}, -9, 9).in(to, {2}));
  });
  for (const int opset : {6, 19, 24}) all->push_back(Case("Cast", opset).x({31}, -9, 9).integer("to", EVN_DTYPE_INT64));
  all->push_back(Case("Cast", 13).x({31}).specials().integer("to", EVN_DTYPE_INT32));
  all->push_back(Case("CastLike", 19).x({31}, -9, 9).in(DType::kUint8, {2}));
  all->push_back(Case("CastLike", 19).x({31}, -999, 999).in(DType::kFloat8E4M3FN, {2}).integer("saturate", 0));
}

void add_gates(Cases* all) {
  for_dtypes(kFloats, [&](DType d) {
    all->push_back(Case("SwiGLU", 28).in(d, {3, 19}, -4, 4).in(d, {3, 19}).real("alpha", 1.5f));
  });
}

void add_dropout(Cases* all) {
  for (const int opset : {7, 10, 12}) {
    for_dtypes(kFloats | dtype_bit(DType::kFloat16) | dtype_bit(DType::kBfloat16), [&](DType d) {
      all->push_back(Case("Dropout", opset).in(d, {3, 7}));
      all->push_back(Case("Dropout", opset).in(d, {3, 7}).outputs(2).flat());
    });
  }
  for (const double ratio : {0.25, 0.1, 0.7}) {
    all->push_back(Case("Dropout", 12).x({3, 97}).scalar(kF32, ratio).scalar(DType::kBool, 1).integer("seed", 7).outputs(2));
  }
}

// The reference against itself: other kernels may follow.
void add_random(Cases* all) {
  for_dtypes(kFloats | dtype_bit(DType::kFloat16) | dtype_bit(DType::kBfloat16), [&](DType d) {
    for (const char* op : {"RandomUniform", "RandomNormal"}) {
      all->push_back(Case(op, 22).ints("shape", {3, 7}).integer("dtype", static_cast<std::int64_t>(d)).real("seed", 2));
    }
    all->push_back(Case("Bernoulli", 15).in(d, {3, 70}, 0, 1).real("seed", 1));
    all->push_back(Case("Multinomial", 7).in(d, {3, 7}, -3, 3).integer("sample_size", 50).real("seed", 3));
  });
  for_dtypes(kMoved, [&](DType d) {
    all->push_back(Case("RandomUniformLike", 22).in(d, {3, 7}, 0, 9).integer("dtype", EVN_DTYPE_FLOAT32).real("seed", 1));
    all->push_back(Case("RandomNormalLike", 22).in(d, {3, 7}, 0, 9).integer("dtype", EVN_DTYPE_FLOAT64).real("seed", 1));
  });
}

}  // namespace

void add_elementwise_cases(Cases* all) {
  for (const Unary& u : kUnary) add_unary(u, all);
  for_dtypes(kStoredDtype, [&](DType d) { all->push_back(Case("Identity", 1).in(d, {3, 5})); });
  add_parameters(all);
  add_clip(all);
  add_cast(all);
  add_gates(all);
  add_dropout(all);
  add_random(all);
}

}  // namespace evn::conformance
