// Matrix products and convolutions as quantizers of activations on the fly write them:
//   DynamicQuantizeLinear(x) -> MatMulInteger or ConvInteger with a constant -> Cast -> Mul by (x scale * w scale) [-> Add of a
//   bias]
// become DynamicQuantizeLinear and com.microsoft's MatMulIntegerToFloat, or ConvIntegerToFloat of our own. Not
// DynamicQuantizeMatMul, each tile of which would have to quantize the rows that it needs anew. The result differs by the rounding
// of a multiplication.
#include "graph/passes/match.h"
#include "graph/passes/quantization.h"
#include "graph/passes/rewrites.h"
#include "ops/conv.h"
#include "ops/merge.h"

namespace evn {
namespace {

class Dynamic {
 public:
  Dynamic(Graph& graph, const PassContext& context) : edit_(graph), match_(edit_), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (!edit_.removed(n) && (match_.is(n, "MatMulInteger") || match_.is(n, "ConvInteger"))) from_product(n);
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

  // What has a number for each column of a product, or each output channel of a convolution.
  struct Columns {
    std::int64_t count;
    int behind;  // axes of the result behind theirs

    // Whether a tensor of this shape has one number, or one for each, where it is multiplied by the result or added to it.
    bool along(const Shape& s) const {
      return s.elements() == 1 || (s.elements() == count && s.rank() > behind && s[s.rank() - 1 - behind] == count);
    }
  };

  const Weight* constant(ValueId v, DType dtype) const {
    const Weight* w = v == kNoValue ? nullptr : edit_.value(v).constant.get();
    return w != nullptr && w->desc.dtype == dtype ? w : nullptr;
  }

  // Their numbers as a list, or as what they are.
  ValueId listed(ValueId v, const char* name) {
    const Weight& w = *edit_.value(v).constant;
    if (w.desc.shape.rank() <= 1) return v;
    std::vector<std::uint64_t> copy;
    const auto* const numbers = static_cast<const float*>(aligned_bytes(w, copy));
    return add_vector(edit_, context_, name, std::vector<float>(numbers, numbers + w.desc.shape.elements()));
  }

  void from_product(int product) {
    const bool is_conv = match_.is(product, "ConvInteger");
    const ValueId a = input(product, 0), b = input(product, 1), b_zero = input(product, 3);
    const int quantize = edit_.producer(a);
    if (!match_.is(quantize, "DynamicQuantizeLinear") || node(quantize).outputs.size() != 3 || node(quantize).outputs[0] != a)
      return;
    if (input(product, 2) == kNoValue || input(product, 2) != node(quantize).outputs[2]) return;
    const Weight* w = b == kNoValue ? nullptr : edit_.value(b).constant.get();
    const int rank = value_rank(edit_.value(a));  // of the result, too
    if (w == nullptr || (is_conv ? w->desc.shape.rank() < 3 : w->desc.shape.rank() != 2) || rank < 1) return;
    const Shape& shape = w->desc.shape;
    const Columns columns = is_conv ? Columns{shape[0], shape.rank() - 2} : Columns{shape[1], 0};
    if (b_zero != kNoValue) {
      const Weight* const zero = constant(b_zero, w->desc.dtype);
      if (zero == nullptr || zero->desc.shape.rank() > 1 || !Columns{columns.count, 0}.along(zero->desc.shape)) return;
    }
    const int cast = next(product);
    if (!match_.is(cast, "Cast") || !match_.plain(cast)) return;
    const int mul = next(cast);
    if (!match_.is(mul, "Mul") || !match_.plain(mul)) return;
    const int scales = edit_.producer(match_.beside(mul, match_.out(cast)));
    if (!match_.is(scales, "Mul") || !match_.plain(scales)) return;
    ValueId b_scale = match_.beside(scales, node(quantize).outputs[1]);
    const Weight* const scale = constant(b_scale, DType::kFloat32);
    if (scale == nullptr || scale->desc.shape.rank() > rank || !columns.along(scale->desc.shape)) return;
    int last = mul;
    ValueId bias = kNoValue;
    if (const int add = next(mul); add >= 0 && match_.is(add, "Add") && match_.plain(add)) {
      const ValueId other = match_.beside(add, match_.out(mul));
      const Weight* added = constant(other, DType::kFloat32);
      const bool fits = added != nullptr && added->desc.shape.rank() <= rank && added->desc.shape.elements() == columns.count;
      if (fits && columns.along(added->desc.shape) && added->desc.shape.rank() > columns.behind) {
        bias = listed(other, "bias");
        last = add;
      }
    }
    b_scale = listed(b_scale, "scale");
    const std::vector<ValueId> inputs = {a, b, node(quantize).outputs[1], b_scale, node(quantize).outputs[2], b_zero, bias};
    if (is_conv) {
      const std::vector<Attribute> attributes = node(product).attributes;
      if (!match_.set_op(last, kConvIntegerToFloat, 1, attributes, kInternalDomain)) return;
    } else if (!match_.set_op(last, "MatMulIntegerToFloat", 1, {}, kContrib)) {
      return;
    }
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
