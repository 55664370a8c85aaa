// ConvTranspose where the stride is the kernel's size, in one and two dimensions, with constant weights.
#include "ops/conv_transpose.h"

#include "backends/opencl/kernels/support.h"

namespace evn {
namespace {

constexpr OpenClFunction kTiled{"conv_transpose", "conv_transpose"};
constexpr OpenClFunction kNarrow{"conv_transpose", "conv_transpose_narrow"};

enum : int { kX, kW, kB };

// The struct that conv_transpose.cl takes, laid out as there.
struct Params {
  std::int32_t channels, rows, blocks, in_h, in_w, kernel_h, kernel_w, outputs, has_bias;
};

struct State {
  Params params;
  std::int64_t images;
};

struct Axes {
  WindowAxis h, w;
};

Axes axes_of(const OpDesc& desc) {
  const Window window = conv_transpose_window(*desc.node, desc.inputs[kX].shape, desc.inputs[kW].shape);
  if (window.rank == 1) return {WindowAxis{}, window.axis[0]};
  return {window.axis[0], window.axis[1]};
}

Refusal supports(const OpDesc& desc) {
  constexpr std::int64_t kLongest = 1 << 12;  // the sums of window.cc round less
  if (const Refusal refusal = refuse_unless_float(desc)) return refusal;
  if (desc.inputs[kX].shape.rank() < 3 || desc.inputs[kX].shape.rank() > 4) return "only one or two spatial axes";
  if (desc.constant(kW) == nullptr) return "weights must be constant";
  if (desc.has_input(kB) && desc.constant(kB) == nullptr) return "the bias must be constant";
  if (attr_int(*desc.node, ConvTransposeAttr::kGroup) != 1) return "only one group";
  if (desc.inputs[kW].shape[0] > kLongest) return "its sums are long";
  if (!attr_ints(*desc.node, ConvTransposeAttr::kOutputShape).empty()) return "no output_shape";
  for (const std::int64_t padding : attr_ints(*desc.node, ConvTransposeAttr::kOutputPadding)) {
    if (padding != 0) return "no output_padding";
  }
  const Axes axes = axes_of(desc);
  for (const WindowAxis& axis : {axes.h, axes.w}) {
    if (axis.kernel != axis.stride || axis.pad_begin != 0 || axis.pad_end != 0)
      return "only a stride of the kernel's size, no pads";
    if (axis.dilation != 1 && axis.kernel != 1) return "no dilation";
  }
  return nullptr;
}

std::int64_t matrix_rows(const OpDesc& desc) { return desc.inputs[kW].shape.elements(1, desc.inputs[kW].shape.rank()); }

std::size_t prepack_bytes(const OpDesc& desc, int input) {
  if (input != kW && input != kB) return 0;
  const std::int64_t rows = ceil_div(matrix_rows(desc), kBlockRows) * kBlockRows;
  const std::int64_t depth = input == kW ? desc.inputs[kW].shape[0] : 1;
  return TensorDesc{DType::kFloat32, {rows, depth}}.size_bytes();
}

// The bias is repeated for every tap, so that its packed copy depends on the kernel's size.
std::uint64_t prepack_variant(const OpDesc& desc, int) {
  const Shape& w = desc.inputs[kW].shape;
  return static_cast<std::uint64_t>(w.elements(2, w.rank()));
}

void prepack(const OpDesc& desc, int input, void* packed) {
  const Shape& w = desc.inputs[kW].shape;
  const std::int64_t rows = matrix_rows(desc);
  const std::int64_t taps = w.elements(2, w.rank());
  const float* from = desc.constant(input)->as<float>();
  auto* to = static_cast<float*>(packed);
  for (std::int64_t first = 0; first < rows; first += kBlockRows) {
    for (std::int64_t c = 0; c < (input == kW ? w[0] : 1); ++c) {
      for (std::int64_t r = first; r < first + kBlockRows; ++r) {
        *to++ = r >= rows ? 0.0f : input == kW ? from[c * rows + r] : from[r / taps];
      }
    }
  }
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  const Axes axes = axes_of(desc);
  State& state = plan->state<State>();
  Params& p = state.params;
  p.channels = to_int(desc.inputs[kW].shape[0]);
  p.rows = to_int(matrix_rows(desc));
  p.blocks = to_int(ceil_div(p.rows, kBlockRows));
  p.in_h = to_int(axes.h.input), p.in_w = to_int(axes.w.input);
  p.kernel_h = to_int(axes.h.kernel), p.kernel_w = to_int(axes.w.kernel);
  p.outputs = to_int(desc.inputs[kW].shape[1]);
  p.has_bias = desc.has_input(kB);
  state.images = desc.inputs[kX].shape[0];
  plan->flops = 2.0 * p.channels * static_cast<double>(desc.outputs[0].shape.elements());
  count_bytes(desc, plan);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& state = args.plan->state<State>();
  const Params& p = state.params;
  Launcher& cl = launcher(args);
  const bool narrow = p.in_w < cl.lanes();
  const Buffer& bias = p.has_bias ? args.packed[kB] : args.packed[kW];
  const Grid grid{p.blocks, narrow ? p.in_w : ceil_div(p.in_w, cl.lanes()), checked_mul<std::int64_t>(state.images, p.in_h)};
  cl.run(narrow ? kNarrow : kTiled, grid, args.inputs[kX], args.packed[kW], bias, args.outputs[0], p, args.desc->node->epilogue);
}

constexpr Kernel kKernels[] = {
    {.name = "conv_transpose",
     .op = "ConvTranspose",
     .rank = 10,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack,
     .plan = plan,
     .run = run},
};

}  // namespace

extern const KernelFamily conv_transpose_opencl_kernels;
const KernelFamily conv_transpose_opencl_kernels = {kKernels};

}  // namespace evn
