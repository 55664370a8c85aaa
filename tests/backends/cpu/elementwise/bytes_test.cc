// elementwise/bytes_loops.h on each cluster, at addresses of any alignment.
#include "backends/cpu/elementwise/bytes_loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/support/graph_builder.h"
#include "tests/support/isas.h"

namespace evn::test {
namespace {

std::vector<std::uint8_t> random_bytes(std::size_t n, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint8_t> v(n);
  for (auto& e : v) e = static_cast<std::uint8_t>(random.next() >> 40);
  return v;
}

std::int32_t step(std::uint8_t b, bool is_signed) { return is_signed ? static_cast<std::int8_t>(b) : b; }

template <typename F>
void on_each_isa(F&& f) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(isa_name(isa));
    f(simd_bytes::loops(isa));
  }
}

constexpr std::int64_t kLengths[] = {0, 1, 7, 16, 31, 64, 100, 333};

TEST(Bytes, SumsOfColumnsAtAnyAddress) {
  on_each_isa([](const simd_bytes::Loops& loops) {
    for (const std::int64_t n : kLengths) {
      for (std::size_t offset = 0; offset < 5; ++offset) {
        for (const bool is_signed : {false, true}) {
          const std::vector<std::uint8_t> x = random_bytes(static_cast<std::size_t>(n) + 5, 3);
          std::vector<std::int32_t> sums(static_cast<std::size_t>(n) + 10, 1000);
          loops.add_to(x.data() + offset, sums.data() + offset, n, is_signed);
          for (std::int64_t i = 0; i < n; ++i) {
            const std::size_t k = static_cast<std::size_t>(i) + offset;
            ASSERT_EQ(sums[k], 1000 + step(x[k], is_signed)) << i << " of " << n;
          }
          EXPECT_EQ(sums[static_cast<std::size_t>(n) + offset], 1000);
        }
      }
    }
  });
}

TEST(Bytes, TheLargerOneAtAnyAddress) {
  on_each_isa([](const simd_bytes::Loops& loops) {
    for (const std::int64_t n : kLengths) {
      for (const bool is_signed : {false, true}) {
        const auto count = static_cast<std::size_t>(n);
        const std::vector<std::uint8_t> x = random_bytes(count + 3, 3), before = random_bytes(count + 3, 9);
        std::vector<std::uint8_t> y = before;
        loops.widen_max(x.data() + 1, y.data() + 2, n, is_signed);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(step(y[i + 2], is_signed), std::max(step(x[i + 1], is_signed), step(before[i + 2], is_signed)));
        }
        EXPECT_EQ(y[count + 2], before[count + 2]);
      }
    }
  });
}

TEST(Bytes, TablesOfAnyLengthAndInPlace) {
  const std::vector<std::uint8_t> table = random_bytes(257, 5);
  on_each_isa([&](const simd_bytes::Loops& loops) {
    for (const std::int64_t n : {0, 1, 63, 255, 256, 257, 700}) {
      const auto count = static_cast<std::size_t>(n);
      const std::vector<std::uint8_t> x = random_bytes(count + 2, 3);
      std::vector<std::uint8_t> y(count + 2, 77), same = x;
      loops.look_up(table.data() + 1, x.data() + 1, y.data() + 1, n);
      loops.look_up(table.data() + 1, same.data() + 1, same.data() + 1, n);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(y[i + 1], table[1 + std::size_t{x[i + 1]}]) << i << " of " << n;
        ASSERT_EQ(same[i + 1], y[i + 1]);
      }
      EXPECT_EQ(y[count + 1], 77);
    }
  });
}

TEST(Bytes, FloatsOfAnyLengthComeBack) {
  on_each_isa([](const simd_bytes::Loops& loops) {
    for (const std::int64_t n : kLengths) {
      for (const bool is_signed : {false, true}) {
        const auto count = static_cast<std::size_t>(n);
        const std::vector<std::uint8_t> x = random_bytes(count + 1, 3);
        std::vector<float> floats(count + 2, 5);
        std::vector<std::uint8_t> y(count + 1, 77);
        loops.dequantize(x.data() + 1, n, 0.3f, 7, is_signed, floats.data() + 1);
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(floats[i + 1], static_cast<float>(step(x[i + 1], is_signed) - 7) * 0.3f);
        EXPECT_EQ(floats[count + 1], 5);
        loops.quantize(floats.data() + 1, n, 0.3f, 7, is_signed, y.data());
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(y[i], x[i + 1]);
        EXPECT_EQ(y[count], 77);
      }
    }
  });
}

// As divided: a product by the reciprocal may fall on the other side.
TEST(Bytes, FloatsBetweenTwoStepsAreDivided) {
  on_each_isa([](const simd_bytes::Loops& loops) {
    for (const float scale : {0.3f, 0.007f, 1.1f, 3e-38f, 2e38f, 1e-39f}) {
      std::vector<float> x;
      for (int i = -300; i < 300; ++i) {
        const float middle = (static_cast<float>(i) + 0.5f) * scale;
        for (const float v : {std::nextafterf(middle, -INFINITY), middle, std::nextafterf(middle, INFINITY)}) x.push_back(v);
      }
      for (const bool is_signed : {false, true}) {
        std::vector<std::uint8_t> y(x.size());
        loops.quantize(x.data(), static_cast<std::int64_t>(x.size()), scale, 3, is_signed, y.data());
        const float least = is_signed ? -128 : 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
          const volatile float quotient = x[i] / scale;
          const float wanted = std::fmin(std::fmax(std::nearbyintf(quotient) + 3, least), least + 255);
          ASSERT_EQ(step(y[i], is_signed), static_cast<std::int32_t>(wanted)) << x[i] << " / " << scale;
        }
      }
    }
  });
}

TEST(Bytes, FloatsSaturateAndFindTheirRange) {
  on_each_isa([](const simd_bytes::Loops& loops) {
    std::vector<float> x = {0.5f,   1.5f, 2.5f, -0.5f, -1.5f, 300.0f, -300.0f, NAN,   INFINITY, -INFINITY,
                            1e-40f, 7,    8,    9,     10,    11,     12.5f,   13.5f, -7};
    std::vector<std::uint8_t> y(x.size());
    loops.quantize(x.data(), static_cast<std::int64_t>(x.size()), 1.0f, 10, false, y.data());
    EXPECT_EQ(y, (std::vector<std::uint8_t>{10, 12, 12, 10, 8, 255, 0, 0, 255, 0, 10, 17, 18, 19, 20, 21, 22, 24, 3}));
    for (std::size_t at = 0; at < 37; ++at) {
      std::vector<float> values(37, 0.25f);
      values[(at + 5) % 37] = NAN;
      values[at] = 4;
      values[(at + 11) % 37] = -3;
      float low = 0, high = 0;
      loops.range(values.data(), 37, &low, &high);
      EXPECT_EQ(low, -3) << at;
      EXPECT_EQ(high, 4) << at;
    }
  });
}

}  // namespace
}  // namespace evn::test
