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

}  // namespace evn
