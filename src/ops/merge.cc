// Merge: what is left of an `If` of ONNX once graph/inline_if has put the nodes of its bodies beside the others. Not an operator of
// the format: models cannot name it.
//   inputs: condition (bool, one element), what the then-branch made, what the else-branch made. output: one of the two.
//   attribute: the number of the If, which leads to its regions (core/graph.h).
// Failures: branches of unlike dtype.
#include "ops/merge.h"
#include "ops/host.h"
#include "ops/infra/check.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

constexpr AttributeSpec kAttributes[] = {required_attribute("if", AttributeType::kInt)};

DType merged_dtype(const Node&, std::span<const DType> inputs, int) { return inputs[1]; }

// What both branches agree on.
void infer_merge(InferContext& c) {
  if (c.inputs[1].wraps != c.inputs[2].wraps) {
    fail(EVN_ERROR_INVALID_MODEL, "the branches of an If give %s and %s", c.inputs[1].type_string().c_str(),
         c.inputs[2].type_string().c_str());
  }
  require_same_dtype(c, 1, 2);
  c.outputs[0].wraps = c.inputs[1].wraps;
  if (c.inputs[1].wraps) return;
  if (InferContext::is_unknown_rank(c.shape(1)) || InferContext::is_unknown_rank(c.shape(2))) return c.set_unknown_rank(0);
  if (c.values[0].data != nullptr) {
    require_scalar(c, 0);
    c.outputs[0].shape = c.shape(*c.values[0].as<std::uint8_t>() != 0 ? 1 : 2);
    return;
  }
  if (c.shape(1).rank() != c.shape(2).rank()) return c.set_unknown_rank(0);
  c.outputs[0].shape = c.shape(1);
  for (int i = 0; i < c.shape(1).rank(); ++i) {
    if (c.shape(1)[i] != c.shape(2)[i]) c.outputs[0].shape[i] = -1;
  }
}

void reference_merge(const ReferenceContext& c) {
  const ConstTensor& chosen = c.input(*c.input(0).as<std::uint8_t>() != 0 ? 1 : 2);
  const std::size_t bytes = chosen.desc.size_bytes();
  if (bytes > 0) move_in_pieces(c.output().data, chosen.data, bytes);
}

void host_merge(HostContext& c) {
  const RuntimeValuePtr& chosen = c.inputs[runtime_value_integer(c.inputs[0], "the condition of an If") != 0 ? 1 : 2];
  EVN_CHECK(chosen != nullptr);
  c.outputs[0] = chosen;
}

constexpr OpDef kOps[] = {
    {.name = "Merge",
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 3,
     .attributes = kAttributes,
     .dtypes = dtype_bit(DType::kBool),
     .value_inputs = 1,
     .flags = kOpMerge | kOpAnyRank,
     .output_dtype = merged_dtype,
     .infer = infer_merge,
     .reference = reference_merge,
     .host = host_merge},
};

}  // namespace

extern const OpFamily merge_family;
const OpFamily merge_family = {kOps};

}  // namespace evn
