// Conv of several groups over two spatial axes, channels last, with a constant weight: some lines of the image are copied with
// their pads, all channels at once, and each group's product reads its pixels there where they lie. Groups of fewer channels than a
// vector has are joined: their weights lie on the diagonal of a larger one. A tile is some lines of the output, of all groups.
#include <algorithm>
#include <vector>

#include "backends/cpu/follow.h"
#include "backends/cpu/gemm/packed_gemm_plan.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"

namespace evn {
namespace {

constexpr std::int64_t kJoined = 16;            // channels of joined groups, at most
constexpr std::int64_t kFewestChannels = 12;    // in and out, of groups that are joined
constexpr std::int64_t kMostColumns = 64;       // output channels of a group: more are worth copying rows for
constexpr std::int64_t kSlabBytes = 512 << 10;  // of lines that are copied: they stay in L2 while the groups pass by

// Groups that are multiplied as one.
struct Grouping {
  std::int64_t groups, channels, columns;  // of those that are joined
  std::int64_t joined;                     // of the node's own in one
};

Grouping grouping_of(const OpDesc& d) {
  const Shape& w = d.inputs[1].shape;
  const std::int64_t groups = attr_int(*d.node, ConvAttr::kGroup);
  // Four of four channels would multiply by zeros for longer than conv_gemm takes.
  const std::int64_t joined = groups % 2 == 0 && 2 * w[1] <= kJoined ? 2 : 1;
  return {groups / joined, w[1] * joined, w[0] / groups * joined, joined};
}

struct ConvState {
  Isa isa;
  Grouping grouping;
  simd_packed_gemm::Window window;  // of the copied lines
  WindowAxis y, x;
  std::int64_t lines, line_tiles;  // output lines of a tile; tiles of an image
  std::int64_t group_floats, slab_floats;
};

Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  if (d.inputs[0].shape.rank() != 4) return "only two spatial axes";
  if (d.constant(1) == nullptr) return "the weight must be constant";
  const Shape& w = d.inputs[1].shape;
  if (attr_int(*d.node, ConvAttr::kGroup) < 2) return "only more than one group";
  if (w[2] * w[3] < 2) return "a window of one pixel";
  const Grouping g = grouping_of(d);
  if (g.channels < kFewestChannels || g.columns < kFewestChannels) return "groups of few channels";
  if (d.strict && g.joined > 1) return "numbers that are not finite would go from one group to another";
  return g.columns > kMostColumns ? "groups of many channels" : nullptr;
}

std::int64_t group_floats(const OpDesc& d, const Grouping& g) {
  const std::int64_t k = checked_mul(g.channels, d.inputs[1].shape.elements(2, 4));
  return packed_gemm_floats(simd_packed_gemm::loops(cpu_isa()), g.columns, k);
}

std::size_t prepack_bytes(const OpDesc& d, int input) {
  if (input != 1) return 0;
  const Grouping g = grouping_of(d);
  return static_cast<std::size_t>(checked_mul<std::int64_t>(checked_mul(group_floats(d, g), g.groups), sizeof(float)));
}

std::uint64_t prepack_variant(const OpDesc& d, int) {
  return static_cast<std::uint64_t>(attr_int(*d.node, ConvAttr::kGroup)) << 8 | static_cast<std::uint64_t>(cpu_isa());
}

// Parts are all of joined groups.
std::int64_t part_step(const OpDesc& d, int) { return grouping_of(d).columns; }

void prepack(const OpDesc& d, int, const void* rows, std::int64_t begin, std::int64_t end, void* packed) {
  const simd_packed_gemm::Loops& loops = simd_packed_gemm::loops(cpu_isa());
  const Grouping g = grouping_of(d);
  const Shape& w = d.inputs[1].shape;
  const std::int64_t taps = w.elements(2, 4), own_k = w[1] * taps, k = g.channels * taps, own_columns = g.columns / g.joined;
  const std::int64_t floats = group_floats(d, g);
  std::vector<float> diagonal(g.joined > 1 ? static_cast<std::size_t>(checked_mul(g.columns, k)) : 0);
  const auto* from = static_cast<const float*>(rows);
  for (std::int64_t row = begin; row < end; row += g.columns, from += g.columns * own_k) {
    const float* source = from;
    if (g.joined > 1) {
      for (std::int64_t j = 0; j < g.columns; ++j)
        std::copy_n(from + j * own_k, own_k, diagonal.data() + j * k + j / own_columns * own_k);
      source = diagonal.data();
    }
    float* const to = static_cast<float*>(packed) + row / g.columns * floats;
    pack_packed_gemm(loops, {source, taps, g.channels, taps, k}, {0, k, 0, g.columns, g.columns}, 1.0f, to);
  }
}

std::int64_t slab_lines(const ConvState& s, std::int64_t lines) { return (lines - 1) * s.y.stride + s.y.extent(); }

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<ConvState>();
  s = ConvState{};
  const Shape &x = d.inputs[0].shape, &w = d.inputs[1].shape;
  const Window window = conv_window(*d.node, x, w);
  s.isa = cpu_isa();
  s.grouping = grouping_of(d);
  s.group_floats = group_floats(d, s.grouping);
  s.y = window.axis[0];
  s.x = window.axis[1];
  const std::int64_t width = (s.x.output - 1) * s.x.stride + s.x.extent(), line_floats = checked_mul(width, x[1]);
  // As many lines as fit, in tiles that threads can share.
  s.lines = std::max<std::int64_t>(1, s.y.output);
  const std::int64_t wanted = ceil_div(std::int64_t{d.threads}, std::max<std::int64_t>(1, x[0]));
  if (d.threads > 1) s.lines = ceil_div(s.lines, std::min(s.lines, 2 * wanted));
  while (s.lines > 1 && checked_mul<std::int64_t>(checked_mul(slab_lines(s, s.lines), line_floats), sizeof(float)) > kSlabBytes)
    s.lines = ceil_div(s.lines, std::int64_t{2});
  s.line_tiles = ceil_div(std::max<std::int64_t>(1, s.y.output), s.lines);
  s.window = {.height = slab_lines(s, s.lines),
              .width = width,
              .channels = s.grouping.channels,
              .pixel = x[1],
              .kernel_h = s.y.kernel,
              .kernel_w = s.x.kernel,
              .stride_h = s.y.stride,
              .stride_w = s.x.stride,
              .dilation_h = s.y.dilation,
              .dilation_w = s.x.dilation,
              .pad_top = 0,
              .pad_left = 0,
              .out_height = s.lines,
              .out_width = s.x.output,
              .is_padded = true};
  p->tiles = d.outputs[0].shape.elements() == 0 ? 0 : checked_mul(x[0], s.line_tiles);
  s.slab_floats = ceil_div(checked_mul(s.window.height, line_floats), std::int64_t{16}) * 16;
  const std::int64_t k = checked_mul(s.grouping.channels, checked_mul(s.y.kernel, s.x.kernel));
  const std::int64_t copied = simd_packed_gemm::buffer_floats(simd_packed_gemm::loops(s.isa), checked_mul(s.lines, s.x.output), k);
  p->thread_scratch_bytes = static_cast<std::size_t>(checked_mul<std::int64_t>(checked_add(s.slab_floats, copied), sizeof(float)));
  p->flops = 2.0 * static_cast<double>(w.elements(1, 4)) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

// The lines that output lines from `line` on read, with their pads. False: the run is to stop.
bool copy_lines(const ConvState& s, const float* image, std::int64_t pitch, std::int64_t line, std::int64_t lines, float* to,
                CancelPoints* points) {
  const std::int64_t channels = s.window.pixel, width = s.window.width;
  const std::int64_t before = std::min(s.x.pad_begin, width), inside = std::min(s.x.input, width - before);
  const std::int64_t first = line * s.y.stride - s.y.pad_begin;
  for (std::int64_t i = 0; i < slab_lines(s, lines); ++i, to += width * channels) {
    const std::int64_t y = first + i;
    if (y < 0 || y >= s.y.input) {
      if (!fill_by_parts(points, to, width * channels, 0.0f)) return false;
      continue;
    }
    const float* const from = image + y * s.x.input * pitch;
    if (!fill_by_parts(points, to, before * channels, 0.0f)) return false;
    if (pitch == channels) {
      if (!copy_by_parts(points, to + before * channels, from, inside * channels * std::int64_t{sizeof(float)})) return false;
    } else {
      for (std::int64_t x = 0; x < inside; ++x) {
        if (!copy_by_parts(points, to + (before + x) * channels, from + x * pitch, channels * std::int64_t{sizeof(float)}))
          return false;
      }
    }
    if (!fill_by_parts(points, to + (before + inside) * channels, (width - before - inside) * channels, 0.0f)) return false;
  }
  return true;
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<ConvState>();
  const OpDesc& d = *args.desc;
  const simd_packed_gemm::Loops& loops = simd_packed_gemm::loops(s.isa);
  const float* const bias = args.bias<float>(2);
  const float* const residual = args.residual<float>();
  const std::int64_t x_pitch = d.input_pitch(0), pitch = d.output_pitch(), residual_pitch = d.residual_pitch();
  auto* const slab = static_cast<float*>(args.thread_scratch);
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t image = index / s.line_tiles, line = index % s.line_tiles * s.lines;
    const std::int64_t lines = std::min(s.lines, s.y.output - line), row = (image * s.y.output + line) * s.x.output;
    const float* const pixels = args.in<float>(0) + image * s.y.input * s.x.input * x_pitch;
    if (!copy_lines(s, pixels, x_pitch, line, lines, slab, &points)) return;
    for (std::int64_t group = 0; group < s.grouping.groups && !points.stopped; ++group) {
      const std::int64_t channel = group * s.grouping.columns;
      simd_packed_gemm::Tile t{};
      t.large_l2 = has_large_l2();
      t.m = lines * s.x.output;
      t.n = s.grouping.columns;
      t.k = s.grouping.channels * s.y.kernel * s.x.kernel;
      t.a = slab + group * s.grouping.channels;
      t.lda = s.window.pixel;
      t.window = &s.window;
      t.b = args.pack<float>(1) + group * s.group_floats;
      t.c = args.out<float>() + row * pitch + channel;
      t.ldc = pitch;
      t.residual = residual == nullptr ? nullptr : residual + row * residual_pitch + channel;
      t.ldr = residual_pitch;
      t.init = bias == nullptr ? nullptr : bias + channel;
      t.init_column = 1;
      t.init_scale = 1;
      t.epilogue = epilogue_of(d);
      t.buffer = slab + s.slab_floats;
      t.points = &points;
      loops.run(t);
    }
  }
}

constexpr Kernel kKernels[] = {
    {.name = "conv_grouped",
     .op = "Conv",
     .rank = 16,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack_all<prepack>,
     .plan = plan,
     .run = run,
     .layouts = channels_last,
     .prepack_parts = {.step = part_step, .run = prepack},
     .fusion = {.epilogue = kFusesBias | kFusesResidual,
                .channel_views = channel_views<kViewInput | kViewResidual | kViewOutputs>}},
};

}  // namespace

extern const KernelFamily conv_grouped_kernels;
const KernelFamily conv_grouped_kernels = {kKernels};

}  // namespace evn
