// What DequantizeLinear makes of constants becomes a constant of float32, where no rewrite before has taken the bytes: the weights
// of models of which only these are quantized. Better four times the memory than that work in each run, up to a limit in all.
#include "base/checked.h"
#include "graph/infer.h"
#include "graph/passes/quantization.h"
#include "graph/passes/rewrites.h"

namespace evn {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;

}  // namespace

bool fold_dequantize(Graph& graph, const PassContext& context) {
  GraphEditor edit(graph);
  std::size_t made = 0;
  for (int n = 0; n < edit.node_count(); ++n) {
    check_deadline(context, static_cast<std::size_t>(n));
    const Node& node = edit.node(n);
    Quantization q;
    if (!is_op(node, "DequantizeLinear") || !quantization_of(edit, node, &q) || edit.is_output(node.outputs[0])) continue;
    if (edit.use_count(node.outputs[0]) == 0) continue;  // rewritten: what is left of it goes with the dead code
    const WeightPtr x = edit.value(node.inputs[0]).constant;
    if (x == nullptr) continue;
    const TensorDesc desc = {DType::kFloat32, x->desc.shape};
    const std::size_t bytes = desc.size_bytes();
    if (bytes > context.limits.tensor_bytes || checked_add(made, bytes) > kMostBytes) continue;
    std::vector<ConstTensor> inputs(node.inputs.size());
    std::vector<TensorDesc> descs(node.inputs.size());
    std::vector<std::vector<std::uint64_t>> copies(node.inputs.size());
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      const Weight& w = *edit.value(node.inputs[i]).constant;
      inputs[i] = {w.desc, aligned_bytes(w, copies[i])};
      descs[i] = w.desc;
    }
    std::shared_ptr<Weight> weight;
    try {
      TensorDesc out;
      infer_node(node, descs, inputs, {&out, 1});
      void* to = nullptr;
      weight = make_weight(desc, context.ledger, &to);
      const MutableTensor y = {desc, to};
      run_reference({node, inputs, {&y, 1}});
    } catch (const Error& e) {
      // Errors of a branch, which may never be taken, are left to the run.
      if (node.region >= 0 && e.status == EVN_ERROR_INVALID_MODEL) continue;
      throw;
    }
    made += bytes;
    Value& value = edit.value(node.outputs[0]);
    value.dtype = DType::kFloat32;
    value.has_shape = true;
    value.shape = desc.shape;
    value.constant = std::move(weight);
    edit.remove_node(n);
  }
  return edit.commit();
}

}  // namespace evn
