// The OpenBLAS module: how it is found, that it stays inside the buffers that it says it needs, and that an element of a product
// has the same bits whatever is computed beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "backends/cpu/gemm/blas.h"
#include "base/os/os.h"

namespace evn {
namespace {

TEST(BlasModule, IsThereWhenItIsBuilt) {
#ifdef EVN_OPENBLAS_BUILT
  ASSERT_NE(blas_module(), nullptr);
  EXPECT_STRNE(blas_module()->core, "");
#else
  EXPECT_EQ(blas_module(), nullptr);
#endif
}

TEST(BlasModule, AMissingFileIsAReason) {
  std::string why;
  EXPECT_EQ(open_blas_module(os::own_folder() + "no_such_module.so", &why), nullptr);
  EXPECT_NE(why.find("no_such_module.so"), std::string::npos) << why;
}

TEST(BlasModule, AnotherLibraryIsNone) {
  std::string why;
  EXPECT_EQ(open_blas_module("libm.so.6", &why), nullptr);
  EXPECT_EQ(why, "it is no module of this library");
}

template <typename T>
std::vector<T> noise(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<T> values(count);
  for (T& v : values) v = static_cast<T>(static_cast<double>(generator()) / 4294967296.0 - 0.5);
  return values;
}

// Matrices of doubles and of floats.
template <typename T>
class BlasModuleProducts : public testing::Test {
 protected:
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kGuard = 1 << 20;
  static constexpr unsigned char kMark = 0xA5;
  static constexpr int kSingle = sizeof(T) == sizeof(float);

  void SetUp() override {
    module_ = blas_module();
    if (module_ == nullptr) GTEST_SKIP() << "the OpenBLAS module is not built";
    memory_.resize(module_->buffer_bytes + kGuard + kPage, kMark);
    const auto start = reinterpret_cast<std::uintptr_t>(memory_.data());
    buffer_ = memory_.data() + ((kPage - start % kPage) % kPage);
  }

  std::vector<T> product(const std::vector<T>& a, const std::vector<T>& b, int m, int n, int k, bool ta, bool tb) {
    std::vector<T> c(static_cast<std::size_t>(m) * static_cast<std::size_t>(n), T{-1});
    const evn_blas_product p = {m, n, k, ta, tb, ta ? m : k, tb ? k : n, n, 1.0, 0.0, kSingle};
    module_->product(&p, a.data(), b.data(), c.data(), buffer_);
    return c;
  }

  void expect_guard_untouched() {
    for (std::size_t i = 0; i < kGuard; ++i) ASSERT_EQ(buffer_[module_->buffer_bytes + i], kMark) << i << " bytes past the buffer";
  }

  const evn_blas_module_table* module_ = nullptr;
  std::vector<unsigned char> memory_;
  unsigned char* buffer_ = nullptr;
};
using Types = testing::Types<double, float>;
TYPED_TEST_SUITE(BlasModuleProducts, Types);

TYPED_TEST(BlasModuleProducts, StayInTheirBuffer) {
  for (const int k : {1, 100, 255, 256, 319, 320, 321, 383, 385, 500, 511, 513, 639, 641, 767, 769, 1000, 1537, 2100}) {
    for (const int transposed : {0, 1, 2, 3}) {
      const auto size = static_cast<std::size_t>(k) * EVN_BLAS_MAX_ROWS;
      this->product(noise<TypeParam>(size, 1), noise<TypeParam>(size, 2), EVN_BLAS_MAX_ROWS, EVN_BLAS_MAX_COLUMNS, k,
                    (transposed & 1) != 0, (transposed & 2) != 0);
      this->expect_guard_untouched();
    }
  }
}

// Where the module says that they have: elsewhere some differ, and the library makes no such products.
TYPED_TEST(BlasModuleProducts, RowsHaveTheSameBitsWhateverIsBesideThem) {
  bool same = true;
  constexpr int kRows = 56, kColumns = 67, kGroup = EVN_BLAS_ROW_GROUP;
  for (const int k : {5, 40, 700}) {
    const std::vector<TypeParam> a = noise<TypeParam>(static_cast<std::size_t>(kRows) * static_cast<std::size_t>(k), 3);
    const std::vector<TypeParam> b = noise<TypeParam>(static_cast<std::size_t>(kColumns) * static_cast<std::size_t>(k), 4);
    const std::vector<TypeParam> all = this->product(a, b, kRows, kColumns, k, false, false);
    for (const int count : {kGroup, 2 * kGroup, 3 * kGroup}) {
      for (int first = 0; first + count <= kRows; ++first) {
        const std::vector<TypeParam> part(a.begin() + first * k, a.begin() + (first + count) * k);
        const std::vector<TypeParam> some = this->product(part, b, count, kColumns, k, false, false);
        same = same && std::memcmp(some.data(), all.data() + first * kColumns, some.size() * sizeof(TypeParam)) == 0;
      }
    }
  }
  EXPECT_EQ(this->module_->row_groups[TestFixture::kSingle] != 0, same);
}

// A product made in several calls, of some k and some groups of rows each, has the bits of one call: a run can stop between calls.
TYPED_TEST(BlasModuleProducts, InCallsOfSomeDepthHaveTheSameBits) {
  const int depth = this->module_->depth[TestFixture::kSingle];
  ASSERT_GT(depth, 0) << "where " << this->module_->core << " cuts k is not known: products are not cut";
  for (const int n : {1, 7, 40, EVN_BLAS_MAX_COLUMNS}) {
    for (const int m : {EVN_BLAS_ROW_GROUP, 128}) {
      for (const int k : {depth + 1, 2 * depth, 2 * depth + 77, 5 * depth + depth / 2}) {
        for (const int transposed : {0, 1, 2, 3}) {
          const bool ta = (transposed & 1) != 0, tb = (transposed & 2) != 0;
          const std::vector<TypeParam> a = noise<TypeParam>(static_cast<std::size_t>(m) * static_cast<std::size_t>(k), 7);
          const std::vector<TypeParam> b = noise<TypeParam>(static_cast<std::size_t>(n) * static_cast<std::size_t>(k), 8);
          std::vector<TypeParam> whole = noise<TypeParam>(static_cast<std::size_t>(m) * static_cast<std::size_t>(n), 9),
                                 cut = whole;
          evn_blas_product p = {m, n, k, ta, tb, ta ? m : k, tb ? k : n, n, 0.7, 1.0, TestFixture::kSingle};
          this->module_->product(&p, a.data(), b.data(), whole.data(), this->buffer_);
          for (int at = 0; at < k; at += p.k) {
            p.k = k - at < 2 * depth ? k - at : depth;
            this->module_->product(&p, a.data() + at * (ta ? m : 1), b.data() + at * (tb ? 1 : n), cut.data(), this->buffer_);
          }
          ASSERT_EQ(std::memcmp(whole.data(), cut.data(), whole.size() * sizeof(TypeParam)), 0)
              << m << " x " << n << ", k " << k << ", " << transposed;
        }
      }
    }
  }
}

TYPED_TEST(BlasModuleProducts, AreRight) {
  constexpr int kRows = 37, kColumns = 29, kDepth = 700;
  const std::vector<TypeParam> a = noise<TypeParam>(kRows * kDepth, 5);
  const std::vector<TypeParam> b = noise<TypeParam>(kColumns * kDepth, 6);
  const std::vector<TypeParam> c = this->product(a, b, kRows, kColumns, kDepth, false, true);
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      double sum = 0;
      for (int x = 0; x < kDepth; ++x) sum += static_cast<double>(a[i * kDepth + x]) * static_cast<double>(b[j * kDepth + x]);
      ASSERT_NEAR(c[i * kColumns + j], sum, TestFixture::kSingle != 0 ? 1e-4 : 1e-11);
    }
  }
}

}  // namespace
}  // namespace evn
