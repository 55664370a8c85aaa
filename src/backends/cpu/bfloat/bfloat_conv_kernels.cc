// Conv over one or two spatial axes, channels last, with a constant weight, operands of bfloat16 or float16 and float32 sums:
// conv/conv_nhwc_kernels.cc where a node may have it so. A tile is some lines, or some positions of a line, of an image, and output
// channels of one group. What it reads of the image is rounded into a slab, with its pads, in which rows of A are read where they
// lie. What stands behind a row there is read as well and multiplied by 0: where it is not finite, rows are copied one by one.
#include <algorithm>

#include "backends/cpu/bfloat/bfloat_plan.h"
#include "backends/cpu/conv/conv_plan.h"
#include "backends/cpu/qconv/qgemm_conv.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"

namespace evn {
namespace {

using simd_bfloat_gemm::kMostSegments;
using simd_bfloat_gemm::kOverread;

constexpr std::int64_t kFewest = 16;  // output channels of a group, and k: less wastes most of a tile
constexpr std::int64_t kLeastSegment = 8;
constexpr std::int64_t kCopiedRows = 16;  // at a time

struct ConvState : QgemmConv {
  Isa isa;
  bool in_place, is_bfloat, overreads;
  std::int64_t segments, segment, padded, group_elements;
  std::size_t rows_at;  // in a thread's block, behind the slab: rows that are copied
};

BfloatSource source_of(const OpDesc& d, const void* b) {
  const Shape& w = d.inputs[1].shape;
  const std::int64_t taps_w = w[w.rank() - 1], taps = w.elements(2, w.rank());
  return {.b = static_cast<const float*>(b),
          .column_step = w[1] * taps,
          .channels = w[1],
          .channel_step = taps,
          .taps_h = taps / taps_w,
          .taps_w = taps_w,
          .by_tap = is_by_tap(d, w)};
}
std::int64_t columns_of(const OpDesc& d) { return d.inputs[1].shape[0] / conv_groups(d); }

Refusal supports(const OpDesc& d) {
  if (const Refusal refusal = refuses_half(d)) return refusal;
  if (!all_float32(d)) return kNeedsFloat32;
  const int rank = d.inputs[0].shape.rank();
  if (rank != 3 && rank != 4) return "only one or two spatial axes";
  if (d.constant(1) == nullptr) return "the weight must be constant";
  const BfloatSource from = source_of(d, nullptr);
  if (from.segments() > kMostSegments) return "the kernel is too large";
  if (from.segments() * from.segment() > kMostHalfDepth) return kTooDeep;
  // vdpbf16ps has twice the multiply-adds of float32; tiles have more.
  if (half_isa(d) == Isa::k_avx512_bf16 && winograd_halves(d)) return "Winograd's method in float32 is faster";
  if (columns_of(d) < kFewest || from.segments() * from.segment() < kFewest || from.segment() < kLeastSegment) return "too narrow";
  return nullptr;
}

void layouts(const OpDesc&, std::span<Layout> inputs, std::span<Layout> outputs) {
  for (Layout& l : inputs) l = Layout::kPlain;
  inputs[0] = outputs[0] = Layout::kChannelsLast;
}

std::int64_t group_elements(const OpDesc& d) { return bfloat_elements(half_loops(d), source_of(d, nullptr), columns_of(d)); }

std::size_t prepack_bytes(const OpDesc& d, int input) {
  if (input != 1) return 0;
  return static_cast<std::size_t>(checked_mul<std::int64_t>(checked_mul(group_elements(d), conv_groups(d)), sizeof(std::uint16_t)));
}

std::uint64_t prepack_variant(const OpDesc& d, int) {
  return static_cast<std::uint64_t>(conv_groups(d)) << 9 | (is_by_tap(d, d.inputs[1].shape) ? 256u : 0u) |
         static_cast<std::uint64_t>(half_isa(d));
}

// A part of several groups is all of each.
std::int64_t part_step(const OpDesc& d, int) { return conv_groups(d) == 1 ? half_loops(d).lanes : columns_of(d); }

void prepack(const OpDesc& d, int, const void* rows, std::int64_t begin, std::int64_t end, void* packed) {
  const simd_bfloat_gemm::Loops& loops = half_loops(d);
  const std::int64_t columns = columns_of(d), elements = group_elements(d);
  BfloatSource from = source_of(d, rows);
  for (std::int64_t row = begin; row < end;) {
    const std::int64_t column = row % columns, count = std::min(columns - column, end - row);
    auto* const to = static_cast<std::uint16_t*>(packed) + row / columns * elements;
    pack_bfloat_columns(loops, from, column / loops.lanes, ceil_div(column + count, std::int64_t{loops.lanes}), columns, to);
    from.b += count * from.column_step;
    row += count;
  }
}

// --------------------------------------------------------------------------------------------------------- plan --

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<ConvState>();
  const Shape& w = d.inputs[1].shape;
  s.isa = half_isa(d);
  const simd_bfloat_gemm::Loops& loops = simd_bfloat_gemm::loops(s.isa);
  s.set(d, w, d.input_pitch(0));
  s.is_bfloat = d.reads_16bit();
  const BfloatSource from = source_of(d, nullptr);
  s.segments = from.segments();
  s.segment = from.segment();
  s.padded = bfloat_padded(loops, s.segment);
  s.group_elements = group_elements(d);
  s.overreads = s.padded != s.segment;
  const bool lies_together = s.slab.pixel == s.slab.channels || s.by_tap || s.slab.x.kernel == 1;
  s.in_place = s.is_bfloat && s.unpadded && !s.overreads && lies_together;
  const std::int64_t k = w.elements(1, w.rank());
  s.cut(bfloat_pieces(loops, {s.positions(), s.columns, k, s.groups, d.threads}), k, kQgemmRowsBytes / 2);
  p->tiles = d.outputs[0].shape.elements() == 0 ? 0 : s.tiles();
  if (!s.in_place) {
    const std::int64_t slab = s.slab.bytes(s.lines, s.width) + kOverread;
    s.rows_at = align_up(static_cast<std::size_t>(slab) * sizeof(std::uint16_t), 64);
    const std::int64_t rows = s.overreads ? checked_mul(kCopiedRows * s.segments, s.padded) : 0;
    p->thread_scratch_bytes = s.rows_at + static_cast<std::size_t>(rows) * sizeof(std::uint16_t);
  }
  p->flops = 2.0 * static_cast<double>(k) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

// ---------------------------------------------------------------------------------------------------------- run --

// Fills the slab of a tile from the group's first channel of an image, float32 or bfloat16. False: some of it is not finite.
template <typename T>
class SlabFiller {
 public:
  SlabFiller(const simd_bfloat_gemm::Loops& loops, const ByteSlab& slab, CancelPoints* points)
      : loops_(loops), slab_(slab), points_(points) {}

  bool fill(const T* image, const SlabPart& part, std::uint16_t* to) {
    const WindowAxis &y = slab_.y, &x = slab_.x;
    const std::int64_t first_y = part.line * y.stride - y.pad_begin, first_x = part.x * x.stride - x.pad_begin;
    const std::int64_t count = slab_.pixels(part.width), lines = slab_.lines(part.lines), all = slab_.width * slab_.channels;
    const std::int64_t used = count * slab_.channels;
    for (std::int64_t i = 0; i < lines; ++i, to += all) {
      const std::int64_t line = first_y + i * slab_.skip_y();
      if (line < 0 || line >= y.input) {
        zeros(to, used);
      } else {
        fill_line(image + line * x.input * slab_.pixel, first_x, count, to);
      }
      std::fill_n(to + used, std::min(all - used, kOverread), std::uint16_t{0});
    }
    std::fill_n(to, kOverread, std::uint16_t{0});
    return finite_;
  }

 private:
  void take(const T* from, std::int64_t n, std::uint16_t* to) {
    by_parts(points_, n, 64, 1, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (sizeof(T) == sizeof(float)) {
        finite_ &= loops_.convert(from + begin, end - begin, to + begin);
      } else {
        finite_ &= loops_.copy(from + begin, end - begin, to + begin);
      }
    });
  }

  void zeros(std::uint16_t* to, std::int64_t n) { fill_by_parts(points_, to, n, std::uint16_t{0}); }

  // A line from a line of the image; `first` is where it begins there.
  void fill_line(const T* from, std::int64_t first, std::int64_t count, std::uint16_t* to) {
    const std::int64_t skip = slab_.skip_x(), channels = slab_.channels, input = slab_.x.input;
    const std::int64_t begin = first >= 0 ? 0 : std::min(count, (-first + skip - 1) / skip);
    const std::int64_t end = std::clamp(first >= input ? begin : (input - first + skip - 1) / skip, begin, count);
    zeros(to, begin * channels);
    if (slab_.pixel == channels && skip == 1) {
      if (end > begin) take(from + (first + begin) * channels, (end - begin) * channels, to + begin * channels);
    } else {
      for (std::int64_t i = begin; i < end && !stops(points_, kFarElement / 4); ++i) {
        take(from + (first + i * skip) * slab_.pixel, channels, to + i * channels);
      }
    }
    zeros(to + end * channels, (count - end) * channels);
  }

  const simd_bfloat_gemm::Loops& loops_;
  const ByteSlab& slab_;
  CancelPoints* const points_;
  bool finite_ = true;
};

// The tile by copies of its rows, with zeros behind each segment.
void run_copied(const simd_bfloat_gemm::Loops& loops, const ConvState& s, const simd_bfloat_gemm::Tile& tile, std::uint16_t* rows) {
  std::int64_t offsets[kMostSegments];
  for (std::int64_t i = 0; i < s.segments; ++i) offsets[i] = i * s.padded;
  const std::int64_t ld = s.segments * s.padded;
  std::fill_n(rows, kCopiedRows * ld, std::uint16_t{0});
  simd_bfloat_gemm::Tile t = tile;
  t.a = rows;
  t.lines = 1;
  t.lda = ld;
  t.offsets = offsets;
  for (std::int64_t line = 0; line < tile.lines; ++line) {
    for (std::int64_t x = 0; x < tile.width; x += kCopiedRows) {
      t.width = std::min(kCopiedRows, tile.width - x);
      const std::uint16_t* const from = tile.a + line * tile.line_step + x * tile.lda;
      for (std::int64_t r = 0; r < t.width; ++r) {
        if (stops(t.points, ld)) return;
        for (std::int64_t i = 0; i < s.segments; ++i)
          std::copy_n(from + r * tile.lda + tile.offsets[i], s.segment, rows + r * ld + i * s.padded);
      }
      const std::int64_t c = line * tile.line_c + x * tile.ldc;
      t.c = static_cast<char*>(tile.c) + c * (tile.to_bfloat ? 2 : 4);
      const std::int64_t residual = (line * tile.line_r + x * tile.ldr) * (tile.residual_is_bfloat ? 2 : 4);
      if (tile.residual != nullptr) t.residual = static_cast<const char*>(tile.residual) + residual;
      loops.run(t);
    }
  }
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<ConvState>();
  const OpDesc& d = *args.desc;
  const simd_bfloat_gemm::Loops& loops = simd_bfloat_gemm::loops(s.isa);
  const float* const bias = args.bias<float>(2);
  const bool is_16bit_residual = d.has_residual() && d.reads_16bit(d.fusion.residual);
  const std::size_t residual_element = is_16bit_residual ? sizeof(std::uint16_t) : sizeof(float);
  const char* const residual = args.residual<char>();
  const std::int64_t y_pixel = d.output_pitch(), r_pixel = d.residual_pitch();
  const std::size_t element = d.writes_16bit() ? sizeof(std::uint16_t) : sizeof(float);
  auto* const memory = static_cast<std::uint16_t*>(args.thread_scratch);
  std::int64_t offsets[kMostSegments];
  QgemmConvTile::Source filled{-1, 0, 0, 0};
  bool finite = true;
  CancelPoints points = points_of(cancel);
  for (std::int64_t i = begin; i < end && !cancel.stop(); ++i) {
    const QgemmConvTile at = s.tile(i);
    simd_bfloat_gemm::Tile t{};
    t.n = at.columns;
    t.lines = at.lines;
    t.width = at.width;
    t.points = &points;
    t.segments = s.segments;
    t.padded = s.padded;
    t.b = args.pack<std::uint16_t>(1) + at.from.group * s.group_elements + at.column * s.segments * s.padded;
    if (!s.in_place && !(at.from == filled)) {
      const SlabPart part{at.from.line, at.from.x, t.lines, t.width};
      finite = s.is_bfloat
                   ? SlabFiller<std::uint16_t>(loops, s.slab, &points).fill(args.in<std::uint16_t>(0) + at.first, part, memory)
                   : SlabFiller<float>(loops, s.slab, &points).fill(args.in<float>(0) + at.first, part, memory);
      if (points.stopped) return;
      filled = at.from;
    }
    t.a = s.in_place ? args.in<std::uint16_t>(0) + at.first + s.in_image(at) : memory;
    s.set_rows(s.in_place, s.segments, offsets, &t);
    const std::int64_t channel = at.from.group * s.columns + at.column;
    t.init = bias == nullptr ? nullptr : bias + channel;
    t.init_column = 1;
    t.init_scale = 1;
    t.residual =
        residual == nullptr ? nullptr : residual + static_cast<std::size_t>(at.position * r_pixel + channel) * residual_element;
    t.residual_is_bfloat = is_16bit_residual;
    t.ldr = r_pixel;
    t.line_r = s.slab.x.output * r_pixel;
    t.epilogue = epilogue_of(d);
    t.to_bfloat = d.writes_16bit();
    t.c = args.out<char>() + static_cast<std::size_t>(at.position * y_pixel + channel) * element;
    t.ldc = y_pixel;
    t.line_c = s.slab.x.output * y_pixel;
    if (finite || !s.overreads) {
      loops.run(t);
    } else {
      run_copied(loops, s, t, memory + s.rows_at / sizeof(std::uint16_t));
    }
  }
}

constexpr Kernel conv(const char* name, int rank, Precision operands) {
  return {.name = name,
          .op = "Conv",
          .rank = rank,
          .supports = supports,
          .prepack_bytes = prepack_bytes,
          .prepack_variant = prepack_variant,
          .prepack = prepack_all<prepack>,
          .plan = plan,
          .run = run,
          .layouts = layouts,
          .operands = operands,
          .prepack_parts = {.step = part_step, .run = prepack},
          .fusion = {.epilogue = kFusesBias | kFusesResidual,
                     .channel_views = channel_views<kViewInput | kViewResidual | kViewOutputs>,
                     .storage_16bit = storage_16bit(operands),
                     .stages = operands == Precision::kBfloat16 ? kPointwiseStage : std::uint8_t{0}}};
}
// Winograd's method in float32 is faster than float16.
constexpr Kernel kKernels[] = {conv("conv_bf16", 40, Precision::kBfloat16), conv("conv_fp16", 17, Precision::kFloat16)};

}  // namespace

extern const KernelFamily bfloat_conv_kernels;
const KernelFamily bfloat_conv_kernels = {kKernels};

}  // namespace evn
