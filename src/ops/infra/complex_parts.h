// Operators that are sums with real factors, on complex numbers: their references see the real and the imaginary parts, one after
// the other.
#pragma once

#include <vector>

#include "ops/infra/numeric.h"

namespace evn {

// Calls f(context, part) for part 0 (real) and 1 (imaginary), with input 0 and output 0, which are complex, replaced by that part
// of them.
template <typename F>
void for_each_complex_part(const ReferenceContext& c, F&& f) {
  const DType dtype = complex_part(c.input(0).desc.dtype);
  dispatch_floats(dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> x(static_cast<std::size_t>(c.input(0).desc.shape.elements())),
        y(static_cast<std::size_t>(c.output().desc.shape.elements()));
    std::vector<ConstTensor> inputs(c.inputs.begin(), c.inputs.end());
    std::vector<MutableTensor> outputs(c.outputs.begin(), c.outputs.end());
    inputs[0] = {{dtype, c.input(0).desc.shape}, x.data()};
    outputs[0] = {{dtype, c.output().desc.shape}, y.data()};
    for (std::size_t part = 0; part < 2; ++part) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        cancellation_point();
        x[i] = c.input(0).as<T>()[2 * i + part];
      }
      f(ReferenceContext{c.node, inputs, outputs, c.services}, static_cast<int>(part));
      for (std::size_t i = 0; i < y.size(); ++i) {
        cancellation_point();
        c.output().as<T>()[2 * i + part] = y[i];
      }
    }
  });
}

}  // namespace evn
