#include "backends/cpu/recurrent/recurrent_loops.h"

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {
namespace {

using simd_recurrent::Cell;

// Accumulates `k_size` of the `depth` rows of P packed panels of NV vectors each. Of the last panel only the first `count` vectors
// are read from init and stored.
template <int NV, int P>
void row_part(const float* a, std::int64_t k_size, const float* b, std::int64_t depth, std::int64_t count, const float* init,
              float* to) {
  Vec acc[P][NV];
  for (int p = 0; p < P; ++p) {
    for (int v = 0; v < NV; ++v)
      acc[p][v] = init != nullptr && (p + 1 < P || v < count) ? load(init + (p * NV + v) * kLanes) : zero();
  }
  const std::int64_t panel = depth * NV * kLanes;
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
      float* const at = to + (p * NV + v) * kLanes;
      if (p + 1 < P || v < count) store(at, init != nullptr ? acc[p][v] : acc[p][v] + load(at));
    }
  }
}

// All k. Blocks after the first begin with 0, and what is in `to` is added to their sums.
template <int NV, int P>
void row_panels(const float* a, std::int64_t k, const float* b, std::int64_t kc, std::int64_t count, const float* init, float* to,
                CancelPoints* points) {
  std::int64_t begin = 0;
  do {
    const std::int64_t part = k - begin < kc ? k - begin : kc;
    if (stops(points, part * P * NV * kLanes)) return;
    row_part<NV, P>(a + begin, part, b + begin * NV * kLanes, k, count, begin == 0 ? init : nullptr, to);
    begin += part;
  } while (begin < k);
}

template <int NV>
void row_loop(const float* a, std::int64_t k, const float* b, std::int64_t kc, std::int64_t n, bool backwards, const float* init,
              float* to, CancelPoints* points) {
  constexpr int kPanels = kLanes == 16 ? 4 : 2;  // registers
  constexpr std::int64_t kColumns = NV * kLanes;
  constexpr std::int64_t kGroup = kPanels * kColumns;
  const std::int64_t groups = n / kGroup;
  const auto rest = [&] {
    for (std::int64_t column = groups * kGroup; column < n;) {
      const std::int64_t vectors = (n - column) / kLanes;
      if (kPanels > 2 && vectors > NV) {
        row_panels<NV, 2>(a, k, b + column * k, kc, vectors < 2 * NV ? vectors - NV : NV, init + column, to + column, points);
        column += 2 * kColumns;
      } else {
        row_panels<NV, 1>(a, k, b + column * k, kc, vectors < NV ? vectors : NV, init + column, to + column, points);
        column += kColumns;
      }
    }
  };
  if (backwards) rest();
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t column = (backwards ? groups - 1 - g : g) * kGroup;
    row_panels<NV, kPanels>(a, k, b + column * k, kc, NV, init + column, to + column, points);
  }
  if (!backwards) rest();
}

void row(const float* a, std::int64_t k, const float* b, std::int64_t nr, std::int64_t kc, std::int64_t n, bool backwards,
         const float* init, float* to, CancelPoints* points) {
  switch (nr / kLanes) {
    case 2: return row_loop<2>(a, k, b, kc, n, backwards, init, to, points);
    case 3: return row_loop<3>(a, k, b, kc, n, backwards, init, to, points);
    default: return row_loop<4>(a, k, b, kc, n, backwards, init, to, points);
  }
}

inline Vec activate(const Activation& f, float clip, Vec x) { return clipped_activation_form<Numbers>(f, clip, x); }

template <typename N>
void lstm(const Cell& cell, const float* gates, float* c, float* h) {
  const Cell k = cell;
  const float* p = k.peepholes;
  const Vec none = zero();
  for (std::int64_t j = 0; j < k.size; j += kLanes) {
    LstmSums<Vec> s{load(gates + j),
                    load(gates + k.size + j),
                    load(gates + 2 * k.size + j),
                    load(gates + 3 * k.size + j),
                    p != nullptr,
                    none,
                    none,
                    none};
    if (p != nullptr) {
      s.p_i = load(p + j);
      s.p_o = load(p + k.size + j);
      s.p_f = load(p + 2 * k.size + j);
    }
    Vec now = load(c + j);
    const Vec out = lstm_form<N>(k, s, &now);
    store(c + j, now);
    store(h + j, out);
  }
}

#if defined(__AVX2__) || defined(__aarch64__)
using ExactNumbers = Numbers;
#else
// a b + c, rounded once: the product is exact in float64, and the sum is rounded to odd there, from where float32, which has less
// than half as many digits, gets its right neighbour.
__attribute__((noinline)) Vec fma_rounded_once(Vec a, Vec b, Vec c) {
  Vec y;
  for (int i = 0; i < kLanes; ++i) {
    const double product = static_cast<double>(a[i]) * static_cast<double>(b[i]), added = static_cast<double>(c[i]);
    double sum = product + added;
    const double of_added = sum - product;
    const double lost = (product - (sum - of_added)) + (added - of_added);  // exact
    const auto bits = __builtin_bit_cast(std::uint64_t, sum);
    if ((lost > 0 || lost < 0) && (bits & 1) == 0) sum = __builtin_bit_cast(double, (lost > 0) == (sum > 0) ? bits + 1 : bits - 1);
    y[i] = static_cast<float>(sum);
  }
  return y;
}

struct ExactNumbers : Numbers {
  static inline Vec fma(Vec a, Vec b, Vec c) { return fma_rounded_once(a, b, c); }
};
#endif

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
const simd_recurrent::Loops loops_recurrent = {row, lstm<Numbers>, lstm<ExactNumbers>, gru_reset, gru, rnn};

}  // namespace evn::EVN_ISA
