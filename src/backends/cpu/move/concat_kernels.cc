// Concat and Split, of any dtype and in either layout: the large value is rows (one for each index of the axes before), each of
// which is a piece of each of the small ones. A tile is a run of rows, or a run of pieces where rows are long.
#include <algorithm>

#include "backends/cpu/move/transpose_loops.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/support.h"
#include "ops/concat.h"
#include "ops/split.h"

namespace evn {
namespace {

constexpr std::int64_t kBytesPerTile = 1 << 17;

struct RowsState {
  Isa isa;
  int axis;  // as stored
  bool by_piece;
  std::int64_t outer;       // rows
  std::int64_t row, unit;   // bytes of a row, and of one index of the axis in it
  std::int64_t large_step;  // bytes from one row of the large value to the next
  std::int64_t per_tile;    // rows, or pieces
};

bool is_channels(int stored, Layout layout, int rank) { return layout == Layout::kChannelsLast && stored == rank - 1; }

// `pitch`: elements from one position of the large value, which lies channels last, to the next.
void plan_rows(const TensorDesc& large, std::size_t pieces, int axis, Layout layout, std::int64_t pitch, KernelPlan* p) {
  auto& s = p->state<RowsState>();
  const Shape y = stored_shape(large.shape, layout);
  s.isa = cpu_isa();
  s.axis = stored_axis(axis, y.rank(), layout);
  s.outer = y.elements(0, s.axis);
  s.unit = checked_mul(y.elements(s.axis + 1, y.rank()), static_cast<std::int64_t>(dtype_size(large.dtype)));
  s.row = checked_mul(s.unit, y[s.axis]);
  s.large_step = is_channels(s.axis, layout, y.rank()) ? checked_mul(pitch, s.unit) : s.row;
  s.by_piece = s.row > kBytesPerTile / 2;
  const auto count = static_cast<std::int64_t>(pieces);
  const std::int64_t units = s.by_piece ? checked_mul(s.outer, count) : s.outer;
  const double cost = static_cast<double>(s.row) / static_cast<double>(s.by_piece ? count : 1);
  s.per_tile = units_per_tile(units, cost, static_cast<double>(kBytesPerTile));
  p->tiles = ceil_div(units, s.per_tile);
  p->bytes = 2.0 * static_cast<double>(s.outer) * static_cast<double>(s.row);
}

// Rows of so many bytes, an element or two: a load and a store of a vector under a mask take longer.
template <std::size_t Bytes>
void copy_short_rows(const char* from, std::int64_t from_step, char* to, std::int64_t to_step, std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r, from += from_step, to += to_step) std::memcpy(to, from, Bytes);
}

// Rows of some bytes.
void copy_rows(Isa isa, const char* from, std::int64_t from_step, char* to, std::int64_t to_step, std::int64_t rows,
               std::int64_t bytes, CancelPoints* points) {
  constexpr std::int64_t kFloat = sizeof(float);
  if (bytes == 0 || rows == 0) return;
  if (rows == 1) {
    copy_by_parts(points, to, from, bytes);
    return;
  }
  const bool by_floats = bytes % kFloat == 0 && from_step % kFloat == 0 && to_step % kFloat == 0;
  by_parts(points, rows, 1, bytes + kFarElement, [&](std::int64_t begin, std::int64_t end) {
    if (bytes == 8) return copy_short_rows<8>(from + begin * from_step, from_step, to + begin * to_step, to_step, end - begin);
    if (bytes == 4) return copy_short_rows<4>(from + begin * from_step, from_step, to + begin * to_step, to_step, end - begin);
    if (by_floats) {
      simd_transpose::loops(isa).copy(reinterpret_cast<const float*>(from + begin * from_step), from_step / kFloat, end - begin,
                                      bytes / kFloat, reinterpret_cast<float*>(to + begin * to_step), to_step / kFloat);
      return;
    }
    for (std::int64_t r = begin; r < end; ++r) std::memcpy(to + r * to_step, from + r * from_step, static_cast<std::size_t>(bytes));
  });
}

// Bytes from one row of a piece to the next, where this has so many bytes in a row.
template <typename Pitch>
std::int64_t piece_step(const RowsState& s, Layout layout, int rank, std::int64_t bytes, Pitch pitch) {
  return is_channels(s.axis, layout, rank) ? pitch() * s.unit : bytes;
}

// Calls f(piece, offset in the row, bytes of the piece, first row, rows) for what tiles [begin, end) have. `small`: the pieces'
// descs.
template <typename F, typename Done>
void for_each_piece(const RowsState& s, Layout layout, std::span<const TensorDesc> small, std::int64_t begin, std::int64_t end,
                    const Cancel& cancel, CancelPoints* points, F&& f, Done&& done) {
  const auto bytes_of_piece = [&](std::size_t i) {
    return s.unit * (layout == Layout::kPlain ? small[i].shape[s.axis] : stored_shape(small[i].shape, layout)[s.axis]);
  };
  const auto count = static_cast<std::int64_t>(small.size());
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t units = s.by_piece ? s.outer * count : s.outer;
    const std::int64_t first = index * s.per_tile;
    const std::int64_t last = std::min(first + s.per_tile, units);
    std::int64_t offset = 0;
    if (!s.by_piece) {
      for (std::size_t i = 0; i < small.size(); ++i) {
        if (stops(points, kFarElement)) return;
        const std::int64_t bytes = bytes_of_piece(i);
        f(i, offset, bytes, first, last - first);
        offset += bytes;
      }
      done(first, last - first);
      continue;
    }
    for (std::int64_t i = 0; i < first % count; ++i) offset += bytes_of_piece(static_cast<std::size_t>(i));
    for (std::int64_t unit = first; unit < last; ++unit) {
      const auto i = static_cast<std::size_t>(unit % count);
      if (stops(points, kFarElement)) return;
      if (i == 0) offset = 0;
      const std::int64_t bytes = bytes_of_piece(i);
      f(i, offset, bytes, unit / count, std::int64_t{1});
      offset += bytes;
    }
  }
}

// ----------------------------------------------------------------------------------------------------- Concat --

Refusal concat_supports(const OpDesc& d) {
  if (dtype_size(d.outputs[0].dtype) == 0) return "not for this element type";
  if (!d.node->epilogue.empty() && d.outputs[0].dtype != DType::kFloat32) return "fused steps are for float32";
  return nullptr;
}

// Channels last as soon as one input lies so.
void concat_layouts(const OpDesc& d, std::span<Layout> inputs, std::span<Layout> outputs) {
  const bool last =
      d.outputs[0].shape.rank() >= 3 && std::find(inputs.begin(), inputs.end(), Layout::kChannelsLast) != inputs.end();
  std::fill(inputs.begin(), inputs.end(), last ? Layout::kChannelsLast : Layout::kPlain);
  outputs[0] = last ? Layout::kChannelsLast : Layout::kPlain;
}

// Inputs that lie in their places already are not copied.
std::uint8_t concat_views(const OpDesc& d) {
  const bool channels = normalize_axis(attr_int(*d.node, ConcatAttr::kAxis), d.outputs[0].shape.rank()) == 1;
  return channels ? kViewInputs | kViewOutputs : 0;
}

void concat_plan(const OpDesc& d, KernelPlan* p) {
  const int axis = normalize_axis(attr_int(*d.node, ConcatAttr::kAxis), d.outputs[0].shape.rank());
  plan_rows(d.outputs[0], d.inputs.size(), axis, d.output_layout(), d.output_layout() == Layout::kPlain ? 0 : d.output_pitch(), p);
}

void concat_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<RowsState>();
  const OpDesc& d = *args.desc;
  const Epilogue* epilogue = epilogue_of(d);
  char* const to = static_cast<char*>(args.outputs[0].address());
  const int rank = d.outputs[0].shape.rank();
  CancelPoints points = points_of(cancel);
  const auto chain = [&](char* at, std::int64_t bytes) {
    chain_long(s.isa, reinterpret_cast<float*>(at), bytes / static_cast<std::int64_t>(sizeof(float)), epilogue, &points);
  };
  for_each_piece(
      s, d.output_layout(), d.inputs, begin, end, cancel, &points,
      [&](std::size_t i, std::int64_t offset, std::int64_t bytes, std::int64_t row, std::int64_t rows) {
        if (bytes == 0) return;
        const char* from = static_cast<const char*>(args.inputs[i].address());
        const std::int64_t step = piece_step(s, d.output_layout(), rank, bytes, [&] { return d.input_pitch(static_cast<int>(i)); });
        char* const at = to + row * s.large_step + offset;
        if (from + row * step != at) copy_rows(s.isa, from + row * step, step, at, s.large_step, rows, bytes, &points);
        if (s.by_piece && epilogue != nullptr) chain(at, bytes);
      },
      [&](std::int64_t row, std::int64_t rows) {
        if (epilogue == nullptr) return;
        if (s.large_step == s.row) return chain(to + row * s.row, rows * s.row);
        for (std::int64_t r = row; r < row + rows; ++r) chain(to + r * s.large_step, s.row);
      });
}

// ------------------------------------------------------------------------------------------------------ Split --

Refusal split_supports(const OpDesc& d) {
  if (dtype_size(d.inputs[0].dtype) == 0) return "not for this element type";
  if (!d.node->epilogue.empty()) return "no fused steps";
  for (const TensorDesc& t : d.outputs) {
    if (t.dtype == DType::kUndefined) return "an output is not wanted";
  }
  return nullptr;
}

void split_layouts(const OpDesc&, std::span<Layout> inputs, std::span<Layout> outputs) {
  std::fill(outputs.begin(), outputs.end(), inputs[0]);
  std::fill(inputs.begin() + 1, inputs.end(), Layout::kPlain);
}

std::uint8_t split_views(const OpDesc& d) {
  return normalize_axis(attr_int(*d.node, SplitAttr::kAxis), d.inputs[0].shape.rank()) == 1 ? kViewInput | kViewOutputs : 0;
}

void split_plan(const OpDesc& d, KernelPlan* p) {
  const int axis = normalize_axis(attr_int(*d.node, SplitAttr::kAxis), d.inputs[0].shape.rank());
  plan_rows(d.inputs[0], d.outputs.size(), axis, d.input_layout(0), d.input_layout(0) == Layout::kPlain ? 0 : d.input_pitch(0), p);
}

void split_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<RowsState>();
  const OpDesc& d = *args.desc;
  const char* const from = static_cast<const char*>(args.inputs[0].address());
  const int rank = d.inputs[0].shape.rank();
  CancelPoints points = points_of(cancel);
  for_each_piece(
      s, d.input_layout(0), d.outputs, begin, end, cancel, &points,
      [&](std::size_t i, std::int64_t offset, std::int64_t bytes, std::int64_t row, std::int64_t rows) {
        if (bytes == 0) return;
        char* to = static_cast<char*>(args.outputs[i].address());
        const std::int64_t step =
            piece_step(s, d.input_layout(0), rank, bytes, [&] { return d.output_pitch(static_cast<int>(i)); });
        copy_rows(s.isa, from + row * s.large_step + offset, s.large_step, to + row * step, step, rows, bytes, &points);
      },
      [](std::int64_t, std::int64_t) {});
}

constexpr Kernel kKernels[] = {
    {.name = "concat",
     .op = "Concat",
     .rank = 10,
     .supports = concat_supports,
     .plan = concat_plan,
     .run = concat_run,
     .takes_empty = true,
     .layouts = concat_layouts,
     .fusion = {.channel_views = concat_views}},
    {.name = "split",
     .op = "Split",
     .rank = 10,
     .supports = split_supports,
     .plan = split_plan,
     .run = split_run,
     .layouts = split_layouts,
     .fusion = {.channel_views = split_views}},
};

}  // namespace

extern const KernelFamily concat_kernels;
const KernelFamily concat_kernels = {kKernels};

}  // namespace evn
