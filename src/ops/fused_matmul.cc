// FusedMatMul (com.microsoft): y = alpha * A' x B' as MatMul, where transA and transB swap the last two axes of an operand;
//   with transBatchA or transBatchB the operand is [rows, batch..., columns] before that.
// MatMulInteger: y = (A - a zero point) x (B - b zero point) in int32, which wraps. A zero point is one element, or one for each
//   row of A or column of B.
// dtypes: FusedMatMul floating point, both alike; MatMulInteger int8 and uint8. Failures: a scalar operand, inner dims that differ,
// axes that do not broadcast, a batch to transpose where there is none. Tolerance: rtol 1e-4, atol 1e-5; integers exact.
#include <algorithm>

#include "ops/infra/product.h"
#include "ops/infra/quantized.h"

namespace evn {
namespace {

enum : int { kAlpha, kTransA, kTransB, kTransBatchA, kTransBatchB };

// -------------------------------------------------------------------------------------------------- FusedMatMul --

ProductSide fused_side(const Node& node, const Shape& s, bool is_left) {
  const bool transposed = attr_int(node, is_left ? kTransA : kTransB) != 0;
  const bool outer_rows = attr_int(node, is_left ? kTransBatchA : kTransBatchB) != 0;
  if (outer_rows && s.rank() < 3) fail(EVN_ERROR_INVALID_MODEL, "a matrix has no batch to be transposed");
  return side_of(s, is_left, transposed, outer_rows);
}

void infer_fused(InferContext& c) {
  require_same_dtype(c, 0, 1);
  require_rank(c, 0, 1);
  require_rank(c, 1, 1);
  const ProductSide a = fused_side(c.node, c.shape(0), true);
  const ProductSide b = fused_side(c.node, c.shape(1), false);
  c.outputs[0].shape = product_shape(a, c.shape(0).rank(), b, c.shape(1).rank(), 1);
}

void reference_fused(const ReferenceContext& c) {
  const ProductSide a = fused_side(c.node, c.input(0).desc.shape, true);
  const ProductSide b = fused_side(c.node, c.input(1).desc.shape, false);
  const double alpha = attr_float(c.node, kAlpha);
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* from_a = c.input(0).as<T>();
    const T* from_b = c.input(1).as<T>();
    multiply<double>(
        a, b,
        [&](std::int64_t i, std::int64_t, std::int64_t j, std::int64_t) {
          return static_cast<double>(from_a[i]) * static_cast<double>(from_b[j]);
        },
        [&](std::int64_t i, std::int64_t, std::int64_t, double sum) { c.output().as<T>()[i] = static_cast<T>(alpha * sum); });
  });
}

// ------------------------------------------------------------------------------------------------ MatMulInteger --

DType int32_output(const Node&, std::span<const DType>, int) { return DType::kInt32; }

void infer_integer(InferContext& c) {
  require_dtype(c, 1, kByteDtypes);
  require_rank(c, 0, 1);
  require_rank(c, 1, 1);
  const ProductSide a = side_of(c.shape(0), true);
  const ProductSide b = side_of(c.shape(1), false);
  c.outputs[0].shape = product_shape(a, c.shape(0).rank(), b, c.shape(1).rank(), 1);
  for (int side = 0; side < 2; ++side) {
    const int i = 2 + side;
    if (!c.has_input(i)) continue;
    require_zero_point(c, i, c.inputs[static_cast<std::size_t>(side)].dtype);
    require_rank(c, i, 0, 1);
    if (c.shape(i).rank() == 1 && c.shape(i)[0] != 1) require_dim(c.shape(i)[0], side == 0 ? a.rows : b.columns, i);
  }
}

void reference_integer(const ReferenceContext& c) {
  const ProductSide a = side_of(c.input(0).desc.shape, true);
  ProductSide b = side_of(c.input(1).desc.shape, false);
  if (c.output().desc.shape.elements() == 0) return;
  const std::vector<std::int32_t> x = centered(c, 0, 2, std::max<std::int64_t>(a.columns, 1), a.rows);
  std::vector<std::int32_t> w = centered(c, 1, 3, 1, b.columns);
  turn_columns(&b, &w);
  multiply<std::uint32_t>(
      a, b,
      [&](std::int64_t i, std::int64_t, std::int64_t j, std::int64_t) {
        return static_cast<std::uint32_t>(x[static_cast<std::size_t>(i)] * w[static_cast<std::size_t>(j)]);
      },
      [&](std::int64_t i, std::int64_t, std::int64_t, std::uint32_t sum) {
        c.output().as<std::int32_t>()[i] = static_cast<std::int32_t>(sum);
      });
}

constexpr AttributeSpec kFused[] = {float_attribute("alpha", 1), int_attribute("transA", 0), int_attribute("transB", 0),
                                    int_attribute("transBatchA", 0), int_attribute("transBatchB", 0)};
constexpr OpDef kOps[] = {
    {.name = "FusedMatMul",
     .domain = "com.microsoft",
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kFused,
     .dtypes = kFloats,
     .infer = infer_fused,
     .reference = reference_fused,
     .tolerance = {1e-4, 1e-5}},
    {.name = "MatMulInteger",
     .since = 10,
     .min_inputs = 2,
     .max_inputs = 4,
     .dtypes = kByteDtypes,
     .output_dtype = int32_output,
     .infer = infer_integer,
     .reference = reference_integer},
};

}  // namespace

extern const OpFamily fused_matmul_family;
const OpFamily fused_matmul_family = {kOps};

}  // namespace evn
