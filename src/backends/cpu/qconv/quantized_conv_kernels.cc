// QLinearConv, ConvInteger and ConvIntegerToFloat over one or two spatial axes, channels last, with a constant weight: products of
// the pixels under the window by the weight, packed once, k by lines of the window. Exact, as the reference. A tile is some lines,
// or some positions of a line, of an image, and output channels of one group. What it reads of the image, with its pads, is copied
// into a slab, in which rows of A are read where they lie; nothing is copied where a window has no pads and its lines are whole
// steps of k.
#include <algorithm>
#include <new>

#include "backends/cpu/follow.h"
#include "backends/cpu/qconv/byte_line_buffer.h"
#include "backends/cpu/qconv/qgemm_conv.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"
#include "ops/merge.h"

namespace evn {
namespace {

struct ConvState : QgemmConv {
  Isa isa;
  bool in_place;
  std::size_t row_sums_at, room_at, slab_at;
};

QgemmSource source_of(const OpDesc& d, const QgemmConvInputs& in, const std::uint8_t* b) {
  const TensorDesc& desc = d.inputs[static_cast<std::size_t>(in.w)];
  const Shape& w = desc.shape;
  const std::int64_t taps_w = w[w.rank() - 1], taps = w.elements(2, w.rank());
  return {.b = b,
          .column_step = w[1] * taps,
          .channels = w[1],
          .channel_step = taps,
          .taps_h = taps / taps_w,
          .taps_w = taps_w,
          .by_tap = is_by_tap(d, w),
          .flip = is_uint8(desc)};
}

Refusal supports(const OpDesc& d) {
  const QgemmConvInputs& in = conv_inputs_of(d);
  const int rank = d.inputs[0].shape.rank();
  if (rank != 3 && rank != 4) return "only one or two spatial axes";
  if (d.constant(in.w) == nullptr) return "the weight must be constant";
  if (d.inputs[static_cast<std::size_t>(in.w)].shape.elements() == 0) return "an empty weight";
  if (source_of(d, in, nullptr).shape(1).segments > simd_qgemm::kMostSegments) return "the kernel is too large";
  return nullptr;
}

std::int64_t columns_of(const OpDesc& d, const QgemmConvInputs& in) {
  return d.inputs[static_cast<std::size_t>(in.w)].shape[0] / conv_groups(d);
}

std::int64_t group_bytes(const OpDesc& d, const QgemmConvInputs& in) {
  return qgemm_bytes(simd_qgemm::loops(integer_isa()), source_of(d, in, nullptr).shape(columns_of(d, in)));
}

std::size_t prepack_bytes(const OpDesc& d, int input) {
  const QgemmConvInputs& in = conv_inputs_of(d);
  return input == in.w ? static_cast<std::size_t>(checked_mul(group_bytes(d, in), conv_groups(d))) : 0;
}

std::uint64_t prepack_variant(const OpDesc& d, int) {
  const QgemmConvInputs& in = conv_inputs_of(d);
  const bool by_tap = is_by_tap(d, d.inputs[static_cast<std::size_t>(in.w)].shape);
  return static_cast<std::uint64_t>(conv_groups(d)) << 9 | (by_tap ? 256u : 0u) | static_cast<std::uint64_t>(integer_isa());
}

void prepack(const OpDesc& d, int input, void* packed) {
  const QgemmConvInputs& in = conv_inputs_of(d);
  const std::int64_t columns = columns_of(d, in), bytes = group_bytes(d, in);
  QgemmSource source = source_of(d, in, d.constant(input)->as<std::uint8_t>());
  for (std::int64_t group = 0; group < conv_groups(d); ++group) {
    pack_qgemm(simd_qgemm::loops(integer_isa()), source, columns, static_cast<std::uint8_t*>(packed) + group * bytes);
    source.b += columns * source.column_step;
  }
}

// --------------------------------------------------------------------------------------------------------- plan --

void plan(const OpDesc& d, KernelPlan* p) {
  const QgemmConvInputs& in = conv_inputs_of(d);
  auto& s = p->state<ConvState>();
  const Shape& w = d.inputs[static_cast<std::size_t>(in.w)].shape;
  s.isa = integer_isa();
  const simd_qgemm::Loops& loops = simd_qgemm::loops(s.isa);
  s.set(d, w, d.inputs[0].shape[1]);
  s.slab.flip = !is_uint8(d.inputs[0]);
  const QgemmShape shape = source_of(d, in, nullptr).shape(s.columns);
  const bool wide = loops.wide_columns != 0 && s.positions() >= simd_qgemm::kWideRows;
  s.slab.words = wide;
  const bool lies_together = s.groups == 1 || s.by_tap || s.slab.x.kernel == 1;
  s.in_place = !wide && s.unpadded && !s.slab.flip && shape.segment % loops.k_step == 0 && lies_together;
  const std::int64_t k = w.elements(1, w.rank());
  s.cut(qgemm_pieces(loops, {s.positions(), s.columns, k, s.groups, d.threads}), k, kQgemmRowsBytes);
  p->tiles = d.outputs[0].shape.elements() == 0 ? 0 : s.tiles();
  s.row_sums_at = qgemm_columns_bytes(loops, s.tile_columns);
  s.room_at = s.row_sums_at + align_up(static_cast<std::size_t>(s.lines * s.width) * sizeof(std::int32_t), 64);
  s.slab_at = s.room_at + (wide ? static_cast<std::size_t>(qgemm_room_bytes(loops, shape)) : 0);
  p->thread_scratch_bytes =
      s.slab_at + (s.in_place ? 0 : static_cast<std::size_t>(s.slab.bytes(s.lines, s.width) + simd_qgemm::kOverread));
  p->flops = 2.0 * static_cast<double>(k) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

// ---------------------------------------------------------------------------------------------------------- run --

QgemmParameters numbers_of(const KernelArgs& args, const QgemmConvInputs& in, std::int64_t channel) {
  const OpDesc& d = *args.desc;
  QgemmParameters n;
  n.a_zero = zero_point_of(args, in.x_zero) + (is_uint8(d.inputs[0]) ? 0 : 128);
  n.flip_b = is_uint8(d.inputs[static_cast<std::size_t>(in.w)]);
  if (d.has_input(in.w_zero)) {
    n.b_zero_step = step_of(d, in.w_zero);
    n.b_zero = args.in<std::uint8_t>(in.w_zero) + channel * n.b_zero_step;
  }
  if (in.w_scale < 0) return n;
  n.a_scale = static_cast<double>(*args.in<float>(in.x_scale));
  if (in.y_scale >= 0) n.divisor = static_cast<double>(*args.in<float>(in.y_scale));
  n.b_scale_step = step_of(d, in.w_scale);
  n.b_scale = args.in<float>(in.w_scale) + channel * n.b_scale_step;
  n.added_step = 1;
  if (in.bias >= 0 && d.has_input(in.bias)) n.added = args.in<std::int32_t>(in.bias) + channel;
  if (in.added >= 0 && d.has_input(in.added)) n.bias = args.in<float>(in.added) + channel;
  return n;
}

simd_qgemm::Added added_of(const OpDesc& d) {
  const ByteSum sum = d.fusion.byte_sum == nullptr ? ByteSum{} : *d.fusion.byte_sum;
  return {nullptr, sum.x_scale, sum.r_scale, sum.zero, sum.x_zero, sum.r_zero};
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const QgemmConvInputs& in = conv_inputs_of(*args.desc);
  const auto& s = args.plan->state<ConvState>();
  const OpDesc& d = *args.desc;
  const simd_qgemm::Loops& loops = simd_qgemm::loops(s.isa);
  const QgemmShape shape = source_of(d, in, nullptr).shape(s.columns);
  const std::int64_t packed_bytes = qgemm_bytes(loops, shape);
  const std::int64_t y_pixel = s.groups * s.columns;
  const std::size_t element = dtype_size(d.outputs[0].dtype);
  simd_qgemm::Added added = added_of(d);
  auto* const memory = static_cast<std::uint8_t*>(args.thread_scratch);
  std::int64_t offsets[simd_qgemm::kMostSegments];
  QgemmConvTile::Source filled{-1, 0, 0, 0};
  CancelPoints points = points_of(cancel);
  for (std::int64_t i = begin; i < end && !cancel.stop(); ++i) {
    const QgemmConvTile at = s.tile(i);
    const std::int64_t group = at.from.group;
    simd_qgemm::Tile t{};
    t.n = at.columns;
    t.lines = at.lines;
    t.width = at.width;
    t.points = &points;
    const QgemmParameters numbers = numbers_of(args, in, group * s.columns);
    if (!set_columns(loops, numbers, shape, args.pack<std::uint8_t>(in.w) + group * packed_bytes, at.column, memory, &t)) return;
    const std::uint8_t* const image = args.in<std::uint8_t>(0) + at.first;
    std::uint8_t* const slab = memory + s.slab_at;
    if (!s.in_place && !(at.from == filled)) {
      s.slab.fill(loops, image, {at.from.line, at.from.x, t.lines, t.width}, static_cast<std::uint8_t>(numbers.a_zero), slab,
                  &points);
      if (points.stopped) return;
      filled = at.from;
    }
    if (s.slab.words) {
      t.words = reinterpret_cast<const std::int16_t*>(slab);
    } else {
      t.a = s.in_place ? image + s.in_image(at) : slab;
    }
    s.set_rows(s.in_place, shape.segments, offsets, &t);
    t.row_sums = reinterpret_cast<std::int32_t*>(memory + s.row_sums_at);
    t.room = reinterpret_cast<std::int16_t*>(memory + s.room_at);
    t.zero = zero_point_of(args, in.y_zero);
    t.output = qgemm_output(d.outputs[0].dtype);
    const std::int64_t to = at.position * y_pixel + group * s.columns + at.column;
    t.c = args.out<std::uint8_t>() + static_cast<std::size_t>(to) * element;
    t.ldc = y_pixel;
    t.line_c = s.slab.x.output * y_pixel;
    if (d.has_residual()) {
      added.r = args.residual<std::uint8_t>() + to;
      t.added = &added;
    }
    loops.run(t);
    apply_steps(epilogue_of(d), cluster_of(s.isa), t.c, t.lines, t.line_c, t.width, t.ldc, t.n, &points);
  }
}

// -------------------------------------------------------------------------------------------------------- lines --

constexpr const QgemmConvInputs& kIn = kQLinearConvInputs;

// Without groups, all columns at once.
class ConvLines final : public ByteLineBuffer {
 public:
  ConvLines(const OpDesc& d, const Int8Stage& part)
      : loops_(simd_qgemm::loops(integer_isa())), shape_(source_of(d, kIn, nullptr).shape(columns_of(d, kIn))) {
    const Shape& w = d.inputs[static_cast<std::size_t>(kIn.w)].shape;
    conv_.set(d, w, d.inputs[0].shape[1]);
    conv_.slab.flip = !is_uint8(d.inputs[0]);
    conv_.slab.words = loops_.wide_columns != 0;
    line_ = d.outputs[0].shape[3];
    one_line_ = conv_.slab.y.output == 1;
    const bool fits = part.may_overread || shape_.segment % loops_.k_step == 0;
    in_place_ = !conv_.slab.words && conv_.unpadded && !conv_.slab.flip && fits;
    lines_ = one_line_ ? 1 : part.lines;
    width_ = one_line_ ? part.lines * line_ : line_;
    conv_.slab.width = conv_.slab.pixels(width_);
  }

  // Behind the object: numbers of columns, sums of rows, the room for columns of B, and the slab.
  std::size_t row_sums_at() const { return align_up(sizeof(ConvLines), 64) + qgemm_columns_bytes(loops_, conv_.columns); }
  std::size_t room_at() const {
    return row_sums_at() + align_up(static_cast<std::size_t>(checked_mul(lines_, width_)) * sizeof(std::int32_t), 64);
  }
  std::size_t slab_at() const {
    return room_at() + (conv_.slab.words ? static_cast<std::size_t>(qgemm_room_bytes(loops_, shape_)) : 0);
  }
  std::size_t bytes() const {
    return slab_at() + (in_place_ ? 0 : static_cast<std::size_t>(conv_.slab.bytes(lines_, width_) + simd_qgemm::kOverread));
  }

  void begin(const KernelArgs& args, CancelPoints* points) {
    const OpDesc& d = *args.desc;
    auto* const memory = reinterpret_cast<std::uint8_t*>(this);
    const QgemmParameters numbers = numbers_of(args, kIn, 0);
    pad_ = static_cast<std::uint8_t>(numbers.a_zero);
    tile_ = {};
    tile_.n = conv_.columns;
    tile_.points = points;
    if (!set_columns(loops_, numbers, shape_, args.pack<std::uint8_t>(kIn.w), 0, memory + align_up(sizeof(ConvLines), 64), &tile_))
      return;
    slab_ = memory + slab_at();
    conv_.set_rows(in_place_, shape_.segments, offsets_, &tile_);
    tile_.row_sums = reinterpret_cast<std::int32_t*>(memory + row_sums_at());
    tile_.room = reinterpret_cast<std::int16_t*>(memory + room_at());
    tile_.zero = zero_point_of(args, kIn.y_zero);
    tile_.output = qgemm_output(d.outputs[0].dtype);
    tile_.ldc = conv_.columns;
    tile_.line_c = line_ * conv_.columns;
    added_ = added_of(d);
    if (d.has_residual()) tile_.added = &added_;
  }

  void make(const std::uint8_t* x, std::int64_t from, std::int64_t to, std::uint8_t* y, const std::uint8_t* r) override {
    const SlabPart part = one_line_ ? SlabPart{0, from * line_, 1, (to - from) * line_} : SlabPart{from, 0, to - from, line_};
    tile_.lines = part.lines;
    tile_.width = part.width;
    if (!in_place_) conv_.slab.fill(loops_, x, part, pad_, slab_, tile_.points);
    if (conv_.slab.words) {
      tile_.words = reinterpret_cast<const std::int16_t*>(slab_);
    } else {
      QgemmConvTile at{};
      at.from = {0, 0, part.line, part.x};
      tile_.a = in_place_ ? x + conv_.in_image(at) : slab_;
    }
    const std::int64_t position = from * tile_.line_c;
    tile_.c = y + position;
    if (tile_.added != nullptr) added_.r = r + position;
    loops_.run(tile_);
  }

 private:
  const simd_qgemm::Loops& loops_;
  QgemmShape shape_;
  QgemmConv conv_;
  simd_qgemm::Tile tile_;
  simd_qgemm::Added added_;
  std::uint8_t* slab_;
  std::int64_t line_, lines_, width_;  // positions of a line; of a tile, at most
  bool one_line_, in_place_;
  std::uint8_t pad_;
  std::int64_t offsets_[simd_qgemm::kMostSegments];
};

std::size_t lines_bytes(const OpDesc& d, const Int8Stage& part) { return ConvLines(d, part).bytes(); }

ByteLineBuffer* begin_lines(const KernelArgs& step, const OpDesc& d, int input, const Int8Stage& part, void* memory,
                            CancelPoints* points) {
  auto* const lines = new (memory) ConvLines(d, part);
  lines->begin(args_of_stage(step, d, input), points);
  return lines;
}

constexpr Kernel kernel(const char* name, const char* op, const char* domain, KernelFusion fusion) {
  return {.name = name,
          .op = op,
          .domain = domain,
          .rank = 10,
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
    kernel("qlinear_conv_nhwc", "QLinearConv", "", {.epilogue = kFusesByteResidual, .stages = kFirstLayerStage | kPointwiseStage}),
    kernel("conv_integer_nhwc", "ConvInteger", "", {}),
    kernel("conv_integer_to_float_nhwc", kConvIntegerToFloat, kInternalDomain, {}),
};

}  // namespace

extern const KernelFamily quantized_conv_kernels;
const KernelFamily quantized_conv_kernels = {kKernels};

const ByteLineBufferKernel conv_lines = {lines_bytes, begin_lines};

}  // namespace evn
