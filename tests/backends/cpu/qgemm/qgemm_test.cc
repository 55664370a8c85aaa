// The products of bytes of qgemm/qgemm_loops.h on every instruction set that this machine has, against a plain loop.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "backends/cpu/qgemm/qgemm_plan.h"
#include "base/checked.h"
#include "tests/support/graph_builder.h"
#include "tests/support/isas.h"

namespace evn {
namespace {

using simd_qgemm::Output;

struct Shape2 {
  std::int64_t m, n, k;
};

// A and B of bytes, multiplied on every instruction set.
class Qgemm : public test::OnIsa {
 protected:
  const simd_qgemm::Loops& loops_ = simd_qgemm::loops(GetParam());

  // The sums; `b` is k x n of int8, or of uint8 with `flip`.
  std::vector<std::int32_t> multiply(const Shape2& s, const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b,
                                     QgemmParameters numbers) {
    std::vector<std::int32_t> c(static_cast<std::size_t>(s.m * s.n + 64), -7);
    simd_qgemm::Tile t{};
    t.c = c.data();
    run(s, a, b, numbers, Output::kInt32, &t);
    if (loops_.wide_columns != 0) {
      std::vector<std::int32_t> wide(c.size(), -7);
      t = {};
      t.c = wide.data();
      run(s, a, b, numbers, Output::kInt32, &t, true);
      EXPECT_EQ(wide, c) << "as 16 bits";
    }
    for (std::size_t i = static_cast<std::size_t>(s.m * s.n); i < c.size(); ++i) EXPECT_EQ(c[i], -7) << "written beyond the end";
    c.resize(static_cast<std::size_t>(s.m * s.n));
    return c;
  }

  void run(const Shape2& s, const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b, const QgemmParameters& numbers,
           Output output, simd_qgemm::Tile* t, bool as_words = false) {
    const QgemmSource source{b.data(), 1, s.k, s.n, 1, 1, false, numbers.flip_b};
    const QgemmShape shape = source.shape(s.n);
    memory_.assign(static_cast<std::size_t>(qgemm_bytes(loops_, shape)) + 64, 0xee);
    auto* const packed = memory_.data() + (64 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 64) % 64;
    pack_qgemm(loops_, source, s.n, packed);
    const std::int64_t lda = qgemm_padded(loops_, s.k);
    rows_.assign(static_cast<std::size_t>(s.m * lda + simd_qgemm::kOverread), 0xdd);
    for (std::int64_t i = 0; i < s.m; ++i)
      std::memcpy(&rows_[static_cast<std::size_t>(i * lda)], &a[static_cast<std::size_t>(i * s.k)], static_cast<std::size_t>(s.k));
    columns_.assign(qgemm_columns_bytes(loops_, s.n) / 4 + 16, 0);
    row_sums_.assign(static_cast<std::size_t>(s.m), 0);
    const std::int64_t start = 0;
    t->n = s.n;
    ASSERT_TRUE(set_columns(loops_, numbers, shape, packed, 0, columns_.data(), t));
    t->a = rows_.data();
    if (as_words) {
      words_.resize(rows_.size());
      loops_.widen(rows_.data(), false, static_cast<std::int64_t>(rows_.size()), words_.data());
      room_.assign(static_cast<std::size_t>(qgemm_room_bytes(loops_, shape)) / sizeof(std::int16_t), 0x5555);
      t->a = nullptr;
      t->words = words_.data();
      t->room = room_.data();
    }
    t->lda = lda;
    t->lines = 1;
    t->width = s.m;
    t->offsets = &start;
    t->row_sums = row_sums_.data();
    t->output = output;
    t->ldc = s.n;
    loops_.run(*t);
  }

 private:
  std::vector<std::uint8_t> memory_, rows_;
  std::vector<std::int16_t> words_, room_;
  std::vector<std::int32_t> columns_, row_sums_;
};

std::vector<std::uint8_t> random_bytes(std::int64_t n, std::uint64_t seed) {
  test::Random random(seed);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(n));
  for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(random.next() >> 24);
  return bytes;
}

// With B as int8, or as uint8.
std::vector<std::int32_t> plain(const Shape2& s, const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b,
                                std::int32_t a_zero, const std::vector<std::int32_t>& b_zeros, bool b_unsigned) {
  std::vector<std::int32_t> c(static_cast<std::size_t>(s.m * s.n));
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      std::uint32_t sum = 0;
      for (std::int64_t k = 0; k < s.k; ++k) {
        const std::uint8_t byte = b[static_cast<std::size_t>(k * s.n + j)];
        const std::int32_t w = (b_unsigned ? byte : static_cast<std::int8_t>(byte)) -
                               (b_zeros.empty() ? 0 : b_zeros[static_cast<std::size_t>(j) % b_zeros.size()]);
        sum += static_cast<std::uint32_t>((a[static_cast<std::size_t>(i * s.k + k)] - a_zero) * w);
      }
      c[static_cast<std::size_t>(i * s.n + j)] = static_cast<std::int32_t>(sum);
    }
  }
  return c;
}

TEST_P(Qgemm, EveryRestOfRowsColumnsAndKIsRight) {
  for (const std::int64_t k : {1, 2, 3, 4, 5, 31, 63, 64, 65, 130}) {
    for (std::int64_t m = 1; m <= 37; m += m < 20 ? 1 : 5) {
      for (const std::int64_t n : {1, 3, 4, 8, 9, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 127}) {
        const Shape2 s{m, n, k};
        const auto a = random_bytes(m * k, 1), b = random_bytes(k * n, 2);
        QgemmParameters numbers;
        numbers.a_zero = 113;
        ASSERT_EQ(multiply(s, a, b, numbers), plain(s, a, b, 113, {}, false)) << m << " x " << n << " x " << k;
      }
    }
  }
}

// 255 x 127 twice and 255 x -128 twice are more than 16 bits: a product that saturates on the way is wrong.
TEST_P(Qgemm, LargestPairsDoNotSaturate) {
  for (const std::uint8_t extreme : {127, 128}) {
    const Shape2 s{19, 40, 128};
    const std::vector<std::uint8_t> a(static_cast<std::size_t>(s.m * s.k), 255), b(static_cast<std::size_t>(s.k * s.n), extreme);
    EXPECT_EQ(multiply(s, a, b, {}), plain(s, a, b, 0, {}, false));
  }
}

TEST_P(Qgemm, SumsWrap) {
  const Shape2 s{5, 17, 70000};
  const std::vector<std::uint8_t> a(static_cast<std::size_t>(s.m * s.k), 255), b(static_cast<std::size_t>(s.k * s.n), 127);
  EXPECT_EQ(multiply(s, a, b, {}), plain(s, a, b, 0, {}, false));
}

TEST_P(Qgemm, ZeroPointsOfBothSidesCount) {
  const Shape2 s{21, 35, 77};
  const auto a = random_bytes(s.m * s.k, 3), b = random_bytes(s.k * s.n, 4), zeros = random_bytes(s.n, 5);
  for (const bool is_unsigned : {false, true}) {
    for (const std::int64_t step : {0, 1}) {
      std::vector<std::int32_t> b_zeros;
      for (std::int64_t j = 0; j < (step == 0 ? 1 : s.n); ++j) {
        const std::uint8_t zero = zeros[static_cast<std::size_t>(j)];
        b_zeros.push_back(is_unsigned ? zero : static_cast<std::int8_t>(zero));
      }
      QgemmParameters numbers;
      numbers.a_zero = 200;
      numbers.b_zero = zeros.data();
      numbers.b_zero_step = step;
      numbers.flip_b = is_unsigned;
      EXPECT_EQ(multiply(s, a, b, numbers), plain(s, a, b, 200, b_zeros, is_unsigned)) << is_unsigned << step;
    }
  }
  QgemmParameters none;
  none.flip_b = true;
  EXPECT_EQ(multiply(s, a, b, none), plain(s, a, b, 0, {}, true)) << "uint8 without a zero point";
}

// What becomes bytes: rounded to even, saturated, NaN the least.
TEST_P(Qgemm, BytesAreRoundedToEvenAndSaturated) {
  const float inf = INFINITY;
  const float scales[] = {0.5f, 0.25f, 1.0f, 1e-3f, 1e30f, inf, -0.5f, 0.0f, NAN, 1e-30f, 3.0f, 0.125f};
  const std::int64_t n = sizeof scales / sizeof *scales;
  const Shape2 s{9, n, 1};
  const std::vector<std::uint8_t> a = {0, 1, 2, 3, 5, 7, 100, 200, 255};
  const std::vector<std::uint8_t> b = {1, 1, 1, 1, 1, 1, 1, 1, 1, 255, 255, 1};
  for (const Output output : {Output::kInt8, Output::kUint8}) {
    const int least = output == Output::kInt8 ? -128 : 0, most = least + 255;
    for (const std::int32_t zero : {0, 3, least, most}) {
      QgemmParameters numbers;
      numbers.b_scale = scales;
      numbers.b_scale_step = 1;
      std::vector<std::uint8_t> c(static_cast<std::size_t>(s.m * s.n));
      simd_qgemm::Tile t{};
      t.c = c.data();
      t.zero = zero;
      run(s, a, b, numbers, output, &t);
      if (loops_.wide_columns != 0) {
        std::vector<std::uint8_t> wide(c.size());
        simd_qgemm::Tile other{};
        other.c = wide.data();
        other.zero = zero;
        run(s, a, b, numbers, output, &other, true);
        EXPECT_EQ(wide, c) << "as 16 bits";
      }
      for (std::int64_t i = 0; i < s.m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          const float y =
              static_cast<float>(a[static_cast<std::size_t>(i)] * static_cast<std::int8_t>(b[static_cast<std::size_t>(j)])) *
              scales[j];
          const double rounded = std::isnan(y) ? -1000 : std::nearbyint(static_cast<double>(y)) + zero;
          const int expected = static_cast<int>(std::fmin(std::fmax(rounded, least), most));
          const std::uint8_t got = c[static_cast<std::size_t>(i * n + j)];
          EXPECT_EQ(output == Output::kInt8 ? static_cast<std::int8_t>(got) : got, expected) << y << " + " << zero;
        }
      }
    }
  }
}

// A sum in steps of its own, of bytes that were rounded and saturated before, over every rest of rows and columns; r may be C.
TEST_P(Qgemm, WhatIsAddedCountsInStepsOfTheSum) {
  const simd_qgemm::Added numbers[] = {
      {nullptr, 0.7f, 1.3f, 11, 5, 9}, {nullptr, 0.02f, -0.9f, -3, -100, 120}, {nullptr, 1e6f, 0.0f, 0, 0, 0}};
  for (const std::int64_t m : {1, 2, 3, 7, 16, 33}) {
    for (const std::int64_t n : {1, 5, 16, 17, 31, 32, 40, 96}) {
      const Shape2 s{m, n, 9};
      const auto a = random_bytes(m * s.k, 1), b = random_bytes(s.k * n, 2), r = random_bytes(m * n, 3);
      const auto sums = plain(s, a, b, 100, {}, false);
      for (int round = 0; round < 12; ++round) {
        const bool is_signed = round % 2 == 1, in_place = round / 2 % 2 == 1;
        simd_qgemm::Added added = numbers[round / 4];
        const std::int32_t least = is_signed ? -128 : 0, zero = is_signed ? -20 : 100;
        const float scale = 0.01f;
        QgemmParameters d;
        d.a_zero = 100;
        d.b_scale = &scale;
        std::vector<std::uint8_t> c = in_place ? r : std::vector<std::uint8_t>(r.size(), 77);
        added.r = in_place ? c.data() : r.data();
        simd_qgemm::Tile t{};
        t.c = c.data();
        t.zero = zero;
        t.added = &added;
        run(s, a, b, d, is_signed ? Output::kInt8 : Output::kUint8, &t);
        for (std::size_t i = 0; i < c.size(); ++i) {
          const float y = std::nearbyint(static_cast<float>(sums[i]) * scale) + static_cast<float>(zero);
          const float bounded = std::fmin(std::fmax(y, static_cast<float>(least)), static_cast<float>(least + 255));
          const std::int32_t other = is_signed ? static_cast<std::int8_t>(r[i]) : r[i];
          const float sum = (bounded - static_cast<float>(added.y_zero)) * added.y_scale +
                            static_cast<float>(other - added.r_zero) * added.r_scale + added.zero;
          const float expected =
              std::fmin(std::fmax(std::nearbyint(sum), static_cast<float>(least)), static_cast<float>(least + 255));
          ASSERT_EQ(is_signed ? static_cast<std::int8_t>(c[i]) : c[i], static_cast<int>(expected))
              << m << " x " << n << ", " << i << " of " << round;
        }
      }
    }
  }
}

#if defined(__x86_64__)
// XINUSE: what a thread must have saved. Tiles that are in use would stay with a host's thread.
TEST_P(Qgemm, LeavesNoTilesInUse) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(0xd, 1, &a, &b, &c, &d) == 0 || (a >> 2 & 1u) == 0) GTEST_SKIP() << "the processor does not say";
  const Shape2 s{40, 40, 128};
  multiply(s, random_bytes(s.m * s.k, 1), random_bytes(s.k * s.n, 2), {});
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  EXPECT_EQ(low >> 17 & 3u, 0u);
}
#endif

INSTANTIATE_TEST_SUITE_P(Isas, Qgemm, testing::ValuesIn(test::available_isas(true)),
                         [](const auto& of) { return isa_name(of.param); });

// What a system that refuses leaves of the best.
TEST(IntegerIsa, IsAnExtensionOfTheCluster) {
  EXPECT_EQ(cluster_of(integer_isa()), cpu_isa());
  EXPECT_TRUE(isa_available(integer_isa()));
}

}  // namespace
}  // namespace evn
