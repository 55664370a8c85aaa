#include "runtime/cost/step_features.h"

#include "base/hash.h"
#include "ops/multiply_adds.h"

namespace evn {
namespace {

void add(Hasher& hasher, const TensorDesc& desc) {
  hasher.add(static_cast<std::uint64_t>(desc.dtype));
  if (desc.dtype == DType::kUndefined) return;
  hasher.add(static_cast<std::uint64_t>(desc.shape.rank()));
  for (int axis = 0; axis < desc.shape.rank(); ++axis) hasher.add(static_cast<std::uint64_t>(desc.shape[axis]));
}

void add(Hasher& hasher, const Node& node) {
  hasher.add(node.op_type);
  hasher.add(node.domain);
  for (const AttributeValue& value : node.resolved) add_value(&hasher, value);  // times do not depend on the bytes of tensors
  hasher.add(static_cast<std::uint64_t>(node.epilogue.count));
  for (int i = 0; i < node.epilogue.count; ++i) hasher.add(static_cast<std::uint64_t>(node.epilogue.ops[i].kind));
}

// A node with what it is asked about.
void add(Hasher& hasher, const OpDesc& desc) {
  if (desc.node != nullptr) add(hasher, *desc.node);
  for (const auto& side : {desc.inputs, desc.outputs}) {
    for (const TensorDesc& d : side) add(hasher, d);
  }
  for (std::size_t i = 0; i < desc.inputs.size(); ++i) {
    hasher.add(static_cast<std::uint64_t>(desc.input_layout(static_cast<int>(i))));
    hasher.add(desc.constant(static_cast<int>(i)) != nullptr ? 1u : 0u);
  }
  if (!desc.outputs.empty()) hasher.add(static_cast<std::uint64_t>(desc.output_layout()));
  hasher.add((static_cast<std::uint64_t>(desc.fusion.bias + 1) << 32) | static_cast<std::uint32_t>(desc.fusion.residual + 1));
  hasher.add((static_cast<std::uint64_t>(desc.fusion.stored_16bit) << 32) | desc.fusion.paged);
  hasher.add(desc.threads);
}

double bytes_of(const OpDesc& desc) {
  double bytes = 0;
  for (const auto& side : {desc.inputs, desc.outputs}) {
    for (const TensorDesc& d : side) bytes += d.dtype == DType::kUndefined ? 0 : static_cast<double>(d.size_bytes());
  }
  return bytes;
}

}  // namespace

StepFeatures features_of(const CompiledGraph& graph, const PlanStep& step) {
  Hasher family;
  family.add(std::string_view(step.kernel->name));
  if (step.desc.node != nullptr) family.add(step.desc.node->op_type);
  Hasher key;
  key.add(family.value());
  add(key, step.desc);
  for (const OpDesc& part : step.desc.nodes) add(key, part);
  for (const std::int32_t with : step.absorbed) add(key, graph.graph().nodes[static_cast<std::size_t>(with)]);
  StepFeatures f{key.value(), family.value(), step.plan.flops, step.plan.bytes > 0 ? step.plan.bytes : bytes_of(step.desc)};
  if (f.flops > 0 || step.desc.node == nullptr) return f;
  // Kernels that say nothing of their operations.
  const auto count = [&](const OpDesc& desc) { f.flops += 2 * multiply_adds(*desc.node, desc.inputs, desc.outputs); };
  if (step.desc.nodes.empty()) count(step.desc);
  for (const OpDesc& part : step.desc.nodes) count(part);
  return f;
}

}  // namespace evn
