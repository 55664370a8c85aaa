// Element-wise loops of float32: functions of one input, arithmetic of two, and y = a x + b. Each ends with an optional epilogue.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "core/epilogue.h"

namespace evn::simd_elementwise {

enum class Unary : std::int32_t {
  kIdentity,
  kRelu,
  kClip,
  kLeakyRelu,
  kHardSigmoid,
  kHardSwish,
  kSigmoid,
  kTanh,
  kSqrt,
  kExp,
  kErf,
  kAbs,
  kNeg,
  kReciprocal,
  kGelu,
  kSoftplus,
  kFloor,
  kCeil,
  kLog,
  kSquare,
  kGeluTanh,
  kSwish,
  kRound,
  kSign,
  kSoftsign,
  kThresholdedRelu,
  kElu,
  kSelu,
  kCelu,
  kMish,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kAsinh,
  kAcosh,
  kAtanh,
};

enum class Binary : std::int32_t { kAdd, kSub, kMul, kDiv, kMin, kMax, kPow, kPRelu };

// Lines of the same length: the next of x, y and z begins so many elements further.
struct Rows {
  std::int64_t count, x, z, y;
};

// What normalizes each channel.
struct ChannelNorm {
  const float* scale;
  const float* bias;
  const float* mean;
  const float* variance;
  double epsilon;
};

struct Loops {
  // y[i] = f(x[i]; a, b). y may be x. `past`: y is written past the caches.
  void (*unary)(Unary f, float a, float b, const float* x, float* y, std::int64_t n, bool past, const Epilogue* epilogue);
  // y[i] = x[i * x_step] op z[i * z_step] in each row; steps are 0 or 1. y may be x or z.
  void (*binary)(Binary op, const float* x, std::int64_t x_step, const float* z, std::int64_t z_step, float* y, std::int64_t n,
                 Rows rows, bool past, const Epilogue* epilogue);
  // y[i] = scale * (x[i] - center) + offset.
  void (*affine)(float center, float scale, float offset, const float* x, float* y, std::int64_t n, const Epilogue* epilogue);
  // y[r * y_step + i] = scale[i] * x[r * x_step + i] + offset[i] for r < rows, i < n.
  void (*affine_rows)(const float* scale, const float* offset, const float* x, std::int64_t x_step, float* y, std::int64_t y_step,
                      std::int64_t rows, std::int64_t n, const Epilogue* epilogue);
  // to_scale[i] = scale[i] / sqrt(variance[i] + epsilon) and to_offset[i] = bias[i] - mean[i] * that, in float64 and rounded once.
  void (*norm_of_channels)(const ChannelNorm& norm, std::int64_t n, float* to_scale, float* to_offset);
  // y[i] between four lines: b and d (c and d) count as much as `right` (`below`) says, 0 to 1.
  void (*bilinear)(const float* a, const float* b, const float* c, const float* d, float right, float below, float* y,
                   std::int64_t n);
  // y[2 * i] += a[i] and y[2 * i + 1] += b[i].
  void (*add_in_turns)(const float* a, const float* b, float* y, std::int64_t n);
  // Between float16 and float32; to float16 to nearest, ties to even.
  void (*widen_half)(const std::uint16_t* x, float* y, std::int64_t n);
  void (*narrow_half)(const float* x, std::uint16_t* y, std::int64_t n);
  // The epilogue alone, in place.
  void (*chain)(float* y, std::int64_t n, const Epilogue* epilogue);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_elementwise
