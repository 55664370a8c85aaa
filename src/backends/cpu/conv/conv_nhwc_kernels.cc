// Conv over one or two spatial axes, channels last, with a constant weight: a product of the pixels under the window by the weight,
// packed once. A tile is a range of output positions of all images, and output channels of one group. Where groups are narrow it is
// lines of the output of one group: their pixels are copied together, with the padding, and serve all taps from there.
#include <algorithm>

#include "backends/cpu/follow.h"
#include "backends/cpu/gemm/packed_gemm_plan.h"
#include "backends/cpu/move/transpose_loops.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"

namespace evn {
namespace {

constexpr std::int64_t kFewestChannels = 16;  // of a group; narrower ones waste vectors
constexpr std::int64_t kFewestCopied = 8;     // where pixels are copied
constexpr std::int64_t kMostColumns = 64;     // of a narrow group: copies of pixels for more columns take little of the time
constexpr std::int64_t kCopiedFloats = 6144;  // of a tile, where its lines are short enough: they stay in L1

struct ConvState {
  Isa isa;
  simd_packed_gemm::Window window;
  bool is_matrix;                         // 1 x 1 without strides and pads: pixels are rows
  std::int64_t groups, rows, columns, k;  // rows: output positions of all images; columns: output channels of a group
  std::int64_t group_floats;
  PackedGemmTiling tiling;
};

Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  const int rank = d.inputs[0].shape.rank();
  if (rank != 3 && rank != 4) return "only one or two spatial axes";
  if (d.constant(1) == nullptr) return "the weight must be constant";
  const Shape& w = d.inputs[1].shape;
  const std::int64_t groups = attr_int(*d.node, ConvAttr::kGroup);
  if (groups > 1 && (w[0] / groups < kFewestChannels || w[1] < kFewestChannels)) return "groups of few channels";
  return nullptr;
}

std::int64_t group_floats(const OpDesc& d) {
  const Shape& w = d.inputs[1].shape;
  return packed_gemm_floats(simd_packed_gemm::loops(cpu_isa()), w[0] / attr_int(*d.node, ConvAttr::kGroup),
                            w.elements(1, w.rank()));
}

std::size_t prepack_bytes(const OpDesc& d, int input) {
  if (input != 1) return 0;
  const std::int64_t floats = checked_mul(group_floats(d), attr_int(*d.node, ConvAttr::kGroup));
  return static_cast<std::size_t>(checked_mul<std::int64_t>(floats, sizeof(float)));
}

std::uint64_t prepack_variant(const OpDesc& d, int) {
  return static_cast<std::uint64_t>(attr_int(*d.node, ConvAttr::kGroup)) << 8 | static_cast<std::uint64_t>(cpu_isa());
}

// A part of several groups is all of each.
std::int64_t part_step(const OpDesc& d, int) {
  const std::int64_t groups = attr_int(*d.node, ConvAttr::kGroup);
  return groups == 1 ? simd_packed_gemm::loops(cpu_isa()).lanes : d.inputs[1].shape[0] / groups;
}

void prepack(const OpDesc& d, int, const void* rows, std::int64_t begin, std::int64_t end, void* packed) {
  const simd_packed_gemm::Loops& loops = simd_packed_gemm::loops(cpu_isa());
  const Shape& w = d.inputs[1].shape;
  const std::int64_t columns = w[0] / attr_int(*d.node, ConvAttr::kGroup);
  const std::int64_t taps = w.elements(2, w.rank());
  const std::int64_t k = w[1] * taps;
  const auto* from = static_cast<const float*>(rows);
  for (std::int64_t row = begin; row < end;) {
    const std::int64_t column = row % columns;
    const std::int64_t count = std::min(columns - column, end - row);
    float* const to = static_cast<float*>(packed) + row / columns * group_floats(d);
    pack_packed_gemm(loops, {from, taps, w[1], taps, k}, {0, k, column, column + count, columns}, 1.0f, to);
    from += count * k;
    row += count;
  }
}

simd_packed_gemm::Window make_window(const Window& w, std::int64_t channels, std::int64_t pixel) {
  const WindowAxis none;
  const WindowAxis& y = w.rank == 2 ? w.axis[0] : none;
  const WindowAxis& x = w.axis[w.rank - 1];
  return {y.input,  x.input,    channels,   pixel,       y.kernel,    x.kernel, y.stride,
          x.stride, y.dilation, x.dilation, y.pad_begin, x.pad_begin, y.output, x.output};
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<ConvState>();
  const Shape& x = d.inputs[0].shape;
  const Shape& w = d.inputs[1].shape;
  s.isa = cpu_isa();
  s.groups = attr_int(*d.node, ConvAttr::kGroup);
  s.window = make_window(conv_window(*d.node, x, w), w[1], d.input_pitch(0));
  const simd_packed_gemm::Window& q = s.window;
  s.is_matrix = q.kernel_h * q.kernel_w == 1 && q.stride_h * q.stride_w == 1 && q.pad_top == 0 && q.pad_left == 0 &&
                q.height == q.out_height && q.width == q.out_width;
  s.rows = checked_mul(x[0], checked_mul(q.out_height, q.out_width));
  s.columns = w[0] / s.groups;
  s.k = w.elements(1, w.rank());
  s.group_floats = group_floats(d);
  const simd_packed_gemm::Loops& loops = simd_packed_gemm::loops(s.isa);
  s.tiling = tile_packed_gemm(loops, {s.rows, s.columns, s.k, s.groups, !s.is_matrix, d.threads});
  p->tiles = s.rows == 0 ? 0 : checked_mul(s.groups, s.tiling.tiles());
  if (!s.is_matrix) {
    const std::int64_t floats = simd_packed_gemm::buffer_floats(loops, s.tiling.rows, s.k);
    p->thread_scratch_bytes = static_cast<std::size_t>(floats) * sizeof(float);
  }
  p->flops = 2.0 * static_cast<double>(s.k) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<ConvState>();
  const simd_packed_gemm::Loops& loops = simd_packed_gemm::loops(s.isa);
  const float* const bias = args.bias<float>(2);
  const float* const residual = args.residual<float>();
  const std::int64_t pitch = args.desc->output_pitch();
  CancelPoints points = points_of(cancel);
  const std::int64_t residual_pitch = args.desc->residual_pitch();
  for_each_packed_gemm_tile(
      s.tiling, s.rows, s.columns, begin, end,
      [&](std::int64_t group, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
        const float* const x = args.in<float>(0) + group * s.window.channels;
        simd_packed_gemm::Tile t{};
        t.large_l2 = has_large_l2();
        t.m = rows;
        t.n = columns;
        t.k = s.k;
        t.a = s.is_matrix ? x + row * s.window.pixel : x;
        t.lda = s.window.pixel;
        t.window = s.is_matrix ? nullptr : &s.window;
        t.first_row = row;
        t.b = args.pack<float>(1) + group * s.group_floats + column * s.k;
        const std::int64_t channel = group * s.columns + column;
        t.c = args.out<float>() + row * pitch + channel;
        t.ldc = pitch;
        t.residual = residual == nullptr ? nullptr : residual + row * residual_pitch + channel;
        t.ldr = residual_pitch;
        t.init = bias == nullptr ? nullptr : bias + group * s.columns + column;
        t.init_column = 1;
        t.init_scale = 1;
        t.epilogue = epilogue_of(*args.desc);
        t.far = is_far(args);
        t.buffer = static_cast<float*>(args.thread_scratch);
        t.points = &points;
        loops.run(t);
        return !cancel.stop();
      });
}

// Lines of the output of a narrow group.
struct GroupedState {
  Isa isa;
  simd_packed_gemm::Window window;  // over the copied lines, which have no padding around them
  Window image;                     // of one or two axes
  std::int64_t groups, columns, k, group_floats;
  std::int64_t pixel;  // of the image
  std::int64_t lines, line_tiles, copied_floats;
};

Refusal supports_grouped(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  const int rank = d.inputs[0].shape.rank();
  if (rank != 3 && rank != 4) return "only one or two spatial axes";
  if (d.constant(1) == nullptr) return "the weight must be constant";
  const Shape& w = d.inputs[1].shape;
  const std::int64_t groups = attr_int(*d.node, ConvAttr::kGroup);
  if (groups == 1 || w.elements(2, rank) == 1) return "only groups, and windows of several pixels";
  const std::int64_t columns = w[0] / groups;
  if (columns < kFewestCopied || w[1] < kFewestCopied) return "groups of few channels";
  return columns > kMostColumns ? "groups of many channels" : nullptr;
}

const WindowAxis& across(const Window& w) { return w.axis[w.rank - 1]; }
WindowAxis down(const Window& w) { return w.rank == 2 ? w.axis[0] : WindowAxis(); }

// Lines or columns of the input that `count` of the output see.
std::int64_t seen_by(const WindowAxis& axis, std::int64_t count) {
  return (count - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
}

void plan_grouped(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<GroupedState>();
  const Shape& x = d.inputs[0].shape;
  const Shape& w = d.inputs[1].shape;
  s.isa = cpu_isa();
  s.image = conv_window(*d.node, x, w);
  s.groups = attr_int(*d.node, ConvAttr::kGroup);
  s.columns = w[0] / s.groups;
  s.k = w.elements(1, w.rank());
  s.group_floats = group_floats(d);
  s.pixel = d.input_pitch(0);
  s.window = make_window(s.image, w[1], w[1]);
  const std::int64_t width = seen_by(across(s.image), s.window.out_width);
  const std::int64_t line_floats = checked_mul(std::max<std::int64_t>(1, width), w[1]);
  const WindowAxis axis = down(s.image);
  const std::int64_t fitting = (kCopiedFloats / line_floats - seen_by(axis, 1)) / axis.stride + 1;
  s.lines = std::clamp<std::int64_t>(fitting, 1, std::max<std::int64_t>(1, s.window.out_height));
  s.line_tiles = ceil_div(s.window.out_height, s.lines);
  s.window.height = seen_by(axis, s.lines);
  s.window.width = width;
  s.window.pad_top = s.window.pad_left = 0;
  s.window.out_height = s.lines;
  s.copied_floats = checked_add(checked_mul(s.window.height, line_floats), std::int64_t{16});  // a vector beyond the end
  p->tiles = d.outputs[0].shape.elements() == 0 ? 0 : checked_mul(x[0], checked_mul(s.groups, s.line_tiles));
  const simd_packed_gemm::Loops& loops = simd_packed_gemm::loops(s.isa);
  const std::int64_t floats = simd_packed_gemm::buffer_floats(loops, s.lines * s.window.out_width, s.k);
  p->thread_scratch_bytes =
      static_cast<std::size_t>(checked_mul<std::int64_t>(checked_add(s.copied_floats, floats), sizeof(float)));
  p->flops = 2.0 * static_cast<double>(s.k) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

// The lines of an image from `line` on, of the channels that begin at x, with zeros around.
void copy_lines(const GroupedState& s, const float* x, std::int64_t line, float* to) {
  const WindowAxis& axis = across(s.image);
  const std::int64_t channels = s.window.channels;
  const std::int64_t left = std::min(axis.pad_begin, s.window.width);
  const std::int64_t inside = std::min(axis.input, s.window.width - left);
  const std::int64_t line_floats = s.window.width * channels;
  const std::int64_t height = down(s.image).input;
  for (std::int64_t y = line; y < line + s.window.height; ++y, to += line_floats) {
    const bool is_inside = y >= 0 && y < height;
    const std::int64_t begin = is_inside ? left * channels : 0, end = is_inside ? (left + inside) * channels : 0;
    std::fill_n(to, begin, 0.0f);
    if (is_inside) simd_transpose::loops(s.isa).copy(x + y * axis.input * s.pixel, s.pixel, inside, channels, to + begin, channels);
    std::fill(to + end, to + line_floats, 0.0f);
  }
}

void run_grouped(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<GroupedState>();
  const std::int64_t height = down(s.image).output, width = s.window.out_width;
  const std::int64_t image_floats = down(s.image).input * across(s.image).input * s.pixel;
  const float* const bias = args.bias<float>(2);
  CancelPoints points = points_of(cancel);
  simd_packed_gemm::Tile t{};
  t.large_l2 = has_large_l2();
  t.n = s.columns;
  t.k = s.k;
  t.a = static_cast<float*>(args.thread_scratch);
  t.buffer = static_cast<float*>(args.thread_scratch) + (s.copied_floats + 15) / 16 * 16;
  t.lda = s.window.pixel;
  t.window = &s.window;
  t.ldc = args.desc->output_pitch();
  t.ldr = args.desc->residual_pitch();
  t.init_column = 1;
  t.init_scale = 1;
  t.epilogue = epilogue_of(*args.desc);
  t.points = &points;
  for (std::int64_t i = begin; i < end && !cancel.stop(); ++i) {
    const std::int64_t group = i / s.line_tiles % s.groups, image = i / s.line_tiles / s.groups;
    const std::int64_t line = i % s.line_tiles * s.lines;
    const WindowAxis axis = down(s.image);
    copy_lines(s, args.in<float>(0) + image * image_floats + group * s.window.channels, line * axis.stride - axis.pad_begin,
               static_cast<float*>(args.thread_scratch));
    const std::int64_t row = (image * height + line) * width, channel = group * s.columns;
    t.m = std::min(s.lines, height - line) * width;
    t.b = args.pack<float>(1) + group * s.group_floats;
    t.c = args.out<float>() + row * t.ldc + channel;
    t.residual = args.residual<float>() == nullptr ? nullptr : args.residual<float>() + row * t.ldr + channel;
    t.init = bias == nullptr ? nullptr : bias + channel;
    simd_packed_gemm::loops(s.isa).run(t);
  }
}

constexpr Kernel kKernels[] = {
    {.name = "conv_grouped_nhwc",
     .op = "Conv",
     .rank = 16,
     .supports = supports_grouped,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack_all<prepack>,
     .plan = plan_grouped,
     .run = run_grouped,
     .layouts = channels_last,
     .prepack_parts = {.step = part_step, .run = prepack},
     .fusion = {.epilogue = kFusesBias | kFusesResidual,
                .channel_views = channel_views<kViewInput | kViewResidual | kViewOutputs>}},
    {.name = "conv_nhwc",
     .op = "Conv",
     .rank = 15,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack_all<prepack>,
     .plan = plan,
     .run = run,
     .layouts = channels_last,
     .prepack_parts = {.step = part_step, .run = prepack},
     .fusion = {.epilogue = kFusesBias | kFusesResidual,
                .channel_views = channel_views<kViewInput | kViewResidual | kViewOutputs>,
                .stages = kPointwiseStage}},
};

}  // namespace

extern const KernelFamily conv_nhwc_kernels;
const KernelFamily conv_nhwc_kernels = {kKernels};

}  // namespace evn
