// Constants that are dequantized in blocks of k become the weights of MatMulNBits.
#include <gtest/gtest.h>

#include "tests/graph/passes/qdq_builder.h"

namespace evn::test {
namespace {

struct Case {
  DType dtype;
  std::int64_t k = 64, n = 5, block = 32;
  bool zeros = false, turned = false;  // turned: Gemm with transB
};

class BlockBuilder : public QdqBuilder {
 public:
  BlockBuilder() : QdqBuilder(DType::kUint8, 21) {}

  ValueId drawn(const char* name, DType dtype, Shape shape) {
    void* bytes = nullptr;
    std::shared_ptr<Weight> weight = make_weight({dtype, shape}, nullptr, &bytes);
    Random random(graph().values.size() + 5);
    for (std::size_t i = 0; i < weight->size_bytes; ++i)
      static_cast<std::uint8_t*>(bytes)[i] = static_cast<std::uint8_t>(random.next() >> 24);
    const ValueId v = constant<std::uint8_t>(name, Shape{}, {0});
    Value& value = graph().values[static_cast<std::size_t>(v)];
    value.dtype = dtype;
    value.shape = shape;
    value.constant = std::move(weight);
    return v;
  }

  ValueId blocks_of(const Case& c) {
    const std::int64_t blocks = (c.k + c.block - 1) / c.block;
    const Shape numbers = c.turned ? Shape{c.n, blocks} : Shape{blocks, c.n};
    std::vector<float> scales(static_cast<std::size_t>(numbers.elements()));
    Random random(3);
    for (float& s : scales) s = random.uniform(0.01f, 0.1f);
    std::vector<ValueId> inputs{drawn("w", c.dtype, c.turned ? Shape{c.n, c.k} : Shape{c.k, c.n}),
                                constant<float>("scales", numbers, scales)};
    if (c.zeros) inputs.push_back(drawn("zeros", c.dtype, numbers));
    return node("DequantizeLinear", inputs, {{"axis", std::int64_t{c.turned ? 1 : 0}}, {"block_size", c.block}});
  }
};

TEST(FuseBlockWeights, MatMulAndGemmOfAllTypes) {
  for (const DType dtype : {DType::kInt8, DType::kUint8, DType::kInt4, DType::kUint4}) {
    for (const bool zeros : {false, true}) {
      for (const bool turned : {false, true}) {
        for (const std::int64_t k : {64, 70}) {
          SCOPED_TRACE(dtype_name(dtype));
          BlockBuilder b;
          const ValueId x = b.input("x", Shape{3, k}), w = b.blocks_of({dtype, k, 5, 32, zeros, turned});
          if (turned) {
            b.output(b.node("Gemm", {x, w, b.constant<float>("c", Shape{5}, {1, 2, 3, 4, 5})}, {{"transB", std::int64_t{1}}}));
          } else {
            b.output(b.node("MatMul", {x, w}));
          }
          const Graph g = b.optimized();
          ASSERT_EQ(g.nodes.size(), 1u);
          EXPECT_EQ(g.nodes[0].op_type, "MatMulNBits");
          b.expect_near(g);
        }
      }
    }
  }
}

TEST(FuseBlockWeights, TakesTheBiasAndWhatFollows) {
  BlockBuilder b;
  const ValueId y = b.node("MatMul", {b.input("x", Shape{2, 3, 64}), b.blocks_of({DType::kInt4})});
  b.output(b.node("Relu", {b.node("Add", {b.constant<float>("c", Shape{5}, {1, 2, 3, 4, 5}), y})}));
  const Graph g = b.optimized();
  ASSERT_EQ(g.nodes.size(), 1u);
  EXPECT_EQ(g.nodes[0].op_type, "MatMulNBits");
  EXPECT_EQ(g.nodes[0].inputs.size(), 6u);
  EXPECT_EQ(g.nodes[0].epilogue.count, 1);
  b.expect_near(g);
}

TEST(FuseBlockWeights, TwoProductsShareOneWeight) {
  BlockBuilder b;
  const ValueId w = b.blocks_of({DType::kInt8});
  b.output(b.node("MatMul", {b.input("x", Shape{2, 64}), w}));
  b.output(b.node("MatMul", {b.input("y", Shape{64}), w}));
  const Graph g = b.optimized();
  ASSERT_EQ(g.nodes.size(), 2u);
  EXPECT_EQ(g.nodes[0].inputs[1], g.nodes[1].inputs[1]);
  b.expect_near(g);
}

TEST(FuseBlockWeights, OtherBlocksStay) {
  for (const Case& c : {Case{DType::kInt8, 64, 5, 8}, Case{DType::kInt8, 72, 5, 24}, Case{DType::kInt8, 20, 5, 64}}) {
    BlockBuilder b;
    b.output(b.node("MatMul", {b.input("x", Shape{2, c.k}), b.blocks_of(c)}));
    const Graph g = b.optimized();
    EXPECT_EQ(count_op(g, "MatMulNBits"), 0) << c.block;
    b.expect_near(g);
  }
  BlockBuilder b;  // along the columns
  b.output(b.node("MatMul", {b.input("x", Shape{2, 5}), b.blocks_of({DType::kInt8, 64, 5, 32, false, true})}));
  const Graph g = b.optimized();
  EXPECT_EQ(count_op(g, "MatMulNBits"), 0);
  b.expect_near(g);
}

}  // namespace
}  // namespace evn::test
