// Finds the exact GELU as exporters write it before opset 20, with h = 1 + erf(x / sqrt(2)):
//   (x * h) * 0.5    or    (x * 0.5) * h
#include <cmath>

#include "graph/edit.h"
#include "graph/passes/match.h"
#include "graph/passes/rewrites.h"

namespace evn {
namespace {

constexpr float kSqrt2 = 1.41421356f;

bool is_near(float v, float expected) { return std::fabs(v - expected) <= 1e-6f * expected; }

class Gelu {
 public:
  Gelu(Graph& graph, const PassContext& context) : edit_(graph), match_(edit_), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (!edit_.removed(n) && match_.is(n, "Erf")) from_erf(n);
    }
    return edit_.commit();
  }

 private:
  // x where v is x / sqrt(2); kNoValue otherwise. *n is the node that computes it.
  ValueId scaled_down(ValueId v, int* n) {
    float c = 0;
    *n = match_.maker(v, "Div", 1);
    if (*n >= 0) {
      const ValueId x = match_.before_scalar(*n, &c);
      return is_near(c, kSqrt2) ? x : kNoValue;
    }
    *n = match_.maker(v, "Mul", 1);
    if (*n < 0) return kNoValue;
    const ValueId x = match_.beside_scalar(*n, &c);
    return is_near(c, 1 / kSqrt2) ? x : kNoValue;
  }

  bool halves(int n, ValueId v) {
    float half = 0;
    return match_.is(n, "Mul") && match_.beside_scalar(n, &half) == v && half == 0.5f;
  }

  void from_erf(int erf) {
    int scaled = -1;
    const ValueId x = scaled_down(edit_.node(erf).inputs[0], &scaled);
    const int add = match_.next(erf);
    float one = 0;
    if (x == kNoValue || !match_.is(add, "Add") || match_.beside_scalar(add, &one) != match_.out(erf) || one != 1.0f) return;
    const int mul = match_.next(add);
    if (!match_.is(mul, "Mul")) return;
    const ValueId factor = match_.beside(mul, match_.out(add));
    if (factor == x) {
      const int half = match_.next(mul);
      if (half >= 0 && halves(half, match_.out(mul))) rewrite(half, x, {mul, add, erf, scaled});
      return;
    }
    const int half = match_.maker(factor, "Mul", 1);
    if (half >= 0 && halves(half, x)) rewrite(mul, x, {half, add, erf, scaled});
  }

  void rewrite(int last, ValueId x, std::initializer_list<int> others) {
    if (!match_.set_op(last, "Gelu", 20)) return;
    edit_.set_input(last, 0, x);
    edit_.shrink_inputs(last, 1);
    for (int n : others) match_.absorb(last, n);
  }

  GraphEditor edit_;
  Matcher match_;
  const PassContext& context_;
};

}  // namespace

bool fuse_gelu(Graph& graph, const PassContext& context) { return Gelu(graph, context).run(); }

}  // namespace evn
