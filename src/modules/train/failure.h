// Errors of the module: thrown as Failure, turned into statuses where the library calls (module.cc).
#pragma once

#include "device/train_module.h"

namespace evn_train {

struct Failure {
  evn_error error = EVN_ERROR_INIT;
};

[[noreturn, gnu::format(printf, 2, 3)]] void fail(evn_status status, const char* format, ...);

// Set by the library when it opens the module.
extern const evn_train_host* g_host;
inline const evn_api& api() { return *g_host->api; }

// Throws what a call of the library has reported.
void check(evn_status status, const evn_error& error);

// Calls a function of the library whose last parameter is the error.
template <typename F, typename... Args>
void call(F function, Args... args) {
  evn_error error = EVN_ERROR_INIT;
  check(function(args..., &error), error);
}

}  // namespace evn_train
