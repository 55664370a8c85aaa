// Attribute values of nodes. A graph attribute (If, Loop, Scan) holds its subgraph.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "core/weight.h"

namespace evn {

struct Graph;

// No value. It is not trivially copyable on purpose: libstdc++ 12 takes a variant of nothing but what moves without throwing for
// one that always has a value, and destroys what is not there when copying it runs out of memory.
struct NoAttribute {
  NoAttribute() = default;
  NoAttribute(const NoAttribute&) noexcept {}
  NoAttribute& operator=(const NoAttribute&) noexcept { return *this; }
  friend bool operator==(const NoAttribute&, const NoAttribute&) { return true; }
};

// The alternatives are in the order of AttributeType.
using AttributeValue = std::variant<NoAttribute, float, std::int64_t, std::string, WeightPtr, std::shared_ptr<Graph>,
                                    std::vector<float>, std::vector<std::int64_t>, std::vector<std::string>, TensorDesc>;

// kType is the type of a value (TypeProto).
enum class AttributeType { kNone, kFloat, kInt, kString, kTensor, kGraph, kFloats, kInts, kStrings, kType };

inline AttributeType attribute_type(const AttributeValue& v) { return static_cast<AttributeType>(v.index()); }

const char* attribute_type_name(AttributeType type);

// Adds the type of the value, and its numbers or texts, to the hash. Tensors, graphs and types of values have their type alone.
void add_value(Hasher* hash, const AttributeValue& value);

struct Attribute {
  std::string name;
  AttributeValue value;
  std::string ref{};  // in the body of a function: the function's attribute that the value comes from; then `value` is empty
};

}  // namespace evn
