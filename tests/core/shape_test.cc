// Shapes, broadcasting, types of values, and the arithmetic that must not overflow.
#include "core/shape.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace evn {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 40;

template <typename F>
evn_status status_of(F&& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.status;
  }
  return EVN_OK;
}

TEST(Shape, CountsElementsOfARangeOfAxes) {
  const Shape s{2, 3, 5};
  EXPECT_EQ(s.elements(), 30);
  EXPECT_EQ(s.elements(1, 3), 15);
  EXPECT_EQ(s.elements(2, 2), 1);
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{4, 0, kHuge}).elements(), 0);
}

TEST(Shape, OverflowAndUnknownDimsAreErrors) {
  EXPECT_EQ(status_of([] { (void)Shape{kHuge, kHuge}.elements(); }), EVN_ERROR_LIMIT);
  EXPECT_EQ(status_of([] { (void)Shape{2, -1}.elements(); }), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of([] { (void)TensorDesc{DType::kFloat64, Shape{std::int64_t{1} << 61}}.size_bytes(); }), EVN_ERROR_LIMIT);
  EXPECT_FALSE((Shape{2, -1}).is_known());
  EXPECT_EQ((Shape{1, 3, -1}).to_string(), "[1,3,?]");
}

TEST(Shape, RankIsLimited) {
  Shape s = Shape::of_rank(kMaxRank, 1);
  EXPECT_EQ(s.rank(), kMaxRank);
  EXPECT_EQ(status_of([&] { s.push_back(1); }), EVN_ERROR_LIMIT);
  const std::vector<std::int64_t> dims(kMaxRank + 1, 1);
  EXPECT_EQ(status_of([&] { (void)Shape(std::span<const std::int64_t>(dims)); }), EVN_ERROR_LIMIT);
}

TEST(Shape, EqualMeansRankAndDims) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{2, 3, 1}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{3, 2}));
}

TEST(Shape, AxesCountFromBothEnds) {
  EXPECT_EQ(normalize_axis(0, 3), 0);
  EXPECT_EQ(normalize_axis(-1, 3), 2);
  EXPECT_EQ(status_of([] { (void)normalize_axis(3, 3); }), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of([] { (void)normalize_axis(-4, 3); }), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of([] { (void)normalize_axis(INT64_MIN, 3); }), EVN_ERROR_INVALID_MODEL);
}

TEST(Shape, StridesAreRowMajor) {
  std::int64_t strides[3];
  row_major_strides(Shape{2, 3, 5}, strides);
  EXPECT_EQ(strides[0], 15);
  EXPECT_EQ(strides[1], 5);
  EXPECT_EQ(strides[2], 1);
}

TEST(Shape, BroadcastsAsNumPyDoes) {
  EXPECT_EQ(broadcast_shapes(Shape{3, 1}, Shape{2, 1, 5}), (Shape{2, 3, 5}));
  EXPECT_EQ(broadcast_shapes(Shape{}, Shape{4}), (Shape{4}));
  EXPECT_EQ(broadcast_shapes(Shape{1}, Shape{0}), (Shape{0}));
  EXPECT_EQ(status_of([] { (void)broadcast_shapes(Shape{2}, Shape{3}); }), EVN_ERROR_INVALID_ARGUMENT);
}

TEST(Wraps, TypesAreWrittenAndReadAsOnnxDoes) {
  for (const char* text : {"tensor(float32)", "seq(tensor(int64))", "optional(seq(tensor(uint8)))", "map(string,tensor(float32))",
                           "seq(map(int64,tensor(float32)))"}) {
    EXPECT_EQ(parse_type(text).type_string(), text);
  }
  EXPECT_EQ(parse_type("tensor(float)").dtype, DType::kFloat32);
  EXPECT_EQ(parse_type("tensor(double)").dtype, DType::kFloat64);
  for (const char* text : {"", "tensor", "tensor(", "tensor(float32", "tensor(float32))", "seq()", "seq(tensor(float33))",
                           "map(float,tensor(int8))"}) {
    EXPECT_EQ(status_of([&] { (void)parse_type(text); }), EVN_ERROR_INVALID_ARGUMENT) << text;
  }
}

TEST(Wraps, DepthIsLimited) {
  Wraps w;
  for (int i = 0; i < Wraps::kMaxDepth; ++i) w = w.in(Wrap::kSequence);
  EXPECT_EQ(status_of([&] { (void)w.in(Wrap::kSequence); }), EVN_ERROR_LIMIT);
  for (int i = 0; i < Wraps::kMaxDepth; ++i) {
    EXPECT_EQ(w.outer(), Wrap::kSequence);
    w = w.inside();
  }
  EXPECT_FALSE(w);
}

}  // namespace
}  // namespace evn
