// Finds layer normalization over the last axis, as exporters write it before opset 17:
//   d = x - mean(x);  y = d / sqrt(mean(d^2) + epsilon) * scale + bias        (the bias may be missing)
// d^2 is Pow(d, 2) or Mul(d, d).
#include "graph/edit.h"
#include "graph/passes/norm_parts.h"
#include "graph/passes/rewrites.h"

namespace evn {
namespace {

class LayerNorm {
 public:
  LayerNorm(Graph& graph, const PassContext& context) : edit_(graph), match_(edit_), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (!edit_.removed(n) && match_.is(n, "Div")) from_div(n);
    }
    return edit_.commit();
  }

 private:
  // The nodes of one match, in the order in which they run.
  struct Found {
    int mean = -1, sub = -1, square = -1, variance = -1, add = -1, sqrt = -1, div = -1, scale = -1, bias = -1;
    ValueId x = kNoValue;
    float epsilon = 0;
  };

  // d^2 with d = x - mean(x), where d is read by this and by the division alone.
  bool find_square(ValueId v, ValueId d, Found* f) {
    float exponent = 0;
    f->square = match_.maker(v, "Pow", 1);
    if (f->square >= 0) {
      if (match_.before_scalar(f->square, &exponent) != d || exponent != 2.0f) return false;
      f->sub = match_.maker(d, "Sub", 2);
    } else {
      f->square = match_.maker(v, "Mul", 1);
      if (f->square < 0 || edit_.node(f->square).inputs != std::vector<ValueId>{d, d}) return false;
      f->sub = match_.maker(d, "Sub", 3);
    }
    return f->sub >= 0;
  }

  bool find(int div, Found* f) {
    f->div = div;
    const Node& node = edit_.node(div);
    if (node.inputs.size() != 2 || node.inputs[0] == kNoValue) return false;
    const ValueId d = node.inputs[0];
    f->sqrt = match_.maker(node.inputs[1], "Sqrt", 1);
    if (f->sqrt < 0) return false;
    f->add = match_.maker(edit_.node(f->sqrt).inputs[0], "Add", 1);
    if (f->add < 0) return false;
    f->variance = match_.maker(match_.beside_scalar(f->add, &f->epsilon), "ReduceMean", 1);
    if (f->variance < 0 || !is_last_mean(edit_, f->variance)) return false;
    if (!find_square(edit_.node(f->variance).inputs[0], d, f)) return false;
    f->x = edit_.node(f->sub).inputs[0];
    f->mean = match_.maker(edit_.node(f->sub).inputs[1], "ReduceMean", 1);
    return f->mean >= 0 && edit_.node(f->mean).inputs[0] == f->x && is_last_mean(edit_, f->mean);
  }

  void from_div(int div) {
    Found f;
    if (!find(div, &f)) return;
    f.scale = match_.next(div);
    if (f.scale < 0) return;
    const ValueId scale = row_operand(edit_, match_, f.scale, "Mul", match_.out(div), f.x);
    if (scale == kNoValue) return;
    f.bias = match_.next(f.scale);
    const ValueId bias = f.bias < 0 ? kNoValue : row_operand(edit_, match_, f.bias, "Add", match_.out(f.scale), f.x);
    rewrite(f, bias == kNoValue ? f.scale : f.bias, scale, bias);
  }

  void rewrite(const Found& f, int last, ValueId scale, ValueId bias) {
    if (!match_.set_op(last, "LayerNormalization", 17, {{"axis", std::int64_t{-1}}, {"epsilon", f.epsilon}})) return;
    if (bias != kNoValue) edit_.set_input(last, 2, bias);
    edit_.set_input(last, 1, scale);
    edit_.set_input(last, 0, f.x);
    if (last != f.scale) match_.absorb(last, f.scale);
    for (int n : {f.div, f.sqrt, f.add, f.variance, f.square, f.sub, f.mean}) match_.absorb(last, n);
  }

  GraphEditor edit_;
  Matcher match_;
  const PassContext& context_;
};

}  // namespace

bool fuse_layer_norm(Graph& graph, const PassContext& context) { return LayerNorm(graph, context).run(); }

}  // namespace evn
