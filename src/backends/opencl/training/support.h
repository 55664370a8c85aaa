// What the kernels of this folder share. They use nothing of the backend's that is compiled in the library alone.
#pragma once

#include "backends/opencl/kernels/support.h"
#include "ops/gradient.h"
#include "ops/merge.h"

namespace evn {

// A refusal unless all float inputs are float32 and no step is fused; inputs that are integers are the kernel's to look at.
inline Refusal refuse_unless_plain(const OpDesc& desc) {
  for (const TensorDesc& input : desc.inputs) {
    if (input.dtype == DType::kFloat64 || input.dtype == DType::kFloat16 || input.dtype == DType::kBfloat16) return "only float32";
  }
  return desc.node->epilogue.empty() ? nullptr : "no fused steps";
}

inline bool is_wanted(const OpDesc& desc, std::size_t output) {
  return output < desc.outputs.size() && desc.outputs[output].dtype != DType::kUndefined;
}

// A part of scratch memory.
inline Buffer part_of(const Buffer& buffer, std::size_t offset, std::size_t size) {
  return {buffer.memory, buffer.offset + offset, size};
}

}  // namespace evn
