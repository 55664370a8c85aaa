// Finds hard-swish, hard-sigmoid and swish in the shapes that exporters write them:
//   x * clip(x + 3, 0, 6) / 6   (the division before or after the multiplication, or times 1/6)  -> HardSwish
//   x * HardSigmoid(x; 1/6, 1/2)                                                                 -> HardSwish
//   clip(x + 3, 0, 6) / 6                                                                        -> HardSigmoid(x; 1/6, 1/2)
//   x * Sigmoid(x), x * Sigmoid(a * x)                                                           -> Swish
// The results differ from the long form by rounding: some units in the last place of the largest intermediate value.
#include <cmath>

#include "graph/edit.h"
#include "graph/passes/epilogue_ops.h"
#include "graph/passes/match.h"
#include "graph/passes/rewrites.h"
#include "ops/unary.h"

namespace evn {
namespace {

constexpr float kSixth = 1.0f / 6.0f;

// Exporters write 1/6 with seven digits.
bool is_sixth(float v) { return std::fabs(v - kSixth) < 5e-8f; }

class HardSwish {
 public:
  HardSwish(Graph& graph, const PassContext& context) : edit_(graph), match_(edit_), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (edit_.removed(n)) continue;
      if (match_.is(n, "Add")) from_add(n);
      else if (match_.is(n, "HardSigmoid")) from_hard_sigmoid(n);
      else if (match_.is(n, "Sigmoid")) from_sigmoid(n);
    }
    return edit_.commit();
  }

 private:
  // Node n divides `v` by six.
  bool divides_by_six(int n, ValueId v) {
    float c = 0;
    if (match_.is(n, "Mul")) return match_.beside_scalar(n, &c) == v && is_sixth(c);
    return match_.is(n, "Div") && match_.before_scalar(n, &c) == v && c == 6.0f;
  }

  bool multiplies(int n, ValueId v, ValueId x) { return match_.is(n, "Mul") && match_.beside(n, v) == x; }

  void from_add(int add) {
    float three = 0;
    const ValueId x = match_.beside_scalar(add, &three);
    if (x == kNoValue || three != 3.0f) return;
    const int clip = match_.next(add);
    float low = 0;
    float high = 0;
    if (clip < 0 || !clip_bounds(edit_.graph(), edit_.node(clip), &low, &high) || low != 0.0f || high != 6.0f) return;
    const int after = match_.next(clip);
    if (after < 0 || edit_.node(clip).inputs[0] != match_.out(add)) return;
    if (divides_by_six(after, match_.out(clip))) return without_factor(add, clip, after, x);
    if (!multiplies(after, match_.out(clip), x)) return;
    const int div = match_.next(after);
    if (div < 0 || !divides_by_six(div, match_.out(after)) || !match_.set_op(div, "HardSwish", 14)) return;
    set_only_input(div, x);
    match_.absorb(div, after);
    match_.absorb(div, clip);
    match_.absorb(div, add);
  }

  void without_factor(int add, int clip, int div, ValueId x) {
    if (!match_.set_op(div, "HardSigmoid", 6, {{"alpha", kSixth}, {"beta", 0.5f}})) return;
    set_only_input(div, x);
    match_.absorb(div, clip);
    match_.absorb(div, add);
    from_hard_sigmoid(div);
  }

  void from_hard_sigmoid(int n) {
    const Node& node = edit_.node(n);
    if (!is_sixth(attr_float(node, HardSigmoidAttr::kAlpha)) || attr_float(node, HardSigmoidAttr::kBeta) != 0.5f) return;
    const ValueId x = node.inputs[0];
    const int mul = match_.next(n);
    if (mul < 0 || !multiplies(mul, match_.out(n), x) || !match_.set_op(mul, "HardSwish", 14)) return;
    set_only_input(mul, x);
    match_.absorb(mul, n);
  }

  void from_sigmoid(int n) {
    const ValueId argument = edit_.node(n).inputs[0];
    const int mul = match_.next(n);
    if (mul < 0 || edit_.graph().values[argument].dtype != DType::kFloat32) return;
    if (multiplies(mul, match_.out(n), argument)) return to_swish(mul, n, argument, 1.0f, -1);
    float alpha = 0;
    const int scale = match_.maker(argument, "Mul", 1);
    const ValueId x = scale < 0 ? kNoValue : match_.beside_scalar(scale, &alpha);
    if (x != kNoValue && std::isfinite(alpha) && multiplies(mul, match_.out(n), x)) to_swish(mul, n, x, alpha, scale);
  }

  void to_swish(int mul, int sigmoid, ValueId x, float alpha, int scale) {
    if (!match_.set_op(mul, "Swish", 24, {{"alpha", alpha}})) return;
    set_only_input(mul, x);
    match_.absorb(mul, sigmoid);
    if (scale >= 0) match_.absorb(mul, scale);
  }

  void set_only_input(int n, ValueId x) {
    edit_.set_input(n, 0, x);
    edit_.shrink_inputs(n, 1);
  }

  GraphEditor edit_;
  Matcher match_;
  const PassContext& context_;
};

}  // namespace

bool fuse_hard_swish(Graph& graph, const PassContext& context) { return HardSwish(graph, context).run(); }

}  // namespace evn
