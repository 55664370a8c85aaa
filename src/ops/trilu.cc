// Trilu: of the matrices in the last two axes, the upper triangle (column >= row + k) or the lower one (column <= row + k); the
// rest is 0. k, a scalar, is optional input 1 (0). com.microsoft's is the same.
// EyeLike: 1 where column = row + k, else 0, in the shape of its matrix; `dtype`, or that of the input.
// dtypes: Trilu any, k int64; EyeLike all numbers and bool, the input's bytes are not read. Failures: a rank below 2 (EyeLike:
// other than 2), `dtype` that is none of these. Exact.
#include <algorithm>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

enum : int { kDtype, kDiagonal };

void infer_trilu(InferContext& c) {
  require_rank(c, 0, 2);
  require_dtype(c, 1, dtype_bit(DType::kInt64));
  require_scalar(c, 1);
  infer_same_shape(c);
}

// A part is a row.
std::int64_t parts_of_trilu(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  return x.elements(0, x.rank() - 1);
}

void reference_trilu(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const std::int64_t rows = x[x.rank() - 2];
  const std::int64_t columns = x[x.rank() - 1];
  const bool upper = attr_int(c.node, 0) != 0;
  const std::int64_t k = c.has_input(1) ? std::clamp(*c.input(1).as<std::int64_t>(), -rows - 1, columns + 1) : 0;
  const std::size_t size = dtype_size(c.input(0).desc.dtype);
  const auto* from = static_cast<const char*>(c.input(0).data);
  auto* to = static_cast<char*>(c.output().data);
  const std::size_t line = static_cast<std::size_t>(columns) * size;
  const std::int64_t last_row = std::min(c.end, parts_of_trilu(c));
  from += static_cast<std::size_t>(c.begin) * line;
  to += static_cast<std::size_t>(c.begin) * line;
  for (std::int64_t i = c.begin; i < last_row; ++i, from += line, to += line) {
    // What is kept of a row: columns [begin, end).
    const std::int64_t at = i % rows + k;
    const std::int64_t begin = upper ? std::clamp<std::int64_t>(at, 0, columns) : 0;
    const std::int64_t end = upper ? columns : std::clamp<std::int64_t>(at + 1, 0, columns);
    const std::size_t first = static_cast<std::size_t>(begin) * size, last = static_cast<std::size_t>(end) * size;
    cancellation_point();
    fill_in_pieces(to, 0, first);
    if (to != from) copy_block(to + first, from + first, static_cast<std::int64_t>(last - first));
    fill_in_pieces(to + last, 0, line - last);
  }
}

DType eye_dtype(const Node& node, std::span<const DType> inputs, int) {
  const std::int64_t number = attr_int(node, kDtype);
  if (number == 0) return inputs[0];
  const bool known = number > 0 && number < 32;
  const std::uint32_t allowed = kNumbers | dtype_bit(DType::kBool);
  if (!known || (allowed >> number & 1u) == 0) fail(EVN_ERROR_UNSUPPORTED, "EyeLike to dtype %lld", static_cast<long long>(number));
  return static_cast<DType>(number);
}

void infer_eye(InferContext& c) {
  require_rank(c, 0, 2, 2);
  infer_same_shape(c);
}

void reference_eye(const ReferenceContext& c) {
  const Shape& shape = c.output().desc.shape;
  const DType dtype = c.output().desc.dtype;
  const std::int64_t k = std::clamp(attr_int(c.node, kDiagonal), -shape[0], shape[1]);
  fill_in_pieces(c.output().data, 0, c.output().desc.size_bytes());
  dispatch_numbers(dtype == DType::kBool ? DType::kUint8 : dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* const y = c.output().as<T>();
    each_element(shape[0], [=](std::int64_t row) {
      if (row + k >= 0 && row + k < shape[1]) y[row * shape[1] + row + k] = 1;
    });
  });
}

constexpr AttributeSpec kTrilu[] = {int_attribute("upper", 1)};
constexpr AttributeSpec kEye[] = {int_attribute("dtype", 0), int_attribute("k", 0)};
constexpr std::uint32_t kEyeDtypes = kNumbers | dtype_bit(DType::kBool);
constexpr OpDef kOps[] = {
    {.name = "Trilu",
     .since = 14,
     .max_inputs = 2,
     .attributes = kTrilu,
     .dtypes = kMoved & ~kString,
     .flags = kOpMoves,
     .infer = infer_trilu,
     .reference = reference_trilu,
     .parts = parts_of_trilu},
    {.name = "Trilu",
     .domain = "com.microsoft",
     .since = 1,
     .max_inputs = 2,
     .attributes = kTrilu,
     .dtypes = kMoved & ~kString,
     .flags = kOpMoves,
     .infer = infer_trilu,
     .reference = reference_trilu,
     .parts = parts_of_trilu},
    {.name = "EyeLike",
     .since = 9,
     .attributes = kEye,
     .dtypes = kEyeDtypes,
     .flags = kOpShapeOnly,
     .output_dtype = eye_dtype,
     .infer = infer_eye,
     .reference = reference_eye},
};

}  // namespace

extern const OpFamily trilu_family;
const OpFamily trilu_family = {kOps};

}  // namespace evn
