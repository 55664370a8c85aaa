// Activation fusion: element-wise scalar steps that follow a node, alone in reading it, are applied where the node makes its
// output. In a chain of steps without such a producer, the first keeps its operator and takes the others.
#include "graph/edit.h"
#include "graph/passes/epilogue_ops.h"
#include "graph/passes/match.h"
#include "graph/passes/rewrites.h"

namespace evn {
namespace {

void take_followers(GraphEditor& edit, int n) {
  if (!takes_epilogue(edit.node(n)) || edit.node(n).outputs.empty()) return;
  for (;;) {
    const ValueId y = edit.node(n).outputs[0];
    const int follower = edit.only_consumer(y);
    if (follower < 0) return;
    Epilogue chain = edit.node(n).epilogue;
    if (!append_steps(edit.graph(), edit.node(follower), y, &chain)) return;
    edit.node(n).epilogue = chain;
    const ValueId result = edit.node(follower).outputs[0];
    Matcher(edit).absorb(n, follower);
    edit.set_output(n, 0, result);
  }
}

}  // namespace

bool fuse_epilogue(Graph& graph, const PassContext& context) {
  GraphEditor edit(graph);
  for (int n = 0; n < edit.node_count(); ++n) {
    check_deadline(context, static_cast<std::size_t>(n));
    if (!edit.removed(n)) take_followers(edit, n);
  }
  return edit.commit();
}

}  // namespace evn
