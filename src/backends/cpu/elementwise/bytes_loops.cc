// The loops of elementwise/bytes_loops.h for one cluster.
#include "backends/cpu/elementwise/bytes_loops.h"

#include <cmath>
#include <cstring>

#include "backends/cpu/qgemm/qgemm_store.h"

namespace evn::EVN_ISA {
namespace {

using simd_bytes::Arithmetic;
using simd_bytes::Mean;

// 16 bytes, whatever the cluster is.
constexpr std::int64_t kBlock = 16;
typedef std::uint8_t Bytes __attribute__((vector_size(kBlock)));
typedef std::int8_t SignedBytes __attribute__((vector_size(kBlock)));
typedef std::uint8_t UnalignedBytes __attribute__((vector_size(kBlock), aligned(1), may_alias));
typedef std::int8_t UnalignedSignedBytes __attribute__((vector_size(kBlock), aligned(1), may_alias));
typedef std::int32_t UnalignedInts __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

inline IntVec splat_step(std::int32_t x) { return splat_int(x); }

// Whether one of a and b is NaN in some lane, or some lane of v is above the limit.
inline bool any_nan_or_above(Vec a, Vec b, IntVec v, std::int32_t limit) {
#if defined(__AVX512F__)
  const __mmask16 above = _mm512_cmpgt_epi32_mask(reinterpret_cast<__m512i>(v), _mm512_set1_epi32(limit));
  return (_mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) | above) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q), as_float(v > splat_int(limit)))) != 0;
#elif defined(__x86_64__)
  return _mm_movemask_ps(_mm_or_ps(_mm_cmpunord_ps(a, b), as_float(v > splat_int(limit)))) != 0;
#else
  const IntVec mask = (v > splat_int(limit)) | (a != a) | (b != b);
  std::int32_t any = 0;
  for (int i = 0; i < kLanes; ++i) any |= mask[i];
  return any != 0;
#endif
}

// The low bytes of numbers between -128 and 255.
inline void store_steps(std::uint8_t* p, IntVec v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i_u*>(p), _mm512_maskz_cvtepi32_epi8(kAllLanes, reinterpret_cast<__m512i>(v)));
#elif defined(__AVX2__)
  const __m256i low = reinterpret_cast<__m256i>(v & splat_int(255));
  const __m256i words = _mm256_packs_epi32(low, low);
  const __m256i bytes = _mm256_packus_epi16(words, words);
  const std::int32_t halves[2] = {_mm256_extract_epi32(bytes, 0), _mm256_extract_epi32(bytes, 4)};
  std::memcpy(p, halves, sizeof halves);
#elif defined(__x86_64__)
  const __m128i low = reinterpret_cast<__m128i>(v & splat_int(255));
  const __m128i words = _mm_packs_epi32(low, low);
  const std::int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  std::memcpy(p, &bytes, sizeof bytes);
#else
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<std::uint8_t>(v[i]);
#endif
}

inline void store_steps_n(std::uint8_t* p, IntVec v, std::int64_t n) {
  std::uint8_t bytes[kLanes];
  store_steps(bytes, v);
  for (std::int64_t i = 0; i < n; ++i) p[i] = bytes[i];
}

inline Vec float_of(IntVec v) { return __builtin_convertvector(v, Vec); }

// Numbers between the bounds, which are whole, rounded to even.
inline IntVec round_between(Vec x, Vec low, Vec high) {
  const Vec magic = splat(12582912.0f);              // 1.5 * 2^23
  const Vec bounded = min_of(high, max_of(x, low));  // NaN becomes the lower bound
  return reinterpret_cast<IntVec>(reinterpret_cast<BitVec>(bounded + magic) - reinterpret_cast<BitVec>(magic));
}

// Calls f(i, n) for vectors of n of `count` elements, in which only the last may not be whole.
template <typename F>
inline void each_vector(std::int64_t count, F&& f) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) f(i, std::int64_t{kLanes});
  if (i < count) f(i, count - i);
}

inline void store_some_steps(std::uint8_t* p, IntVec v, std::int64_t n) {
  n == kLanes ? store_steps(p, v) : store_steps_n(p, v, n);
}

inline float least_of(bool is_signed) { return is_signed ? -128.0f : 0.0f; }

// ------------------------------------------------------------------------------------------------- float32 and bytes --

// The quotient is bounded less the zero point, so that the sum of both is in the type's range. NaN becomes the least number.
inline IntVec quantized(Vec quotient, Vec least, Vec zero_as_float, IntVec zero_point) {
  const Vec low = least - zero_as_float;
  return round_between(quotient, low, low + splat(255.0f)) + zero_point;
}

// A product by the reciprocal, where that is a normal number, is the quotient but for some roundings. They matter next to the
// middle of two whole numbers only, within the bounds.
class Quantization {
 public:
  Quantization(float scale, std::int32_t zero_point, bool is_signed)
      : divisor_(splat(scale)),
        factor_(splat(1.0f / scale)),
        multiplies_(std::isnormal(1.0f / scale) && std::isnormal(scale)),
        least_(splat(least_of(is_signed))),
        zeros_(splat_step(zero_point)),
        low_(least_ - float_of(zeros_)),
        high_(low_ + splat(255.0f)) {}

  bool multiplies() const { return multiplies_; }

  IntVec by_division(Vec v) const { return quantized(v / divisor_, least_, float_of(zeros_), zeros_); }

  // By the reciprocal. False where one of them is NaN or so close to a middle that it must be divided.
  bool by_product(const Vec (&v)[2], IntVec (&to)[2]) const {
    const Vec magic = splat(12582912.0f);  // 1.5 * 2^23
    const IntVec shift = reinterpret_cast<IntVec>(magic) - zeros_;
    IntVec away[2];
    for (int i = 0; i < 2; ++i) {
      const Vec bounded = min_of(high_, max_of(v[i] * factor_, low_)), shifted = bounded + magic;
      away[i] = as_int(abs_of(bounded - (shifted - magic)));
      to[i] = reinterpret_cast<IntVec>(reinterpret_cast<BitVec>(shifted) - reinterpret_cast<BitVec>(shift));
    }
    const IntVec further = away[0] > away[1] ? away[0] : away[1];
    return !any_nan_or_above(v[0], v[1], further, 0x3efff000);  // 0.5 - 2^-13, as bits
  }

 private:
  const Vec divisor_, factor_;
  const bool multiplies_;
  const Vec least_;
  const IntVec zeros_;
  const Vec low_, high_;
};

void quantize(const float* x, std::int64_t n, float scale, std::int32_t zero_point, bool is_signed, std::uint8_t* to) {
  const Quantization q(scale, zero_point, is_signed);
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Vec v[2] = {load(x + i), load(x + i + kLanes)};
    IntVec steps[2];
    if (!q.multiplies() || !q.by_product(v, steps)) {
      for (int k = 0; k < 2; ++k) steps[k] = q.by_division(v[k]);
    }
    for (int k = 0; k < 2; ++k) store_steps(to + i + k * kLanes, steps[k]);
  }
  each_vector(n - i, [&](std::int64_t k, std::int64_t count) {
    store_some_steps(to + i + k, q.by_division(load_some(x + i + k, count)), count);
  });
}

template <bool Signed>
void quantize_rows(const float* x, std::int64_t n, const float* scale, const std::uint8_t* zero_point, std::uint8_t* to) {
  each_vector(n, [&](std::int64_t i, std::int64_t count) {
    const IntVec zeros = zero_point == nullptr ? splat_step(0) : load_some_steps<Signed>(zero_point + i, count);
    const Vec quotient = load_some(x + i, count) / load_some(scale + i, count);
    store_some_steps(to + i, quantized(quotient, splat(least_of(Signed)), float_of(zeros), zeros), count);
  });
}

void quantize_each(const float* x, std::int64_t n, const float* scale, const std::uint8_t* zero_point, bool is_signed,
                   std::uint8_t* to) {
  is_signed ? quantize_rows<true>(x, n, scale, zero_point, to) : quantize_rows<false>(x, n, scale, zero_point, to);
}

template <bool Signed>
void dequantize_as(const std::uint8_t* x, std::int64_t n, float scale, std::int32_t zero_point, float* to) {
  const Vec factor = splat(scale);
  const IntVec zeros = splat_step(zero_point);
  each_vector(n, [&](std::int64_t i, std::int64_t count) {
    store_some(to + i, float_of(load_some_steps<Signed>(x + i, count) - zeros) * factor, count);
  });
}

void dequantize(const std::uint8_t* x, std::int64_t n, float scale, std::int32_t zero_point, bool is_signed, float* to) {
  is_signed ? dequantize_as<true>(x, n, scale, zero_point, to) : dequantize_as<false>(x, n, scale, zero_point, to);
}

template <bool Signed>
void dequantize_rows(const std::uint8_t* x, std::int64_t n, const float* scale, const std::uint8_t* zero_point, float* to) {
  each_vector(n, [&](std::int64_t i, std::int64_t count) {
    const IntVec zeros = zero_point == nullptr ? splat_step(0) : load_some_steps<Signed>(zero_point + i, count);
    store_some(to + i, float_of(load_some_steps<Signed>(x + i, count) - zeros) * load_some(scale + i, count), count);
  });
}

void dequantize_each(const std::uint8_t* x, std::int64_t n, const float* scale, const std::uint8_t* zero_point, bool is_signed,
                     float* to) {
  is_signed ? dequantize_rows<true>(x, n, scale, zero_point, to) : dequantize_rows<false>(x, n, scale, zero_point, to);
}

void find_range(const float* x, std::int64_t n, float* low, float* high) {
  Vec least = splat(*low), most = splat(*high);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec v = load(x + i);
    least = min_of(v, least);  // NaN gives the second
    most = max_of(v, most);
  }
  for (; i < n; ++i) {
    *low = x[i] < *low ? x[i] : *low;
    *high = x[i] > *high ? x[i] : *high;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    *low = least[lane] < *low ? least[lane] : *low;
    *high = most[lane] > *high ? most[lane] : *high;
  }
}

void scale_all(double factor, const float* x, std::int64_t n, double divisor, float* to) {
  typedef double Doubles __attribute__((vector_size(8 * kLanes)));
  each_vector(n, [&](std::int64_t j, std::int64_t count) {
    const Doubles product = __builtin_convertvector(load_some(x + j, count), Doubles) * factor;
    store_some(to + j, __builtin_convertvector(product / divisor, Vec), count);
  });
}

// -------------------------------------------------------------------------------------------------------- arithmetic --

template <bool Signed>
inline IntVec operand(const std::uint8_t* p, std::int64_t step, std::int64_t i, std::int64_t count, std::int32_t zero_point) {
  if (step != 0) return load_some_steps<Signed>(p + i, count) - splat_step(zero_point);
  return splat_step((Signed ? static_cast<std::int8_t>(*p) : *p) - zero_point);
}

template <bool Signed, bool Product>
void combine(const Arithmetic& a, const std::uint8_t* x, std::int64_t x_step, const std::uint8_t* z, std::int64_t z_step,
             std::uint8_t* y, std::int64_t n) {
  const Vec x_scale = splat(a.x_scale), z_scale = splat(a.z_scale), zero_point = splat(a.zero);
  const Vec least = splat(least_of(Signed)), most = splat(least_of(Signed) + 255.0f);
  const auto sum_at = [&](std::int64_t i, std::int64_t count) {
    const IntVec p = operand<Signed>(x, x_step, i, count, a.x_zero), q = operand<Signed>(z, z_step, i, count, a.z_zero);
    if constexpr (Product) return float_of(p) * float_of(q) * x_scale + zero_point;
    return float_of(p) * x_scale + float_of(q) * z_scale + zero_point;
  };
  std::int64_t first = 0;
#if defined(EVN_PACKS_BYTES)
  const BytePacking packing = byte_packing(0, Signed);
  for (; first + 4 * kLanes <= n; first += 4 * kLanes) {
    const Packed bytes = packed_rows(packing, sum_at(first, kLanes), sum_at(first + kLanes, kLanes),
                                     sum_at(first + 2 * kLanes, kLanes), sum_at(first + 3 * kLanes, kLanes));
    std::memcpy(y + first, &bytes, sizeof bytes);
  }
#endif
  each_vector(n - first, [&](std::int64_t i, std::int64_t count) {
    const Vec sum = sum_at(first + i, count);
    store_some_steps(y + first + i, round_between(sum, least, most), count);
  });
}

void add(const Arithmetic& a, const std::uint8_t* x, std::int64_t x_step, const std::uint8_t* z, std::int64_t z_step,
         std::uint8_t* y, std::int64_t n) {
  a.is_signed ? combine<true, false>(a, x, x_step, z, z_step, y, n) : combine<false, false>(a, x, x_step, z, z_step, y, n);
}

void multiply(const Arithmetic& a, const std::uint8_t* x, std::int64_t x_step, const std::uint8_t* z, std::int64_t z_step,
              std::uint8_t* y, std::int64_t n) {
  a.is_signed ? combine<true, true>(a, x, x_step, z, z_step, y, n) : combine<false, true>(a, x, x_step, z, z_step, y, n);
}

// ------------------------------------------------------------------------------------------------------------ tables --

#if defined(__AVX2__)
// A row of 16 elements of the table at a time: an index that is in no other row than this one has its upper four bits clear once
// the row's first index is subtracted; for others the sum saturates into the bit that makes a shuffle give 0.
template <typename V, typename Splat, typename Sub, typename Sum, typename Shuffle, typename Or>
inline V look_up_rows(V x, const V (&rows)[16], Splat splat_byte, Sub subtract, Sum add_saturated, Shuffle shuffle, Or either) {
  V y = shuffle(rows[0], add_saturated(x, splat_byte(0x70)));
#pragma GCC unroll 16
  for (int r = 1; r < 16; ++r) {
    y = either(y, shuffle(rows[r], add_saturated(subtract(x, splat_byte(16 * r)), splat_byte(0x70))));
  }
  return y;
}
#endif

// Aligned: where its loop began at some places between lines of code, it took twice as long.
__attribute__((aligned(64))) void look_up(const std::uint8_t* table, const std::uint8_t* x, std::uint8_t* y, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__AVX512BW__)
  if (n >= 256) {
    __m512i rows[16];
    for (int r = 0; r < 16; ++r) {
      rows[r] = _mm512_maskz_broadcast_i32x4(kAllLanes, _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(table + 16 * r)));
    }
    const auto splat_byte = [](int b) { return _mm512_set1_epi8(static_cast<char>(b)); };
    for (; i + 64 <= n; i += 64) {
      const __m512i v = _mm512_loadu_si512(x + i);
      _mm512_storeu_si512(y + i, look_up_rows(
                                     v, rows, splat_byte, [](__m512i a, __m512i b) { return _mm512_sub_epi8(a, b); },
                                     [](__m512i a, __m512i b) { return _mm512_adds_epu8(a, b); },
                                     [](__m512i a, __m512i b) { return _mm512_shuffle_epi8(a, b); },
                                     [](__m512i a, __m512i b) { return _mm512_or_si512(a, b); }));
    }
  }
#elif defined(__AVX2__)
  if (n >= 256) {
    __m256i rows[16];
    for (int r = 0; r < 16; ++r) {
      rows[r] = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(table + 16 * r)));
    }
    const auto splat_byte = [](int b) { return _mm256_set1_epi8(static_cast<char>(b)); };
    for (; i + 32 <= n; i += 32) {
      const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(x + i));
      _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(y + i),
                          look_up_rows(
                              v, rows, splat_byte, [](__m256i a, __m256i b) { return _mm256_sub_epi8(a, b); },
                              [](__m256i a, __m256i b) { return _mm256_adds_epu8(a, b); },
                              [](__m256i a, __m256i b) { return _mm256_shuffle_epi8(a, b); },
                              [](__m256i a, __m256i b) { return _mm256_or_si256(a, b); }));
    }
  }
#endif
  for (; i < n; ++i) y[i] = table[x[i]];
}

// ------------------------------------------------------------------------------------------------------------- pools --

void widen_max(const std::uint8_t* x, std::uint8_t* y, std::int64_t n, bool is_signed) {
  std::int64_t i = 0;
  if (is_signed) {
    for (; i + kBlock <= n; i += kBlock) {
      const SignedBytes a = *reinterpret_cast<const UnalignedSignedBytes*>(x + i),
                        b = *reinterpret_cast<const UnalignedSignedBytes*>(y + i);
      *reinterpret_cast<UnalignedSignedBytes*>(y + i) = a > b ? a : b;
    }
    for (; i < n; ++i) y[i] = static_cast<std::int8_t>(x[i]) > static_cast<std::int8_t>(y[i]) ? x[i] : y[i];
  } else {
    for (; i + kBlock <= n; i += kBlock) {
      const Bytes a = *reinterpret_cast<const UnalignedBytes*>(x + i), b = *reinterpret_cast<const UnalignedBytes*>(y + i);
      *reinterpret_cast<UnalignedBytes*>(y + i) = a > b ? a : b;
    }
    for (; i < n; ++i) y[i] = x[i] > y[i] ? x[i] : y[i];
  }
}

template <bool Signed>
void add_steps(const std::uint8_t* x, std::int32_t* sums, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    // Not by a deduced pointer, which would forget the alignment.
    *reinterpret_cast<UnalignedInts*>(sums + i) = *reinterpret_cast<const UnalignedInts*>(sums + i) + load_steps<Signed>(x + i);
  }
  for (; i < n; ++i) sums[i] += Signed ? static_cast<std::int8_t>(x[i]) : x[i];
}

void add_to(const std::uint8_t* x, std::int32_t* sums, std::int64_t n, bool is_signed) {
  is_signed ? add_steps<true>(x, sums, n) : add_steps<false>(x, sums, n);
}

// V vectors from `at` on, the last of which has n lanes.
template <int V>
inline void average_some(const Mean& m, const ByteRange& range, const std::uint8_t* const* taps, std::int64_t count,
                         std::int64_t at, std::int64_t n, std::uint8_t* to, CancelPoints* points) {
  constexpr std::int64_t kPart = 2048;  // taps between two cancellation points
  BitVec sums[V];
  const BitVec flip = splat_bits(m.flip);
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) sums[v] = splat_bits(0u - m.start);
  for (std::int64_t tap = 0; tap < count;) {
    const std::int64_t end = count - tap < kPart ? count : tap + kPart;
    if (stops(points, (end - tap) * (V * kLanes + kFarElement))) return;
    for (; tap < end; ++tap) {
      const std::uint8_t* const x = taps[tap] + at;
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        const IntVec bytes = V > 1 ? load_steps<false>(x + v * kLanes) : load_some_steps<false>(x, n);
        sums[v] += reinterpret_cast<BitVec>(bytes) ^ flip;
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v)
    store_bytes(to + at + v * kLanes, saturated(range, float_of(sums[v]) * splat(m.scale)), V > 1 ? kLanes : n);
}

void average(const Mean& m, const std::uint8_t* const* taps, std::int64_t count, std::int64_t n, std::uint8_t* to,
             CancelPoints* points) {
  const std::int32_t least = m.flip != 0 ? -128 : 0;
  const ByteRange range = byte_range(least, least + 255, m.zero);
  std::int64_t at = 0;
  for (; at + 4 * kLanes <= n; at += 4 * kLanes) average_some<4>(m, range, taps, count, at, kLanes, to, points);
  for (; at < n; at += kLanes) average_some<1>(m, range, taps, count, at, n - at < kLanes ? n - at : kLanes, to, points);
}

}  // namespace

extern const simd_bytes::Loops loops_bytes;
const simd_bytes::Loops loops_bytes = {.quantize = quantize,
                                       .quantize_each = quantize_each,
                                       .dequantize = dequantize,
                                       .dequantize_each = dequantize_each,
                                       .range = find_range,
                                       .scale = scale_all,
                                       .add = add,
                                       .multiply = multiply,
                                       .look_up = look_up,
                                       .widen_max = widen_max,
                                       .add_to = add_to,
                                       .average = average};

}  // namespace evn::EVN_ISA
