#include "base/log.h"

#include <cstdarg>
#include <cstdio>

namespace evn {

void LogSink::write(evn_log_level message_level, const char* format, ...) const {
  if (callback == nullptr || message_level > level) return;
  char text[1024];
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  callback(user, message_level, text);
}

}  // namespace evn
