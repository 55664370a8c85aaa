// TopK, Unique, ArgMax, ArgMin and Hardmax against plain ways to say the same, over lines of many lengths and kinds.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

template <typename T>
bool is_nan(T x) {
  return x != x;
}

// NaN is above all numbers.
template <typename T>
bool is_less(T a, T b) {
  return is_nan(a) || is_nan(b) ? !is_nan(a) && is_nan(b) : a < b;
}

// Numbers of one of some kinds: few or many values, ascending, descending, with special ones.
template <typename T>
std::vector<T> line(int kind, std::int64_t length, std::mt19937_64& random) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> v(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < v.size(); ++i) {
    if constexpr (std::is_floating_point_v<T>) v[i] = std::normal_distribution<T>(0, kind == 1 ? T(1e30) : T(3))(random);
    else v[i] = static_cast<T>(random());
    if (kind == 2) v[i] = static_cast<T>(random() % 5);
    if (kind == 3) v[i] = static_cast<T>(i * 100 / v.size());
    if (kind == 4) v[i] = static_cast<T>((v.size() - i) * 100 / v.size());
    if (kind != 5) continue;
    const T specials[] = {T(-0.0), T(0), Limits::quiet_NaN(), Limits::infinity(), Limits::lowest(), Limits::max(), T(1)};
    v[i] = specials[random() % std::size(specials)];
  }
  return v;
}

// Calls f(x, rows, length, columns) for tensors of that shape.
template <typename T, typename F>
void for_tensors(F&& f) {
  std::mt19937_64 random(7);
  for (int kind = 0; kind < 6; ++kind) {
    for (const std::int64_t length : {1, 2, 15, 16, 17, 33, 80, 300, 1000, 3000}) {
      for (const auto& [rows, columns] : {std::pair{1, 1}, {3, 1}, {2, 3}, {1, 37}}) {
        if (length * columns > 6000) continue;
        SCOPED_TRACE(testing::Message() << dtype_name(kDTypeOf<T>) << ", kind " << kind << ", " << rows << "x" << length << "x"
                                        << columns);
        f(line<T>(kind, rows * length * columns, random), rows, length, columns);
      }
    }
  }
}

template <typename T>
class Order : public testing::Test {};
using Types = testing::Types<float, double, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t,
                             std::int64_t, std::uint64_t>;
TYPED_TEST_SUITE(Order, Types);

// The places of a line in order, from x[begin] on.
template <typename T>
Ints places(const std::vector<T>& x, std::int64_t begin, std::int64_t length, std::int64_t step, bool largest) {
  Ints order(static_cast<std::size_t>(length));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
    const T a = x[static_cast<std::size_t>(begin + i * step)], b = x[static_cast<std::size_t>(begin + j * step)];
    return largest ? is_less(b, a) : is_less(a, b);
  });
  return order;
}

TYPED_TEST(Order, TopKTakesTheFirstOfASortedLine) {
  for_tensors<TypeParam>([](const auto& x, std::int64_t rows, std::int64_t length, std::int64_t columns) {
    for (const std::int64_t k : {std::int64_t{1}, std::int64_t{5}, length / 8, length / 3, length}) {
      if (k == 0 || k > length) continue;
      for (const bool largest : {true, false}) {
        const auto y = Op("TopK", 11)
                           .with("axis", 1)
                           .with("largest", largest ? 1 : 0)
                           .outputs(2)
                           .run({tensor({rows, length, columns}, x), i64({k})});
        const Ints at = y[1].ints();
        const auto values = y[0].template values<TypeParam>();
        for (std::int64_t row = 0; row < rows; ++row) {
          for (std::int64_t column = 0; column < columns; ++column) {
            const std::int64_t begin = row * length * columns + column;
            const Ints order = places(x, begin, length, columns, largest);
            for (std::int64_t n = 0; n < k; ++n) {
              const auto to = static_cast<std::size_t>((row * k + n) * columns + column);
              const std::int64_t place = order[static_cast<std::size_t>(n)];
              ASSERT_EQ(at[to], place) << "k " << k << ", largest " << largest << ", n " << n;
              const TypeParam expected = x[static_cast<std::size_t>(begin + place * columns)];
              ASSERT_TRUE(values[to] == expected || (is_nan(values[to]) && is_nan(expected)));
            }
          }
        }
      }
    }
  });
}

TYPED_TEST(Order, ArgMaxAndArgMinFindTheFirstOrTheLastExtreme) {
  for_tensors<TypeParam>([](const auto& x, std::int64_t rows, std::int64_t length, std::int64_t columns) {
    for (const bool max : {true, false}) {
      for (const bool last : {false, true}) {
        const auto y = Op(max ? "ArgMax" : "ArgMin", 13)
                           .with("axis", 1)
                           .with("select_last_index", last ? 1 : 0)
                           .run({tensor({rows, length, columns}, x)});
        const Ints at = y[0].ints();
        for (std::size_t i = 0; i < at.size(); ++i) {
          const auto step = static_cast<std::size_t>(columns);
          const std::size_t begin = i / step * static_cast<std::size_t>(length) * step + i % step;
          std::size_t best = 0;
          for (std::size_t n = 1; n < static_cast<std::size_t>(length); ++n) {
            const TypeParam a = x[begin + n * step], b = x[begin + best * step];
            const bool above = is_nan(a) || is_nan(b) ? is_nan(a) && !is_nan(b) : max ? a > b : a < b;
            if (above || (last && (a == b || (is_nan(a) && is_nan(b))))) best = n;
          }
          ASSERT_EQ(at[i], static_cast<std::int64_t>(best)) << "max " << max << ", last " << last;
        }
      }
    }
  });
}

TYPED_TEST(Order, UniqueGivesEachElementOnce) {
  for_tensors<TypeParam>([](const auto& x, std::int64_t, std::int64_t, std::int64_t) {
    const auto count = static_cast<std::int64_t>(x.size());
    const Ints order = places(x, 0, count, 1, false);
    Ints first, inverse(x.size()), counts;
    for (std::size_t n = 0; n < order.size(); ++n) {
      const auto at = static_cast<std::size_t>(order[n]);
      if (n == 0 || is_less(x[static_cast<std::size_t>(order[n - 1])], x[at])) {
        first.push_back(order[n]);
        counts.push_back(0);
      }
      ++counts.back();
      inverse[at] = static_cast<std::int64_t>(first.size()) - 1;
    }
    const auto y = Op("Unique", 11).outputs(4).run({tensor({count}, x)});
    ASSERT_EQ(y[1].ints(), first);
    ASSERT_EQ(y[2].ints(), inverse);
    ASSERT_EQ(y[3].ints(), counts);
    // With sorted = 0 the distinct elements come in the order of their first places.
    const auto z = Op("Unique", 11).with("sorted", 0).outputs(4).run({tensor({count}, x)});
    const Ints places_of = z[1].ints(), numbers = z[2].ints();
    ASSERT_TRUE(std::is_sorted(places_of.begin(), places_of.end()));
    ASSERT_EQ(places_of.size(), first.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(places_of[static_cast<std::size_t>(numbers[i])], first[static_cast<std::size_t>(inverse[i])]);
    }
  });
}

TEST(Hardmax, MarksTheFirstLargest) {
  for_tensors<float>([](const auto& x, std::int64_t rows, std::int64_t length, std::int64_t columns) {
    const Tensor in = tensor({rows, length, columns}, x);
    const Ints at = Op("ArgMax", 13).with("axis", 1).run({in})[0].ints();
    const Floats y = Op("Hardmax", 13).with("axis", 1).run({in})[0].floats();
    for (std::int64_t i = 0; i < rows * length * columns; ++i) {
      const std::int64_t row = i / (length * columns), n = i / columns % length, column = i % columns;
      ASSERT_EQ(y[static_cast<std::size_t>(i)], at[static_cast<std::size_t>(row * columns + column)] == n ? 1 : 0);
    }
  });
}

}  // namespace
}  // namespace evn::test
