#include "base/fault.h"

#include <atomic>

namespace evn {
namespace {

struct State {
  std::atomic<bool> watched{false};
  std::atomic<std::int64_t> count{0};
  std::atomic<std::int64_t> first{0};
  std::atomic<bool> forever{false};
};
constinit State g_seams[kSeamCount];

State& state(Seam seam) { return g_seams[static_cast<int>(seam)]; }

}  // namespace

bool fault_hit(Seam seam) {
  State& s = state(seam);
  if (!s.watched.load(std::memory_order_relaxed)) return false;
  const std::int64_t n = s.count.fetch_add(1) + 1;
  const std::int64_t first = s.first.load();
  return first > 0 && (n == first || (n > first && s.forever.load()));
}

void fault_arm(Seam seam, std::int64_t k, bool forever) {
  State& s = state(seam);
  s.watched.store(k > 0);
  s.count.store(0);
  s.forever.store(forever);
  s.first.store(k);
}

std::int64_t fault_count(Seam seam) { return state(seam).count.load(); }

void fault_count_reset(Seam seam) {
  State& s = state(seam);
  s.first.store(0);
  s.count.store(0);
  s.watched.store(true);
}

}  // namespace evn
