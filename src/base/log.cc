#include "base/log.h"

#include <charconv>
#include <cstdarg>
#include <cstdio>

#include "base/float_environment.h"
#include "base/os/os.h"

namespace evn {

LogEvent& LogEvent::field(const char* key, const char* value) {
  if (count_ < kMaxFields) fields_[count_++] = {key, value};
  return *this;
}

LogEvent& LogEvent::field(const char* key, std::uint64_t value) {
  if (count_ == kMaxFields) return *this;
  char* text = numbers_[count_];
  *std::to_chars(text, text + sizeof numbers_[0] - 1, value).ptr = '\0';
  return field(key, text);
}

void LogEvent::write(const char* format, ...) const {
  if (!log_.wants(level_)) return;
  char text[1024];
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  const HostFloatEnvironment hosts;
  if (log_.callback != nullptr) log_.callback(log_.user, level_, text);
  if (log_.sink == nullptr) return;
  evn_log_record record{};
  record.struct_size = sizeof record;
  record.level = level_;
  record.timestamp_ns = os::now_ns();
  record.message = text;
  record.event = event_;
  record.device = device_;
  record.node = "";
  record.fields = fields_;
  record.field_count = count_;
  log_.sink(log_.sink_user, &record);
}

}  // namespace evn
