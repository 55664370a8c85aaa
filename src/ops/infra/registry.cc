// Finds operators by name and version, and runs a node by its reference kernel.
#include <algorithm>

#include "kept_operators.h"
#include "ops/infra/unpack.h"
#include "ops/merge.h"

namespace evn {

// A scan of some hundred rows, of which nearly all differ in the first letters: about a microsecond.
const OpDef* find_op(const std::string& domain, const std::string& name, std::int64_t opset) {
  const OpDef* best = nullptr;
  for (const OpFamily* family : op_families()) {
    for (const OpDef& op : family->ops) {
      if (op.since <= opset && (best == nullptr || op.since > best->since) && name == op.name && domain == op.domain) best = &op;
    }
  }
  return best;
}

bool op_known(const std::string& domain, const std::string& name) { return find_op(domain, name, INT64_MAX) != nullptr; }

bool op_left_out(const std::string& name) { return !keeps_operator(name); }

bool runs_on_host(const Graph& graph, const Node& node) {
  if (node.op->host == nullptr) return false;
  if (node.op->reference == nullptr) return true;
  const auto wrapped = [&](ValueId v) { return v != kNoValue && graph.values[static_cast<std::size_t>(v)].wraps; };
  return std::any_of(node.inputs.begin(), node.inputs.end(), wrapped) ||
         std::any_of(node.outputs.begin(), node.outputs.end(), wrapped);
}

void run_reference(const ReferenceContext& c) {
  const OpDef& op = *c.node.op;
  const bool from_input = !c.inputs.empty() && c.inputs[0].present();
  const DType dtype = from_input ? c.inputs[0].desc.dtype : c.outputs[0].desc.dtype;
  const auto number = static_cast<std::uint32_t>(dtype);
  if (number >= 32 || (op.dtypes & dtype_bit(dtype)) == 0) {
    fail(EVN_ERROR_UNSUPPORTED, "%s of %s is not implemented", op.name, dtype_name(dtype));
  }
  if ((op.flags & kOpMoves) != 0 && has_packed_elements(c)) return run_unpacked(c);
  op.reference(c);
  if (c.node.epilogue.empty()) return;
  const MutableTensor& y = c.output();
  EVN_CHECK(y.desc.dtype == DType::kFloat32);
  const std::int64_t count = y.desc.shape.elements();
  for (std::int64_t i = 0; i < count; ++i) {
    cancellation_point(kFunctionWork * c.node.epilogue.count);
    y.as<float>()[i] = apply_epilogue(c.node.epilogue, y.as<float>()[i]);
  }
}

}  // namespace evn
