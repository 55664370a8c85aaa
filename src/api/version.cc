// Version and status names.
#include "version.h"
#include "base/status.h"
#include "evener/evener.h"

static_assert(EVN_VERSION_NUMBER == EVN_PROJECT_VERSION, "evener.h and CMakeLists.txt have different versions");
static_assert(EVN_VERSION_MAJOR == EVN_ABI_MAJOR);

extern "C" {

const char* evn_version(void) { return EVN_VERSION_STRING; }

uint32_t evn_version_number(void) { return EVN_VERSION_NUMBER; }

const char* evn_status_name(evn_status status) { return evn::status_name(status); }

}  // extern "C"
