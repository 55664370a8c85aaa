// Writes JSON into a string: commas and escapes are its business, nesting is the caller's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace evn {

class JsonWriter {
 public:
  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_array() { open('['); }
  void end_array() { close(']'); }
  void key(std::string_view name);
  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(std::int64_t number);
  void value(std::uint64_t number);
  void value(bool b);
  void number(std::string_view digits);  // as it stands: the caller has made a JSON number
  void null();

  template <typename T>
  void field(std::string_view name, const T& v) {
    key(name);
    value(v);
  }
  void field(std::string_view name, const char* v) { field(name, std::string_view(v)); }

  std::string take() { return std::move(text_); }

 private:
  void open(char c);
  void close(char c);
  void separate();
  void quote(std::string_view text);

  std::string text_;
  bool first_ = true;
};

}  // namespace evn
