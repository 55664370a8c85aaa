// Fused element-wise steps on one float, in double inside: the oracle of every fused kernel. NaN goes through each step.
#include <cmath>

#include "ops/op.h"

namespace evn {
namespace {

double clamp(double x, double low, double high) {
  const double above = x < low ? low : x;
  return above > high ? high : above;
}

double step_value(const EpilogueOp& step, double x) {
  const double a = step.a;
  const double b = step.b;
  switch (step.kind) {
    case EpilogueOpKind::kRelu: return x < 0 ? 0 : x;
    case EpilogueOpKind::kClip: return clamp(x, a, b);
    case EpilogueOpKind::kLeakyRelu: return x < 0 ? a * x : x;
    case EpilogueOpKind::kHardSigmoid: return clamp(a * x + b, 0, 1);
    case EpilogueOpKind::kHardSwish: return x * clamp(a * x + b, 0, 1);
    case EpilogueOpKind::kSigmoid: return 1 / (1 + std::exp(-x));
    case EpilogueOpKind::kTanh: return std::tanh(x);
    case EpilogueOpKind::kScale: return a * x;
    case EpilogueOpKind::kOffset: return x + a;
    case EpilogueOpKind::kGelu: return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case EpilogueOpKind::kGeluTanh: return x / (1 + std::exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)));
    case EpilogueOpKind::kSwish: return x / (1 + std::exp(-a * x));
  }
  fail(EVN_ERROR_INTERNAL, "unknown epilogue step %d", static_cast<int>(step.kind));
}

}  // namespace

float apply_epilogue_op(const EpilogueOp& step, float x) { return static_cast<float>(step_value(step, x)); }

float apply_epilogue(const Epilogue& epilogue, float x) {
  for (int i = 0; i < epilogue.count; ++i) x = apply_epilogue_op(epilogue.ops[i], x);
  return x;
}

}  // namespace evn
