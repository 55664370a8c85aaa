// The tables as a whole: what holds for every row, and how rows are found.
#include <cmath>
#include <set>

#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

TEST(Registry, EveryRowIsWellFormed) {
  std::set<std::pair<std::string, int>> seen;
  for (const OpFamily* family : op_families()) {
    EXPECT_FALSE(family->ops.empty());
    for (const OpDef& op : family->ops) {
      SCOPED_TRACE(op.name);
      EXPECT_TRUE(seen.insert({std::string(op.domain) + "::" + op.name, op.since}).second) << "two rows since " << op.since;
      EXPECT_GE(op.since, 1);
      EXPECT_LE(op.min_inputs, op.max_inputs);
      EXPECT_LE(op.min_outputs, op.max_outputs);
      EXPECT_NE(op.dtypes, 0u);
      EXPECT_NE(op.infer, nullptr);
      EXPECT_TRUE(op.reference != nullptr || op.host != nullptr);
      EXPECT_TRUE(op.body == nullptr || op.host != nullptr);
      EXPECT_TRUE(op.max_inputs > 0 || op.output_dtype != nullptr);
      EXPECT_TRUE(op.max_inputs >= 32 || op.value_inputs >> op.max_inputs == 0);
      std::set<std::string> names;
      for (const AttributeSpec& a : op.attributes) EXPECT_TRUE(names.insert(a.name).second) << a.name;
    }
  }
  EXPECT_GT(seen.size(), 100u);
}

TEST(Registry, HighestRowNotAboveTheOpsetApplies) {
  EXPECT_EQ(find_op("", "Softmax", 12)->since, 1);
  EXPECT_EQ(find_op("", "Softmax", 13)->since, 13);
  EXPECT_EQ(find_op("", "Softmax", 26)->since, 13);
  EXPECT_EQ(find_op("", "Resize", 9), nullptr);
  EXPECT_TRUE(op_known("", "Resize"));
  EXPECT_FALSE(op_known("", "../../evil.so"));
  EXPECT_EQ(find_op("com.example", "Add", 13), nullptr);
}

TEST(Registry, OperatorsOfOpset7AreThere) {
  for (const char* name : {"Add",
                           "Sub",
                           "Mul",
                           "Div",
                           "Pow",
                           "Min",
                           "Max",
                           "Equal",
                           "Less",
                           "Greater",
                           "And",
                           "Or",
                           "Not",
                           "Sqrt",
                           "Exp",
                           "Log",
                           "Abs",
                           "Neg",
                           "Floor",
                           "Ceil",
                           "Reciprocal",
                           "Sigmoid",
                           "Tanh",
                           "Relu",
                           "LeakyRelu",
                           "HardSigmoid",
                           "Clip",
                           "Identity",
                           "Cast",
                           "Constant",
                           "Shape",
                           "Size",
                           "Gather",
                           "Unsqueeze",
                           "Squeeze",
                           "Reshape",
                           "Flatten",
                           "Transpose",
                           "Concat",
                           "Split",
                           "Slice",
                           "Conv",
                           "ConvTranspose",
                           "BatchNormalization",
                           "GlobalAveragePool",
                           "GlobalMaxPool",
                           "AveragePool",
                           "MaxPool",
                           "Gemm",
                           "MatMul",
                           "Softmax",
                           "LogSoftmax",
                           "ReduceMean",
                           "ReduceSum",
                           "ReduceMax",
                           "ReduceMin",
                           "Upsample",
                           "Pad",
                           "Dropout",
                           "Tile",
                           "ArgMax"}) {
    EXPECT_NE(find_op("", name, 7), nullptr) << name;
  }
}

TEST(Registry, DtypeThatTheReferenceLacksIsUnsupported) {
  const Tensor half = blank(DType::kFloat16, {2});
  EXPECT_EQ(Op("Sqrt", 13).status({half}), EVN_ERROR_UNSUPPORTED);
}

TEST(Attributes, IndexBeyondTheTableIsNotGiven) {
  Op op("Relu", 13);
  EXPECT_FALSE(attr_given(op.node(), 3));
  EXPECT_TRUE(attr_ints(op.node(), 3).empty());
  EXPECT_EQ(attr_tensor(op.node(), 3), nullptr);
  EXPECT_THROW(attr_int(op.node(), 3), Error);
}

TEST(Epilogue, StepsAreAppliedInOrder) {
  Epilogue e;
  ASSERT_TRUE(e.push({EpilogueOpKind::kOffset, 1, 0}));
  ASSERT_TRUE(e.push({EpilogueOpKind::kScale, -2, 0}));
  ASSERT_TRUE(e.push({EpilogueOpKind::kRelu, 0, 0}));
  EXPECT_EQ(apply_epilogue(e, 3), 0);
  EXPECT_EQ(apply_epilogue(e, -3), 4);
}

TEST(Epilogue, EachStepHasItsFormula) {
  EXPECT_EQ(apply_epilogue_op({EpilogueOpKind::kClip, -1, 2}, 5), 2);
  EXPECT_EQ(apply_epilogue_op({EpilogueOpKind::kClip, -1, 2}, -5), -1);
  EXPECT_EQ(apply_epilogue_op({EpilogueOpKind::kLeakyRelu, 0.5f, 0}, -4), -2);
  EXPECT_EQ(apply_epilogue_op({EpilogueOpKind::kHardSigmoid, 0.25f, 0.5f}, 1), 0.75f);
  EXPECT_EQ(apply_epilogue_op({EpilogueOpKind::kHardSwish, 0.25f, 0.5f}, 1), 0.75f);
  EXPECT_EQ(apply_epilogue_op({EpilogueOpKind::kHardSwish, 0.25f, 0.5f}, 8), 8);
  EXPECT_NEAR(apply_epilogue_op({EpilogueOpKind::kSigmoid, 0, 0}, 1), 0.7310586f, 1e-7);
  EXPECT_NEAR(apply_epilogue_op({EpilogueOpKind::kSwish, 2, 0}, 0.5f), 0.3655293f, 1e-7);
  EXPECT_NEAR(apply_epilogue_op({EpilogueOpKind::kGelu, 0, 0}, 1.0f), 0.8413447f, 1e-7);
  EXPECT_NEAR(apply_epilogue_op({EpilogueOpKind::kGeluTanh, 0, 0}, 1.0f), 0.8411920f, 1e-7);
  EXPECT_NEAR(apply_epilogue_op({EpilogueOpKind::kTanh, 0, 0}, 1), 0.7615942f, 1e-7);
  EXPECT_TRUE(std::isnan(apply_epilogue_op({EpilogueOpKind::kRelu, 0, 0}, NAN)));
}

TEST(Epilogue, RunReferenceAppliesItToTheFirstOutput) {
  Op op("Add", 13);
  Node node = op.node();
  node.epilogue.push({EpilogueOpKind::kRelu, 0, 0});
  const Tensor a = f32({2}, {1, -3});
  const Tensor b = f32({2}, {1, 1});
  Tensor y = blank(DType::kFloat32, {2});
  const ConstTensor in[] = {{a.desc, a.bytes.data()}, {b.desc, b.bytes.data()}};
  const MutableTensor out[] = {{y.desc, y.bytes.data()}};
  run_reference({node, in, out});
  EXPECT_EQ(y.floats(), (Floats{2, 0}));
}

TEST(ShapeRules, BroadcastOfUnknownDims) {
  EXPECT_EQ(broadcast_partial({-1, 3}, {1, 1}), (Shape{-1, 3}));
  EXPECT_EQ(broadcast_partial({-1}, {5}), (Shape{5}));
  EXPECT_EQ(broadcast_partial({-1}, {-1}), (Shape{-1}));
  EXPECT_EQ(broadcast_partial({2, 1}, {7}), (Shape{2, 7}));
  EXPECT_EQ(broadcast_partial({0}, {1}), (Shape{0}));
  EXPECT_THROW(broadcast_partial({2}, {3}), Error);
}

}  // namespace
}  // namespace evn::test
