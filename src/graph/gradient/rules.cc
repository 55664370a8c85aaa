// See rules.h. The list of all tables, and what rules read of a node.
#include "graph/gradient/rules.h"

#include <algorithm>

#include "base/error.h"
#include "graph/opsets.h"
#include "ops/infra/check.h"

namespace evn {
namespace {

// Their results are integers or flags, or do not change with small changes of the inputs.
constexpr GradientRule kRows[] = {
    {"Shape", nullptr},
    {"Size", nullptr},
    {"Equal", nullptr},
    {"Greater", nullptr},
    {"GreaterOrEqual", nullptr},
    {"Less", nullptr},
    {"LessOrEqual", nullptr},
    {"And", nullptr},
    {"Or", nullptr},
    {"Not", nullptr},
    {"Xor", nullptr},
    {"IsNaN", nullptr},
    {"IsInf", nullptr},
    {"ArgMax", nullptr},
    {"ArgMin", nullptr},
    {"NonZero", nullptr},
    {"Sign", nullptr},
    {"Floor", nullptr},
    {"Ceil", nullptr},
    {"Round", nullptr},
    {"ConstantOfShape", nullptr},
    {"EyeLike", nullptr},
    {"RandomNormalLike", nullptr},
    {"RandomUniformLike", nullptr},
    {"Bernoulli", nullptr},
    {"Hardmax", nullptr},
};

}  // namespace

extern const GradientRules kIndifferent = kRows;

GradientRuleIndex::GradientRuleIndex() {
  for (const GradientRules* rules :
       {&kElementwiseGradients, &kShapeGradients, &kReduceGradients, &kProductGradients, &kWindowGradients, &kNormGradients,
        &kRankGradients, &kRecurrentGradients, &kAttentionGradients, &kLoopGradients, &kIndifferent}) {
    for (const GradientRule& rule : *rules)
      EVN_CHECK(rules_.emplace(std::pair(std::string_view(rule.domain), std::string_view(rule.op)), &rule).second);
  }
}

const GradientRule* GradientRuleIndex::find(const Node& node) const {
  const auto it = rules_.find({node.domain, node.op_type});
  return it == rules_.end() ? nullptr : it->second;
}

const AttributeValue* Backward::attribute(std::string_view name) const {
  const std::span<const AttributeSpec> specs = node.op->attributes;
  for (std::size_t i = 0; i < specs.size() && i < node.resolved.size(); ++i) {
    if (name == specs[i].name) return attribute_type(node.resolved[i]) == AttributeType::kNone ? nullptr : &node.resolved[i];
  }
  return nullptr;
}

std::int64_t Backward::integer(std::string_view name, std::int64_t otherwise) const {
  const AttributeValue* value = attribute(name);
  return value == nullptr ? otherwise : std::get<std::int64_t>(*value);
}

float Backward::real(std::string_view name, float otherwise) const {
  const AttributeValue* value = attribute(name);
  return value == nullptr ? otherwise : std::get<float>(*value);
}

const std::string* Backward::text(std::string_view name) const {
  const AttributeValue* value = attribute(name);
  return value == nullptr ? nullptr : &std::get<std::string>(*value);
}

const std::vector<std::int64_t>* Backward::list(std::string_view name) const {
  const AttributeValue* value = attribute(name);
  return value == nullptr ? nullptr : &std::get<std::vector<std::int64_t>>(*value);
}

Tape::Attributes Backward::copied(std::initializer_list<std::string_view> names) const {
  Tape::Attributes found;
  for (const Attribute& a : node.attributes) {
    if (std::find(names.begin(), names.end(), a.name) != names.end()) found.push_back(a);
  }
  return found;
}

ValueId Backward::list_or_input(std::string_view name, std::size_t input) {
  if (const std::vector<std::int64_t>* values = list(name)) return tape.ints(*values);
  return x(input);
}

void Backward::refuse(const char* why) const {
  throw make_error(EVN_ERROR_UNSUPPORTED, "operator %.64s (domain %.64s) of node '%.96s' cannot be differentiated: %s",
                   node.op_type.c_str(), shown_domain(node), node.name.c_str(), why)
      .with_node(node.name.c_str());
}

int Backward::known_rank(std::size_t input) const {
  const int rank = tape.rank(x(input));
  if (rank < 0) refuse("the rank of its input is not known");
  return rank;
}

int Backward::axis_of(std::int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank) refuse("its axis is outside the rank");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace evn
