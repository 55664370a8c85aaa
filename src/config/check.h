// What a configuration must keep to beyond the types of its keys: names that exist, one CPU, rules that do not contradict
// each other.
#pragma once

#include "config/schema.h"
#include "config/yaml.h"

namespace evn {

// Throws EVN_ERROR_CONFIG. The CPU is always there: it is added in front, as "cpu", when no device of type cpu is declared.
void check_config(const YamlSource& source, ConfigDraft& draft);

}  // namespace evn
