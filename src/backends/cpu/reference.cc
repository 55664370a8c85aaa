#include "backends/cpu/reference.h"

#include <array>
#include <vector>

#include "base/checked.h"
#include "ops/multiply_adds.h"
#include "ops/op.h"

namespace evn {
namespace {

constexpr std::size_t kInline = 32;  // tensors of a node that need no allocation

Refusal supports(const OpDesc& desc) {
  const OpDef* op = desc.node->op;
  if (op == nullptr || op->reference == nullptr) return "the operator has no reference";
  const bool has_inputs = desc.has_input(0);
  if (!has_inputs && desc.outputs.empty()) return "no inputs and no outputs";
  const DType dtype = has_inputs ? desc.inputs[0].dtype : desc.outputs[0].dtype;
  const int bit = static_cast<int>(dtype);
  if (bit < 0 || bit >= 32 || (op->dtypes & (1u << bit)) == 0) return "not for this element type";
  if (!desc.node->epilogue.empty() && desc.outputs[0].dtype != DType::kFloat32) return "fused steps are for float32";
  return nullptr;
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  plan->tiles = 1;
  for (const TensorDesc& t : desc.inputs) plan->bytes += t.dtype == DType::kUndefined ? 0.0 : static_cast<double>(t.size_bytes());
  for (const TensorDesc& t : desc.outputs) plan->bytes += t.dtype == DType::kUndefined ? 0.0 : static_cast<double>(t.size_bytes());
  const double products = multiply_adds(*desc.node, desc.inputs, desc.outputs);
  plan->flops = products > 0 ? 2 * products : plan->bytes * 8;
}

template <typename Tensor>
void bind(std::span<const TensorDesc> descs, std::span<const Buffer> buffers, Tensor* to) {
  for (std::size_t i = 0; i < descs.size(); ++i) {
    to[i].desc = descs[i];
    to[i].data = descs[i].dtype == DType::kUndefined ? nullptr : buffers[i].address();
  }
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const OpDesc& desc = *args.desc;
  std::array<ConstTensor, kInline> few_inputs;
  std::array<MutableTensor, kInline> few_outputs;
  std::vector<ConstTensor> many_inputs;
  std::vector<MutableTensor> many_outputs;
  ConstTensor* inputs = few_inputs.data();
  MutableTensor* outputs = few_outputs.data();
  if (desc.inputs.size() > kInline) {
    many_inputs.resize(desc.inputs.size());
    inputs = many_inputs.data();
  }
  if (desc.outputs.size() > kInline) {
    many_outputs.resize(desc.outputs.size());
    outputs = many_outputs.data();
  }
  bind(desc.inputs, args.inputs, inputs);
  bind(desc.outputs, args.outputs, outputs);
  run_reference({*desc.node,
                 {inputs, desc.inputs.size()},
                 {outputs, desc.outputs.size()},
                 args.services != nullptr ? *args.services : RunServices{}});
}

}  // namespace

const Kernel cpu_reference_kernel = {
    .name = "reference", .op = "*", .domain = "*", .rank = 0, .supports = supports, .plan = plan, .run = run};

}  // namespace evn
