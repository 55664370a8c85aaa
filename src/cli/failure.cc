#include "cli/failure.h"

#include <cstdarg>
#include <cstdio>

namespace evn::cli {
namespace {

std::string format_text(const char* format, std::va_list args) {
  char text[2048];
  std::vsnprintf(text, sizeof text, format, args);
  return text;
}

ExitCode code_of(evn_status status, ExitCode otherwise) {
  switch (status) {
    case EVN_ERROR_CONFIG: return kExitConfig;
    case EVN_ERROR_INVALID_MODEL:
    case EVN_ERROR_UNSUPPORTED: return kExitModel;
    case EVN_ERROR_DEVICE_UNAVAILABLE:
    case EVN_ERROR_DEVICE_LOST: return kExitDevice;
    default: return otherwise;
  }
}

}  // namespace

void fail_usage(const char* format, ...) {
  std::va_list args;
  va_start(args, format);
  Failure failure{kExitUsage, format_text(format, args)};
  va_end(args);
  throw failure;
}

void fail(ExitCode code, const char* format, ...) {
  std::va_list args;
  va_start(args, format);
  Failure failure{code, format_text(format, args)};
  va_end(args);
  throw failure;
}

void Call::check(evn_status status) const {
  if (status != EVN_OK) throw Failure{code_of(status, otherwise_), describe(error_)};
}

std::string describe(const evn_error& error) {
  std::string text = std::string(error.message) + " (" + evn_status_name(error.status) + ")";
  if (error.node[0] != '\0') text += std::string("\n  node: ") + error.node;
  if (error.device[0] != '\0') text += std::string("\n  device: ") + error.device;
  if (error.bytes_requested != 0) {
    text += "\n  bytes asked for: " + std::to_string(error.bytes_requested) + ", left: " + std::to_string(error.bytes_available);
  }
  return text;
}

}  // namespace evn::cli
