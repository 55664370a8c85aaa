// Products of bytes and of bfloat16 for `peak`: peak_dots.cc is compiled once for each instruction set that multiplies them in its
// own way.
#pragma once

#include <cstdint>

namespace evn {

struct PeakDots {
  // Sums of products without memory; each does `rounds` times as many operations (a product and its addition are two) as is said
  // beside it. nullptr where the instruction set has no such products.
  std::int64_t int8_operations;
  void (*int8)(std::int64_t rounds);
  std::int64_t bf16_operations;
  void (*bf16)(std::int64_t rounds);
};

// clang-format off
namespace avx2 { extern const PeakDots peak_dots; }
namespace avx2_vnni { extern const PeakDots peak_dots; }
namespace avx512 { extern const PeakDots peak_dots; }
namespace avx512_vnni { extern const PeakDots peak_dots; }
namespace avx512_bf16 { extern const PeakDots peak_dots; }
namespace avx512_amx { extern const PeakDots peak_dots; }
// clang-format on

}  // namespace evn
