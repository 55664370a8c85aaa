// Optional: a value that may be there. OptionalHasElement: whether it is. OptionalGetElement: what it holds.
//   Optional without an input is empty, of the type that its attribute `type` says. From version 18 on the other two take tensors
//   and sequences as well, which are there always, and OptionalHasElement takes no input at all: false.
// dtypes: any. Failures: neither input nor type; an element asked of an empty optional (INVALID_ARGUMENT). Exact.
#include "ops/infra/runtime_values.h"

namespace evn {
namespace {

DType optional_dtype(const Node& node, std::span<const DType> inputs, int) {
  if (!inputs.empty() && inputs[0] != DType::kUndefined) return inputs[0];
  const auto* type = std::get_if<TensorDesc>(&node.resolved[0]);
  if (type == nullptr) fail(EVN_ERROR_INVALID_MODEL, "Optional has neither an input nor a type");
  return type->dtype;
}

void infer_optional(InferContext& c) {
  if (c.has_input(0)) {
    c.outputs[0].wraps = c.inputs[0].wraps.in(Wrap::kOptional);
    return;
  }
  const auto& type = std::get<TensorDesc>(c.node.resolved[0]);
  c.outputs[0].wraps = type.wraps.in(Wrap::kOptional);
}

void host_optional(HostContext& c) {
  if (c.has_input(0)) {
    c.outputs[0] = make_runtime_value(c.inputs[0]->desc, Wrap::kOptional, {c.services.keep(c.inputs[0])});
    return;
  }
  c.outputs[0] = make_runtime_value(std::get<TensorDesc>(c.node.resolved[0]), Wrap::kOptional, {});
}

DType bool_dtype(const Node&, std::span<const DType>, int) { return DType::kBool; }

void infer_has(InferContext& c) {
  if (c.node.op->since < 18) require_wrap(c, 0, Wrap::kOptional);
  c.outputs[0].shape = {};
}

void host_has(HostContext& c) {
  const bool is_optional = c.has_input(0) && c.inputs[0]->desc.wraps.outer() == Wrap::kOptional;
  c.outputs[0] = bool_runtime_value(c.services, c.has_input(0) && (!is_optional || !c.inputs[0]->parts.empty()));
}

void infer_get(InferContext& c) {
  if (c.node.op->since < 18) require_wrap(c, 0, Wrap::kOptional);
  const TensorDesc& x = c.inputs[0];
  const bool is_optional = x.wraps.outer() == Wrap::kOptional;
  c.outputs[0].wraps = is_optional ? x.wraps.inside() : x.wraps;
  if (!c.outputs[0].wraps) c.outputs[0].shape = is_optional ? unknown_rank() : x.shape;
}

void host_get(HostContext& c) {
  const RuntimeValuePtr& x = c.inputs[0];
  if (x->desc.wraps.outer() != Wrap::kOptional) {
    c.outputs[0] = x;
    return;
  }
  if (x->parts.empty()) fail(EVN_ERROR_INVALID_ARGUMENT, "the optional is empty");
  c.outputs[0] = x->parts[0];
}

constexpr AttributeSpec kOptional[] = {optional_attribute("type", AttributeType::kType)};
constexpr std::uint32_t kFlags = kOpAnyRank;
constexpr OpDef kOps[] = {
    {.name = "Optional",
     .since = 15,
     .min_inputs = 0,
     .attributes = kOptional,
     .dtypes = kStoredDtype,
     .flags = kFlags,
     .output_dtype = optional_dtype,
     .infer = infer_optional,
     .host = host_optional},
    {.name = "OptionalHasElement",
     .since = 15,
     .dtypes = kStoredDtype,
     .flags = kFlags,
     .output_dtype = bool_dtype,
     .infer = infer_has,
     .host = host_has},
    {.name = "OptionalHasElement",
     .since = 18,
     .min_inputs = 0,
     .dtypes = kStoredDtype,
     .flags = kFlags,
     .output_dtype = bool_dtype,
     .infer = infer_has,
     .host = host_has},
    {.name = "OptionalGetElement", .since = 15, .dtypes = kStoredDtype, .flags = kFlags, .infer = infer_get, .host = host_get},
    {.name = "OptionalGetElement", .since = 18, .dtypes = kStoredDtype, .flags = kFlags, .infer = infer_get, .host = host_get},
};

}  // namespace

extern const OpFamily optional_family;
const OpFamily optional_family = {kOps};

}  // namespace evn
