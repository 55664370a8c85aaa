// Finds scaled dot-product attention as exporters write it, for tensors of four axes:
//   MatMul(softmax(MatMul(q, k^T) * c + mask), v)
// The scale may be a division, stand before the product on either side, and be missing; so may the mask. Transpositions around it,
// and where all shapes are known reshapes, slices and picks of one index too, are not run any more: the operator reads its operands
// where they lie, and writes Y in the order in which it is wanted.
#include <algorithm>
#include <cmath>

#include "graph/edit.h"
#include "graph/passes/match.h"
#include "graph/passes/rewrites.h"
#include "graph/passes/strided_view.h"
#include "ops/fused_attention.h"
#include "ops/softmax.h"
#include "ops/transpose.h"

namespace evn {
namespace {

constexpr int kRank = 4;

class FuseAttention {
 public:
  FuseAttention(Graph& graph, const PassContext& context) : edit_(graph), match_(edit_), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (!edit_.removed(n) && match_.is(n, "Softmax")) from_softmax(n);
    }
    return edit_.commit();
  }

 private:
  enum class Role { kQueries, kKeys, kValues };

  // An operand of a product as axes, in some order, of `base`, or as a view of it; times `scale`.
  struct Operand {
    ValueId base = kNoValue;
    double scale = 1;
    int perm[kRank] = {0, 1, 2, 3};
    bool is_view = false;
    StridedView view;
    std::vector<int> passed;  // the nodes between, the nearest first
    int copies = 0;           // how many of them move bytes
  };

  // The nodes of one match.
  struct Found {
    int product = -1, softmax = -1, sum = -1;
    std::vector<int> scales;
    ValueId mask = kNoValue;
    double scale = 1;
  };

  bool has_rank(ValueId v) const {
    return v != kNoValue && edit_.value(v).dtype == DType::kFloat32 && value_rank(edit_.value(v)) == kRank;
  }

  // x where node n is x * c or x / c; kNoValue otherwise.
  ValueId scaled(int n, double* c) const {
    float number = 0;
    if (n < 0 || !match_.plain(n)) return kNoValue;
    ValueId x = kNoValue;
    if (match_.is(n, "Mul")) {
      x = match_.beside_scalar(n, &number);
      *c = static_cast<double>(number);
    } else if (match_.is(n, "Div")) {
      x = match_.before_scalar(n, &number);
      *c = 1 / static_cast<double>(number);
    }
    return x != kNoValue && std::isnormal(static_cast<float>(*c)) ? x : kNoValue;
  }

  // The product that alone is read as v, perhaps through scales, which it is then multiplied by.
  bool find_product(ValueId v, Found* f) {
    for (;;) {
      const int n = edit_.producer(v);
      if (n < 0 || edit_.is_output(v) || edit_.use_count(v) != 1 || match_.out(n) != v) return false;
      double c = 1;
      const ValueId x = scaled(n, &c);
      if (x == kNoValue) {
        f->product = n;
        return match_.is(n, "MatMul") && takes_scales(edit_.node(n).epilogue, &f->scale);
      }
      f->scale *= c;
      f->scales.push_back(n);
      v = x;
    }
  }

  static bool takes_scales(const Epilogue& epilogue, double* scale) {
    for (int i = 0; i < epilogue.count; ++i) {
      if (epilogue.ops[i].kind != EpilogueOpKind::kScale) return false;
      *scale *= static_cast<double>(epilogue.ops[i].a);
    }
    return true;
  }

  bool find_scores(int softmax, Found* f) {
    f->softmax = softmax;
    const Node& node = edit_.node(softmax);
    if (!match_.plain(softmax) || node.inputs.empty() || !has_rank(node.inputs[0])) return false;
    if (normalize_axis(attr_int(node, SoftmaxAttr::kAxis), kRank) != kRank - 1) return false;
    const ValueId scores = node.inputs[0];
    f->sum = match_.maker(scores, "Add", 1);
    if (f->sum < 0) return find_product(scores, f);
    const Node& sum = edit_.node(f->sum);
    for (int i = 0; i < 2; ++i) {
      const ValueId mask = sum.inputs[static_cast<std::size_t>(1 - i)];
      Found attempt = *f;
      const bool fits = mask != kNoValue && edit_.value(mask).has_shape && edit_.value(mask).shape.rank() <= kRank &&
                        edit_.value(mask).dtype == DType::kFloat32;
      if (!fits || sum.inputs[static_cast<std::size_t>(i)] == kNoValue ||
          !find_product(sum.inputs[static_cast<std::size_t>(i)], &attempt))
        continue;
      *f = attempt;
      f->mask = mask;
      return true;
    }
    return false;
  }

  // ---- operands ----

  // Whether rows lie together: the axis of the depth must be the innermost. Keys, of which v is the transpose, may also lie across.
  static bool is_readable(const Operand& o, Role role) {
    if (!o.is_view) return o.perm[3] == 3 || (role == Role::kKeys && o.perm[2] == 3);
    const std::size_t depth = role == Role::kKeys ? 2 : 3;
    return o.view.dims[depth] == 1 || o.view.steps[depth] == 1;
  }

  // Past transpositions and scales.
  Operand pass_transposes(ValueId v, Role role) {
    Operand best;
    best.base = v;
    Operand o = best;
    for (int n = edit_.producer(o.base); n >= 0 && match_.plain(n); n = edit_.producer(o.base)) {
      double c = 1;
      const ValueId x = role == Role::kValues ? kNoValue : scaled(n, &c);
      if (x != kNoValue) {
        o.base = x;
        o.scale *= c;
      } else if (match_.is(n, "Transpose")) {
        int order[kMaxRank];
        transpose_perm(edit_.node(n), kRank, order);
        for (int& axis : o.perm) axis = order[axis];
        o.base = edit_.node(n).inputs[0];
        ++o.copies;
      } else {
        break;
      }
      if (!has_rank(o.base)) break;
      o.passed.push_back(n);
      if (is_readable(o, role)) best = o;
    }
    return best;
  }

  bool is_known(ValueId v) const {
    const Value& value = edit_.value(v);
    return value.dtype == DType::kFloat32 && value.has_shape && value.shape.is_known();
  }

  // Past whatever strides can tell.
  Operand pass_views(ValueId v, Role role) {
    Operand best;
    best.base = v;
    if (!is_known(v)) return best;
    Operand o = best;
    o.is_view = true;
    std::vector<ValueId> made;  // by the nodes passed
    while (o.passed.size() < kMostPassed) {
      const int n = edit_.producer(o.base);
      if (n < 0) break;
      const Node& node = edit_.node(n);
      double c = 1;
      ValueId x = role == Role::kValues ? kNoValue : scaled(n, &c);
      if (x == kNoValue && is_view_maker(node)) {
        x = node.inputs[0];
        o.copies += copies(node) ? 1 : 0;
      }
      if (x == kNoValue || !is_known(x)) break;
      o.passed.push_back(n);
      made.push_back(o.base);
      o.base = x;
      o.scale *= c;
      if (!see_through(made, &o)) break;
      if (is_readable(o, role)) best = o;
    }
    return best;
  }

  // o->view as its base is seen through the nodes passed.
  bool see_through(const std::vector<ValueId>& made, Operand* o) {
    o->view = dense_view(edit_.value(o->base).shape);
    for (std::size_t i = o->passed.size(); i-- > 0;) {
      const Node& node = edit_.node(o->passed[i]);
      if (is_view_maker(node) && !advance_view(edit_.graph(), node, made[i], &o->view)) return false;
    }
    return true;
  }

  Operand operand(ValueId v, Role role) {
    Operand near = pass_transposes(v, role);
    Operand far = pass_views(v, role);
    return far.copies > near.copies ? far : near;
  }

  // ---- the rewrite ----

  static void describe(const Operand& o, Role role, const char* perm_name, const char* view_name,
                       std::vector<Attribute>* attributes) {
    if (o.is_view) {
      const std::size_t order[] = {0, 1, role == Role::kKeys ? std::size_t{3} : 2, role == Role::kKeys ? std::size_t{2} : 3};
      std::vector<std::int64_t> numbers;
      for (const std::size_t i : order) numbers.push_back(o.view.dims[i]);
      for (const std::size_t i : order) numbers.push_back(o.view.dims[i] == 1 ? 1 : o.view.steps[i]);
      numbers.push_back(o.view.offset);
      attributes->push_back({view_name, std::move(numbers)});
      return;
    }
    const std::vector<std::int64_t> axes = {o.perm[0], o.perm[1], o.perm[role == Role::kKeys ? 3 : 2],
                                            o.perm[role == Role::kKeys ? 2 : 3]};
    if (axes != std::vector<std::int64_t>{0, 1, 2, 3}) attributes->push_back({perm_name, axes});
  }

  // The transposition that alone reads what node n makes; -1: none that leaves rows together.
  int transposed_by(int n, std::vector<Attribute>* attributes) {
    const int last = match_.next(n);
    if (!match_.is(last, "Transpose") || !match_.plain(last)) return -1;
    int order[kMaxRank];
    transpose_perm(edit_.node(last), kRank, order);
    if (order[3] != 3) return -1;
    attributes->push_back({"y_perm", std::vector<std::int64_t>{order[0], order[1], order[2], order[3]}});
    return last;
  }

  void from_softmax(int softmax) {
    Found f;
    if (!find_scores(softmax, &f)) return;
    const int weighted = match_.next(softmax);
    if (!match_.is(weighted, "MatMul") || !match_.plain(weighted)) return;
    const std::vector<ValueId>& last_inputs = edit_.node(weighted).inputs;
    const std::vector<ValueId>& inputs = edit_.node(f.product).inputs;
    if (last_inputs.size() != 2 || last_inputs[0] != match_.out(softmax) || last_inputs[1] == last_inputs[0]) return;
    if (inputs.size() != 2 || !has_rank(inputs[0]) || !has_rank(inputs[1]) || !has_rank(last_inputs[1])) return;
    rewrite(f, weighted, operand(inputs[0], Role::kQueries), operand(inputs[1], Role::kKeys),
            operand(last_inputs[1], Role::kValues));
  }

  void rewrite(const Found& f, int weighted, const Operand& q, const Operand& k, const Operand& v) {
    std::vector<Attribute> attributes = {{"scale", static_cast<float>(f.scale * q.scale * k.scale)}};
    if (!std::isnormal(std::get<float>(attributes[0].value))) return;
    describe(q, Role::kQueries, "q_perm", "q_view", &attributes);
    describe(k, Role::kKeys, "k_perm", "k_view", &attributes);
    describe(v, Role::kValues, "v_perm", "v_view", &attributes);
    const int transposed = transposed_by(weighted, &attributes);
    const int last = transposed < 0 ? weighted : transposed;
    if (!match_.set_op(last, kFusedAttention, 1, std::move(attributes), kInternalDomain)) return;
    const ValueId operands[] = {q.base, k.base, v.base, f.mask};
    const int count = f.mask == kNoValue ? 3 : 4;
    // The last first: a constant that nobody reads for a moment would lose its bytes.
    for (int i = count; i-- > 0;) edit_.set_input(last, i, operands[i]);
    edit_.shrink_inputs(last, count);
    if (last != weighted) match_.absorb(last, weighted);
    match_.absorb(last, f.softmax);
    if (f.sum >= 0) match_.absorb(last, f.sum);
    for (const int n : f.scales) match_.absorb(last, n);
    match_.absorb(last, f.product);
    for (const Operand* o : {&q, &k, &v}) {
      for (const int n : o->passed) absorb_dead(last, n);
    }
  }

  void absorb_dead(int into, int n) {
    if (edit_.removed(n)) return;
    const std::vector<ValueId>& outputs = edit_.node(n).outputs;
    const auto dead = [&](ValueId v) { return v == kNoValue || edit_.is_dead(v); };
    if (std::all_of(outputs.begin(), outputs.end(), dead)) match_.absorb(into, n);
  }

  static constexpr std::size_t kMostPassed = 16;

  GraphEditor edit_;
  Matcher match_;
  const PassContext& context_;
};

}  // namespace

bool fuse_attention(Graph& graph, const PassContext& context) { return FuseAttention(graph, context).run(); }

}  // namespace evn
