// QLinearConv, ConvInteger and ConvIntegerToFloat in one and two dimensions: depthwise, and any other over a copy of the input with
// four channels to a word.
#include "backends/opencl/kernels/quantized.h"
#include "ops/conv.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr OpenClFunction kPad{"quantized_product", "pad_quads"};
constexpr OpenClFunction kConvolve{"quantized_product", "convolve"};
constexpr OpenClFunction kDepthwise{"quantized_product", "convolve_depthwise"};

constexpr std::int64_t kMostDepthwiseTaps = 256;  // 256 * 255 * 255 < 2^24: sums are exact as floats

// The inputs' numbers; -1: the operator has none.
struct Inputs {
  int x, x_zero, w, w_zero, bias, x_scale, w_scale, y_scale, y_zero;
};
// y_scale < 0: the result is a sum, or a float where there is a scale; that of x is looked at in the run then, and the bias is of
// floats.

Inputs inputs_of(const OpDesc& desc) {
  if (desc.node->op_type == "ConvInteger") return {0, 2, 1, 3, -1, -1, -1, -1, -1};
  if (desc.node->op_type == kConvIntegerToFloat) return {0, 4, 1, 5, 6, 2, 3, -1, -1};
  return {0, 2, 3, 5, 8, 1, 4, 6, 7};
}

bool given(const OpDesc& desc, int input) { return input >= 0 && desc.has_input(input); }
bool to_float(const Inputs& in) { return in.x_scale >= 0 && in.y_scale < 0; }

using Params = QuantizedWindow;

struct State {
  Params params;
  QuantizedOutput output;
  std::int64_t images;
};

Refusal refuse_common(const OpDesc& desc) {
  const Inputs in = inputs_of(desc);
  const int rank = desc.inputs[0].shape.rank();
  if (rank != 3 && rank != 4) return "only one or two spatial axes";
  if (desc.constant(in.w) == nullptr) return "weights must be constant";
  for (const int i : {in.w_zero, in.bias, in.x_scale, in.w_scale, in.y_scale, in.y_zero}) {
    if (i >= 0 && !(to_float(in) && i == in.x_scale) && !is_constant(desc, i))
      return "scales, zero points and the bias must be constant";
  }
  for (const int i : {in.x_scale, in.w_scale, in.y_scale}) {
    if (const Refusal refusal = i < 0 ? nullptr : refuse_unless_float_scale(desc, i)) return refusal;
  }
  return nullptr;
}

Refusal supports_any(const OpDesc& desc) { return refuse_common(desc); }

Refusal supports_depthwise(const OpDesc& desc) {
  if (const Refusal refusal = refuse_common(desc)) return refusal;
  const Shape& w = desc.constant(inputs_of(desc).w)->desc.shape;
  if (w[1] != 1 || attr_int(*desc.node, ConvAttr::kGroup) < 2) return "only one input channel to a group";
  return w.elements(2, w.rank()) > kMostDepthwiseTaps ? "too many taps" : nullptr;
}

// ---- packed weights: [group][block of 8 outputs][quads][8] words of 4 channels, or floats; behind them a term for each output
// ----

struct Matrix {
  std::int64_t groups, outputs, blocks, channels, quads, taps;
  std::int64_t terms(bool depthwise) const {
    return depthwise ? groups * outputs : checked_mul<std::int64_t>(groups * blocks, kBlockRows);
  }
  std::int64_t words(bool depthwise) const { return checked_mul(terms(depthwise), depthwise ? taps : checked_mul(quads, taps)); }
};

Matrix matrix_of(const OpDesc& desc) {
  const Shape& w = desc.inputs[static_cast<std::size_t>(inputs_of(desc).w)].shape;
  const std::int64_t groups = attr_int(*desc.node, ConvAttr::kGroup);
  const std::int64_t outputs = w[0] / groups;
  return {groups, outputs, ceil_div(outputs, kBlockRows), w[1], ceil_div(w[1], 4), w.elements(2, w.rank())};
}

template <bool kIsDepthwise>
std::size_t prepack_bytes(const OpDesc& desc, int input) {
  if (input != inputs_of(desc).w) return 0;
  const Matrix m = matrix_of(desc);
  const std::int64_t words = checked_add(m.words(kIsDepthwise), checked_mul<std::int64_t>(m.terms(kIsDepthwise), 4));
  return static_cast<std::size_t>(checked_mul<std::int64_t>(words, sizeof(float)));
}

std::uint64_t prepack_variant(const OpDesc& desc, int) {
  const Inputs in = inputs_of(desc);
  auto hash = static_cast<std::uint64_t>(attr_int(*desc.node, ConvAttr::kGroup)) * 0x9e3779b97f4a7c15ull;
  for (const int i : {in.w_zero, in.bias, in.x_scale, in.w_scale, in.y_scale}) {
    if (i >= 0 && !(to_float(in) && i == in.x_scale)) hash = mix_constant(desc, i, hash);
  }
  return hash;
}

std::int32_t weight_at(const Weight& w, std::int64_t i) {
  return w.desc.dtype == DType::kInt8 ? w.as<std::int8_t>()[i] : w.as<std::uint8_t>()[i];
}

// What a sum of output channel c needs: its bias, the sum of its weights less their zero point, and its scale as the reference has
// it. `moved`: unsigned weights are stored 128 lower.
QuantizedTerm term_of(const OpDesc& desc, const Inputs& in, const Weight& w, std::int64_t c, bool moved) {
  const std::int64_t size = w.desc.shape.elements(1, w.desc.shape.rank());
  const std::int32_t zero = byte_of(desc, in.w_zero, c);
  QuantizedTerm t{};
  std::uint32_t sum = 0;
  for (std::int64_t i = 0; i < size; ++i) sum += static_cast<std::uint32_t>(weight_at(w, c * size + i) - zero);
  t.sum = static_cast<std::int32_t>(sum);
  t.zero = zero - (moved && w.desc.dtype == DType::kUint8 ? 128 : 0);
  if (given(desc, in.bias)) t.bias = desc.constant(in.bias)->as<std::int32_t>()[c];  // of floats, their bits
  if (to_float(in)) {
    t.scale = float_of(desc, in.w_scale, c);  // the product of two floats is rounded once, in float64 as in float32
  } else if (in.w_scale >= 0) {
    t.scale =
        static_cast<float>(static_cast<double>(float_of(desc, in.x_scale)) * static_cast<double>(float_of(desc, in.w_scale, c)) /
                           static_cast<double>(float_of(desc, in.y_scale)));
  }
  return t;
}

void prepack(const OpDesc& desc, int input, void* packed) {
  const Inputs in = inputs_of(desc);
  const Matrix m = matrix_of(desc);
  const Weight& w = *desc.constant(input);
  const std::uint32_t flip = w.desc.dtype == DType::kUint8 ? 0x80u : 0u;
  auto* to = static_cast<std::uint32_t*>(packed);
  auto* terms = reinterpret_cast<QuantizedTerm*>(to + m.words(false));
  for (std::int64_t g = 0; g < m.groups; ++g) {
    for (std::int64_t first = 0; first < m.blocks * kBlockRows; first += kBlockRows) {
      for (std::int64_t q = 0; q < m.quads; ++q) {
        for (std::int64_t tap = 0; tap < m.taps; ++tap) {
          for (std::int64_t r = first; r < first + kBlockRows; ++r) {
            const std::int64_t c = g * m.outputs + r;
            std::uint32_t word = 0;
            for (std::int64_t j = 0; j < 4 && r < m.outputs; ++j) {
              const std::int64_t channel = q * 4 + j;
              const std::int32_t v =
                  channel < m.channels ? weight_at(w, (c * m.channels + channel) * m.taps + tap) : byte_of(desc, in.w_zero, c);
              word |= ((static_cast<std::uint32_t>(v) & 0xffu) ^ flip) << (8 * j);
            }
            *to++ = word;
          }
        }
      }
      for (std::int64_t r = first; r < first + kBlockRows; ++r) {
        *terms++ = r < m.outputs ? term_of(desc, in, w, g * m.outputs + r, true) : QuantizedTerm{};
      }
    }
  }
}

void prepack_depthwise(const OpDesc& desc, int input, void* packed) {
  const Inputs in = inputs_of(desc);
  const Matrix m = matrix_of(desc);
  const Weight& w = *desc.constant(input);
  auto* to = static_cast<float*>(packed);
  auto* terms = reinterpret_cast<QuantizedTerm*>(to + m.words(true));
  for (std::int64_t c = 0; c < m.groups * m.outputs; ++c) {
    for (std::int64_t tap = 0; tap < m.taps; ++tap)
      *to++ = static_cast<float>(weight_at(w, c * m.taps + tap) - byte_of(desc, in.w_zero, c));
    terms[c] = term_of(desc, in, w, c, false);
  }
}

// ---- plans ----

State& plan_common(const OpDesc& desc, KernelPlan* plan, bool flips) {
  const Inputs in = inputs_of(desc);
  const Matrix m = matrix_of(desc);
  const Shape& x = desc.inputs[0].shape;
  const Window window = conv_window(*desc.node, x, desc.inputs[static_cast<std::size_t>(in.w)].shape);
  State& s = plan->state<State>();
  Params& p = s.params;
  p.channels = to_int(m.channels), p.quads = to_int(m.quads);
  p.outputs = to_int(m.outputs), p.groups = to_int(m.groups), p.blocks = to_int(m.blocks);
  set_axes(window, &p);
  p.flips = desc.inputs[0].dtype == DType::kInt8 ? 1 : 0;
  s.images = x[0];
  QuantizedOutput& o = s.output;
  o.zero_kind = byte_kind(desc, in.x_zero);
  o.flip = flips && p.flips != 0 ? 128 : 0;
  if (in.y_zero >= 0) {
    o.kind = QuantizedResult::kByte;
    set_byte_range(desc.outputs[0].dtype, byte_of(desc, in.y_zero), &o.low, &o.high, &o.zero);
  } else if (to_float(in)) {
    o.kind = QuantizedResult::kFloat;
    o.bias = given(desc, in.bias) ? 1 : 0;
  }
  plan->flops = 2.0 * static_cast<double>(m.channels * m.taps) * static_cast<double>(desc.outputs[0].shape.elements());
  count_bytes(desc, plan);
  return s;
}

void plan_any(const OpDesc& desc, KernelPlan* plan) {
  State& s = plan_common(desc, plan, true);
  Params& p = s.params;
  const Window window =
      conv_window(*desc.node, desc.inputs[0].shape, desc.inputs[static_cast<std::size_t>(inputs_of(desc).w)].shape);
  bool pointwise = true;
  for (int i = 0; i < window.rank; ++i) {
    const WindowAxis& a = window.axis[i];
    pointwise = pointwise && a.kernel == 1 && a.stride == 1 && a.pad_begin == 0 && a.pad_end == 0;
  }
  if (pointwise) {  // all pixels are one row
    p.in_w = p.out_w = to_int(window.input_elements());
    p.in_h = p.out_h = 1;
  }
  const std::int64_t extent_h = std::int64_t{p.kernel_h - 1} * p.dilation_h + 1;
  const std::int64_t extent_w = std::int64_t{p.kernel_w - 1} * p.dilation_w + 1;
  p.padded_h = to_int(std::int64_t{p.out_h - 1} * p.stride_h + extent_h);
  p.phase_w = to_int(ceil_div(p.out_w, kMaxTileColumns) * kMaxTileColumns + (extent_w - 1) / p.stride_w + 1);
  const Shape padded{std::int64_t{p.quads} * p.groups, p.padded_h, p.stride_w, p.phase_w};
  plan->scratch_bytes = TensorDesc{DType::kFloat32, padded}.size_bytes();
  to_int(static_cast<std::int64_t>(plan->scratch_bytes / sizeof(float)));
}

void plan_depthwise(const OpDesc& desc, KernelPlan* plan) { plan_common(desc, plan, false); }

// ---- runs ----

const Buffer& given_or_x(const KernelArgs& args, const Inputs& in, int input) {
  return args.inputs[static_cast<std::size_t>(given(*args.desc, input) ? input : in.x)];
}

void apply_steps(const KernelArgs& args) {
  const OpDesc& desc = *args.desc;
  if (!desc.node->epilogue.empty())
    run_epilogue(launcher(args), args.outputs[0], desc.outputs[0].shape.elements(), desc.node->epilogue);
}

void run_any(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  const Inputs in = inputs_of(*args.desc);
  Launcher& cl = launcher(args);
  Params p = s.params;
  const Grid grid{std::int64_t{p.groups} * p.blocks, ceil_div(p.out_w, cl.tile_columns()), p.out_h};
  for (p.images = 0; p.images < s.images; ++p.images) {
    cl.run(kPad, {p.padded_h, std::int64_t{p.quads} * p.groups}, args.inputs[0], given_or_x(args, in, in.x_zero), args.scratch, p,
           s.output);
    cl.run(kConvolve, grid, args.scratch, args.packed[static_cast<std::size_t>(in.w)], given_or_x(args, in, in.x_zero),
           given_or_x(args, in, in.x_scale), args.outputs[0], p, s.output);
  }
  apply_steps(args);
}

void run_depthwise(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  const Inputs in = inputs_of(*args.desc);
  const Params& p = s.params;
  const std::int64_t limit = args.desc->inputs[0].shape.elements();
  launcher(args).run(kDepthwise, {ceil_div(p.out_h, p.row_chunk), std::int64_t{p.groups} * p.outputs, s.images}, args.inputs[0],
                     args.packed[static_cast<std::size_t>(in.w)], given_or_x(args, in, in.x_zero), given_or_x(args, in, in.x_scale),
                     args.outputs[0], p, s.output, limit);
  apply_steps(args);
}

constexpr Kernel any(const char* name, const char* op, const char* domain = "") {
  return {.name = name,
          .op = op,
          .domain = domain,
          .rank = 10,
          .supports = supports_any,
          .prepack_bytes = prepack_bytes<false>,
          .prepack_variant = prepack_variant,
          .prepack = prepack,
          .plan = plan_any,
          .run = run_any};
}
constexpr Kernel depthwise(const char* name, const char* op, const char* domain = "") {
  return {.name = name,
          .op = op,
          .domain = domain,
          .rank = 20,
          .supports = supports_depthwise,
          .prepack_bytes = prepack_bytes<true>,
          .prepack_variant = prepack_variant,
          .prepack = prepack_depthwise,
          .plan = plan_depthwise,
          .run = run_depthwise};
}

constexpr Kernel kKernels[] = {
    any("qlinear_conv", "QLinearConv"),
    depthwise("qlinear_conv_depthwise", "QLinearConv"),
    any("conv_integer", "ConvInteger"),
    depthwise("conv_integer_depthwise", "ConvInteger"),
    any("conv_integer_to_float", kConvIntegerToFloat, kInternalDomain),
    depthwise("conv_integer_to_float_depthwise", kConvIntegerToFloat, kInternalDomain),
};

}  // namespace

extern const KernelFamily quantized_conv_opencl_kernels;
const KernelFamily quantized_conv_opencl_kernels = {kKernels};

}  // namespace evn
