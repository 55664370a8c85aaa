// NonZero: the coordinates of the elements that are not 0, in row-major order: int64 [rank, count]. NaN is not 0.
// Compress: the elements, or along `axis` the slices, whose condition is true; the condition may be shorter than the axis.
// dtypes: x any; the condition bool. Failures: a condition that is no list; at run: one that is true beyond the axis. Exact.
#include <cstring>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

DType int64_output(const Node&, std::span<const DType>, int) { return DType::kInt64; }

// Calls f(i) for each element that is not 0.
template <typename F>
void for_each_non_zero(const ConstTensor& x, F&& f) {
  const std::int64_t count = x.desc.shape.elements();
  const DType dtype = x.desc.dtype;
  const auto visit = [&](auto&& is_there) {
    each_element(count, [&](std::int64_t i) {
      if (is_there(i)) f(i);
    });
  };
  if (is_16bit_float(dtype)) {
    return visit([p = x.as<std::uint16_t>()](std::int64_t i) { return (p[i] & 0x7fff) != 0; });  // -0 is 0
  }
  if (is_complex(dtype)) {
    return dispatch_floats(complex_part(dtype), [&](auto zero) {
      visit([p = x.as<decltype(zero)>()](std::int64_t i) { return p[2 * i] != 0 || p[2 * i + 1] != 0; });
    });
  }
  dispatch_numbers(dtype == DType::kBool ? DType::kUint8 : dtype,
                   [&](auto zero) { visit([p = x.as<decltype(zero)>()](std::int64_t i) { return p[i] != 0; }); });
}

std::int64_t count_non_zero(const ConstTensor& x) {
  std::int64_t count = 0;
  for_each_non_zero(x, [&](std::int64_t) { ++count; });
  return count;
}

void infer_non_zero(InferContext& c) {
  const ConstTensor x = known_input(c, 0);
  const bool known = x.data != nullptr || (x.desc.shape.is_known() && x.desc.shape.elements() == 0);
  c.outputs[0].shape = {c.shape(0).rank(), known ? count_non_zero(x) : -1};
}

void reference_non_zero(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const std::int64_t count = c.output().desc.shape[1];
  std::int64_t column = 0;
  for_each_non_zero(c.input(0), [&](std::int64_t i) {
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      c.output().as<std::int64_t>()[axis * count + column] = i % x[axis];
      i /= x[axis];
    }
    ++column;
  });
}

// ---------------------------------------------------------------------------------------------------- Compress --

void infer_compress(InferContext& c) {
  require_dtype(c, 1, dtype_bit(DType::kBool));
  require_rank(c, 1, 1, 1);
  const Shape& x = c.shape(0);
  const bool flat = !model_gives(c.node, "axis");  // the elements of x as one list
  const int axis = flat ? 0 : normalize_axis(attr_int(c.node, 0), x.rank());
  const std::int64_t length = flat ? dim_elements(x, 0, x.rank()) : x[axis];
  const ConstTensor condition = known_input(c, 1);
  std::int64_t count = condition.desc.shape[0] == 0 ? 0 : -1;
  if (condition.data != nullptr) {
    count = 0;
    for_each_non_zero(condition, [&](std::int64_t i) {
      if (length >= 0 && i >= length) fail(EVN_ERROR_INVALID_ARGUMENT, "the condition is true beyond the end of the axis");
      ++count;
    });
  }
  c.outputs[0].shape = flat ? Shape{count} : x;
  c.outputs[0].shape[axis] = count;
}

void reference_compress(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const bool flat = !model_gives(c.node, "axis");  // the elements of x as one list
  const int axis = flat ? 0 : normalize_axis(attr_int(c.node, 0), x.rank());
  const std::int64_t outer = flat ? 1 : x.elements(0, axis);
  const std::int64_t length = flat ? x.elements() : x[axis];
  const std::int64_t block =
      (flat ? 1 : x.elements(axis + 1, x.rank())) * static_cast<std::int64_t>(dtype_size(c.input(0).desc.dtype));
  char* to = c.output().as<char>();
  if (c.output().desc.shape.elements() == 0) return;
  for (std::int64_t o = 0; o < outer; ++o) {
    cancellation_point();
    for_each_non_zero(c.input(1), [&](std::int64_t i) {
      copy_block(to, c.input(0).as<char>() + (o * length + i) * block, block);
      to += block;
    });
  }
}

constexpr AttributeSpec kCompress[] = {optional_attribute("axis", AttributeType::kInt)};
constexpr OpDef kOps[] = {
    {.name = "NonZero",
     .since = 9,
     .dtypes = kAnyDtype | kComplex,
     .value_inputs = 1,
     .output_dtype = int64_output,
     .infer = infer_non_zero,
     .reference = reference_non_zero},
    {.name = "Compress",
     .since = 9,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kCompress,
     .dtypes = kMoved,
     .value_inputs = 2,
     .flags = kOpMoves,
     .infer = infer_compress,
     .reference = reference_compress},
};

}  // namespace

extern const OpFamily non_zero_family;
const OpFamily non_zero_family = {kOps};

}  // namespace evn
