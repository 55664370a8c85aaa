/* How a collective's module reports an error. */
#ifndef EVN_MODULES_COLLECTIVE_REPORT_H
#define EVN_MODULES_COLLECTIVE_REPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "device/collective_module.h"

/* The caller is the library, whose evn_error has the size of this header's. */
__attribute__((format(printf, 3, 4))) static inline evn_status collective_fail(evn_error* error, evn_status status,
                                                                               const char* format, ...) {
  if (error != NULL) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    error->status = status;
  }
  return status;
}

#endif
