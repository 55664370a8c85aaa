// Names of operators that configurations and options give: rules ("Conv", "my.domain::Scale") and patterns ("type:Conv").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ops/custom.h"

namespace evn {

enum class NameCheck : std::uint8_t {
  kMistyped,  // refuses unknown names that look like one of the library's: the host's own may be registered later
  kBare,      // and all unknown names without a domain
  kAll,       // refuses all unknown names
};

// Throws `status` "`where`: there is no operator "conv2d"; did you mean "Conv"?".
void check_operator_names(const std::vector<std::string>& names, const OperatorRegistry& host, NameCheck check, evn_status status,
                          const std::string& where);

// The same for the names in those of the patterns that begin with "type:".
void check_operator_patterns(const std::vector<std::string>& patterns, const OperatorRegistry& host, NameCheck check,
                             evn_status status, const std::string& where);

}  // namespace evn
