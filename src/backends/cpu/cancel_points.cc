#include "backends/cpu/simd/cancel_points.h"

#include "backends/cpu/support.h"

namespace evn {
namespace {

bool look(CancelPoints* p) {
  if (p->stopped) return true;
  p->stopped = static_cast<const Cancel*>(p->cancel)->stop();
  if (!p->stopped) p->left = kTileWorkPerLook;
  return p->stopped;
}

}  // namespace

CancelPoints points_of(const Cancel& cancel) { return {look, &cancel}; }

std::int64_t part_of(std::int64_t unit, std::int64_t work) {
  return std::max<std::int64_t>(1, kTileWorkPerPoint / std::max<std::int64_t>(1, work) / unit) * unit;
}

}  // namespace evn
