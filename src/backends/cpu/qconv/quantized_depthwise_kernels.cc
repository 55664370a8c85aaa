// Depthwise QLinearConv, ConvInteger and ConvIntegerToFloat with a constant weight, over one or two spatial axes, channels last.
// Exact, as the reference. A tile is some lines of an image, or some positions of a line, which are copied into a slab with their
// pads.
#include <algorithm>
#include <new>

#include "backends/cpu/elementwise/bytes_loops.h"
#include "backends/cpu/follow.h"
#include "backends/cpu/qconv/byte_line_buffer.h"
#include "backends/cpu/qconv/byte_slab.h"
#include "backends/cpu/qconv/qdepthwise_loops.h"
#include "backends/cpu/support.h"
#include "base/cxx20.h"
#include "base/hash.h"
#include "ops/conv.h"
#include "ops/merge.h"

namespace evn {
namespace {

using simd_qdepthwise::kBlock;
using simd_qdepthwise::kMostTaps;

constexpr std::int64_t kFewestChannels = 8;  // fewer leave most lanes of a vector empty
constexpr std::int64_t kSlabBytes = 64 << 10;
constexpr std::int64_t kLeastPositions = 16;  // of a tile that is a part of a line
constexpr std::int64_t kMostGroup = 4;
constexpr double kTileCost = 1.5e6;  // in products
constexpr std::size_t kArrays = 3;   // start, scale and bias of channels

struct DepthwiseState {
  Isa isa;
  ByteSlab slab;
  std::int64_t images, channels, taps;
  std::int64_t lines, width, line_tiles, width_tiles;
  std::size_t slab_at;
  bool fits_floats;  // sums, with what is added to them
};

std::int64_t padded(std::int64_t channels) { return round_up(channels, kBlock); }

// The loops that take four taps at a time, where this machine has them and the output is bytes.
const simd_qdepthwise::Loops* quads_of(Isa isa, bool to_bytes) {
  const bool has_vnni = isa_includes(isa, Isa::k_avx512_vnni);
  return has_vnni && to_bytes ? &simd_qdepthwise::loops(Isa::k_avx512_vnni) : nullptr;
}

// What stands in front of a packed weight.
struct Packed {
  std::int64_t group;      // taps side by side: 1, as floats, 2 or 4
  std::int64_t unused[7];  // up to a line of memory
};

// Taps side by side without these.
std::int64_t plain_group() { return simd_qdepthwise::loops(cpu_isa()).group; }

// Behind it: the weight and the sum of each channel's.
std::int64_t words_of(const Shape& w) { return checked_mul(ceil_div(w.elements(2, w.rank()), plain_group()) + 1, padded(w[0])); }

Refusal supports(const OpDesc& d) {
  const QgemmConvInputs& in = conv_inputs_of(d);
  const int rank = d.inputs[0].shape.rank();
  if (rank != 3 && rank != 4) return "only one or two spatial axes";
  if (d.constant(in.w) == nullptr || (d.has_input(in.w_zero) && d.constant(in.w_zero) == nullptr))
    return "the weight must be constant";
  const Shape& w = d.inputs[static_cast<std::size_t>(in.w)].shape;
  if (w[1] != 1 || w[0] != attr_int(*d.node, ConvAttr::kGroup)) return "only one filter for each channel";
  if (w[0] < kFewestChannels) return "too few channels";
  return w.elements(2, rank) > kMostTaps ? "the kernel is too large" : nullptr;
}

std::size_t prepack_bytes(const OpDesc& d, int input) {
  const QgemmConvInputs& in = conv_inputs_of(d);
  if (input != in.w) return 0;
  const Shape& w = d.inputs[static_cast<std::size_t>(in.w)].shape;
  return static_cast<std::size_t>(
      checked_add<std::int64_t>(checked_mul<std::int64_t>(words_of(w), sizeof(std::int32_t)), sizeof(Packed)));
}

// The zero points are in the packed copy, and the isa and the type of the output choose its form.
std::uint64_t prepack_variant(const OpDesc& d, int) {
  const QgemmConvInputs& in = conv_inputs_of(d);
  const std::uint64_t form = quads_of(integer_isa(), in.y_scale >= 0) != nullptr ? 0 : static_cast<std::uint64_t>(plain_group());
  if (!d.has_input(in.w_zero)) return form;
  const Weight& zero = *d.constant(in.w_zero);
  return checksum_of(zero.bytes(), zero.size_bytes) << 3 | 4 | form;
}

void prepack(const OpDesc& d, int input, void* packed) {
  const QgemmConvInputs& in = conv_inputs_of(d);
  const TensorDesc& desc = d.inputs[static_cast<std::size_t>(input)];
  const std::int64_t channels = desc.shape[0], step = padded(channels), taps = desc.shape.elements(2, desc.shape.rank());
  const auto number = [&](const Weight& from, std::int64_t i) -> std::int32_t {
    return is_uint8(desc) ? from.as<std::uint8_t>()[i] : from.as<std::int8_t>()[i];
  };
  const Weight& weight = *d.constant(input);
  const Weight* const zeros = d.has_input(in.w_zero) ? d.constant(in.w_zero) : nullptr;
  const std::int64_t zero_step = zeros == nullptr ? 0 : step_of(d, in.w_zero);
  const auto value_of = [&](std::int64_t c, std::int64_t tap) {
    return number(weight, c * taps + tap) - (zeros == nullptr ? 0 : number(*zeros, c * zero_step));
  };
  bool fits = quads_of(integer_isa(), in.y_scale >= 0) != nullptr;
  for (std::int64_t i = 0; fits && i < channels * taps; ++i) {
    const std::int32_t value = value_of(i / taps, i % taps);
    fits = value >= -128 && value <= 127;
  }
  auto* const head = static_cast<Packed*>(packed);
  *head = {fits ? 4 : plain_group(), {}};
  auto* const to = reinterpret_cast<std::uint32_t*>(head + 1);
  std::fill_n(to, words_of(desc.shape), 0u);
  const std::int64_t group = head->group, bits = 32 / group;
  std::uint32_t* const sums = to + ceil_div(taps, group) * step;
  for (std::int64_t c = 0; c < channels; ++c) {
    const std::int64_t place = fits ? simd_qdepthwise::quad_place(c) : c;
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const auto value = static_cast<std::uint32_t>(value_of(c, tap));
      std::uint32_t& word = to[tap / group * step + place];
      word = group == 1 ? bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(value)))
                        : word | (value & ((1u << bits) - 1)) << (tap % group * bits);
      sums[place] += value;
    }
  }
}

// Whether sums are below 2^24 with what is added to them, so that they are exact as floats: those of the taps and what the zero
// point makes of them are at most 64 x 255 x 255.
bool sums_fit_floats(const OpDesc& d, const QgemmConvInputs& in) {
  constexpr std::int32_t kMostBias = 1 << 23;
  if (!d.has_input(in.bias)) return true;
  const Weight* const bias = d.constant(in.bias);
  if (bias == nullptr) return false;
  const auto* const b = bias->as<std::int32_t>();
  return std::all_of(b, b + bias->desc.shape.elements(), [](std::int32_t x) { return x >= -kMostBias && x <= kMostBias; });
}

void set_geometry(const OpDesc& d, const QgemmConvInputs& in, DepthwiseState* s) {
  const Shape& w = d.inputs[static_cast<std::size_t>(in.w)].shape;
  const Shape& x = d.inputs[0].shape;
  const Window window = conv_window(*d.node, x, w);
  s->isa = integer_isa();
  s->slab.y = window.rank == 2 ? window.axis[0] : WindowAxis{};
  s->slab.x = window.axis[window.rank - 1];
  s->slab.pixel = s->slab.channels = s->channels = x[1];
  s->slab.flip = !is_uint8(d.inputs[0]);
  s->images = x[0];
  s->taps = w.elements(2, w.rank());
  s->width = s->slab.x.output;
  s->slab_at = align_up(kArrays * static_cast<std::size_t>(padded(s->channels)) * sizeof(std::int32_t), 64);
  s->fits_floats = in.y_scale >= 0 && plain_group() == 1 && sums_fit_floats(d, in);
}

// That a thread needs for tiles of so many lines.
std::size_t bytes_of(const DepthwiseState& s, std::int64_t lines) {
  return s.slab_at + static_cast<std::size_t>(s.slab.bytes(lines, s.width) + simd_qgemm::kOverread);
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<DepthwiseState>();
  set_geometry(d, conv_inputs_of(d), &s);
  const double line_cost = static_cast<double>(s.slab.x.output * s.channels) * static_cast<double>(s.taps);
  s.lines = s.slab.y.output;
  if (d.threads > 1) {
    s.lines = std::max(units_per_tile(s.lines, line_cost, kTileCost), ceil_div(s.lines, std::int64_t{4} * d.threads));
  }
  while (s.lines > 1 && s.slab.bytes(s.lines, s.width) > kSlabBytes) s.lines = ceil_div(s.lines, std::int64_t{2});
  while (s.width > kLeastPositions && s.slab.bytes(s.lines, s.width) > kSlabBytes) s.width = ceil_div(s.width, std::int64_t{2});
  s.slab.width = s.slab.pixels(s.width);
  s.line_tiles = ceil_div(s.slab.y.output, s.lines);
  s.width_tiles = ceil_div(s.slab.x.output, s.width);
  p->tiles = checked_mul(s.images, checked_mul(s.line_tiles, s.width_tiles));
  p->thread_scratch_bytes = bytes_of(s, s.lines);
  p->flops = 2.0 * static_cast<double>(s.taps) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

// start, scale and what is added to floats of all channels, in the order of the packed weight.
void set_channels(const KernelArgs& args, const QgemmConvInputs& in, std::int64_t channels, std::int32_t x_zero, bool by_quads,
                  const std::int32_t* sums, void* memory, CancelPoints* points) {
  auto* const start = static_cast<std::int32_t*>(memory);
  auto* const scale = reinterpret_cast<float*>(start + padded(channels));
  const OpDesc& d = *args.desc;
  const std::int32_t* const bias = in.bias >= 0 && d.has_input(in.bias) ? args.in<std::int32_t>(in.bias) : nullptr;
  const bool scaled = in.w_scale >= 0;
  const double x_scale = scaled ? static_cast<double>(*args.in<float>(in.x_scale)) : 0;
  const double y_scale = in.y_scale >= 0 ? static_cast<double>(*args.in<float>(in.y_scale)) : 1;
  const float* const w_scale = scaled ? args.in<float>(in.w_scale) : nullptr;
  const std::int64_t step = scaled ? step_of(d, in.w_scale) : 0;
  fill_by_parts(points, start, static_cast<std::int64_t>(kArrays) * padded(channels), 0);
  if (in.added >= 0 && d.has_input(in.added)) std::copy_n(args.in<float>(in.added), channels, scale + padded(channels));
  const bool at_once = scaled && !by_quads && step != 0;
  by_parts(points, at_once ? channels : 0, 64, kFunction, [&](std::int64_t from, std::int64_t until) {
    simd_bytes::loops(cpu_isa()).scale(x_scale, w_scale + from, until - from, y_scale, scale + from);
  });
  by_parts(points, channels, 64, kFarElement, [&](std::int64_t from, std::int64_t until) {
    for (std::int64_t c = from; c < until; ++c) {
      const std::int64_t place = by_quads ? simd_qdepthwise::quad_place(c) : c;
      const std::uint32_t added = bias == nullptr ? 0 : static_cast<std::uint32_t>(bias[c]);
      start[place] =
          static_cast<std::int32_t>(added - static_cast<std::uint32_t>(x_zero) * static_cast<std::uint32_t>(sums[place]));
      if (scaled && !at_once) scale[place] = static_cast<float>(x_scale * static_cast<double>(w_scale[c * step]) / y_scale);
    }
  });
}

// What a thread needs for its tiles; `memory` is what slab_at and the slab say.
struct Runner {
  const DepthwiseState& s;
  const simd_qdepthwise::Loops* loops;
  simd_qdepthwise::Tile t;
  std::uint8_t* slab;
  std::uint8_t pad;
  std::int64_t offsets[kMostTaps + kMostGroup];

  void begin(const KernelArgs& args, const QgemmConvInputs& in, std::uint8_t* memory, CancelPoints* points) {
    for (std::int64_t i = 0; i < s.taps; ++i) {
      offsets[i] = (i / s.slab.x.kernel * s.slab.y.dilation * s.slab.width + i % s.slab.x.kernel * s.slab.x.dilation) * s.channels;
    }
    std::fill(offsets + s.taps, offsets + kMostTaps + kMostGroup, std::int64_t{0});
    slab = memory + s.slab_at;
    t = {};
    t.points = points;
    t.channels = s.channels;
    t.a = slab;
    t.line_step = s.slab.step_y() * s.slab.width * s.channels;
    t.step = s.slab.step_x() * s.channels;
    t.offsets = offsets;
    t.run = s.slab.x.dilation == 1 ? s.slab.x.kernel : 1;
    t.pixel = s.channels;
    const auto* const head = args.pack<Packed>(in.w);
    const bool by_quads = head->group == 4;
    loops = by_quads ? quads_of(s.isa, true) : &simd_qdepthwise::loops(cluster_of(s.isa));
    t.groups = ceil_div(s.taps, head->group);
    t.weight = reinterpret_cast<const std::int32_t*>(head + 1);
    t.weight_step = padded(s.channels);
    const std::int32_t x_zero = zero_point_of(args, in.x_zero) + (s.slab.flip ? 128 : 0);
    pad = static_cast<std::uint8_t>(x_zero);
    set_channels(args, in, s.channels, x_zero, by_quads, t.weight + t.groups * t.weight_step, memory, points);
    t.start = reinterpret_cast<const std::int32_t*>(memory);
    t.scale = reinterpret_cast<const float*>(t.start + padded(s.channels));
    t.bias = in.added >= 0 && args.desc->has_input(in.added) ? t.scale + padded(s.channels) : nullptr;
    t.zero = zero_point_of(args, in.y_zero);
    t.output = qgemm_output(args.desc->outputs[0].dtype);
    t.ldc = s.channels;
    t.line_c = s.slab.x.output * s.channels;
    if (!s.fits_floats || by_quads) return;
    auto* const start = reinterpret_cast<float*>(memory);
    by_parts(points, padded(s.channels), 64, 1, [&](std::int64_t from, std::int64_t until) {
      for (std::int64_t c = from; c < until; ++c) start[c] = static_cast<float>(std::int32_t{t.start[c]});
    });
    t.float_start = start;
  }

  void run(const std::uint8_t* image, const SlabPart& part, void* c) {
    t.lines = part.lines;
    t.width = part.width;
    s.slab.fill(simd_qgemm::loops(s.isa), image, part, pad, slab, t.points);
    if (has_stopped(t.points)) return;
    t.c = c;
    loops->run(t);
  }
};

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<DepthwiseState>();
  const std::size_t element = dtype_size(args.desc->outputs[0].dtype);
  Runner runner{s, {}, {}, {}, {}, {}};
  CancelPoints points = points_of(cancel);
  runner.begin(args, conv_inputs_of(*args.desc), static_cast<std::uint8_t*>(args.thread_scratch), &points);
  for (std::int64_t i = begin; i < end && !cancel.stop(); ++i) {
    const std::int64_t x = i % s.width_tiles * s.width, line = i / s.width_tiles % s.line_tiles * s.lines;
    const std::int64_t image = i / s.width_tiles / s.line_tiles;
    const std::int64_t position = (image * s.slab.y.output + line) * s.slab.x.output + x;
    runner.run(args.in<std::uint8_t>(0) + image * s.slab.y.input * s.slab.x.input * s.channels,
               {line, x, std::min(s.lines, s.slab.y.output - line), std::min(s.width, s.slab.x.output - x)},
               args.out<std::uint8_t>() + static_cast<std::size_t>(position * s.channels) * element);
    const simd_qdepthwise::Tile& t = runner.t;
    apply_steps(epilogue_of(*args.desc), cluster_of(s.isa), t.c, t.lines, t.line_c, t.width, t.ldc, s.channels, &points);
  }
}

// -------------------------------------------------------------------------------------------------------- lines --

class DepthwiseLines final : public ByteLineBuffer {
 public:
  DepthwiseLines(const OpDesc& d, const Int8Stage& part) : runner_{s_, {}, {}, {}, {}, {}}, lines_(part.lines) {
    set_geometry(d, kQLinearConvInputs, &s_);
    s_.slab.width = s_.slab.pixels(s_.width);
  }
  std::size_t bytes() const { return memory_at() + bytes_of(s_, lines_); }

  void begin(const KernelArgs& args, CancelPoints* points) {
    runner_.begin(args, kQLinearConvInputs, reinterpret_cast<std::uint8_t*>(this) + memory_at(), points);
  }
  void make(const std::uint8_t* x, std::int64_t from, std::int64_t to, std::uint8_t* y, const std::uint8_t*) override {
    runner_.run(x, {from, 0, to - from, s_.width}, y + from * runner_.t.line_c);
  }

 private:
  static std::size_t memory_at() { return align_up(sizeof(DepthwiseLines), 64); }

  DepthwiseState s_{};
  Runner runner_;
  std::int64_t lines_;
};

std::size_t lines_bytes(const OpDesc& d, const Int8Stage& part) { return DepthwiseLines(d, part).bytes(); }

ByteLineBuffer* begin_lines(const KernelArgs& step, const OpDesc& d, int input, const Int8Stage& part, void* memory,
                            CancelPoints* points) {
  auto* const lines = new (memory) DepthwiseLines(d, part);
  lines->begin(args_of_stage(step, d, input), points);
  return lines;
}

constexpr Kernel kernel(const char* name, const char* op, const char* domain, KernelFusion fusion = {}) {
  return {.name = name,
          .op = op,
          .domain = domain,
          .rank = 20,
          .supports = supports,
          .prepack_bytes = prepack_bytes,
          .prepack_variant = prepack_variant,
          .prepack = prepack,
          .plan = plan,
          .run = run,
          .layouts = channels_last,
          .fusion = fusion};
}

constexpr Kernel kKernels[] = {
    kernel("qlinear_conv_depthwise", "QLinearConv", "", {.stages = kDepthwiseStage}),
    kernel("conv_integer_depthwise", "ConvInteger", ""),
    kernel("conv_integer_to_float_depthwise", kConvIntegerToFloat, kInternalDomain),
};

}  // namespace

extern const KernelFamily quantized_depthwise_kernels;
const KernelFamily quantized_depthwise_kernels = {kKernels};

const ByteLineBufferKernel depthwise_lines = {lines_bytes, begin_lines};

}  // namespace evn
