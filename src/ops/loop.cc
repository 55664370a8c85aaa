// Loop: runs its body at most M times while `cond` holds.
//   inputs: M (int64, one element; absent: no bound), cond (bool, one element; absent: true), then the first values of what is
//   carried from iteration to iteration. The body gets the number of the iteration, cond and the carried values, and gives the next
//   cond, the next carried values and one element for each scan output. Outputs: the last carried values, and the scan outputs
//   stacked along a new axis 0.
// dtypes: any, sequences and optionals included. Failures: counts of inputs and outputs that do not fit the body's; a carried value
// that changes its type (an optional may become what it holds); elements of a scan output of unlike shapes; more iterations than
// the limit loop_iterations (LIMIT). Exact.
#include <algorithm>

#include "ops/infra/check.h"
#include "ops/infra/runtime_values.h"

namespace evn {
namespace {

constexpr int kFixedInputs = 2;  // M and cond

struct Counts {
  int carried;
  int scans;
  int captures;
};

Counts counts_of(const Node& node) {
  Counts n;
  n.captures = node.captures;
  n.carried = std::max(static_cast<int>(node.inputs.size()) - n.captures - kFixedInputs, 0);
  const int inputs = static_cast<int>(node.body->inputs.size()) - n.captures;
  n.scans = static_cast<int>(node.body->outputs.size()) - 1 - n.carried;
  if (inputs != kFixedInputs + n.carried || n.scans < 0) {
    fail(EVN_ERROR_INVALID_MODEL, "the body of Loop has %d inputs and %zu outputs, for %d carried values", inputs,
         node.body->outputs.size(), n.carried);
  }
  require_inputs(node, kFixedInputs, node.inputs.size());
  if (static_cast<int>(node.outputs.size()) > n.carried + n.scans) {
    fail(EVN_ERROR_INVALID_MODEL, "Loop has %zu outputs, its body gives %d", node.outputs.size(), n.carried + n.scans);
  }
  return n;
}

DType loop_dtype(const Node& node, std::span<const DType>, int output) {
  const std::size_t from = static_cast<std::size_t>(output) + 1;
  const Graph& body = *node.body;
  return from < body.outputs.size() ? body.values[static_cast<std::size_t>(body.outputs[from])].dtype : DType::kUndefined;
}

void body_inputs(const Node& node, std::span<const TensorDesc> inputs, std::span<TensorDesc> to) {
  const Counts n = counts_of(node);
  to[0] = {DType::kInt64, {}};
  to[1] = {DType::kBool, {}};
  for (int i = 0; i < n.carried; ++i)
    to[static_cast<std::size_t>(kFixedInputs + i)] = inputs[static_cast<std::size_t>(kFixedInputs + i)];
}

int feedback(const Node& node, int input) {
  return input >= kFixedInputs && input < kFixedInputs + counts_of(node).carried ? input - 1 : -1;
}

std::int64_t iterations(const Node&, std::span<const ConstTensor> inputs) {
  const ConstTensor& bound = inputs[0];
  if (bound.data == nullptr || bound.desc.dtype != DType::kInt64 || bound.desc.shape.elements() != 1) return -1;
  return std::max<std::int64_t>(*bound.as<std::int64_t>(), 0);
}

void infer_loop(InferContext& c) {
  const Counts n = counts_of(c.node);
  require_tensor(c, 0);
  require_tensor(c, 1);
  require_dtype(c, 0, kIndexDtypes);
  require_dtype(c, 1, dtype_bit(DType::kBool));
  if (c.body[0].wraps || c.body[0].dtype != DType::kBool) {
    fail(EVN_ERROR_INVALID_MODEL, "the condition that the body gives is of type %s", c.body[0].type_string().c_str());
  }
  for (std::size_t k = 0; k < c.outputs.size(); ++k) {
    const TensorDesc& made = c.body[k + 1];
    if (static_cast<int>(k) < n.carried) {
      const TensorDesc& first = c.inputs[k + kFixedInputs];
      const bool filled =
          first.wraps.outer() == Wrap::kOptional && first.wraps.inside() == made.wraps;  // an optional that an iteration fills
      c.outputs[k] = filled ? made : common_type(first, made, "a carried value changes its type");
    } else if (made.wraps) {
      fail(EVN_ERROR_INVALID_MODEL, "a scan output is of type %s", made.type_string().c_str());
    } else {
      c.outputs[k].shape = rank_unknown(made) ? unknown_rank() : with_dim(made.shape, 0, -1);
    }
  }
}

// What a scan output is when there was no iteration.
RuntimeValuePtr empty_scan(HostContext& c, std::size_t body_output) {
  const Graph& body = *c.node.body;
  const Value& value = body.values[static_cast<std::size_t>(body.outputs[body_output])];
  Shape shape{0};
  for (const std::int64_t dim : value.shape.dims()) shape.push_back(std::max<std::int64_t>(dim, 0));
  void* to = nullptr;
  return c.services.make_tensor({value.dtype, shape}, &to);
}

void host_loop(HostContext& c) {
  const Counts n = counts_of(c.node);
  const auto carried = static_cast<std::size_t>(n.carried);
  const std::int64_t iterations = c.has_input(0) ? runtime_value_integer(c.inputs[0], "M") : INT64_MAX;
  bool go = !c.has_input(1) || runtime_value_integer(c.inputs[1], "cond") != 0;
  std::vector<RuntimeValuePtr> args(kFixedInputs);
  for (std::size_t k = kFixedInputs; k < c.inputs.size(); ++k) args.push_back(c.services.keep(c.inputs[k]));
  std::vector<std::vector<RuntimeValuePtr>> scans(static_cast<std::size_t>(n.scans));
  for (std::int64_t iteration = 0; iteration < iterations && go; ++iteration) {
    cancellation_point();
    if (static_cast<std::uint64_t>(iteration) >= c.services.limits().loop_iterations) {
      fail(EVN_ERROR_LIMIT, "more iterations than the limit loop_iterations of %llu", static_cast<unsigned long long>(iteration));
    }
    args[0] = integer_runtime_value(c.services, iteration);
    args[1] = bool_runtime_value(c.services, go);
    std::vector<RuntimeValuePtr> made = c.services.run_body(args, static_cast<std::uint64_t>(iteration));
    go = runtime_value_integer(made[0], "the body's condition") != 0;
    for (std::size_t i = 0; i < carried; ++i) {
      cancellation_point();
      RuntimeValuePtr& arg = args[kFixedInputs + i];
      arg = with_wraps(made[1 + i], arg->desc.wraps);
    }
    for (std::size_t s = 0; s < scans.size(); ++s) {
      cancellation_point();
      scans[s].push_back(std::move(made[1 + carried + s]));
    }
  }
  for (std::size_t k = 0; k < c.outputs.size(); ++k) {
    if (!c.wants(k)) continue;
    if (k < carried) {
      const Value& value = c.node.body->values[static_cast<std::size_t>(c.node.body->outputs[k + 1])];
      c.outputs[k] = with_wraps(args[kFixedInputs + k], value.wraps);
    } else {
      const std::vector<RuntimeValuePtr>& parts = scans[k - carried];
      c.outputs[k] = parts.empty() ? empty_scan(c, k + 1) : stack_runtime_values(c.services, parts, 0);
    }
  }
}

constexpr BodyRule kBody = {body_inputs, feedback, iterations};
constexpr AttributeSpec kAttributes[] = {required_attribute("body", AttributeType::kGraph)};
constexpr OpDef kOps[] = {
    {.name = "Loop",
     .since = 1,
     .min_inputs = 2,
     .max_inputs = kVariadic,
     .max_outputs = kVariadic,
     .attributes = kAttributes,
     .dtypes = kStoredDtype,
     .flags = kOpAnyRank,
     .output_dtype = loop_dtype,
     .infer = infer_loop,
     .host = host_loop,
     .body = &kBody},
};

}  // namespace

extern const OpFamily loop_family;
const OpFamily loop_family = {kOps};

}  // namespace evn
