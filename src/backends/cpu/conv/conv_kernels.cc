// Conv over one to three spatial axes, any group, as an implicit matrix product: a constant weight is packed once, one that is
// computed is read row by row, and patches of the image are packed block by block into L1. A tile is a range of output positions
// and output channels of one group of one image.
#include "ops/conv.h"

#include "backends/cpu/conv/conv_plan.h"
#include "backends/cpu/gemm/pack.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

struct ConvState {
  Isa isa;
  simd_gemm::AKind a_kind;
  bool in_place;  // 1 x 1, no stride, no pads: rows of B are rows of the image
  simd_gemm::Patches patches;
  std::int64_t groups, channels, rows, k;  // channels: input channels of a group; rows: output channels of a group
  std::int64_t in_plane, out_plane;
  Tiling tiling;
};

Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  const int rank = d.inputs[0].shape.rank();
  return rank < 3 || rank > 5 ? "only one to three spatial axes" : nullptr;
}

std::size_t prepack_bytes(const OpDesc& d, int input) {
  if (input != 1) return 0;  // asked of constants only
  const Shape& w = d.inputs[1].shape;
  const std::int64_t groups = attr_int(*d.node, ConvAttr::kGroup);
  const std::int64_t floats = packed_a_floats(simd_gemm::loops(cpu_isa()), w[0] / groups, w.elements(1, w.rank()));
  return static_cast<std::size_t>(checked_mul<std::int64_t>(checked_mul(floats, groups), sizeof(float)));
}

std::uint64_t prepack_variant(const OpDesc& d, int) {
  return static_cast<std::uint64_t>(attr_int(*d.node, ConvAttr::kGroup)) << 8 | static_cast<std::uint64_t>(cpu_isa());
}

void prepack(const OpDesc& d, int, void* packed) {
  const simd_gemm::Loops& loops = simd_gemm::loops(cpu_isa());
  const Shape& w = d.inputs[1].shape;
  const std::int64_t groups = attr_int(*d.node, ConvAttr::kGroup);
  const std::int64_t rows = w[0] / groups;
  const std::int64_t k = w.elements(1, w.rank());
  const std::int64_t floats = packed_a_floats(loops, rows, k);
  for (std::int64_t g = 0; g < groups; ++g) {
    pack_a(loops, d.constant(1)->as<float>() + g * rows * k, k, 1, rows, k, static_cast<float*>(packed) + g * floats);
  }
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<ConvState>();
  const Shape& x = d.inputs[0].shape;
  const Shape& w = d.inputs[1].shape;
  const Window window = conv_window(*d.node, x, w);
  s.isa = cpu_isa();
  s.a_kind = d.constant(1) != nullptr ? simd_gemm::AKind::kPacked : simd_gemm::AKind::kRows;
  s.groups = attr_int(*d.node, ConvAttr::kGroup);
  s.channels = w[1];
  s.rows = w[0] / s.groups;
  s.patches = patches_of(window);
  s.k = s.channels * window.kernel_elements();
  s.in_plane = window.input_elements();
  s.out_plane = window.output_elements();
  const simd_gemm::Patches& q = s.patches;
  s.in_place = q.taps() == 1 && q.stride_d * q.stride_h * q.stride_w == 1 && q.pad_front == 0 && q.pad_top == 0 &&
               q.pad_left == 0 && s.in_plane == s.out_plane;
  const simd_gemm::Loops& loops = simd_gemm::loops(s.isa);
  const std::int64_t outer = checked_mul(x[0], s.groups);
  s.tiling = tile_packed_gemm(loops, s.rows, s.out_plane, s.k, outer, s.in_place ? 32 : 128);
  p->tiles = checked_mul(outer, s.tiling.tiles());
  p->thread_scratch_bytes = static_cast<std::size_t>(simd_gemm::buffer_floats(loops, 0)) * sizeof(float);
  p->flops = 2.0 * static_cast<double>(s.k) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<ConvState>();
  const simd_gemm::Loops& loops = simd_gemm::loops(s.isa);
  const float* bias = args.desc->has_input(2) ? args.in<float>(2) : nullptr;
  CancelPoints points = points_of(cancel);
  const bool packed = s.a_kind == simd_gemm::AKind::kPacked;
  const float* weight = packed ? args.pack<float>(1) : args.in<float>(1);
  const std::int64_t group_floats = packed ? packed_a_floats(loops, s.rows, s.k) : s.rows * s.k;
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t column_tile = index % s.tiling.column_tiles;
    const std::int64_t row_tile = index / s.tiling.column_tiles % s.tiling.row_tiles;
    const std::int64_t plane_group = index / s.tiling.tiles();  // image * groups + group
    const std::int64_t group = plane_group % s.groups;
    const std::int64_t column = column_tile * s.tiling.columns;
    const std::int64_t row = row_tile * s.tiling.rows;
    const float* image = args.in<float>(0) + plane_group * s.channels * s.in_plane;

    simd_gemm::Tile t{};
    t.m = s.tiling.row_end(row_tile, s.rows) - row;
    t.n = s.tiling.column_end(column_tile, s.out_plane) - column;
    t.k = s.k;
    t.a_kind = s.a_kind;
    t.a = weight + group * group_floats + row * s.k;
    t.lda = s.k;
    t.b_kind = s.in_place ? simd_gemm::BKind::kRows : simd_gemm::BKind::kPatches;
    t.b = s.in_place ? image + column : image;
    t.ldb = s.in_plane;
    t.patches = &s.patches;
    t.first_column = column;
    t.c = args.out<float>() + (plane_group * s.rows + row) * s.out_plane + column;
    t.ldc = s.out_plane;
    t.init = bias == nullptr ? nullptr : bias + group * s.rows + row;
    t.init_row = 1;
    t.init_scale = 1;
    t.epilogue = epilogue_of(*args.desc);
    t.buffer = static_cast<float*>(args.thread_scratch);
    t.points = &points;
    loops.run(t);
  }
}

constexpr Kernel kKernels[] = {
    {.name = "conv_gemm",
     .op = "Conv",
     .rank = 10,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack,
     .plan = plan,
     .run = run},
};

}  // namespace

extern const KernelFamily conv_kernels;
const KernelFamily conv_kernels = {kKernels};

}  // namespace evn
