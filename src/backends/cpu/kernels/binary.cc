// Arithmetic of two broadcast float32 inputs. Axes along which both inputs move alike are merged, so that same shapes, scalars,
// per-channel and trailing vectors all become a few axes around one inner loop, in any layout. A tile is a run of elements of the
// output.
#include "backends/cpu/follow.h"
#include "backends/cpu/simd/elementwise.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

using simd_elementwise::Binary;

struct BinaryState {
  Isa isa;
  std::int32_t rank;  // of the merged axes, at least 1
  std::int64_t count;
  std::int64_t dims[kMaxRank], x_step[kMaxRank], z_step[kMaxRank], y_step[kMaxRank];
};

Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  if (d.inputs.size() != 2) return "only two inputs";
  return nullptr;
}

// Element steps of an input along the axes of the output, 0 where it is broadcast; all row-major, `line` elements from one index of
// the last axis but one to the next.
void broadcast_steps(const Shape& in, const Shape& out, std::int64_t line, std::int64_t* steps) {
  std::int64_t step = 1;
  for (int i = out.rank() - 1; i >= 0; --i) {
    const int axis = i - (out.rank() - in.rank());
    const std::int64_t dim = axis < 0 ? 1 : in[axis];
    steps[i] = dim == 1 ? 0 : step;
    step = i == out.rank() - 1 ? line : step * dim;
  }
}

// Of input i, along the axes of the output as it is stored.
void stored_steps(const OpDesc& d, int i, std::int64_t* steps) {
  const Shape& in = d.inputs[static_cast<std::size_t>(i)].shape;
  const Shape& out = d.outputs[0].shape;
  const Layout to = d.output_layout();
  const std::int64_t line = in.rank() == 0 ? 1 : in[in.rank() - 1];
  if (d.input_layout(i) == to) {
    return broadcast_steps(stored_shape(in, to), stored_shape(out, to), to == Layout::kPlain ? line : d.input_pitch(i), steps);
  }
  std::int64_t plain[kMaxRank];
  broadcast_steps(in, out, line, plain);
  for (int axis = 0; axis < out.rank(); ++axis) steps[stored_axis(axis, out.rank(), to)] = plain[axis];
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<BinaryState>();
  const Shape out = stored_shape(d.outputs[0].shape, d.output_layout());
  std::int64_t x[kMaxRank], z[kMaxRank], y[kMaxRank];
  stored_steps(d, 0, x);
  stored_steps(d, 1, z);
  const int innermost = out.rank() - 1;
  for (int i = innermost; i >= 0; --i) {
    const bool is_line = i + 1 == innermost && d.output_layout() != Layout::kPlain;
    y[i] = i == innermost ? 1 : is_line ? d.output_pitch() : y[i + 1] * out[i + 1];
  }
  s.isa = cpu_isa();
  s.count = out.elements();
  // From the innermost axis outwards, merged axes are collected in reverse.
  int rank = 0;
  for (int i = out.rank() - 1; i >= 0; --i) {
    if (out[i] == 1 && (i != innermost || d.pitches == nullptr)) continue;  // the innermost steps are 0 or 1
    const auto goes_on = [&](const std::int64_t* step, const std::int64_t* inner) { return step[i] == inner[rank - 1] * s.dims[rank - 1]; };
    if (rank > 0 && goes_on(x, s.x_step) && goes_on(z, s.z_step) && goes_on(y, s.y_step)) {
      s.dims[rank - 1] *= out[i];
      continue;
    }
    s.dims[rank] = out[i];
    s.x_step[rank] = x[i];
    s.z_step[rank] = z[i];
    s.y_step[rank] = y[i];
    ++rank;
  }
  if (rank == 0) {
    s.dims[0] = 1;
    s.x_step[0] = s.z_step[0] = s.y_step[0] = 0;
    rank = 1;
  }
  s.rank = rank;
  p->tiles = ceil_div(s.count, kElementsPerTile);
  const Shape& same = d.outputs[0].shape;
  p->in_place = (d.inputs[0].shape == same ? 1u : 0u) | (d.inputs[1].shape == same ? 2u : 0u);
  p->flops = 2.0 * static_cast<double>(s.count);
  p->bytes = bytes_of(d);
}

template <Binary Op>
void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<BinaryState>();
  const simd_elementwise::Loops& loops = simd_elementwise::loops(s.isa);
  const Epilogue* epilogue = epilogue_of(*args.desc);
  const std::int64_t inner = s.dims[0];
  const bool past = goes_past_caches(args) && args.outputs[0].address() != args.inputs[1].address();
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    std::int64_t at = index * kElementsPerTile;
    const std::int64_t last = s.count - at < kElementsPerTile ? s.count : at + kElementsPerTile;
    while (at < last) {
      const std::int64_t start = at % inner;
      std::int64_t row = at / inner;
      simd_elementwise::Rows rows = {1, 0, 0, 0};
      if (start == 0 && s.rank > 1) {
        const std::int64_t whole = std::min((last - at) / inner, s.dims[1] - row % s.dims[1]);
        rows = {std::max<std::int64_t>(whole, 1), s.x_step[1], s.z_step[1], s.y_step[1]};
      }
      std::int64_t x = start * s.x_step[0];
      std::int64_t z = start * s.z_step[0];
      std::int64_t y = start;
      for (int i = 1; i < s.rank; ++i) {
        x += row % s.dims[i] * s.x_step[i];
        z += row % s.dims[i] * s.z_step[i];
        y += row % s.dims[i] * s.y_step[i];
        row /= s.dims[i];
      }
      const std::int64_t n = std::min(last - at, inner - start);
      loops.binary(Op, args.in<float>(0) + x, s.x_step[0], args.in<float>(1) + z, s.z_step[0], args.out<float>() + y, n, rows, past,
                   epilogue);
      at += n * rows.count;
    }
  }
}

template <Binary Op>
constexpr Kernel row(const char* name, const char* op) {
  return {name, op, "", 10, supports, nullptr, nullptr, nullptr, plan, run<Op>, false, follow_broadcast, 0,
          pitched<kPitchedInputs | kPitchedOutputs>};
}

constexpr Kernel kKernels[] = {
    row<Binary::kAdd>("add", "Add"), row<Binary::kSub>("sub", "Sub"), row<Binary::kMul>("mul", "Mul"), row<Binary::kDiv>("div", "Div"),
    row<Binary::kMin>("min", "Min"), row<Binary::kMax>("max", "Max"), row<Binary::kPow>("pow", "Pow"), row<Binary::kPRelu>("prelu", "PRelu"),
    row<Binary::kAdd>("sum", "Sum"),
};

}  // namespace

extern const KernelFamily binary_kernels;
const KernelFamily binary_kernels = {kKernels};

}  // namespace evn
