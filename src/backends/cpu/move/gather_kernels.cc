// Gather of any dtype in either layout: blocks are copied, or, along channels that lie last, single elements; a shuffle of channels
// is a transposition of each pixel. A tile is a run of blocks, or of pixels.
#include "ops/gather.h"

#include <algorithm>

#include "backends/cpu/move/transpose_loops.h"
#include "backends/cpu/support.h"
#include "ops/infra/index.h"

namespace evn {
namespace {

constexpr std::int64_t kBytesPerTile = 1 << 17;

struct GatherState {
  Isa isa;
  bool by_element;                        // a block is one element
  std::int64_t outer, dim, count, block;  // block: bytes behind an index
  std::int64_t element;
  std::int64_t per_tile;  // blocks of the output, or with single elements lines of them
};

Refusal supports(const OpDesc& d) {
  if (dtype_size(d.outputs[0].dtype) == 0) return "not for this element type";
  if (!d.node->epilogue.empty()) return "no fused steps";
  return nullptr;
}

// Channels last needs an index list, so that the axes stay in their places.
void layouts(const OpDesc& d, std::span<Layout> inputs, std::span<Layout> outputs) {
  if (d.inputs[1].shape.rank() != 1) inputs[0] = Layout::kPlain;
  inputs[1] = Layout::kPlain;
  outputs[0] = inputs[0];
}

[[gnu::cold]] void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<GatherState>();
  const Shape x = stored_shape(d.inputs[0].shape, d.input_layout(0));
  const int axis = stored_axis(normalize_axis(attr_int(*d.node, GatherAttr::kAxis), x.rank()), x.rank(), d.input_layout(0));
  s.isa = cpu_isa();
  s.element = static_cast<std::int64_t>(dtype_size(d.outputs[0].dtype));
  s.outer = x.elements(0, axis);
  s.dim = x[axis];
  s.count = d.inputs[1].shape.elements();
  s.block = checked_mul(x.elements(axis + 1, x.rank()), s.element);
  s.by_element = s.block == s.element;
  const std::int64_t units = s.by_element ? s.outer : checked_mul(s.outer, s.count);
  const double bytes = static_cast<double>(s.block) * static_cast<double>(s.by_element ? s.count : 1);
  s.per_tile = units_per_tile(units, bytes + kFarElement, static_cast<double>(kBytesPerTile));
  p->tiles = ceil_div(units, s.per_tile);
  p->bytes = bytes_of(d);
}

std::int64_t index_of(const KernelArgs& args, std::int64_t i) {
  const auto& s = args.plan->state<GatherState>();
  return index_at({args.desc->inputs[1], args.inputs[1].address()}, i, s.dim);
}

// g where the indices take element i of each of g parts of the line in turn, for all i; 0 otherwise.
std::int64_t groups_of_shuffle(const KernelArgs& args, CancelPoints* points) {
  const auto& s = args.plan->state<GatherState>();
  if (s.count != s.dim || s.dim < 4) return 0;
  const std::int64_t size = index_of(args, 1);
  if (size < 2 || s.dim % size != 0) return 0;
  const std::int64_t groups = s.dim / size;
  bool shuffles = true;
  const bool goes_on = by_parts(points, s.count, 1, kFarElement, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end && shuffles; ++i) shuffles = index_of(args, i) == i % groups * size + i / groups;
  });
  return goes_on && shuffles ? groups : 0;
}

template <typename T>
void gather_elements(const KernelArgs& args, std::int64_t first, std::int64_t last, CancelPoints* points) {
  const auto& s = args.plan->state<GatherState>();
  const std::int64_t count = s.count, dim = s.dim;
  by_parts(points, count, 1, (last - first) * kFarElement, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T* from = args.in<T>(0) + index_of(args, i);
      T* to = args.out<T>() + i;
      for (std::int64_t line = first; line < last; ++line) to[line * count] = from[line * dim];
    }
  });
}

void run_elements(const KernelArgs& args, std::int64_t first, std::int64_t last, std::int64_t groups, CancelPoints* points) {
  const auto& s = args.plan->state<GatherState>();
  if (groups > 1 && s.element == sizeof(float)) {
    const std::int64_t size = s.dim / groups;
    for (std::int64_t line = first; line < last; ++line) {
      // The longer of the two dimensions is split.
      const float* const from = args.in<float>(0) + line * s.dim;
      float* const to = args.out<float>() + line * s.dim;
      const bool many_groups = groups > size;
      const bool goes_on =
          by_parts(points, std::max(groups, size), 16, 4 * std::min(groups, size), [&](std::int64_t begin, std::int64_t end) {
            if (many_groups) {
              simd_transpose::loops(s.isa).transpose(from + begin * size, size, end - begin, size, to + begin, groups);
            } else {
              simd_transpose::loops(s.isa).transpose(from + begin, size, groups, end - begin, to + begin * groups, groups);
            }
          });
      if (!goes_on) return;
    }
    return;
  }
  switch (s.element) {
    case 1: return gather_elements<std::uint8_t>(args, first, last, points);
    case 2: return gather_elements<std::uint16_t>(args, first, last, points);
    case 4: return gather_elements<std::uint32_t>(args, first, last, points);
    default: return gather_elements<std::uint64_t>(args, first, last, points);
  }
}

// Lines of a table, of which a call of the system for each is worth it.
bool reads_rows(const OpDesc& d, int input) {
  constexpr std::int64_t kLeastRowBytes = 64;
  const Shape& x = d.inputs[0].shape;
  const int axis = normalize_axis(attr_int(*d.node, GatherAttr::kAxis), x.rank());
  const auto element = static_cast<std::int64_t>(dtype_size(d.inputs[0].dtype));
  return input == 0 && x.elements(0, axis) == 1 && checked_mul(x.elements(axis + 1, x.rank()), element) >= kLeastRowBytes;
}

// Gathers rows of a table in a file. A run fails if the file is truncated or written to. Rows that follow each other are read at
// once.
void read_rows(const KernelArgs& args, const WeightSource& source, std::int64_t begin, std::int64_t end, CancelPoints* points) {
  const auto& s = args.plan->state<GatherState>();
  source.check_unchanged();
  const std::int64_t last = std::min(end * s.per_tile, s.count);
  for (std::int64_t at = begin * s.per_tile; at < last;) {
    const std::int64_t first = index_of(args, at);
    std::int64_t rows = 1;
    while (at + rows < last && rows * s.block < kBytesPerTile && index_of(args, at + rows) == first + rows) ++rows;
    char* const to = static_cast<char*>(args.outputs[0].address()) + at * s.block;
    const bool goes_on = by_parts(points, rows * s.block, 64, 1, [&](std::int64_t from, std::int64_t until) {
      source.read(static_cast<std::uint64_t>(first * s.block + from), to + from, static_cast<std::size_t>(until - from));
    });
    if (!goes_on) return;
    at += rows;
  }
  source.check_unchanged();
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<GatherState>();
  const std::int64_t units = s.by_element ? s.outer : s.outer * s.count;
  const bool by_element = s.by_element && s.element <= 8;
  CancelPoints points = points_of(cancel);
  if (const WeightSource* const source = args.rows(0)) return read_rows(args, *source, begin, end, &points);
  const std::int64_t groups = by_element ? groups_of_shuffle(args, &points) : 0;
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index * s.per_tile;
    const std::int64_t last = std::min(first + s.per_tile, units);
    if (by_element) {
      run_elements(args, first, last, groups, &points);
      continue;
    }
    const char* from = static_cast<const char*>(args.inputs[0].address());
    char* to = static_cast<char*>(args.outputs[0].address());
    const std::int64_t per_unit = s.by_element ? s.count : 1;
    const bool is_large = s.block > kBytesPerTile;  // else a tile is small
    for (std::int64_t at = first * per_unit; at < last * per_unit; ++at) {
      const std::int64_t source = at / s.count * s.dim + index_of(args, at % s.count);
      if (is_large) {
        if (!copy_by_parts(&points, to + at * s.block, from + source * s.block, s.block)) return;
      } else {
        std::memcpy(to + at * s.block, from + source * s.block, static_cast<std::size_t>(s.block));
      }
    }
  }
}

constexpr Kernel kKernels[] = {
    {.name = "gather",
     .op = "Gather",
     .rank = 10,
     .supports = supports,
     .plan = plan,
     .run = run,
     .layouts = layouts,
     .reads_rows = reads_rows},
};

}  // namespace

extern const KernelFamily gather_kernels;
const KernelFamily gather_kernels = {kKernels};

}  // namespace evn
