// How an operator is differentiated: one row in a table of rules_<topic>.cc for each. A rule gets the node and dy, the derivative
// by the node's output, and gives the derivative by each input that is wanted, made of nodes that it puts on the tape. To add an
// operator, add its row, and a case to tests/models/test_gradient.py, where finite differences judge it.
#pragma once

#include <initializer_list>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/gradient/tape.h"
#include "ops/op.h"

namespace evn {

// One node on its way back.
class Backward {
 public:
  Backward(Tape& t, std::size_t forward_number, Node n) : tape(t), node(std::move(n)), number_(forward_number) {}

  Tape& tape;
  const Node node;              // as the model has it: operator and attributes
  std::vector<ValueId> inputs;  // what it reads and makes where the derivative is taken; kNoValue: not given
  std::vector<ValueId> outputs;
  std::vector<ValueId> dys;    // per output; kNoValue: nothing depends on it
  std::vector<bool> wanted;    // per input
  std::vector<ValueId> given;  // the result, per input

  ValueId x(std::size_t i = 0) const { return i < inputs.size() ? inputs[i] : kNoValue; }
  ValueId y(std::size_t i = 0) const { return i < outputs.size() ? outputs[i] : kNoValue; }
  ValueId dy() const { return dys[0]; }
  bool wants(std::size_t i) const { return i < wanted.size() && wanted[i]; }
  void give(std::size_t i, ValueId dx) { given[i] = dx; }
  // Where the operator has broadcast the input.
  void give_sum(std::size_t i, ValueId dx) { give(i, tape.sum_to(x(i), dx)); }
  // An output that the model does not ask for.
  ValueId demand_output(std::size_t i) { return tape.add_output(number_, i); }
  std::size_t forward_number() const { return number_; }  // of the node that makes the outputs

  // Attributes by name; where this version of the operator has none, the default.
  std::int64_t integer(std::string_view name, std::int64_t otherwise = 0) const;
  float real(std::string_view name, float otherwise = 0) const;
  const std::string* text(std::string_view name) const;
  const std::vector<std::int64_t>* list(std::string_view name) const;
  bool has(std::string_view name) const { return attribute(name) != nullptr; }
  // Those of these names that the model gives, for a node with the same ones.
  Tape::Attributes copied(std::initializer_list<std::string_view> names) const;
  // A list that older versions have as an attribute, newer ones as an input; kNoValue: not given.
  ValueId list_or_input(std::string_view name, std::size_t input);

  // For what a rule does not cover. Names the Gradient, the operator and its node.
  [[noreturn]] void refuse(const char* why) const;
  int known_rank(std::size_t input) const;  // or refuses
  int axis_of(std::int64_t axis, int rank) const;

 private:
  std::size_t number_;
  const AttributeValue* attribute(std::string_view name) const;  // nullptr: not given and without default
};

struct GradientRule {
  const char* op;
  void (*emit)(Backward& b);  // nullptr: the result does not depend on the inputs differentiably; nothing goes back through it
  int outputs = 1;            // the outputs that dys may be of; a derivative by another one is refused
  const char* domain = "";
};

using GradientRules = std::span<const GradientRule>;
extern const GradientRules kElementwiseGradients;
extern const GradientRules kShapeGradients;
extern const GradientRules kReduceGradients;
extern const GradientRules kProductGradients;
extern const GradientRules kWindowGradients;
extern const GradientRules kNormGradients;
extern const GradientRules kRankGradients;
extern const GradientRules kRecurrentGradients;
extern const GradientRules kAttentionGradients;
extern const GradientRules kLoopGradients;
extern const GradientRules kIndifferent;

class GradientRuleIndex {
 public:
  GradientRuleIndex();
  // The rule of the node's operator, or nullptr.
  const GradientRule* find(const Node& node) const;

 private:
  std::map<std::pair<std::string_view, std::string_view>, const GradientRule*> rules_;  // by domain and name
};

}  // namespace evn
