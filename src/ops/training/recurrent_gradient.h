// The operators that graph/gradient puts in for the recurrent part of LSTM, GRU and RNN: input, output and attribute indices.
// recurrent_gradient.cc says what they compute.
#pragma once

#include "ops/recurrent.h"

namespace evn {

inline constexpr const char kRecurrentStates[] = "RecurrentStates";
inline constexpr const char kLstmGradient[] = "LSTMGradient";
inline constexpr const char kGruGradient[] = "GRUGradient";
inline constexpr const char kRnnGradient[] = "RNNGradient";

struct RecurrentStatesInput {
  enum : int { kY, kLengths, kInitialH };
};
struct RecurrentStatesAttr {
  enum : int { kDirection, kLayout, kIndex };
};

struct RecurrentGradientInput {
  enum : int { kY, kSums, kR, kLengths, kDy, kDyH };
  enum : int { kDyC = 6, kInitialC, kPeepholes };  // of LSTMGradient
  enum : int { kBefore = 6, kRecurrent };          // of GRUGradient
};
struct RecurrentGradientOutput {
  enum : int { kDSums, kDInitialH };
  enum : int { kDInitialC = 2, kDPeepholes };  // of LSTMGradient
  enum : int { kDRecurrent = 2 };              // of GRUGradient: with linear_before_reset; else r . h
};

// The direction that a node of one of these operators is for.
int recurrent_index(const Node& node, const RecurrentSpec& spec);

// The form of the operator that the node differentiates.
const RecurrentForm& recurrent_gradient_form(const Node& node);
// The sizes by the shape of the forward node's output 0; `inputs` is not set.
RecurrentSizes recurrent_output_sizes(bool batch_first, const Shape& y);

}  // namespace evn
