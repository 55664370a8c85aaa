// Depthwise QLinearConv over two spatial axes, channels last, where four bytes can be multiplied at once: lines of the input are
// interleaved, four and four, and read where they lie. Exact, as the reference. A tile is some lines of an image, or a part of
// them.
#include <algorithm>
#include <new>
#include <numeric>

#include "backends/cpu/elementwise/bytes_loops.h"
#include "backends/cpu/follow.h"
#include "backends/cpu/qconv/byte_line_buffer.h"
#include "backends/cpu/qconv/qdepthwise_loops.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"

namespace evn {
namespace {

using simd_qdepthwise::kBlock;
using simd_qdepthwise::kGranule;
using simd_qdepthwise::kMostQuads;
using simd_qdepthwise::PlaneTile;

constexpr const QgemmConvInputs& kIn = kQLinearConvInputs;
constexpr std::int64_t kPlaneBytes = 5 << 10;  // of one plane: four stay in the second-level cache, and most of the first
constexpr std::int64_t kMostRun = 640;         // channels that are repeated until they are whole blocks
constexpr double kPlaneTileCost = 4e5;         // in products

// What the attributes and the weight's shape say.
struct Geometry {
  std::int64_t channels, lines, width;
  int together, quads;
  std::int64_t run;  // bytes after which the weight begins anew: whole blocks; of one pixel, or of several
  bool flat;         // of several: a line of the output is one run of bytes

  explicit Geometry(const OpDesc& d) {
    const Shape& w = d.inputs[static_cast<std::size_t>(kIn.w)].shape;
    const std::span<const std::int64_t> strides = attr_ints(*d.node, ConvAttr::kStrides),
                                        dilations = attr_ints(*d.node, ConvAttr::kDilations);
    const auto all_one = [](std::span<const std::int64_t> v) {
      return std::all_of(v.begin(), v.end(), [](std::int64_t x) { return x == 1; });
    };
    channels = w[0];
    lines = w[2];
    width = w[3];
    together = (strides.empty() || strides[0] == 1) && (dilations.empty() || dilations[0] == 1) ? 2 : 1;
    quads = static_cast<int>(ceil_div(lines + together - 1, std::int64_t{4}));
    const std::int64_t several = std::lcm(channels, kBlock);
    flat = all_one(strides) && several <= kMostRun;
    run = flat ? several : ceil_div(channels, kBlock) * kBlock;
  }
  std::int64_t blocks() const { return run / kBlock; }
  std::int64_t block_bytes() const { return width * quads * together * 4 * kBlock; }
};

struct PlanesState {
  Isa isa;
  WindowAxis y, x;
  std::int64_t lines, width, line_tiles, width_tiles, plane;
  std::size_t pad_at, planes_at;
};

const simd_qdepthwise::Loops* loops_of(Isa isa) {
  const bool has_vnni = isa_includes(isa, Isa::k_avx512_vnni);
  return has_vnni ? &simd_qdepthwise::loops(Isa::k_avx512_vnni) : nullptr;
}

Refusal supports(const OpDesc& d) {
  if (loops_of(integer_isa()) == nullptr) return "no product of four bytes";
  if (d.inputs[0].shape.rank() != 4) return "only two spatial axes";
  if (d.constant(kIn.w) == nullptr) return "the weight must be constant";
  const TensorDesc& weight = d.inputs[static_cast<std::size_t>(kIn.w)];
  const Shape& w = weight.shape;
  if (w[1] != 1 || w[0] != attr_int(*d.node, ConvAttr::kGroup)) return "only one filter for each channel";
  if (w[0] % kGranule != 0) return "channels that are not whole sixteens";
  if (w[2] < 2 || w[2] + 1 > 4 * kMostQuads || w[3] > 4 * kMostQuads) return "the kernel's size";
  return refuses_unsymmetric(d, kIn);
}

// The weight's blocks, and behind them the sum of each channel's.
std::size_t prepack_bytes(const OpDesc& d, int input) {
  if (input != kIn.w) return 0;
  const Geometry g(d);
  const std::int64_t sums = checked_mul<std::int64_t>(g.channels, sizeof(std::int32_t));
  return static_cast<std::size_t>(checked_add(checked_mul(g.blocks(), g.block_bytes()), sums));
}

std::uint64_t prepack_variant(const OpDesc& d, int) {
  const Geometry g(d);
  return static_cast<std::uint64_t>(g.run) << 2 | (g.together == 2 ? 2u : 0u) | (g.flat ? 1u : 0u);
}

void prepack(const OpDesc& d, int input, void* packed) {
  const Geometry g(d);
  const auto* const from = d.constant(input)->as<std::int8_t>();
  auto* const to = static_cast<std::int8_t*>(packed);
  std::fill_n(to, g.blocks() * g.block_bytes(), std::int8_t{0});
  for (std::int64_t i = 0; i < g.run; ++i) {
    if (!g.flat && i >= g.channels) break;
    const std::int8_t* const taps = from + i % g.channels * g.lines * g.width;
    const std::int64_t in_block = i % kBlock, v = in_block / 4 % 4, lane = in_block / 16 * 4 + in_block % 4;
    for (std::int64_t x = 0; x < g.width; ++x) {
      for (std::int64_t y = 0; y < g.lines; ++y) {
        for (std::int64_t l = 0; l < g.together; ++l) {
          const std::int64_t place = ((i / kBlock * g.width + x) * g.quads + (y + l) / 4) * g.together + l;
          to[(place * 4 + v) * kBlock + 4 * lane + (y + l) % 4] = taps[y * g.width + x];
        }
      }
    }
  }
  auto* const sums = reinterpret_cast<std::int32_t*>(to + g.blocks() * g.block_bytes());
  for (std::int64_t c = 0; c < g.channels; ++c) {
    sums[c] = 0;
    for (std::int64_t i = 0; i < g.lines * g.width; ++i) sums[c] += from[c * g.lines * g.width + i];
  }
}

std::int64_t pixels_of(const WindowAxis& x, std::int64_t outputs) { return (outputs - 1) * x.stride + x.extent(); }

// All but how many lines a tile has. Returns the bytes that a thread needs.
std::size_t set_geometry(const OpDesc& d, const Geometry& g, PlanesState* s) {
  const Window window = conv_window(*d.node, d.inputs[0].shape, d.inputs[static_cast<std::size_t>(kIn.w)].shape);
  s->isa = integer_isa();
  s->y = window.axis[0];
  s->x = window.axis[1];
  s->width = s->x.output;
  while (s->width > 16 && pixels_of(s->x, s->width) * g.channels > kPlaneBytes) s->width = ceil_div(s->width, std::int64_t{2});
  s->width_tiles = ceil_div(s->x.output, s->width);
  // Behind a plane: what positions read that are more than there are, two vectors.
  const std::int64_t line = checked_mul(pixels_of(s->x, s->width), g.channels);
  s->plane = round_up(line + 2 * g.run, 64) + 64;
  s->pad_at = 2 * static_cast<std::size_t>(g.run + g.channels) * sizeof(std::int32_t);
  s->planes_at = s->pad_at + align_up(static_cast<std::size_t>(line), 64);
  return s->planes_at + static_cast<std::size_t>(checked_mul<std::int64_t>(s->plane, 4 * g.quads));
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<PlanesState>();
  const Geometry g(d);
  p->thread_scratch_bytes = set_geometry(d, g, &s);
  const double line_cost = static_cast<double>(s.x.output * g.channels) * static_cast<double>(g.lines * g.width);
  s.lines = s.y.output;
  if (d.threads > 1)
    s.lines = std::max(units_per_tile(s.lines, line_cost, kPlaneTileCost), ceil_div(s.lines, std::int64_t{4} * d.threads));
  s.lines = ceil_div(s.lines, std::int64_t{g.together}) * g.together;
  s.line_tiles = ceil_div(s.y.output, s.lines);
  p->tiles = checked_mul(d.inputs[0].shape[0], checked_mul(s.line_tiles, s.width_tiles));
  p->flops = 2.0 * static_cast<double>(g.lines * g.width) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

// start and scale of all blocks, in the order of the planes, by way of `plain`, which has room for two numbers for each channel.
void set_channels(const KernelArgs& args, const Geometry& g, std::int32_t x_zero, const std::int32_t* sums, std::int32_t* plain,
                  std::int32_t* start, float* scale, CancelPoints* points) {
  const OpDesc& d = *args.desc;
  const std::int32_t* const bias = d.has_input(kIn.bias) ? args.in<std::int32_t>(kIn.bias) : nullptr;
  const double x_scale = static_cast<double>(*args.in<float>(kIn.x_scale)),
               y_scale = static_cast<double>(*args.in<float>(kIn.y_scale));
  auto* const factors = reinterpret_cast<float*>(plain + g.channels);
  const std::int64_t step = step_of(d, kIn.w_scale);
  by_parts(points, step == 0 ? 1 : g.channels, 64, kFunction, [&](std::int64_t from, std::int64_t until) {
    simd_bytes::loops(cpu_isa()).scale(x_scale, args.in<float>(kIn.w_scale) + from, until - from, y_scale, factors + from);
  });
  if (step == 0) std::fill_n(factors, g.channels, float{*factors});
  by_parts(points, g.channels, 64, 4, [&](std::int64_t from, std::int64_t until) {
    for (std::int64_t c = from; c < until; ++c) {
      const std::uint32_t added = bias == nullptr ? 0 : static_cast<std::uint32_t>(bias[c]);
      plain[c] = static_cast<std::int32_t>(added - static_cast<std::uint32_t>(x_zero) * static_cast<std::uint32_t>(sums[c]));
    }
  });
  fill_by_parts(points, start, g.run, 0);
  fill_by_parts(points, scale, g.run, 0.0f);
  const std::int64_t used = g.flat ? g.run : g.channels;
  std::int64_t c = 0;
  by_parts(points, used, 64, 4, [&](std::int64_t from, std::int64_t until) {
    for (std::int64_t i = from; i < until; i += 4, c = c + 4 == g.channels ? 0 : c + 4) {
      const std::int64_t place = simd_qdepthwise::quad_place(i);
      std::copy_n(plain + c, 4, start + place);
      std::copy_n(factors + c, 4, scale + place);
    }
  });
}

void begin_tile(const KernelArgs& args, const PlanesState& s, const Geometry& g, std::uint8_t* memory, PlaneTile* tile,
                CancelPoints* points) {
  const OpDesc& d = *args.desc;
  auto* const start = reinterpret_cast<std::int32_t*>(memory);
  auto* const scale = reinterpret_cast<float*>(start + g.run);
  const auto* const packed = args.pack<std::int8_t>(kIn.w);
  const bool flip = !is_uint8(d.inputs[0]);
  const std::int32_t x_zero = zero_point_of(args, kIn.x_zero) + (flip ? 128 : 0);
  set_channels(args, g, x_zero, reinterpret_cast<const std::int32_t*>(packed + g.blocks() * g.block_bytes()), start + 2 * g.run,
               start, scale, points);
  PlaneTile& t = *tile;
  t = {};
  t.points = points;
  t.pad = static_cast<std::uint8_t>(x_zero);
  t.flip = flip ? 0x80 : 0;
  std::fill(memory + s.pad_at, memory + s.planes_at, static_cast<std::uint8_t>(t.pad ^ t.flip));
  t.pad_line = memory + s.pad_at;
  t.height = s.y.input;
  t.image_line = s.x.input * g.channels;
  t.kernel_lines = g.lines;
  t.kernel_width = g.width;
  t.stride_y = s.y.stride;
  t.dilation_y = s.y.dilation;
  t.together = g.together;
  t.planes = memory + s.planes_at;
  t.plane = s.plane;
  t.blocks = g.blocks();
  t.valid = g.flat ? g.run : g.channels;
  t.step_in = g.flat ? g.run : s.x.stride * g.channels;
  t.step_out = g.flat ? g.run : g.channels;
  t.tap = s.x.dilation * g.channels;
  t.weight = packed;
  t.start = start;
  t.scale = scale;
  t.zero = zero_point_of(args, kIn.y_zero);
  t.is_signed = !is_uint8(d.outputs[0]);
  t.line_c = s.x.output * g.channels;
}

// Lines from `line` on, from position x on, of an image and of its output.
void run_part(const PlanesState& s, const Geometry& g, const std::uint8_t* image, std::int64_t line, std::int64_t lines,
              std::int64_t x, std::uint8_t* c, PlaneTile* tile) {
  PlaneTile& t = *tile;
  const std::int64_t width = std::min(s.width, s.x.output - x), count = pixels_of(s.x, width);
  const std::int64_t first = x * s.x.stride - s.x.pad_begin;
  const std::int64_t before = std::clamp<std::int64_t>(-first, 0, count), last = std::clamp(s.x.input - first, before, count);
  t.lines = lines;
  t.first_line = line * s.y.stride - s.y.pad_begin;
  t.image = image;
  t.pads_before = before * g.channels;
  t.from = (first + before) * g.channels;
  t.inside = (last - before) * g.channels;
  t.pads_after = (count - last) * g.channels;
  t.all = width * g.channels;
  t.positions = g.flat ? ceil_div(t.all, g.run) : width;
  t.c = c + (line * s.x.output + x) * g.channels;
  loops_of(s.isa)->run_planes(t);
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<PlanesState>();
  const Geometry g(*args.desc);
  PlaneTile t;
  CancelPoints points = points_of(cancel);
  begin_tile(args, s, g, static_cast<std::uint8_t*>(args.thread_scratch), &t, &points);
  for (std::int64_t i = begin; i < end && !cancel.stop(); ++i) {
    const std::int64_t line = i / s.width_tiles % s.line_tiles * s.lines, image = i / s.width_tiles / s.line_tiles;
    run_part(s, g, args.in<std::uint8_t>(0) + image * s.y.input * t.image_line, line, std::min(s.lines, s.y.output - line),
             i % s.width_tiles * s.width, args.out<std::uint8_t>() + image * s.y.output * t.line_c, &t);
  }
}

class PlanesLines final : public ByteLineBuffer {
 public:
  explicit PlanesLines(const OpDesc& d) : g_(d), bytes_(memory_at() + set_geometry(d, g_, &s_)) {}
  std::size_t bytes() const { return bytes_; }

  void begin(const KernelArgs& args, CancelPoints* points) {
    begin_tile(args, s_, g_, reinterpret_cast<std::uint8_t*>(this) + memory_at(), &tile_, points);
  }
  void make(const std::uint8_t* x, std::int64_t from, std::int64_t to, std::uint8_t* y, const std::uint8_t*) override {
    for (std::int64_t at = 0; at < s_.x.output; at += s_.width) {
      run_part(s_, g_, x, from, to - from, at, y, &tile_);
    }
  }

 private:
  static std::size_t memory_at() { return align_up(sizeof(PlanesLines), 64); }

  Geometry g_;
  PlanesState s_{};
  std::size_t bytes_;
  PlaneTile tile_;
};

std::size_t lines_bytes(const OpDesc& d, const Int8Stage&) { return PlanesLines(d).bytes(); }

ByteLineBuffer* begin_lines(const KernelArgs& step, const OpDesc& d, int input, const Int8Stage&, void* memory,
                            CancelPoints* points) {
  auto* const lines = new (memory) PlanesLines(d);
  lines->begin(args_of_stage(step, d, input), points);
  return lines;
}

constexpr Kernel kKernels[] = {
    {.name = "qlinear_conv_depthwise_planes",
     .op = "QLinearConv",
     .rank = 30,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack,
     .plan = plan,
     .run = run,
     .layouts = channels_last,
     .fusion = {.stages = kDepthwiseStage}},
};

}  // namespace

extern const KernelFamily quantized_depthwise_planes_kernels;
const KernelFamily quantized_depthwise_planes_kernels = {kKernels};

const ByteLineBufferKernel planes_lines = {lines_bytes, begin_lines};

bool runs_by_planes(const OpDesc& d) { return supports(d) == nullptr; }

}  // namespace evn
