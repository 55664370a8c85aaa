// The log sink of a runtime. The library never prints: without a callback, messages go nowhere.
#pragma once

#include "evener/evener.h"

namespace evn {

struct LogSink {
  evn_log_callback callback = nullptr;
  void* user = nullptr;
  evn_log_level level = EVN_LOG_WARNING;

  [[gnu::format(printf, 3, 4)]] void write(evn_log_level message_level, const char* format, ...) const;
};

}  // namespace evn
