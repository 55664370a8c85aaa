#include "cli/arguments.h"

#include <charconv>
#include <cstdlib>

#include "cli/failure.h"

namespace evn::cli {

Arguments::Arguments(const Command& command, std::span<const char* const> words) {
  bool options = true;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (options && word == "--") {
      options = false;
    } else if (options && (word == "--help" || word == "-h")) {
      help_ = true;
    } else if (options && word.size() > 1 && word[0] == '-') {
      i += take_option(command, words, i);
    } else {
      operands_.emplace_back(word);
    }
  }
  if (help_) return;
  const std::size_t wanted = command.operand != nullptr ? 1 : 0;
  if (operands_.size() < wanted && command.operand[0] != '[')
    fail_usage("%s needs %s; see evener %s --help", command.name, command.operand, command.name);
  if (operands_.size() > wanted)
    fail_usage("%s: \"%s\" is too much; see evener %s --help", command.name, operands_[wanted].c_str(), command.name);
}

// Returns how many further words the option took.
std::size_t Arguments::take_option(const Command& command, std::span<const char* const> words, std::size_t i) {
  const std::string_view word = words[i];
  const std::size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  for (const Option& option : command.options) {
    if (option.name != name) continue;
    if (!option.repeated && has(name)) fail_usage("%s: %s is given twice", command.name, option.name);
    if (option.value == nullptr) {
      if (equals != std::string_view::npos) fail_usage("%s: %s takes no value", command.name, option.name);
      given_.push_back({option.name, ""});
      return 0;
    }
    if (equals != std::string_view::npos) {
      given_.push_back({option.name, words[i] + equals + 1});
      return 0;
    }
    if (i + 1 == words.size()) fail_usage("%s: %s needs %s", command.name, option.name, option.value);
    given_.push_back({option.name, words[i + 1]});
    return 1;
  }
  fail_usage("%s has no option %.*s; see evener %s --help", command.name, static_cast<int>(name.size()), name.data(), command.name);
}

const char* Arguments::get(std::string_view name) const {
  for (const Given& given : given_) {
    if (given.name == name) return given.value;
  }
  return nullptr;
}

std::vector<std::string> Arguments::all(std::string_view name) const {
  std::vector<std::string> values;
  for (const Given& given : given_) {
    if (given.name == name) values.emplace_back(given.value);
  }
  return values;
}

int parse_count(const char* what, std::string_view text, int min, int max) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < min || number > max) {
    fail_usage("%s must be a whole number from %d to %d, not \"%.*s\"", what, min, max, static_cast<int>(text.size()), text.data());
  }
  return number;
}

double number_of(const Arguments& arguments, const char* option, double least, double most) {
  const char* const text = arguments.get(option);
  if (text == nullptr) return 0;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(value >= least && value <= most)) {
    fail_usage("%s is a number from %g to %g, not \"%s\"", option, least, most, text);
  }
  return value;
}

std::size_t choice_of(const Arguments& arguments, const char* option, std::span<const std::string_view> words) {
  const char* const text = arguments.get(option);
  if (text == nullptr) return 0;
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == text) return i;
    list += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + std::string(words[i]);
  }
  fail_usage("%s is %s, not \"%s\"", option, list.c_str(), text);
}

std::pair<std::string, std::string> parse_assignment(const char* option, const std::string& text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    fail_usage("%s takes NAME=VALUE, not \"%s\"", option, text.c_str());
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

}  // namespace evn::cli
