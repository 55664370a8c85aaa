// Element-wise loops of float32: functions of one input, arithmetic of two, and y = a x + b. Each ends with an optional epilogue.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "core/epilogue.h"

namespace evn::simd_elementwise {

enum class Unary : std::int32_t {
  kIdentity, kRelu, kClip, kLeakyRelu, kHardSigmoid, kHardSwish, kSigmoid, kTanh, kSqrt, kExp, kErf, kAbs, kNeg, kReciprocal, kGelu,
  kSoftplus, kFloor, kCeil, kLog, kSquare, kGeluTanh, kSwish, kSin, kCos,
};

enum class Binary : std::int32_t { kAdd, kSub, kMul, kDiv, kMin, kMax, kPow, kPRelu };

// Lines of the same length: y's follow each other, the next of x and z begins so many elements further.
struct Rows {
  std::int64_t count, x, z;
};

struct Loops {
  // y[i] = f(x[i]; a, b). y may be x. `past`: y is written past the caches.
  void (*unary)(Unary f, float a, float b, const float* x, float* y, std::int64_t n, bool past, const Epilogue* epilogue);
  // y[i] = x[i * x_step] op z[i * z_step] in each row; steps are 0 or 1. y may be x or z.
  void (*binary)(Binary op, const float* x, std::int64_t x_step, const float* z, std::int64_t z_step, float* y, std::int64_t n,
                 Rows rows, bool past, const Epilogue* epilogue);
  // y[i] = scale * x[i] + offset.
  void (*affine)(float scale, float offset, const float* x, float* y, std::int64_t n, const Epilogue* epilogue);
  // y[r * n + i] = scale[i] * x[r * n + i] + offset[i].
  void (*affine_rows)(const float* scale, const float* offset, const float* x, float* y, std::int64_t rows, std::int64_t n,
                      const Epilogue* epilogue);
  // y[i] between four lines: b and d (c and d) count as much as `right` (`below`) says, 0 to 1.
  void (*bilinear)(const float* a, const float* b, const float* c, const float* d, float right, float below, float* y, std::int64_t n);
  // The epilogue alone, in place.
  void (*chain)(float* y, std::int64_t n, const Epilogue* epilogue);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_elementwise
