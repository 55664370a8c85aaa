// Finds normalization by the root of the mean square over the last axis, as exporters write it before opset 23:
//   y = x * (1 / sqrt(mean(x^2) + epsilon)) * scale
// x^2 is Pow(x, 2) or Mul(x, x); the root is divided by, or its inverse is Reciprocal or Div(1, .).
#include "graph/passes/norm_parts.h"
#include "graph/passes/rewrites.h"

namespace evn {
namespace {

class RmsNorm {
 public:
  RmsNorm(Graph& graph, const PassContext& context) : edit_(graph), match_(edit_), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (!edit_.removed(n) && match_.is(n, "Sqrt")) from_sqrt(n);
    }
    return edit_.commit();
  }

 private:
  // The nodes of one match but for the last, in the order in which they run.
  struct Found {
    int square = -1, mean = -1, add = -1, sqrt = -1, inverse = -1, product = -1;
    ValueId x = kNoValue;
    float epsilon = 0;
  };

  bool find_mean(int sqrt, Found* f) {
    f->sqrt = sqrt;
    if (!match_.plain(sqrt)) return false;
    f->add = match_.maker(edit_.node(sqrt).inputs[0], "Add", 1);
    if (f->add < 0) return false;
    f->mean = match_.maker(match_.beside_scalar(f->add, &f->epsilon), "ReduceMean", 1);
    if (f->mean < 0 || !is_last_mean(edit_, f->mean)) return false;
    const ValueId square = edit_.node(f->mean).inputs[0];
    float exponent = 0;
    f->square = match_.maker(square, "Pow", 1);
    if (f->square >= 0) {
      f->x = match_.before_scalar(f->square, &exponent);
      return f->x != kNoValue && exponent == 2.0f;
    }
    f->square = match_.maker(square, "Mul", 1);
    if (f->square < 0 || edit_.node(f->square).inputs[0] != edit_.node(f->square).inputs[1]) return false;
    f->x = edit_.node(f->square).inputs[0];
    return true;
  }

  bool is_inverse(int n, ValueId root) {
    if (match_.is(n, "Reciprocal")) return true;
    if (!match_.is(n, "Div") || edit_.node(n).inputs[1] != root) return false;
    float one = 0;
    return scalar_constant(edit_.graph(), edit_.node(n).inputs[0], value_rank(edit_.value(root)), &one) && one == 1.0f;
  }

  // x over the root, by way of its inverse or not.
  bool find_product(Found* f) {
    const ValueId root = match_.out(f->sqrt);
    const int next = match_.next(f->sqrt);
    if (next < 0 || !match_.plain(next)) return false;
    if (match_.is(next, "Div") && edit_.node(next).inputs[0] == f->x && edit_.node(next).inputs[1] == root) {
      f->product = next;
      return true;
    }
    if (!is_inverse(next, root)) return false;
    f->inverse = next;
    f->product = match_.next(next);
    return match_.is(f->product, "Mul") && match_.beside(f->product, match_.out(next)) == f->x;
  }

  void from_sqrt(int sqrt) {
    Found f;
    if (!find_mean(sqrt, &f) || edit_.value(f.x).dtype != DType::kFloat32 || !find_product(&f)) return;
    const int last = match_.next(f.product);
    const ValueId scale =
        last < 0 || !match_.plain(last) ? kNoValue : row_operand(edit_, match_, last, "Mul", match_.out(f.product), f.x);
    if (scale == kNoValue) return;
    if (!match_.set_op(last, "RMSNormalization", 23, {{"axis", std::int64_t{-1}}, {"epsilon", f.epsilon}})) return;
    edit_.set_input(last, 1, scale);
    edit_.set_input(last, 0, f.x);
    for (int n : {f.product, f.inverse, f.sqrt, f.add, f.mean, f.square}) {
      if (n >= 0) match_.absorb(last, n);
    }
  }

  GraphEditor edit_;
  Matcher match_;
  const PassContext& context_;
};

}  // namespace

bool fuse_rms_norm(Graph& graph, const PassContext& context) { return RmsNorm(graph, context).run(); }

}  // namespace evn
