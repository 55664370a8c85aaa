// One YAML value read as its setting's type, with messages that say what was expected.
#pragma once

#include "config/schema.h"
#include "config/yaml.h"

namespace evn {

// `key` is the value's key, for messages and for the place of an empty value. Throws EVN_ERROR_CONFIG.
KeyValue read_value(const YamlSource& source, const Setting& setting, const YamlNode& key, const YamlNode& value);

// The text of a name or value that must be text: quoted, or plain and nothing that YAML reads as a number, boolean or null.
// `what` names it in messages.
std::string read_text(const YamlSource& source, const char* what, const YamlNode& node);

}  // namespace evn
