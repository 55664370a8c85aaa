// Element-wise steps that are applied to a node's first output where it is made, instead of as nodes of their own.
#pragma once

#include <cstdint>

namespace evn {

// y = f(x; a, b), float32. HardSwish in ONNX's sense is x * HardSigmoid(x).
enum class StepKind : std::int32_t {
  kRelu,         // max(x, 0)
  kClip,         // min(max(x, a), b)
  kLeakyRelu,    // x < 0 ? a * x : x
  kHardSigmoid,  // min(max(a * x + b, 0), 1)
  kHardSwish,    // x * min(max(a * x + b, 0), 1)
  kSigmoid,      // 1 / (1 + exp(-x))
  kTanh,
  kScale,     // a * x
  kOffset,    // x + a
  kGelu,      // x * Phi(x)
  kGeluTanh,  // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
  kSwish,     // x / (1 + exp(-a * x))
};

struct Step {
  StepKind kind;
  float a;
  float b;
};

inline constexpr int kMaxSteps = 8;

// A chain of steps; a plain value that may be handed to code of any instruction set and into OpenCL.
struct Epilogue {
  std::int32_t count = 0;
  Step steps[kMaxSteps] = {};

  bool empty() const { return count == 0; }
  // False when the chain is full.
  bool push(Step step) {
    if (count >= kMaxSteps) return false;
    steps[count++] = step;
    return true;
  }
};

}  // namespace evn
