// To what products may round their operands. Their sums, and all that is no product, are float32 whatever this says.
#pragma once

#include <cstdint>

#include "evener/evener.h"

namespace evn {

enum class Precision : std::int32_t {
  kDefault = EVN_PRECISION_DEFAULT,  // whatever the next authority says; float32 at the end
  kFloat32 = EVN_PRECISION_FP32,
  kBfloat16 = EVN_PRECISION_BF16,
  kFloat16 = EVN_PRECISION_FP16,
  kAuto = EVN_PRECISION_AUTO,  // what is fastest on the device
  // What kFloat16 means in a graph with gradients: operands are rounded to float16 on any CPU, and multiplied as float32.
  kFloat16Operands = 16,
};

// Words of the configuration.
inline constexpr char kPrecisionWords[] = "fp32|bf16|fp16|auto";
constexpr const char* precision_name(Precision p) {
  switch (p) {
    case Precision::kBfloat16: return "bf16";
    case Precision::kFloat16:
    case Precision::kFloat16Operands: return "fp16";
    case Precision::kAuto: return "auto";
    default: return "fp32";
  }
}

}  // namespace evn
