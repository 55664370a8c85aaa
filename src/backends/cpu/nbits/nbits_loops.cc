// The loops of nbits/nbits_loops.h for one cluster. An element takes a shift and a look-up (AVX-512), two shifts and a conversion
// (others), or a widening and a conversion (8 bits) before it is multiplied. Sums of a block are made of the elements as they are;
// the scale is applied to a sum, and a zero point as its product with the sum of A over the block. All chains go in the order of k.
// `run` and `run_many` make the same sums in the same order, so that the number of rows changes no bit of any row.
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
constexpr int kRows = 1;
#endif
// Micro-tile of run_many: rows, and vectors of columns. Accumulators, vectors of W and a broadcast fit into the registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kMr = 6, kMicroNv = 4;
#elif defined(__AVX2__)
constexpr int kMr = 6, kMicroNv = 2;
#else
constexpr int kMr = 4, kMicroNv = 2;
#endif
static_assert(kNv % kMicroNv == 0);
constexpr std::int64_t kUnpackedRows = 128;  // of k at a time, if a block is not longer: a panel of them stays in L1

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

template <int R, int NV>
__attribute__((always_inline)) inline void multiply(const float* const (&a)[R], std::int64_t k, const Vec (&x)[NV],
                                                    Vec (&sum)[R][NV]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const Vec s = splat(a[r][k]);
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) sum[r][v] = fma(s, x[v], sum[r][v]);
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

// acc += scale * (sum - zero point * sum of A), for the block and the columns whose numbers begin at `numbers`. `sum_of_a`: of a
// row.
template <int R, int NV, typename F>
__attribute__((always_inline)) inline void add_block(const Weights& w, std::int64_t numbers, Vec (&sum)[R][NV], Vec (&acc)[R][NV],
                                                     F&& sum_of_a) {
  const bool zeros = has_zeros(w);
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) {
    const Vec scale = load(w.scales + numbers + v * kLanes);
    const Vec zero_point = zeros ? zeros_at(w, numbers + v * kLanes) : zero();
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      if (zeros) sum[r][v] = fma(-zero_point, splat(sum_of_a(r)), sum[r][v]);
      acc[r][v] = fma(scale, sum[r][v], acc[r][v]);
    }
  }
}

// Finishes a row's sums of NV vectors of columns from `column` on, and stores them. Steps that vectors in registers cannot have are
// left to apply_rest.
template <int NV>
__attribute__((always_inline)) inline void store_row(const Tile& t, const Chain& chain, std::int64_t r, std::int64_t column,
                                                     const Vec (&acc)[NV]) {
  const std::int64_t left = t.n - column;
  float* const c = t.c + r * t.ldc + column;
  for (int v = 0; v < NV && left > v * kLanes; ++v) {
    Vec x = acc[v];
    if (t.bias != nullptr) x = x + load_some(t.bias + column + v * kLanes, left - v * kLanes);
    if (t.residual != nullptr) x = x + load_some(t.residual + r * t.ldr + column + v * kLanes, left - v * kLanes);
    store_some(c + v * kLanes, bounded(chain, x), left - v * kLanes);
  }
  apply_rest(chain, c, left < NV * kLanes ? left : NV * kLanes);
}

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
    add_block(w, numbers, sum, acc, [&](int r) { return t.sums[row_of(t, r) * blocks + b]; });
  }
  if (part.end < blocks) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kNv; ++v) store(part.sums + (r * kNv + v) * kLanes, acc[r][v]);
    }
    return;
  }
  for (int r = 0; r < R && r < t.m; ++r) store_row(t, chain, r, column, acc[r]);
}

using PanelFn = void (*)(const Tile&, const Chain&, const void*, std::int64_t, std::int64_t, const Part&);
constexpr PanelFn kPanels[2][2] = {{panel_rows<4, 1>, panel_rows<4, kRows>}, {panel_rows<8, 1>, panel_rows<8, kRows>}};

typedef float Quad __attribute__((vector_size(16), aligned(4), may_alias));

// The sums of A over N blocks from `a` on, each of `count` elements: four chains for a block.
template <int N>
void sum_some_blocks(const float* a, std::int64_t block, std::int64_t count, float* sums) {
  Quad s[N] = {};
  std::int64_t k = 0;
  for (; k + 4 <= count; k += 4) {
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) s[i] += *reinterpret_cast<const Quad*>(a + i * block + k);
  }
  for (; k < count; ++k) {
    for (int i = 0; i < N; ++i) s[i][0] += a[i * block + k];
  }
  for (int i = 0; i < N; ++i) sums[i] = (s[i][0] + s[i][1]) + (s[i][2] + s[i][3]);
}

void sum_blocks(const Tile& t) {
  const std::int64_t blocks = t.w.blocks(), whole = t.w.k / t.w.block;
  for (std::int64_t r = 0; r < t.m; ++r) {
    const float* const a = t.a + r * t.lda;
    float* const sums = t.sums + r * blocks;
    std::int64_t b = 0;
    for (; b + 4 <= whole; b += 4) {
      if (stops(t.points, 4 * t.w.block)) return;
      sum_some_blocks<4>(a + b * t.w.block, t.w.block, t.w.block, sums + b);
    }
    for (; b < blocks; ++b) {
      if (stops(t.points, t.w.block)) return;
      sum_some_blocks<1>(a + b * t.w.block, t.w.block, b < whole ? t.w.block : t.w.k - b * t.w.block, sums + b);
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

// Rows [begin, end) of k of a panel as floats, [k][column]; begin is a multiple of 8.
void unpack(const Weights& w, const void* panel, std::int64_t begin, std::int64_t end, float* to) {
  if (w.bits == 8) {
    const auto* p = static_cast<const std::int8_t*>(panel) + begin * kWidth;
    for (std::int64_t i = 0; i < (end - begin) * kWidth; i += kLanes) store(to + i, load_bytes(p + i));
    return;
  }
  const Nibbles nibbles;
  const auto* p = static_cast<const std::uint32_t*>(panel) + begin / 8 * kWidth;
  for (std::int64_t k = begin; k < end; k += 8, p += kWidth, to += 8 * kWidth) {
    const std::int64_t rows = end - k < 8 ? end - k : 8;
    for (int column = 0; column < kWidth; column += kLanes) {
      BitVec words = *reinterpret_cast<const UnalignedBitVec*>(p + column);
#pragma GCC unroll 8
      for (std::int64_t i = 0; i < rows; ++i) store(to + i * kWidth + column, nibbles.take(&words));
    }
  }
}

// A range of whole blocks along k of one panel, unpacked.
struct Unpacked {
  const float* floats;  // from block `begin` on
  std::int64_t begin, end;
  std::int64_t numbers;  // of the panel's scales and zero points
};

// R rows from `row` on by NV vectors of columns, of which the first lies `first` columns into the panel. Until the last block, the
// accumulators stay in C.
template <int R, int NV>
void multiply_unpacked(const Tile& t, const Chain& chain, const Unpacked& u, std::int64_t row, std::int64_t panel_column,
                       int first) {
  const Weights& w = t.w;
  const std::int64_t blocks = w.blocks(), column = panel_column + first, left = t.n - column;
  const float* a[R];
  Vec acc[R][NV];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    a[r] = t.a + (row + r) * t.lda;
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      const bool goes_on = u.begin > 0 && left > v * kLanes;
      acc[r][v] = goes_on ? load_some(t.c + (row + r) * t.ldc + column + v * kLanes, left - v * kLanes) : zero();
    }
  }
  const float* p = u.floats + first;
  for (std::int64_t b = u.begin; b < u.end; ++b) {
    const std::int64_t begin = b * w.block, end = b + 1 < blocks ? begin + w.block : w.k;
    Vec sum[R][NV];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) sum[r][v] = zero();
    }
#pragma GCC unroll 2
    for (std::int64_t k = begin; k < end; ++k, p += kWidth) {
      Vec x[NV];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) x[v] = load(p + v * kLanes);
      multiply(a, k, x, sum);
    }
    add_block(w, u.numbers + b * kWidth + first, sum, acc, [&](int r) { return t.sums[(row + r) * blocks + b]; });
  }
  if (u.end == blocks) {
    for (int r = 0; r < R; ++r) store_row(t, chain, row + r, column, acc[r]);
    return;
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < NV && left > v * kLanes; ++v)
      store_some(t.c + (row + r) * t.ldc + column + v * kLanes, acc[r][v], left - v * kLanes);
  }
}

using UnpackedFn = void (*)(const Tile&, const Chain&, const Unpacked&, std::int64_t, std::int64_t, int);
constexpr UnpackedFn kUnpacked[kMr] = {
    multiply_unpacked<1, kMicroNv>, multiply_unpacked<2, kMicroNv>, multiply_unpacked<3, kMicroNv>, multiply_unpacked<4, kMicroNv>,
#if defined(__AVX2__) || defined(__aarch64__)
    multiply_unpacked<5, kMicroNv>, multiply_unpacked<6, kMicroNv>,
#endif
};

std::int64_t unpacked_blocks(const Weights& w) { return w.block < kUnpackedRows ? kUnpackedRows / w.block : 1; }

std::int64_t unpacked_floats(const Weights& w) {
  const std::int64_t rows = unpacked_blocks(w) * w.block;
  return (rows < w.k ? rows : w.k) * kWidth;
}

void run_many(const Tile& t) {
  const Chain chain = split_chain(t.epilogue);
  if (has_zeros(t.w)) sum_blocks(t);
  const std::int64_t blocks = t.w.blocks(), most = unpacked_blocks(t.w), bytes = t.w.panel_bytes(kWidth);
  const std::int64_t groups = (t.m + kMr - 1) / kMr;
  for (std::int64_t column = 0, panel = t.panel; column < t.n; column += kWidth, ++panel) {
    const void* const elements = static_cast<const char*>(t.w.elements) + panel * bytes;
    for (std::int64_t b = 0; b < blocks; b += most) {
      const std::int64_t end = blocks - b < most ? blocks : b + most;
      const std::int64_t k = b * t.w.block, k_end = end == blocks ? t.w.k : end * t.w.block;
      if (stops(t.points, (k_end - k) * kWidth)) return;
      unpack(t.w, elements, k, k_end, t.unpacked);
      const Unpacked u = {t.unpacked, b, end, panel * blocks * kWidth};
      for (std::int64_t g = 0; g < groups; ++g) {
        const std::int64_t row = g * t.m / groups, rows = (g + 1) * t.m / groups - row;
        if (stops(t.points, rows * kWidth * (k_end - k))) return;
        for (int first = 0; first < kWidth && column + first < t.n; first += kMicroNv * kLanes)
          kUnpacked[rows - 1](t, chain, u, row, column, first);
      }
    }
  }
}

}  // namespace

extern const simd_nbits::Loops loops_nbits;
const simd_nbits::Loops loops_nbits = {.width = kWidth,
                                       .rows = kRows,
                                       .high_first = Nibbles::kHighFirst,
                                       .run = run,
                                       .unpacked_floats = unpacked_floats,
                                       .run_many = run_many};

}  // namespace evn::EVN_ISA
