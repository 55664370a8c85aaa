// How products are cut into tiles: all of the product, fairly for the threads, nothing for those that need no second one.
#include "backends/cpu/gemm/packed_gemm_plan.h"

#include <gtest/gtest.h>

namespace evn {
namespace {

const simd_packed_gemm::Loops& widest() { return simd_packed_gemm::loops(cpu_isa()); }

TEST(TileProduct, TilesCoverTheProductAndBeginAtPanels) {
  const simd_packed_gemm::Loops& l = widest();
  for (const std::uint32_t threads : {1u, 2u, 3u, 16u}) {
    for (const std::int64_t m : {0, 1, 3, 7, 49, 128, 196, 3136}) {
      for (const std::int64_t n : {1, 16, 65, 320, 1000, 4096}) {
        for (const std::int64_t k : {1, 27, 960}) {
          for (const bool copies : {false, true}) {
            const PackedGemmTiling t = tile_packed_gemm(l, {m, n, k, 1, copies, threads});
            ASSERT_GT(t.rows, 0);
            ASSERT_EQ(t.columns % l.nr, 0);
            EXPECT_GE(t.row_tiles * t.rows, m);
            EXPECT_GE(t.column_tiles * t.columns, n);
            EXPECT_LT((t.row_tiles - 1) * t.rows, std::max<std::int64_t>(1, m));
            EXPECT_LT((t.column_tiles - 1) * t.columns, n);
            if (m > 2 * l.mc) {
              EXPECT_LE(t.rows, l.mc);
            }
          }
        }
      }
    }
  }
}

TEST(TileProduct, EveryThreadHasAPartOfWhatIsWorthSharing) {
  for (const std::uint32_t threads : {2u, 4u}) {
    EXPECT_GE(tile_packed_gemm(widest(), {1, 4096, 4096, 1, false, threads}).tiles(), threads);  // by columns
    EXPECT_GE(tile_packed_gemm(widest(), {196, 64, 384, 1, false, threads}).tiles(), threads);   // by rows
    EXPECT_GE(tile_packed_gemm(widest(), {49, 320, 960, 1, true, threads}).tiles(), threads);
    EXPECT_EQ(tile_packed_gemm(widest(), {16, 16, 16, 1, false, threads}).tiles(), 1);
    EXPECT_EQ(tile_packed_gemm(widest(), {196, 64, 384, 1, false, 1}).tiles(), 1);
    EXPECT_GE(tile_packed_gemm(widest(), {1, 384, 384, 1, false, threads}).tiles(), 2);  // reading B takes long
    EXPECT_EQ(tile_packed_gemm(widest(), {1, 320, 160, 1, false, threads}).tiles(), 1);
  }
}

}  // namespace
}  // namespace evn
