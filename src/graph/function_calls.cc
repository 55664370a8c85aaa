// See function_calls.h.
#include "graph/function_calls.h"

#include "base/error.h"
#include "ops/op.h"

namespace evn {
namespace {

template <typename Visit>
void for_each_node(const Graph& graph, Visit visit) {
  for (const Node& node : graph.nodes) {
    cancellation_point(kNodeWork);
    visit(node);
    for_each_body(node.attributes, [&](const Graph& body) { for_each_node(body, visit); });
  }
}
template <typename Visit>
void for_each_node(const Function& function, Visit visit) {
  for_each_node(function.body, visit);
  for_each_body(function.defaults, [&](const Graph& body) { for_each_node(body, visit); });
}

}  // namespace

std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

FunctionCalls::FunctionCalls(const Model& model, const OperatorRegistry* custom)
    : model_domains_(import_domains(model.opsets)), custom_(custom) {
  for (const Function& f : model.functions) {
    callees_.emplace(std::make_tuple(std::string_view(f.domain), std::string_view(f.name), std::string_view(f.overload)),
                     Callee{&f, import_domains(f.opsets), 0, {}});
  }
}

Callee* FunctionCalls::find(const Node& node, const Domains& domains) {
  const auto it = callees_.find({node.domain, node.op_type, node.overload});
  if (it == callees_.end()) {
    if (node.overload.empty()) return nullptr;
    throw make_error(EVN_ERROR_UNSUPPORTED, "the model has no function %.128s (domain %.64s) with overload '%.64s'",
                     node.op_type.c_str(), shown_domain(node), node.overload.c_str())
        .with_node(node.name.c_str());
  }
  const int version = imported_version(node, domains);
  Callee& callee = it->second;
  if (!node.overload.empty()) return &callee;
  auto known = callee.is_operator.find(version);
  if (known == callee.is_operator.end()) {
    known = callee.is_operator.emplace(version, find_op(custom_, node.domain, node.op_type, version) != nullptr).first;
  }
  return known->second ? nullptr : &callee;
}

template <typename Where, typename Visit>
void FunctionCalls::for_each_call(const Where& where, const Domains& domains, Visit visit) {
  for_each_node(where, [&](const Node& node) {
    if (Callee* callee = find(node, domains)) visit(callee);
  });
}

template <typename Where>
std::uint64_t FunctionCalls::size_of(const Where& where, const Domains& domains) {
  std::uint64_t size = 0;
  for_each_node(where, [&](const Node&) { size = saturating_add(size, 1); });
  for_each_call(where, domains, [&](const Callee* callee) { size = saturating_add(size, callee->size); });
  return size;
}

std::uint64_t FunctionCalls::measure(const Graph& graph) {
  std::map<const Callee*, std::vector<Callee*>> callers;
  std::map<const Callee*, std::size_t> open;  // calls whose callees are not measured yet
  std::vector<Callee*> ready;
  for (auto& [key, callee] : callees_) {
    for_each_call(*callee.function, callee.domains, [&, caller = &callee](const Callee* called) {
      callers[called].push_back(caller);
      ++open[caller];
    });
    if (open[&callee] == 0) ready.push_back(&callee);
  }
  std::size_t measured = 0;
  for (; !ready.empty(); ++measured) {
    cancellation_point(kNodeWork);
    Callee* callee = ready.back();
    ready.pop_back();
    callee->size = size_of(*callee->function, callee->domains);
    for (Callee* caller : callers[callee]) {
      if (--open[caller] == 0) ready.push_back(caller);
    }
  }
  if (measured < callees_.size()) refuse_recursion(open);
  return size_of(graph, model_domains_);
}

// Walks along calls that are open: it must come back to where it was.
void FunctionCalls::refuse_recursion(const std::map<const Callee*, std::size_t>& open) {
  const Callee* at = nullptr;
  for (const auto& [callee, count] : open) {
    if (count != 0) at = callee;
  }
  std::map<const Callee*, bool> seen;
  while (at != nullptr && !seen[at]) {
    seen[at] = true;
    const Callee* next = nullptr;
    for_each_call(*at->function, at->domains, [&](const Callee* callee) {
      if (open.at(callee) != 0) next = callee;
    });
    at = next;
  }
  EVN_CHECK(at != nullptr);
  fail(EVN_ERROR_INVALID_MODEL, "function %.128s (domain %.64s) calls itself, directly or through others",
       at->function->name.c_str(), at->function->domain.c_str());
}

}  // namespace evn
