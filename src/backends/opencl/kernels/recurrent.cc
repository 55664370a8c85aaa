// LSTM, GRU and RNN of float32. W and R are packed when they are constant; otherwise each run packs them. A length that is out of
// range counts as the nearest one that is not: it cannot be seen before the run.
#include <algorithm>
#include <limits>

#include "backends/opencl/kernels/support.h"
#include "ops/recurrent.h"

namespace evn {
namespace {

using In = RecurrentInput;

constexpr OpenClFunction kPack{"recurrent", "pack"};
constexpr OpenClFunction kProject{"recurrent", "project"};
constexpr OpenClFunction kStart{"recurrent", "start"};
constexpr OpenClFunction kFinish{"recurrent", "finish"};
constexpr OpenClFunction kRnnStep{"recurrent", "rnn_step"};
constexpr OpenClFunction kLstmStep{"recurrent", "lstm_step"};
constexpr OpenClFunction kGruGates{"recurrent", "gru_gates"};
constexpr OpenClFunction kGruNew{"recurrent", "gru_new"};
constexpr OpenClFunction kGruStep{"recurrent", "gru_step"};

constexpr std::int64_t kSlices = 16;                // EVN_SLICES of a GPU, whose groups have kMostLanes units
constexpr std::int64_t kProjectedRows = 8;          // EVN_PROJECTED
constexpr std::int64_t kProjectedFloats = 4 << 20;  // of the products that are made at once

// The struct that recurrent.cl takes, laid out as there.
struct Recurrent {
  std::int32_t gates, directions, reverse, batch_first, own, has_lengths, has_bias, has_peepholes;
  float clip;
  std::int32_t padding;
  Activation f[2][3];
  std::int64_t steps, batch, inputs, hidden, padded;
};
static_assert(sizeof(Activation) == 12 && sizeof(Recurrent) == 152);

// Floats of the scratch block, in its order; those of packed matrices are 0 where they are constant.
struct State {
  Recurrent p;
  std::int64_t chunk;  // steps whose products with W are made at once
  std::int64_t w, r, states, projected;
};

const RecurrentForm& form_of(const Node& node) {
  return node.op_type == "LSTM" ? kLstmForm : node.op_type == "GRU" ? kGruForm : kRnnForm;
}

Refusal supports(const OpDesc& desc) {
  for (int i = 0; i < static_cast<int>(desc.inputs.size()); ++i) {
    if (i != In::kLengths && desc.has_input(i) && !is_float(desc.inputs[static_cast<std::size_t>(i)])) return "only float32";
  }
  return nullptr;
}

// Packed floats of W or R: [direction][depth][gate][padded].
std::int64_t packed_floats(const OpDesc& desc, int input) {
  const Shape& w = desc.inputs[static_cast<std::size_t>(input)].shape;
  const std::int64_t gates = form_of(*desc.node).gates;
  return checked_mul(checked_mul(w[0], w[2]), checked_mul(gates, padded_to_lanes(w[1] / gates)));
}

std::size_t prepack_bytes(const OpDesc& desc, int input) {
  if (input != In::kW && input != In::kR) return 0;
  return checked_mul(static_cast<std::size_t>(packed_floats(desc, input)), sizeof(float));
}

void prepack(const OpDesc& desc, int input, void* packed) {
  const Shape& w = desc.inputs[static_cast<std::size_t>(input)].shape;
  const std::int64_t gates = form_of(*desc.node).gates;
  const std::int64_t hidden = w[1] / gates;
  const std::int64_t padded = padded_to_lanes(hidden);
  const float* from = desc.constant(input)->as<float>();
  auto* to = static_cast<float*>(packed);
  for (std::int64_t d = 0; d < w[0]; ++d, from += w[1] * w[2]) {
    for (std::int64_t k = 0; k < w[2]; ++k) {
      for (std::int64_t g = 0; g < gates; ++g) {
        for (std::int64_t j = 0; j < padded; ++j) *to++ = j < hidden ? from[(g * hidden + j) * w[2] + k] : 0.0f;
      }
    }
  }
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  State& s = plan->state<State>();
  s = State{};
  const RecurrentSpec spec = recurrent_spec(*desc.node, form_of(*desc.node));
  const RecurrentSizes size = recurrent_sizes(spec, desc.inputs[In::kX].shape, desc.inputs[In::kR].shape);
  Recurrent& p = s.p;
  p.gates = form_of(*desc.node).gates;
  p.directions = spec.directions;
  p.reverse = spec.reverse;
  p.batch_first = spec.batch_first;
  p.own = spec.own;
  p.has_lengths = desc.has_input(In::kLengths);
  p.has_bias = desc.has_input(In::kB);
  p.has_peepholes = desc.has_input(In::kPeepholes);
  p.clip = spec.clip > 0 ? spec.clip : std::numeric_limits<float>::infinity();
  std::memcpy(p.f, spec.activations, sizeof p.f);
  p.steps = size.steps;
  p.batch = size.batch;
  p.inputs = size.inputs;
  p.hidden = size.hidden;
  p.padded = padded_to_lanes(size.hidden);
  const std::int64_t step =
      checked_mul(checked_mul<std::int64_t>(p.directions, p.batch), checked_mul<std::int64_t>(p.gates, p.padded));
  s.chunk = std::clamp<std::int64_t>(kProjectedFloats / std::max<std::int64_t>(step, 1), 1, std::max<std::int64_t>(p.steps, 1));
  s.w = desc.constant(In::kW) == nullptr ? packed_floats(desc, In::kW) : 0;
  s.r = desc.constant(In::kR) == nullptr ? packed_floats(desc, In::kR) : 0;
  s.states = checked_mul(checked_mul<std::int64_t>(p.directions, p.batch), p.padded);
  s.projected = checked_mul(step, s.chunk);
  const std::int64_t floats = checked_add(checked_add(s.w, s.r), checked_add(checked_mul<std::int64_t>(5, s.states), s.projected));
  plan->scratch_bytes = checked_mul(static_cast<std::size_t>(floats), sizeof(float));
  plan->flops = 2.0 * static_cast<double>(step) * static_cast<double>(p.steps) * static_cast<double>(p.inputs + p.hidden);
  count_bytes(desc, plan);
}

// One run of a layer.
class Layer {
 public:
  explicit Layer(const KernelArgs& args) : args_(args), cl_(launcher(args)), s_(args.plan->state<State>()), p_(s_.p) {
    w_ = matrix(In::kW, s_.w, p_.inputs);
    r_ = matrix(In::kR, s_.r, p_.hidden);
    for (Buffer& state : states_) state = take(s_.states);
    projected_ = take(s_.projected);
  }

  void run() {
    begin(In::kInitialH, states_[0]);
    if (p_.gates == 4) begin(In::kInitialC, states_[2]);
    for (std::int64_t first = 0; first < p_.steps; first += s_.chunk) {
      const std::int64_t count = std::min(s_.chunk, p_.steps - first);
      const Grid grid{p_.gates * p_.padded / cl_.lanes(), ceil_div(count * p_.batch, kProjectedRows), p_.directions};
      cl_.run(kProject, grid, args_.inputs[In::kX], w_, given(In::kB), given(In::kLengths), projected_, p_, first, count);
      for (std::int64_t s = first; s < first + count; ++s) step(s, first, count);
    }
    end(1, states_[p_.steps % 2]);
    if (p_.gates == 4) end(2, states_[2]);
  }

 private:
  Buffer take(std::int64_t floats) {
    const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
    const Buffer taken{args_.scratch.memory, args_.scratch.offset + used_, bytes};
    used_ += bytes;
    return taken;
  }

  // The packed form of W or R; `floats` where it is still to be made.
  Buffer matrix(int input, std::int64_t floats, std::int64_t depth) {
    const auto i = static_cast<std::size_t>(input);
    if (floats == 0) return args_.packed[i];
    const Buffer packed = take(floats);
    cl_.run(kPack, {p_.gates * p_.padded, depth, p_.directions}, args_.inputs[i], packed, p_, depth);
    return packed;
  }

  // An input, or where it is not given, another that kernels then do not look at.
  const Buffer& given(int input) const {
    return args_.desc->has_input(input) ? args_.inputs[static_cast<std::size_t>(input)] : args_.inputs[In::kX];
  }

  Grid units() const { return {p_.padded / cl_.lanes(), p_.batch, p_.directions}; }
  Grid step_units() const { return {p_.padded / cl_.lanes() * (cl_.is_cpu() ? 1 : kSlices), p_.batch, p_.directions}; }

  void begin(int input, const Buffer& state) {
    cl_.run(kStart, units(), given(input), state, p_, std::int32_t{args_.desc->has_input(input)});
  }

  void end(std::size_t output, const Buffer& state) {
    if (output >= args_.outputs.size() || args_.outputs[output].memory == nullptr) return;
    cl_.run(kFinish, units(), state, args_.outputs[output], p_);
  }

  void step(std::int64_t s, std::int64_t first, std::int64_t count) {
    const std::int32_t has_y = args_.outputs[0].memory != nullptr;
    const Buffer& h = states_[s % 2];
    const Buffer& next = states_[(s + 1) % 2];
    const Buffer& y = has_y != 0 ? args_.outputs[0] : next;
    const Buffer& lengths = given(In::kLengths);
    const Epilogue& e = args_.desc->node->epilogue;
    if (p_.gates == 1) return cl_.run(kRnnStep, step_units(), projected_, r_, lengths, h, next, y, p_, s, first, count, has_y, e);
    if (p_.gates == 4) {
      return cl_.run(kLstmStep, step_units(), projected_, r_, lengths, h, next, y, states_[2], given(In::kPeepholes), p_, s, first,
                     count, has_y, e);
    }
    cl_.run(p_.own != 0 ? kGruStep : kGruGates, step_units(), projected_, r_, lengths, h, next, y, given(In::kB), states_[3],
            states_[4], p_, s, first, count, has_y, e);
    if (p_.own == 0)
      cl_.run(kGruNew, step_units(), projected_, r_, lengths, h, next, y, states_[3], states_[4], p_, s, first, count, has_y, e);
  }

  const KernelArgs& args_;
  Launcher& cl_;
  const State& s_;
  const Recurrent& p_;
  std::size_t used_ = 0;
  Buffer w_, r_, projected_;
  Buffer states_[5];  // h before and after a step, in turns; c; a GRU's z, and its r . h
};

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) { Layer(args).run(); }

constexpr Kernel kKernels[] = {
    {.name = "lstm",
     .op = "LSTM",
     .rank = 10,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack = prepack,
     .plan = plan,
     .run = run},
    {.name = "gru",
     .op = "GRU",
     .rank = 10,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack = prepack,
     .plan = plan,
     .run = run},
    {.name = "rnn",
     .op = "RNN",
     .rank = 10,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack = prepack,
     .plan = plan,
     .run = run},
};

}  // namespace

extern const KernelFamily recurrent_opencl_kernels;
const KernelFamily recurrent_opencl_kernels = {kKernels};

}  // namespace evn
