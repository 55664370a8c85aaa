// The loops of nbits/nbits_loops.h for one cluster. An element takes a shift and a look-up (AVX-512), two shifts and a conversion
// (others), or a widening and a conversion (8 bits) before it is multiplied. Sums of a block are made of the elements as they are;
// the scale is applied to a sum, and a zero point as its product with the sum of A over the block. All chains go in the order of k.
#include "backends/cpu/nbits/nbits_loops.h"

#include "backends/cpu/simd/finish.h"

namespace evn::EVN_ISA {
namespace {

using simd_nbits::Tile;
using simd_nbits::Weights;

constexpr int kNv = 4;
constexpr int kWidth = kNv * kLanes;
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kRows = 4;
#elif defined(__AVX2__)
constexpr int kRows = 2;
#else
constexpr int kRows = 1;  // more are expanded: for the few machines of this kind the code is better small
#endif

typedef BitVec UnalignedBitVec __attribute__((aligned(4), may_alias));

[[maybe_unused]] inline Vec to_float(IntVec v) { return __builtin_convertvector(v, Vec); }

// The next of eight elements in each word; the words are shifted on.
struct Nibbles {
#if defined(__AVX512F__)
  static constexpr bool kHighFirst = false;
  Vec table = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
  Vec take(BitVec* words) const {
    const Vec x = _mm512_maskz_permutexvar_ps(kAllLanes, reinterpret_cast<__m512i>(*words), table);
    *words >>= 4;
    return x;
  }
#else
  static constexpr bool kHighFirst = true;
  Vec take(BitVec* words) const {
    const Vec x = to_float(reinterpret_cast<IntVec>(*words) >> 28);
    *words <<= 4;
    return x;
  }
#endif
};

// kLanes bytes as floats.
inline Vec load_bytes(const std::int8_t* p) {
#if defined(__AVX512F__)
  const __m512i wide = _mm512_maskz_cvtepi8_epi32(kAllLanes, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_maskz_cvtepi32_ps(kAllLanes, wide);
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  IntVec v;
  for (int i = 0; i < kLanes; ++i) v[i] = p[i];
  return to_float(v);
#endif
}

template <int R>
__attribute__((always_inline)) inline void multiply(const float* const (&a)[R], std::int64_t k, const Vec (&x)[kNv],
                                                    Vec (&sum)[R][kNv]) {
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const Vec s = splat(a[r][k]);
#pragma GCC unroll 4
    for (int v = 0; v < kNv; ++v) sum[r][v] = fma(s, x[v], sum[r][v]);
  }
}

template <int R>
__attribute__((always_inline)) inline void multiply_words(const Nibbles& nibbles, const float* const (&a)[R], std::int64_t k,
                                                          BitVec (&words)[kNv], Vec (&sum)[R][kNv]) {
  Vec x[kNv];
#pragma GCC unroll 4
  for (int v = 0; v < kNv; ++v) x[v] = nibbles.take(&words[v]);
  multiply(a, k, x, sum);
}

inline void load_words(const std::uint32_t* from, BitVec (&words)[kNv]) {
#pragma GCC unroll 4
  for (int v = 0; v < kNv; ++v) words[v] = *reinterpret_cast<const UnalignedBitVec*>(from + v * kLanes);
}

// sum += A W over k in [begin, end), begin a multiple of 8.
template <int Bits, int R>
__attribute__((always_inline)) inline void block_sum(const Nibbles& nibbles, const void* panel, const float* const (&a)[R],
                                                     std::int64_t begin, std::int64_t end, Vec (&sum)[R][kNv]) {
  if constexpr (Bits == 8) {
    const auto* p = static_cast<const std::int8_t*>(panel) + begin * kWidth;
#pragma GCC unroll 2
    for (std::int64_t k = begin; k < end; ++k, p += kWidth) {
      Vec x[kNv];
#pragma GCC unroll 4
      for (int v = 0; v < kNv; ++v) x[v] = load_bytes(p + v * kLanes);
      multiply(a, k, x, sum);
    }
  } else {
    const auto* p = static_cast<const std::uint32_t*>(panel) + begin / 8 * kWidth;
    BitVec words[kNv];
    std::int64_t k = begin;
    for (; k + 8 <= end; p += kWidth) {
      load_words(p, words);
#pragma GCC unroll 4
      for (const std::int64_t next = k + 8; k < next; ++k) multiply_words(nibbles, a, k, words, sum);
    }
    if (k < end) load_words(p, words);
#pragma GCC unroll 1
    for (; k < end; ++k) multiply_words(nibbles, a, k, words, sum);
  }
}

// The zero points of kLanes columns from `at` on.
inline Vec zeros_at(const Weights& w, std::int64_t at) {
  return w.zeros != nullptr ? load_bytes(w.zeros + at) : load(w.float_zeros + at);
}

inline bool has_zeros(const Weights& w) { return w.zeros != nullptr || w.float_zeros != nullptr; }

// Rows that there are not are computed as the last one, and not stored: one row, and as many as fit, are all sizes.
inline std::int64_t row_of(const Tile& t, int r) { return r < t.m ? r : t.m - 1; }

// A range of blocks along k of one panel. Unless the range reaches the last block, the accumulators of the R rows are stored in
// `sums`, and the next range starts from them.
struct Part {
  std::int64_t begin, end;  // blocks
  float* sums;              // [R][kWidth]
};

template <int Bits, int R>
void panel_rows(const Tile& t, const Chain& chain, const void* elements, std::int64_t numbers, std::int64_t column,
                const Part& part) {
  const Weights& w = t.w;
  const Nibbles nibbles;
  const std::int64_t left = t.n - column;
  const auto lanes = [&](int v) { return left - v * kLanes; };
  const bool zeros = has_zeros(w);
  const std::int64_t blocks = w.blocks();
  const float* a[R];
  Vec acc[R][kNv];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    a[r] = t.a + row_of(t, r) * t.lda;
#pragma GCC unroll 4
    for (int v = 0; v < kNv; ++v) acc[r][v] = zero();
  }
  if (part.begin > 0) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kNv; ++v) acc[r][v] = load(part.sums + (r * kNv + v) * kLanes);
    }
    numbers += part.begin * kWidth;
  }
  for (std::int64_t b = part.begin; b < part.end; ++b, numbers += kWidth) {
    const std::int64_t begin = b * w.block, end = b + 1 < blocks ? begin + w.block : w.k;
    Vec sum[R][kNv];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kNv; ++v) sum[r][v] = zero();
    }
    block_sum<Bits>(nibbles, elements, a, begin, end, sum);
#pragma GCC unroll 4
    for (int v = 0; v < kNv; ++v) {
      const Vec scale = load(w.scales + numbers + v * kLanes);
      const Vec zero_point = zeros ? zeros_at(w, numbers + v * kLanes) : zero();
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        if (zeros) sum[r][v] = fma(-zero_point, splat(t.sums[row_of(t, r) * blocks + b]), sum[r][v]);
        acc[r][v] = fma(scale, sum[r][v], acc[r][v]);
      }
    }
  }
  if (part.end < blocks) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kNv; ++v) store(part.sums + (r * kNv + v) * kLanes, acc[r][v]);
    }
    return;
  }
  for (int r = 0; r < R && r < t.m; ++r) {
    float* const c = t.c + r * t.ldc + column;
    for (int v = 0; v < kNv && lanes(v) > 0; ++v) {
      Vec x = acc[r][v];
      if (t.bias != nullptr) x = x + load_some(t.bias + column + v * kLanes, lanes(v));
      if (t.residual != nullptr) x = x + load_some(t.residual + r * t.ldr + column + v * kLanes, lanes(v));
      store_some(c + v * kLanes, bounded(chain, x), lanes(v));
    }
    apply_rest(chain, c, left < kWidth ? left : kWidth);
  }
}

using PanelFn = void (*)(const Tile&, const Chain&, const void*, std::int64_t, std::int64_t, const Part&);
constexpr PanelFn kPanels[2][2] = {{panel_rows<4, 1>, panel_rows<4, kRows>}, {panel_rows<8, 1>, panel_rows<8, kRows>}};

// The sums of A over each block, four chains.
void sum_blocks(const Tile& t) {
  const std::int64_t blocks = t.w.blocks();
  for (std::int64_t r = 0; r < t.m; ++r) {
    const float* const a = t.a + r * t.lda;
    for (std::int64_t b = 0; b < blocks; ++b) {
      if (stops(t.points, t.w.block)) return;
      std::int64_t k = b * t.w.block;
      const std::int64_t end = b + 1 < blocks ? k + t.w.block : t.w.k;
      float s[4] = {};
      for (; k + 4 <= end; k += 4) {
        for (int i = 0; i < 4; ++i) s[i] += a[k + i];
      }
      for (; k < end; ++k) s[0] += a[k];
      t.sums[r * blocks + b] = (s[0] + s[1]) + (s[2] + s[3]);
    }
  }
}

void run(const Tile& t) {
  const Chain chain = split_chain(t.epilogue);
  if (has_zeros(t.w)) sum_blocks(t);
  const PanelFn panel_fn = kPanels[t.w.bits == 4 ? 0 : 1][t.m == 1 ? 0 : 1];
  constexpr std::int64_t kMostRows = 4096;  // of k between two cancellation points
  const std::int64_t blocks = t.w.blocks(), most = t.w.block < kMostRows ? kMostRows / t.w.block : 1;
  const std::int64_t bytes = t.w.panel_bytes(kWidth), numbers = blocks * kWidth;
  for (std::int64_t column = 0, panel = t.panel; column < t.n; column += kWidth, ++panel) {
    alignas(64) float sums[kRows * kWidth];
    Part part{0, 0, sums};
    do {
      part.end = blocks - part.begin < most + most / 2 ? blocks : part.begin + most;
      if (stops(t.points, t.m * kWidth * (part.end - part.begin) * t.w.block)) return;
      panel_fn(t, chain, static_cast<const char*>(t.w.elements) + panel * bytes, panel * numbers, column, part);
      part.begin = part.end;
    } while (part.begin < blocks);
  }
}

// One vector of columns.
struct Column {
  Vec scale, zero;
  float* to;
  std::int64_t step;  // to the next row

  __attribute__((always_inline)) void put(Vec x) {
    store(to, (x - zero) * scale);
    to += step;
  }
};

// `rows` rows of a block, whose elements begin at p.
void expand_words(Column c, const std::uint32_t* p, std::int64_t rows) {
  const Nibbles nibbles;
  for (; rows > 0; p += kWidth) {
    BitVec words = *reinterpret_cast<const UnalignedBitVec*>(p);
    const std::int64_t last = rows < 8 ? 0 : rows - 8;
#pragma GCC unroll 4
    for (; rows > last; --rows) c.put(nibbles.take(&words));
  }
}

void expand_bytes(Column c, const std::int8_t* p, std::int64_t rows) {
#pragma GCC unroll 4
  for (; rows > 0; --rows, p += kWidth) c.put(load_bytes(p));
}

void expand(const Weights& w, std::int64_t panel, std::int64_t columns, std::int64_t nr, std::int64_t k0, std::int64_t kc,
            float* to) {
  const auto* const elements = static_cast<const char*>(w.elements) + panel * w.panel_bytes(kWidth);
  const std::int64_t width = (columns + kLanes - 1) / kLanes * kLanes;
  for (std::int64_t k = k0; k < k0 + kc;) {
    const std::int64_t b = k / w.block, end = (b + 1) * w.block < k0 + kc ? (b + 1) * w.block : k0 + kc;
    const std::int64_t numbers = (panel * w.blocks() + b) * kWidth;
    for (std::int64_t column = 0; column < width; column += kLanes) {
      const std::int64_t first = column / nr * nr;
      Column c;
      c.scale = load(w.scales + numbers + column);
      c.zero = has_zeros(w) ? zeros_at(w, numbers + column) : zero();
      c.step = width - first < nr ? width - first : nr;
      c.to = to + first * kc + (k - k0) * c.step + (column - first);
      if (w.bits == 8) {
        expand_bytes(c, reinterpret_cast<const std::int8_t*>(elements) + k * kWidth + column, end - k);
      } else {
        expand_words(c, reinterpret_cast<const std::uint32_t*>(elements) + k / 8 * kWidth + column, end - k);
      }
    }
    k = end;
  }
}

}  // namespace

extern const simd_nbits::Loops loops_nbits;
const simd_nbits::Loops loops_nbits = {
    .width = kWidth, .rows = kRows, .high_first = Nibbles::kHighFirst, .run = run, .expand = expand};

}  // namespace evn::EVN_ISA
