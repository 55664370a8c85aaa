// What picks and places elements by indices or conditions: GatherElements, GatherND, the scatters, OneHot, TopK, NonZero, Compress.
#include <limits>

#include "ops/infra/numeric.h"
#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

const Tensor kGrid = f32({2, 3}, {1, 2, 3, 4, 5, 6});

Tensor i64_of(const Shape& shape, const Ints& values) { return tensor<std::int64_t>(shape, values); }

TEST(GatherElements, PicksAlongTheAxis) {
  const auto y = Op("GatherElements", 13).with("axis", 1).run({kGrid, i64_of({2, 2}, {0, -1, 1, 1})});
  EXPECT_EQ(y[0].floats(), (Floats{1, 3, 5, 5}));
  EXPECT_EQ(Op("GatherElements", 13).run({kGrid, i64_of({1, 2}, {1, 0})})[0].floats(), (Floats{4, 2}));
}

TEST(GatherElements, IndicesMustFit) {
  EXPECT_EQ(Op("GatherElements", 13).status({kGrid, i64_of({1, 2}, {2, 0})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("GatherElements", 13).status({kGrid, i64_of({1, 4}, {0, 0, 0, 0})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("GatherElements", 13).status({kGrid, i64({0})}), EVN_ERROR_INVALID_MODEL);
}

TEST(GatherNd, LastAxisOfTheIndicesIsAPlace) {
  EXPECT_EQ(Op("GatherND", 13).run({kGrid, i64_of({2, 2}, {0, 2, -1, 0})})[0].floats(), (Floats{3, 4}));
  EXPECT_EQ(Op("GatherND", 13).run({kGrid, i64_of({1, 1}, {1})})[0].floats(), (Floats{4, 5, 6}));
  const auto y = Op("GatherND", 13).with("batch_dims", 1).run({kGrid, i64_of({2, 1}, {2, 0})});
  EXPECT_EQ(y[0].floats(), (Floats{3, 4}));
}

TEST(GatherNd, PlacesMustFit) {
  EXPECT_EQ(Op("GatherND", 13).status({kGrid, i64_of({1, 2}, {0, 3})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("GatherND", 13).status({kGrid, i64_of({1, 3}, {0, 0, 0})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("GatherND", 13).with("batch_dims", 2).status({kGrid, i64_of({2, 3, 1}, {0, 0, 0, 0, 0, 0})}),
            EVN_ERROR_INVALID_MODEL);
  EXPECT_TRUE(InferContext::is_unknown_rank(Op("GatherND", 13).infer({desc({2, 3}), desc({2, -1}, DType::kInt64)})[0]));
}

TEST(ScatterElements, PutsUpdatesInTheirOrder) {
  const Tensor indices = i64_of({1, 3}, {1, 0, 1});
  const Tensor updates = f32({1, 3}, {10, 20, 30});
  EXPECT_EQ(Op("ScatterElements", 18).run({kGrid, indices, updates})[0].floats(), (Floats{1, 20, 3, 10, 5, 30}));
  const Tensor twice = i64_of({2, 2}, {0, 0, -1, 2});
  const auto sum =
      Op("ScatterElements", 18).with("axis", 1).with("reduction", "add").run({kGrid, twice, f32({2, 2}, {10, 20, 30, 40})});
  EXPECT_EQ(sum[0].floats(), (Floats{31, 2, 3, 4, 5, 76}));
}

TEST(ScatterElements, HalvesAreReducedToo) {
  const auto half = [](double x) { return Float16::from(x); };
  const Tensor x = tensor<Float16>({2}, {half(1), half(2048)});
  const Tensor updates = tensor<Float16>({3}, {half(0.5), half(1), half(1)});
  const auto y = Op("ScatterElements", 18).with("reduction", "add").run({x, i64_of({3}, {0, 1, 1}), updates});
  const auto sums = y[0].values<Float16>();
  EXPECT_EQ(sums[0].value(), 1.5);
  EXPECT_EQ(sums[1].value(), 2048);  // rounded each time
}

TEST(ScatterElements, ReductionAndIndicesAreChecked) {
  const Tensor one = f32({1, 1}, {9});
  EXPECT_EQ(Op("ScatterElements", 18).with("reduction", "mean").status({kGrid, i64_of({1, 1}, {0}), one}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("ScatterElements", 16).with("reduction", "min").status({kGrid, i64_of({1, 1}, {0}), one}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("ScatterElements", 18).status({kGrid, i64_of({1, 1}, {-3}), one}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("ScatterElements", 18).status({kGrid, i64_of({1, 1}, {0}), f32({1, 2}, {1, 2})}), EVN_ERROR_INVALID_MODEL);
}

TEST(ScatterNd, PutsBlocksAtPlaces) {
  EXPECT_EQ(Op("ScatterND", 18).run({kGrid, i64_of({1, 1}, {-1}), f32({1, 3}, {7, 8, 9})})[0].floats(), (Floats{1, 2, 3, 7, 8, 9}));
  const auto top = Op("ScatterND", 18).with("reduction", "max").run({kGrid, i64_of({2, 2}, {0, 0, 0, 0}), f32({2}, {7, 5})});
  EXPECT_EQ(top[0].floats(), (Floats{7, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Op("ScatterND", 18).status({kGrid, i64_of({1, 1}, {2}), f32({1, 3}, {7, 8, 9})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("ScatterND", 18).status({kGrid, i64_of({1, 1}, {0}), f32({1, 2}, {7, 8})}), EVN_ERROR_INVALID_MODEL);
}

TEST(ScatterNd, ManyRows) {
  constexpr std::int64_t kRows = 700;
  Ints at;
  Floats updates, expected(30 * 20);
  for (std::int64_t i = 0; i < kRows; ++i) {
    const std::int64_t a = i * 7 % 30, b = i * 3 % 20;
    at.insert(at.end(), {i % 2 == 0 ? a : a - 30, i % 3 == 0 ? b - 20 : b});
    updates.push_back(static_cast<float>(i));
    expected[static_cast<std::size_t>(a * 20 + b)] = static_cast<float>(i);  // the last one stays
  }
  const Floats zeros(30 * 20);
  EXPECT_EQ(Op("ScatterND", 18).run({f32({30, 20}, zeros), i64_of({kRows, 2}, at), f32({kRows}, updates)})[0].floats(), expected);
  Ints outside = at;
  outside[600] = 30;
  EXPECT_EQ(Op("ScatterND", 18).status({f32({30, 20}, zeros), i64_of({kRows, 2}, outside), f32({kRows}, updates)}),
            EVN_ERROR_INVALID_ARGUMENT);
}

TEST(OneHot, IndexOutsideTheDepthIsAnOffRow) {
  const auto y = Op("OneHot", 11).run({i64({1, -1, 3}), i64({3}), f32({2}, {0, 5})});
  EXPECT_EQ(y[0].desc.shape, (Shape{3, 3}));
  EXPECT_EQ(y[0].floats(), (Floats{0, 5, 0, 0, 0, 5, 0, 0, 0}));
  EXPECT_EQ(Op("OneHot", 9).run({i64({1, -1, 3}), i64({3}), f32({2}, {0, 5})})[0].floats(), y[0].floats());
  EXPECT_EQ(Op("OneHot", 11).status({i64({1}), i64({-3}), f32({2}, {0, 5})}), EVN_ERROR_INVALID_ARGUMENT);
}

TEST(TopK, EqualElementsKeepTheirOrder) {
  const Tensor x = f32({5}, {3, 1, 3, std::numeric_limits<float>::quiet_NaN(), 0});
  const auto y = Op("TopK", 11).outputs(2).run({x, i64({3})});
  EXPECT_EQ(y[1].ints(), (Ints{3, 0, 2}));
  EXPECT_EQ(Op("TopK", 11).with("largest", 0).outputs(2).run({x, i64({2})})[0].floats(), (Floats{0, 1}));
  EXPECT_EQ(Op("TopK", 11).outputs(2).status({x, i64({6})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("TopK", 11).outputs(2).status({x, i64({-1})}), EVN_ERROR_INVALID_ARGUMENT);
}

TEST(NonZero, GivesCoordinatesInColumns) {
  const auto y = Op("NonZero", 13).run({f32({2, 2}, {1, 0, -0.0f, 3})});
  EXPECT_EQ(y[0].desc.shape, (Shape{2, 2}));
  EXPECT_EQ(y[0].ints(), (Ints{0, 1, 0, 1}));
  EXPECT_EQ(Op("NonZero", 13).run({f32({2, 0}, {})})[0].desc.shape, (Shape{2, 0}));
}

TEST(Compress, ConditionMayBeShorterButNotTrueBeyond) {
  EXPECT_EQ(Op("Compress", 11).with("axis", 1).run({kGrid, bools({2}, {0, 1})})[0].floats(), (Floats{2, 5}));
  EXPECT_EQ(Op("Compress", 11).run({kGrid, bools({4}, {0, 1, 0, 1})})[0].floats(), (Floats{2, 4}));
  EXPECT_EQ(Op("Compress", 11).with("axis", 0).status({kGrid, bools({3}, {0, 0, 1})}), EVN_ERROR_INVALID_ARGUMENT);
}

TEST(Range, CountsTowardsTheLimit) {
  const auto range = [](std::int64_t a, std::int64_t b, std::int64_t d) {
    return Op("Range", 11).run({i64_of({}, {a}), i64_of({}, {b}), i64_of({}, {d})})[0].ints();
  };
  EXPECT_EQ(range(3, 9, 3), (Ints{3, 6}));
  EXPECT_EQ(range(10, 4, -2), (Ints{10, 8, 6}));
  EXPECT_EQ(range(3, 3, 1), Ints{});
  EXPECT_EQ(Op("Range", 11).run({f32({}, {1}), f32({}, {2}), f32({}, {0.4f})})[0].floats(), (Floats{1, 1.4f, 1.8f}));
}

TEST(Range, HostileBoundsAreErrors) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto status = [](const Tensor& a, const Tensor& b, const Tensor& d) { return Op("Range", 11).status({a, b, d}); };
  EXPECT_EQ(status(i64_of({}, {0}), i64_of({}, {5}), i64_of({}, {0})), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(i64_of({}, {-kMost}), i64_of({}, {kMost}), i64_of({}, {1})), EVN_ERROR_LIMIT);
  EXPECT_EQ(status(f32({}, {0}), f32({}, {std::numeric_limits<float>::quiet_NaN()}), f32({}, {1})), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(f32({}, {0}), f32({}, {1e30f}), f32({}, {1e-30f})), EVN_ERROR_LIMIT);
  EXPECT_EQ(Op("Range", 11).infer({desc({}), desc({}), desc({})})[0], (Shape{-1}));
}

TEST(CumSum, ExclusiveAndReverse) {
  const Tensor x = f32({3}, {1, 2, 4});
  EXPECT_EQ(Op("CumSum", 14).run({x, i64_of({}, {0})})[0].floats(), (Floats{1, 3, 7}));
  EXPECT_EQ(Op("CumSum", 14).with("exclusive", 1).with("reverse", 1).run({x, i64_of({}, {-1})})[0].floats(), (Floats{6, 4, 0}));
  EXPECT_EQ(Op("CumProd", 26).run({x, i64_of({}, {0})})[0].floats(), (Floats{1, 2, 8}));
  EXPECT_EQ(Op("CumSum", 14).status({x, i64_of({}, {1})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Trilu, KeepsATriangle) {
  EXPECT_EQ(Op("Trilu", 14).run({kGrid})[0].floats(), (Floats{1, 2, 3, 0, 5, 6}));
  const Tensor far = i64_of({}, {std::numeric_limits<std::int64_t>::max()});
  EXPECT_EQ(Op("Trilu", 14).run({kGrid, far})[0].floats(), Floats(6, 0));
  EXPECT_EQ(Op("EyeLike", 9).with("k", 1).run({kGrid})[0].floats(), (Floats{0, 1, 0, 0, 0, 1}));
}

TEST(DepthToSpace, UndoesSpaceToDepth) {
  const Tensor x = f32({1, 4, 1, 1}, {1, 2, 3, 4});
  const auto y = Op("DepthToSpace", 13).with("blocksize", 2).run({x});
  EXPECT_EQ(y[0].desc.shape, (Shape{1, 1, 2, 2}));
  EXPECT_EQ(y[0].floats(), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(Op("SpaceToDepth", 13).with("blocksize", 2).run({y[0]})[0].floats(), x.floats());
  EXPECT_EQ(Op("DepthToSpace", 13).with("blocksize", 3).status({x}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("DepthToSpace", 13).with("blocksize", 0).status({x}), EVN_ERROR_INVALID_MODEL);
}

TEST(ReverseSequence, OnlyTheFirstStepsAreReversed) {
  const Tensor x = f32({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Op("ReverseSequence", 10).run({x, i64({3, 2})})[0].floats(), (Floats{5, 4, 3, 2, 1, 6}));
  EXPECT_EQ(Op("ReverseSequence", 10).status({x, i64({4, 2})}), EVN_ERROR_INVALID_ARGUMENT);
}

// 0, 1, 2, ... scrambled.
Ints scrambled(std::int64_t count, std::int64_t low, std::int64_t high) {
  Ints v;
  for (std::int64_t i = 0; i < count; ++i) v.push_back(low + i * 7919 % (high - low));
  return v;
}

TEST(GatherElements, LongLinesOfEitherIndexTypeAreLikeShortOnes) {
  const Floats x = counting(2 * 700 * 3);
  const Ints at = scrambled(2 * 3000 * 2, -700, 700);
  const std::vector<std::int32_t> narrow(at.begin(), at.end());
  const Tensor in = f32({2, 700, 3}, x);
  const Floats y = Op("GatherElements", 13).with("axis", 1).run({in, i64_of({2, 3000, 2}, at)})[0].floats();
  EXPECT_EQ(Op("GatherElements", 13).with("axis", 1).run({in, i32({2, 3000, 2}, narrow)})[0].floats(), y);
  for (std::int64_t i = 0; i < 2 * 3000 * 2; ++i) {
    const std::int64_t index = (at[static_cast<std::size_t>(i)] + 700) % 700;
    ASSERT_EQ(y[static_cast<std::size_t>(i)], static_cast<float>((i / 6000 * 700 + index) * 3 + i % 2));
  }
  // And as the targets of a scatter, of which the last to a place stays.
  const Floats z =
      Op("ScatterElements", 18).with("axis", 1).run({in, i64_of({2, 3000, 2}, at), f32({2, 3000, 2}, counting(12000))})[0].floats();
  Floats expected = x;
  for (std::int64_t i = 0; i < 2 * 3000 * 2; ++i) {
    const std::int64_t index = (at[static_cast<std::size_t>(i)] + 700) % 700;
    expected[static_cast<std::size_t>((i / 6000 * 700 + index) * 3 + i % 2)] = static_cast<float>(i);
  }
  EXPECT_EQ(z, expected);
}

TEST(OneHot, AlongAnyAxisOfAnyValues) {
  const Ints at = scrambled(2 * 3, -6, 6);
  const auto y = Op("OneHot", 11).with("axis", 1).run({i64_of({2, 3}, at), i64({5}), f32({2}, {0.5f, 2})})[0].floats();
  for (std::int64_t i = 0; i < 2 * 5 * 3; ++i) {
    const std::int64_t index = at[static_cast<std::size_t>(i / 15 * 3 + i % 3)];
    const bool is_on = (index < 0 ? index + 5 : index) == i / 3 % 5;
    ASSERT_EQ(y[static_cast<std::size_t>(i)], is_on ? 2 : 0.5f) << i;
  }
}

TEST(CumSum, AlongAnyAxisEitherWay) {
  const Floats x = counting(2 * 4 * 3);
  for (const std::int64_t axis : {0, 1, 2}) {
    const std::int64_t dims[] = {2, 4, 3}, steps[] = {12, 3, 1};
    for (const std::int64_t exclusive : {0, 1}) {
      for (const std::int64_t reverse : {0, 1}) {
        const Floats y = Op("CumSum", 14)
                             .with("exclusive", exclusive)
                             .with("reverse", reverse)
                             .run({f32({2, 4, 3}, x), i64_of({}, {axis})})[0]
                             .floats();
        for (std::int64_t i = 0; i < 24; ++i) {
          const std::int64_t place = i / steps[axis] % dims[axis];
          float sum = 0;
          for (std::int64_t n = 0; n < dims[axis]; ++n) {
            const bool is_in = (reverse != 0 ? n > place : n < place) || (n == place && exclusive == 0);
            if (is_in) sum += x[static_cast<std::size_t>(i + (n - place) * steps[axis])];
          }
          ASSERT_EQ(y[static_cast<std::size_t>(i)], sum) << axis << exclusive << reverse << i;
        }
      }
    }
  }
}

TEST(Range, LongOnesWrapAsShortOnesDo) {
  const auto y =
      Op("Range", 11).run({tensor<std::int16_t>({}, {-32000}), tensor<std::int16_t>({}, {32000}), tensor<std::int16_t>({}, {3})});
  const auto v = y[0].values<std::int16_t>();
  ASSERT_EQ(v.size(), 21334u);
  for (std::size_t i = 0; i < v.size(); ++i) ASSERT_EQ(v[i], static_cast<std::int16_t>(-32000 + 3 * static_cast<int>(i)));
}

}  // namespace
}  // namespace evn::test
