// OneHot: along a new axis of `depth` elements, values[1] where that axis' index is the element of `indices`, else values[0].
// Negative indices count from the end, before 11 as in ONNX Runtime; one outside [-depth, depth) gives a row of values[0].
// Fractions are cut off. dtypes: indices and depth all numbers; values any. Failures: axis outside [-rank - 1, rank], depth below
// 0 or of more than one element, values of other than two elements. Exact.
#include <algorithm>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

DType values_dtype(const Node&, std::span<const DType> inputs, int) { return inputs[2]; }

std::int64_t whole(const ConstTensor& t, std::int64_t i) {
  std::int64_t result = 0;
  dispatch_numbers(t.desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_floating_point_v<T>) result = saturate_to<std::int64_t>(static_cast<double>(t.as<T>()[i]));
    else result = static_cast<std::int64_t>(t.as<T>()[i]);
  });
  return result;
}

void infer_one_hot(InferContext& c) {
  require_dtype(c, 1, kNumbers);
  require_scalar(c, 1);
  require_vector(c, 2, 2);
  const Shape& indices = c.shape(0);
  const int axis = normalize_axis(attr_int(c.node, 0), indices.rank() + 1);
  const ConstTensor depth = known_input(c, 1);
  const std::int64_t length = depth.data != nullptr ? whole(depth, 0) : -1;
  if (depth.data != nullptr && length < 0) fail(EVN_ERROR_INVALID_ARGUMENT, "depth is negative");
  Shape out;
  for (int i = 0; i < axis; ++i) out.push_back(indices[i]);
  out.push_back(length);
  for (int i = axis; i < indices.rank(); ++i) out.push_back(indices[i]);
  c.outputs[0].shape = out;
}

// A part is one element of the axes before the new one.
std::int64_t parts_of_one_hot(const ReferenceContext& c) {
  const Shape& out = c.output().desc.shape;
  return out.elements(0, normalize_axis(attr_int(c.node, 0), out.rank()));
}

void reference_one_hot(const ReferenceContext& c) {
  const Shape& out = c.output().desc.shape;
  const int axis = normalize_axis(attr_int(c.node, 0), out.rank());
  const std::int64_t depth = out[axis];
  const std::int64_t inner = out.elements(axis + 1, out.rank());
  const std::int64_t block = depth * inner;
  const std::int64_t begin = c.begin, end = std::min(c.end, parts_of_one_hot(c));
  if (block == 0 || begin >= end) return;
  with_width(c.output().desc.dtype, [&](auto width) {
    const char* off = c.input(2).as<char>();
    char* const to = c.output().as<char>() + begin * block * width();
    const std::int64_t count = (end - begin) * block;
    if (std::all_of(off, off + width(), [off](char byte) { return byte == *off; })) {
      fill_in_pieces(to, *off, static_cast<std::uint64_t>(count) * width());
    } else {
      each_element(count, [=](std::int64_t i) { move_element<width()>(to, i, off, 0); });
    }
    each_element((end - begin) * inner, [&](std::int64_t i) {
      std::int64_t index = whole(c.input(0), begin * inner + i);
      if (index < 0 && index >= -depth) index += depth;
      if (index < 0 || index >= depth) return;
      move_element<width()>(to, i / inner * block + index * inner + i % inner, off, 1);
    });
  });
}

constexpr AttributeSpec kAttributes[] = {int_attribute("axis", -1)};
constexpr OpDef kOps[] = {
    {.name = "OneHot",
     .since = 9,
     .min_inputs = 3,
     .max_inputs = 3,
     .attributes = kAttributes,
     .dtypes = kNumbers,
     .value_inputs = 2,
     .output_dtype = values_dtype,
     .infer = infer_one_hot,
     .reference = reference_one_hot,
     .parts = parts_of_one_hot},
};

}  // namespace

extern const OpFamily one_hot_family;
const OpFamily one_hot_family = {kOps};

}  // namespace evn
