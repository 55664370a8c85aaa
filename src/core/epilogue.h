// Element-wise operations that are applied to a node's first output where it is made, instead of as nodes of their own.
#pragma once

#include <cstdint>

namespace evn {

// y = f(x; a, b), float32. HardSwish in ONNX's sense is x * HardSigmoid(x).
enum class EpilogueOpKind : std::int32_t {
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

struct EpilogueOp {
  EpilogueOpKind kind;
  float a;
  float b;
};

inline constexpr int kMaxEpilogueOps = 8;

// A chain of operations; a plain value that may be handed to code of any instruction set and into OpenCL.
struct Epilogue {
  std::int32_t count = 0;
  EpilogueOp ops[kMaxEpilogueOps] = {};

  bool empty() const { return count == 0; }
  // False when the chain is full.
  bool push(EpilogueOp op) {
    if (count >= kMaxEpilogueOps) return false;
    ops[count++] = op;
    return true;
  }
};

}  // namespace evn
