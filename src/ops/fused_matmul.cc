// FusedMatMul (com.microsoft): y = alpha * A' x B' as MatMul, where transA and transB swap the last two axes of an operand.
// MatMulInteger: y = (A - a zero point) x (B - b zero point) in int32, which wraps. A zero point is one element, or one for each
// row of A or column of B.
// dtypes: FusedMatMul floating point, both alike; MatMulInteger int8 and uint8. Failures: a scalar operand, inner dims that differ,
// axes that do not broadcast; transBatchA and transBatchB (UNSUPPORTED). Tolerance: rtol 1e-4, atol 1e-5; integers exact.
#include <utility>

#include "ops/infra/check.h"
#include "ops/infra/quantized.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

enum : int { kAlpha, kTransA, kTransB, kTransBatchA, kTransBatchB };

// One side: its matrix, and the axes before it. Steps are in elements.
struct Side {
  Shape batch;
  std::int64_t rows = 1, columns = 1;
  std::int64_t row_step = 0, column_step = 1;
};

Side side_of(const Shape& s, bool is_left, bool transposed) {
  Side side;
  if (s.rank() == 1) {
    (is_left ? side.columns : side.rows) = s[0];
    side.row_step = is_left ? 0 : 1;
    side.column_step = is_left ? 1 : 0;
    return side;
  }
  side.batch = Shape(s.dims().first(static_cast<std::size_t>(s.rank() - 2)));
  side.rows = s[s.rank() - 2];
  side.columns = s[s.rank() - 1];
  side.row_step = side.columns;
  if (transposed) {
    std::swap(side.rows, side.columns);
    std::swap(side.row_step, side.column_step);
  }
  return side;
}

void infer_product(InferContext& c, bool trans_a, bool trans_b) {
  require_rank(c, 0, 1);
  require_rank(c, 1, 1);
  const Side a = side_of(c.shape(0), true, trans_a);
  const Side b = side_of(c.shape(1), false, trans_b);
  require_dim(b.rows, a.columns, 1);
  Shape out = broadcast_partial(a.batch, b.batch);
  if (c.shape(0).rank() > 1) out.push_back(a.rows);
  if (c.shape(1).rank() > 1) out.push_back(b.columns);
  c.outputs[0].shape = out;
}

// y[i] = finish(sum over k of f(a, row, b, column)) for all products.
template <typename A, typename T, typename Term, typename Finish>
void multiply(const ReferenceContext& c, const Side& a, const Side& b, Term&& term, Finish&& finish) {
  const Shape batch = broadcast_partial(a.batch, b.batch);
  T* y = c.output().as<T>();
  walk<2>(batch, {broadcast_strides(a.batch, batch), broadcast_strides(b.batch, batch)}, [&](std::int64_t, const std::int64_t* at) {
    const std::int64_t first_a = at[0] * a.rows * a.columns;
    const std::int64_t first_b = at[1] * b.rows * b.columns;
    for (std::int64_t m = 0; m < a.rows; ++m) {
      for (std::int64_t n = 0; n < b.columns; ++n) {
        A sum = 0;
        for (std::int64_t k = 0; k < a.columns; ++k) {
          sum += term(first_a + m * a.row_step + k * a.column_step, m, first_b + k * b.row_step + n * b.column_step, n);
        }
        *y++ = static_cast<T>(finish(sum));
      }
    }
  });
}

// -------------------------------------------------------------------------------------------------- FusedMatMul --

void infer_fused(InferContext& c) {
  require_same_dtype(c, 0, 1);
  if (attr_int(c.node, kTransBatchA) != 0 || attr_int(c.node, kTransBatchB) != 0) {
    fail(EVN_ERROR_UNSUPPORTED, "FusedMatMul with transposed batch axes");
  }
  infer_product(c, attr_int(c.node, kTransA) != 0, attr_int(c.node, kTransB) != 0);
}

void reference_fused(const ReferenceContext& c) {
  const Side a = side_of(c.input(0).desc.shape, true, attr_int(c.node, kTransA) != 0);
  const Side b = side_of(c.input(1).desc.shape, false, attr_int(c.node, kTransB) != 0);
  const double alpha = attr_float(c.node, kAlpha);
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* from_a = c.input(0).as<T>();
    const T* from_b = c.input(1).as<T>();
    multiply<double, T>(
        c, a, b,
        [&](std::int64_t i, std::int64_t, std::int64_t j, std::int64_t) {
          return static_cast<double>(from_a[i]) * static_cast<double>(from_b[j]);
        },
        [&](double sum) { return alpha * sum; });
  });
}

// ------------------------------------------------------------------------------------------------ MatMulInteger --

DType int32_output(const Node&, std::span<const DType>, int) { return DType::kInt32; }

void infer_integer(InferContext& c) {
  require_dtype(c, 1, kByteDtypes);
  infer_product(c, false, false);
  const Side a = side_of(c.shape(0), true, false);
  const Side b = side_of(c.shape(1), false, false);
  for (int side = 0; side < 2; ++side) {
    const int i = 2 + side;
    if (!c.has_input(i)) continue;
    if (c.inputs[i].dtype != c.inputs[side].dtype) fail(EVN_ERROR_INVALID_MODEL, "zero point %d has another element type", side);
    require_rank(c, i, 0, 1);
    if (c.shape(i).rank() == 1 && c.shape(i)[0] != 1) require_dim(c.shape(i)[0], side == 0 ? a.rows : b.columns, i);
  }
}

std::int32_t zero_point(const ReferenceContext& c, int input, std::int64_t i) {
  if (!c.has_input(input)) return 0;
  return byte_at(c.input(input), c.input(input).desc.shape.elements() == 1 ? 0 : i);
}

void reference_integer(const ReferenceContext& c) {
  multiply<std::uint32_t, std::int32_t>(
      c, side_of(c.input(0).desc.shape, true, false), side_of(c.input(1).desc.shape, false, false),
      [&](std::int64_t i, std::int64_t row, std::int64_t j, std::int64_t column) {
        const std::int32_t x = byte_at(c.input(0), i) - zero_point(c, 2, row);
        const std::int32_t w = byte_at(c.input(1), j) - zero_point(c, 3, column);
        return static_cast<std::uint32_t>(x * w);
      },
      [](std::uint32_t sum) { return sum; });
}

constexpr AttributeSpec kFused[] = {float_attribute("alpha", 1), int_attribute("transA", 0), int_attribute("transB", 0),
                                    int_attribute("transBatchA", 0), int_attribute("transBatchB", 0)};
constexpr OpDef kOps[] = {
    {"FusedMatMul", "com.microsoft", 1, 2, 2, 1, 1, kFused, kFloats, 0, 0, nullptr, infer_fused, reference_fused, {1e-4, 1e-5}},
    {"MatMulInteger", "", 10, 2, 4, 1, 1, {}, kByteDtypes, 0, 0, int32_output, infer_integer, reference_integer, {}},
};

}  // namespace

extern const OpFamily fused_matmul_family;
const OpFamily fused_matmul_family = {kOps};

}  // namespace evn
