// QLinearConv and ConvInteger over one or two spatial axes, channels last, with a constant weight: products of the pixels under the
// window by the weight, packed once, k by lines of the window. Exact, as the reference. A tile is some lines, or some positions of
// a line, of an image, and output channels of one group. What it reads of the image, with its pads, is copied into a slab, in which
// rows of A are read where they lie; nothing is copied where a window has no pads and its lines are whole steps of k.
#include <algorithm>

#include "backends/cpu/byte_slab.h"
#include "backends/cpu/dot_plan.h"
#include "backends/cpu/follow.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"

namespace evn {
namespace {

struct ConvState {
  Isa isa;
  ByteSlab slab;
  std::int64_t images, groups, columns;  // columns: output channels of a group
  bool by_tap, in_place;
  // Of a tile, and how many there are.
  std::int64_t lines, width, tile_columns;
  std::int64_t line_tiles, width_tiles, column_tiles;
  std::size_t row_sums_at, room_at, slab_at;
};

constexpr std::int64_t kLeastPositions = 32;  // of a tile

Refusal refuses(const OpDesc& d, const DotConvInputs& in) {
  const int rank = d.inputs[0].shape.rank();
  if (rank != 3 && rank != 4) return "only one or two spatial axes";
  if (d.constant(in.w) == nullptr) return "the weight must be constant";
  const Shape& w = d.inputs[static_cast<std::size_t>(in.w)].shape;
  if (w.elements(2, rank) > simd_dot::kMostSegments) return "the kernel is too large";
  return nullptr;
}

template <const DotConvInputs& In>
Refusal supports(const OpDesc& d) {
  return refuses(d, In);
}

std::int64_t groups_of(const OpDesc& d) { return attr_int(*d.node, ConvAttr::kGroup); }

// Taps of a line do not lie side by side.
bool is_by_tap(const OpDesc& d, const Shape& w) {
  const std::span<const std::int64_t> dilations = attr_ints(*d.node, ConvAttr::kDilations);
  return !dilations.empty() && dilations.back() > 1 && w[w.rank() - 1] > 1;
}

DotSource source_of(const OpDesc& d, const DotConvInputs& in, const std::uint8_t* b) {
  const TensorDesc& desc = d.inputs[static_cast<std::size_t>(in.w)];
  const Shape& w = desc.shape;
  const std::int64_t taps_w = w[w.rank() - 1], taps = w.elements(2, w.rank());
  return {b, w[1] * taps, w[1], taps, taps / taps_w, taps_w, is_by_tap(d, w), is_uint8(desc)};
}

std::int64_t columns_of(const OpDesc& d, const DotConvInputs& in) { return d.inputs[static_cast<std::size_t>(in.w)].shape[0] / groups_of(d); }

std::int64_t group_bytes(const OpDesc& d, const DotConvInputs& in) {
  return dot_bytes(simd_dot::loops(integer_isa()), source_of(d, in, nullptr).shape(columns_of(d, in)));
}

template <const DotConvInputs& In>
std::size_t prepack_bytes(const OpDesc& d, int input) {
  return input == In.w ? static_cast<std::size_t>(checked_mul(group_bytes(d, In), groups_of(d))) : 0;
}

template <const DotConvInputs& In>
std::uint64_t prepack_variant(const OpDesc& d, int) {
  const bool by_tap = is_by_tap(d, d.inputs[static_cast<std::size_t>(In.w)].shape);
  return static_cast<std::uint64_t>(groups_of(d)) << 9 | (by_tap ? 256u : 0u) | static_cast<std::uint64_t>(integer_isa());
}

template <const DotConvInputs& In>
void prepack(const OpDesc& d, int input, void* packed) {
  const std::int64_t columns = columns_of(d, In), bytes = group_bytes(d, In);
  DotSource source = source_of(d, In, d.constant(input)->as<std::uint8_t>());
  for (std::int64_t group = 0; group < groups_of(d); ++group) {
    pack_dot(simd_dot::loops(integer_isa()), source, columns, static_cast<std::uint8_t*>(packed) + group * bytes);
    source.b += columns * source.column_step;
  }
}

// --------------------------------------------------------------------------------------------------------- plan --

// Lines first, as they lie together; parts of a line where a line is more than the slab may be, or there is only one.
void cut(const simd_dot::Loops& loops, std::int64_t k, std::uint32_t threads, ConvState* s) {
  const std::int64_t positions = s->slab.y.output * s->slab.x.output;
  const std::int64_t all = dot_pieces(loops, {checked_mul(s->images, positions), s->columns, k, s->groups, threads});
  const std::int64_t pieces = ceil_div(all, std::max<std::int64_t>(1, s->images * s->groups));
  const std::int64_t column_blocks = ceil_div(s->columns, kDotColumnStep);
  const bool by_columns = s->columns * k > s->slab.y.input * s->slab.x.input * s->slab.channels;
  s->column_tiles = by_columns ? std::min(pieces, column_blocks) : 1;
  const std::int64_t rest = ceil_div(pieces, s->column_tiles);
  const bool one_line = s->slab.y.output == 1;
  s->lines = one_line ? 1 : ceil_div(s->slab.y.output, std::min(rest, s->slab.y.output));
  s->width = one_line ? std::max(kLeastPositions, ceil_div(s->slab.x.output, rest)) : s->slab.x.output;
  s->width = std::max<std::int64_t>(1, std::min(s->width, s->slab.x.output));
  while (s->lines > 1 && s->slab.bytes(s->lines, s->width) > kDotRowsBytes) s->lines = ceil_div(s->lines, std::int64_t{2});
  while (s->width > kLeastPositions && s->slab.bytes(s->lines, s->width) > kDotRowsBytes) {
    s->width = ceil_div(ceil_div(s->width, std::int64_t{2}), kLeastPositions) * kLeastPositions;
  }
  s->line_tiles = ceil_div(s->slab.y.output, s->lines);
  s->width_tiles = ceil_div(s->slab.x.output, s->width);
  s->tile_columns = ceil_div(column_blocks, s->column_tiles) * kDotColumnStep;
  s->column_tiles = ceil_div(s->columns, s->tile_columns);
}

template <const DotConvInputs& In>
void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<ConvState>();
  const Shape& x = d.inputs[0].shape;
  const Shape& w = d.inputs[static_cast<std::size_t>(In.w)].shape;
  const Window window = conv_window(*d.node, x, w);
  s.isa = integer_isa();
  const simd_dot::Loops& loops = simd_dot::loops(s.isa);
  s.slab.y = window.rank == 2 ? window.axis[0] : WindowAxis{};
  s.slab.x = window.axis[window.rank - 1];
  s.images = x[0];
  s.groups = groups_of(d);
  s.slab.pixel = x[1];
  s.slab.channels = w[1];
  s.columns = columns_of(d, In);
  s.by_tap = is_by_tap(d, w);
  s.slab.flip = !is_uint8(d.inputs[0]);
  const bool unpadded = s.slab.y.pad_begin + s.slab.y.pad_end + s.slab.x.pad_begin + s.slab.x.pad_end == 0;
  if (unpadded && s.slab.y.kernel * s.slab.x.kernel * s.slab.y.stride * s.slab.x.stride == 1) {  // a matrix: one long line
    s.slab.x.input = s.slab.x.output = checked_mul(s.images, checked_mul(s.slab.y.output, s.slab.x.output));
    s.slab.y = WindowAxis{};
    s.images = 1;
  }
  const DotShape shape = source_of(d, In, nullptr).shape(s.columns);
  const bool wide = loops.wide_columns != 0 && checked_mul(s.images, checked_mul(s.slab.y.output, s.slab.x.output)) >= simd_dot::kWideRows;
  s.slab.words = wide;
  s.in_place = !wide && unpadded && !s.slab.flip && shape.segment % loops.k_step == 0 && (s.groups == 1 || s.by_tap || s.slab.x.kernel == 1);
  const std::int64_t k = w.elements(1, w.rank());
  cut(loops, k, d.threads, &s);
  s.slab.width = s.slab.pixels(s.width);
  p->tiles = d.outputs[0].shape.elements() == 0
                 ? 0
                 : checked_mul(checked_mul(s.images, s.groups), checked_mul(checked_mul(s.line_tiles, s.width_tiles), s.column_tiles));
  s.row_sums_at = dot_columns_bytes(loops, s.tile_columns);
  s.room_at = s.row_sums_at + align_up(static_cast<std::size_t>(s.lines * s.width) * sizeof(std::int32_t), 64);
  s.slab_at = s.room_at + (wide ? static_cast<std::size_t>(dot_room_bytes(loops, shape)) : 0);
  p->thread_scratch_bytes = s.slab_at + (s.in_place ? 0 : static_cast<std::size_t>(s.slab.bytes(s.lines, s.width) + simd_dot::kOverread));
  p->flops = 2.0 * static_cast<double>(k) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
  if (d.residual >= 0) p->in_place = 1u << d.residual;  // each byte is read where it is written
}

// ---------------------------------------------------------------------------------------------------------- run --

struct Place {
  std::int64_t image, group, line, x;  // line and x: of the output
  bool operator==(const Place&) const = default;
};

// Where rows of A lie, in the image or in the slab, and their segments.
void set_rows(const ConvState& s, const std::uint8_t* a, std::int64_t* offsets, simd_dot::Tile* t) {
  const std::int64_t pixel = s.in_place ? s.slab.pixel : s.slab.channels;
  const std::int64_t line = (s.in_place ? s.slab.x.input : s.slab.width) * pixel;
  if (s.slab.words) {
    t->words = reinterpret_cast<const std::int16_t*>(a);
  } else {
    t->a = a;
  }
  t->lda = pixel * (s.in_place ? s.slab.x.stride : s.slab.step_x());
  t->line_step = line * (s.in_place ? s.slab.y.stride : s.slab.step_y());
  const std::int64_t taps = s.by_tap ? s.slab.x.kernel : 1;
  for (std::int64_t i = 0; i < s.slab.y.kernel * taps; ++i) {
    offsets[i] = i / taps * s.slab.y.dilation * line + i % taps * s.slab.x.dilation * pixel;
  }
  t->offsets = offsets;
}

DotNumbers numbers_of(const KernelArgs& args, const ConvState& s, const DotConvInputs& in, std::int64_t channel) {
  const OpDesc& d = *args.desc;
  DotNumbers n;
  n.a_zero = zero_point_of(args, in.x_zero) + (s.slab.flip ? 128 : 0);
  n.flip_b = is_uint8(d.inputs[static_cast<std::size_t>(in.w)]);
  if (d.has_input(in.w_zero)) {
    n.b_zero_step = step_of(d, in.w_zero);
    n.b_zero = args.in<std::uint8_t>(in.w_zero) + channel * n.b_zero_step;
  }
  if (in.w_scale < 0) return n;
  n.a_scale = static_cast<double>(*args.in<float>(in.x_scale));
  n.divisor = static_cast<double>(*args.in<float>(in.y_scale));
  n.b_scale_step = step_of(d, in.w_scale);
  n.b_scale = args.in<float>(in.w_scale) + channel * n.b_scale_step;
  n.added_step = 1;
  if (d.has_input(in.bias) && d.residual != in.bias) n.added = args.in<std::int32_t>(in.bias) + channel;
  return n;
}

template <const DotConvInputs& In>
void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<ConvState>();
  const OpDesc& d = *args.desc;
  const simd_dot::Loops& loops = simd_dot::loops(s.isa);
  const DotShape shape = source_of(d, In, nullptr).shape(s.columns);
  const std::int64_t packed_bytes = dot_bytes(loops, shape);
  const std::int64_t y_pixel = s.groups * s.columns;
  const std::size_t element = dtype_size(d.outputs[0].dtype);
  const ByteSum sum = d.byte_sum == nullptr ? ByteSum{} : *d.byte_sum;
  simd_dot::Added added{nullptr, sum.x_scale, sum.r_scale, sum.zero, sum.x_zero, sum.r_zero};
  auto* const memory = static_cast<std::uint8_t*>(args.thread_scratch);
  std::int64_t offsets[simd_dot::kMostSegments];
  Place filled{-1, 0, 0, 0};
  for (std::int64_t i = begin; i < end && !cancel.stop(); ++i) {
    std::int64_t rest = i;
    const auto take = [&](std::int64_t count) {
      const std::int64_t place = rest % count;
      rest /= count;
      return place;
    };
    const std::int64_t column = take(s.column_tiles) * s.tile_columns;
    const std::int64_t x = take(s.width_tiles) * s.width, line = take(s.line_tiles) * s.lines, group = take(s.groups);
    const Place at{rest, group, line, x};
    simd_dot::Tile t{};
    t.n = std::min(s.tile_columns, s.columns - column);
    t.lines = std::min(s.lines, s.slab.y.output - line);
    t.width = std::min(s.width, s.slab.x.output - x);
    const DotNumbers numbers = numbers_of(args, s, In, group * s.columns);
    set_columns(loops, numbers, shape, args.pack<std::uint8_t>(In.w) + group * packed_bytes, column, memory, &t);
    const std::int64_t first = at.image * s.slab.y.input * s.slab.x.input * s.slab.pixel + group * s.slab.channels;
    const std::uint8_t* const image = args.in<std::uint8_t>(0) + first;
    std::uint8_t* const slab = memory + s.slab_at;
    if (!s.in_place && !(at == filled)) {
      s.slab.fill(loops, image, {line, x, t.lines, t.width}, static_cast<std::uint8_t>(numbers.a_zero), slab);
      filled = at;
    }
    set_rows(s, s.in_place ? image + (line * s.slab.y.stride * s.slab.x.input + x * s.slab.x.stride) * s.slab.pixel : slab, offsets, &t);
    t.row_sums = reinterpret_cast<std::int32_t*>(memory + s.row_sums_at);
    t.room = reinterpret_cast<std::int16_t*>(memory + s.room_at);
    t.zero = zero_point_of(args, In.y_zero);
    t.output = dot_output(d.outputs[0].dtype);
    const std::int64_t position = (at.image * s.slab.y.output + line) * s.slab.x.output + x;
    const std::int64_t to = position * y_pixel + group * s.columns + column;
    t.c = args.out<std::uint8_t>() + static_cast<std::size_t>(to) * element;
    t.ldc = y_pixel;
    t.line_c = s.slab.x.output * y_pixel;
    if (d.residual >= 0) {
      added.r = args.in<std::uint8_t>(d.residual) + to;
      t.added = &added;
    }
    loops.run(t);
  }
}

template <const DotConvInputs& In>
constexpr Kernel kernel(const char* name, const char* op, std::uint8_t takes) {
  return {name, op, "", 10, supports<In>, prepack_bytes<In>, prepack_variant<In>, prepack<In>, plan<In>, run<In>, false,
          channels_last, takes};
}

constexpr Kernel kKernels[] = {
    kernel<kQLinearConvInputs>("qlinear_conv_last", "QLinearConv", kTakesByteResidual),
    kernel<kConvIntegerInputs>("conv_integer_last", "ConvInteger", 0),
};

}  // namespace

extern const KernelFamily quantized_conv_kernels;
const KernelFamily quantized_conv_kernels = {kKernels};

}  // namespace evn
