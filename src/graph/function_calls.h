// The functions of a model: which nodes call them, and what their calls come to. See expand_functions.h for the rules.
#pragma once

#include <map>
#include <string_view>
#include <tuple>

#include "core/graph.h"
#include "graph/opsets.h"
#include "ops/custom.h"

namespace evn {

struct Callee {
  const Function* function;
  Domains domains;                  // that the function imports
  std::uint64_t size = 0;           // nodes after expansion; a call counts as one
  std::map<int, bool> is_operator;  // by version: an operator has its name
};

std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b);

template <typename Visit>
void for_each_body(const std::vector<Attribute>& attributes, Visit visit) {
  for (const Attribute& attribute : attributes) {
    const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute.value);
    if (body != nullptr && *body != nullptr) visit(**body);
  }
}

class FunctionCalls {
 public:
  FunctionCalls(const Model& model, const OperatorRegistry* custom);

  // The function that a node of the graph calls, or nullptr: then it is an operator, or unknown. Throws EVN_ERROR_UNSUPPORTED for
  // an overload that is not there, EVN_ERROR_INVALID_MODEL for a call of a domain that is not imported.
  Callee* find(const Node& node) { return find(node, model_domains_); }

  // Adds up the sizes of the functions, callees first. Returns what the graph comes to. Throws EVN_ERROR_INVALID_MODEL on
  // recursion.
  std::uint64_t measure(const Graph& graph);

 private:
  std::map<std::tuple<std::string_view, std::string_view, std::string_view>, Callee> callees_;
  Domains model_domains_;
  const OperatorRegistry* custom_;

  // `domains` are those of the graph or the function that the node stands in.
  Callee* find(const Node& node, const Domains& domains);
  template <typename Where, typename Visit>
  void for_each_call(const Where& where, const Domains& domains, Visit visit);
  template <typename Where>
  std::uint64_t size_of(const Where& where, const Domains& domains);
  [[noreturn]] void refuse_recursion(const std::map<const Callee*, std::size_t>& open);
};

}  // namespace evn
