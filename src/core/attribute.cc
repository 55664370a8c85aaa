#include "core/attribute.h"

namespace evn {

const char* attribute_type_name(AttributeType type) {
  static constexpr const char* kNames[] = {"none",  "float",  "int",  "string",  "tensor",
                                           "graph", "floats", "ints", "strings", "type"};
  return kNames[static_cast<int>(type)];
}

void add_value(Hasher* hash, const AttributeValue& value) {
  hash->add(value.index());
  if (const auto* f = std::get_if<float>(&value)) hash->add(f, sizeof *f);
  if (const auto* i = std::get_if<std::int64_t>(&value)) hash->add(static_cast<std::uint64_t>(*i));
  if (const auto* s = std::get_if<std::string>(&value)) hash->add(*s);
  if (const auto* f = std::get_if<std::vector<float>>(&value)) hash->add(f->data(), f->size() * sizeof(float));
  if (const auto* i = std::get_if<std::vector<std::int64_t>>(&value)) hash->add(i->data(), i->size() * sizeof(std::int64_t));
  if (const auto* s = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& text : *s) hash->add(text);
  }
}

}  // namespace evn
