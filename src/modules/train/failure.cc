#include "modules/train/failure.h"

#include <cstdarg>
#include <cstdio>

namespace evn_train {

const evn_train_host* g_host = nullptr;

void fail(evn_status status, const char* format, ...) {
  Failure failure;
  failure.error.status = status;
  va_list args;
  va_start(args, format);
  std::vsnprintf(failure.error.message, sizeof failure.error.message, format, args);
  va_end(args);
  throw failure;
}

void check(evn_status status, const evn_error& error) {
  if (status == EVN_OK) return;
  Failure failure;
  failure.error = error;
  failure.error.status = status;
  throw failure;
}

}  // namespace evn_train
