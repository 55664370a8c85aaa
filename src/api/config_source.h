// A configuration as evn_runtime_options and evn_reconfigure_options give it.
#pragma once

#include <cstddef>

#include "config/config.h"

namespace evn {

struct ConfigSource {
  const char* path;  // nullable, and so is the text; both at once are refused
  const char* text;
  std::size_t size;  // of the text
};

// An empty configuration where there is neither. Throws what load_config and parse_config throw; EVN_ERROR_UNSUPPORTED in a build
// without the feature `config`.
Config read_config(const ConfigSource& source);

}  // namespace evn
