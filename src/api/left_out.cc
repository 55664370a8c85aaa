#include "api/left_out.h"

#include "api/barrier.h"

namespace evn {

evn_status refuse_left_out(const char* function, const char* option, evn_error* error) noexcept {
  return guarded(error, [&] { fail(EVN_ERROR_UNSUPPORTED, "%s: this build of the library leaves it out (%s)", function, option); });
}

}  // namespace evn
