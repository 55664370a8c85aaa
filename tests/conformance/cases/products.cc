// MatMul and Gemm.
#include "tests/conformance/case.h"

namespace evn::conformance {
namespace {

constexpr std::uint32_t kWide =
    dtype_bit(DType::kInt32) | dtype_bit(DType::kInt64) | dtype_bit(DType::kUint32) | dtype_bit(DType::kUint64);

// Rows, columns and depth around the widths of vectors and blocks of every instruction set.
void add_sizes(Cases* all) {
  const std::int64_t sizes[][3] = {{1, 1, 1},    {1, 17, 5},  {5, 1, 9},     {7, 9, 1},    {6, 16, 32},
                                   {13, 33, 19}, {31, 65, 7}, {3, 100, 300}, {1, 300, 129}};
  for (const auto& [m, n, k] : sizes) {
    all->push_back(Case("MatMul", 13).x({m, k}).x({k, n}));
    all->push_back(Case("MatMul", 13).x({m, k}).w({k, n}));
    all->push_back(Case("Gemm", 13).x({m, k}).w({n, k}).w({n}).integer("transB", 1));
  }
  // Deeper than one block of k; wide enough for several tiles.
  all->push_back(Case("MatMul", 13).x({5, 2100}).w({2100, 7}));
  all->push_back(Case("MatMul", 13).x({5, 2100}).x({2100, 7}));
  all->push_back(Case("MatMul", 13).x({70, 150}).w({150, 260}));
  all->push_back(Case("MatMul", 13).x({70, 150}).x({150, 260}));
}

void add_batches(Cases* all) {
  all->push_back(Case("MatMul", 13).x({3, 5, 7}).w({7, 9}).batch());
  all->push_back(Case("MatMul", 13).x({3, 1, 37}).w({37, 50}).batch());
  all->push_back(Case("MatMul", 13).x({3, 5, 7}).x({3, 7, 9}).batch(3));
  all->push_back(Case("MatMul", 13).x({3, 5, 7}).w({1, 7, 9}).batch());
  all->push_back(Case("MatMul", 13).x({2, 3, 5, 7}).x({3, 7, 9}).batch());
  all->push_back(Case("MatMul", 13).x({2, 1, 5, 7}).x({1, 3, 7, 9}).batch());
  all->push_back(Case("MatMul", 13).x({5, 7}).x({4, 7, 9}));
  all->push_back(Case("MatMul", 13).x({2, 12, 33, 20}).x({2, 12, 20, 33}).batch(3));
  all->push_back(Case("MatMul", 13).x({2, 2, 3, 5, 7}).w({7, 9}).batch());
  all->push_back(Case("MatMul", 13).x({7}).x({7, 9}));
  all->push_back(Case("MatMul", 13).x({7}).w({7, 9}));
  all->push_back(Case("MatMul", 13).x({5, 7}).x({7}));
  all->push_back(Case("MatMul", 13).x({5, 7}).w({7}));
  all->push_back(Case("MatMul", 13).x({3, 5, 7}).w({7}).batch());
  all->push_back(Case("MatMul", 13).x({7}).x({3, 7, 9}));
  all->push_back(Case("MatMul", 13).x({7}).x({7}));
}

void add_gemm(Cases* all) {
  for (const int trans : {0, 1, 2, 3}) {
    const Shape a = (trans & 1) != 0 ? Shape{13, 11} : Shape{11, 13};
    const Shape b = (trans & 2) != 0 ? Shape{21, 13} : Shape{13, 21};
    for (const bool constant : {false, true}) {
      for (const Shape& c : {Shape{21}, Shape{11, 21}, Shape{11, 1}, Shape{1, 21}, Shape{1}, Shape{}}) {
        Case g = Case("Gemm", 13).x(a);
        constant ? g.w(b) : g.x(b);
        all->push_back(g.x(c).integer("transA", trans & 1).integer("transB", trans >> 1));
      }
      Case scaled = Case("Gemm", 11).x(a);
      constant ? scaled.w(b) : scaled.x(b);
      all->push_back(
          scaled.x({21}).integer("transA", trans & 1).integer("transB", trans >> 1).real("alpha", 0.75f).real("beta", -1.5f));
    }
  }
  all->push_back(Case("Gemm", 11).x({3, 40}).w({40, 17}).batch());
  all->push_back(Case("Gemm", 7).x({3, 40}).w({40, 17}).w({17}).batch());
  all->push_back(Case("Gemm", 13).x({150, 70}).w({150, 90}).w({90}).integer("transA", 1));
  all->push_back(Case("Gemm", 13).x({32, 20}).w({20, 3}).w({1}));  // few columns begin with one number
  all->push_back(Case("Gemm", 13).x({70, 150}).x({260, 150}).x({260}).integer("transB", 1));
}

void add_edges(Cases* all) {
  all->push_back(Case("MatMul", 13).x({3, 0}).x({0, 5}).flat());
  all->push_back(Case("MatMul", 13).x({0, 3}).x({3, 5}));
  all->push_back(Case("Gemm", 13).x({3, 0}).w({0, 5}).w({5}));
  all->push_back(Case("MatMul", 13).x({6, 20}).specials().w({20, 18}).flat());
  for_dtypes(kWide, [&](DType d) { all->push_back(Case("MatMul", 13).in(d, {2, 3, 5}, -9, 9).in(d, {5, 4}, -9, 9)); });
  all->push_back(Case("MatMul", 1).in(kF64, {2, 3, 5}).in(kF64, {5, 4}));
  all->push_back(Case("Gemm", 13).in(kF64, {3, 5}).in(kF64, {5, 4}).in(kF64, {4}));
}

// float64: groups of rows with and without a rest, several tiles, all forms of C.
void add_doubles(Cases* all) {
  all->push_back(Case("MatMul", 13).in(kF64, {150, 70}).in(kF64, {70, 300}));
  all->push_back(Case("MatMul", 13).in(kF64, {3, 5, 7}).in(kF64, {7, 9}).batch());
  all->push_back(Case("MatMul", 13).in(kF64, {2, 3, 16, 20}).in(kF64, {3, 20, 33}).batch());
  all->push_back(Case("MatMul", 13).in(kF64, {9}).in(kF64, {3, 9, 7}));
  all->push_back(Case("MatMul", 13).in(kF64, {11, 9}).in(kF64, {9}));
  all->push_back(Case("Gemm", 13).in(kF64, {11, 40}).in(kF64, {40, 17}).in(kF64, {17}).batch());
  all->push_back(Case("Gemm", 13).in(kF64, {11, 40}).in(kF64, {40, 17}).in(kF64, {11, 1}).real("alpha", 0.5f).real("beta", 2.0f));
  all->push_back(
      Case("Gemm", 13).in(kF64, {40, 11}).in(kF64, {17, 40}).in(kF64, {11, 17}).integer("transA", 1).integer("transB", 1));
  all->push_back(
      Case("Gemm", 13).in(kF64, {150, 140}).in(kF64, {300, 150}).in(kF64, {1}).integer("transA", 1).integer("transB", 1));
  all->push_back(Case("Gemm", 13).in(kF64, {13, 8}).in(kF64, {8, 5}).integer("transA", 0));
}

}  // namespace

void add_product_cases(Cases* all) {
  add_sizes(all);
  add_batches(all);
  add_gemm(all);
  add_edges(all);
  add_doubles(all);
}

}  // namespace evn::conformance
