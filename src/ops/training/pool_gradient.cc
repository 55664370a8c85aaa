// The derivatives of MaxPool and AveragePool (ops/pool.cc), with their attributes. Not operators of the format (ops/gradient.h).
//   inputs x [N, C, spatial...] and dy of the pool's shape; dx has the shape of x. Of AveragePoolGradient's x only the shape is
//   used. MaxPoolGradient gives dy of a window to the element that MaxPool takes (of equal ones the first; a NaN),
//   AveragePoolGradient the same share of it to each element of the window.
// dtypes: floating point. Failures: those of the pools, a dy of another shape. Tolerance: sums of float32.
#include <vector>

#include "ops/gradient.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/merge.h"
#include "ops/pool.h"

namespace evn {
namespace {

void infer_pool_gradient(InferContext& c) {
  require_same_dtype(c, 0, 1);
  require_rank(c, 0, 3);
  const Shape& x = c.shape(0);
  require_rank(c, 1, x.rank(), x.rank());
  const Window window = pool_window(c.node, x);
  for (int i = 0; i < 2; ++i) require_dim(c.shape(1)[i], x[i], 1);
  for (int i = 0; i < window.rank; ++i) require_dim(c.shape(1)[i + 2], window.axis[i].output, 1);
  c.outputs[0].shape = x;
}

// Sets dx to the sums that add(window, taps, plane of x, dy, sums of the plane) makes of all windows.
template <typename T, typename Add>
void sum_windows(const ReferenceContext& c, Add add) {
  const Shape& x = c.input(0).desc.shape;
  T* dx = c.output().as<T>();
  if (c.input(1).desc.shape.elements() == 0) {
    fill_in_pieces(dx, x.elements(), T(0));
    return;
  }
  const Window window = pool_window(c.node, x);
  const T* dy = c.input(1).as<T>();
  const std::int64_t planes = x.elements(0, 2);
  std::vector<double> sums(static_cast<std::size_t>(window.input_elements()));
  for (std::int64_t p = 0; p < planes; ++p) {
    cancellation_point();
    fill_in_pieces(sums.data(), static_cast<std::int64_t>(sums.size()), 0.0);
    for_each_window(window, [&](const Taps(&taps)[kMaxSpatial]) { add(window, taps, p * window.input_elements(), *dy++, sums); });
    for (const double sum : sums) {
      cancellation_point();
      *dx++ = static_cast<T>(sum);
    }
  }
}

std::size_t offset_of(const Window& window, std::int64_t i0, std::int64_t i1, std::int64_t i2) {
  return static_cast<std::size_t>((i0 * window.axis[1].input + i1) * window.axis[2].input + i2);
}

void reference_max_pool_gradient(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = c.input(0).as<T>();
    sum_windows<T>(
        c, [&](const Window& window, const Taps(&taps)[kMaxSpatial], std::int64_t plane, T dy, std::vector<double>& sums) {
          const std::size_t nowhere = sums.size();
          std::size_t at = nowhere;
          for_each_tap(window, taps, [&](std::int64_t i0, std::int64_t i1, std::int64_t i2) {
            const std::size_t i = offset_of(window, i0, i1, i2);
            if (at == nowhere || beats(x[plane + static_cast<std::int64_t>(i)], x[plane + static_cast<std::int64_t>(at)])) at = i;
          });
          if (at != nowhere) sums[at] += static_cast<double>(dy);
        });
  });
}

void reference_average_pool_gradient(const ReferenceContext& c) {
  const bool include_pad = attr_int(c.node, AveragePoolAttr::kCountIncludePad) != 0;
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    sum_windows<T>(c, [&](const Window& window, const Taps(&taps)[kMaxSpatial], std::int64_t, T dy, std::vector<double>& sums) {
      double count = 1;
      for (const Taps& t : taps) {
        cancellation_point();
        count *= static_cast<double>(include_pad ? t.padded : t.count);
      }
      for_each_tap(window, taps, [&](std::int64_t i0, std::int64_t i1, std::int64_t i2) {
        sums[offset_of(window, i0, i1, i2)] += static_cast<double>(dy) / count;
      });
    });
  });
}

constexpr Tolerance kNear = {1e-5, 1e-6};
constexpr OpDef kOps[] = {
    {.name = kMaxPoolGradient,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kMaxPoolAttributes,
     .dtypes = kFloats,
     .infer = infer_pool_gradient,
     .reference = reference_max_pool_gradient,
     .tolerance = kNear},
    {.name = kAveragePoolGradient,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kAveragePoolAttributes,
     .dtypes = kFloats,
     .flags = kOpShapeOnly,
     .infer = infer_pool_gradient,
     .reference = reference_average_pool_gradient,
     .tolerance = kNear},
};

}  // namespace

extern const OpFamily pool_gradient_family;
const OpFamily pool_gradient_family = {kOps};

}  // namespace evn
