// What `evener explain --assert` says of a placement: "op(Conv)=gpu", "name(decoder/*)!=cpu", "all=gpu".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/json.h"

namespace evn::cli {

struct Assertion {
  enum class Subject { kAll, kOperator, kName };

  std::string text;  // as it was given
  Subject subject = Subject::kAll;
  std::string pattern;  // the operator, or the glob of names
  bool equal = true;    // =, or !=
  std::string device;
};

// Throws a usage Failure that names the place of a mistake.
Assertion parse_assertion(const std::string& text);

// * stands for any text, ? for one character.
bool glob_matches(std::string_view pattern, std::string_view text);

// Whether the assertion is about a node of an explanation. A glob of names matches by the names of nodes that rewrites have put
// into the node, too. Nodes that only compute shapes when a run is planned are on no device: nothing is about them.
bool is_about(const Assertion& assertion, const Json& node);

// What of the explanation contradicts the assertion, as lines for people, or "". `device`: the device's own name.
std::string contradictions(const Assertion& assertion, const std::string& device, const Json& explanation);

}  // namespace evn::cli
