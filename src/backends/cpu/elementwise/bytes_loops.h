// Loops over quantized tensors: float32 to bytes and back, sums and products of bytes with scales, tables, pools. Bytes are int8
// where `is_signed`, else uint8. All give the bits of the operators' references.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/cancel_points.h"

namespace evn::simd_bytes {

// y = saturate(round(x * x_scale + z * z_scale + zero)) or saturate(round(x * z * x_scale + zero)), of elements less their zero
// points.
struct Arithmetic {
  float x_scale, z_scale, zero;
  std::int32_t x_zero, z_zero;
  bool is_signed;
};

// y = saturate(round((sum - start) * scale) + zero), where the sum is of bytes as uint8: `flip` is 0x80 where they are int8.
struct Mean {
  std::uint32_t start, flip;
  float scale;
  std::int32_t zero;
};

struct Loops {
  // to[i] = saturate(round(x[i] / scale) + zero), ties to even; NaN gives the least number of the type.
  void (*quantize)(const float* x, std::int64_t n, float scale, std::int32_t zero, bool is_signed, std::uint8_t* to);
  // Quantizes with a scale and zero point for each element; zero may be null.
  void (*quantize_each)(const float* x, std::int64_t n, const float* scale, const std::uint8_t* zero, bool is_signed,
                        std::uint8_t* to);
  // to[i] = (x[i] - zero) * scale.
  void (*dequantize)(const std::uint8_t* x, std::int64_t n, float scale, std::int32_t zero, bool is_signed, float* to);
  void (*dequantize_each)(const std::uint8_t* x, std::int64_t n, const float* scale, const std::uint8_t* zero, bool is_signed,
                          float* to);
  // Widens *low and *high to all n numbers that are none.
  void (*range)(const float* x, std::int64_t n, float* low, float* high);
  // to[i] = factor * x[i] / divisor, in float64.
  void (*scale)(double factor, const float* x, std::int64_t n, double divisor, float* to);
  // Steps are 0 or 1. y may be x or z.
  void (*add)(const Arithmetic& a, const std::uint8_t* x, std::int64_t x_step, const std::uint8_t* z, std::int64_t z_step,
              std::uint8_t* y, std::int64_t n);
  void (*multiply)(const Arithmetic& a, const std::uint8_t* x, std::int64_t x_step, const std::uint8_t* z, std::int64_t z_step,
                   std::uint8_t* y, std::int64_t n);
  // y[i] = table[x[i]]. y may be x.
  void (*look_up)(const std::uint8_t* table, const std::uint8_t* x, std::uint8_t* y, std::int64_t n);
  // y[i] = the larger one of x[i] and y[i].
  void (*widen_max)(const std::uint8_t* x, std::uint8_t* y, std::int64_t n, bool is_signed);
  // sums[i] += x[i].
  void (*add_to)(const std::uint8_t* x, std::int32_t* sums, std::int64_t n, bool is_signed);
  // to[i] = the mean of taps[0][i], taps[1][i], ... of `count`, which is of the same type.
  void (*average)(const Mean& m, const std::uint8_t* const* taps, std::int64_t count, std::int64_t n, std::uint8_t* to,
                  CancelPoints* points);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_bytes
