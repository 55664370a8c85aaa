// The loops of gemm/packed_gemm_loops.h for one cluster. The micro-tile is kMr rows by kNv vectors, wide rather than high: a vector
// of B serves kMr multiply-adds, one broadcast float of A serves kNv, and both come from L1 at half the rate at which it can give
// them. Blocks: kMatrixKc rows of a panel of B, kKc with a window, stay in L2 while the micro-panels of a block of A pass by.
#include "backends/cpu/gemm/packed_gemm_loops.h"

#include "backends/cpu/gemm/packed_gemm_rows.h"
#include "backends/cpu/simd/epilogue.h"
#include "backends/cpu/simd/micro_tile.h"
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
constexpr int kTallMr = 2 * kMr;          // where a product has at most half a panel of columns
constexpr std::int64_t kKc = 512;         // with a window, where pixels are copied
constexpr std::int64_t kMatrixKc = 1024;  // panels of B, the next one's as well, and rows of A: L2
constexpr std::int64_t kMc = 126;
constexpr std::int64_t kWholeMc = 2 * kMc;  // so many rows of a matrix, which is not copied, are one block
constexpr std::int64_t kNearFloats =
    1 << 12;                 // a B of so many is read at once. A larger one left L2 while other layers ran: it is fetched ahead
constexpr int kStreams = 4;  // panels that one row reads at a time; two rows read half as many
constexpr std::int64_t kPadding = 16;  // of copied rows, so that they do not fall into one set of the cache

// A micro-tile in one block of k.
struct Micro : MicroTile {
  const float* a;
  std::int64_t lda;
  const Segment* segments;
  int segment_count;
  const float* b;
  const float* ahead;  // what is fetched into L2 meanwhile: for every two k, a line there and one `ahead_second` floats behind
  std::int64_t ahead_second, ahead_step;
  bool far;  // C is: its lines are fetched while the sums are made
};

// Accumulators, vectors of B and a broadcast are one more than AVX-512 has registers: the last vector of B has its turn when those
// before are done with, and takes A from memory. (Not B: its lines come from L2, and a load that misses L1 is slow to be repeated
// for each row.)
#if defined(__AVX512F__)
template <int R, int NV>
inline constexpr int kHeld = R* NV + NV + 1 > 32 ? NV - 1 : NV;
#else
inline void add_product(Vec a, Vec b, Vec& c) { c = fma(a, b, c); }
[[maybe_unused]] inline void add_product_at(const float* p, Vec b, Vec& c) { c = fma(splat(*p), b, c); }
template <int R, int NV>
inline constexpr int kHeld = NV;
#endif

// Rows 0, 4, 8 and 12 of A at one k.
struct Rows {
  const float *a, *a4, *a8, *a12;
  std::int64_t lda;
  const float* at(int r) const {
    return r < 4 ? a + r * lda : r < 8 ? a4 + (r - 4) * lda : r < 12 ? a8 + (r - 8) * lda : a12 + (r - 12) * lda;
  }
};

// acc += A B for one k, which lies I behind `rows` and NV * I vectors behind b.
template <int I, int R, int NV>
__attribute__((always_inline)) inline void multiply(const Rows& rows, const float* b, Vec (&acc)[R][NV]) {
  constexpr int kB = kHeld<R, NV>;
  Vec bv[NV];
#pragma GCC unroll 16
  for (int v = 0; v < kB; ++v) bv[v] = load(b + (I * NV + v) * kLanes);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const Vec x = splat(rows.at(r)[I]);
#pragma GCC unroll 16
    for (int v = 0; v < kB; ++v) add_product(x, bv[v], acc[r][v]);
  }
  if constexpr (kB < NV) {
    const Vec last = load(b + (I * NV + NV - 1) * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) add_product_at(rows.at(r) + I, last, acc[r][NV - 1]);
  }
}

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
  const std::int64_t ahead_second = g.ahead_second;
  const std::int64_t ahead_step = g.ahead_step;
  const std::int64_t lda = g.lda;
  for (int s = 0; s < g.segment_count; ++s) {
    const float* const a = g.a + g.segments[s].at;
    Rows rows{a, a + 4 * lda, a + 8 * lda, a + 12 * lda, lda};
    std::int64_t k = g.segments[s].count;
    for (; k >= 2; k -= 2) {
      __builtin_prefetch(ahead, 0, 2);
      multiply<0>(rows, b, acc);
      __asm__ volatile(
          "" ::
              : "memory");  // the loads of the second k are not drawn before the first: there are no registers for them
      __builtin_prefetch(ahead + ahead_second, 0, 2);
      multiply<1>(rows, b, acc);
      b += 2 * NV * kLanes;
      ahead += ahead_step;
      rows.a += 2;
      rows.a4 += 2;
      rows.a8 += 2;
      rows.a12 += 2;
    }
    if (k > 0) {
      __builtin_prefetch(ahead, 0, 2);
      multiply<0>(rows, b, acc);
      b += NV * kLanes;
      ahead += ahead_step - ahead_second;
    }
  }
  finish<true, R, NV>(g, acc);
}

// A matrix-vector product, or one with two vectors: B is read once and from memory, P panels at a time, `panel` floats apart, as
// several streams come from memory faster than one does.
template <int R, int P>
void micro_streams(const Micro& g, std::int64_t panel, std::int64_t count) {
  Vec acc[R][P * kNv];
  start<BiasOf::kColumns, R, P * kNv>(g, acc);
  const float* a = g.a;
  const float* const a_end = a + count;
  const float* b = g.b;
  for (; a != a_end; ++a, b += kNr) {
    const Vec first = splat(a[0]);
    const Vec second = R == 2 ? splat(a[g.lda]) : first;
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < kNv; ++v) {
        const Vec x = load(b + p * panel + v * kLanes);
        add_product(first, x, acc[0][p * kNv + v]);
        if constexpr (R == 2) add_product(second, x, acc[1][p * kNv + v]);
      }
    }
  }
  finish<true, R, P * kNv>(g, acc);
}

using MicroFn = void (*)(const Micro&);
constexpr int kHalfNv = kNv < 4 ? 1 : 2;
#define EVN_MICRO_ROW(R) \
  { micro<R, 1>, micro<R, 2>, micro < R, kNv<3 ? 2 : 3>, micro<R, kNv> }
#define EVN_TALL_ROW(R) \
  { micro<R, 1>, micro<R, kHalfNv>, nullptr, nullptr }
constexpr MicroFn kMicros[kTallMr][4] = {
    EVN_MICRO_ROW(1), EVN_MICRO_ROW(2), EVN_MICRO_ROW(3), EVN_MICRO_ROW(4),
#if defined(__AVX512F__)
    EVN_MICRO_ROW(5), EVN_MICRO_ROW(6), EVN_MICRO_ROW(7), EVN_TALL_ROW(8),  EVN_TALL_ROW(9),
    EVN_TALL_ROW(10), EVN_TALL_ROW(11), EVN_TALL_ROW(12), EVN_TALL_ROW(13), EVN_TALL_ROW(14),
#elif defined(__AVX2__) || defined(__aarch64__)
    EVN_MICRO_ROW(5), EVN_MICRO_ROW(6), EVN_TALL_ROW(7),  EVN_TALL_ROW(8),
    EVN_TALL_ROW(9),  EVN_TALL_ROW(10), EVN_TALL_ROW(11), EVN_TALL_ROW(12),
#else
    EVN_TALL_ROW(5),  EVN_TALL_ROW(6),  EVN_TALL_ROW(7),  EVN_TALL_ROW(8),
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

  // False: the run stops.
  bool run() {
    const std::int64_t most = t_.window == nullptr ? kMatrixKc : kKc;
    const std::int64_t blocks = t_.k <= most ? 1 : (t_.k + most - 1) / most;
    const std::int64_t size = (t_.k + blocks - 1) / blocks;
    std::int64_t k0 = 0;
    do {
      const std::int64_t kc = t_.k - k0 < size ? t_.k - k0 : size;
      if (!run_k(k0, kc)) return false;
      k0 += kc;
    } while (k0 < t_.k);
    return true;
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

  bool run_k(std::int64_t k0, std::int64_t kc) {
    Segment segments[kMaxSegments];
    const Segment whole = {0, kc};
    const bool all_copied = t_.window != nullptr && has_short_runs(*t_.window);
    const int segment_count = all_copied ? 0 : find_segments(t_, k0, kc, segments);
    const std::int64_t step = (kc + 15) / 16 * 16 + kPadding;
    const std::int64_t lda = t_.window == nullptr ? t_.lda : t_.window->stride_w * t_.window->pixel;
    if (any_copied_) {
      if (stops(t_.points, m_ * kc)) return false;
      copy(k0, kc, step);
    }

    Micro g{};
    const bool last = k0 + kc == t_.k;
    const bool by_c = t_.init != nullptr && (t_.init_row != 0 || t_.init_column != 1 || t_.init_scale != 1);
    for (std::int64_t r = 0; by_c && k0 == 0 && t_.init != t_.c && r < m_; ++r) {
      if (stops(t_.points, t_.n)) return false;
      write_start(t_, row_ + r, 1);
    }
    g.from_c = by_c && k0 == 0;
    g.onto_c = k0 > 0;
    g.bound = last && (chain_.low > -__builtin_inff() || chain_.high < __builtin_inff());
    g.low = chain_.low;
    g.high = chain_.high;
    g.ldc = t_.ldc;
    g.ldr = t_.ldr;
    g.far = t_.far && last;
    // One or two rows read B as the stream that it is, faster than by hints.
    const bool far = t_.k * t_.n > kNearFloats && m_ > 2;
    std::int64_t column = 0;
    if (m_ <= 2 && t_.k * t_.n > kNearFloats && t_.window == nullptr) {
      column = run_streams(g, segments[0], k0, kc, last);
      if (column < 0) return false;
    }
    for (; column < t_.n; column += kNr) {
      const std::int64_t left = t_.n - column;
      const std::int64_t cols = left < kNr ? left : kNr;
      const std::int64_t vectors = (cols + kLanes - 1) / kLanes;
      g.last_lanes = cols - (vectors - 1) * kLanes;
      g.b = t_.b + column * t_.k + k0 * vectors * kLanes;
      // The block of the panel that comes next, or of the same columns further down in k.
      const float* const next = left > kNr ? g.b + t_.k * kNr : g.b + kc * vectors * kLanes;
      // Over many micro-tiles, as far as there are, memory is busy for longer, and less so.
      std::int64_t spread = 1;
      while (t_.large_l2 && spread < 8 && 2 * spread * vectors <= panel_count_) spread *= 2;
      const std::int64_t fetching = spread * vectors;
      const std::int64_t lines = (kc + spread - 1) / spread;
      for (int i = 0; i < panel_count_; ++i) {
        const int first = i;
        Panel p = panels_[i];
        const bool copied = p.a == nullptr;
        if (vectors <= kHalfNv && !by_quads() && i + 1 < panel_count_ && follows(p, panels_[i + 1], lda))
          p.rows += panels_[++i].rows;
        if (stops(t_.points, p.rows * vectors * kLanes * kc)) return false;
        const std::int64_t row = row_ + p.row;
        g.a = copied ? t_.buffer + p.row * step : p.a;
        g.lda = copied ? step : lda;
        g.segments = copied ? &whole : segments;
        g.segment_count = copied ? 1 : segment_count;
        g.ahead = far && first < fetching ? next + first * lines * 16 : g.b;
        g.ahead_second = far && first < fetching && spread == 1 ? 16 : 0;
        g.ahead_step = far && first < fetching ? 32 / spread : 0;
        g.c = t_.c + row * t_.ldc + column;
        g.bias = t_.init == nullptr || g.onto_c ? nullptr : t_.init + column;
        g.residual = last && t_.residual != nullptr ? t_.residual + row * t_.ldr + column : nullptr;
        if (by_quads() && p.rows == kQuadMr) {
          micro_quads(g, g.a + k0, g.lda, kc, g.b);
        } else {
          kMicros[p.rows - 1][vectors - 1](g);
        }
        if (last && chain_.rest_count > 0) apply_rest(chain_, g.c, p.rows, t_.ldc, cols);
      }
    }
    return true;
  }

  // One or two rows by as many columns as there are groups of whole panels: the column after the last of them; -1: the run stops.
  std::int64_t run_streams(Micro& g, const Segment& segment, std::int64_t k0, std::int64_t kc, bool last) {
    const std::int64_t width = kStreams / m_ * kNr;
    g.lda = t_.lda;
    std::int64_t column = 0;
    for (; t_.n - column >= width; column += width) {
      if (stops(t_.points, m_ * width * kc)) return -1;
      g.last_lanes = kLanes;
      g.a = panels_[0].a + segment.at;
      g.b = t_.b + column * t_.k + k0 * kNr;
      g.c = t_.c + row_ * t_.ldc + column;
      g.bias = t_.init == nullptr || g.onto_c ? nullptr : t_.init + column;
      g.residual = last && t_.residual != nullptr ? t_.residual + row_ * t_.ldr + column : nullptr;
      (m_ == 1 ? micro_streams<1, kStreams> : micro_streams<2, kStreams / 2>)(g, t_.k * kNr, kc);
      if (last && chain_.rest_count > 0) apply_rest(chain_, g.c, m_, t_.ldc, width);
    }
    return column;
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
  for (std::int64_t row = 0; row < t.m; row += size) {
    if (!Block(t, chain, row, t.m - row < size ? t.m - row : size).run()) return;
  }
}

}  // namespace

extern const simd_packed_gemm::Loops loops_packed_gemm;
const simd_packed_gemm::Loops loops_packed_gemm = {.mr = kMr, .nr = kNr, .lanes = kLanes, .mc = kMc, .kc = kKc, .run = run};

}  // namespace evn::EVN_ISA
