#include "backends/cpu/elementwise/broadcast_plan.h"

namespace evn {
namespace {

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

// Steps of input i, along the axes of the output as it is stored.
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

}  // namespace

void plan_broadcast(const OpDesc& d, int x_input, int z_input, BroadcastState* s) {
  const Shape out = stored_shape(d.outputs[0].shape, d.output_layout());
  std::int64_t x[kMaxRank], z[kMaxRank], y[kMaxRank];
  stored_steps(d, x_input, x);
  stored_steps(d, z_input, z);
  const int innermost = out.rank() - 1;
  for (int i = innermost; i >= 0; --i) {
    const bool is_line = i + 1 == innermost && d.output_layout() != Layout::kPlain;
    y[i] = i == innermost ? 1 : is_line ? d.output_pitch() : y[i + 1] * out[i + 1];
  }
  s->isa = cpu_isa();
  s->count = out.elements();
  // From the innermost axis outwards, merged axes are collected in reverse.
  int rank = 0;
  for (int i = out.rank() - 1; i >= 0; --i) {
    if (out[i] == 1 && (i != innermost || d.fusion.pitches == nullptr)) continue;  // the innermost steps are 0 or 1
    const auto goes_on = [&](const std::int64_t* step, const std::int64_t* inner) {
      return step[i] == inner[rank - 1] * s->dims[rank - 1];
    };
    if (rank > 0 && goes_on(x, s->x_step) && goes_on(z, s->z_step) && goes_on(y, s->y_step)) {
      s->dims[rank - 1] *= out[i];
      continue;
    }
    s->dims[rank] = out[i];
    s->x_step[rank] = x[i];
    s->z_step[rank] = z[i];
    s->y_step[rank] = y[i];
    ++rank;
  }
  if (rank == 0) {
    s->dims[0] = 1;
    s->x_step[0] = s->z_step[0] = s->y_step[0] = 0;
    rank = 1;
  }
  s->rank = rank;
}

}  // namespace evn
