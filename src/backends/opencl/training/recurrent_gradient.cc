// RecurrentStates, and LSTMGradient, GRUGradient and RNNGradient of float32: a launch for each step, two for a GRU whose candidate
// waits for its reset. A length that is out of range counts as the nearest one that is not.
#include "ops/training/recurrent_gradient.h"

#include <algorithm>
#include <limits>

#include "backends/opencl/training/support.h"

namespace evn {
namespace {

using In = RecurrentGradientInput;
using Out = RecurrentGradientOutput;

constexpr OpenClFunction kStatesBefore{"recurrent_gradient", "states_before"};
constexpr OpenClFunction kPackRows{"recurrent_gradient", "pack_rows"};
constexpr OpenClFunction kRnnBack{"recurrent_gradient", "rnn_back"};
constexpr OpenClFunction kLstmCells{"recurrent_gradient", "lstm_cells"};
constexpr OpenClFunction kLstmBack{"recurrent_gradient", "lstm_back"};
constexpr OpenClFunction kLstmPeepholes{"recurrent_gradient", "lstm_peepholes"};
constexpr OpenClFunction kGruBack{"recurrent_gradient", "gru_back"};
constexpr OpenClFunction kGruReset{"recurrent_gradient", "gru_reset"};
constexpr OpenClFunction kGruCandidates{"recurrent_gradient", "gru_candidates"};
constexpr OpenClFunction kGruNewBack{"recurrent_gradient", "gru_new_back"};
constexpr OpenClFunction kGruResetBack{"recurrent_gradient", "gru_reset_back"};
constexpr OpenClFunction kFinishBack{"recurrent_gradient", "finish_back"};

constexpr std::int64_t kSlices = 16;    // EVN_SLICES of a GPU, whose groups have kMostLanes units
constexpr std::int64_t kSequences = 4;  // EVN_SEQUENCES of a CPU
constexpr std::int64_t kRows = 8;       // EVN_ROWS

// The struct that recurrent_gradient.cl takes, laid out as there.
struct Back {
  std::int32_t gates, directions, index, backwards, batch_first, own;
  std::int32_t has_lengths, has_dy, has_dh, has_dc, has_c, has_peepholes;
  float clip;
  Activation f[3];
  std::int64_t steps, batch, hidden, padded;
};
static_assert(sizeof(Activation) == 12 && sizeof(Back) == 120);

// What all of these share; the rest is 0.
Back back_of(const RecurrentSpec& spec, const RecurrentSizes& size, int index) {
  Back p{};
  p.directions = spec.directions;
  p.index = index;
  p.backwards = spec.backwards(index);
  p.batch_first = spec.batch_first;
  p.own = spec.own;
  p.steps = size.steps;
  p.batch = size.batch;
  p.hidden = size.hidden;
  p.padded = padded_to_lanes(size.hidden);
  return p;
}

// An input, or where it is not given, another that kernels then do not look at.
const Buffer& given(const KernelArgs& args, int input, int other = 0) {
  return args.inputs[static_cast<std::size_t>(args.desc->has_input(input) ? input : other)];
}

// ---- the states before each step ----

Refusal supports_states(const OpDesc& desc) { return refuse_unless_plain(desc); }

void plan_states(const OpDesc& desc, KernelPlan* plan) {
  using States = RecurrentStatesInput;
  const Node& node = *desc.node;
  const std::string& direction = attr_string(node, RecurrentStatesAttr::kDirection);
  RecurrentSpec spec;
  spec.batch_first = attr_int(node, RecurrentStatesAttr::kLayout) != 0;
  spec.directions = direction == "bidirectional" ? 2 : 1;
  spec.reverse = direction == "reverse";
  Back& p = plan->state<Back>();
  p = back_of(spec, recurrent_output_sizes(spec.batch_first, desc.inputs[States::kY].shape),
              static_cast<int>(attr_int(node, RecurrentStatesAttr::kIndex)));
  p.has_lengths = desc.has_input(States::kLengths);
  p.has_dh = desc.has_input(States::kInitialH);
  count_bytes(desc, plan);
}

Grid rows_grid(const Launcher& cl, const Back& p) { return {p.padded / cl.lanes(), p.steps, p.batch}; }

void run_states(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  using States = RecurrentStatesInput;
  const Back& p = args.plan->state<Back>();
  Launcher& cl = launcher(args);
  cl.run(kStatesBefore, rows_grid(cl, p), args.inputs[States::kY], given(args, States::kLengths), given(args, States::kInitialH),
         args.outputs[0], p);
}

// ---- back through the steps ----

// Floats of the parts of the scratch block, in its order.
struct State {
  Back p;
  std::int64_t r, r_across;        // packed; `across`: by columns, for the candidates of a GRU
  std::int64_t cells, dc;          // of an LSTM
  std::int64_t kept, candidates;   // of a GRU
  std::int64_t dsums, drecurrent;  // where these are not wanted
};

bool resets_before(const Back& p) { return p.gates == 3 && p.own == 0; }
// Of the product that every step has.
std::int64_t depth_of(const Back& p) { return (resets_before(p) ? 2 : p.gates) * p.hidden; }
// Columns of GRUGradient's last output.
std::int64_t recurrent_width(const Back& p) { return (p.own != 0 ? 3 : 1) * p.hidden; }

Refusal supports(const OpDesc& desc) { return refuse_unless_plain(desc); }

void plan(const OpDesc& desc, KernelPlan* plan) {
  const RecurrentForm& form = recurrent_gradient_form(*desc.node);
  const RecurrentSpec spec = recurrent_spec(*desc.node, form);
  State& s = plan->state<State>();
  s = State{};
  Back& p = s.p;
  p = back_of(spec, recurrent_output_sizes(spec.batch_first, desc.inputs[In::kY].shape), recurrent_index(*desc.node, spec));
  p.gates = form.gates;
  p.has_lengths = desc.has_input(In::kLengths);
  p.has_dy = desc.has_input(In::kDy);
  p.has_dh = desc.has_input(In::kDyH);
  p.has_dc = form.gates == 4 && desc.has_input(In::kDyC);
  p.has_c = form.gates == 4 && desc.has_input(In::kInitialC);
  p.has_peepholes = form.gates == 4 && desc.has_input(In::kPeepholes);
  p.clip = spec.clip > 0 ? spec.clip : std::numeric_limits<float>::infinity();
  std::copy_n(spec.activations[p.index], 3, p.f);
  const std::int64_t rows = checked_mul(p.steps, p.batch), width = checked_mul<std::int64_t>(p.gates, p.hidden);
  s.r = checked_mul(width, p.padded);
  const std::int64_t states = checked_mul(p.batch, p.padded);
  if (p.gates == 4) {
    s.cells = checked_mul(checked_add(p.steps, std::int64_t{1}), states);
    s.dc = states;
  } else if (p.gates == 3) {
    s.kept = states;
    if (!is_wanted(desc, Out::kDRecurrent)) s.drecurrent = checked_mul(rows, recurrent_width(p));
  }
  if (resets_before(p)) {
    s.r_across = checked_mul(p.hidden, p.padded);
    s.candidates = checked_mul(rows, p.padded);
  }
  if (!is_wanted(desc, Out::kDSums)) s.dsums = checked_mul(rows, width);
  std::int64_t floats = 0;
  for (const std::int64_t part : {s.r, s.r_across, s.cells, s.dc, s.kept, s.candidates, s.dsums, s.drecurrent}) {
    floats = checked_add(floats, part);
  }
  plan->scratch_bytes = checked_mul(static_cast<std::size_t>(floats), sizeof(float));
  plan->flops = 2.0 * static_cast<double>(rows) * static_cast<double>(width) * static_cast<double>(p.hidden);
  count_bytes(desc, plan);
}

// One run of a node.
class Steps {
 public:
  explicit Steps(const KernelArgs& args)
      : args_(args),
        cl_(launcher(args)),
        s_(args.plan->state<State>()),
        p_(s_.p),
        sums_(args.inputs[In::kSums]),
        lengths_(given(args, In::kLengths)),
        dy_(given(args, In::kDy)),
        dh_(given(args, In::kDyH)) {
    r_ = take(s_.r);
    r_across_ = take(s_.r_across);
    cells_ = take(s_.cells);
    dc_ = take(s_.dc);
    kept_ = take(s_.kept);
    candidates_ = take(s_.candidates);
    dsums_ = output_or_part(Out::kDSums, s_.dsums);
    drecurrent_ = p_.gates == 3 ? output_or_part(Out::kDRecurrent, s_.drecurrent) : dsums_;
  }

  void run() {
    pack();
    if (p_.gates == 4) start_lstm();
    if (resets_before(p_)) start_gru();
    for (std::int64_t s = p_.steps - 1; s >= 0; --s) step(s);
    if (p_.gates == 4 && is_wanted(*args_.desc, Out::kDPeepholes)) {
      cl_.run(kLstmPeepholes, {vectors(), 3}, dsums_, lengths_, cells_, args_.outputs[Out::kDPeepholes], p_);
    }
    finish();
  }

 private:
  Buffer take(std::int64_t floats) {
    const Buffer taken = part_of(args_.scratch, used_, static_cast<std::size_t>(floats) * sizeof(float));
    used_ += taken.size;
    return taken;
  }

  Buffer output_or_part(std::size_t output, std::int64_t floats) {
    return is_wanted(*args_.desc, output) ? args_.outputs[output] : take(floats);
  }

  std::int64_t vectors() const { return p_.padded / cl_.lanes(); }
  Grid units() const {
    return {cl_.is_cpu() ? vectors() : vectors() * kSlices, cl_.is_cpu() ? ceil_div(p_.batch, kSequences) : p_.batch};
  }

  // The rows of R that gate `gate` begins with, as they are packed.
  Buffer packed_rows(std::int64_t gate) const {
    const std::size_t skipped = static_cast<std::size_t>(gate * p_.hidden * p_.padded) * sizeof(float);
    return part_of(r_, skipped, r_.size - skipped);
  }

  void pack() {
    const std::int64_t width = p_.gates * p_.hidden, of_gate = p_.hidden * p_.hidden;
    Buffer r = args_.inputs[In::kR];
    r.offset += static_cast<std::size_t>(p_.index * width * p_.hidden) * sizeof(float);
    cl_.run(kPackRows, {vectors(), width}, r, r_, p_.hidden, p_.padded, std::int32_t{0});
    if (!resets_before(p_)) return;
    r.offset += static_cast<std::size_t>(2 * of_gate) * sizeof(float);
    cl_.run(kPackRows, {vectors(), p_.hidden}, r, r_across_, p_.hidden, p_.padded, std::int32_t{1});
  }

  void start_lstm() {
    cl_.run(kLstmCells, {vectors(), p_.batch}, sums_, lengths_, given(args_, In::kInitialC), given(args_, In::kPeepholes),
            given(args_, In::kDyC), cells_, dc_, p_);
  }

  void start_gru() {
    const std::int64_t rows = p_.steps * p_.batch;
    cl_.run(kGruReset, rows_grid(cl_, p_), sums_, args_.inputs[In::kRecurrent], lengths_, args_.inputs[In::kBefore], drecurrent_,
            p_);
    cl_.run(kGruCandidates, {vectors(), ceil_div(rows, kRows)}, drecurrent_, r_across_, sums_, candidates_, p_, rows);
  }

  void step(std::int64_t s) {
    if (p_.gates == 1) return cl_.run(kRnnBack, units(), sums_, r_, lengths_, dy_, dh_, dsums_, p_, s);
    if (p_.gates == 4) {
      return cl_.run(kLstmBack, units(), sums_, r_, lengths_, dy_, dh_, dsums_, cells_, given(args_, In::kPeepholes), dc_, p_, s);
    }
    const Buffer &recurrent = args_.inputs[In::kRecurrent], &before = args_.inputs[In::kBefore];
    if (p_.own != 0) {
      return cl_.run(kGruBack, units(), sums_, r_, lengths_, dy_, dh_, drecurrent_, recurrent, before, kept_, dsums_, p_, s);
    }
    cl_.run(kGruNewBack, units(), sums_, r_, lengths_, dy_, dh_, dsums_, recurrent, before, kept_, candidates_, p_, s);
    cl_.run(kGruResetBack, units(), sums_, packed_rows(2), lengths_, recurrent, before, kept_, dsums_, p_, s);
  }

  void finish() {
    const bool has_cells = p_.gates == 4 && is_wanted(*args_.desc, Out::kDInitialC),
               has_h = is_wanted(*args_.desc, Out::kDInitialH);
    if (!has_h && !has_cells) return;
    const Buffer& d = p_.gates == 3 && p_.own != 0 ? drecurrent_ : dsums_;
    const std::int64_t width = p_.gates * p_.hidden;
    cl_.run(kFinishBack, units(), sums_, r_, lengths_, dy_, dh_, d, kept_, dc_, has_h ? args_.outputs[Out::kDInitialH] : r_,
            has_cells ? args_.outputs[Out::kDInitialC] : r_, p_, width, depth_of(p_), std::int32_t{has_h},
            std::int32_t{p_.gates == 3}, std::int32_t{has_cells});
  }

  const KernelArgs& args_;
  Launcher& cl_;
  const State& s_;
  const Back& p_;
  std::size_t used_ = 0;
  const Buffer &sums_, &lengths_, &dy_, &dh_;
  Buffer r_, r_across_, cells_, dc_, kept_, candidates_, dsums_, drecurrent_;
};

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) { Steps(args).run(); }

constexpr Kernel kernel(const char* name, const char* op) {
  return {.name = name, .op = op, .domain = kInternalDomain, .rank = 10, .supports = supports, .plan = plan, .run = run};
}
constexpr Kernel kKernels[] = {
    kernel("lstm_gradient", kLstmGradient),
    kernel("gru_gradient", kGruGradient),
    kernel("rnn_gradient", kRnnGradient),
    {.name = "recurrent_states",
     .op = kRecurrentStates,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports_states,
     .plan = plan_states,
     .run = run_states},
};

}  // namespace

extern const KernelFamily recurrent_gradient_opencl_kernels;
const KernelFamily recurrent_gradient_opencl_kernels = {kKernels};

}  // namespace evn
