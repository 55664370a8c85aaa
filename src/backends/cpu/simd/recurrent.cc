#include "backends/cpu/simd/recurrent.h"

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {
namespace {

using simd_recurrent::Cell;

// P panels of NV vectors; of the last one the first `count` are wanted.
template <int NV, int P>
void row_panels(const float* a, std::int64_t k_size, const float* b, std::int64_t count, const float* init, float* to) {
  Vec acc[P][NV];
  for (int p = 0; p < P; ++p) {
    for (int v = 0; v < NV; ++v) acc[p][v] = p + 1 < P || v < count ? load(init + (p * NV + v) * kLanes) : zero();
  }
  const std::int64_t panel = k_size * NV * kLanes;
  for (std::int64_t k = 0; k < k_size; ++k, b += NV * kLanes) {
    const Vec x = splat(a[k]);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) acc[p][v] = fma(x, load(b + p * panel + v * kLanes), acc[p][v]);
    }
  }
  for (int p = 0; p < P; ++p) {
    for (int v = 0; v < NV; ++v) {
      if (p + 1 < P || v < count) store(to + (p * NV + v) * kLanes, acc[p][v]);
    }
  }
}

template <int NV>
void row_loop(const float* a, std::int64_t k, const float* b, std::int64_t n, bool backwards, const float* init, float* to) {
  constexpr int kPanels = kLanes == 16 ? 4 : 2;  // registers
  constexpr std::int64_t kColumns = NV * kLanes;
  constexpr std::int64_t kGroup = kPanels * kColumns;
  const std::int64_t groups = n / kGroup;
  const auto rest = [&] {
    for (std::int64_t column = groups * kGroup; column < n;) {
      const std::int64_t vectors = (n - column) / kLanes;
      if (kPanels > 2 && vectors > NV) {
        row_panels<NV, 2>(a, k, b + column * k, vectors < 2 * NV ? vectors - NV : NV, init + column, to + column);
        column += 2 * kColumns;
      } else {
        row_panels<NV, 1>(a, k, b + column * k, vectors < NV ? vectors : NV, init + column, to + column);
        column += kColumns;
      }
    }
  };
  if (backwards) rest();
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t column = (backwards ? groups - 1 - g : g) * kGroup;
    row_panels<NV, kPanels>(a, k, b + column * k, NV, init + column, to + column);
  }
  if (!backwards) rest();
}

void row(const float* a, std::int64_t k, const float* b, std::int64_t nr, std::int64_t n, bool backwards, const float* init, float* to) {
  switch (nr / kLanes) {
    case 2: return row_loop<2>(a, k, b, n, backwards, init, to);
    case 3: return row_loop<3>(a, k, b, n, backwards, init, to);
    default: return row_loop<4>(a, k, b, n, backwards, init, to);
  }
}

Vec softplus_of(Vec x) {
  for (int i = 0; i < kLanes; ++i) {
    x[i] = x[i] > 0 ? x[i] + __builtin_log1pf(__builtin_expf(-x[i])) : __builtin_log1pf(__builtin_expf(x[i]));
  }
  return x;
}

Vec elu_of(float a, Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = x[i] < 0 ? a * __builtin_expm1f(x[i]) : x[i];
  return x;
}

// The usual two first: they are what the loops below spend their time on.
inline Vec apply(const Activation& f, Vec x) {
  if (f.kind == ActivationKind::kSigmoid) return sigmoid_of(x);
  if (f.kind == ActivationKind::kTanh) return tanh_of(x);
  switch (f.kind) {
    case ActivationKind::kRelu:
      return max_of(zero(), x);
    case ActivationKind::kAffine:
      return fma(splat(f.a), x, splat(f.b));
    case ActivationKind::kLeakyRelu:
      return x < zero() ? splat(f.a) * x : x;
    case ActivationKind::kThresholdedRelu:
      return x > splat(f.a) ? x : zero();
    case ActivationKind::kScaledTanh:
      return splat(f.a) * tanh_of(splat(f.b) * x);
    case ActivationKind::kHardSigmoid:
      return min_of(splat(1.0f), max_of(zero(), fma(splat(f.a), x, splat(f.b))));
    case ActivationKind::kElu:
      return elu_of(f.a, x);
    case ActivationKind::kSoftsign:
      return x / (splat(1.0f) + abs_of(x));
    case ActivationKind::kSoftplus:
      return softplus_of(x);
    default:
      return x;
  }
}

inline Vec activate(const Activation& f, float clip, Vec x) { return apply(f, min_of(splat(clip), max_of(splat(-clip), x))); }

void lstm(const Cell& cell, const float* gates, float* c, float* h) {
  const Cell k = cell;
  const float* p = k.peepholes;
  for (std::int64_t j = 0; j < k.size; j += kLanes) {
    const Vec before = load(c + j);
    Vec i = load(gates + j);
    Vec o = load(gates + k.size + j);
    Vec f = load(gates + 2 * k.size + j);
    if (p != nullptr) {
      i = fma(load(p + j), before, i);
      f = fma(load(p + 2 * k.size + j), before, f);
    }
    i = activate(k.f, k.clip, i);
    f = k.input_forget ? splat(1.0f) - i : activate(k.f, k.clip, f);
    const Vec now = fma(f, before, i * activate(k.g, k.clip, load(gates + 3 * k.size + j)));
    if (p != nullptr) o = fma(load(p + k.size + j), now, o);
    store(c + j, now);
    store(h + j, activate(k.f, k.clip, o) * apply(k.h, now));
  }
}

void gru_reset(const Cell& cell, const float* gates, const float* h, float* to) {
  const Cell k = cell;
  for (std::int64_t j = 0; j < k.size; j += kLanes) store(to + j, activate(k.f, k.clip, load(gates + k.size + j)) * load(h + j));
}

void gru(const Cell& cell, const float* gates, const float* x, float* h) {
  const Cell k = cell;
  for (std::int64_t j = 0; j < k.size; j += kLanes) {
    Vec sum = load(gates + 2 * k.size + j);
    if (x != nullptr) sum = fma(activate(k.f, k.clip, load(gates + k.size + j)), sum, load(x + j));
    const Vec z = activate(k.f, k.clip, load(gates + j));
    store(h + j, fma(z, load(h + j), (splat(1.0f) - z) * activate(k.g, k.clip, sum)));
  }
}

void rnn(const Cell& cell, const float* gates, float* h) {
  const Cell k = cell;
  for (std::int64_t j = 0; j < k.size; j += kLanes) store(h + j, activate(k.f, k.clip, load(gates + j)));
}

}  // namespace

extern const simd_recurrent::Loops loops_recurrent;
const simd_recurrent::Loops loops_recurrent = {row, lstm, gru_reset, gru, rnn};

}  // namespace evn::EVN_ISA
