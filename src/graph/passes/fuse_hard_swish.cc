// Finds hard-swish and hard-sigmoid in the shapes that exporters write them:
//   x * clip(x + 3, 0, 6) / 6   (the division before or after the multiplication, or times 1/6)  -> HardSwish
//   x * HardSigmoid(x; 1/6, 1/2)                                                                 -> HardSwish
//   clip(x + 3, 0, 6) / 6                                                                        -> HardSigmoid(x; 1/6, 1/2)
// The results differ from the long form by rounding: some units in the last place of the largest intermediate value.
#include <cmath>
#include <utility>

#include "graph/edit.h"
#include "graph/passes/rewrites.h"
#include "graph/passes/steps.h"
#include "ops/clip.h"
#include "ops/unary.h"

namespace evn {
namespace {

constexpr std::int64_t kHardSwishSince = 14;
constexpr std::int64_t kHardSigmoidSince = 6;
constexpr float kSixth = 1.0f / 6.0f;

// Exporters write 1/6 with seven digits.
bool is_sixth(float v) { return std::fabs(v - kSixth) < 5e-8f; }

class HardSwish {
 public:
  HardSwish(Graph& graph, const PassContext& context) : edit_(graph), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (edit_.removed(n)) continue;
      if (is_op(edit_.node(n), "Add")) from_add(n);
      else if (is_op(edit_.node(n), "HardSigmoid")) from_hard_sigmoid(n);
    }
    return edit_.commit();
  }

 private:
  ValueId out(int n) { return edit_.node(n).outputs[0]; }
  bool plain(int n) { return edit_.node(n).epilogue.empty() && edit_.value(out(n)).dtype == DType::kFloat32; }

  // The operand beside a scalar constant, or kNoValue.
  ValueId beside_scalar(const Node& node, float* scalar) {
    for (int i = 0; i < 2; ++i) {
      const ValueId other = node.inputs[1 - i];
      if (scalar_constant(edit_.graph(), node.inputs[i], value_rank(edit_.value(other)), scalar)) return other;
    }
    return kNoValue;
  }

  // Node n divides its input `v` by six.
  bool divides_by_six(int n, ValueId v) {
    const Node& node = edit_.node(n);
    float c = 0;
    if (is_op(node, "Mul")) return beside_scalar(node, &c) == v && is_sixth(c);
    return is_op(node, "Div") && node.inputs[0] == v &&
           scalar_constant(edit_.graph(), node.inputs[1], value_rank(edit_.value(v)), &c) && c == 6.0f;
  }

  // Node n multiplies `v` with `x`.
  bool multiplies(int n, ValueId v, ValueId x) {
    const Node& node = edit_.node(n);
    return is_op(node, "Mul") && ((node.inputs[0] == v && node.inputs[1] == x) || (node.inputs[0] == x && node.inputs[1] == v));
  }

  // The node that alone reads the output of plain node n; -1: none.
  int next(int n) { return plain(n) ? edit_.only_consumer(out(n)) : -1; }

  void from_add(int add) {
    float three = 0;
    const ValueId x = beside_scalar(edit_.node(add), &three);
    if (x == kNoValue || three != 3.0f) return;
    const int clip = next(add);
    float low = 0;
    float high = 0;
    if (clip < 0 || !clip_bounds(edit_.graph(), edit_.node(clip), &low, &high) || low != 0.0f || high != 6.0f) return;
    const int after = next(clip);
    if (after < 0) return;
    if (divides_by_six(after, out(clip))) {
      if (!become(after, x, "HardSigmoid", kHardSigmoidSince)) return;
      absorb(after, clip);
      absorb(after, add);
      from_hard_sigmoid(after);
      return;
    }
    if (!multiplies(after, out(clip), x)) return;
    const int div = next(after);
    if (div < 0 || !divides_by_six(div, out(after)) || !become(div, x, "HardSwish", kHardSwishSince)) return;
    absorb(div, after);
    absorb(div, clip);
    absorb(div, add);
  }

  void from_hard_sigmoid(int n) {
    const Node& node = edit_.node(n);
    if (!is_sixth(attr_float(node, HardSigmoidAttr::kAlpha)) || attr_float(node, HardSigmoidAttr::kBeta) != 0.5f) return;
    const ValueId x = node.inputs[0];
    const int mul = next(n);
    if (mul < 0 || !multiplies(mul, out(n), x) || !become(mul, x, "HardSwish", kHardSwishSince)) return;
    absorb(mul, n);
  }

  // Node n computes op(x) from now on; its output, name and epilogue stay.
  bool become(int n, ValueId x, const char* op_type, std::int64_t since) {
    const OpDef* op = find_op("", op_type, since);
    if (op == nullptr) return false;
    Node& node = edit_.node(n);
    node.op_type = op_type;
    node.since_version = static_cast<int>(since);
    node.op = op;
    node.attributes.clear();
    node.resolved.clear();
    if (is_op(node, "HardSigmoid")) {
      node.attributes = {{"alpha", kSixth}, {"beta", 0.5f}};
      node.resolved = {kSixth, 0.5f};
    }
    edit_.set_input(n, 0, x);
    edit_.shrink_inputs(n, 1);
    return true;
  }

  void absorb(int into, int n) {
    move_names(edit_, into, n);
    edit_.remove_node(n);
  }

  GraphEditor edit_;
  const PassContext& context_;
};

}  // namespace

bool fuse_hard_swish(Graph& graph, const PassContext& context) { return HardSwish(graph, context).run(); }

}  // namespace evn
