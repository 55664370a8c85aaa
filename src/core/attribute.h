// Attribute values of nodes. A graph attribute (If, Loop, Scan) holds its subgraph.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/weight.h"

namespace evn {

struct Graph;

// The alternatives are in the order of AttributeType.
using AttributeValue = std::variant<std::monostate, float, std::int64_t, std::string, WeightPtr, std::shared_ptr<Graph>,
                                    std::vector<float>, std::vector<std::int64_t>, std::vector<std::string>, TensorDesc>;

// kType is the type of a value (TypeProto).
enum class AttributeType { kNone, kFloat, kInt, kString, kTensor, kGraph, kFloats, kInts, kStrings, kType };

inline AttributeType attribute_type(const AttributeValue& v) { return static_cast<AttributeType>(v.index()); }

const char* attribute_type_name(AttributeType type);

struct Attribute {
  std::string name;
  AttributeValue value;
  std::string ref{};  // in the body of a function: the function's attribute that the value comes from; then `value` is empty
};

}  // namespace evn
