// Matrix products and Einsum.
#include <algorithm>
#include <string>

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

// The right matrix has no batch: all batch axes of the left one are rows.
void mat_mul_rows(Backward& b, int left) {
  Tape& t = b.tape;
  const auto rows = [&](ValueId v) { return t.op("Flatten", {v}, {{"axis", std::int64_t{left - 1}, {}}}); };
  const ValueId dy = rows(b.dy());
  if (b.wants(0)) b.give(0, t.reshape_to(b.x(0), gemm(t, dy, false, b.x(1), true)));
  if (b.wants(1)) b.give(1, gemm(t, rows(b.x(0)), true, dy, false));
}

// A vector on the left is a row, one on the right a column, and the result lacks that axis.
void mat_mul(Backward& b) {
  Tape& t = b.tape;
  const int left = b.known_rank(0), right = b.known_rank(1);
  if (left < 1 || right < 1) b.refuse("an input has rank 0");
  if (left > 2 && right == 2) return mat_mul_rows(b, left);
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
  if (b.wants(0))
    b.give(0, trans_a ? gemm(t, b.x(1), trans_b, b.dy(), true, alpha) : gemm(t, b.dy(), false, b.x(1), !trans_b, alpha));
  if (b.wants(1))
    b.give(1, trans_b ? gemm(t, b.dy(), true, b.x(0), trans_a, alpha) : gemm(t, b.x(0), !trans_a, b.dy(), false, alpha));
  if (b.wants(2)) b.give_sum(2, beta == 1 ? b.dy() : t.mul(b.dy(), static_cast<double>(beta)));
}

// ------------------------------------------------------------------------------------------------------------ Einsum --

struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

// Without dots, and no label twice in one operand.
Equation parse(const Backward& b) {
  const std::string* text = b.text("equation");
  Equation e;
  std::string all, *to = &e.operands.emplace_back();
  bool arrow = false;
  for (const char c : text == nullptr ? std::string() : *text) {
    if (c == ',') to = &e.operands.emplace_back();
    if (c == '-') arrow = true;
    if (c == '-') to = &e.result;
    if (c == '.') b.refuse("its equation has dots");
    if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z')) continue;
    if (to->find(c) != std::string::npos) b.refuse("its equation has a label twice in one term");
    *to += c;
    if (!arrow) all += c;
  }
  if (!arrow) {  // ONNX: the labels that are there once, sorted
    std::sort(all.begin(), all.end());
    for (const char c : all) {
      if (std::count(all.begin(), all.end(), c) == 1) e.result += c;
    }
  }
  return e;
}

// The sum of products of dy and the other operands; along labels that only this operand has, it is the same everywhere. Where this
// operand's dim is 1, it was broadcast to the label's size: the sum goes over the label too.
void einsum(Backward& b) {
  Tape& t = b.tape;
  const Equation e = parse(b);
  if (e.operands.size() != b.inputs.size()) b.refuse("its equation has another number of terms");
  for (std::size_t i = 0; i < b.inputs.size(); ++i) {
    if (!b.wants(i)) continue;
    std::vector<ValueId> inputs = {b.dy()};
    std::string equation = e.result, kept;
    for (std::size_t k = 0; k < b.inputs.size(); ++k) {
      if (k == i) continue;
      inputs.push_back(b.x(k));
      equation += "," + e.operands[k];
    }
    Tape::Ints alone;
    const bool has_dims = t.rank(b.x(i)) == static_cast<int>(e.operands[i].size());
    bool is_open = false;     // some dim may turn out to be 1
    bool may_repeat = false;  // the other operands may have 1 where this one has more
    for (std::size_t k = 0; k < e.operands[i].size(); ++k) {
      const std::int64_t dim = has_dims ? t.shape(b.x(i))[static_cast<int>(k)] : -1;
      if (dim != 1 && equation.find(e.operands[i][k]) != std::string::npos) kept += e.operands[i][k];
      else alone.push_back(static_cast<std::int64_t>(k));
      is_open = is_open || dim < 0;
      may_repeat = may_repeat || (dim < 0 && e.result.find(e.operands[i][k]) == std::string::npos);
    }
    if (is_open && (may_repeat || !alone.empty())) {
      inputs.push_back(t.filled(1, b.x(i)));
      equation += "," + e.operands[i];
      kept = e.operands[i];
      alone.clear();
    }
    ValueId dx = t.op("Einsum", inputs, {{"equation", equation + "->" + kept, {}}});
    if (!alone.empty()) dx = t.op("Unsqueeze", {dx, t.ints(alone)});
    if (is_open) b.give_sum(i, dx);
    else b.give(i, t.repeat_to(b.x(i), dx));
  }
}

constexpr GradientRule kRows[] = {
    {"MatMul", mat_mul},
    {"Gemm", general},
    {"Einsum", einsum},
};

}  // namespace

extern const GradientRules kProductGradients = kRows;

}  // namespace evn
