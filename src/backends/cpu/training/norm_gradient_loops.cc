#include "backends/cpu/training/norm_gradient_loops.h"

#include "backends/cpu/simd/lanes.h"

namespace evn::EVN_ISA {
namespace {

using simd_norm_gradient::Combination;

inline float all_lanes_sum(Vec v) {
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) v = zip_low(v, v) + zip_high(v, v);
  return v[0];
}

template <bool Scaled>
void products_of(const float* x, const float* dy, const float* scale, float mean, std::int64_t n, float* sums) {
  Vec plain[2] = {}, along[2] = {};
  const Vec middle = splat(mean);
  std::int64_t i = 0;
  const auto add = [&](int chain, Vec v, Vec g) {
    plain[chain] += g;
    along[chain] = fma(g, v - middle, along[chain]);
  };
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const std::int64_t at = i + j * kLanes;
      add(j, load(x + at), Scaled ? load(dy + at) * load(scale + at) : load(dy + at));
    }
  }
  for (; i < n; i += kLanes) {
    const std::int64_t left = n - i;
    add(0, load_some(x + i, left), Scaled ? load_some(dy + i, left) * load_some(scale + i, left) : load_some(dy + i, left));
  }
  sums[0] = all_lanes_sum(plain[0] + plain[1]);
  sums[1] = all_lanes_sum(along[0] + along[1]);
}

void products(const float* x, const float* dy, const float* scale, float mean, std::int64_t n, float* sums) {
  return scale != nullptr ? products_of<true>(x, dy, scale, mean, n, sums) : products_of<false>(x, dy, scale, mean, n, sums);
}

template <bool Scaled>
void combine_of(const float* x, const float* dy, const float* scale, const Combination& of, float* dx, std::int64_t n) {
  const Vec mean = splat(of.mean), a = splat(of.a), b = splat(of.b), c = splat(of.c);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t left = n - i;
    const Vec g = Scaled ? load_some(dy + i, left) * load_some(scale + i, left) : load_some(dy + i, left);
    store_some(dx + i, fma(a, g - c, b * (load_some(x + i, left) - mean)), left);
  }
}

void combine(const float* x, const float* dy, const float* scale, const Combination& of, float* dx, std::int64_t n) {
  return scale != nullptr ? combine_of<true>(x, dy, scale, of, dx, n) : combine_of<false>(x, dy, scale, of, dx, n);
}

void accumulate(const float* x, const float* dy, float mean, float inverse, float* dscale, float* dbias, std::int64_t n) {
  const Vec middle = splat(mean), factor = splat(inverse);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t left = n - i;
    const Vec g = load_some(dy + i, left);
    store_some(dscale + i, fma(g, (load_some(x + i, left) - middle) * factor, load_some(dscale + i, left)), left);
    store_some(dbias + i, load_some(dbias + i, left) + g, left);
  }
}

void column_products(const float* x, const float* dy, const float* means, std::int64_t n, std::int64_t step, std::int64_t width,
                     float* sums, float* to_products) {
  for (std::int64_t j = 0; j < width; j += kLanes) {
    const std::int64_t left = width - j;
    const Vec mean = load_some(means + j, left);
    Vec plain = zero(), along = zero();
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t at = i * step + j;
      const Vec v = load_some(x + at, left), away = v - mean;
      const Vec g = dy != nullptr ? load_some(dy + at, left) : v;
      plain += g;
      along = fma(dy != nullptr ? g : away, away, along);
    }
    store_some(sums + j, plain, left);
    store_some(to_products + j, along, left);
  }
}

// The columns of one vector.
struct ColumnVectors {
  Vec mean = zero(), a = zero(), b = zero(), c = zero();

  ColumnVectors(const Combination* of, std::int64_t n) {
    for (int i = 0; i < kLanes && i < n; ++i) {
      mean[i] = of[i].mean;
      a[i] = of[i].a;
      b[i] = of[i].b;
      c[i] = of[i].c;
    }
  }
};

void combine_columns(const float* x, const float* dy, const Combination* of, float* dx, std::int64_t n, std::int64_t step,
                     std::int64_t width) {
  for (std::int64_t j = 0; j < width; j += kLanes) {
    const std::int64_t left = width - j;
    const ColumnVectors v(of + j, left);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t at = i * step + j;
      store_some(dx + at, fma(v.a, load_some(dy + at, left) - v.c, v.b * (load_some(x + at, left) - v.mean)), left);
    }
  }
}

}  // namespace

extern const simd_norm_gradient::Loops loops_norm_gradient;
const simd_norm_gradient::Loops loops_norm_gradient = {.products = products,
                                                       .combine = combine,
                                                       .accumulate = accumulate,
                                                       .column_products = column_products,
                                                       .combine_columns = combine_columns};

}  // namespace evn::EVN_ISA
