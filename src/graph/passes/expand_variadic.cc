// Sum, Mean, Max and Min of several float32 operands become chains of Add, Max or Min of two, which have kernels that broadcast,
// from left to right; Mean is then scaled by a step of the last. Shapes and NaN are those of the whole: broadcasting is
// associative.
#include "graph/bodies.h"
#include "graph/edit.h"
#include "graph/passes/match.h"
#include "graph/passes/rewrites.h"

namespace evn {
namespace {

class Variadic {
 public:
  explicit Variadic(Graph& graph) : edit_(graph), match_(edit_) {}

  bool run(const PassContext& context) {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context, static_cast<std::size_t>(n));
      if (edit_.removed(n) || !match_.plain(n)) continue;
      if (match_.is(n, "Mean")) expand(n, "Add", 14, 2);
      else if (match_.is(n, "Sum")) expand(n, "Add", 14, 3);
      else if (match_.is(n, "Max")) expand(n, "Max", 13, 3);
      else if (match_.is(n, "Min")) expand(n, "Min", 13, 3);
    }
    return edit_.commit();
  }

 private:
  void expand(int n, const char* of_two, int since, std::size_t least) {
    const std::vector<ValueId> operands = edit_.node(n).inputs;
    const std::string name = bounded_path(edit_.node(n).name), model_op = edit_.node(n).op_type;
    if (operands.size() < least) return;
    for (const ValueId v : operands) {
      if (v == kNoValue || edit_.value(v).dtype != DType::kFloat32) return;
    }
    ValueId left = operands[0];
    for (std::size_t i = 1; i + 1 < operands.size(); ++i) {
      cancellation_point();
      // All are the model's node: errors and rules name it.
      Node node = Matcher::made(of_two, "", since, name, edit_.node(n).region);
      node.model_op = model_op;
      node.inputs = {left, operands[i]};
      left = edit_.add_value(name + "/" + std::to_string(i - 1), DType::kFloat32);
      node.outputs = {left};
      edit_.insert_node(n, std::move(node));
    }
    EVN_CHECK(match_.set_op(n, of_two, since));
    edit_.node(n).model_op = model_op;
    edit_.set_input(n, 1, operands.back());
    edit_.set_input(n, 0, left);
    edit_.shrink_inputs(n, 2);
    if (model_op == "Mean") {
      EVN_CHECK(edit_.node(n).epilogue.push({EpilogueOpKind::kScale, 1.0f / static_cast<float>(operands.size()), 0}));
    }
  }

  GraphEditor edit_;
  Matcher match_;
};

}  // namespace

bool expand_variadic(Graph& graph, const PassContext& context) { return Variadic(graph).run(context); }

}  // namespace evn
