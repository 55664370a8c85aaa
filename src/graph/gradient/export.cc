// What libevener_train.so gives the graph's passes.
#include "base/lent_meter.h"
#include "base/unwinder.h"
#include "graph/gradient/linked.h"

namespace evn {

void differentiate_here(Graph& graph, const Limits& limits, const std::function<void(Node&)>& complete, WorkMeter& meter) {
  const LentMeter lent(meter);
  differentiate(graph, limits, complete);
}

}  // namespace evn

extern "C" __attribute__((visibility("default"))) evn::Differentiate evn_differentiation(std::uint64_t build,
                                                                                         std::atomic<std::uint64_t>& weight_ids) {
  evn::prepare_unwinder();
  if (build != evn::kGradientBuild) return nullptr;
  evn::WeightIds::count_with(weight_ids);
  return evn::differentiate_here;
}
