// Packed constants against the definition of their layout, element by element.
#include "backends/cpu/gemm/pack.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "backends/cpu/gemm/packed_gemm_plan.h"

namespace evn::test {
namespace {

std::vector<float> numbered(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

TEST(CpuPack, PanelOfRowsOfColumnsOrOfNeither) {
  constexpr std::int64_t kDepth = 37, kWidth = 32;
  const std::vector<float> b = numbered(kDepth * 80 * 2);
  for (std::int64_t columns : {1, 2, 3, 15, 16, 17, 32}) {
    for (const auto& [row, column] : {std::pair<std::int64_t, std::int64_t>{80, 1}, {1, kDepth}, {80 * 2, 2}}) {
      std::vector<float> to(kDepth * kWidth, -1.0f);
      pack_panel(b.data(), row, column, columns, kWidth, kDepth, to.data());
      for (std::int64_t k = 0; k < kDepth; ++k) {
        for (std::int64_t j = 0; j < kWidth; ++j) {
          const float want = j < columns ? b[k * row + j * column] : 0.0f;
          ASSERT_EQ(to[k * kWidth + j], want) << columns << " columns, step " << column << ": row " << k << ", column " << j;
        }
      }
    }
  }
}

void check_product(const PackedGemmSource& from, std::int64_t n, float scale) {
  const simd_packed_gemm::Loops& loops = simd_packed_gemm::loops(cpu_isa());
  const std::int64_t depth = from.taps * from.channels;
  std::vector<float> packed(static_cast<std::size_t>(packed_gemm_floats(loops, n, depth)), -1.0f);
  pack_packed_gemm(loops, from, n, scale, packed.data());
  const float* at = packed.data();
  for (std::int64_t first = 0; first < n; first += loops.nr) {
    const std::int64_t columns = std::min<std::int64_t>(loops.nr, n - first);
    const std::int64_t width = (columns + loops.lanes - 1) / loops.lanes * loops.lanes;
    for (std::int64_t k = 0; k < depth; ++k) {
      for (std::int64_t j = 0; j < width; ++j) {
        const std::int64_t tap = k / from.channels, channel = k % from.channels;
        const float want = j < columns ? from.b[tap + channel * from.channel_step + (first + j) * from.column_step] * scale : 0.0f;
        ASSERT_EQ(*at++, want) << from.taps << " taps, " << n << " columns: row " << k << ", column " << first + j;
      }
    }
  }
  EXPECT_EQ(at, packed.data() + packed.size());
}

TEST(CpuPack, ProductTakesMatricesEitherWayAndFilters) {
  for (std::int64_t n : {1, 15, 16, 33, 64, 130}) {
    for (std::int64_t k : {1, 31, 32, 33, 70}) {
      for (float scale : {1.0f, 0.5f}) {
        const std::vector<float> b = numbered(n * k * 9);
        check_product({b.data(), 1, k, n, 1}, n, scale);
        check_product({b.data(), 1, k, 1, k}, n, scale);
        for (std::int64_t taps : {2, 9}) check_product({b.data(), taps, k, taps, k * taps}, n, scale);
      }
    }
  }
}

}  // namespace
}  // namespace evn::test
