// Multiply-adds by operator, against counts by hand.
#include "ops/multiply_adds.h"

#include <gtest/gtest.h>

namespace evn::test {
namespace {

double count(const std::string& op, std::vector<Shape> inputs, std::vector<Shape> outputs, std::vector<Attribute> attributes = {},
             const std::string& domain = "") {
  Node node;
  node.op_type = op;
  node.domain = domain;
  node.attributes = std::move(attributes);
  std::vector<TensorDesc> in;
  std::vector<TensorDesc> out;
  for (const Shape& s : inputs) in.push_back({DType::kFloat32, s});
  for (const Shape& s : outputs) out.push_back({DType::kFloat32, s});
  return multiply_adds(node, in, out);
}

TEST(MultiplyAdds, OfConvolutions) {
  EXPECT_EQ(count("Conv", {{2, 4, 9, 9}, {6, 4, 3, 3}}, {{2, 6, 7, 7}}), 2.0 * 6 * 49 * 36);
  EXPECT_EQ(count("Conv", {{2, 4, 9, 9}, {4, 1, 3, 3}}, {{2, 4, 7, 7}}), 2.0 * 4 * 49 * 9) << "depthwise";
  EXPECT_EQ(count("QLinearConv", {{1, 2, 5}, {}, {}, {3, 2, 2}}, {{1, 3, 4}}), 3.0 * 4 * 4);
  EXPECT_EQ(count("ConvTranspose", {{2, 4, 7, 7}, {4, 6, 3, 3}}, {{2, 6, 9, 9}}), 2.0 * 4 * 49 * 54);
  EXPECT_EQ(count("Conv", {{0, 4, 9, 9}, {6, 4, 3, 3}}, {{0, 6, 7, 7}}), 0);
}

TEST(MultiplyAdds, OfProducts) {
  EXPECT_EQ(count("MatMul", {{5, 2, 3}, {3, 7}}, {{5, 2, 7}}), 5.0 * 2 * 3 * 7);
  EXPECT_EQ(count("MatMul", {{3}, {3}}, {{}}), 3);
  EXPECT_EQ(count("Gemm", {{2, 3}, {3, 4}}, {{2, 4}}), 24);
  EXPECT_EQ(count("Gemm", {{3, 2}, {3, 4}}, {{2, 4}}, {{"transA", std::int64_t{1}}}), 24);
  EXPECT_EQ(count("MatMulNBits", {{2, 64}}, {{2, 8}}, {{"K", std::int64_t{64}}, {"N", std::int64_t{8}}}, "com.microsoft"),
            2.0 * 8 * 64);
}

TEST(MultiplyAdds, OfRecurrences) {
  // steps 5, batch 2, inputs 3, hidden 4, one direction
  EXPECT_EQ(count("LSTM", {{5, 2, 3}, {1, 16, 3}, {1, 16, 4}}, {{5, 1, 2, 4}}), 5.0 * 2 * (16 * 3 + 16 * 4));
  EXPECT_EQ(count("GRU", {{5, 2, 3}, {2, 12, 3}, {2, 12, 4}}, {{5, 2, 2, 4}}), 5.0 * 2 * 2 * (12 * 3 + 12 * 4));
  EXPECT_EQ(count("RNN", {{5, 2, 3}, {1, 4, 3}, {1, 4, 4}}, {{5, 1, 2, 4}}), 5.0 * 2 * (4 * 3 + 4 * 4));
}

TEST(MultiplyAdds, OfAttention) {
  // batch 2, heads 3, queries 5, keys 7, head size 4, value size 6
  const double both = 2.0 * 3 * 5 * 7 * 4 + 2.0 * 3 * 5 * 7 * 6;
  EXPECT_EQ(count("Attention", {{2, 3, 5, 4}, {2, 3, 7, 4}, {2, 3, 7, 6}}, {{2, 3, 5, 6}}), both);
  EXPECT_EQ(count("Attention", {{2, 5, 12}, {2, 7, 12}, {2, 7, 18}}, {{2, 5, 18}}), both);
  EXPECT_EQ(count("MultiHeadAttention", {{2, 5, 12}, {2, 7, 12}, {2, 7, 18}}, {{2, 5, 18}}, {}, "com.microsoft"), both);
}

TEST(MultiplyAdds, OfEinsum) {
  const auto einsum = [](const char* equation, std::vector<Shape> in, Shape out) {
    return count("Einsum", std::move(in), {out}, {{"equation", std::string(equation)}});
  };
  EXPECT_EQ(einsum("ij,jk->ik", {{2, 3}, {3, 4}}, {2, 4}), 24);
  EXPECT_EQ(einsum("bij, bjk -> bik", {{5, 2, 3}, {5, 3, 4}}, {5, 2, 4}), 120);
  EXPECT_EQ(einsum("...ij,...jk->...ik", {{5, 2, 3}, {5, 3, 4}}, {5, 2, 4}), 120);
  EXPECT_EQ(einsum("ij->ji", {{2, 3}}, {3, 2}), 0) << "nothing is multiplied";
  EXPECT_EQ(einsum("ijklm,j->i", {{2}, {3}}, {2}), 0) << "an equation that does not fit";
}

TEST(MultiplyAdds, OthersHaveNone) {
  EXPECT_EQ(count("Add", {{2, 3}, {2, 3}}, {{2, 3}}), 0);
  EXPECT_EQ(count("Conv", {{1, 1, 3}, {1, 1, 3}}, {{1, 1, 1}}, {}, "other.domain"), 0);
}

}  // namespace
}  // namespace evn::test
