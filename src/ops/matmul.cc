// MatMul: y = A x B as NumPy's matmul: the last two axes are matrices, the axes before them broadcast. A 1-D A is a row, a 1-D B a
// column, and that axis is not in y.
// dtypes: floating point, int32, int64, uint32, uint64 (sums wrap), both alike. Failures: a scalar operand, inner dims that differ,
// axes that do not broadcast. Tolerance: rtol 1e-4, atol 1e-5; integers exact.
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

struct Operands {
  Shape a;      // [batch..., M, K], 1-D operands with the axis that they lack
  Shape b;      // [batch..., K, N]
  Shape batch;  // broadcast
};

Shape without_matrix(const Shape& s) { return Shape(s.dims().first(static_cast<std::size_t>(s.rank() - 2))); }

Operands operands_of(const Shape& a, const Shape& b) {
  Operands o;
  o.a = a.rank() == 1 ? Shape{1, a[0]} : a;
  o.b = b.rank() == 1 ? Shape{b[0], 1} : b;
  o.batch = broadcast_partial(without_matrix(o.a), without_matrix(o.b));
  return o;
}

void infer_matmul(InferContext& c) {
  require_same_dtype(c, 0, 1);
  require_rank(c, 0, 1);
  require_rank(c, 1, 1);
  const Operands o = operands_of(c.shape(0), c.shape(1));
  const std::int64_t k_a = o.a[o.a.rank() - 1];
  const std::int64_t k_b = o.b[o.b.rank() - 2];
  if (k_a >= 0 && k_b >= 0 && k_a != k_b) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "%s and %s cannot be multiplied", c.shape(0).to_string().c_str(),
         c.shape(1).to_string().c_str());
  }
  Shape out = o.batch;
  if (c.shape(0).rank() > 1) out.push_back(o.a[o.a.rank() - 2]);
  if (c.shape(1).rank() > 1) out.push_back(o.b[o.b.rank() - 1]);
  c.outputs[0].shape = out;
}

template <typename T>
void multiply(const T* a, const T* b, T* y, std::int64_t m_size, std::int64_t n_size, std::int64_t k_size) {
  for (std::int64_t m = 0; m < m_size; ++m) {
    cancellation_point();
    for (std::int64_t n = 0; n < n_size; ++n) {
      cancellation_point();
      Accumulator<T> sum = 0;
      for (std::int64_t k = 0; k < k_size; ++k) {
        cancellation_point();
        sum += static_cast<Accumulator<T>>(a[m * k_size + k]) * static_cast<Accumulator<T>>(b[k * n_size + n]);
      }
      y[m * n_size + n] = static_cast<T>(sum);
    }
  }
}

void reference_matmul(const ReferenceContext& c) {
  const Operands o = operands_of(c.input(0).desc.shape, c.input(1).desc.shape);
  const std::int64_t m = o.a[o.a.rank() - 2];
  const std::int64_t k = o.a[o.a.rank() - 1];
  const std::int64_t n = o.b[o.b.rank() - 1];
  if (c.output().desc.shape.elements() == 0) return;
  dispatch<float, double, std::int32_t, std::int64_t, std::uint32_t, std::uint64_t>(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    walk<2>(o.batch, {broadcast_strides(without_matrix(o.a), o.batch), broadcast_strides(without_matrix(o.b), o.batch)},
            [&](std::int64_t i, const std::int64_t* at) {
              const T* a = c.input(0).as<T>() + at[0] * m * k;
              const T* b = c.input(1).as<T>() + at[1] * k * n;
              multiply(a, b, c.output().as<T>() + i * m * n, m, n, k);
            });
  });
}

constexpr std::uint32_t kDtypes =
    kFloats | dtype_bit(DType::kInt32) | dtype_bit(DType::kInt64) | dtype_bit(DType::kUint32) | dtype_bit(DType::kUint64);
constexpr OpDef kOps[] = {
    {.name = "MatMul",
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kDtypes,
     .infer = infer_matmul,
     .reference = reference_matmul,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

extern const OpFamily matmul_family;
const OpFamily matmul_family = {kOps};

}  // namespace evn
