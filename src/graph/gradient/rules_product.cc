// Matrix products.
#include "graph/gradient/rules.h"

namespace evn {
namespace {

ValueId transposed(Tape& t, ValueId v, int rank) {  // of the last two axes
  Tape::Ints perm;
  for (int i = 0; i < rank; ++i) perm.push_back(i);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return t.op("Transpose", {v}, {{"perm", perm, {}}});
}

ValueId gemm(Tape& t, ValueId a, bool trans_a, ValueId b, bool trans_b, float alpha = 1) {
  return t.op("Gemm", {a, b}, {{"alpha", alpha, {}}, {"transA", std::int64_t{trans_a}, {}}, {"transB", std::int64_t{trans_b}, {}}});
}

// A vector on the left is a row, one on the right a column, and the result lacks that axis.
void mat_mul(Backward& b) {
  Tape& t = b.tape;
  const int left = b.known_rank(0), right = b.known_rank(1);
  if (left < 1 || right < 1) b.refuse("an input has rank 0");
  const ValueId a = left == 1 ? t.op("Unsqueeze", {b.x(0), t.ints({0})}) : b.x(0);
  const ValueId w = right == 1 ? t.op("Unsqueeze", {b.x(1), t.ints({1})}) : b.x(1);
  ValueId dy = b.dy();
  if (right == 1) dy = t.op("Unsqueeze", {dy, t.ints({-1})});
  if (left == 1) dy = t.op("Unsqueeze", {dy, t.ints({-2})});
  const bool flat = left <= 2 && right <= 2;
  if (b.wants(0)) {
    const ValueId da = flat ? gemm(t, dy, false, w, true) : t.sum_to(a, t.op("MatMul", {dy, transposed(t, w, std::max(right, 2))}));
    b.give(0, left == 1 ? t.op("Squeeze", {da, t.ints({0})}) : da);
  }
  if (b.wants(1)) {
    const ValueId dw = flat ? gemm(t, a, true, dy, false) : t.sum_to(w, t.op("MatMul", {transposed(t, a, std::max(left, 2)), dy}));
    b.give(1, right == 1 ? t.op("Squeeze", {dw, t.ints({1})}) : dw);
  }
}

void general(Backward& b) {
  Tape& t = b.tape;
  const bool trans_a = b.integer("transA") != 0, trans_b = b.integer("transB") != 0;
  const float alpha = b.real("alpha", 1), beta = b.real("beta", 1);
  if (b.wants(0)) b.give(0, trans_a ? gemm(t, b.x(1), trans_b, b.dy(), true, alpha) : gemm(t, b.dy(), false, b.x(1), !trans_b, alpha));
  if (b.wants(1)) b.give(1, trans_b ? gemm(t, b.dy(), true, b.x(0), trans_a, alpha) : gemm(t, b.x(0), !trans_a, b.dy(), false, alpha));
  if (b.wants(2)) b.give_sum(2, beta == 1 ? b.dy() : t.mul(b.dy(), static_cast<double>(beta)));
}

constexpr GradientRule kRows[] = {
    {"MatMul", mat_mul},
    {"Gemm", general},
};

}  // namespace

extern const GradientRules kProductGradients = kRows;

}  // namespace evn
