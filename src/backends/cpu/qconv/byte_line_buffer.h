// QLinearConv, channels last, that makes some lines of an image at a time: what its kernels give to a cascade (cascade.h).
#pragma once

#include "backends/cpu/qgemm/qgemm_plan.h"

namespace evn {

// How a stage stands in its step.
struct Int8Stage {
  std::int64_t lines = 0;     // that are made at a time, at most
  bool may_overread = false;  // simd_qgemm::kOverread bytes behind the input are there
};

// Computes lines of a stage's output, for one thread.
class ByteLineBuffer {
 public:
  // Lines [from, to) of an image. x, y and r, which is added (Fusion::residual), are where its line 0 lies, or would.
  virtual void make(const std::uint8_t* x, std::int64_t from, std::int64_t to, std::uint8_t* y, const std::uint8_t* r) = 0;

 protected:
  ~ByteLineBuffer() = default;
};

// How a kernel makes the ByteLineBuffer of a stage: the memory that it takes, aligned to 64, and the object there. `step` has the
// step's arguments, in which those of the stage begin at `input`.
struct ByteLineBufferKernel {
  std::size_t (*bytes)(const OpDesc& d, const Int8Stage& stage);
  ByteLineBuffer* (*begin)(const KernelArgs& step, const OpDesc& d, int input, const Int8Stage& stage, void* memory,
                           CancelPoints* points);
};
extern const ByteLineBufferKernel conv_lines, depthwise_lines, planes_lines;

// Whether a depthwise QLinearConv runs by planes.
bool runs_by_planes(const OpDesc& d);

// The stage's arguments among those of its step.
inline KernelArgs args_of_stage(const KernelArgs& step, const OpDesc& d, int input) {
  KernelArgs args = step;
  args.desc = &d;
  args.inputs = step.inputs.subspan(static_cast<std::size_t>(input), d.inputs.size());
  args.packed = step.packed.subspan(static_cast<std::size_t>(input), d.inputs.size());
  return args;
}

}  // namespace evn
