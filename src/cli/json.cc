#include "cli/json.h"

#include <algorithm>
#include <charconv>

#include "cli/decimal.h"
#include "cli/failure.h"

namespace evn::cli {
namespace {

constexpr int kDeepest = 64;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json parse() {
    Json json = value(0);
    skip_blanks();
    if (at_ != text_.size()) stop("the end");
    return json;
  }

 private:
  [[noreturn]] void stop(const char* wanted) const {
    fail(kExitFailure, "JSON: %s was expected at byte %zu of %zu", wanted, at_, text_.size());
  }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void require(char c) {
    const char wanted[] = {c, '\0'};
    if (!take(c)) stop(wanted);
  }

  Json value(int depth) {
    if (depth > kDeepest) stop("less nesting");
    skip_blanks();
    Json json;
    if (at_ == text_.size()) stop("a value");
    if (text_[at_] == '"') {
      json.kind = Json::Kind::kText;
      json.text = quoted();
    } else if (take('[')) {
      json.kind = Json::Kind::kArray;
      if (take(']')) return json;
      do json.elements.push_back(value(depth + 1));
      while (take(','));
      require(']');
    } else if (take('{')) {
      json.kind = Json::Kind::kObject;
      if (take('}')) return json;
      do {
        skip_blanks();
        std::string key = quoted();
        require(':');
        json.keys.emplace_back(std::move(key), value(depth + 1));
      } while (take(','));
      require('}');
    } else {
      word(&json);
    }
    return json;
  }

  // A number, true, false or null.
  void word(Json* json) {
    const std::size_t end = std::min(text_.find_first_of(",]} \n\r\t", at_), text_.size());
    json->text = std::string(text_.substr(at_, end - at_));
    if (json->text == "true" || json->text == "false") {
      json->kind = Json::Kind::kBoolean;
    } else if (json->text != "null") {
      if (!decimal_of(json->text, true)) stop("a value");
      json->kind = Json::Kind::kNumber;
    }
    at_ = end;
  }

  unsigned hex() {
    unsigned code = 0;
    const char* const first = text_.data() + at_;
    if (text_.size() - at_ < 4) stop("four digits");
    if (const auto [end, error] = std::from_chars(first, first + 4, code, 16); error != std::errc{} || end != first + 4)
      stop("four digits");
    at_ += 4;
    return code;
  }

  std::string quoted() {
    if (at_ == text_.size() || text_[at_] != '"') stop("a string");
    ++at_;
    std::string result;
    while (at_ < text_.size() && text_[at_] != '"') {
      const char c = text_[at_++];
      if (c != '\\') {
        result += c;
        continue;
      }
      const char escape = at_ < text_.size() ? text_[at_++] : '\0';
      static constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
      if (const std::size_t which = kEscapes.find(escape); which != std::string_view::npos && escape != '\0') {
        result += kMeant[which];
      } else if (escape == 'u') {
        append_utf8(hex(), &result);
      } else {
        stop("an escape");
      }
    }
    if (at_ == text_.size()) stop("the end of a string");
    ++at_;
    return result;
  }

  // The library escapes control characters alone: all else is UTF-8 as it stands.
  void append_utf8(unsigned code, std::string* to) const {
    if (code >= 0x80) stop("an escape below \\u0080");
    *to += static_cast<char>(code);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

const Json& Json::operator[](std::string_view key) const {
  static const Json kNothing;
  for (const auto& [name, value] : keys) {
    if (name == key) return value;
  }
  return kNothing;
}

Json parse_json(std::string_view text) { return Parser(text).parse(); }

}  // namespace evn::cli
