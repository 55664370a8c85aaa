// How MatMulNBits quantizes a block of a row where its accuracy_level is 4. Plain functions of floats, for the reference and for
// vectors.
#pragma once

namespace evn {

struct RowQuantization {
  float factor;  // a number is an element times this, rounded to even; 0: all numbers are 0
  float scale;   // of the numbers
};

// By the largest magnitude of the block, which becomes 127. Infinity and NaN make the scale NaN, and what is smaller than any use
// 0.
static inline RowQuantization row_quantization(float largest) {
  if (!(largest < __builtin_inff())) return {0, __builtin_nanf("")};
  if (largest < 0x1p-100f) return {0, 0};
  return {127.0f / largest, largest / 127.0f};
}

}  // namespace evn
