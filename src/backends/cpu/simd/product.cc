// The loops of simd/product.h for one cluster. The micro-tile is kMr rows by kNv vectors, wide rather than high: a vector of B serves
// kMr multiply-adds, one broadcast float of A serves kNv, and both come from L1 at half the rate at which it can give them.
// Blocks: kMatrixKc rows of a panel of B, kKc with a window, stay in L2 while the micro-panels of a block of A pass by.
#include "backends/cpu/simd/product.h"

#include "backends/cpu/simd/epilogue.h"
#include "backends/cpu/simd/micro_tile.h"
#include "backends/cpu/simd/product_rows.h"
#include "backends/cpu/simd/quads.h"

namespace evn::EVN_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kMr = 7, kNv = 4;
#elif defined(__AVX2__)
constexpr int kMr = 6, kNv = 2;
#elif defined(__aarch64__)
constexpr int kMr = 6, kNv = 4;
#else
constexpr int kMr = 4, kNv = 2;
#endif
constexpr int kNr = kNv * kLanes;
constexpr int kTallMr = 2 * kMr;            // where a product has at most half a panel of columns
constexpr std::int64_t kKc = 512;           // with a window, where pixels are copied
constexpr std::int64_t kMatrixKc = 1024;    // panels of B, the next one's as well, and rows of A: L2
constexpr std::int64_t kMc = 126;
constexpr std::int64_t kWholeMc = 2 * kMc;  // so many rows of a matrix, which is not copied, are one block
constexpr std::int64_t kNearFloats = 1 << 12; // a B of so many is read at once. A larger one left L2 while other layers ran: it is fetched ahead
constexpr std::int64_t kPadding = 16;       // of copied rows, so that they do not fall into one set of the cache

// A micro-tile in one block of k.
struct Micro : MicroTile {
  const float* a;
  std::int64_t lda;
  const Segment* segments;
  int segment_count;
  const float* b;
  const float* ahead;      // what is fetched into L2 meanwhile: a line for each k
  std::int64_t ahead_step;
  bool far;                // C is: its lines are fetched while the sums are made
};

// Accumulators, vectors of B and a broadcast are one more than AVX-512 has registers: the last vector of B stays in memory.
#if defined(__AVX512F__)
template <int R, int NV>
inline constexpr int kHeld = R * NV + NV + 1 > 32 ? NV - 1 : NV;
#else
inline Vec fma_at(Vec a, const float* p, Vec c) { return fma(a, load(p), c); }
template <int R, int NV>
inline constexpr int kHeld = NV;
#endif

// The lines of C, for what is stored there once the sums are made. Not in a loop outside: that costs what it gains.
template <int R, int NV>
inline void fetch(const Micro& g) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < NV; ++v) __builtin_prefetch(g.c + r * g.ldc + v * kLanes, 1, 3);
  }
}

template <int R, int NV>
void micro(const Micro& g) {
  Vec acc[R][NV];
  if (g.far) fetch<R, NV>(g);
  start<BiasOf::kColumns, R, NV>(g, acc);
  const float* b = g.b;
  const float* ahead = g.ahead;
  const std::int64_t lda = g.lda;
  for (int s = 0; s < g.segment_count; ++s) {
    const float* a = g.a + g.segments[s].at;
    const float* a4 = a + 4 * lda;
    const float* a8 = a + 8 * lda;
    const float* a12 = a + 12 * lda;
    for (std::int64_t k = g.segments[s].count; k > 0; --k) {
      Vec bv[NV];
#pragma GCC unroll 16
      for (int v = 0; v < kHeld<R, NV>; ++v) bv[v] = load(b + v * kLanes);
      __builtin_prefetch(ahead, 0, 2);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const Vec x = splat(r < 4 ? a[r * lda] : r < 8 ? a4[(r - 4) * lda] : r < 12 ? a8[(r - 8) * lda] : a12[(r - 12) * lda]);
#pragma GCC unroll 16
        for (int v = 0; v < NV; ++v) acc[r][v] = v < kHeld<R, NV> ? fma(x, bv[v], acc[r][v]) : fma_at(x, b + v * kLanes, acc[r][v]);
      }
      b += NV * kLanes;
      ahead += g.ahead_step;
      ++a;
      ++a4;
      ++a8;
      ++a12;
    }
  }
  finish<true, R, NV>(g, acc);
}

using MicroFn = void (*)(const Micro&);
constexpr int kHalfNv = kNv < 4 ? 1 : 2;
#define EVN_MICRO_ROW(R) {micro<R, 1>, micro<R, 2>, micro<R, kNv < 3 ? 2 : 3>, micro<R, kNv>}
#define EVN_TALL_ROW(R) {micro<R, 1>, micro<R, kHalfNv>, nullptr, nullptr}
constexpr MicroFn kMicros[kTallMr][4] = {
    EVN_MICRO_ROW(1), EVN_MICRO_ROW(2), EVN_MICRO_ROW(3), EVN_MICRO_ROW(4),
#if defined(__AVX512F__)
    EVN_MICRO_ROW(5), EVN_MICRO_ROW(6), EVN_MICRO_ROW(7), EVN_TALL_ROW(8), EVN_TALL_ROW(9), EVN_TALL_ROW(10), EVN_TALL_ROW(11),
    EVN_TALL_ROW(12), EVN_TALL_ROW(13), EVN_TALL_ROW(14),
#elif defined(__AVX2__) || defined(__aarch64__)
    EVN_MICRO_ROW(5), EVN_MICRO_ROW(6), EVN_TALL_ROW(7), EVN_TALL_ROW(8), EVN_TALL_ROW(9), EVN_TALL_ROW(10), EVN_TALL_ROW(11),
    EVN_TALL_ROW(12),
#else
    EVN_TALL_ROW(5), EVN_TALL_ROW(6), EVN_TALL_ROW(7), EVN_TALL_ROW(8),
#endif
};

// One block of rows.
class Block {
 public:
  Block(const Tile& t, const Chain& chain, std::int64_t row, std::int64_t m) : t_(t), chain_(chain), row_(row), m_(m) {
    panel_count_ = by_quads() ? cut_even_panels(t, row, m, kQuadMr, kTallMr, panels_)
                              : cut_panels(t, row, m, t.n <= kHalfNv * kLanes ? kTallMr : kMr, panels_);
    for (int i = 0; i < panel_count_; ++i) any_copied_ |= panels_[i].a == nullptr;
  }

  void run() {
    const std::int64_t most = t_.window == nullptr ? kMatrixKc : kKc;
    const std::int64_t blocks = t_.k <= most ? 1 : (t_.k + most - 1) / most;
    const std::int64_t size = (t_.k + blocks - 1) / blocks;
    std::int64_t k0 = 0;
    do {
      const std::int64_t kc = t_.k - k0 < size ? t_.k - k0 : size;
      run_k(k0, kc);
      k0 += kc;
    } while (k0 < t_.k);
  }

 private:
  const Tile& t_;
  const Chain& chain_;
  const std::int64_t row_, m_;
  int panel_count_ = 0;
  bool any_copied_ = false;
  Panel panels_[kWholeMc];

  bool by_quads() const { return t_.n <= kQuadColumns && t_.window == nullptr; }

  // Whether two panels are one, as tall as there are micro-tiles for few columns.
  static bool follows(const Panel& a, const Panel& b, std::int64_t lda) {
    if (a.rows + b.rows > kTallMr || (a.a == nullptr) != (b.a == nullptr)) return false;
    return a.a == nullptr || b.a == a.a + a.rows * lda;
  }

  void run_k(std::int64_t k0, std::int64_t kc) {
    Segment segments[kMaxSegments];
    const Segment whole = {0, kc};
    const bool all_copied = t_.window != nullptr && has_short_runs(*t_.window);
    const int segment_count = all_copied ? 0 : find_segments(t_, k0, kc, segments);
    const std::int64_t step = (kc + 15) / 16 * 16 + kPadding;
    const std::int64_t lda = t_.window == nullptr ? t_.lda : t_.window->stride_w * t_.window->pixel;
    if (any_copied_) copy(k0, kc, step);

    Micro g{};
    const bool last = k0 + kc == t_.k;
    const bool by_c = t_.init != nullptr && (t_.init_row != 0 || t_.init_column != 1 || t_.init_scale != 1);
    if (by_c && k0 == 0) write_start(t_, row_, m_);
    g.from_c = by_c || k0 > 0;
    g.bound = last && (chain_.low > -__builtin_inff() || chain_.high < __builtin_inff());
    g.low = chain_.low;
    g.high = chain_.high;
    g.ldc = t_.ldc;
    g.ldr = t_.ldr;
    g.far = t_.far && last;
    // One or two rows read B as the stream that it is, faster than by hints.
    const bool far = t_.k * t_.n > kNearFloats && m_ > 2;
    for (std::int64_t column = 0; column < t_.n; column += kNr) {
      const std::int64_t left = t_.n - column;
      const std::int64_t cols = left < kNr ? left : kNr;
      const std::int64_t vectors = (cols + kLanes - 1) / kLanes;
      g.last_lanes = cols - (vectors - 1) * kLanes;
      g.b = t_.b + column * t_.k + k0 * vectors * kLanes;
      // The block of the panel that comes next, or of the same columns further down in k.
      const float* const next = left > kNr ? g.b + t_.k * kNr : g.b + kc * vectors * kLanes;
      for (int i = 0; i < panel_count_; ++i) {
        const int first = i;
        Panel p = panels_[i];
        const bool copied = p.a == nullptr;
        if (vectors <= kHalfNv && !by_quads() && i + 1 < panel_count_ && follows(p, panels_[i + 1], lda)) p.rows += panels_[++i].rows;
        const std::int64_t row = row_ + p.row;
        g.a = copied ? t_.buffer + p.row * step : p.a;
        g.lda = copied ? step : lda;
        g.segments = copied ? &whole : segments;
        g.segment_count = copied ? 1 : segment_count;
        g.ahead = far && first < vectors ? next + first * kc * 16 : g.b;
        g.ahead_step = far && first < vectors ? 16 : 0;
        g.c = t_.c + row * t_.ldc + column;
        g.bias = t_.init == nullptr ? nullptr : t_.init + column;
        g.residual = last && t_.residual != nullptr ? t_.residual + row * t_.ldr + column : nullptr;
        if (by_quads() && p.rows == kQuadMr) {
          micro_quads(g, g.a + k0, g.lda, kc, g.b);
        } else {
          kMicros[p.rows - 1][vectors - 1](g);
        }
        if (last && chain_.rest_count > 0) apply_rest(chain_, g.c, p.rows, t_.ldc, cols);
      }
    }
  }

  // Not inlined: the stack of `parts` is only for those who need it.
  __attribute__((noinline)) void copy(std::int64_t k0, std::int64_t kc, std::int64_t step) {
    LinePart parts[kKc];
    const int count = find_line_parts(*t_.window, k0, kc, parts);
    for (int i = 0; i < panel_count_; ++i) {
      if (panels_[i].a == nullptr) copy_panel(t_, row_, panels_[i], parts, count, t_.buffer + panels_[i].row * step, step);
    }
  }
};

void run(const Tile& t) {
  const Chain chain = split_chain(t.epilogue);
  const std::int64_t most = t.window == nullptr && t.m <= kWholeMc ? kWholeMc : kMc;
  const std::int64_t blocks = t.m <= most ? 1 : (t.m + most - 1) / most;
  std::int64_t size = (t.m + blocks - 1) / blocks;
  size = (size + kMr - 1) / kMr * kMr;
  if (size > most) size = most;
  for (std::int64_t row = 0; row < t.m; row += size) Block(t, chain, row, t.m - row < size ? t.m - row : size).run();
}

}  // namespace

extern const simd_product::Loops loops_product;
const simd_product::Loops loops_product = {kMr, kNr, kLanes, kMc, kKc, run};

}  // namespace evn::EVN_ISA
