// Reductions, ArgMax and ArgMin.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ops/op_runner.h"

namespace evn::test::reduce_test {
namespace {

const Tensor kTable = f32({2, 3}, {1, 2, 3, 4, 5, 6});

TEST(Reduce, AxesAreAnAttributeAndLaterAnInput) {
  const auto by_attribute = Op("ReduceSum", 11).with("axes", Ints{1}).run({kTable})[0];
  EXPECT_EQ(by_attribute.desc.shape, (Shape{2, 1}));
  EXPECT_EQ(by_attribute.floats(), (Floats{6, 15}));
  const auto by_input = Op("ReduceSum", 13).with("keepdims", 0).run({kTable, i64({-2})})[0];
  EXPECT_EQ(by_input.desc.shape, (Shape{3}));
  EXPECT_EQ(by_input.floats(), (Floats{5, 7, 9}));
}

TEST(Reduce, WithoutAxesItIsOverAllOrWithNoopOverNone) {
  for (const Tensor& axes : {absent(), i64({})}) {
    EXPECT_EQ(Op("ReduceMax", 18).run({kTable, axes})[0].desc.shape, (Shape{1, 1}));
    EXPECT_EQ(Op("ReduceMax", 18).with("keepdims", 0).run({kTable, axes})[0].floats(), (Floats{6}));
    EXPECT_EQ(Op("ReduceSumSquare", 18).with("noop_with_empty_axes", 1).run({kTable, axes})[0].floats(),
              (Floats{1, 4, 9, 16, 25, 36}));
  }
  EXPECT_EQ(Op("ReduceMean", 13).run({kTable})[0].floats(), (Floats{3.5f}));
}

TEST(Reduce, AxesThatAreNotNeighbours) {
  const Tensor x = f32({2, 2, 2}, counting(8));
  EXPECT_EQ(Op("ReduceSum", 11).with("axes", Ints{2, 0}).with("keepdims", 0).run({x})[0].floats(),
            (Floats{0 + 1 + 4 + 5, 2 + 3 + 6 + 7}));
}

TEST(Reduce, EachHasItsFormula) {
  const auto of = [](const char* name) { return Op(name, 13).run({f32({2}, {-3, 4})})[0].floats()[0]; };
  EXPECT_EQ(of("ReduceSum"), 1);
  EXPECT_EQ(of("ReduceMean"), 0.5f);
  EXPECT_EQ(of("ReduceProd"), -12);
  EXPECT_EQ(of("ReduceL1"), 7);
  EXPECT_EQ(of("ReduceL2"), 5);
  EXPECT_EQ(of("ReduceSumSquare"), 25);
  EXPECT_EQ(of("ReduceMax"), 4);
  EXPECT_EQ(of("ReduceMin"), -3);
}

TEST(Reduce, OverNoElements) {
  const auto of = [](const char* name) { return Op(name, 12).with("axes", Ints{1}).run({f32({1, 0}, {})})[0].floats().at(0); };
  EXPECT_EQ(of("ReduceSum"), 0);
  EXPECT_EQ(of("ReduceProd"), 1);
  EXPECT_EQ(of("ReduceMax"), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(of("ReduceMin"), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(of("ReduceMean")));
}

TEST(Reduce, IntegerSumsWrapAndMeansTruncate) {
  const std::int32_t top = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(Op("ReduceSum", 13).run({i32({2}, {top, 1})})[0].values<std::int32_t>()[0], std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(Op("ReduceMean", 13).run({i32({2}, {-3, 0})})[0].values<std::int32_t>()[0], -1);
  EXPECT_EQ(Op("ReduceMean", 13).run({tensor<std::uint64_t>({2}, {3, 6})})[0].values<std::uint64_t>()[0], 4u);
  EXPECT_EQ(Op("ReduceL1", 13).run({i32({2}, {-7, 2})})[0].values<std::int32_t>()[0], 9);
}

TEST(Reduce, NanIsTheExtremeAndBoolsAreOrdered) {
  EXPECT_TRUE(std::isnan(Op("ReduceMax", 13).run({f32({3}, {1, NAN, 3})})[0].floats()[0]));
  EXPECT_TRUE(std::isnan(Op("ReduceMin", 13).run({f32({3}, {NAN, 1, 3})})[0].floats()[0]));
  EXPECT_EQ(bool_values(Op("ReduceMax", 20).run({bools({2}, {0, 1})})[0]), (std::vector<std::uint8_t>{1}));
  EXPECT_EQ(bool_values(Op("ReduceMin", 20).run({bools({2}, {0, 1})})[0]), (std::vector<std::uint8_t>{0}));
}

TEST(Reduce, AxesOutsideTheRankOrTwiceAreInvalid) {
  for (const Ints& axes : {Ints{2}, Ints{-3}, Ints{0, -2}, Ints{std::numeric_limits<std::int64_t>::min()}}) {
    EXPECT_EQ(Op("ReduceSum", 11).with("axes", axes).status({kTable}), EVN_ERROR_INVALID_MODEL);
    EXPECT_EQ(Op("ReduceSum", 13).status({kTable, i64(axes)}), EVN_ERROR_INVALID_MODEL);
  }
  EXPECT_EQ(Op("ReduceSum", 13).status({kTable, f32({1}, {0})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Reduce, UnknownDimsAndUnknownAxes) {
  EXPECT_EQ(Op("ReduceSum", 11).with("axes", Ints{1}).infer({desc({-1, 3})})[0], (Shape{-1, 1}));
  const TensorDesc one = desc({1}, DType::kInt64);
  EXPECT_EQ(Op("ReduceSum", 13).infer({desc({2, 3}), one})[0], (Shape{-1, -1}));
  EXPECT_EQ(Op("ReduceSum", 13).with("keepdims", 0).infer({desc({2, 3}), one})[0], (Shape{-1}));
  const auto open = Op("ReduceSum", 13).with("keepdims", 0).infer({desc({2, 3}), desc({-1}, DType::kInt64)})[0];
  EXPECT_TRUE(InferContext::is_unknown_rank(open));
  EXPECT_THROW(Op("ReduceSum", 13).infer({desc({2, 3}), desc({3}, DType::kInt64)}), Error);
}

TEST(ArgMax, OfEqualOnesTheFirstOrAsAskedTheLast) {
  const Tensor x = f32({4}, {1, 3, 3, 1});
  EXPECT_EQ(Op("ArgMax", 13).run({x})[0].ints(), (Ints{1}));
  EXPECT_EQ(Op("ArgMax", 13).with("select_last_index", 1).run({x})[0].ints(), (Ints{2}));
  EXPECT_EQ(Op("ArgMin", 13).run({x})[0].ints(), (Ints{0}));
  EXPECT_EQ(Op("ArgMin", 13).with("select_last_index", 1).run({x})[0].ints(), (Ints{3}));
}

TEST(ArgMax, AlongAnyAxis) {
  const Tensor x = tensor<std::int8_t>({2, 3}, {1, 9, -4, 5, 2, -3});
  EXPECT_EQ(Op("ArgMax", 11).run({x})[0].ints(), (Ints{1, 0, 1}));
  const auto last = Op("ArgMax", 11).with("axis", -1).with("keepdims", 0).run({x})[0];
  EXPECT_EQ(last.desc.shape, (Shape{2}));
  EXPECT_EQ(last.ints(), (Ints{1, 0}));
}

TEST(ArgMax, NanIsTheExtremeTheFirstOrAsAskedTheLast) {
  EXPECT_EQ(Op("ArgMax", 13).run({f32({4}, {1, NAN, NAN, 9})})[0].ints(), (Ints{1}));
  EXPECT_EQ(Op("ArgMax", 13).with("select_last_index", 1).run({f32({4}, {1, NAN, NAN, 9})})[0].ints(), (Ints{2}));
  EXPECT_EQ(Op("ArgMin", 13).run({f32({3}, {1, NAN, 0})})[0].ints(), (Ints{1}));
}

TEST(ArgMax, AxisMustBeThereAndHaveElements) {
  EXPECT_EQ(Op("ArgMax", 13).with("axis", 2).status({kTable}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("ArgMax", 13).status({f32({}, {1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("ArgMax", 13).with("axis", 1).status({f32({2, 0}, {})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("ArgMax", 13).with("axis", 1).run({f32({0, 2}, {})})[0].desc.shape, (Shape{0, 1}));
  EXPECT_EQ(Op("ArgMax", 13).with("axis", 1).with("keepdims", 0).infer({desc({-1, -1, 4})})[0], (Shape{-1, 4}));
}

// Rows of 5000 elements are reduced in several pieces.
TEST(Reduce, LongLinesAndStridedOnes) {
  constexpr std::int64_t kRows = 3, kLength = 5000;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Floats x;
  Ints whole;
  for (std::int64_t i = 0; i < kRows * kLength; ++i) {
    whole.push_back(i * 7919 % 100'003 - 50'000);
    x.push_back(static_cast<float>(whole.back()) / 700);
  }
  Floats transposed(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) transposed[i % kLength * kRows + i / kLength] = x[i];
  Floats expected;
  for (std::int64_t row = 0; row < kRows; ++row) {
    double sum = 0;
    for (std::int64_t i = 0; i < kLength; ++i)
      sum += std::exp(static_cast<double>(x[static_cast<std::size_t>(row * kLength + i)]) - 71);
    expected.push_back(static_cast<float>(71 + std::log(sum)));
  }
  const auto log_sum_exp = [](const Tensor& t, int axis) {
    return Op("ReduceLogSumExp", 18).with("keepdims", 0).run({t, i64({axis})})[0].floats();
  };
  const Floats y = log_sum_exp(f32({kRows, kLength}, x), 1), z = log_sum_exp(f32({kLength, kRows}, transposed), 0);
  for (std::size_t row = 0; row < expected.size(); ++row) {
    EXPECT_NEAR(y[row], expected[row], 1e-5f * expected[row]);
    EXPECT_EQ(y[row], z[row]);
  }
  x[4999] = kInf, x[5000] = -kInf, x[12'000] = std::nanf(""), x[14'000] = kInf;
  const Floats special = log_sum_exp(f32({kRows, kLength}, x), 1);
  EXPECT_EQ(special[0], kInf);
  EXPECT_NEAR(special[1], expected[1], 1e-5f * expected[1]);
  EXPECT_TRUE(std::isnan(special[2]));
  EXPECT_EQ(log_sum_exp(f32({1, 3000}, Floats(3000, -kInf)), 1), Floats{-kInf});
  const auto most = [&](const char* op, auto pick) {
    const Ints found = Op(op, 18).with("keepdims", 0).run({tensor({kRows, kLength}, whole), i64({1})})[0].ints();
    for (std::int64_t row = 0; row < kRows; ++row) {
      EXPECT_EQ(found[static_cast<std::size_t>(row)], *pick(whole.begin() + row * kLength, whole.begin() + (row + 1) * kLength))
          << op;
    }
  };
  most("ReduceMax", [](auto begin, auto end) { return std::max_element(begin, end); });
  most("ReduceMin", [](auto begin, auto end) { return std::min_element(begin, end); });
}

// x [outer, length, inner] folded along the middle axis, one element after the other.
template <typename T, typename F>
std::vector<T> folded(const std::vector<T>& x, const Shape& s, T first, F&& fold) {
  std::vector<T> y(static_cast<std::size_t>(s[0] * s[2]), first);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto inner = static_cast<std::size_t>(s[2]);
    T& to = y[i / (static_cast<std::size_t>(s[1]) * inner) * inner + i % inner];
    to = fold(to, x[i]);
  }
  return y;
}

template <typename T>
class ReduceIntegers : public testing::Test {};
using Integers = testing::Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t,
                                std::uint64_t>;
TYPED_TEST_SUITE(ReduceIntegers, Integers);

TYPED_TEST(ReduceIntegers, AlongLinesAndColumnsOfAnyLength) {
  using T = TypeParam;
  std::uint64_t seed = 1;
  for (const Shape& s : {Shape{3, 700, 1}, Shape{1, 1, 5}, Shape{2, 37, 3}, Shape{1, 50, 300}, Shape{3, 7, 71}, Shape{5, 130, 1},
                         Shape{1, 3, 600}}) {
    std::vector<T> x(static_cast<std::size_t>(s.elements()));
    for (T& v : x) v = static_cast<T>((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 24);
    const auto run = [&](const char* op) {
      return Op(op, 18).with("keepdims", 0).run({tensor(s, x), i64({1})})[0].template values<T>();
    };
    EXPECT_EQ(run("ReduceMax"), folded(x, s, std::numeric_limits<T>::lowest(), [](T a, T b) { return std::max(a, b); }))
        << s.to_string();
    EXPECT_EQ(run("ReduceMin"), folded(x, s, std::numeric_limits<T>::max(), [](T a, T b) { return std::min(a, b); }))
        << s.to_string();
    if constexpr (sizeof(T) >= 4) {
      using U = std::make_unsigned_t<T>;
      const auto sum = [](T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); };
      const auto square = [](T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b) * static_cast<U>(b)); };
      const auto product = [](T a, T b) { return static_cast<T>(static_cast<U>(a) * static_cast<U>(b)); };
      EXPECT_EQ(run("ReduceSum"), folded(x, s, T{0}, sum)) << s.to_string();
      EXPECT_EQ(run("ReduceSumSquare"), folded(x, s, T{0}, square)) << s.to_string();
      EXPECT_EQ(run("ReduceProd"), folded(x, s, T{1}, product)) << s.to_string();
    }
  }
}

}  // namespace
}  // namespace evn::test::reduce_test
