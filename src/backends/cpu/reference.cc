#include "backends/cpu/reference.h"

#include <array>
#include <vector>

#include "backends/cpu/support.h"
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

// A node's tensors; of few, without an allocation.
template <typename T>
class Bound {
 public:
  // `buffers` is empty while a run is planned.
  Bound(std::span<const TensorDesc> descs, std::span<const Buffer> buffers) {
    T* to = few_.data();
    if (descs.size() > kInline) {
      many_.resize(descs.size());
      to = many_.data();
    }
    for (std::size_t i = 0; i < descs.size(); ++i) {
      to[i].desc = descs[i];
      to[i].data = descs[i].dtype == DType::kUndefined || buffers.empty() ? nullptr : buffers[i].address();
    }
    span_ = {to, descs.size()};
  }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

  std::span<const T> span() const { return span_; }

 private:
  std::array<T, kInline> few_;
  std::vector<T> many_;
  std::span<const T> span_;
};

// A tile is some parts of the operator's.
struct ReferenceState {
  std::int64_t per_tile;
};

bool has_small_elements(std::span<const TensorDesc> descs) {
  return std::any_of(descs.begin(), descs.end(), [](const TensorDesc& d) { return is_sub_byte(d.dtype); });
}

// Epilogues are applied to the whole output, and elements of less than a byte are unpacked as a whole.
std::int64_t parts_of(const OpDesc& desc) {
  const Node& node = *desc.node;
  if (node.op->parts == nullptr || !node.epilogue.empty() || has_small_elements(desc.inputs) || has_small_elements(desc.outputs))
    return 1;
  const Bound<ConstTensor> inputs(desc.inputs, {});
  const Bound<MutableTensor> outputs(desc.outputs, {});
  return std::max<std::int64_t>(1, node.op->parts({node, inputs.span(), outputs.span()}));
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  for (const TensorDesc& t : desc.inputs) plan->bytes += t.dtype == DType::kUndefined ? 0.0 : static_cast<double>(t.size_bytes());
  for (const TensorDesc& t : desc.outputs) plan->bytes += t.dtype == DType::kUndefined ? 0.0 : static_cast<double>(t.size_bytes());
  const double products = multiply_adds(*desc.node, desc.inputs, desc.outputs);
  plan->flops = products > 0 ? 2 * products : plan->bytes * 8;
  const std::int64_t parts = parts_of(desc);
  auto& s = plan->state<ReferenceState>();
  s.per_tile = units_per_tile(parts, plan->flops / static_cast<double>(parts));
  plan->tiles = ceil_div(parts, s.per_tile);
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel&) {
  const OpDesc& desc = *args.desc;
  const Bound<ConstTensor> inputs(desc.inputs, args.inputs);
  const Bound<MutableTensor> outputs(desc.outputs, args.outputs);
  const std::int64_t per_tile = args.plan->state<ReferenceState>().per_tile;
  run_reference({.node = *desc.node,
                 .inputs = inputs.span(),
                 .outputs = outputs.span(),
                 .services = args.services != nullptr ? *args.services : RunServices{},
                 .begin = begin * per_tile,
                 .end = end == args.plan->tiles ? INT64_MAX : end * per_tile});
}

}  // namespace

const Kernel cpu_reference_kernel = {
    .name = "reference", .op = "*", .domain = "*", .rank = 0, .supports = supports, .plan = plan, .run = run};

}  // namespace evn
