#include "cli/assertion.h"

#include <algorithm>

#include "cli/failure.h"
#include "cli/values.h"

namespace evn::cli {
namespace {

constexpr std::size_t kMostNodes = 20;

[[noreturn]] void stop(const std::string& text, std::size_t at, const char* wanted) {
  fail_usage("--assert %s: %s was expected at character %zu; as in op(Conv)=gpu, name(decoder/*)!=cpu or all=gpu",
             printable(text).c_str(), wanted, at + 1);
}

bool is_of_device_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-' || c == ':';
}

// The bytes of the character at the front of a text, which need not be UTF-8.
std::size_t character_length(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size() && length < 4 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) ++length;
  return length;
}

}  // namespace

Assertion parse_assertion(const std::string& text) {
  Assertion a;
  a.text = text;
  std::size_t open = 0;  // behind the bracket
  std::size_t end = 3;   // of the left side
  if (text.compare(0, 3, "op(") == 0) {
    a.subject = Assertion::Subject::kOperator;
    open = 3;
  } else if (text.compare(0, 5, "name(") == 0) {
    a.subject = Assertion::Subject::kName;
    open = 5;
  } else if (text.compare(0, 3, "all") != 0) {
    stop(text, 0, "op(NAME), name(GLOB) or all");
  }
  if (open != 0) {
    // Names may have brackets and signs of equality, devices have none.
    const std::size_t equals = text.rfind('=');
    const std::size_t close = text.rfind(')', equals);
    if (close == std::string::npos || close < open) stop(text, equals == std::string::npos ? text.size() : equals, ")");
    if (close == open) stop(text, open, "a name");
    a.pattern = text.substr(open, close - open);
    end = close + 1;
  }
  if (text.compare(end, 2, "!=") == 0) {
    a.equal = false;
    end += 2;
  } else if (text.compare(end, 1, "=") == 0) {
    end += 1;
  } else {
    stop(text, end, "= or !=");
  }
  a.device = text.substr(end);
  if (a.device.empty()) stop(text, end, "the name of a device");
  const auto wrong = std::find_if_not(a.device.begin(), a.device.end(), is_of_device_name);
  if (wrong != a.device.end())
    stop(text, end + static_cast<std::size_t>(wrong - a.device.begin()), "a character of a device's name");
  return a;
}

bool glob_matches(std::string_view pattern, std::string_view text) {
  std::string_view retry_pattern, retry_text;  // from the last star on
  bool starred = false;
  while (!text.empty()) {
    if (!pattern.empty() && pattern[0] == '*') {
      pattern.remove_prefix(1);
      starred = true;
      retry_pattern = pattern;
      retry_text = text;
    } else if (!pattern.empty() && pattern[0] == '?') {
      pattern.remove_prefix(1);
      text.remove_prefix(character_length(text));
    } else if (!pattern.empty() && pattern[0] == text[0]) {
      pattern.remove_prefix(1);
      text.remove_prefix(1);
    } else if (starred) {  // the star takes one character more
      retry_text.remove_prefix(character_length(retry_text));
      text = retry_text;
      pattern = retry_pattern;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*') == std::string_view::npos;
}

bool is_about(const Assertion& assertion, const Json& node) {
  if (node["kernel"].text == "planned") return false;
  if (assertion.subject == Assertion::Subject::kAll) return true;
  if (assertion.subject == Assertion::Subject::kOperator) return node["op"].text == assertion.pattern;
  const auto matches = [&](const Json& name) { return glob_matches(assertion.pattern, name.text); };
  const std::vector<Json>& fused = node["fused"].elements;
  return matches(node["name"]) || std::any_of(fused.begin(), fused.end(), matches);
}

std::string contradictions(const Assertion& assertion, const std::string& device, const Json& explanation) {
  std::size_t about = 0, wrong = 0;
  std::string lines;
  for (const Json& node : explanation["nodes"].elements) {
    if (!is_about(assertion, node)) continue;
    ++about;
    if ((node["device"].text == device) == assertion.equal || ++wrong > kMostNodes) continue;
    lines += "\n  " + printable(node["name"].text) + " (" + printable(node["op"].text) + ") is on " + node["device"].text + ": " +
             printable(node["reason"].text);
    if (const std::string& refused = node["refused"].text; !refused.empty()) lines += "; refused by " + printable(refused);
  }
  const std::string head = "--assert " + printable(assertion.text) + ": ";
  if (about == 0) return head + "no node that a device runs matches; evener explain without --assert lists them";
  if (wrong == 0) return "";
  if (wrong > kMostNodes) lines += "\n  and " + std::to_string(wrong - kMostNodes) + " more";
  return head + std::to_string(wrong) + " of " + std::to_string(about) + " nodes contradict it" + lines;
}

}  // namespace evn::cli
