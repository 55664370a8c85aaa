// Finds the GELU as exporters write it before opset 20, with h = 1 + erf(x / sqrt(2)), or h = 1 + tanh(sqrt(2 / pi) (x + 0.044715
// x^3)), where x^3 is a power or x times its square:
//   (x * h) * 0.5    or    (x * 0.5) * h
#include <cmath>

#include "graph/edit.h"
#include "graph/passes/match.h"
#include "graph/passes/rewrites.h"

namespace evn {
namespace {

constexpr float kSqrt2 = 1.41421356f;
constexpr float kSqrt2ByPi = 0.797884561f;
constexpr float kCubic = 0.044715f;

bool is_near(float v, float expected) { return std::fabs(v - expected) <= 1e-6f * expected; }

class Gelu {
 public:
  Gelu(Graph& graph, const PassContext& context) : edit_(graph), match_(edit_), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (!edit_.removed(n) && match_.is(n, "Erf")) from_erf(n);
      if (!edit_.removed(n) && match_.is(n, "Tanh")) from_tanh(n);
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
    if (x != kNoValue) from_curve(erf, x, "none", {scaled});
  }

  // c * v, or the number's other side: the value beside a scalar near c in a multiplication that alone reads it.
  ValueId times(ValueId v, float c, int* n) {
    float number = 0;
    *n = match_.maker(v, "Mul", 1);
    const ValueId x = *n < 0 ? kNoValue : match_.beside_scalar(*n, &number);
    return is_near(number, c) ? x : kNoValue;
  }

  // Whether v is x^3; `nodes` gets those that compute it.
  bool cubes(ValueId v, ValueId x, std::vector<int>* nodes) {
    float exponent = 0;
    const int power = match_.maker(v, "Pow", 1);
    if (power >= 0) {
      nodes->push_back(power);
      return match_.before_scalar(power, &exponent) == x && exponent == 3.0f;
    }
    const int mul = match_.maker(v, "Mul", 1);
    const int square = mul < 0 ? -1 : match_.maker(match_.beside(mul, x), "Mul", 1);
    if (square < 0 || edit_.node(square).inputs != std::vector<ValueId>{x, x}) return false;
    nodes->insert(nodes->end(), {mul, square});
    return true;
  }

  void from_tanh(int tanh) {
    int outer = -1;
    const int sum = match_.maker(times(edit_.node(tanh).inputs[0], kSqrt2ByPi, &outer), "Add", 1);
    if (sum < 0) return;
    for (std::size_t i = 0; i < 2; ++i) {
      const ValueId x = edit_.node(sum).inputs[i];
      std::vector<int> nodes = {outer, sum, -1};
      const ValueId cube = times(edit_.node(sum).inputs[1 - i], kCubic, &nodes[2]);
      if (x == kNoValue || cube == kNoValue || !cubes(cube, x, &nodes)) continue;
      return from_curve(tanh, x, "tanh", nodes);
    }
  }

  // `curve` computes erf or tanh of what `before` make of x.
  void from_curve(int curve, ValueId x, const char* form, std::vector<int> before) {
    const int add = match_.next(curve);
    float one = 0;
    if (!match_.is(add, "Add") || match_.beside_scalar(add, &one) != match_.out(curve) || one != 1.0f) return;
    const int mul = match_.next(add);
    if (!match_.is(mul, "Mul")) return;
    const ValueId factor = match_.beside(mul, match_.out(add));
    before.insert(before.begin(), {add, curve});
    if (factor == x) {
      const int half = match_.next(mul);
      before.insert(before.begin(), mul);
      if (half >= 0 && halves(half, match_.out(mul))) rewrite(half, x, form, before);
      return;
    }
    const int half = match_.maker(factor, "Mul", 1);
    before.insert(before.begin(), half);
    if (half >= 0 && halves(half, x)) rewrite(mul, x, form, before);
  }

  void rewrite(int last, ValueId x, const char* form, const std::vector<int>& others) {
    if (!match_.set_op(last, "Gelu", 20, {{"approximate", std::string(form)}})) return;
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
