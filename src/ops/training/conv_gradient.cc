// The derivatives of Conv (ops/conv.cc), with its attributes. Not operators of the format (ops/gradient.h).
//   ConvInputGradient: of inputs x, w, dy: dx[n, c, i...] = sum over m, o, k with o * stride + k * dilation - pad_begin = i of
//     dy[n, m, o...] w[m, c, k...], each group for itself; of x only the shape is used.
//   ConvWeightGradient: of inputs w, x, dy: dw[m, c, k...] = sum over n, o of dy[n, m, o...] x[n, c, o * stride + k * dilation -
//   pad_begin];
//     of w only the shape is used.
// dtypes: floating point. Failures: those of Conv, a dy that has not the shape of its result. Tolerance: of a convolution.
#include <vector>

#include "ops/conv.h"
#include "ops/gradient.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/merge.h"

namespace evn {
namespace {

// `x` and `w` are inputs 0 and 1 in one of their orders; dy is input 2.
void infer_gradient(InferContext& c, int x, int w) {
  require_same_dtype(c, 0, 2);
  infer_convolution(c, x, w);
  const Shape y = c.outputs[0].shape;
  require_rank(c, 2, y.rank(), y.rank());
  for (int i = 0; i < y.rank(); ++i) require_dim(c.shape(2)[i], y[i], 2);
  c.outputs[0].shape = c.shape(0);
}
void infer_input_gradient(InferContext& c) { infer_gradient(c, 0, 1); }
void infer_weight_gradient(InferContext& c) { infer_gradient(c, 1, 0); }

// Calls f(output position, input position, kernel position) in a plane for all taps that lie inside the input.
template <typename F>
void for_each_product(const Window& window, F&& f) {
  const WindowAxis* a = window.axis;
  std::int64_t o = 0;
  for (std::int64_t o0 = 0; o0 < a[0].output; ++o0) {
    cancellation_point();
    for (std::int64_t o1 = 0; o1 < a[1].output; ++o1) {
      cancellation_point();
      for (std::int64_t o2 = 0; o2 < a[2].output; ++o2, ++o) {
        cancellation_point();
        std::int64_t k = 0;
        for (std::int64_t k0 = 0; k0 < a[0].kernel; ++k0) {
          cancellation_point();
          const std::int64_t i0 = o0 * a[0].stride + k0 * a[0].dilation - a[0].pad_begin;
          for (std::int64_t k1 = 0; k1 < a[1].kernel; ++k1) {
            cancellation_point();
            const std::int64_t i1 = o1 * a[1].stride + k1 * a[1].dilation - a[1].pad_begin;
            for (std::int64_t k2 = 0; k2 < a[2].kernel; ++k2, ++k) {
              cancellation_point();
              const std::int64_t i2 = o2 * a[2].stride + k2 * a[2].dilation - a[2].pad_begin;
              const bool inside = i0 >= 0 && i0 < a[0].input && i1 >= 0 && i1 < a[1].input && i2 >= 0 && i2 < a[2].input;
              if (inside) f(o, (i0 * a[1].input + i1) * a[2].input + i2, k);
            }
          }
        }
      }
    }
  }
}

// Calls f(plane of x, plane of w, plane of dy, output, input and kernel position).
template <typename F>
void for_each_term(const Node& node, const Shape& x, const Shape& w, F&& f) {
  const Window window = conv_window(node, x, w);
  const std::int64_t per_group = w[0] / attr_int(node, ConvAttr::kGroup);
  for (std::int64_t n = 0; n < x[0]; ++n) {
    cancellation_point();
    for (std::int64_t m = 0; m < w[0]; ++m) {
      cancellation_point();
      for (std::int64_t c = 0; c < w[1]; ++c) {
        cancellation_point();
        const std::int64_t x_plane = n * x[1] + m / per_group * w[1] + c;
        const std::int64_t x_begin = x_plane * window.input_elements(), w_begin = (m * w[1] + c) * window.kernel_elements();
        const std::int64_t y_begin = (n * w[0] + m) * window.output_elements();
        for_each_product(window, [&](std::int64_t o, std::int64_t i, std::int64_t k) { f(x_begin + i, w_begin + k, y_begin + o); });
      }
    }
  }
}

template <typename T>
void put_sums(const std::vector<double>& sums, const MutableTensor& y) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    cancellation_point();
    y.as<T>()[i] = static_cast<T>(sums[i]);
  }
}

void reference_input_gradient(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<double> sums(static_cast<std::size_t>(c.output().desc.shape.elements()));
    const T *w = c.input(1).as<T>(), *dy = c.input(2).as<T>();
    if (c.input(2).desc.shape.elements() > 0) {
      for_each_term(c.node, c.input(0).desc.shape, c.input(1).desc.shape, [&](std::int64_t xi, std::int64_t wi, std::int64_t yi) {
        sums[static_cast<std::size_t>(xi)] += static_cast<double>(w[wi]) * static_cast<double>(dy[yi]);
      });
    }
    put_sums<T>(sums, c.output());
  });
}

void reference_weight_gradient(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<double> sums(static_cast<std::size_t>(c.output().desc.shape.elements()));
    const T *x = c.input(1).as<T>(), *dy = c.input(2).as<T>();
    if (c.input(2).desc.shape.elements() > 0) {
      for_each_term(c.node, c.input(1).desc.shape, c.input(0).desc.shape, [&](std::int64_t xi, std::int64_t wi, std::int64_t yi) {
        sums[static_cast<std::size_t>(wi)] += static_cast<double>(x[xi]) * static_cast<double>(dy[yi]);
      });
    }
    put_sums<T>(sums, c.output());
  });
}

constexpr Tolerance kNear = {1e-4, 1e-5};
constexpr OpDef kOps[] = {
    {.name = kConvInputGradient,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 3,
     .attributes = kConvAttributes,
     .dtypes = kFloats,
     .flags = kOpShapeOnly,
     .infer = infer_input_gradient,
     .reference = reference_input_gradient,
     .tolerance = kNear},
    {.name = kConvWeightGradient,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 3,
     .attributes = kConvAttributes,
     .dtypes = kFloats,
     .flags = kOpShapeOnly,
     .infer = infer_weight_gradient,
     .reference = reference_weight_gradient,
     .tolerance = kNear},
};

}  // namespace

extern const OpFamily conv_gradient_family;
const OpFamily conv_gradient_family = {kOps};

}  // namespace evn
