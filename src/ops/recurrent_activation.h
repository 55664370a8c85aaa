// The activations of LSTM, GRU and RNN as plain values, which may be handed to code of any instruction set.
#pragma once

#include <cstdint>

namespace evn {

enum class ActivationKind : std::int32_t {
  kSigmoid,  // 1 / (1 + exp(-x))
  kTanh,
  kRelu,             // max(x, 0)
  kAffine,           // a * x + b
  kLeakyRelu,        // x < 0 ? a * x : x
  kThresholdedRelu,  // x > a ? x : 0
  kScaledTanh,       // a * tanh(b * x)
  kHardSigmoid,      // min(max(a * x + b, 0), 1)
  kElu,              // x < 0 ? a * (exp(x) - 1) : x
  kSoftsign,         // x / (1 + |x|)
  kSoftplus,         // log(1 + exp(x))
};

struct Activation {
  ActivationKind kind = ActivationKind::kTanh;
  float a = 0;
  float b = 0;
};

}  // namespace evn
