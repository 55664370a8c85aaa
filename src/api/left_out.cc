#include "api/left_out.h"

#include "api/barrier.h"

namespace evn {

evn_status refuse_left_out(const char* function, const char* feature, evn_error* error) noexcept {
  return guarded(error, [&] {
    fail(EVN_ERROR_UNSUPPORTED, "%s: this build of the library has no feature \"%s\" (EVN_FEATURES)", function, feature);
  });
}

}  // namespace evn
