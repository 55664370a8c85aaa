// Sequences: SequenceConstruct, SequenceEmpty, SequenceInsert, SequenceErase, SequenceAt, SequenceLength, SplitToSequence,
// ConcatFromSequence, SequenceMap.
//   Positions count from the end when negative; an insertion's lies in [-n, n], others in [-n, n). SplitToSequence cuts along
//   `axis` into pieces of the length that `split` says (a list: of those lengths; absent: of one, and keepdims = 0 takes the axis
//   away); ConcatFromSequence joins along `axis`, or along a new one. SequenceMap runs its body for each position of its sequences.
// dtypes: tensors of any. Failures: elements of unlike dtype; positions outside; lengths that do not add up; an empty sequence to
// join; sequences of unlike lengths. Exact.
#include <algorithm>

#include "ops/infra/check.h"
#include "ops/infra/runtime_values.h"

namespace evn {
namespace {

TensorDesc element_of(const TensorDesc& sequence) { return {sequence.dtype, unknown_rank(), sequence.wraps.inside()}; }

// ---------------------------------------------------------------------------------------------- making and changing --

void infer_construct(InferContext& c) {
  for (int i = 0; i < static_cast<int>(c.inputs.size()); ++i) require_tensor(c, i);
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  c.outputs[0].wraps = Wraps().in(Wrap::kSequence);
}

void host_construct(HostContext& c) {
  std::vector<RuntimeValuePtr> parts;
  for (const RuntimeValuePtr& x : c.inputs) {
    cancellation_point();
    parts.push_back(c.services.keep(x));
  }
  c.outputs[0] = make_runtime_value({c.inputs[0]->desc.dtype, {}}, Wrap::kSequence, std::move(parts));
}

DType empty_dtype(const Node& node, std::span<const DType>, int) {
  const std::int64_t dtype = attr_int(node, 0);
  if (dtype <= 0 || dtype >= kDTypeCount) fail(EVN_ERROR_INVALID_MODEL, "dtype %lld is no type", static_cast<long long>(dtype));
  if (!is_stored(static_cast<DType>(dtype))) fail(EVN_ERROR_UNSUPPORTED, "sequences of %s", dtype_name(static_cast<DType>(dtype)));
  return static_cast<DType>(dtype);
}

void infer_empty(InferContext& c) { c.outputs[0].wraps = Wraps().in(Wrap::kSequence); }

void host_empty(HostContext& c) {
  c.outputs[0] = make_runtime_value({static_cast<DType>(attr_int(c.node, 0)), {}}, Wrap::kSequence, {});
}

// A position from input `i`; `count` positions there are.
std::size_t position(const HostContext& c, std::size_t i, std::int64_t count) {
  const std::int64_t at = runtime_value_integer(c.inputs[i], "position");
  const std::int64_t size = static_cast<std::int64_t>(c.inputs[0]->parts.size());
  const std::int64_t from_start = at < 0 ? at + size : at;
  if (from_start < 0 || from_start >= count) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "position %lld of a sequence of %lld", static_cast<long long>(at),
         static_cast<long long>(size));
  }
  return static_cast<std::size_t>(from_start);
}

void infer_insert(InferContext& c) {
  require_wrap(c, 0, Wrap::kSequence);
  if (c.inputs[1].dtype != c.inputs[0].dtype || c.inputs[1].wraps != c.inputs[0].wraps.inside()) {
    fail(EVN_ERROR_INVALID_MODEL, "a value of type %s does not go into one of type %s", c.inputs[1].type_string().c_str(),
         c.inputs[0].type_string().c_str());
  }
  require_tensor(c, 2);
  require_dtype(c, 2, kIndexDtypes);
  c.outputs[0].wraps = c.inputs[0].wraps;
}

void host_insert(HostContext& c) {
  const PartList& before = c.inputs[0]->parts;
  const std::size_t at = c.has_input(2) ? position(c, 2, static_cast<std::int64_t>(before.size()) + 1) : before.size();
  c.outputs[0] = make_runtime_value(element_of(c.inputs[0]->desc), Wrap::kSequence, before.with(at, c.services.keep(c.inputs[1])));
}

void infer_erase(InferContext& c) {
  require_wrap(c, 0, Wrap::kSequence);
  require_tensor(c, 1);
  require_dtype(c, 1, kIndexDtypes);
  c.outputs[0].wraps = c.inputs[0].wraps;
}

void host_erase(HostContext& c) {
  const PartList& before = c.inputs[0]->parts;
  const auto count = static_cast<std::int64_t>(before.size());
  if (!c.has_input(1) && count == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "the sequence is empty");
  const std::size_t at = c.has_input(1) ? position(c, 1, count) : before.size() - 1;
  c.outputs[0] = make_runtime_value(element_of(c.inputs[0]->desc), Wrap::kSequence, before.without(at));
}

// ------------------------------------------------------------------------------------------------------------ reading --

void infer_at(InferContext& c) {
  require_wrap(c, 0, Wrap::kSequence);
  require_tensor(c, 1);
  require_dtype(c, 1, kIndexDtypes);
  c.outputs[0] = element_of(c.inputs[0]);
}

void host_at(HostContext& c) {
  const PartList& parts = c.inputs[0]->parts;
  c.outputs[0] = parts[position(c, 1, static_cast<std::int64_t>(parts.size()))];
}

DType int64_dtype(const Node&, std::span<const DType>, int) { return DType::kInt64; }

void infer_length(InferContext& c) {
  require_wrap(c, 0, Wrap::kSequence);
  c.outputs[0].shape = {};
}

void host_length(HostContext& c) {
  c.outputs[0] = integer_runtime_value(c.services, static_cast<std::int64_t>(c.inputs[0]->parts.size()));
}

// -------------------------------------------------------------------------------------------- to and from one tensor --

enum : int { kAxis, kKeepDims };

void infer_split(InferContext& c) {
  require_tensor(c, 0);
  require_tensor(c, 1);
  require_dtype(c, 1, kIndexDtypes);
  if (!rank_unknown(c.inputs[0])) normalize_axis(attr_int(c.node, kAxis), c.shape(0).rank());
  c.outputs[0].wraps = Wraps().in(Wrap::kSequence);
}

// The lengths of the pieces of an axis of `length`.
std::vector<std::int64_t> piece_lengths(const HostContext& c, std::int64_t length) {
  std::vector<std::int64_t> pieces;
  if (c.has_input(1) && c.inputs[1]->desc.shape.rank() > 0) {
    pieces.resize(static_cast<std::size_t>(c.inputs[1]->desc.shape.elements()));
    read_ints(c.inputs[1]->tensor(), pieces.data());
    std::int64_t rest = length;
    for (const std::int64_t piece : pieces) {
      cancellation_point();
      if (piece < 0 || piece > rest) rest = INT64_MIN;
      if (rest >= 0) rest -= piece;
    }
    if (rest != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "the lengths of `split` do not add up to %lld", static_cast<long long>(length));
    return pieces;
  }
  const std::int64_t step = c.has_input(1) ? runtime_value_integer(c.inputs[1], "split") : 1;
  if (step < 1) fail(EVN_ERROR_INVALID_ARGUMENT, "split is %lld", static_cast<long long>(step));
  for (std::int64_t at = 0; at < length; at += std::min(step, length - at)) {
    cancellation_point();
    pieces.push_back(std::min(step, length - at));
  }
  return pieces;
}

void host_split(HostContext& c) {
  const Shape& shape = c.inputs[0]->desc.shape;
  const int axis = normalize_axis(attr_int(c.node, kAxis), shape.rank());
  const bool drop = !c.has_input(1) && attr_int(c.node, kKeepDims) == 0;
  std::vector<RuntimeValuePtr> parts = cut_runtime_value(c.services, c.inputs[0], axis, piece_lengths(c, shape[axis]), drop);
  c.outputs[0] = make_runtime_value({c.inputs[0]->desc.dtype, {}}, Wrap::kSequence, std::move(parts));
}

enum : int { kConcatAxis, kNewAxis };

void infer_concat(InferContext& c) {
  require_wrap(c, 0, Wrap::kSequence);
  c.outputs[0].shape = unknown_rank();
}

void host_concat(HostContext& c) {
  const std::vector<RuntimeValuePtr> parts = c.inputs[0]->parts.all();
  if (parts.empty()) fail(EVN_ERROR_INVALID_ARGUMENT, "the sequence is empty");
  const bool stack = attr_int(c.node, kNewAxis) != 0;
  const int axis = normalize_axis(attr_int(c.node, kConcatAxis), parts[0]->desc.shape.rank() + (stack ? 1 : 0));
  c.outputs[0] = stack ? stack_runtime_values(c.services, parts, axis) : concat_runtime_values(c.services, parts, axis);
}

// ---------------------------------------------------------------------------------------------------------------- map --

std::size_t map_inputs(const Node& node) {
  const std::size_t inputs = node.inputs.size() - static_cast<std::size_t>(node.captures);
  if (node.body->inputs.size() - static_cast<std::size_t>(node.captures) != inputs ||
      node.outputs.size() > node.body->outputs.size()) {
    fail(EVN_ERROR_INVALID_MODEL, "the body of SequenceMap has %zu inputs and %zu outputs",
         node.body->inputs.size() - static_cast<std::size_t>(node.captures), node.body->outputs.size());
  }
  require_inputs(node, 0, inputs);
  return inputs;
}

DType map_dtype(const Node& node, std::span<const DType>, int output) {
  const Graph& body = *node.body;
  const auto k = static_cast<std::size_t>(output);
  return k < body.outputs.size() ? body.values[static_cast<std::size_t>(body.outputs[k])].dtype : DType::kUndefined;
}

void map_body(const Node& node, std::span<const TensorDesc> inputs, std::span<TensorDesc> to) {
  const std::size_t count = map_inputs(node);
  for (std::size_t i = 0; i < count; ++i) {
    cancellation_point();
    to[i] = inputs[i].wraps ? element_of(inputs[i]) : inputs[i];
  }
}

int no_feedback(const Node&, int) { return -1; }
std::int64_t iterations(const Node&, std::span<const ConstTensor>) { return -1; }

void infer_map(InferContext& c) {
  require_wrap(c, 0, Wrap::kSequence);
  for (std::size_t k = 0; k < c.outputs.size(); ++k) c.outputs[k].wraps = c.body[k].wraps.in(Wrap::kSequence);
}

void host_map(HostContext& c) {
  const std::size_t count = map_inputs(c.node);
  std::vector<RuntimeValuePtr> args;
  for (const RuntimeValuePtr& x : c.inputs) {
    cancellation_point();
    args.push_back(c.services.keep(x));
  }
  const std::vector<RuntimeValuePtr> given = args;
  std::vector<std::vector<RuntimeValuePtr>> results(c.outputs.size());
  const std::size_t length = given[0]->parts.size();
  for (std::size_t i = 0; i < count; ++i) {
    cancellation_point();
    if (!given[i]->is_tensor() && given[i]->parts.size() != length)
      fail(EVN_ERROR_INVALID_ARGUMENT, "the sequences have unlike lengths");
  }
  for (std::size_t n = 0; n < length; ++n) {
    cancellation_point();
    for (std::size_t i = 0; i < count; ++i) {
      cancellation_point();
      if (!given[i]->is_tensor()) args[i] = given[i]->parts[n];
    }
    const std::vector<RuntimeValuePtr> made = c.services.run_body(args, n);
    for (std::size_t k = 0; k < results.size(); ++k) {
      cancellation_point();
      results[k].push_back(made[k]);
    }
  }
  const Graph& body = *c.node.body;
  for (std::size_t k = 0; k < results.size(); ++k) {
    cancellation_point();
    if (!c.wants(k)) continue;
    const Value& value = body.values[static_cast<std::size_t>(body.outputs[k])];
    c.outputs[k] = make_runtime_value({value.dtype, {}, value.wraps}, Wrap::kSequence, std::move(results[k]));
  }
}

constexpr BodyRule kMapBody = {map_body, no_feedback, iterations};
constexpr AttributeSpec kEmpty[] = {int_attribute("dtype", EVN_DTYPE_FLOAT32)};
constexpr AttributeSpec kSplit[] = {int_attribute("axis", 0), int_attribute("keepdims", 1)};
constexpr AttributeSpec kConcat[] = {required_attribute("axis", AttributeType::kInt), int_attribute("new_axis", 0)};
constexpr AttributeSpec kMap[] = {required_attribute("body", AttributeType::kGraph)};
constexpr std::uint32_t kFlags = kOpAnyRank;
constexpr std::uint32_t kAll = kStoredDtype;

constexpr OpDef kOps[] = {
    {.name = "SequenceConstruct",
     .since = 11,
     .max_inputs = kVariadic,
     .dtypes = kAll,
     .flags = kFlags,
     .infer = infer_construct,
     .host = host_construct},
    {.name = "SequenceEmpty",
     .since = 11,
     .min_inputs = 0,
     .max_inputs = 0,
     .attributes = kEmpty,
     .dtypes = kAll,
     .flags = kFlags,
     .output_dtype = empty_dtype,
     .infer = infer_empty,
     .host = host_empty},
    {.name = "SequenceInsert",
     .since = 11,
     .min_inputs = 2,
     .max_inputs = 3,
     .dtypes = kAll,
     .flags = kFlags,
     .infer = infer_insert,
     .host = host_insert},
    {.name = "SequenceErase",
     .since = 11,
     .max_inputs = 2,
     .dtypes = kAll,
     .flags = kFlags,
     .infer = infer_erase,
     .host = host_erase},
    {.name = "SequenceAt",
     .since = 11,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kAll,
     .flags = kFlags,
     .infer = infer_at,
     .host = host_at},
    {.name = "SequenceLength",
     .since = 11,
     .dtypes = kAll,
     .flags = kFlags,
     .output_dtype = int64_dtype,
     .infer = infer_length,
     .host = host_length},
    {.name = "SplitToSequence",
     .since = 11,
     .max_inputs = 2,
     .attributes = kSplit,
     .dtypes = kAll,
     .flags = kFlags,
     .infer = infer_split,
     .host = host_split},
    {.name = "ConcatFromSequence",
     .since = 11,
     .attributes = kConcat,
     .dtypes = kAll,
     .flags = kFlags,
     .infer = infer_concat,
     .host = host_concat},
    {.name = "SequenceMap",
     .since = 17,
     .max_inputs = kVariadic,
     .max_outputs = kVariadic,
     .attributes = kMap,
     .dtypes = kAll,
     .flags = kFlags,
     .output_dtype = map_dtype,
     .infer = infer_map,
     .host = host_map,
     .body = &kMapBody},
};

}  // namespace

extern const OpFamily sequence_family;
const OpFamily sequence_family = {kOps};

}  // namespace evn
