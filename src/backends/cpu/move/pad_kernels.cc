// Pad in all modes, of any dtype and in either layout: lines of the last axis (as stored) are copied between what is filled. Lines
// that follow each other on both sides are copied at once. A tile is some lines of the output.
#include "ops/pad.h"

#include <algorithm>

#include "backends/cpu/follow.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

constexpr std::int64_t kBytesPerTile = 1 << 17;

struct PadState {
  std::int64_t lines, per_tile;
  std::int64_t element;
};

bool by_attribute(const Node& node) { return node.op->max_inputs == 1; }

Refusal supports(const OpDesc& d) {
  const std::size_t element = dtype_size(d.outputs[0].dtype);
  if (element == 0 || element > 8) return "not for this element type";
  if (!d.node->epilogue.empty()) return "no fused steps";
  if (d.inputs[0].shape.rank() == 0) return "no axes";
  if (by_attribute(*d.node) && d.outputs[0].dtype != DType::kFloat32) return kNeedsFloat32;
  return nullptr;
}

[[gnu::cold]] void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<PadState>();
  const Shape y = stored_shape(d.outputs[0].shape, d.output_layout());
  s.element = static_cast<std::int64_t>(dtype_size(d.outputs[0].dtype));
  s.lines = y.elements(0, y.rank() - 1);
  const double line = static_cast<double>(y[y.rank() - 1]) * static_cast<double>(s.element);
  s.per_tile = units_per_tile(s.lines, line + kFarElement, static_cast<double>(kBytesPerTile));
  p->tiles = ceil_div(s.lines, s.per_tile);
  p->bytes = bytes_of(d);
}

// One axis as stored: output positions [begin, end) come from the input, `shift` before them.
struct Axis {
  std::int64_t in, out, begin, end, shift;
};

struct Lines {
  int rank;
  PadMode mode;
  Axis axis[kMaxRank];
};

Lines find_axes(const KernelArgs& args) {
  const OpDesc& d = *args.desc;
  ConstTensor inputs[4];
  const std::size_t given = std::min<std::size_t>(d.inputs.size(), 4);
  for (std::size_t i = 0; i < given; ++i) {
    inputs[i] = {d.inputs[i], d.inputs[i].dtype == DType::kUndefined ? nullptr : args.inputs[i].address()};
  }
  const Shape& x = d.inputs[0].shape;
  const Shape& y = d.outputs[0].shape;
  const PadAmounts amounts = resolve_pads(*d.node, {inputs, given}, x.rank());
  Lines lines{};
  lines.rank = x.rank();
  lines.mode = pad_mode(*d.node);
  for (int i = 0; i < x.rank(); ++i) {
    const std::int64_t begin = std::clamp<std::int64_t>(amounts.begin[i], 0, y[i]);
    const std::int64_t end = std::max(begin, std::min(y[i], x[i] + amounts.begin[i]));
    lines.axis[stored_axis(i, x.rank(), d.output_layout())] = {x[i], y[i], begin, end, amounts.begin[i]};
  }
  return lines;
}

// Finds lines one after the other.
class LineFinder {
 public:
  // A run of lines: where the first begins in the input, in lines, and how many from there on (up to `most`) are like it: from the
  // input one after the other, or not from it at all (at -1), which is only with a constant.
  struct Run {
    std::int64_t at, count;
  };

  LineFinder(const Lines& lines, std::int64_t line) : l_(lines), row_(l_.rank > 1 ? l_.axis[l_.rank - 2] : kOneLine) { seek(line); }

  Run run(std::int64_t most) const {
    const bool here = position_ >= row_.begin && position_ < row_.end;
    const std::int64_t end = here ? row_.end : position_ < row_.begin ? row_.begin : row_.out;
    Run run = {outer_ + position_ - row_.shift, std::min(most, end - position_)};
    if (!here && l_.mode != PadMode::kConstant) run = {outer_ + pad_source(l_.mode, position_ - row_.shift, row_.in), 1};
    if (!inside_ || (!here && l_.mode == PadMode::kConstant)) run.at = -1;
    return run;
  }

  // `count` is at most that of the run.
  void skip(std::int64_t count) {
    line_ += count;
    position_ += count;
    if (position_ == row_.out) seek(line_);
  }

 private:
  void seek(std::int64_t line) {
    line_ = line;
    position_ = line % row_.out;
    line /= row_.out;
    outer_ = 0;
    inside_ = true;
    std::int64_t step = row_.in;
    for (int i = l_.rank - 3; i >= 0; --i) {
      const Axis& a = l_.axis[i];
      const std::int64_t position = line % a.out;
      line /= a.out;
      const bool here = position >= a.begin && position < a.end;
      inside_ &= here || l_.mode != PadMode::kConstant;
      outer_ += (here                            ? position - a.shift
                 : l_.mode != PadMode::kConstant ? pad_source(l_.mode, position - a.shift, a.in)
                                                 : 0) *
                step;
      step *= a.in;
    }
  }

  static constexpr Axis kOneLine = {1, 1, 0, 1, 0};
  const Lines& l_;
  const Axis& row_;  // of lines
  std::int64_t line_ = 0, position_ = 0;
  std::int64_t outer_ = 0;  // where the lines of the outer axes begin
  bool inside_ = true;      // of the outer axes
};

// Which elements of the input's line stand before and behind it, where these are few.
struct Ends {
  static constexpr std::int64_t kMost = 64;
  std::int64_t count = 0;  // 0: none, or too many
  std::int64_t source[kMost];

  Ends(PadMode mode, const Axis& row) {
    const std::int64_t behind = row.out - row.end;
    if (mode == PadMode::kConstant || row.begin > kMost || behind > kMost - row.begin) return;
    for (std::int64_t i = 0; i < row.begin; ++i) source[count++] = pad_source(mode, i - row.shift, row.in);
    for (std::int64_t i = row.end; i < row.out; ++i) source[count++] = pad_source(mode, i - row.shift, row.in);
  }
};

// Positions [begin, end) of a line, which are not those of the input's line `from`.
template <typename T>
void pad_ends(PadMode mode, const Axis& row, const T* from, T value, T* to, std::int64_t begin, std::int64_t end) {
  if (mode == PadMode::kConstant) {
    std::fill(to + begin, to + end, value);
    return;
  }
  for (std::int64_t i = begin; i < end; ++i) to[i] = from[pad_source(mode, i - row.shift, row.in)];
}

// Pads one long line in parts, with cancellation points.
template <typename T>
void pad_long_line(PadMode mode, const Axis& row, const T* from, T value, T* to, CancelPoints* points) {
  for (const auto& [begin, end] : {std::pair{std::int64_t{0}, row.begin}, {row.end, row.out}}) {
    by_parts(points, end - begin, 16, mode == PadMode::kConstant ? 1 : kFarElement,
             [&, start = begin](std::int64_t first, std::int64_t last) {
               pad_ends(mode, row, from, value, to, start + first, start + last);
             });
  }
  copy_by_parts(points, to + row.begin, from + row.begin - row.shift, (row.end - row.begin) * static_cast<std::int64_t>(sizeof(T)));
}

template <typename T>
void pad_lines(const KernelArgs& args, const Lines& l, T value, std::int64_t first, std::int64_t last, CancelPoints* points) {
  const Axis& row = l.axis[l.rank - 1];
  const bool whole = row.begin == 0 && row.end == row.out && row.shift == 0 && row.in == row.out;
  T* to = args.out<T>() + first * row.out;
  const std::int64_t ends = whole || l.mode == PadMode::kConstant ? 0 : row.begin + row.out - row.end;
  const bool is_short = row.out <= kBytesPerTile && (last - first) * (row.out + ends * kFarElement) <= kTileWorkPerLook;
  LineFinder finder(l, first);
  const Ends few(l.mode, row);
  for (std::int64_t line = first; line < last;) {
    const LineFinder::Run run = finder.run(last - line);
    const std::int64_t count = run.at < 0 || whole ? run.count : 1;
    const T* const from = run.at < 0 ? nullptr : args.in<T>(0) + run.at * row.in;
    if (run.at < 0) {
      fill_by_parts(points, to, count * row.out, value);
    } else if (whole) {
      copy_by_parts(points, to, from, count * row.out * static_cast<std::int64_t>(sizeof(T)));
    } else if (is_short) {
      std::copy_n(from + row.begin - row.shift, row.end - row.begin, to + row.begin);
      if (few.count > 0) {
        for (std::int64_t i = 0; i < row.begin; ++i) to[i] = from[few.source[i]];
        for (std::int64_t i = row.begin; i < few.count; ++i) to[row.end - row.begin + i] = from[few.source[i]];
      } else {
        pad_ends(l.mode, row, from, value, to, 0, row.begin);
        pad_ends(l.mode, row, from, value, to, row.end, row.out);
      }
    } else {
      pad_long_line(l.mode, row, from, value, to, points);
    }
    if (points->stopped) return;
    to += count * row.out;
    line += count;
    finder.skip(count);
  }
}

template <typename T>
void run_typed(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<PadState>();
  const Lines lines = find_axes(args);
  T value{};
  if (by_attribute(*args.desc->node)) {
    const float v = attr_float(*args.desc->node, PadAttr::kValue);
    std::memcpy(&value, &v, sizeof value < sizeof v ? sizeof value : sizeof v);
  } else if (args.desc->has_input(2)) {
    std::memcpy(&value, args.inputs[2].address(), sizeof value);
  }
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    pad_lines<T>(args, lines, value, index * s.per_tile, std::min(s.lines, (index + 1) * s.per_tile), &points);
  }
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  switch (args.plan->state<PadState>().element) {
    case 1: return run_typed<std::uint8_t>(args, begin, end, cancel);
    case 2: return run_typed<std::uint16_t>(args, begin, end, cancel);
    case 4: return run_typed<std::uint32_t>(args, begin, end, cancel);
    default: return run_typed<std::uint64_t>(args, begin, end, cancel);
  }
}

constexpr Kernel kKernels[] = {
    {.name = "pad", .op = "Pad", .rank = 10, .supports = supports, .plan = plan, .run = run, .layouts = follow_first},
};

}  // namespace

extern const KernelFamily pad_kernels;
const KernelFamily pad_kernels = {kKernels};

}  // namespace evn
