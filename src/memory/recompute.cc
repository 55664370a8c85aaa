#include "memory/recompute.h"

#include "base/error.h"
#include "ops/infra/training_module.h"

namespace evn {

std::unique_ptr<RecomputeSolver> make_recompute_solver(const RecomputeProblem& problem) {
  const auto make = reinterpret_cast<RecomputeFunction>(training_module_symbol(EVN_RECOMPUTE_SYMBOL));
  std::unique_ptr<RecomputeSolver> solver(make != nullptr ? make(kRecomputeBuild, problem, t_work_meter) : nullptr);
  if (solver != nullptr) return solver;
  const char* const why = why_no_training_module();
  fail(EVN_ERROR_UNSUPPORTED, "runs under a limit are planned by libevener_train.so, which cannot be used: %s",
       why != nullptr ? why : "it is of another version");
}

}  // namespace evn
