// What the kernel files of this backend share: refusals, sizes of work items, and packed matrices of blocks of 8 rows.
#pragma once

#include "backends/opencl/launcher.h"
#include "ops/infra/window.h"
#include "ops/op.h"

namespace evn {

static_assert(sizeof(EpilogueOp) == 12 && sizeof(Epilogue) == 100, "kernels/common.cl declares the same");

inline constexpr int kBlockRows = 8;  // of packed matrices
inline constexpr int kMaxTileColumns = 32;

inline bool is_float(const TensorDesc& desc) { return desc.dtype == DType::kFloat32; }

// A refusal unless all inputs that are given and output 0 are float32 and no second output is wanted.
inline Refusal refuse_unless_float(const OpDesc& desc) {
  for (const TensorDesc& input : desc.inputs) {
    if (input.dtype != DType::kUndefined && !is_float(input)) return "only float32";
  }
  if (!is_float(desc.outputs[0])) return "only float32";
  for (const TensorDesc& output : desc.outputs.subspan(1)) {
    if (output.dtype != DType::kUndefined) return "only the first output";
  }
  return nullptr;
}

// Indices inside kernels are 32-bit where one image's plane is meant; larger ones are refused while planning.
inline std::int32_t to_int(std::int64_t value) {
  if (value < 0 || value > INT32_MAX) fail(EVN_ERROR_UNSUPPORTED, "a dimension is too large for OpenCL kernels");
  return static_cast<std::int32_t>(value);
}

// Refusal of known dims of 2^31 or more, as kernels count along an axis in 32 bits.
inline Refusal refuse_long_axes(const Shape& shape) {
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] > INT32_MAX) return "an axis is too long";
  }
  return nullptr;
}

// Refusal of known planes whose elements, or the positions of windows on them, do not fit 32 bits.
inline Refusal refuse_large_plane(const WindowAxis& h, const WindowAxis& w) {
  for (const WindowAxis* a : {&h, &w}) {
    if (a->pad_begin + a->input + a->pad_end + a->extent() > INT32_MAX) return "a window reaches too far";
  }
  const double inputs = static_cast<double>(h.input) * static_cast<double>(w.input);
  const double outputs = static_cast<double>(h.output) * static_cast<double>(w.output);
  return inputs > INT32_MAX || outputs > INT32_MAX ? "a plane is too large" : nullptr;
}

// Fails with EVN_ERROR_UNSUPPORTED if there is a refusal. For plans, as dims may be unknown when a kernel is chosen.
inline void fail_if(Refusal refusal) {
  if (refusal != nullptr) fail(EVN_ERROR_UNSUPPORTED, "OpenCL kernels do not take this: %s", refusal);
}

// Rows that vectors of any device's lanes can run along without a rest: `count`, rounded up.
inline constexpr std::int64_t kMostLanes = 16;
inline std::int64_t padded_to_lanes(std::int64_t count) {
  return checked_mul<std::int64_t>(ceil_div(count, kMostLanes), kMostLanes);
}

// Elements of one work item of an element-wise kernel: long pieces for cores, a few vectors for the lanes of a GPU.
inline std::int64_t chunk_elements(const Launcher& cl, std::int64_t total) {
  if (!cl.is_cpu()) return 4 * cl.lanes();
  const std::int64_t piece = total / 64;
  const std::int64_t clamped = piece < 1024 ? 1024 : piece > 65536 ? 65536 : piece;
  return ceil_div(clamped, cl.lanes()) * cl.lanes();
}

// The elements of a list of axes, which is a constant or known when a run is planned. The shape rule has seen to its length.
inline std::size_t read_axes(const OpDesc& desc, int input, std::int64_t (&axes)[kMaxRank]) {
  const Weight* list = desc.constant(input);
  if (list == nullptr) return 0;
  const auto count = static_cast<std::size_t>(list->desc.shape.elements());
  for (std::size_t i = 0; i < count && i < kMaxRank; ++i) {
    if (list->desc.dtype == DType::kInt64) std::memcpy(&axes[i], list->as<char>() + i * sizeof(std::int64_t), sizeof(std::int64_t));
    else axes[i] = list->as<std::int32_t>()[i];
  }
  return count;
}

// The first inputs as shape rules see them: with their values where those are known.
struct KnownInputs {
  static constexpr std::size_t kMost = 5;
  ConstTensor tensors[kMost];
  std::size_t count;
  explicit KnownInputs(const OpDesc& desc) : count(desc.inputs.size() < kMost ? desc.inputs.size() : kMost) {
    for (std::size_t i = 0; i < count; ++i) {
      const Weight* value = desc.constant(static_cast<int>(i));
      tensors[i] = {desc.inputs[i], value != nullptr ? value->as<char>() : nullptr};
    }
  }
  std::span<const ConstTensor> span() const { return {tensors, count}; }
};

// Enqueues the steps that are fused into a node whose kernel does not apply them to what it writes (float32).
void run_epilogue(Launcher& cl, const Buffer& y, std::int64_t elements, const Epilogue& epilogue);

// Enqueues y = a op b of float32 with broadcasting; y may be a where that has its shape.
enum class Arithmetic : std::int32_t { kAdd, kSub, kMul, kDiv };
void run_arithmetic(Launcher& cl, Arithmetic op, const Shape& a_shape, const Buffer& a, const Shape& b_shape, const Buffer& b,
                    const Buffer& y, const Epilogue& epilogue);

// Enqueues a cast of any type that is cast on the device at all.
bool can_cast_to_float(DType dtype);
void run_cast_to_float(Launcher& cl, const Buffer& x, DType dtype, std::int64_t elements, const Buffer& y);

inline void count_bytes(const OpDesc& desc, KernelPlan* plan) {
  plan->bytes = static_cast<double>(desc.outputs[0].size_bytes());
  for (const TensorDesc& input : desc.inputs) {
    if (input.dtype != DType::kUndefined) plan->bytes += static_cast<double>(input.size_bytes());
  }
}

}  // namespace evn
