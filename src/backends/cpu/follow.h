// Layout hooks (Kernel::layouts): of kernels that want one layout, and of such that can work in either and take their inputs as
// these lie.
#pragma once

#include <algorithm>

#include "device/kernel.h"

namespace evn {

// The first input and the outputs channels last, the other inputs plain: convolutions by a weight.
inline void channels_last(const OpDesc&, std::span<Layout> inputs, std::span<Layout> outputs) {
  std::fill(inputs.begin(), inputs.end(), Layout::kPlain);
  inputs[0] = outputs[0] = Layout::kChannelsLast;
}

// The first output is like the first input, of the same rank; the other inputs and outputs are plain.
inline void follow_first(const OpDesc&, std::span<Layout> inputs, std::span<Layout> outputs) {
  std::fill(inputs.begin() + 1, inputs.end(), Layout::kPlain);
  std::fill(outputs.begin(), outputs.end(), Layout::kPlain);
  outputs[0] = inputs[0];
}

// For kernels that broadcast: channels last as soon as an input of the output's rank with more than one position lies so. Inputs of
// lower rank stay plain; one that reaches to axis 1 of the output must then be a line of channels, as its steps would be others.
inline void follow_broadcast(const OpDesc& d, std::span<Layout> inputs, std::span<Layout> outputs) {
  const int rank = d.outputs[0].shape.rank();
  const auto is_line = [](const Shape& s, int from) {
    for (int i = from; i < s.rank(); ++i) {
      if (s[i] != 1) return false;
    }
    return true;
  };
  bool wanted = false, possible = rank >= 3;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Shape& s = d.inputs[i].shape;
    if (s.rank() == rank) wanted |= inputs[i] == Layout::kChannelsLast && !is_line(s, 2);
    if (s.rank() == rank - 1) possible &= is_line(s, 1);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = wanted && possible && d.inputs[i].shape.rank() == rank ? Layout::kChannelsLast : Layout::kPlain;
  }
  outputs[0] = wanted && possible ? Layout::kChannelsLast : Layout::kPlain;
}

}  // namespace evn
