// Version and status names.
#include "base/status.h"
#include "evener/evener.h"
#include "version.h"

extern "C" {

const char* evn_version(void) { return EVN_VERSION_STRING; }

uint32_t evn_version_number(void) { return EVN_VERSION_NUMBER; }

const char* evn_status_name(evn_status status) {
  return evn::status_name(status);
}

}  // extern "C"
