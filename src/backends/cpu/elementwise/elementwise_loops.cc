#include "backends/cpu/elementwise/elementwise_loops.h"

#include "backends/cpu/simd/epilogue.h"
#include "backends/cpu/simd/half.h"
#include "backends/cpu/simd/lanes.h"
#include "backends/cpu/simd/trigonometry.h"

namespace evn::EVN_ISA {
namespace {

using simd_elementwise::Binary;
using simd_elementwise::Rows;
using simd_elementwise::Unary;

// Runs of this length are written and then taken through the rest of the chain while they are in L1.
constexpr std::int64_t kChunk = 1024;
constexpr std::int64_t kLeastPast = 256;  // shorter rows are not written past the caches

template <typename F>
inline Vec each_lane(Vec x, F f) {
  for (int i = 0; i < kLanes; ++i) x[i] = f(x[i]);
  return x;
}

// Of x <= 0, or NaN: by tanh, which keeps what is left of small x.
inline Vec expm1_of(Vec x) {
  const Vec t = tanh_of(splat(0.5f) * x);
  return (t + t) / (splat(1.0f) - t);
}

// Of 0 <= x <= 1, or NaN: what 1 + x loses of x is made good by the quotient.
inline Vec log1p_of(Vec x) {
  const Vec u = splat(1.0f) + x;
  const Vec kept = u - splat(1.0f);
  return kept == zero() ? x : log_of(u) * (x / kept);
}

// To nearest, ties to even, by adding and subtracting 2^23 with the sign of x; from there on every float is whole.
inline Vec round_of(Vec x) {
  const IntVec sign = as_int(x) & splat_int(INT32_MIN);
  const Vec big = as_float(as_int(splat(8388608.0f)) | sign);
  const Vec rounded = as_float(as_int((x + big) - big) | sign);
  return abs_of(x) < splat(8388608.0f) ? rounded : x;
}

__attribute__((always_inline)) inline Vec unary_of(Unary f, float a, float b, Vec x) {
  switch (f) {
    case Unary::kIdentity: return x;
    case Unary::kRelu: return max_of(zero(), x);
    case Unary::kClip: return min_of(splat(b), max_of(splat(a), x));
    case Unary::kLeakyRelu: return x < zero() ? splat(a) * x : x;
    case Unary::kHardSigmoid: return min_of(splat(1.0f), max_of(zero(), fma(splat(a), x, splat(b))));
    case Unary::kHardSwish: return x * min_of(splat(1.0f), max_of(zero(), fma(splat(a), x, splat(b))));
    case Unary::kSigmoid: return sigmoid_of(x);
    case Unary::kTanh: return tanh_of(x);
    case Unary::kSqrt: return sqrt_of(x);
    case Unary::kExp: return exp_of(x);
    case Unary::kErf: return erf_of(x);
    case Unary::kAbs: return abs_of(x);
    case Unary::kNeg: return -x;
    case Unary::kReciprocal: return splat(1.0f) / x;
    case Unary::kGelu: return gelu_of(x);
    case Unary::kSoftplus: return max_of(zero(), x) + log1p_of(exp_of(-abs_of(x)));
    case Unary::kFloor: return each_lane(x, [](float v) { return __builtin_floorf(v); });
    case Unary::kCeil: return each_lane(x, [](float v) { return __builtin_ceilf(v); });
    case Unary::kLog: return log_of(x);
    case Unary::kSquare: return x * x;
    case Unary::kGeluTanh: return gelu_tanh_of(x);
    case Unary::kSwish: return swish_of(splat(a), x);
    case Unary::kSin: return sine_of<false>(x);
    case Unary::kCos: return sine_of<true>(x);
    case Unary::kRound: return round_of(x);
    case Unary::kSign: return x > zero() ? splat(1.0f) : x < zero() ? splat(-1.0f) : x != x ? x : zero();
    case Unary::kSoftsign: return x / (splat(1.0f) + abs_of(x));
    case Unary::kThresholdedRelu: return x > splat(a) ? x : zero();
    case Unary::kElu: return x < zero() ? splat(a) * expm1_of(x) : x;
    case Unary::kSelu: return splat(b) * (x > zero() ? x : splat(a) * expm1_of(x));
    case Unary::kCelu: return x > zero() ? x : splat(a) * expm1_of(x / splat(a));
    case Unary::kMish: {
      const Vec e = exp_of(x);
      const Vec n = fma(e, e, e + e);  // tanh(log(1 + e)) = n / (n + 2)
      return x > splat(20.0f) ? x : x * (n / (n + splat(2.0f)));
    }
    case Unary::kTan: return tan_of(x);
    case Unary::kAsin: return inverse_sine_of<false>(x);
    case Unary::kAcos: return inverse_sine_of<true>(x);
    case Unary::kAtan: return atan_of(x);
    case Unary::kSinh: return sinh_of(x);
    case Unary::kCosh: return cosh_of(x);
    case Unary::kAsinh: return asinh_of(x);
    case Unary::kAcosh: return acosh_of(x);
    case Unary::kAtanh: return atanh_of(x);
  }
  return x;
}

// The tail is computed as a vector of its own.
template <typename F>
__attribute__((always_inline)) inline void each_vector(const float* x, float* y, std::int64_t n, F f) {
  const std::int64_t whole = n / kLanes * kLanes;
  Vec tail;
  auto* const last = reinterpret_cast<float*>(&tail);
  const float* from = x;
  float* to = y;
  for (std::int64_t end = whole;; end = kLanes) {
    for (std::int64_t i = 0; i < end; i += kLanes) store(to + i, f(load(from + i)));
    if (whole == n) return;
    if (to == last) break;
    tail = load_n(x + whole, n - whole);
    from = to = last;
  }
  store_n(y + whole, tail, n - whole);
}

// A loop of its own, whose switch is over a constant: a call and a jump for each vector take longer than most of the functions.
template <Unary F>
void unary_loop(Unary, float a, float b, const float* x, float* y, std::int64_t n) {
  each_vector(x, y, n, [&](Vec v) { return unary_of(F, a, b, v); });
}

// The functions from here on share a loop.
#if defined(EVN_SMALL_CLUSTER)
constexpr Unary kShared = Unary::kLeakyRelu;
#else
constexpr Unary kShared = Unary::kSin;
#endif

void shared_loop(Unary f, float a, float b, const float* x, float* y, std::int64_t n) {
  if (f < kShared) __builtin_unreachable();
  each_vector(x, y, n, [&](Vec v) { return unary_of(f, a, b, v); });
}

using UnaryFn = void (*)(Unary, float, float, const float*, float*, std::int64_t);
constexpr UnaryFn kUnary[] = {
    unary_loop<Unary::kIdentity>,
    unary_loop<Unary::kRelu>,
    unary_loop<Unary::kClip>,
#if !defined(EVN_SMALL_CLUSTER)
    unary_loop<Unary::kLeakyRelu>,
    unary_loop<Unary::kHardSigmoid>,
    unary_loop<Unary::kHardSwish>,
    unary_loop<Unary::kSigmoid>,
    unary_loop<Unary::kTanh>,
    unary_loop<Unary::kSqrt>,
    unary_loop<Unary::kExp>,
    unary_loop<Unary::kErf>,
    unary_loop<Unary::kAbs>,
    unary_loop<Unary::kNeg>,
    unary_loop<Unary::kReciprocal>,
    unary_loop<Unary::kGelu>,
    unary_loop<Unary::kSoftplus>,
    unary_loop<Unary::kFloor>,
    unary_loop<Unary::kCeil>,
    unary_loop<Unary::kLog>,
    unary_loop<Unary::kSquare>,
    unary_loop<Unary::kGeluTanh>,
    unary_loop<Unary::kSwish>,
    unary_loop<Unary::kRound>,
    unary_loop<Unary::kSign>,
    unary_loop<Unary::kSoftsign>,
    unary_loop<Unary::kThresholdedRelu>,
    unary_loop<Unary::kElu>,
    unary_loop<Unary::kSelu>,
    unary_loop<Unary::kCelu>,
    unary_loop<Unary::kMish>,
#endif
};
static_assert(sizeof kUnary / sizeof kUnary[0] == static_cast<std::size_t>(kShared));

inline UnaryFn loop_of(Unary f) { return f < kShared ? kUnary[static_cast<int>(f)] : shared_loop; }

inline void apply_chain(const Chain& chain, float* y, std::int64_t n) {
  if (chain.low > -__builtin_inff() || chain.high < __builtin_inff())
    unary_loop<Unary::kClip>(Unary::kClip, chain.low, chain.high, y, y, n);
  apply_rest(chain, y, n);
}

// Calls write(i, count, to) for runs of y, `to` in L1, and stores those past the caches. fence_past() must follow.
template <typename F>
inline void run_past(float* y, std::int64_t n, F write) {
  alignas(sizeof(Vec)) float near[kChunk];
  const bool whole = reinterpret_cast<std::uintptr_t>(y) % sizeof(Vec) == 0;
  for (std::int64_t i = 0; i < n; i += kChunk) {
    const std::int64_t count = n - i < kChunk ? n - i : kChunk;
    if (!whole || count % kLanes != 0) {
      write(i, count, y + i);
      continue;
    }
    write(i, count, near);
    for (std::int64_t j = 0; j < count; j += kLanes) store_past(y + i + j, load(near + j));
  }
}

void run_unary(Unary f, float a, float b, const float* x, float* y, std::int64_t n, bool past, const Epilogue* epilogue) {
  const Chain chain = split_chain(epilogue);
  const UnaryFn loop = loop_of(f);
  const auto write = [&](std::int64_t i, std::int64_t count, float* to) {
    loop(f, a, b, x + i, to, count);
    if (epilogue != nullptr) apply_chain(chain, to, count);
  };
  if (past) {
    run_past(y, n, write);
    return fence_past();
  }
  if (epilogue == nullptr) return loop(f, a, b, x, y, n);
  for (std::int64_t i = 0; i < n; i += kChunk) write(i, n - i < kChunk ? n - i : kChunk, y + i);
}

__attribute__((always_inline)) inline Vec binary_of(Binary op, Vec x, Vec z) {
  switch (op) {
    case Binary::kAdd: return x + z;
    case Binary::kSub: return x - z;
    case Binary::kMul: return x * z;
    case Binary::kDiv: return x / z;
    // A NaN on either side gives NaN.
    case Binary::kMin: return z != z ? z : x > z ? z : x;
    case Binary::kMax: return z != z ? z : x < z ? z : x;
    case Binary::kPow: {
      for (int i = 0; i < kLanes; ++i) x[i] = __builtin_powf(x[i], z[i]);
      return x;
    }
    case Binary::kPRelu: return x < zero() ? x * z : x;
  }
  return x;
}

template <Binary Op, int XStep, int ZStep>
void binary_loop(const float* x, const float* z, float* y, std::int64_t n, Rows rows) {
  for (std::int64_t r = 0; r < rows.count; ++r, x += rows.x, z += rows.z, y += rows.y) {
    const Vec x0 = XStep == 0 && n > 0 ? splat(*x) : zero();
    const Vec z0 = ZStep == 0 && n > 0 ? splat(*z) : zero();
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      store(y + i, binary_of(Op, XStep == 0 ? x0 : load(x + i), ZStep == 0 ? z0 : load(z + i)));
    }
    if (i < n) {
      const Vec xv = XStep == 0 ? x0 : load_n(x + i, n - i);
      const Vec zv = ZStep == 0 ? z0 : load_n(z + i, n - i);
      store_n(y + i, binary_of(Op, xv, zv), n - i);
    }
  }
}

using BinaryFn = void (*)(const float*, const float*, float*, std::int64_t, Rows);
#define EVN_BINARY(OP)                                                                               \
  {                                                                                                  \
    {binary_loop<OP, 0, 0>, binary_loop<OP, 0, 1>}, { binary_loop<OP, 1, 0>, binary_loop<OP, 1, 1> } \
  }
constexpr BinaryFn kBinary[][2][2] = {
    EVN_BINARY(Binary::kAdd), EVN_BINARY(Binary::kSub), EVN_BINARY(Binary::kMul), EVN_BINARY(Binary::kDiv),
    EVN_BINARY(Binary::kMin), EVN_BINARY(Binary::kMax), EVN_BINARY(Binary::kPow), EVN_BINARY(Binary::kPRelu),
};

void run_row(Binary op, const float* x, std::int64_t x_step, const float* z, std::int64_t z_step, float* y, std::int64_t n,
             bool past, const Epilogue* epilogue) {
  if (op == Binary::kPow && z_step == 0 && n > 0) {
    const float power = *z;
    if (power == 2.0f && x_step == 1) return run_unary(Unary::kSquare, 0, 0, x, y, n, past, epilogue);
  }
  const Chain chain = split_chain(epilogue);
  const BinaryFn loop = kBinary[static_cast<int>(op)][x_step][z_step];
  const auto write = [&](std::int64_t i, std::int64_t count, float* to) {
    loop(x + i * x_step, z + i * z_step, to, count, {1, 0, 0, 0});
    apply_chain(chain, to, count);
  };
  if (past) return run_past(y, n, write);
  for (std::int64_t i = 0; i < n; i += kChunk) write(i, n - i < kChunk ? n - i : kChunk, y + i);
}

void run_rows(Binary op, const float* x, std::int64_t x_step, const float* z, std::int64_t z_step, float* y, std::int64_t n,
              Rows rows, bool past, const Epilogue* epilogue) {
  past = past && n >= kLeastPast;
  const bool row_by_row = past || (op == Binary::kPow && z_step == 0) || (epilogue != nullptr && n >= kChunk);
  if (row_by_row) {
    for (std::int64_t r = 0; r < rows.count; ++r)
      run_row(op, x + r * rows.x, x_step, z + r * rows.z, z_step, y + r * rows.y, n, past, epilogue);
    if (past) fence_past();
    return;
  }
  const BinaryFn loop = kBinary[static_cast<int>(op)][x_step][z_step];
  if (epilogue == nullptr || n == 0) return loop(x, z, y, n, rows);
  const Chain chain = split_chain(epilogue);
  const std::int64_t at_once = kChunk / n;
  for (std::int64_t r = 0; r < rows.count; r += at_once) {
    const std::int64_t count = rows.count - r < at_once ? rows.count - r : at_once;
    float* const to = y + r * rows.y;
    loop(x + r * rows.x, z + r * rows.z, to, n, {count, rows.x, rows.z, rows.y});
    if (rows.y == n) {
      apply_chain(chain, to, count * n);
    } else {
      for (std::int64_t i = 0; i < count; ++i) apply_chain(chain, to + i * rows.y, n);
    }
  }
}

void run_affine(float center, float scale, float offset, const float* x, float* y, std::int64_t n, const Epilogue* epilogue) {
  const Chain chain = split_chain(epilogue);
  const Vec middle = splat(center);
  const Vec a = splat(scale);
  const Vec b = splat(offset);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, bounded(chain, fma(a, load(x + i) - middle, b)));
  if (i < n) store_n(y + i, bounded(chain, fma(a, load_n(x + i, n - i) - middle, b)), n - i);
  apply_rest(chain, y, n);
}

void run_affine_rows(const float* scale, const float* offset, const float* x, std::int64_t x_step, float* y, std::int64_t y_step,
                     std::int64_t rows, std::int64_t n, const Epilogue* epilogue) {
  const Chain chain = split_chain(epilogue);
  for (std::int64_t r = 0; r < rows; ++r, x += x_step, y += y_step) {
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(y + i, bounded(chain, fma(load(scale + i), load(x + i), load(offset + i))));
    if (i < n)
      store_n(y + i, bounded(chain, fma(load_n(scale + i, n - i), load_n(x + i, n - i), load_n(offset + i, n - i))), n - i);
    apply_rest(chain, y, n);
  }
}

using Doubles = double __attribute__((vector_size(sizeof(Vec))));
using HalfVec = float __attribute__((vector_size(sizeof(Vec) / 2)));
constexpr int kDoubles = kLanes / 2;

inline Doubles doubles_at(const float* p) {
  HalfVec v;
  __builtin_memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, Doubles);
}

inline void store_rounded(float* p, Doubles v) {
  const HalfVec rounded = __builtin_convertvector(v, HalfVec);
  __builtin_memcpy(p, &rounded, sizeof rounded);
}

inline Doubles sqrt_of(Doubles v) {
#if defined(__AVX512F__)
  return _mm512_maskz_sqrt_pd(0xff, v);
#elif defined(__AVX2__)
  return _mm256_sqrt_pd(v);
#else
  for (int i = 0; i < kDoubles; ++i) v[i] = __builtin_sqrt(v[i]);
  return v;
#endif
}

void run_norm_of_channels(const simd_elementwise::ChannelNorm& c, std::int64_t n, float* to_scale, float* to_offset) {
  std::int64_t i = 0;
  for (; i + kDoubles <= n; i += kDoubles) {
    const Doubles scale = doubles_at(c.scale + i) / sqrt_of(doubles_at(c.variance + i) + c.epsilon);
    store_rounded(to_scale + i, scale);
    store_rounded(to_offset + i, doubles_at(c.bias + i) - doubles_at(c.mean + i) * scale);
  }
  for (; i < n; ++i) {
    const double scale = static_cast<double>(c.scale[i]) / __builtin_sqrt(static_cast<double>(c.variance[i]) + c.epsilon);
    to_scale[i] = static_cast<float>(scale);
    to_offset[i] = static_cast<float>(static_cast<double>(c.bias[i]) - static_cast<double>(c.mean[i]) * scale);
  }
}

void run_bilinear(const float* a, const float* b, const float* c, const float* d, float right, float below, float* y,
                  std::int64_t n) {
  const Vec w = splat(right), w0 = splat(1 - right);
  const Vec v = splat(below), v0 = splat(1 - below);
  const auto at = [&](Vec p, Vec q, Vec r, Vec s) { return v0 * (w0 * p + w * q) + v * (w0 * r + w * s); };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, at(load(a + i), load(b + i), load(c + i), load(d + i)));
  const std::int64_t left = n - i;
  if (left > 0) store_n(y + i, at(load_n(a + i, left), load_n(b + i, left), load_n(c + i, left), load_n(d + i, left)), left);
}

void run_add_in_turns(const float* a, const float* b, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const Vec v = load_some(a + i, n - i), w = load_some(b + i, n - i);
    float* const first = y + 2 * i;
    const std::int64_t left = 2 * (n - i);
    store_some(first, load_some(first, left) + zip_low(v, w), left);
    store_some(first + kLanes, load_some(first + kLanes, left - kLanes) + zip_high(v, w), left - kLanes);
  }
}

void run_chain(float* y, std::int64_t n, const Epilogue* epilogue) {
  if (epilogue == nullptr) return;
  const Chain chain = split_chain(epilogue);
  for (std::int64_t i = 0; i < n; i += kChunk) apply_chain(chain, y + i, n - i < kChunk ? n - i : kChunk);
}

// Floats after which n floats that are repeated begin with a vector again.
inline std::int64_t period_of(std::int64_t n) {
  std::int64_t period = n;
  while (period % kLanes != 0) period += n;
  return period;
}

// Short rows of one operand with the same row of the other, as a few channels that are scaled have it: that row is repeated until
// it is whole vectors. A load that overlaps the store before it, in place, would wait for it.
void run_binary(Binary op, const float* x, std::int64_t x_step, const float* z, std::int64_t z_step, float* y, std::int64_t n,
                Rows rows, bool past, const Epilogue* epilogue) {
  constexpr std::int64_t kMost = 96;
  float repeated[kMost * kLanes];
  const bool of_x = rows.x == 0 && rows.z == n, of_z = rows.z == 0 && rows.x == n;
  if (x_step == 0 || z_step == 0 || n <= 1 || n > kMost || n % kLanes == 0 || of_x == of_z || rows.y != n) {
    return run_rows(op, x, x_step, z, z_step, y, n, rows, past, epilogue);
  }
  const std::int64_t period = period_of(n), all = n * rows.count;
  if (all < 4 * period) return run_rows(op, x, x_step, z, z_step, y, n, rows, past, epilogue);
  const float* const row = of_x ? x : z;
  for (std::int64_t i = 0; i < period; ++i) repeated[i] = i < n ? row[i] : repeated[i - n];
  const std::int64_t whole = all / period * period;
  const Rows periods = {all / period, of_x ? 0 : period, of_x ? period : 0, period};
  run_rows(op, of_x ? repeated : x, 1, of_x ? z : repeated, 1, y, period, periods, past, epilogue);
  if (whole == all) return;
  run_rows(op, of_x ? repeated : x + whole, 1, of_x ? z + whole : repeated, 1, y + whole, all - whole, {1, 0, 0, 0}, past,
           epilogue);
}

}  // namespace

extern const simd_elementwise::Loops loops_elementwise;
const simd_elementwise::Loops loops_elementwise = {.unary = run_unary,
                                                   .binary = run_binary,
                                                   .affine = run_affine,
                                                   .affine_rows = run_affine_rows,
                                                   .norm_of_channels = run_norm_of_channels,
                                                   .bilinear = run_bilinear,
                                                   .add_in_turns = run_add_in_turns,
                                                   .widen_half = widen_half,
                                                   .narrow_half = narrow_half,
                                                   .chain = run_chain};

}  // namespace evn::EVN_ISA
