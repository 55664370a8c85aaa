// Readers of resolved attributes. An index beyond a node's table is an attribute that its operator's version lacks: not given.
#include "ops/op.h"

namespace evn {
namespace {

const AttributeValue* find(const Node& node, int index) {
  if (static_cast<std::size_t>(index) >= node.resolved.size()) return nullptr;
  const AttributeValue& value = node.resolved[index];
  return attribute_type(value) == AttributeType::kNone ? nullptr : &value;
}

template <typename T>
const T& require(const Node& node, int index) {
  const AttributeValue* value = find(node, index);
  EVN_CHECK(value != nullptr && std::holds_alternative<T>(*value));
  return *std::get_if<T>(value);
}

template <typename T>
std::span<const T> list(const Node& node, int index) {
  if (find(node, index) == nullptr) return {};
  return require<std::vector<T>>(node, index);
}

}  // namespace

std::int64_t attr_int(const Node& node, int index) { return require<std::int64_t>(node, index); }
float attr_float(const Node& node, int index) { return require<float>(node, index); }
const std::string& attr_string(const Node& node, int index) { return require<std::string>(node, index); }
std::span<const std::int64_t> attr_ints(const Node& node, int index) { return list<std::int64_t>(node, index); }
std::span<const float> attr_floats(const Node& node, int index) { return list<float>(node, index); }
std::span<const std::string> attr_strings(const Node& node, int index) { return list<std::string>(node, index); }

const Weight* attr_tensor(const Node& node, int index) {
  return find(node, index) == nullptr ? nullptr : require<WeightPtr>(node, index).get();
}

bool attr_given(const Node& node, int index) { return find(node, index) != nullptr; }

}  // namespace evn
