// See operator_names.h.
#include "ops/operator_names.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>

#include "base/text.h"
#include "ops/merge.h"
#include "ops/op.h"

namespace evn {
namespace {

// Calls take(op) for each row until it returns true.
template <typename F>
bool any_row(std::span<const OpFamily* const> families, F&& take) {
  return std::any_of(families.begin(), families.end(), [&](const OpFamily* family) {
    return std::any_of(family->ops.begin(), family->ops.end(), [&](const OpDef& op) { return take(op); });
  });
}

// Operators that no node has any more when a model is loaded: the loader puts others in their place.
constexpr struct {
  const char *domain, *name;
} kReplaced[] = {{"", "If"}, {"ai.onnx.preview", "FlexAttention"}, {"ai.onnx.preview.training", "Gradient"}};

bool is_replaced(std::string_view text) {
  return std::any_of(std::begin(kReplaced), std::end(kReplaced),
                     [&](const auto& op) { return names_operator(text, op.domain, op.name); });
}

bool has_row(const OperatorWord& word, std::span<const OpFamily* const> families) {
  return any_row(families, [&](const OpDef& op) { return op.name == word.name && (!word.domain || *word.domain == op.domain); });
}

// Lower-case letters and digits of a name, without a number of dims at its end: "max_pool2d" and "MaxPool" are alike.
std::string plain_letters(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      plain.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  const std::size_t n = plain.size();
  if (n > 2 && plain[n - 1] == 'd' && plain[n - 2] >= '1' && plain[n - 2] <= '3') plain.resize(n - 2);
  return plain;
}

// The name of the library's that a mistyped one stands for, in the word's domain if it has one. "": there is none. With `surely`,
// names that a host may well give to an operator of its own, such as "MyConv", "Linear" and "Scale", are not taken for mistyped
// ones.
std::string similar_name(const OperatorWord& word, bool surely) {
  const std::size_t shortest_beginning = surely ? 8 : 5;  // of a longer name
  constexpr std::size_t kShortestStem = 4;                // of a name that has letters behind it
  const std::string plain = plain_letters(word.name);
  if (plain.empty()) return "";
  const std::size_t allowed = surely ? (plain.size() < 8 ? 1 : 2) : std::max<std::size_t>(1, plain.size() / 3);
  std::string whole, stem;
  const char *alike = nullptr, *longer = nullptr, *shorter = nullptr, *nearest = nullptr;
  std::size_t distance = std::min(allowed, plain.size() - 1) + 1;
  any_row(op_families(), [&](const OpDef& op) {
    const std::string_view domain = op.domain;
    if (domain == kInternalDomain || (word.domain && *word.domain != domain)) return false;
    if (surely && !word.domain && !domain.empty()) return false;
    const std::string other = plain_letters(op.name);
    if (other == plain) {
      alike = op.name;
      return true;
    }
    if (plain.size() >= shortest_beginning && other.starts_with(plain) && (longer == nullptr || other.size() < whole.size())) {
      longer = op.name;
      whole = other;
    }
    const bool is_stem = plain.starts_with(other);
    if (is_stem && other.size() >= kShortestStem && other.size() > stem.size()) {
      shorter = op.name;
      stem = other;
    }
    if (surely && (is_stem || plain.ends_with(other))) return false;
    if (const std::size_t d = edit_distance(plain, other); d < distance) {
      nearest = op.name;
      distance = d;
    }
    return false;
  });
  const char* const found = alike != nullptr ? alike : longer != nullptr ? longer : nearest;
  return found != nullptr ? found : !surely && shorter != nullptr ? shorter : "";
}

bool is_onnx(const OperatorWord& word) { return word.domain && (word.domain->empty() || *word.domain == "ai.onnx.ml"); }

[[noreturn]] void refuse(std::string_view text, const OperatorWord& word, evn_status status, const std::string& where) {
  const std::string shown = shorten(text, 60), near = similar_name(word, false);
  const std::string prefix = word.domain ? shown.substr(0, shown.size() - std::min(shown.size(), word.name.size())) : "";
  const std::string guess = near.empty() ? "" : "; did you mean \"" + prefix + near + "\"?";
  if (word.domain && !is_onnx(word)) {
    fail(status, "%s: there is no operator \"%s\", of the library or registered by the host%s", where.c_str(), shown.c_str(),
         guess.c_str());
  }
  const std::string hint = word.domain ? "" : " One that the host registers is written with its domain, as in my.domain::" + shown;
  fail(status, "%s: there is no operator \"%s\"%s%s", where.c_str(), shown.c_str(), guess.empty() ? "." : guess.c_str(),
       hint.c_str());
}

bool is_known(std::string_view text, const OperatorWord& word, const OperatorRegistry& host) {
  if (word.name.empty()) return false;
  return has_row(word, op_families()) || is_replaced(text) || host.has(text) || op_left_out(std::string(word.name));
}

void check_name(std::string_view text, const OperatorRegistry& host, NameCheck check, evn_status status, const std::string& where) {
  const OperatorWord word = parse_operator(text);
  if (is_known(text, word, host)) return;
  const bool may_be_hosts = check == NameCheck::kMistyped || (check == NameCheck::kBare && word.domain);
  if (may_be_hosts && !is_onnx(word) && !word.name.empty() && similar_name(word, true).empty()) return;
  refuse(text, word, status, where);
}

}  // namespace

void check_operator_names(const std::vector<std::string>& names, const OperatorRegistry& host, NameCheck check, evn_status status,
                          const std::string& where) {
  for (const std::string& name : names) check_name(name, host, check, status, where);
}

void check_operator_patterns(const std::vector<std::string>& patterns, const OperatorRegistry& host, NameCheck check,
                             evn_status status, const std::string& where) {
  for (const std::string& pattern : patterns) {
    if (pattern.starts_with(kTypePattern))
      check_name(std::string_view(pattern).substr(kTypePattern.size()), host, check, status, where);
  }
}

}  // namespace evn
