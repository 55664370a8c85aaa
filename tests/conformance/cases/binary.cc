// Operators of two or more broadcast inputs: arithmetic, comparisons, logic, Where, and the variadic ones.
#include "tests/conformance/case.h"

namespace evn::conformance {
namespace {

struct Pair {
  Shape a, b;
};

// Same shapes, scalars, per channel, trailing vectors, both sides broadcast, axes of 1, ranks that differ.
const std::vector<Pair>& pairs() {
  static const std::vector<Pair> all = {
      {{}, {}},
      {{1}, {1}},
      {{7}, {7}},
      {{3, 17}, {}},
      {{}, {3, 17}},
      {{1}, {5, 3}},
      {{2, 5, 3, 7}, {1, 5, 1, 1}},
      {{5, 1, 1}, {2, 5, 3, 7}},
      {{4, 19}, {19}},
      {{19}, {4, 19}},
      {{4, 1}, {1, 9}},
      {{3, 1, 5}, {1, 4, 5}},
      {{2, 3, 4, 5}, {3, 1, 5}},
      {{2, 1, 3, 1, 2}, {1, 4, 3, 5, 2}},
  };
  return all;
}

struct Binary {
  const char* op;
  int opset;
  double a_low, a_high, b_low, b_high;
  std::uint32_t dtypes;
};

constexpr std::uint32_t kBool = dtype_bit(DType::kBool);
constexpr Binary kBinary[] = {
    {"Add", 14, -9, 9, -9, 9, kNumbers},
    {"Sub", 14, -9, 9, -9, 9, kNumbers},
    {"Mul", 14, -9, 9, -9, 9, kNumbers},
    {"Div", 14, -9, 90, 1, 9, kNumbers},
    {"Min", 13, -9, 9, -9, 9, kNumbers},
    {"Max", 13, -9, 9, -9, 9, kNumbers},
    {"Sum", 13, -9, 9, -9, 9, kFloats},
    {"Mean", 13, -9, 9, -9, 9, kFloats},
    {"Mod", 13, -90, 90, 1, 9, kNumbers & ~kFloats},
    {"Equal", 13, 0, 3, 0, 3, kNumbers | kBool | kString},
    {"Less", 13, -3, 3, -3, 3, kNumbers},
    {"Greater", 13, -3, 3, -3, 3, kNumbers},
    {"LessOrEqual", 16, -3, 3, -3, 3, kNumbers},
    {"GreaterOrEqual", 16, -3, 3, -3, 3, kNumbers},
    {"And", 7, 0, 1, 0, 1, kBool},
    {"Or", 7, 0, 1, 0, 1, kBool},
    {"Xor", 7, 0, 1, 0, 1, kBool},
};

void add_binary(const Binary& b, Cases* all) {
  const DType first = b.dtypes == kBool ? DType::kBool : (b.dtypes & dtype_bit(kF32)) != 0 ? kF32 : kI32;
  // Small integers and bools of a few elements may well be alike everywhere.
  const bool discrete = first != kF32 || std::string(b.op).find_first_of("qLG") != std::string::npos;
  for (const Pair& p : pairs()) {
    Case c = Case(b.op, b.opset).in(first, p.a, b.a_low, b.a_high).in(first, p.b, b.b_low, b.b_high);
    const bool extreme = b.op[0] == 'M' && (p.a.elements() == 1 || p.b.elements() == 1);
    if (extreme || (discrete && p.a.elements() * p.b.elements() < 60)) c.flat();
    all->push_back(discrete ? c.whole() : c);
  }
  const auto of = [&](DType d, const Shape& x, const Shape& y) {
    Case c = Case(b.op, b.opset).in(d, x, b.a_low, b.a_high).in(d, y, b.b_low, b.b_high);
    return discrete ? c.whole() : c;
  };
  for_dtypes(b.dtypes, [&](DType d) { all->push_back(of(d, {5, 23}, {23})); });
  all->push_back(of(first, {3, 29}, {3, 29}).batch(3));
  all->push_back(of(first, {3, 2, 29}, {2, 29}).batch(1));
  all->push_back(of(first, {2, 7, 5003}, {1, 7, 1}).batch(1));
  all->push_back(of(first, {0, 3}, {1, 3}));
  if (first == kF32) {
    all->push_back(Case(b.op, b.opset).x({65}).specials().x({65}, b.b_low, b.b_high).whole());
    all->push_back(Case(b.op, b.opset).x({5, 13}, b.a_low, b.a_high).x({13}, b.b_low, b.b_high).specials().whole());
  }
}

void add_powers(Cases* all) {
  for (const Pair& p : pairs()) all->push_back(Case("Pow", 15).x(p.a, 0.1, 4).x(p.b, -2, 3));
  all->push_back(Case("Pow", 15).x({2, 20001}, 0.1, 4).scalar(kF32, 2.5).batch());
  for (const double exponent : {0.0, 0.5, 1.0, 2.0, 3.0, -1.0}) {
    all->push_back(Case("Pow", 15).x({3, 21}, -4, 4).scalar(kF32, exponent));
    if (exponent == 0) all->back().flat();
  }
  all->push_back(Case("Pow", 15).x({8, 8}, -4, 4).literal({kF32, {8}}, {-3, -2, -1, 0, 1, 2, 3, 4}));
  all->push_back(Case("Pow", 15).x({65}).specials().scalar(kF32, 2));
  for (const DType d : {kF64, kI32, kI64}) {
    for_dtypes(kNumbers, [&](DType e) { all->push_back(Case("Pow", 15).in(d, {3, 7}, 1, 5).in(e, {7}, 0, 4)); });
  }
  all->push_back(Case("Pow", 7).x({3, 7}, 1, 5).x({7}, 0, 4));
}

void add_slopes(Cases* all) {
  all->push_back(Case("PRelu", 16).x({2, 5, 3, 7}).w({5, 1, 1}).batch());
  all->push_back(Case("PRelu", 16).x({2, 5, 3, 7}).w({1}).batch());
  all->push_back(Case("PRelu", 16).x({3, 19}).x({3, 19}).batch(3));
  all->push_back(Case("PRelu", 16).x({3, 19}).x({19}).batch());
  all->push_back(Case("PRelu", 16).x({2, 3, 11003}).w({3, 1}).batch());
  all->push_back(Case("PRelu", 16).x({65}).specials().w({1}));
  for_dtypes(kNumbers & ~dtype_bit(kF32), [&](DType d) {
    all->push_back(Case("PRelu", 16).in(d, {5, 7}, -9, 9).in(d, {7}, -3, 3));
  });
}

void add_modes(Cases* all) {
  all->push_back(Case("Mod", 13).in(kI32, {5, 7}, -90, 90).in(kI32, {7}, -9, -1));
  all->push_back(Case("Mod", 13).in(kI64, {5, 7}, -90, 90).in(kI64, {7}, 1, 9).integer("fmod", 1));
  for (const DType d : {kF32, kF64}) all->push_back(Case("Mod", 13).in(d, {5, 7}, -9, 9).in(d, {7}, 1, 4).integer("fmod", 1));
  all->push_back(Case("Mod", 10).in(kI64, {5, 7}, -90, 90).in(kI64, {7}, 1, 9));
  all->push_back(Case("Not", 1).in(DType::kBool, {3, 17}).batch());
  for (const DType d : {kF32, kF64}) all->push_back(Case("IsNaN", 13).in(d, {3, 17}).specials());
  for (const DType d : {kF32, kF64}) all->push_back(Case("IsInf", 10).in(d, {3, 17}).specials().integer("detect_negative", 0));
  for_dtypes(kFloat8s & ~dtype_bit(DType::kFloat8E8M0), [&](DType d) {
    all->push_back(Case("IsNaN", 20).in(d, {3, 17}).specials());
    all->push_back(Case("IsInf", 20).in(d, {3, 17}).specials().flat());
  });
}

void add_bits(Cases* all) {
  for_dtypes(kSignedInts | kUnsignedInts, [&](DType d) {
    for (const char* op : {"BitwiseAnd", "BitwiseOr", "BitwiseXor"}) {
      all->push_back(Case(op, 18).in(d, {3, 7}, -90, 90).in(d, {3, 1}, -90, 90));
    }
    all->push_back(Case("BitwiseNot", 18).in(d, {3, 7}, -90, 90));
  });
  for_dtypes(kUnsignedInts, [&](DType d) {
    for (const char* to : {"LEFT", "RIGHT"}) {
      all->push_back(Case("BitShift", 11).in(d, {3, 7}, 0, 250).in(d, {7}, 0, 12).word("direction", to));
    }
  });
  for_dtypes(kSignedInts | kUnsignedInts, [&](DType d) {
    for (const char* to : {"LEFT", "RIGHT"}) {
      all->push_back(Case("BitShift", 28).in(d, {3, 7}, -120, 120).in(d, {7}, -3, 12).word("direction", to));
    }
  });
  for_dtypes(kFloat8s | kSubByte, [&](DType d) {
    const DType to = dtype_bits(d) == 8 ? DType::kUint8 : dtype_bits(d) == 4 ? DType::kInt4 : DType::kUint2;
    all->push_back(Case("BitCast", 26).in(d, {3, 7}, 0, 90).integer("to", static_cast<std::int64_t>(to)));
  });
  all->push_back(Case("BitCast", 26).in(DType::kComplex64, {3, 7}, 0, 90).integer("to", EVN_DTYPE_FLOAT64));
  all->push_back(Case("BitCast", 26).in(DType::kComplex128, {3, 7}, 0, 90).integer("to", EVN_DTYPE_COMPLEX128));
  for_dtypes(kAnyDtype, [&](DType d) {
    constexpr DType kTo[] = {DType::kUndefined, DType::kInt8, DType::kUint16, DType::kUndefined, kI32};
    const DType to = dtype_size(d) == 8 ? kI64 : kTo[dtype_size(d)];
    all->push_back(Case("BitCast", 26).in(d, {3, 7}, 0, 90).integer("to", static_cast<std::int64_t>(to)));
  });
}

void add_many(Cases* all) {
  for (const char* op : {"Min", "Max", "Sum", "Mean"}) {
    all->push_back(Case(op, 13).x({3, 17}).batch());
    all->push_back(Case(op, 13).x({3, 17}).x({17}).x({3, 1}).batch(5));
    all->push_back(Case(op, 13).x({}).x({3, 17}).x({2, 1, 17}).x({1}));
    all->push_back(Case(op, 13).x({5}).x({5}).x({5}).specials());
  }
  for_dtypes(kNumbers, [&](DType d) {
    all->push_back(Case("Min", 13).in(d, {3, 17}, -9, 9).in(d, {17}, -9, 9).in(d, {3, 1}, -9, 9));
    all->push_back(Case("Max", 13).in(d, {3, 17}, -9, 9).in(d, {17}, -9, 9).in(d, {3, 1}, -9, 9));
  });
}

void add_where(Cases* all) {
  for_dtypes(kMoved, [&](DType d) {
    all->push_back(Case("Where", 16).in(DType::kBool, {3, 17}).in(d, {17}, 1, 90).in(d, {3, 1}, 1, 90));
  });
  all->push_back(Case("Where", 9).in(DType::kBool, {3, 1}).x({3, 17}).x({3, 17}).batch(7));
  all->push_back(Case("Where", 16).in(DType::kBool, {2, 1, 5}).x({1, 3, 1}).x({}));
  all->push_back(Case("Where", 16).in(DType::kBool, {0, 1}).x({1, 3}).x({}));
}

}  // namespace

void add_binary_cases(Cases* all) {
  for (const Binary& b : kBinary) add_binary(b, all);
  add_powers(all);
  add_slopes(all);
  add_modes(all);
  add_bits(all);
  add_many(all);
  add_where(all);
}

}  // namespace evn::conformance
