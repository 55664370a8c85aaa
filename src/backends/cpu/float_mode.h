// How the processor treats floats below 2^-126, the smallest normal one, while kernels run. Processors of Intel are slow wherever
// an operation meets one, and networks make many: the e^-x of x sigmoid(x) is one wherever x is above 87. docs/decisions/0033.
#pragma once

namespace evn {

struct Kernel;

// While one lives the calling thread flushes, unless the step is strict (OpDesc::strict): results that small become 0, and for
// kernels with packed constants, products and convolutions, such inputs are taken for 0. The reference kernels, and operators of
// the host, keep them. Rounding is to nearest and no exception is raised, whatever the host has set for its thread, which is so
// again afterwards.
class FloatMode {
 public:
  FloatMode(const Kernel& kernel, bool strict) noexcept;
  ~FloatMode();
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  unsigned int before_ = 0;
  bool changed_ = false;
};

}  // namespace evn
