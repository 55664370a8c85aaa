// Finds the shuffle of channels that ShuffleNet is named for, as exporters write it:
//   [N, C, ...] -> Reshape [N, g, C / g, ...] -> Transpose (0, 2, 1, ...) -> Reshape [N, C, ...]
// and makes it a Gather along axis 1 with constant indices, which kernels can do in any layout.
#include "graph/edit.h"
#include "graph/passes/match.h"
#include "graph/passes/rewrites.h"
#include "ops/op.h"
#include "ops/transpose.h"

namespace evn {
namespace {

class Shuffle {
 public:
  Shuffle(Graph& graph, const PassContext& context) : edit_(graph), match_(edit_), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (!edit_.removed(n) && match_.is(n, "Transpose")) from_transpose(n);
    }
    return edit_.commit();
  }

 private:
  void from_transpose(int transpose) {
    const Value& split = edit_.value(edit_.node(transpose).inputs[0]);
    const int before = match_.maker(edit_.node(transpose).inputs[0], "Reshape", 1);
    const int after = match_.next(transpose);
    if (before < 0 || !match_.is(after, "Reshape") || edit_.node(after).inputs[0] != match_.out(transpose)) return;
    const ValueId x = edit_.node(before).inputs[0];
    const bool plain = edit_.node(before).epilogue.empty() && edit_.node(transpose).epilogue.empty();
    if (!plain || !swaps_axes_1_and_2(edit_.node(transpose), split) ||
        !is_split(edit_.value(x), split, edit_.value(match_.out(after))))
      return;
    const std::int64_t channels = edit_.value(x).shape[1], groups = split.shape[1];
    void* to = nullptr;
    const WeightPtr indices = make_weight({DType::kInt64, Shape{channels}}, context_.ledger, &to);
    for (std::int64_t i = 0; i < channels; ++i) {
      static_cast<std::int64_t*>(to)[i] = i % groups * (channels / groups) + i / groups;
    }
    if (!match_.set_op(after, "Gather", 13, {{"axis", std::int64_t{1}}})) return;
    edit_.set_input(after, 0, x);
    edit_.set_input(after, 1, edit_.add_constant(edit_.node(transpose).name + ".indices", indices));
    edit_.shrink_inputs(after, 2);
    match_.absorb(after, transpose);
    match_.absorb(after, before);
  }

  static bool swaps_axes_1_and_2(const Node& node, const Value& x) {
    if (!x.has_shape || x.shape.rank() < 4) return false;
    int perm[kMaxRank];
    transpose_perm(node, x.shape.rank(), perm);
    for (int i = 0; i < x.shape.rank(); ++i) {
      if (perm[i] != (i == 1 ? 2 : i == 2 ? 1 : i)) return false;
    }
    return true;
  }

  // Whether `split` is x with axis 1 as two, and y is as x. One dim may be unknown, the same in all: the others leave it no choice.
  static bool is_split(const Value& x, const Value& split, const Value& y) {
    if (!x.has_shape || !y.has_shape || x.shape.rank() + 1 != split.shape.rank() || !(x.shape == y.shape)) return false;
    const std::int64_t groups = split.shape[1], size = split.shape[2];
    if (groups < 2 || size < 2 || x.shape[1] / size != groups || x.shape[1] % size != 0) return false;
    int unknown = 0;
    for (int i = 0; i < x.shape.rank(); ++i) {
      if (i == 1) continue;
      unknown += x.shape[i] < 0 ? 1 : 0;
      if (x.shape[i] != split.shape[i == 0 ? 0 : i + 1] || x.shape[i] == 0) return false;
    }
    return unknown <= 1;
  }

  GraphEditor edit_;
  Matcher match_;
  const PassContext& context_;
};

}  // namespace

bool fuse_channel_shuffle(Graph& graph, const PassContext& context) { return Shuffle(graph, context).run(); }

}  // namespace evn
