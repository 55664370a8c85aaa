// Matrix products as quantizers of activations on the fly write them:
//   DynamicQuantizeLinear(x) -> MatMulInteger with a constant -> Cast -> Mul by (x scale * w scale) [-> Add of a bias]
// become DynamicQuantizeLinear and com.microsoft's MatMulIntegerToFloat. Not DynamicQuantizeMatMul, each tile of which would have to
// quantize the rows that it needs anew. The result differs by the rounding of a multiplication.
#include "graph/passes/match.h"
#include "graph/passes/quantization.h"
#include "graph/passes/rewrites.h"

namespace evn {
namespace {

constexpr const char* kContrib = "com.microsoft";

class Dynamic {
 public:
  Dynamic(Graph& graph, const PassContext& context) : edit_(graph), match_(edit_), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (!edit_.removed(n) && match_.is(n, "MatMulInteger")) from_product(n);
    }
    return edit_.commit();
  }

 private:
  const Node& node(int n) const { return edit_.graph().nodes[static_cast<std::size_t>(n)]; }
  ValueId input(int n, std::size_t i) const { return i < node(n).inputs.size() ? node(n).inputs[i] : kNoValue; }

  // The node that alone reads the output of n, in the same region; -1: none.
  int next(int n) const {
    const int reader = node(n).epilogue.empty() && node(n).outputs.size() == 1 ? edit_.only_consumer(node(n).outputs[0]) : -1;
    return reader >= 0 && node(reader).region == node(n).region ? reader : -1;
  }

  // Constant numbers: one, or one for each column.
  bool numbers(ValueId v, std::int64_t columns, DType dtype) const {
    const Weight* w = v == kNoValue ? nullptr : edit_.value(v).constant.get();
    if (w == nullptr || w->desc.dtype != dtype || w->desc.shape.rank() > 1) return false;
    return w->desc.shape.elements() == 1 || w->desc.shape.elements() == columns;
  }

  void from_product(int product) {
    const ValueId a = input(product, 0), b = input(product, 1), b_zero = input(product, 3);
    const int quantize = edit_.producer(a);
    if (!match_.is(quantize, "DynamicQuantizeLinear") || node(quantize).outputs.size() != 3 || node(quantize).outputs[0] != a) return;
    if (input(product, 2) == kNoValue || input(product, 2) != node(quantize).outputs[2]) return;
    const Weight* w = b == kNoValue ? nullptr : edit_.value(b).constant.get();
    if (w == nullptr || w->desc.shape.rank() != 2 || value_rank(edit_.value(a)) < 1) return;
    const std::int64_t columns = w->desc.shape[1];
    if (b_zero != kNoValue && !numbers(b_zero, columns, w->desc.dtype)) return;
    const int cast = next(product);
    if (!match_.is(cast, "Cast") || !match_.plain(cast)) return;
    const int mul = next(cast);
    if (!match_.is(mul, "Mul") || !match_.plain(mul)) return;
    const int scales = edit_.producer(match_.beside(mul, match_.out(cast)));
    if (!match_.is(scales, "Mul") || !match_.plain(scales)) return;
    const ValueId b_scale = match_.beside(scales, node(quantize).outputs[1]);
    if (!numbers(b_scale, columns, DType::kFloat32)) return;
    int last = mul;
    ValueId bias = kNoValue;
    if (const int add = next(mul); add >= 0 && match_.is(add, "Add") && match_.plain(add)) {
      const ValueId other = match_.beside(add, match_.out(mul));
      const Weight* added = other == kNoValue ? nullptr : edit_.value(other).constant.get();
      if (added != nullptr && added->desc.dtype == DType::kFloat32 && added->desc.shape == Shape{columns}) {
        bias = other;
        last = add;
      }
    }
    const std::vector<ValueId> inputs = {a, b, node(quantize).outputs[1], b_scale, node(quantize).outputs[2], b_zero, bias};
    if (!match_.set_op(last, "MatMulIntegerToFloat", 1, {}, kContrib)) return;
    for (std::size_t i = inputs.size(); i > 0; --i) edit_.set_input(last, static_cast<int>(i) - 1, inputs[i - 1]);
    edit_.shrink_inputs(last, static_cast<int>(inputs.size()));
    edit_.node(last).model_op = node(product).op_type;
    std::swap(edit_.node(last).name, edit_.node(product).name);
    if (last != mul) match_.absorb(last, mul);
    match_.absorb(last, cast);
    match_.absorb(last, product);
  }

  GraphEditor edit_;
  Matcher match_;
  const PassContext& context_;
};

}  // namespace

bool fuse_dynamic_quantize(Graph& graph, const PassContext& context) { return Dynamic(graph, context).run(); }

}  // namespace evn
