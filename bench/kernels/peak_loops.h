// The loops of `peak`, one set per instruction-set cluster: peak_loops.cc is compiled once for each.
#pragma once

#include <cstdint>

namespace evn {

struct PeakLoops {
  int lanes;
  // rounds x kPeakChains independent vector multiply-adds; the result depends on all.
  float (*multiply_adds)(std::int64_t rounds);
  float (*read)(const float* from, std::int64_t count);                                       // the sum; count is a multiple of 256
  void (*triad)(float* to, const float* a, const float* b, float scale, std::int64_t count);  // to = a + scale * b
  // The same with stores that pass by the caches; `to` is aligned to a vector.
  void (*triad_past)(float* to, const float* a, const float* b, float scale, std::int64_t count);
  void (*copy)(float* to, const float* from, std::int64_t count, bool past_caches);
};

inline constexpr int kPeakChains = 24;

namespace baseline {
extern const PeakLoops peak_loops;
}
namespace avx2 {
extern const PeakLoops peak_loops;
}
namespace avx512 {
extern const PeakLoops peak_loops;
}

}  // namespace evn
