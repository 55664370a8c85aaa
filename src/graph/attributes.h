// Attributes of a node as the model gives them (Node::attributes): found, read and made by their names. Those that the operator's
// table has completed are Node::resolved.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/graph.h"

namespace evn {

// nullptr: there is none.
const Attribute* find_attribute(std::span<const Attribute> attributes, std::string_view name);

// The value of an attribute of that name and type; `otherwise`, or an empty value, where the node has none.
std::int64_t int_attribute_of(const Node& node, std::string_view name, std::int64_t otherwise);
float float_attribute_of(const Node& node, std::string_view name, float otherwise);
std::vector<std::int64_t> ints_attribute_of(const Node& node, std::string_view name);
std::string text_attribute_of(const Node& node, std::string_view name);

void drop_attribute(Node& node, std::string_view name);
// Replaces an attribute of the same name.
void set_attribute(Node& node, Attribute attribute);

inline Attribute make_attribute(const char* name, AttributeValue value) { return {name, std::move(value), {}}; }

}  // namespace evn
