// Fault seams: each kind of call that the outside world can refuse passes one of these, so that a test can make the k-th fail.
// Disarmed, a seam costs one relaxed load.
#pragma once

#include <cstdint>

namespace evn {

enum class Seam : int { kAlloc, kIo, kThread, kDevice };
inline constexpr int kSeamCount = 4;

// True when this call must be refused.
bool fault_hit(Seam seam);

// Arms a seam: call number k (1 is the next one) fails, and with `forever` all after it. k = 0 disarms. For tests; process-wide.
void fault_arm(Seam seam, std::int64_t k, bool forever);

// Calls that passed the seam since fault_count_reset.
std::int64_t fault_count(Seam seam);
void fault_count_reset(Seam seam);

}  // namespace evn
