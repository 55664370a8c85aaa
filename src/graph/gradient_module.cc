// See graph/gradient.h: where the rules come from.
#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "graph/gradient.h"
#include "ops/infra/training_module.h"

namespace evn {
namespace {

constinit std::atomic<Differentiate> g_differentiate{nullptr};

Differentiate find_differentiation() {
  if (const Differentiate have = g_differentiate.load(std::memory_order_acquire)) return have;
  const auto open = reinterpret_cast<DifferentiationFunction>(training_module_symbol(EVN_DIFFERENTIATION_SYMBOL));
  const Differentiate found = open != nullptr ? open(kGradientBuild, WeightIds::counter()) : nullptr;
  g_differentiate.store(found, std::memory_order_release);
  return found;
}

}  // namespace

void take_differentiation(Differentiate differentiate) { g_differentiate.store(differentiate, std::memory_order_release); }

bool expand_gradients(Graph& graph, const Limits& limits, const std::function<void(Node&)>& complete) {
  const auto first = std::find_if(graph.nodes.begin(), graph.nodes.end(), is_bound_gradient);
  if (first == graph.nodes.end()) return false;
  if (const Differentiate found = find_differentiation()) {
    found(graph, limits, complete, t_work_meter);
    return true;
  }
  const char* const why = why_no_training_module();
  throw make_error(EVN_ERROR_UNSUPPORTED, "Gradient is differentiated by libevener_train.so, which cannot be used: %s",
                   why != nullptr ? why : "it is of another version")
      .with_node(first->name.c_str());
}

}  // namespace evn
