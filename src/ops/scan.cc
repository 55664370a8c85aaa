// Scan: runs its body once for each slice of its scan inputs.
//   inputs: N first states, then M (num_scan_inputs) tensors that are cut along their scan axes. The body gets the states and one
//   slice of each, and gives the next states and one slice of each scan output. Outputs: the last states, and the scan outputs,
//   stacked. attributes: scan_input_axes, scan_output_axes (default 0), scan_input_directions, scan_output_directions (1:
//   backwards). Version 8: input 0 (optional) has the length of each sequence of a batch; all others, and the outputs, have the
//   batch as axis 0 and the scan axis as axis 1; what is behind the end of a sequence is zero in the outputs.
// dtypes: any. Failures: counts that do not fit the body's; scan inputs of unlike lengths; directions other than 0 and 1; axes
// outside the rank; states that change their type; a sequence length outside [0, length]. Exact.
#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "ops/infra/check.h"
#include "ops/infra/runtime_values.h"

namespace evn {
namespace {

enum : int { kBodyAttr, kNumScanInputs, kInputAxes, kInputDirections, kOutputAxes, kOutputDirections };
enum : int { kDirections8 = 2 };

struct Counts {
  std::size_t first;  // inputs before the states: sequence_lens of version 8
  std::size_t states;
  std::size_t scans;    // inputs
  std::size_t outputs;  // scan outputs
};

bool is_batched(const Node& node) { return node.op->since < 9; }

Counts counts_of(const Node& node) {
  Counts n{};
  n.first = is_batched(node) ? 1 : 0;
  const std::size_t captures = static_cast<std::size_t>(node.captures);
  const std::size_t inputs = node.inputs.size() - captures - n.first;
  const std::int64_t scans = attr_int(node, kNumScanInputs);
  const Graph& body = *node.body;
  if (scans < 1 || static_cast<std::uint64_t>(scans) > inputs) {
    fail(EVN_ERROR_INVALID_MODEL, "num_scan_inputs is %lld, Scan has %zu inputs", static_cast<long long>(scans), inputs);
  }
  n.scans = static_cast<std::size_t>(scans);
  n.states = inputs - n.scans;
  if (body.inputs.size() - captures != inputs || body.outputs.size() < n.states || node.outputs.size() > body.outputs.size()) {
    fail(EVN_ERROR_INVALID_MODEL, "the body of Scan has %zu inputs and %zu outputs, for %zu states and %zu scan inputs",
         body.inputs.size() - captures, body.outputs.size(), n.states, n.scans);
  }
  n.outputs = body.outputs.size() - n.states;
  require_inputs(node, n.first, node.inputs.size());
  return n;
}

// Entry i of a list attribute that is empty or has `count` entries.
std::int64_t entry(const Node& node, int attribute, std::size_t i, std::size_t count) {
  const std::span<const std::int64_t> list = attr_ints(node, attribute);
  if (list.empty()) return 0;
  if (list.size() != count) {
    fail(EVN_ERROR_INVALID_MODEL, "%s has %zu entries for %zu values",
         node.op->attributes[static_cast<std::size_t>(attribute)].name, list.size(), count);
  }
  return list[i];
}

bool is_backwards(const Node& node, int attribute, std::size_t i, std::size_t count) {
  const std::int64_t direction = entry(node, attribute, i, count);
  if (direction != 0 && direction != 1)
    fail(EVN_ERROR_INVALID_MODEL, "a direction of Scan is %lld", static_cast<long long>(direction));
  return direction == 1;
}

bool input_backwards(const Node& node, std::size_t i, std::size_t count) {
  return is_backwards(node, is_batched(node) ? static_cast<int>(kDirections8) : static_cast<int>(kInputDirections), i, count);
}

int input_axis(const Node& node, std::size_t i, std::size_t count, const Shape& shape) {
  if (is_batched(node)) return normalize_axis(0, shape.rank(), "the scan axis");
  return normalize_axis(entry(node, kInputAxes, i, count), shape.rank(), "scan_input_axes");
}

TensorDesc without_batch(const Node& node, const TensorDesc& d) {
  if (!is_batched(node) || rank_unknown(d) || d.shape.rank() == 0) return d;
  return {d.dtype, without_dim(d.shape, 0), d.wraps};
}

DType scan_dtype(const Node& node, std::span<const DType>, int output) {
  const Graph& body = *node.body;
  const auto k = static_cast<std::size_t>(output);
  return k < body.outputs.size() ? body.values[static_cast<std::size_t>(body.outputs[k])].dtype : DType::kUndefined;
}

void body_inputs(const Node& node, std::span<const TensorDesc> inputs, std::span<TensorDesc> to) {
  const Counts n = counts_of(node);
  for (std::size_t i = 0; i < n.states + n.scans; ++i) {
    cancellation_point();
    TensorDesc d = without_batch(node, inputs[n.first + i]);
    if (d.wraps) fail(EVN_ERROR_INVALID_MODEL, "input %zu of Scan is of type %s", n.first + i, d.type_string().c_str());
    if (i >= n.states && !rank_unknown(d)) d.shape = without_dim(d.shape, input_axis(node, i - n.states, n.scans, d.shape));
    to[i] = d;
  }
}

int feedback(const Node& node, int input) { return input < static_cast<int>(counts_of(node).states) ? input : -1; }

// The batch's size and the scan's length, -1 where not known.
struct Lengths {
  std::int64_t batch = -1;
  std::int64_t length = -1;
};

// `desc_of`: the type of an input of the node.
template <typename DescOf>
Lengths lengths_of(const Node& node, const Counts& n, const DescOf& desc_of) {
  Lengths l;
  for (std::size_t i = 0; i < n.scans; ++i) {
    cancellation_point();
    const TensorDesc& full = desc_of(n.first + n.states + i);
    if (rank_unknown(full)) continue;
    const TensorDesc d = without_batch(node, full);
    if (is_batched(node) && full.shape.rank() > 0) l.batch = full.shape[0];
    const std::int64_t length = d.shape[input_axis(node, i, n.scans, d.shape)];
    if (l.length >= 0 && length >= 0 && l.length != length) fail(EVN_ERROR_INVALID_MODEL, "the scan inputs have unlike lengths");
    if (length >= 0) l.length = length;
  }
  return l;
}

std::int64_t iterations(const Node& node, std::span<const ConstTensor> inputs) {
  const Lengths l = lengths_of(node, counts_of(node), [&](std::size_t i) -> const TensorDesc& { return inputs[i].desc; });
  if (!is_batched(node)) return l.length;
  return l.batch < 0 || l.length < 0 ? -1 : checked_mul(l.batch, l.length);
}

void infer_scan(InferContext& c) {
  const Counts n = counts_of(c.node);
  const Lengths l = lengths_of(c.node, n, [&](std::size_t i) -> const TensorDesc& { return c.inputs[i]; });
  for (std::size_t k = 0; k < c.outputs.size(); ++k) {
    TensorDesc made = c.body[k];
    if (k < n.states) {
      made = common_type(without_batch(c.node, c.inputs[n.first + k]), made, "a state changes its type");
    } else if (!rank_unknown(made)) {
      const std::int64_t axis = is_batched(c.node) ? 0 : entry(c.node, kOutputAxes, k - n.states, n.outputs);
      made.shape = with_dim(made.shape, axis, l.length);
    }
    if (is_batched(c.node) && !rank_unknown(made)) made.shape = with_dim(made.shape, 0, l.batch);
    c.outputs[k].shape = made.shape;
  }
}

// One sequence: `args` are the states, the scan inputs and the captures. Returns the states and the scan outputs of `length`
// iterations.
std::vector<RuntimeValuePtr> scan(HostContext& c, const Counts& n, std::vector<RuntimeValuePtr> args, std::int64_t length,
                                  std::uint64_t first_iteration) {
  const std::vector<RuntimeValuePtr> sources(args.begin() + static_cast<std::ptrdiff_t>(n.states),
                                             args.begin() + static_cast<std::ptrdiff_t>(n.states + n.scans));
  std::vector<std::vector<RuntimeValuePtr>> slices(n.outputs);
  for (std::int64_t iteration = 0; iteration < length; ++iteration) {
    cancellation_point();
    if (static_cast<std::uint64_t>(iteration) >= c.services.limits().loop_iterations) {
      fail(EVN_ERROR_LIMIT, "more iterations than the limit loop_iterations of %llu", static_cast<unsigned long long>(iteration));
    }
    for (std::size_t i = 0; i < n.scans; ++i) {
      cancellation_point();
      const int axis = input_axis(c.node, i, n.scans, sources[i]->desc.shape);
      const std::int64_t at = input_backwards(c.node, i, n.scans) ? length - 1 - iteration : iteration;
      args[n.states + i] = slice_runtime_value(c.services, sources[i], axis, at, at + 1, true);
    }
    std::vector<RuntimeValuePtr> made = c.services.run_body(args, first_iteration + static_cast<std::uint64_t>(iteration));
    std::move(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(n.states), args.begin());
    for (std::size_t s = 0; s < n.outputs; ++s) {
      cancellation_point();
      slices[s].push_back(std::move(made[n.states + s]));
    }
  }
  std::vector<RuntimeValuePtr> results(args.begin(), args.begin() + static_cast<std::ptrdiff_t>(n.states));
  const Graph& body = *c.node.body;
  for (std::size_t s = 0; s < n.outputs; ++s) {
    cancellation_point();
    const Value& value = body.values[static_cast<std::size_t>(body.outputs[n.states + s])];
    if (slices[s].empty()) {
      TensorDesc desc{value.dtype, {}};
      for (const std::int64_t dim : value.shape.dims()) desc.shape.push_back(std::max<std::int64_t>(dim, 0));
      const std::int64_t axis = is_batched(c.node) ? 0 : entry(c.node, kOutputAxes, s, n.outputs);
      desc.shape = with_dim(desc.shape, axis, 0);
      void* to = nullptr;
      results.push_back(c.services.make_tensor(desc, &to));
      continue;
    }
    if (!is_batched(c.node) && is_backwards(c.node, kOutputDirections, s, n.outputs))
      std::reverse(slices[s].begin(), slices[s].end());
    const int rank = slices[s][0]->desc.shape.rank() + 1;
    const int axis = is_batched(c.node) ? 0 : normalize_axis(entry(c.node, kOutputAxes, s, n.outputs), rank, "scan_output_axes");
    results.push_back(stack_runtime_values(c.services, slices[s], axis));
  }
  return results;
}

// The length that all scan inputs have. `axes`: how many of a tensor's axes stand before those of one sequence.
std::int64_t common_length(const HostContext& c, const Counts& n) {
  std::int64_t length = -1;
  for (std::size_t i = 0; i < n.scans; ++i) {
    cancellation_point();
    const TensorDesc d = without_batch(c.node, c.inputs[n.first + n.states + i]->desc);
    const std::int64_t own = d.shape[input_axis(c.node, i, n.scans, d.shape)];
    if (length >= 0 && own != length) fail(EVN_ERROR_INVALID_ARGUMENT, "the scan inputs have unlike lengths");
    length = own;
  }
  return length;
}

// Zeros behind the end of a sequence.
RuntimeValuePtr padded(HostContext& c, const RuntimeValuePtr& x, std::int64_t length) {
  if (x->desc.shape[0] == length) return x;
  TensorDesc rest = x->desc;
  rest.shape[0] = length - x->desc.shape[0];
  void* to = nullptr;
  const RuntimeValuePtr parts[] = {x, c.services.make_tensor(rest, &to)};
  return concat_runtime_values(c.services, parts, 0);
}

void host_batched(HostContext& c, const Counts& n) {
  const std::int64_t length = common_length(c, n);
  std::int64_t batch = -1;
  for (std::size_t i = 0; i < n.states + n.scans; ++i) {
    cancellation_point();
    const Shape& shape = c.inputs[n.first + i]->desc.shape;
    if (shape.rank() == 0 || (batch >= 0 && shape[0] != batch))
      fail(EVN_ERROR_INVALID_ARGUMENT, "the inputs of Scan have unlike batches");
    batch = shape[0];
  }
  if (batch == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "the batch of Scan is empty");
  std::vector<std::vector<RuntimeValuePtr>> results(n.states + n.outputs);
  for (std::int64_t b = 0; b < batch; ++b) {
    cancellation_point();
    std::vector<RuntimeValuePtr> args;
    for (std::size_t i = 0; i < n.states + n.scans; ++i) {
      cancellation_point();
      args.push_back(slice_runtime_value(c.services, c.inputs[n.first + i], 0, b, b + 1, true));
    }
    for (std::size_t i = n.first + n.states + n.scans; i < c.inputs.size(); ++i) args.push_back(c.services.keep(c.inputs[i]));
    std::int64_t own = length;
    if (c.has_input(0)) {
      const RuntimeValue& lens = *c.inputs[0];
      if (lens.desc.dtype != DType::kInt64 || lens.desc.shape != Shape{batch})
        fail(EVN_ERROR_INVALID_ARGUMENT, "sequence_lens is no int64 list of the batch's length");
      own = lens.as<std::int64_t>()[b];
      if (own < 0 || own > length)
        fail(EVN_ERROR_INVALID_ARGUMENT, "a sequence has %lld elements of %lld", static_cast<long long>(own),
             static_cast<long long>(length));
    }
    std::vector<RuntimeValuePtr> made = scan(c, n, std::move(args), own, static_cast<std::uint64_t>(b) << 32);
    for (std::size_t k = 0; k < made.size(); ++k) {
      cancellation_point();
      results[k].push_back(k < n.states ? made[k] : padded(c, made[k], length));
    }
  }
  for (std::size_t k = 0; k < c.outputs.size(); ++k) {
    if (c.wants(k)) c.outputs[k] = stack_runtime_values(c.services, results[k], 0);
  }
}

void host_scan(HostContext& c) {
  const Counts n = counts_of(c.node);
  if (is_batched(c.node)) return host_batched(c, n);
  std::vector<RuntimeValuePtr> args;
  for (const RuntimeValuePtr& input : c.inputs) {
    cancellation_point();
    args.push_back(c.services.keep(input));
  }
  const std::vector<RuntimeValuePtr> made = scan(c, n, std::move(args), common_length(c, n), 0);
  for (std::size_t k = 0; k < c.outputs.size(); ++k) {
    if (c.wants(k)) c.outputs[k] = made[k];
  }
}

constexpr BodyRule kBody = {body_inputs, feedback, iterations};
constexpr AttributeSpec kScan8[] = {required_attribute("body", AttributeType::kGraph),
                                    required_attribute("num_scan_inputs", AttributeType::kInt),
                                    optional_attribute("directions", AttributeType::kInts)};
constexpr AttributeSpec kScan9[] = {required_attribute("body", AttributeType::kGraph),
                                    required_attribute("num_scan_inputs", AttributeType::kInt),
                                    optional_attribute("scan_input_axes", AttributeType::kInts),
                                    optional_attribute("scan_input_directions", AttributeType::kInts),
                                    optional_attribute("scan_output_axes", AttributeType::kInts),
                                    optional_attribute("scan_output_directions", AttributeType::kInts)};

constexpr OpDef kOps[] = {
    {.name = "Scan",
     .since = 8,
     .min_inputs = 2,
     .max_inputs = kVariadic,
     .max_outputs = kVariadic,
     .attributes = kScan8,
     .dtypes = kStoredDtype,
     .flags = kOpAnyRank,
     .output_dtype = scan_dtype,
     .infer = infer_scan,
     .host = host_scan,
     .body = &kBody},
    {.name = "Scan",
     .since = 9,
     .max_inputs = kVariadic,
     .max_outputs = kVariadic,
     .attributes = kScan9,
     .dtypes = kStoredDtype,
     .flags = kOpAnyRank,
     .output_dtype = scan_dtype,
     .infer = infer_scan,
     .host = host_scan,
     .body = &kBody},
};

}  // namespace

extern const OpFamily scan_family;
const OpFamily scan_family = {kOps};

}  // namespace evn
