// The log of a runtime: lines for a callback, records with fields for a sink. The library never prints: without either, messages
// go nowhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evener/evener.h"

namespace evn {

struct LogSink {
  evn_log_callback callback = nullptr;
  void* user = nullptr;
  evn_log_level level = EVN_LOG_WARNING;
  evn_log_sink sink = nullptr;
  void* sink_user = nullptr;

  bool wants(evn_log_level message_level) const { return (callback != nullptr || sink != nullptr) && message_level <= level; }
};

// One record on its way out. Owns no memory beyond itself; text that it is given must live until write().
class LogEvent {
 public:
  // `event` is one of the names that the header lists; static.
  LogEvent(const LogSink& log, evn_log_level level, const char* event) : log_(log), level_(level), event_(event) {}
  LogEvent& device(const char* name) {
    device_ = name;
    return *this;
  }
  LogEvent& field(const char* key, const char* value);
  LogEvent& field(const char* key, std::uint64_t value);
  // printf-style; no floats.
  [[gnu::format(printf, 2, 3)]] void write(const char* format, ...) const;

 private:
  static constexpr std::size_t kMaxFields = 8;  // more are left out
  const LogSink& log_;
  evn_log_level level_;
  const char* event_;
  const char* device_ = "";
  std::uint32_t count_ = 0;
  evn_log_field fields_[kMaxFields] = {};
  char numbers_[kMaxFields][24] = {};
};

}  // namespace evn
