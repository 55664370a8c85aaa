#include "base/json_writer.h"

namespace evn {
namespace {

// Length of the well-formed UTF-8 sequence at the start of `s`; 0 when there is none (RFC 3629, table of well-formed sequences).
std::size_t utf8_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned b = byte(0);
  if (b < 0x80) return 1;
  if (b >= 0xc2 && b <= 0xdf) return tail(1) ? 2 : 0;
  if (b >= 0xe0 && b <= 0xef) {
    const bool low_ok = !(b == 0xe0 && byte(1) < 0xa0) && !(b == 0xed && byte(1) > 0x9f);
    return tail(1) && tail(2) && low_ok ? 3 : 0;
  }
  if (b >= 0xf0 && b <= 0xf4) {
    const bool low_ok = !(b == 0xf0 && byte(1) < 0x90) && !(b == 0xf4 && byte(1) > 0x8f);
    return tail(1) && tail(2) && tail(3) && low_ok ? 4 : 0;
  }
  return 0;
}

}  // namespace

void JsonWriter::separate() {
  if (!first_) text_ += ',';
  first_ = false;
}

void JsonWriter::open(char c) {
  separate();
  text_ += c;
  first_ = true;
}

void JsonWriter::close(char c) {
  text_ += c;
  first_ = false;
}

void JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  text_ += ':';
  first_ = true;
}

void JsonWriter::value(std::string_view text) {
  separate();
  quote(text);
}

void JsonWriter::value(std::int64_t number) {
  separate();
  text_ += std::to_string(number);
}

void JsonWriter::value(std::uint64_t number) {
  separate();
  text_ += std::to_string(number);
}

void JsonWriter::value(bool b) {
  separate();
  text_ += b ? "true" : "false";
}

void JsonWriter::number(std::string_view digits) {
  separate();
  text_ += digits;
}

void JsonWriter::null() {
  separate();
  text_ += "null";
}

// Names come from models: bytes that are no UTF-8 are written as U+FFFD, so that the result is always JSON.
void JsonWriter::quote(std::string_view text) {
  static const char kHex[] = "0123456789abcdef";
  text_ += '"';
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const std::size_t length = utf8_length(text.substr(i));
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += text[i];
    } else if (c < 0x20 || c == 0x7f) {
      text_ += "\\u00";
      text_ += kHex[c >> 4];
      text_ += kHex[c & 15];
    } else if (length == 0) {
      text_ += "\xef\xbf\xbd";
    } else {
      text_.append(text.substr(i, length));
    }
    i += length == 0 ? 1 : length;
  }
  text_ += '"';
}

}  // namespace evn
