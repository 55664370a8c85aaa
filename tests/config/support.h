// Parsing a configuration that must fail, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "api/builtin.h"
#include "base/error.h"
#include "config/config.h"

namespace evn {

// For devices of the built-in backends.
inline Config parse_config(const std::string& text, const std::string& source) {
  return parse_config(text, source, builtin_device_types());
}
inline Config load_config(const std::string& path) { return load_config(path, builtin_device_types()); }

// The error of a text, or an Error with EVN_OK when it parses.
inline Error config_error(const std::string& text, const std::string& source = "c.yaml") {
  try {
    parse_config(text, source);
  } catch (const Error& e) {
    return e;
  }
  Error none;
  none.status = EVN_OK;
  return none;
}

// True when `text` gives EVN_ERROR_CONFIG with exactly `message` after "c.yaml:".
inline testing::AssertionResult fails_with(const std::string& text, const std::string& message) {
  const Error e = config_error(text);
  if (e.status == EVN_ERROR_CONFIG && e.message == "c.yaml:" + message) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\n"
                                     << text << "\ngives " << e.status << ": " << e.message
                                     << "\nnot             c.yaml:" << message;
}

// The same with `part` somewhere in the message.
inline testing::AssertionResult fails_about(const std::string& text, const std::string& part) {
  const Error e = config_error(text);
  if (e.status == EVN_ERROR_CONFIG && std::string(e.message).find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\n"
                                     << text.substr(0, 200) << "\ngives " << e.status << ": " << e.message << "\nwithout: " << part;
}

}  // namespace evn
