#include "config/value.h"

#include <algorithm>
#include <cinttypes>
#include <optional>
#include <string_view>

#include "base/text.h"

namespace evn {
namespace {

constexpr std::size_t kShown = 60;  // bytes of the user's text in a message

bool same_word(std::string_view a, std::string_view lower) {
  return a.size() == lower.size() && std::equal(a.begin(), a.end(), lower.begin(), [](char x, char y) {
           return (x >= 'A' && x <= 'Z' ? static_cast<char>(x + 32) : x) == y;
         });
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return same_word(text, word); });
}

bool looks_boolean(std::string_view text) { return is_one_of(text, {"true", "false", "yes", "no", "on", "off", "y", "n"}); }

// Any YAML 1.1 or 1.2 way to write a number, and what nearly is one.
bool looks_numeric(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (is_one_of(text, {".inf", ".nan"})) return true;
  const std::size_t point = !text.empty() && text[0] == '.' ? 1 : 0;
  if (text.size() <= point || text[point] < '0' || text[point] > '9') return false;
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'o' || text[1] == 'b')) {
    return text.find_first_not_of("0123456789abcdefABCDEF_", 2) == std::string_view::npos;
  }
  return text.find_first_not_of("0123456789_.eE+-") == std::string_view::npos;
}

// What a value is, as a YAML reader sees it.
const char* kind_name(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull: return "nothing (null)";
    case YamlNode::Kind::kList: return "a list";
    case YamlNode::Kind::kMap: return "a map";
    case YamlNode::Kind::kScalar: break;
  }
  if (node.quoted) return "quoted text";
  if (looks_boolean(node.text)) return "a boolean";
  return looks_numeric(node.text) ? "a number" : "text";
}

std::string shown(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar ? " \"" + shorten(node.text, kShown) + "\"" : std::string();
}

[[noreturn]] void fail_type(const YamlSource& source, const Setting& setting, const YamlNode& key, const YamlNode& value,
                            const char* expected) {
  const bool empty = value.kind == YamlNode::Kind::kNull;
  source.fail_at(empty ? key.offset : value.offset, "\"%s\" must be %s, not %s%s", setting.name, expected, kind_name(value),
                 shown(value).c_str());
}

const char* expectation(const Setting& setting) {
  switch (setting.type) {
    case SettingType::kIntegers: return "a whole decimal number or a list of them";
    case SettingType::kInteger: return setting.words[0] != '\0' ? "a whole decimal number or auto" : "a whole decimal number";
    case SettingType::kBytes: return "a size such as 1048576, 64KiB, 512MiB or 2GiB (a whole number and the unit, no blank)";
    case SettingType::kDuration:
      return "a time such as 100us, 2ms, 5s or 1min (a whole number and ns, us, ms, s, min or h, no blank)";
    default: return "";
  }
}

// Where the text is digits only but has no value, it is out of every range or has a leading zero.
std::optional<std::uint64_t> parse_number(SettingType type, std::string_view text) {
  if (type == SettingType::kBytes) return parse_bytes(text);
  if (type == SettingType::kDuration) return parse_duration_ns(text);
  return parse_u64(text);
}

std::string format_number(SettingType type, std::uint64_t number) {
  struct Step {
    std::uint64_t factor;
    const char* name;
  };
  static constexpr Step kBytes[] = {{1ull << 30, "GiB"}, {1ull << 20, "MiB"}, {1ull << 10, "KiB"}};
  static constexpr Step kTimes[] = {{1'000'000'000, "s"}, {1'000'000, "ms"}, {1'000, "us"}};
  const Step* steps = type == SettingType::kBytes ? kBytes : kTimes;
  if (type == SettingType::kBytes || type == SettingType::kDuration) {
    for (const Step* step = steps; step != steps + 3; ++step) {
      if (number >= step->factor && number % step->factor == 0) return std::to_string(number / step->factor) + step->name;
    }
  }
  return std::to_string(number) + (type == SettingType::kDuration ? "ns" : "");
}

std::uint64_t read_number(const YamlSource& source, const Setting& setting, const YamlNode& key, const YamlNode& value) {
  // A size or time has a unit and so may be quoted; a quoted whole number is text.
  const bool plain = setting.type == SettingType::kInteger || setting.type == SettingType::kIntegers;
  const bool scalar = value.kind == YamlNode::Kind::kScalar && !(value.quoted && plain);
  if (!scalar) fail_type(source, setting, key, value, expectation(setting));
  if (setting.words[0] != '\0' && value.text == setting.words) return setting.word_number;
  const std::optional<std::uint64_t> number = parse_number(setting.type, value.text);
  const bool digits = !value.text.empty() && value.text.find_first_not_of("0123456789") == std::string::npos;
  const bool negative = value.text.size() > 1 && value.text[0] == '-' && parse_number(setting.type, value.text.substr(1));
  const bool wraps = digits && value.text[0] != '0' && !number && setting.type != SettingType::kDuration;
  if (!number && !negative && !wraps) fail_type(source, setting, key, value, expectation(setting));
  if (number && *number >= setting.min && *number <= setting.max) return *number;
  const char* const hint = setting.words[0] == '\0' ? "" : setting.type == SettingType::kInteger ? ", or auto" : ", or none";
  source.fail_at(value.offset, "\"%s\" must be from %s to %s%s, not %s", setting.name,
                 format_number(setting.type, setting.min).c_str(), format_number(setting.type, setting.max).c_str(), hint,
                 shorten(value.text, kShown).c_str());
}

bool read_boolean(const YamlSource& source, const Setting& setting, const YamlNode& key, const YamlNode& value) {
  if (value.kind == YamlNode::Kind::kScalar && !value.quoted) {
    if (value.text == "true" || value.text == "false") return value.text == "true";
    if (looks_boolean(value.text)) {
      source.fail_at(value.offset, "\"%s\" must be true or false; \"%s\" is a boolean in YAML 1.1 only", setting.name,
                     value.text.c_str());
    }
  }
  fail_type(source, setting, key, value, "true or false");
}

void read_choice(const YamlSource& source, const Setting& setting, const YamlNode& key, const YamlNode& value, KeyValue* out) {
  std::vector<std::string_view> words;
  for (std::string_view rest = setting.words; !rest.empty();) {
    const std::size_t bar = std::min(rest.find('|'), rest.size());
    words.push_back(rest.substr(0, bar));
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  std::string list;
  for (const std::string_view word : words) list += (list.empty() ? "" : word == words.back() ? " or " : ", ") + std::string(word);
  if (value.kind != YamlNode::Kind::kScalar) fail_type(source, setting, key, value, list.c_str());
  const auto found = std::find(words.begin(), words.end(), value.text);
  if (found == words.end()) {
    const std::string near(nearest(value.text, words));
    source.fail_at(value.offset, "\"%s\" must be %s, not %s%s%s%s%s", setting.name, list.c_str(), kind_name(value),
                   shown(value).c_str(), near.empty() ? "" : "; did you mean \"", near.c_str(), near.empty() ? "" : "\"?");
  }
  out->number = static_cast<std::uint64_t>(found - words.begin());
  out->text = value.text;
}

std::vector<std::string> read_texts(const YamlSource& source, const Setting& setting, const YamlNode& key, const YamlNode& value) {
  std::vector<std::string> texts;
  if (value.kind == YamlNode::Kind::kScalar) {
    texts.push_back(read_text(source, setting.name, value));
  } else if (value.kind == YamlNode::Kind::kList && !value.items.empty()) {
    for (const YamlNode& item : value.items) texts.push_back(read_text(source, setting.name, item));
  } else if (value.kind == YamlNode::Kind::kList) {
    source.fail_at(value.offset, "\"%s\" is an empty list, which matches nothing: leave the key out to match anything",
                   setting.name);
  } else {
    fail_type(source, setting, key, value, "text or a list of texts");
  }
  return texts;
}

std::vector<std::uint64_t> read_integers(const YamlSource& source, const Setting& setting, const YamlNode& key,
                                         const YamlNode& value) {
  if (value.kind == YamlNode::Kind::kScalar) return {read_number(source, setting, key, value)};
  if (value.kind != YamlNode::Kind::kList) fail_type(source, setting, key, value, expectation(setting));
  std::vector<std::uint64_t> numbers;
  for (const YamlNode& item : value.items) numbers.push_back(read_number(source, setting, key, item));
  return numbers;
}

}  // namespace

std::string read_text(const YamlSource& source, const char* what, const YamlNode& node) {
  const bool scalar = node.kind == YamlNode::Kind::kScalar;
  if (!scalar || (!node.quoted && (looks_boolean(node.text) || looks_numeric(node.text)))) {
    source.fail_at(node.offset, "\"%s\" must be text, not %s%s%s", what, kind_name(node), shown(node).c_str(),
                   scalar ? " (quote it if it is meant as text)" : "");
  }
  if (node.text.empty()) source.fail_at(node.offset, "\"%s\" must not be empty", what);
  if (node.text.find('\0') != std::string::npos) source.fail_at(node.offset, "\"%s\" must not contain a NUL", what);
  return node.text;
}

KeyValue read_value(const YamlSource& source, const Setting& setting, const YamlNode& key, const YamlNode& value) {
  KeyValue out;
  out.offset = value.offset;
  out.line = value.line;
  switch (setting.type) {
    case SettingType::kInteger:
    case SettingType::kBytes:
    case SettingType::kDuration:
      out.number = read_number(source, setting, key, value);
      out.text = value.text;
      break;
    case SettingType::kBoolean:
      out.number = read_boolean(source, setting, key, value) ? 1 : 0;
      out.text = value.text;
      break;
    case SettingType::kChoice: read_choice(source, setting, key, value, &out); break;
    case SettingType::kTexts: out.texts = read_texts(source, setting, key, value); break;
    case SettingType::kIntegers: out.numbers = read_integers(source, setting, key, value); break;
    case SettingType::kText:
      if (value.kind == YamlNode::Kind::kNull) fail_type(source, setting, key, value, "text");
      out.text = read_text(source, setting.name, value);
      break;
    case SettingType::kMap:
    case SettingType::kNames:
    case SettingType::kList: break;
  }
  return out;
}

}  // namespace evn
