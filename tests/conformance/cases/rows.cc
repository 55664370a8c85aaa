// Operators that look along axes: normalization, Softmax, reductions, ArgMax and ArgMin.
#include "tests/conformance/case.h"

namespace evn::conformance {
namespace {

void add_batch_norm(Cases* all) {
  for (const Shape& shape :
       {Shape{2, 5}, Shape{1, 1, 1}, Shape{3, 7, 11}, Shape{2, 3, 5, 7}, Shape{2, 17, 33, 9}, Shape{2, 3, 2, 3, 5}}) {
    const Shape c = {shape[1]};
    Case b = Case("BatchNormalization", 14).x(shape).w(c).w(c).w(c).w(c, 0.1, 2);
    if (shape[0] > 1) b.batch();
    all->push_back(b);
  }
  for (const DType d : {kF32, kF64}) {
    all->push_back(Case("BatchNormalization", 15)
                       .in(d, {3, 4, 5})
                       .in(d, {4})
                       .in(d, {4})
                       .in(d, {4})
                       .in(d, {4}, 0.1, 2)
                       .integer("training_mode", 1)
                       .real("momentum", 0.75f)
                       .outputs(3));
  }
  all->push_back(Case("BatchNormalization", 7).x({2, 3, 5}).w({3}).w({3}).w({3}).w({3}, 0.1, 2).real("epsilon", 0.1f));
  all->push_back(Case("BatchNormalization", 9).x({37, 40}).w({40}).w({40}).w({40}).w({40}, 0.1, 2));
  all->push_back(Case("BatchNormalization", 9).x({5, 300, 1, 1}).w({300}).w({300}).w({300}).w({300}, 0.1, 2));
  for (const int opset : {7, 9}) {  // training, which further outputs ask for
    all->push_back(
        Case("BatchNormalization", opset).x({3, 4, 5}).x({4}).x({4}).x({4}).x({4}, 0.1, 2).real("momentum", 0.75f).outputs(5));
  }
  all->push_back(Case("BatchNormalization", 9).x({2, 3, 5}).x({3}).x({3}).x({3}).x({3}, 0.1, 2));
  all->push_back(Case("BatchNormalization", 9).x({2, 3, 11}).specials().w({3}).w({3}).w({3}).w({3}, 0.1, 2));
  all->push_back(Case("BatchNormalization", 9).in(kF64, {2, 3, 5}).in(kF64, {3}).in(kF64, {3}).in(kF64, {3}).in(kF64, {3}, 0.1, 2));
  all->push_back(Case("BatchNormalization", 9).x({2, 3, 0}).w({3}).w({3}).w({3}).w({3}, 0.1, 2));
  all->push_back(Case("BatchNormalization", 9).x({19}).w({1}).w({1}).w({1}).w({1}, 0.1, 2));  // a vector has one channel
  all->push_back(Case("BatchNormalization", 15).x({19}).x({1}).x({1}).x({1}).x({1}, 0.1, 2).integer("training_mode", 1).outputs(3));
}

void add_layer_norm(Cases* all) {
  const auto layer = [] { return Case("LayerNormalization", 17); };
  for (const std::int64_t n : {2, 7, 16, 33, 768}) {
    all->push_back(layer().x({3, 2, n}).w({n}).w({n}).batch());
    all->push_back(layer().x({3, n}).w({n}).batch());
  }
  all->push_back(layer().x({2, 3, 4, 5}).w({4, 5}).w({4, 5}).integer("axis", 2).batch());
  all->push_back(layer().x({2, 3, 4, 5}).w({3, 4, 5}).w({3, 4, 5}).integer("axis", -3).batch());
  all->push_back(layer().x({3, 9}).w({3, 9}).w({3, 9}).integer("axis", 0));
  all->push_back(layer().x({3, 9}).x({9}).x({9}).real("epsilon", 0.1f).batch());
  all->push_back(layer().x({3, 9}).w({1}).w({9}).batch());
  all->push_back(layer().x({3, 9}).w({9}).outputs(3).batch());
  all->push_back(layer().x({200, 333}).w({333}).w({333}));
  all->push_back(layer().x({7, 11}, 900, 1100).w({11}).w({11}));
  all->push_back(layer().x({6, 13}).specials().w({13}).flat());
  all->push_back(layer().x({3, 0}).w({0}));
  all->push_back(layer().in(kF64, {3, 9}).in(kF64, {9}).in(kF64, {9}));
}

void add_softmax(Cases* all) {
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    for (const std::int64_t n : {2, 7, 16, 33, 1000}) all->push_back(Case(op, 13).x({3, 2, n}, -9, 9).batch());
    for (const int axis : {0, 1, 2, -1}) all->push_back(Case(op, 13).x({4, 5, 300}, -9, 9).integer("axis", axis));
    all->push_back(Case(op, 13).x({3, 5, 7, 2}, -9, 9).integer("axis", 1).batch());
    for (const int axis : {1, 2, -1}) all->push_back(Case(op, 1).x({3, 5, 7}, -9, 9).integer("axis", axis).batch());
    all->push_back(Case(op, 11).x({3, 5, 7}, -9, 9).integer("axis", 0));
    all->push_back(Case(op, 13).x({3, 1}).flat());
    all->push_back(Case(op, 13).x({300, 301}, -9, 9).batch(0));
    all->push_back(Case(op, 13).x({3, 33}, 900, 1100));
    all->push_back(Case(op, 13).x({40, 5}).specials());
    all->push_back(Case(op, 13).x({40, 5}).specials().integer("axis", 0).flat());
    all->push_back(Case(op, 13).x({2, 0}));
    all->push_back(Case(op, 13).in(kF64, {3, 7}, -9, 9));
  }
}

struct Reduction {
  const char* op;
  int by_input;  // the opset from which the axes are an input
  std::uint32_t dtypes;
};

constexpr std::uint32_t kWideNumbers =
    kFloats | dtype_bit(DType::kInt32) | dtype_bit(DType::kInt64) | dtype_bit(DType::kUint32) | dtype_bit(DType::kUint64);
constexpr Reduction kReductions[] = {
    {"ReduceSum", 13, kWideNumbers}, {"ReduceMean", 18, kWideNumbers}, {"ReduceMax", 18, kNumbers},
    {"ReduceMin", 18, kNumbers},     {"ReduceProd", 18, kWideNumbers}, {"ReduceSumSquare", 18, kWideNumbers},
    {"ReduceL1", 18, kWideNumbers},  {"ReduceL2", 18, kWideNumbers},
};

void add_reduction(const Reduction& r, Cases* all) {
  const auto old = [&] { return Case(r.op, 11); };
  const auto now = [&] { return Case(r.op, r.by_input); };
  const Shape x = {3, 5, 7, 4};
  for (const Ints& axes : {Ints{0}, Ints{1}, Ints{3}, Ints{2, 3}, Ints{1, 2}, Ints{-1, 0}, Ints{0, 1, 2, 3}, Ints{1, 3}}) {
    all->push_back(old().x(x).ints("axes", axes));
    all->push_back(old().x(x).ints("axes", axes).integer("keepdims", 0));
    all->push_back(now().x(x).list(axes));
  }
  all->push_back(old().x(x));
  all->push_back(now().x(x));
  all->push_back(now().x(x).list({}).integer("noop_with_empty_axes", 1));
  all->push_back(now().x(x).list({}));
  all->push_back(now().x(x).list({1}).variable());
  all->push_back(now().x(x).list({2, 3}).batch());
  all->push_back(now().x({3, 5, 7}).list({1}).batch().integer("keepdims", 0));
  for (const std::int64_t n : {1, 2, 15, 16, 17, 100}) {
    all->push_back(now().x({3, n}).list({1}).batch());
    all->push_back(now().x({n, 3}).list({0}));
  }
  all->push_back(now().x({700, 90}, -1.01, 1.01).list({1}));
  all->push_back(now().x({90, 700}, -1.01, 1.01).list({0}));
  all->push_back(now().x({3, 30}).specials().list({1}).flat());
  all->push_back(now().x({5, 13}).specials().list({0}));
  all->push_back(now().x({}));
  all->push_back(now().x({3, 0}).list({1}).flat());
  for_dtypes(r.dtypes & ~dtype_bit(kF32), [&](DType d) { all->push_back(now().in(d, {5, 7}, -9, 9).list({1})); });
  all->push_back(old().in(kI32, {3, 5, 7}, -9, 9).ints("axes", {1}));
  for (const int noop : {0, 1}) all->push_back(now().in(kI32, {5, 7}, -9, 9).list({}).integer("noop_with_empty_axes", noop).flat());
}

void add_logarithms(Cases* all) {
  for (const char* op : {"ReduceLogSum", "ReduceLogSumExp"}) {
    for_dtypes(kWideNumbers, [&](DType d) { all->push_back(Case(op, 18).in(d, {5, 7}, 20, 90).list({1}).flat()); });
    all->push_back(Case(op, 13).x({3, 5, 7}, 0, 9).ints("axes", {0, 2}).integer("keepdims", 0));
    for (const int noop : {0, 1})
      all->push_back(Case(op, 18).x({4, 9}, 1, 9).list({}).integer("noop_with_empty_axes", noop).flat());
  }
  all->push_back(Case("ReduceLogSumExp", 18).x({4, 9}, -900, 900).list({1}));
}

void add_responses(Cases* all) {
  for (const Shape& shape : {Shape{2, 5, 7, 9}, Shape{1, 3, 20}, Shape{2, 9, 130}, Shape{3, 4}}) {
    all->push_back(Case("LRN", 13).x(shape).integer("size", 5).real("alpha", 0.5f).batch());
    all->push_back(Case("LRN", 1).x(shape).integer("size", 2).real("alpha", 0.7f).real("beta", 0.6f).real("bias", 1.5f));
  }
  all->push_back(Case("LRN", 13).in(kF64, {2, 5, 3}).integer("size", 3));
  for (const DType d : {kF32, kF64}) {
    all->push_back(Case("Hardmax", 13).in(d, {4, 5, 3}).integer("axis", 1));
    all->push_back(Case("Hardmax", 1).in(d, {4, 5, 3}));
  }
}

void add_partial_norms(Cases* all) {
  for (const DType d : {kF32, kF64}) {
    all->push_back(Case("InstanceNormalization", 6).in(d, {2, 3, 4, 5}).in(d, {3}).in(d, {3}).batch());
    all->push_back(Case("GroupNormalization", 18).in(d, {2, 6, 5}).in(d, {3}).in(d, {3}).integer("num_groups", 3).batch());
    all->push_back(Case("GroupNormalization", 21).in(d, {2, 6, 5}).in(d, {6}).in(d, {6}).integer("num_groups", 2).batch());
    all->push_back(Case("MeanVarianceNormalization", 13).in(d, {2, 3, 4, 5}));
    all->push_back(Case("MeanVarianceNormalization", 9).in(d, {2, 3, 4}).ints("axes", {-1}));
    all->push_back(Case("LpNormalization", 1).in(d, {2, 3, 4}).integer("axis", 1).batch());
    all->push_back(Case("LpNormalization", 1).in(d, {2, 3, 4}).integer("p", 1));
    all->push_back(Case("RMSNormalization", 23).in(d, {2, 3, 4}).in(d, {4}).batch());
    all->push_back(Case("RMSNormalization", 23).in(d, {2, 3, 4}).in(d, {4}).integer("stash_type", EVN_DTYPE_FLOAT64).batch());
    all->push_back(Case("GroupNormalization", 21)
                       .in(d, {2, 4, 5})
                       .in(d, {4})
                       .in(d, {4})
                       .integer("num_groups", 2)
                       .integer("stash_type", EVN_DTYPE_FLOAT64)
                       .batch());
    all->push_back(Case("RMSNormalization", 23).in(d, {2, 3, 4}).in(d, {3, 1}).integer("axis", 1).batch());
  }
}

void add_quantization(Cases* all) {
  for (const DType d : {DType::kInt8, DType::kUint8, DType::kInt16, DType::kUint16}) {
    for (const int opset : {10, 13, 19, 23}) {
      all->push_back(Case("QuantizeLinear", opset).x({3, 40}, -9, 9).scalar(kF32, 0.05).scalar(d, 3));
    }
    all->push_back(Case("QuantizeLinear", 13).x({3, 4, 5}, -9, 9).floats({0.1f, 0.2f, 0.3f, 0.4f}).in(d, {4}, 0, 9));
    all->push_back(
        Case("DequantizeLinear", 13).in(d, {3, 4, 5}, -90, 90).floats({0.1f, 0.2f, 0.3f}).in(d, {3}, 0, 9).integer("axis", 0));
  }
  for_dtypes((kFloat8s | kSubByte) & ~dtype_bit(DType::kFloat8E8M0), [&](DType d) {
    all->push_back(Case("QuantizeLinear", 21).x({3, 4, 5}, -3, 3).floats({0.5f, 0.75f, 1, 2}).in(d, {4}, 0, 1));
    all->push_back(Case("QuantizeLinear", 21).x({3, 40}, -900, 900).scalar(kF32, 0.5).scalar(d, 0).integer("saturate", 0));
    for (const int opset : {21, 23}) {
      all->push_back(
          Case("DequantizeLinear", opset).in(d, {3, 4, 5}, -2, 2).floats({0.5f, 0.75f, 1}).in(d, {3}, 0, 1).integer("axis", 0));
    }
  });
  for (const DType scale : {DType::kFloat16, DType::kBfloat16}) {
    all->push_back(Case("DequantizeLinear", 21).in(DType::kInt8, {3, 40}, -90, 90).scalar(scale, 0.5));
  }
  for (const int opset : {10, 13, 21, 23})
    all->push_back(Case("DequantizeLinear", opset).in(kI32, {3, 40}, -90, 90).scalar(kF32, 0.5));
  all->push_back(Case("QuantizeLinear", 21)
                     .x({3, 5}, -9, 9)
                     .x({3, 3}, 0.1, 2)
                     .integer("block_size", 2)
                     .integer("output_dtype", EVN_DTYPE_INT8));
  all->push_back(Case("DequantizeLinear", 21).in(DType::kUint8, {3, 5}, 0, 90).x({3, 3}, 0.1, 2).integer("block_size", 2));
  all->push_back(Case("DynamicQuantizeLinear", 11).x({3, 40}).outputs(3));
  all->push_back(Case("DynamicQuantizeLinear", 11).x({3, 40}, 0, 0).outputs(3).flat());
}

void add_arguments(Cases* all) {
  for (const char* op : {"ArgMax", "ArgMin"}) {
    for (const int axis : {0, 1, 2, -1}) all->push_back(Case(op, 13).x({4, 5, 7}).integer("axis", axis));
    all->push_back(Case(op, 13).x({4, 5, 7}).integer("axis", 1).integer("keepdims", 0).batch());
    all->push_back(Case(op, 13).in(kI32, {9, 9}, 0, 3).integer("axis", 1).integer("select_last_index", 1));
    all->push_back(Case(op, 13).x({9, 17}).specials().integer("axis", 1));
    all->push_back(Case(op, 1).x({4, 30}).integer("axis", 1));
    for_dtypes(kNumbers, [&](DType d) { all->push_back(Case(op, 13).in(d, {9, 30}, -90, 90).integer("axis", 1)); });
  }
}

}  // namespace

void add_row_cases(Cases* all) {
  add_batch_norm(all);
  add_layer_norm(all);
  add_softmax(all);
  for (const Reduction& r : kReductions) add_reduction(r, all);
  for (const char* op : {"ReduceMax", "ReduceMin"}) {
    all->push_back(Case(op, 20).x({5, 7}).list({1}));
    all->push_back(Case(op, 20).in(DType::kBool, {30, 2}).list({1}));
  }
  add_arguments(all);
  add_logarithms(all);
  add_responses(all);
  add_partial_norms(all);
  add_quantization(all);
}

}  // namespace evn::conformance
