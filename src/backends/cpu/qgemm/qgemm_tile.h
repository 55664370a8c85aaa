// What the loops of qgemm_loops.h share: how sums are stored, which rows are multiplied together, and bytes on their way in.
// Included by qgemm_loops*.cc only.
#pragma once

#include <cstring>
#include <type_traits>

#include "backends/cpu/qgemm/qgemm_micro.h"

namespace evn::EVN_ISA {
namespace {

// --------------------------------------------------------------------------------------------------------- stores --

inline BitVec bits_at(const void* p) {
  BitVec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

#if defined(__x86_64__)
inline BitVec quads_sum(const std::uint8_t* p) {
  const BitVec v = bits_at(p), one = splat_bits(0x00010001u);
  return add_pairs(v & 0x00ff00ffu, one) + add_pairs((v >> 8) & 0x00ff00ffu, one);
}
inline BitVec quads_sum(const std::int16_t* p) { return add_pairs(bits_at(p), splat_bits(0x00010001u)); }
#endif

// The sum of a row's bytes that are k.
template <typename Byte>
inline std::uint32_t sum_row(const Tile& t, const Byte* row) {
  std::uint32_t sum = 0;
  for (std::int64_t s = 0; s < t.segments; ++s) {
    const Byte* const p = row + t.offsets[s];
    std::int64_t i = 0;
    [[maybe_unused]] BitVec sums = {};
    while (i < t.segment) {
      const std::int64_t end = t.segment - i < 2 * kMostGroups * kGroup ? t.segment : i + kMostGroups * kGroup;
      if (stops(t.points, end - i)) return 0;
#if defined(__x86_64__)
      constexpr std::int64_t kStep = sizeof(BitVec) / sizeof(Byte);
      for (; i + kStep <= end; i += kStep) sums += quads_sum(p + i);
      for (; i < end; ++i) {
        sum += static_cast<std::uint32_t>(p[i]);
        __asm__(
            ""
            : "+r"(sum));  // less than a vector: the compiler would vectorize it once more, which is 1 KB of each instruction set
      }
#else
      for (; i < end; ++i) sum += static_cast<std::uint32_t>(p[i]);
#endif
    }
    for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane];
  }
  return sum;
}

void sum_rows(const Tile& t) {
  if (t.b_zero == nullptr) return;
  for (std::int64_t line = 0; line < t.lines; ++line) {
    for (std::int64_t x = 0; x < t.width; ++x) {
      const std::int64_t at = line * t.line_step + x * t.lda;
#if defined(EVN_DOT_WORDS)
      t.row_sums[line * t.width + x] =
          static_cast<std::int32_t>(t.words != nullptr ? sum_row(t, t.words + at) : sum_row(t, t.a + at));
#else
      t.row_sums[line * t.width + x] = static_cast<std::int32_t>(sum_row(t, t.a + at));
#endif
    }
  }
}

// Some rows of some columns, which begin at (line, x) and `column`; `sums` has the products' sums, `ld` apart.
struct QgemmBlock {
  const std::int32_t* sums;
  std::int64_t ld, rows, line, x, column, columns;
};

template <typename F>
inline void for_each_sum(const Tile& t, const QgemmBlock& b, std::int64_t j, F&& store) {
  const BitVec start = kStarted ? BitVec{} : load_bits(t.start + b.column + j);
  if (t.b_zero == nullptr) {
    for (std::int64_t r = 0; r < b.rows; ++r) store(r, load_bits(b.sums + r * b.ld + j) + start);
    return;
  }
  const BitVec b_zero = load_bits(t.b_zero + b.column + j);
  const std::int32_t* const row_sums = t.row_sums + b.line * t.width + b.x;
  for (std::int64_t r = 0; r < b.rows; ++r) {
    store(r, load_bits(b.sums + r * b.ld + j) + start - b_zero * splat_bits(static_cast<std::uint32_t>(row_sums[r])));
  }
}

// Results in steps, less the zero point, on their way to bytes; `zero` is added when they are whole. Bounded: none reaches 2^31.
// Whole: there is a loop for whole vectors of columns without zero points of B. Those of int8 are packed as uint8, 128 more, which
// saves code.
template <bool Bounded>
struct PlainBytes {
  static constexpr bool kBounded = Bounded, kWhole = Bounded, kSigned = false;
  static constexpr std::int32_t kFlip = 128;
  std::int32_t zero;

  explicit PlainBytes(const Tile& t) : zero(t.zero) {}
  Vec operator()(Vec y, const std::uint8_t*, std::int64_t) const { return y; }
};

// With what is added to them: sums, in steps of their own, with their zero point in them.
template <bool Signed>
struct ByteSums {
#if defined(__AVX512VNNI__)
  static constexpr bool kBounded = true, kWhole = true, kSigned = Signed;
#else
  static constexpr bool kBounded = true, kWhole = false, kSigned = Signed;
#endif
  static constexpr std::int32_t kFlip = 0;
  static constexpr std::int32_t zero = 0;
  static constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  Vec low, high, y_scale, r_scale, sum_zero;
  Vec back;  // takes the magic number of rounding away again, and the operand's zero point
  IntVec r_zero;

  explicit ByteSums(const Tile& t) {
    const simd_qgemm::Added& added = *t.added;
    const std::int32_t least = Signed ? -128 : 0;
    low = splat(static_cast<float>(least - t.zero));
    high = splat(static_cast<float>(least + 255 - t.zero));
    y_scale = splat(added.y_scale);
    r_scale = splat(added.r_scale);
    sum_zero = splat(added.zero);
    back = splat(kMagic - static_cast<float>(t.zero - added.y_zero));
    r_zero = splat_int(added.r_zero);
  }
  Vec operator()(Vec y, const std::uint8_t* r, std::int64_t n) const {
    const Vec steps = (min_of(high, max_of(y, low)) + splat(kMagic)) - back;
    const Vec others = __builtin_convertvector(load_some_steps<Signed>(r, n) - r_zero, Vec);
    return steps * y_scale + others * r_scale + sum_zero;
  }
};

#if defined(EVN_PACKS_BYTES)
// Two vectors of columns, two rows at a time. What a store of bytes might change is kept in locals.
template <typename Steps>
void store_columns(const Tile& t, const QgemmBlock& b, std::int64_t j) {
  const Steps steps(t);
  const std::int64_t left = b.columns - j, n = left < 2 * kLanes ? left : 2 * kLanes;
  const std::int64_t n0 = n < kLanes ? n : kLanes, n1 = n - n0;
  const std::int64_t at = b.column + j, second = left > kLanes ? kLanes : 0;
  const BitVec start0 = kStarted ? BitVec{} : load_bits(t.start + at),
               start1 = kStarted ? BitVec{} : load_bits(t.start + at + second);
  const Vec scale0 = load(t.scale + at), scale1 = load(t.scale + at + second);
  const bool zeros = t.b_zero != nullptr, is_signed = t.output == Output::kInt8;
  const BitVec zero0 = zeros ? load_bits(t.b_zero + at) : BitVec{}, zero1 = zeros ? load_bits(t.b_zero + at + second) : BitVec{};
  const BytePacking packing = byte_packing(steps.zero + (is_signed ? Steps::kFlip : 0), Steps::kSigned);
  const BitVec flip = splat_bits(is_signed ? 0x01010101u * Steps::kFlip : 0);
  const std::int32_t* row_sums = zeros ? t.row_sums + b.line * t.width + b.x : nullptr;
  const std::int64_t ldc = t.ldc, ld = b.ld, first = b.line * t.line_c + b.x * ldc + at;
  std::uint8_t* c = static_cast<std::uint8_t*>(t.c) + first;
  const std::uint8_t* r = t.added == nullptr ? c : t.added->r + first;
  const std::int32_t* sums = b.sums + j;
  // Two rows; whole: of all columns, and without zero points of B.
  const auto pair = [&](auto whole, std::int64_t other) __attribute__((always_inline)) {
    const std::int64_t m0 = whole ? kLanes : n0, m1 = whole ? kLanes : n1, m = whole ? 2 * kLanes : n,
                       far = whole ? kLanes : second;
    BitVec a0 = load_bits(sums) + start0, a1 = load_bits(sums + far) + start1;
    BitVec b0 = load_bits(sums + other * ld) + start0, b1 = load_bits(sums + other * ld + far) + start1;
    if (!whole && zeros) {
      const BitVec sum_a = splat_bits(static_cast<std::uint32_t>(row_sums[0])),
                   sum_b = splat_bits(static_cast<std::uint32_t>(row_sums[other]));
      a0 -= zero0 * sum_a;
      a1 -= zero1 * sum_a;
      b0 -= zero0 * sum_b;
      b1 -= zero1 * sum_b;
      row_sums += 2;
    }
    const std::uint8_t* const r_other = r + other * ldc;
    const Packed packed =
        packed_rows<Steps::kBounded>(packing, steps(float_of(a0) * scale0, r, m0), steps(float_of(a1) * scale1, r + far, m1),
                                     steps(float_of(b0) * scale0, r_other, m0), steps(float_of(b1) * scale1, r_other + far, m1));
    const Packed bytes = Steps::kFlip == 0 ? packed : reinterpret_cast<Packed>(reinterpret_cast<BitVec>(packed) ^ flip);
    store_row(c, first_row(bytes), m);
    store_row(c + other * ldc, second_row(bytes), m);
    sums += 2 * ld;
    c += 2 * ldc;
    r += 2 * ldc;
  };
  std::int64_t rows = b.rows;
#if defined(__AVX512F__)
  if (Steps::kWhole && n == 2 * kLanes && !zeros) {
    for (; rows > 1; rows -= 2) pair(std::true_type{}, 1);
  }
#endif
  for (; rows > 0; rows -= 2) pair(std::false_type{}, rows > 1 ? 1 : 0);
}
constexpr std::int64_t kStoreColumns = 2 * kLanes;
#else
template <typename Steps>
void store_columns(const Tile& t, const QgemmBlock& b, std::int64_t j) {
  const Steps steps(t);
  const std::int32_t least = t.output == Output::kInt8 ? -128 : 0;
  const ByteRange range = byte_range(least, least + 255, steps.zero);
  const std::int64_t left = b.columns - j, n = left < kLanes ? left : kLanes;
  const Vec scale = load(t.scale + b.column + j);
  const std::int64_t first = b.line * t.line_c + b.x * t.ldc + b.column + j;
  std::uint8_t* const c = static_cast<std::uint8_t*>(t.c) + first;
  const std::uint8_t* const other = t.added == nullptr ? c : t.added->r + first;
  for_each_sum(t, b, j, [&](std::int64_t r, BitVec sum) {
    store_bytes(c + r * t.ldc, saturated(range, steps(float_of(sum) * scale, other + r * t.ldc, n)), n);
  });
}
constexpr std::int64_t kStoreColumns = kLanes;
#endif

void store_bytes_of(const Tile& t, const QgemmBlock& b) {
  auto store = store_columns<PlainBytes<false>>;
#if defined(__AVX512F__)
  if (t.is_bounded) store = store_columns<PlainBytes<true>>;
#endif
  if (t.added != nullptr) store = t.output == Output::kInt8 ? store_columns<ByteSums<true>> : store_columns<ByteSums<false>>;
  for (std::int64_t j = 0; j < b.columns; j += kStoreColumns) store(t, b, j);
}

void store_block(const Tile& t, const QgemmBlock& b) {
  if (t.output == Output::kInt8 || t.output == Output::kUint8) return store_bytes_of(t, b);
  const std::int64_t first = b.line * t.line_c + b.x * t.ldc + b.column;
  for (std::int64_t j = 0; j < b.columns; j += kLanes) {
    const std::int64_t left = b.columns - j, n = left < kLanes ? left : kLanes;
    const Vec scale = t.scale == nullptr ? zero() : load(t.scale + b.column + j);
    if (t.output == Output::kInt32) {
      float* const c = static_cast<float*>(t.c) + first + j;  // stores of whole vectors are the same
      for_each_sum(t, b, j, [&](std::int64_t r, BitVec sum) {
        n == kLanes ? store_bits(c + r * t.ldc, sum) : store_n(c + r * t.ldc, reinterpret_cast<Vec>(sum), n);
      });
    } else {
      float* const c = static_cast<float*>(t.c) + first + j;
      const Vec bias = t.bias == nullptr ? zero() : load(t.bias + b.column + j);
      const bool biased = t.bias != nullptr;
      for_each_sum(t, b, j, [&](std::int64_t r, BitVec sum) {
        Vec y = float_of(sum) * scale;
        if (biased) y += bias;
        n == kLanes ? store(c + r * t.ldc, y) : store_n(c + r * t.ldc, y, n);
      });
    }
  }
}

// ----------------------------------------------------------------------------------------------------------- rows --

constexpr std::int64_t kRowsToStore = 24;  // rows whose sums are stored at once: what their columns need is loaded for all of them

void run_vectors(const Tile& t) {
  alignas(64) std::int32_t sums[kRowsToStore * kQgemmColumns];
  const std::int64_t block = t.segments * t.padded * kLanes;
  const std::int64_t pieces = (t.width + kQgemmMr - 1) / kQgemmMr;
  sum_rows(t);
  for (std::int64_t column = 0; column < t.n;) {
    const std::int64_t blocks = (t.n - column + kLanes - 1) / kLanes;
    int width = kWidest;
    while (kQgemmWidths[width] > blocks || (width == 1 && t.width < kLeastOfTwo)) --width;
    const std::int64_t most = kQgemmWidths[width] * kLanes;
    const std::int64_t columns = t.n - column < most ? t.n - column : most;
    for (std::int64_t line = 0; line < t.lines; ++line) {
      std::int64_t x = 0;
      for (std::int64_t piece = pieces; piece > 0;) {
        std::int64_t rows = 0;
        do {
          const std::int64_t next = (t.width - x - rows + piece - 1) / piece;
          QgemmMicro micro{};
          micro.tile = &t;
          micro.a = t.a + line * t.line_step + (x + rows) * t.lda;
          micro.b = t.b + column / kLanes * block;
          micro.start = t.start + column;
          micro.sums = sums + rows * kQgemmColumns;
          if (!multiply_rows(next, width, micro)) return;
          rows += next;
        } while (--piece > 0 && rows + kQgemmMr <= kRowsToStore);
        store_block(t, {sums, kQgemmColumns, rows, line, x, column, columns});
        x += rows;
      }
    }
    column += most;
  }
}

#if defined(EVN_DOT_WORDS)
void run_words(const Tile& t) {
  alignas(64) std::int32_t sums[kRowsToStore * kWordColumns];
  const std::int64_t block = t.segments * t.padded * kLanes;
  const bool is_long = has_many_pairs(t.segments, (t.segment + 1) / 2);
  WordMicro micro = {.a = nullptr,
                     .lda = t.lda,
                     .offsets = t.offsets,
                     .segments = t.segments,
                     .pairs = (t.segment + 1) / 2,
                     .b = t.room,
                     .b_pairs = t.padded / 2,
                     .start = nullptr,
                     .start_step = 0,
                     .sums = nullptr,
                     .ld = kWordColumns};
  WorkBatch batch{t.points, kMostWordWork};
  sum_rows(t);
  for (std::int64_t column = 0; column < t.n;) {
    const int width = word_width(t.n - column), blocks = 1 << width;
    const std::int64_t most = blocks * kLanes, row_work = most * t.segments * t.segment;
    const std::int64_t columns = t.n - column < most ? t.n - column : most;
    micro.start = t.start + column;
    if (!widen_block(t.b + column / kLanes * block, t.segments * t.padded / 2, block, blocks, t.room, t.points)) return;
    for (std::int64_t line = 0; line < t.lines; ++line) {
      for (std::int64_t x = 0, rows = 0; x < t.width; x += rows) {
        rows = 0;
        do {
          const std::int64_t next = word_rows(t.width - x - rows);
          micro.a = t.words + line * t.line_step + (x + rows) * t.lda;
          micro.sums = sums + rows * kWordColumns;
          rows += next;
          if (is_long) {
            if (!multiply_words(next, width, micro, t.points)) return;
            continue;
          }
          if (stops_before(&batch, next * row_work)) return;
          kWordMicros[next / 2][width](micro);
        } while (rows + kWordMr <= kRowsToStore && x + rows < t.width);
        store_block(t, {sums, kWordColumns, rows, line, x, column, columns});
      }
    }
    column += most;
  }
  stops_behind(&batch);
}

void winograd_store(const simd_qgemm::WinogradStore& s) {
  for (std::int64_t i = 0; i < s.lines; ++i) {
    store_block(*s.tile, {s.sums + i * simd_qgemm::kWinogradTile * simd_qgemm::kWinogradColumns, simd_qgemm::kWinogradColumns,
                          s.width, s.line + i, s.x, s.column, s.n});
  }
}

void run_vectors_or_words(const Tile& t) { t.words != nullptr ? run_words(t) : run_vectors(t); }
#endif

// ------------------------------------------------------------------------------------------------------- bytes in --

void flip_bytes(const std::uint8_t* from, std::int64_t n, std::uint8_t* to) {
  constexpr std::int64_t kStep = sizeof(BitVec);
  std::int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    const BitVec v = bits_at(from + i) ^ 0x80808080u;
    std::memcpy(to + i, &v, sizeof v);
  }
  for (; i < n; ++i) to[i] = static_cast<std::uint8_t>(from[i] ^ 0x80u);
}

}  // namespace
}  // namespace evn::EVN_ISA
