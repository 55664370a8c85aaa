// QuantizeLinear and DequantizeLinear between float32 and int8 or uint8, with one scale or one for each index of an axis, in any
// layout, and DynamicQuantizeLinear. A tile is a run of elements, or some rows of an axis.
#include <algorithm>
#include <string_view>

#include "backends/cpu/elementwise/bytes_loops.h"
#include "backends/cpu/follow.h"
#include "backends/cpu/support.h"
#include "ops/infra/check.h"
#include "ops/infra/dynamic.h"

namespace evn {
namespace {

constexpr std::int64_t kPerTile = 2 * kElementsPerTile;

struct QuantizeState {
  Isa isa;
  bool is_signed;
  // The tensor is rows, one for each index of the axes up to the scales', of `inner` elements that have one scale; or, where the
  // axis is the innermost, of `axis` elements that have each their own.
  std::int64_t rows, inner, axis;
  std::int64_t per_tile;  // rows, or elements where there is one row
};

bool is_byte(DType d) { return d == DType::kInt8 || d == DType::kUint8; }

std::int64_t axis_attribute(const Node& node) {
  return node.op->since < 13 ? 1 : attr_int(node, 0);  // the first of all rows that have it
}

bool has_one_scale(const OpDesc& d) {
  const Shape& scale = d.inputs[1].shape;
  return scale.rank() == 0 || (scale.rank() == 1 && scale[0] == 1);
}

template <int Bytes, int Floats>
Refusal supports(const OpDesc& d) {
  const auto dtype = [&](int i) { return i < 0 ? d.outputs[0].dtype : d.inputs[static_cast<std::size_t>(i)].dtype; };
  if (!is_byte(dtype(Bytes))) return "only int8 and uint8";
  if (dtype(Floats) != DType::kFloat32 || d.inputs[1].dtype != DType::kFloat32) return kNeedsFloat32;
  if (d.inputs[1].shape.rank() > 1) return "scales of blocks";
  const std::span<const AttributeSpec> attributes = d.node->op->attributes;
  for (std::size_t i = 0; i < attributes.size(); ++i) {
    if (std::string_view(attributes[i].name) == "block_size" && attr_int(*d.node, static_cast<int>(i)) != 0)
      return "scales of blocks";
  }
  return d.node->epilogue.empty() ? nullptr : "no fused steps";
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<QuantizeState>();
  const Shape& x = d.inputs[0].shape;
  const Layout layout = d.input_layout(0);
  s.isa = cpu_isa();
  s.is_signed = d.inputs[0].dtype == DType::kInt8 || d.outputs[0].dtype == DType::kInt8;
  s.rows = s.axis = 1;
  s.inner = x.elements();
  if (!has_one_scale(d)) {
    const Shape stored = stored_shape(x, layout);
    const int axis = stored_axis(normalize_axis(axis_attribute(*d.node), x.rank()), x.rank(), layout);
    s.axis = stored[axis];
    s.inner = stored.elements(axis + 1, x.rank());
    const bool each = s.inner == 1;
    s.rows = stored.elements(0, axis) * (each ? 1 : s.axis);
  }
  const std::int64_t row = s.inner == 1 ? s.axis : s.inner;
  s.per_tile =
      s.rows == 1 && s.axis == 1 ? kPerTile : units_per_tile(s.rows, static_cast<double>(row), static_cast<double>(kPerTile));
  p->tiles = ceil_div(s.rows == 1 && s.axis == 1 ? s.inner : s.rows, s.per_tile);
  p->flops = 2.0 * static_cast<double>(x.elements());
  p->bytes = bytes_of(d);
}

// The zero point of index i, of which there is one or as many as scales.
std::int32_t zero_of(const KernelArgs& args, bool is_signed, std::int64_t i) {
  if (!args.desc->has_input(2)) return 0;
  const std::int64_t at = args.desc->inputs[2].shape.elements() == 1 ? 0 : i;
  return is_signed ? args.in<std::int8_t>(2)[at] : args.in<std::uint8_t>(2)[at];
}

constexpr std::int64_t kPartOfRow = 1 << 15;  // elements between two cancellation points

// Calls one(first, n, scale, zero) for n elements that share a scale, and each(first, n, index) for n elements with a scale each,
// the first of which is scales[index].
template <typename One, typename Each>
void for_each_row(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel, One&& one, Each&& each) {
  const auto& s = args.plan->state<QuantizeState>();
  const float* scales = args.in<float>(1);
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index * s.per_tile;
    if (s.rows == 1 && s.axis == 1) {
      one(first, std::min(s.per_tile, s.inner - first), *scales, zero_of(args, s.is_signed, 0));
      continue;
    }
    const std::int64_t last = std::min(first + s.per_tile, s.rows);
    const std::int64_t length = s.inner == 1 ? s.axis : s.inner;
    const bool is_short = length <= kPerTile;  // then a tile of rows is small
    const auto part = [&](std::int64_t row, std::int64_t from, std::int64_t n) {
      if (s.inner == 1) {
        each(row * length + from, n, from);
      } else {
        one(row * length + from, n, scales[row % s.axis], zero_of(args, s.is_signed, row % s.axis));
      }
    };
    for (std::int64_t row = first; row < last; ++row) {
      if (is_short) {
        part(row, 0, length);
        continue;
      }
      for (std::int64_t from = 0; from < length; from += kPartOfRow) {
        const std::int64_t n = std::min(kPartOfRow, length - from);
        if (stops(&points, 2 * n)) return;
        part(row, from, n);
      }
    }
  }
}

const std::uint8_t* zeros_of(const KernelArgs& args) { return args.desc->has_input(2) ? args.in<std::uint8_t>(2) : nullptr; }
const std::uint8_t* from(const std::uint8_t* zeros, std::int64_t i) { return zeros == nullptr ? nullptr : zeros + i; }

void run_quantize(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<QuantizeState>();
  const simd_bytes::Loops& loops = simd_bytes::loops(s.isa);
  const float* const scales = args.in<float>(1);
  const std::uint8_t* const zeros = zeros_of(args);
  for_each_row(
      args, begin, end, cancel,
      [&](std::int64_t first, std::int64_t n, float scale, std::int32_t zero) {
        loops.quantize(args.in<float>(0) + first, n, scale, zero, s.is_signed, args.out<std::uint8_t>() + first);
      },
      [&](std::int64_t first, std::int64_t n, std::int64_t scale) {
        std::uint8_t* const to = args.out<std::uint8_t>() + first;
        loops.quantize_each(args.in<float>(0) + first, n, scales + scale, from(zeros, scale), s.is_signed, to);
      });
}

void run_dequantize(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<QuantizeState>();
  const simd_bytes::Loops& loops = simd_bytes::loops(s.isa);
  const float* const scales = args.in<float>(1);
  const std::uint8_t* const zeros = zeros_of(args);
  for_each_row(
      args, begin, end, cancel,
      [&](std::int64_t first, std::int64_t n, float scale, std::int32_t zero) {
        loops.dequantize(args.in<std::uint8_t>(0) + first, n, scale, zero, s.is_signed, args.out<float>() + first);
      },
      [&](std::int64_t first, std::int64_t n, std::int64_t scale) {
        float* const to = args.out<float>() + first;
        loops.dequantize_each(args.in<std::uint8_t>(0) + first, n, scales + scale, from(zeros, scale), s.is_signed, to);
      });
}

// ----------------------------------------------------------------------------------------------------------- dynamic --

constexpr std::int64_t kAlone = 1 << 14;  // so many elements are one tile: each tile looks at all of them first

Refusal dynamic_supports(const OpDesc& d) { return d.node->epilogue.empty() ? nullptr : "no fused steps"; }

void dynamic_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<QuantizeState>();
  s.isa = cpu_isa();
  s.inner = d.inputs[0].shape.elements();
  s.per_tile = std::max(kAlone, ceil_div(s.inner, std::int64_t{std::max(1u, d.threads)}));
  p->tiles = std::max<std::int64_t>(1, ceil_div(s.inner, s.per_tile));
  p->flops = 4.0 * static_cast<double>(s.inner);
  p->bytes = bytes_of(d);
}

void run_dynamic(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<QuantizeState>();
  const simd_bytes::Loops& loops = simd_bytes::loops(s.isa);
  float low = 0, high = 0;
  CancelPoints points = points_of(cancel);
  const bool goes_on = by_parts(&points, s.inner, 64, 1, [&](std::int64_t from, std::int64_t until) {
    loops.range(args.in<float>(0) + from, until - from, &low, &high);
  });
  if (!goes_on) return;
  const DynamicRange range = dynamic_range_of(low, high);
  const auto zero = static_cast<std::int32_t>(range.zero);
  const auto wanted = [&](std::size_t i) { return args.desc->outputs[i].dtype != DType::kUndefined; };
  if (begin == 0 && wanted(1)) *args.out<float>(1) = range.scale;
  if (begin == 0 && wanted(2)) *args.out<std::uint8_t>(2) = static_cast<std::uint8_t>(zero);
  for (std::int64_t index = begin; index < end && wanted(0) && !cancel.stop(); ++index) {
    const std::int64_t first = index * s.per_tile, n = std::min(s.per_tile, s.inner - first);
    std::uint8_t* const to = args.out<std::uint8_t>() + first;
    by_parts(&points, n, 64, 2, [&](std::int64_t from, std::int64_t until) {
      if (range.scale == 0) {
        std::fill(to + from, to + until, static_cast<std::uint8_t>(zero));
      } else {
        loops.quantize(args.in<float>(0) + first + from, until - from, range.scale, zero, false, to + from);
      }
    });
  }
}

constexpr Kernel kKernels[] = {
    {.name = "quantize",
     .op = "QuantizeLinear",
     .rank = 10,
     .supports = supports<-1, 0>,
     .plan = plan,
     .run = run_quantize,
     .layouts = follow_first},
    {.name = "dequantize",
     .op = "DequantizeLinear",
     .rank = 10,
     .supports = supports<0, -1>,
     .plan = plan,
     .run = run_dequantize,
     .layouts = follow_first},
    {.name = "dynamic_quantize",
     .op = "DynamicQuantizeLinear",
     .rank = 10,
     .supports = dynamic_supports,
     .plan = dynamic_plan,
     .run = run_dynamic,
     .layouts = follow_first},
};

}  // namespace

extern const KernelFamily quantize_kernels;
const KernelFamily quantize_kernels = {kKernels};

}  // namespace evn
