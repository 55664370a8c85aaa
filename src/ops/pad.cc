// Pad: x with begin[i] elements before and end[i] after it on each axis; negative amounts crop.
//   constant  the value (default 0)      edge  the nearest element of x
//   reflect   mirrored without repeating the border      wrap  from the other end (from opset 19)
// Reading a position p outside [0, n): reflect has the period 2(n - 1), so amounts may exceed the input.
// Before opset 11 pads and value are attributes, later inputs 1 and 2; from 18 input 3 lists the axes that pads speak of.
// dtypes: any (the attribute form: floating point). Failures: a list of another length than twice the axes, a negative output dim,
// reflect, edge or wrap of an axis without elements, an unknown mode. Exact.
#include "ops/pad.h"

#include <algorithm>

#include "base/checked.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

// Amounts beyond this are no model's, and sums with dims do not overflow.
constexpr std::int64_t kMaxPad = std::int64_t{1} << 48;

PadAmounts amounts_from(std::span<const std::int64_t> pads, std::span<const std::int64_t> axes, bool has_axes, int rank) {
  const std::size_t count = has_axes ? axes.size() : static_cast<std::size_t>(rank);
  if (pads.size() != 2 * count) fail(EVN_ERROR_INVALID_MODEL, "pads has %zu values, not %zu", pads.size(), 2 * count);
  if (has_axes) axes_mask(axes, rank);
  PadAmounts amounts;
  for (std::size_t i = 0; i < count; ++i) {
    cancellation_point();
    const int axis = has_axes ? normalize_axis(axes[i], rank) : static_cast<int>(i);
    amounts.begin[axis] = pads[i];
    amounts.end[axis] = pads[i + count];
    if (std::max(pads[i], pads[i + count]) > kMaxPad || std::min(pads[i], pads[i + count]) < -kMaxPad) {
      fail(EVN_ERROR_LIMIT, "a pad is too large");
    }
  }
  return amounts;
}

// False when pads or axes are inputs whose values are not known now.
bool find_amounts(const InferContext& c, int rank, PadAmounts* amounts) {
  if (c.node.op->max_inputs == 1) {
    *amounts = amounts_from(attr_ints(c.node, PadAttr::kPads), {}, false, rank);
    return true;
  }
  InferContext::Ints pads;
  InferContext::Ints axes;
  axes.count = 0;
  if (!c.int_value(1, &pads) || (c.has_input(3) && !c.int_value(3, &axes))) return false;
  *amounts = amounts_from({pads.v, static_cast<std::size_t>(pads.count)}, {axes.v, static_cast<std::size_t>(axes.count)},
                          c.has_input(3), rank);
  return true;
}

void infer_pad(InferContext& c) {
  const Shape& x = c.shape(0);
  const PadMode mode = pad_mode(c.node);
  if (c.node.op->max_inputs > 1) {
    require_dtype(c, 1, dtype_bit(DType::kInt64));
    require_dtype(c, 3, kIndexDtypes);
    if (c.has_input(2) && c.inputs[2].dtype != c.inputs[0].dtype) fail(EVN_ERROR_INVALID_MODEL, "the value is of another dtype");
    require_scalar(c, 2);
  }
  Shape out = Shape::of_rank(x.rank(), -1);
  PadAmounts amounts;
  if (find_amounts(c, x.rank(), &amounts)) {
    for (int i = 0; i < x.rank(); ++i) {
      if (x[i] < 0) continue;
      out[i] = checked_add(x[i], amounts.begin[i] + amounts.end[i]);
      if (out[i] < 0) fail(EVN_ERROR_INVALID_MODEL, "axis %d would have %lld elements", i, static_cast<long long>(out[i]));
      if (mode != PadMode::kConstant && x[i] == 0 && out[i] > 0) {
        fail(EVN_ERROR_INVALID_MODEL, "axis %d has no element to repeat", i);
      }
    }
  }
  c.outputs[0].shape = out;
}

void pad_with(const ReferenceContext& c, const void* value) {
  const Shape& x = c.input(0).desc.shape;
  const Shape& out = c.output().desc.shape;
  const PadMode mode = pad_mode(c.node);
  const PadAmounts amounts = resolve_pads(c.node, c.inputs, x.rank());
  const Strides dense = dense_strides(x);
  const std::int64_t total = out.elements();
  with_width(c.output().desc.dtype, [&](auto width) {
    for (std::int64_t i = 0; i < total; ++i) {
      cancellation_point();
      std::int64_t from = 0;
      std::int64_t rest = i;
      for (int axis = out.rank() - 1; axis >= 0 && from >= 0; --axis) {
        const std::int64_t p = pad_source(mode, rest % out[axis] - amounts.begin[axis], x[axis]);
        from = p < 0 ? -1 : from + p * dense.step[axis];
        rest /= out[axis];
      }
      const bool inside = from >= 0;
      move_element<width()>(c.output().data, i, inside ? c.input(0).data : value, inside ? from : 0);
    }
  });
}

void reference_pad_attributes(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    const auto value = static_cast<decltype(zero)>(attr_float(c.node, PadAttr::kValue));
    pad_with(c, &value);
  });
}

void reference_pad(const ReferenceContext& c) {
  const std::uint64_t zero[2] = {};  // of any type
  pad_with(c, c.has_input(2) ? c.input(2).data : zero);
}

constexpr AttributeSpec kPad2[] = {string_attribute("mode", "constant"), required_attribute("pads", AttributeType::kInts),
                                   float_attribute("value", 0)};
constexpr AttributeSpec kPad11[] = {string_attribute("mode", "constant")};

constexpr OpDef kOps[] = {
    {.name = "Pad", .since = 2, .attributes = kPad2, .dtypes = kFloats, .infer = infer_pad, .reference = reference_pad_attributes},
    {.name = "Pad",
     .since = 11,
     .min_inputs = 2,
     .max_inputs = 3,
     .attributes = kPad11,
     .dtypes = kMoved,
     .value_inputs = 0b10,
     .flags = kOpMoves,
     .infer = infer_pad,
     .reference = reference_pad},
    {.name = "Pad",
     .since = 18,
     .min_inputs = 2,
     .max_inputs = 4,
     .attributes = kPad11,
     .dtypes = kMoved,
     .value_inputs = 0b1010,
     .flags = kOpMoves,
     .infer = infer_pad,
     .reference = reference_pad},
};

}  // namespace

PadMode pad_mode(const Node& node) {
  const std::string& word = attr_string(node, PadAttr::kMode);
  if (word == "constant") return PadMode::kConstant;
  if (word == "reflect") return PadMode::kReflect;
  if (word == "edge") return PadMode::kEdge;
  if (word == "wrap") return PadMode::kWrap;
  fail(EVN_ERROR_INVALID_MODEL, "mode must not be '%s'", word.c_str());
}

std::int64_t pad_source(PadMode mode, std::int64_t p, std::int64_t n) {
  if (p >= 0 && p < n) return p;
  switch (mode) {
    case PadMode::kConstant: return -1;
    case PadMode::kEdge: return std::clamp<std::int64_t>(p, 0, n - 1);
    case PadMode::kWrap:
      if (p >= -n && p < 2 * n) return p < 0 ? p + n : p - n;
      return (p % n + n) % n;
    case PadMode::kReflect: break;
  }
  if (n == 1) return 0;
  const std::int64_t period = 2 * (n - 1);
  if (p > -n && p <= period) return p < 0 ? -p : period - p;
  const std::int64_t q = (p % period + period) % period;
  return q < n ? q : period - q;
}

PadAmounts resolve_pads(const Node& node, std::span<const ConstTensor> inputs, int rank) {
  if (node.op->max_inputs == 1) return amounts_from(attr_ints(node, PadAttr::kPads), {}, false, rank);
  std::int64_t axes[kMaxRank];
  std::int64_t count = 0;
  const bool has_axes = inputs.size() > 3 && inputs[3].present();
  if (has_axes) {
    count = inputs[3].desc.shape.elements();
    if (count > rank) fail(EVN_ERROR_INVALID_MODEL, "more axes than the input has");
    read_ints(inputs[3], axes);
  }
  const std::span<const std::int64_t> pads(inputs[1].as<std::int64_t>(), static_cast<std::size_t>(inputs[1].desc.shape.elements()));
  return amounts_from(pads, {axes, static_cast<std::size_t>(count)}, has_axes, rank);
}

extern const OpFamily pad_family;
const OpFamily pad_family = {kOps};

}  // namespace evn
