// What a step computes beyond its node, and how the values that it reads and writes are stored: the result of the lowering passes.
// Only a kernel that offers such a fusion (KernelFusion) sees one; other kernels, and backends that have none, need not look at
// this.
#pragma once

#include <cstdint>

#include "core/graph.h"

namespace evn {

struct OpDesc;

// Parameters of a QLinearAdd in an epilogue. It makes of the node's own result x, rounded to bytes before, and the residual r:
// saturate(round((x - x_zero) * x_scale + (r - r_zero) * r_scale + zero)), in float32. Scales are those of the operands over the
// sum's, no more than 1e6.
struct ByteSum {
  float x_scale = 0, r_scale = 0, zero = 0;
  std::int32_t x_zero = 0, r_zero = 0;
};

struct Fusion {
  // Epilogue fusion: sums that follow the node. Their operands are further inputs, behind the node's own. -1: none.
  int bias = -1;                      // a constant: one element for each channel of a Conv, or column of a product
  int residual = -1;                  // of the shape and in the layout of output 0
  const ByteSum* byte_sum = nullptr;  // the residual is added by a QLinearAdd, and has the dtype of output 0; null: by an Add
  const Node* tail = nullptr;         // the last of these sums, whose epilogue and output the step has; null: none

  // Channel views. Per input, then per output: elements from one position to the next of a value that lies channels last and is a
  // range of a wider value's channels; 0: it lies by itself. null: all do.
  const std::int64_t* pitches = nullptr;

  // 16-bit activation storage: values that are stored as what the kernel rounds its operands to, though their desc says float32.
  // Bit i: input i.
  std::uint32_t stored_16bit = 0;
  static constexpr std::uint32_t kOutputStored16Bit = 1u << 31;  // output 0

  // Paged caches (device/paged.h). Bit i: the buffer of input i is a PageTable, whose rows are those of the last axis but one.
  std::uint32_t paged = 0;
};

// Epilogue fusions that a kernel offers.
inline constexpr std::uint8_t kFusesBias = 1;
inline constexpr std::uint8_t kFusesResidual = 2;
inline constexpr std::uint8_t kFusesByteResidual = 4;  // of a QLinearAdd

// Arguments that may be channel views, where they lie channels last.
inline constexpr std::uint8_t kViewInput = 1;   // input 0
inline constexpr std::uint8_t kViewInputs = 3;  // all of the node's own
inline constexpr std::uint8_t kViewResidual = 4;
inline constexpr std::uint8_t kViewOutputs = 8;

// KernelFusion::channel_views of a kernel that allows the same for every node.
template <std::uint8_t Arguments>
std::uint8_t channel_views(const OpDesc&) {
  return Arguments;
}

// Arguments that may be stored as 16 bits.
inline constexpr std::uint8_t k16BitInput = 1;  // input 0, which the kernel would round
inline constexpr std::uint8_t k16BitResidual = 2;
inline constexpr std::uint8_t k16BitOutput = 4;  // output 0

// Stages of a cascade (device/cascade.h) that a kernel's nodes can be.
inline constexpr std::uint8_t kFirstLayerStage = 1;  // a convolution of few channels that lie in plain order
inline constexpr std::uint8_t kDepthwiseStage = 2;
inline constexpr std::uint8_t kPointwiseStage = 4;  // 1 x 1, one group

// What a kernel offers to the lowering passes.
struct KernelFusion {
  std::uint8_t epilogue = 0;                                 // kFuses...
  std::uint8_t (*channel_views)(const OpDesc& d) = nullptr;  // kView...; null: none
  std::uint8_t storage_16bit = 0;                            // k16Bit...
  std::uint8_t stages = 0;                                   // k...Stage
  std::uint32_t (*paged_inputs)(const OpDesc& d) = nullptr;  // bit i: input i may be paged; null: none
};

}  // namespace evn
