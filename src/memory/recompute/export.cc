// What libevener_train.so gives the planner of runs under a limit.
#include "base/lent_meter.h"
#include "base/unwinder.h"
#include "memory/recompute/search.h"

namespace evn {
namespace {

class Solver final : public RecomputeSolver {
 public:
  Solver(const RecomputeProblem& problem, WorkMeter& meter) : meter_(meter), search_(problem) {}
  std::vector<Recomputation> fit(std::size_t limit) override {
    const LentMeter lent(meter_);
    return search_.fit(limit);
  }
  Recomputation smallest() override {
    const LentMeter lent(meter_);
    return search_.smallest();
  }

 private:
  WorkMeter& meter_;
  RecomputeSearch search_;
};

}  // namespace
}  // namespace evn

extern "C" __attribute__((visibility("default"))) evn::RecomputeSolver* evn_recompute(std::uint64_t build,
                                                                                      const evn::RecomputeProblem& problem,
                                                                                      evn::WorkMeter& meter) {
  evn::prepare_unwinder();
  return build == evn::kRecomputeBuild ? new evn::Solver(problem, meter) : nullptr;
}
