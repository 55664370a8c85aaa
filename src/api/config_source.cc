#include "api/config_source.h"

#include "api/builtin.h"
#include "base/error.h"
#include "kept_features.h"

namespace evn {

Config read_config(const ConfigSource& source) {
  // A text whose size is missing would be no configuration, and the limits that it sets would not hold.
  if (source.text != nullptr && source.size == 0)
    fail(EVN_ERROR_INVALID_ARGUMENT, "config_text is given, but config_size is 0: give its number of bytes");
  if (source.text == nullptr && source.size != 0)
    fail(EVN_ERROR_INVALID_ARGUMENT, "config_text is NULL, but config_size is %zu", source.size);
  if (source.path == nullptr && source.text == nullptr) return {};
  if (!kHas_full)
    fail(EVN_ERROR_UNSUPPORTED, "a configuration is given, and this build of the library leaves YAML out (EVN_FEATURES=core)");
  if (source.path != nullptr && source.text != nullptr)
    fail(EVN_ERROR_INVALID_ARGUMENT, "config_path and config_text are both given");
  if (source.path != nullptr) return load_config(source.path, builtin_device_types());
  return parse_config(std::string(source.text, source.size), "<text>", builtin_device_types());
}

}  // namespace evn
