#include "core/attribute.h"

namespace evn {

const char* attribute_type_name(AttributeType type) {
  static constexpr const char* kNames[] = {"none",  "float",  "int",  "string",  "tensor",
                                           "graph", "floats", "ints", "strings", "type"};
  return kNames[static_cast<int>(type)];
}

}  // namespace evn
