// What libevener_train.so gives the graph's passes.
#include "base/unwinder.h"
#include "graph/gradient/linked.h"

namespace evn {

// This part has its own copy of what a thread has worked; it begins with the caller's.
void differentiate_here(Graph& graph, const Limits& limits, const std::function<void(Node&)>& complete, const WorkMeter& meter) {
  struct Lent {
    const WorkMeter own = t_work_meter;
    ~Lent() { t_work_meter = own; }
  } lent;
  t_work_meter = meter;
  differentiate(graph, limits, complete);
}

}  // namespace evn

extern "C" __attribute__((visibility("default"))) evn::Differentiate evn_differentiation(std::uint64_t build) {
  evn::prepare_unwinder();
  return build == evn::kGradientBuild ? evn::differentiate_here : nullptr;
}
