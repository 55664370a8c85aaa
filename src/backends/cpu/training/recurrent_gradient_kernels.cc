// LSTMGradient, GRUGradient and RNNGradient of float32: back through the steps, with one product by R, which is packed, in each. A
// tile is some sequences. No result depends on how they are cut: rows of products do not, and what P gets is added up for each
// sequence alone.
#include <algorithm>
#include <cstring>

#include "backends/cpu/gemm/pack.h"
#include "backends/cpu/support.h"
#include "backends/cpu/training/recurrent_gradient_loops.h"
#include "ops/merge.h"
#include "ops/training/recurrent_gradient.h"

namespace evn {
namespace {

using In = RecurrentGradientInput;
using Out = RecurrentGradientOutput;
using simd_recurrent_gradient::Cell;
using simd_recurrent_gradient::GruStep;

constexpr std::int64_t kLeastRows = 2;  // which share what they read of R
constexpr std::int64_t kHeader = 64;    // bytes of the scratch memory before the sums of P: how many tiles are done
constexpr std::int64_t kFloat = sizeof(float);

struct State {
  Isa isa;
  RecurrentSpec spec;
  RecurrentSizes size;
  std::int32_t gates, index;
  std::int64_t rows;  // sequences of a tile
  bool has_own_drecurrent;

  std::int64_t width() const { return gates * size.hidden; }
  bool has_cells() const { return gates == 4; }
  // A GRU whose candidate waits for a product of its own.
  bool resets_before() const { return gates == 3 && !spec.own; }
  std::int64_t cells() const { return checked_mul(checked_add(size.steps, std::int64_t{1}), size.hidden); }  // of a sequence
  // Elements of GRUGradient's kDRecurrent for a step of a sequence.
  std::int64_t recurrent_width() const { return spec.own ? width() : size.hidden; }
  // Of the product that every step has: gates that R is applied to at once.
  std::int64_t depth() const { return (resets_before() ? 2 : gates) * size.hidden; }
};

// A thread's memory.
struct Parts {
  float *r, *r_candidate, *r_back, *buffer, *dh, *dc, *of_candidate, *dkept;
  float* drecurrent;  // of one step, if nobody wants it as an output
  std::int64_t floats = 0;

  Parts(const State& s, void* memory) {
    const simd_gemm::Loops& loops = simd_gemm::loops(s.isa);
    auto* const base = static_cast<float*>(memory);
    const auto take = [&](std::int64_t count) {
      float* const part = base == nullptr ? nullptr : base + floats;
      floats = checked_add(floats, checked_mul<std::int64_t>(ceil_div(count, 16), 16));
      return part;
    };
    const std::int64_t h = s.size.hidden, states = checked_mul(s.rows, h);
    r = take(packed_b_floats(loops, h, s.depth()));
    buffer = take(simd_gemm::buffer_floats(loops, 0));
    dh = take(states);
    dc = take(s.has_cells() ? states : 0);
    r_candidate = take(s.resets_before() ? packed_b_floats(loops, h, h) : 0);
    r_back = take(s.resets_before() ? packed_b_floats(loops, h, h) : 0);
    of_candidate = take(s.resets_before() ? states : 0);
    dkept = take(s.resets_before() ? states : 0);
    drecurrent = take(s.has_own_drecurrent ? checked_mul(s.rows, s.recurrent_width()) : 0);
  }
};

Refusal supports(const OpDesc& d) {
  if (epilogue_of(d) != nullptr) return kNoEpilogue;
  for (int i = 0; i < static_cast<int>(d.inputs.size()); ++i) {
    if (i != In::kLengths && d.has_input(i) && d.inputs[static_cast<std::size_t>(i)].dtype != DType::kFloat32) return kNeedsFloat32;
  }
  return nullptr;
}

bool is_wanted(const OpDesc& d, std::size_t output) {
  return output < d.outputs.size() && d.outputs[output].dtype != DType::kUndefined;
}
bool wants_peepholes(const OpDesc& d) { return recurrent_gradient_form(*d.node).gates == 4 && is_wanted(d, Out::kDPeepholes); }

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<State>();
  s = State{};
  const RecurrentForm& form = recurrent_gradient_form(*d.node);
  s.isa = cpu_isa();
  s.spec = recurrent_spec(*d.node, form);
  s.size = recurrent_output_sizes(s.spec.batch_first, d.inputs[In::kY].shape);
  s.gates = form.gates;
  s.index = recurrent_index(*d.node, s.spec);
  const std::int64_t threads = std::max<std::int64_t>(d.threads, 1);
  s.rows = std::max<std::int64_t>(std::min(s.size.batch, std::max(kLeastRows, ceil_div(s.size.batch, threads))), 1);
  s.has_own_drecurrent = s.gates == 3 && !is_wanted(d, Out::kDRecurrent);
  p->tiles = ceil_div(s.size.batch, s.rows);
  p->thread_scratch_bytes = static_cast<std::size_t>(checked_mul(Parts(s, nullptr).floats, kFloat));
  if (s.has_cells()) {
    const std::int64_t of_sequence = checked_add(s.cells(), wants_peepholes(d) ? checked_mul<std::int64_t>(3, s.size.hidden) : 0);
    p->scratch_bytes = static_cast<std::size_t>(checked_add(kHeader, checked_mul(checked_mul(of_sequence, s.size.batch), kFloat)));
    p->cleared_bytes = kDoneBytes;
  }
  p->flops =
      2.0 * static_cast<double>(s.width()) * static_cast<double>(s.size.hidden) * static_cast<double>(s.size.steps * s.size.batch);
  p->bytes = bytes_of(d);
}

// --------------------------------------------------------------------------------------------------------- run --

class Back {
 public:
  Back(const KernelArgs& args, CancelPoints* points)
      : args_(args),
        s_(args.plan->state<State>()),
        h_(s_.size.hidden),
        loops_(simd_recurrent_gradient::loops(s_.isa)),
        parts_(s_, args.thread_scratch),
        points_(points) {
    const Activation* f = s_.spec.activations[s_.index];
    cell_ = {{f[0], f[1], f[2], s_.spec.clip > 0 ? s_.spec.clip : __builtin_inff(), s_.spec.own}, h_, nullptr};
    if (s_.has_cells() && args.desc->has_input(In::kPeepholes))
      cell_.peepholes = args.in<float>(In::kPeepholes) + s_.index * 3 * h_;
    lengths_ = args.desc->has_input(In::kLengths) ? args.in<std::int32_t>(In::kLengths) : nullptr;
  }

  bool pack() const {
    const float* const r = args_.in<float>(In::kR) + s_.index * s_.width() * h_;
    pack_rows(r, s_.depth(), parts_.r);
    if (!s_.resets_before()) return !points_->stopped;
    const float* const candidate = r + 2 * h_ * h_;
    pack_rows(candidate, h_, parts_.r_back);
    if (stops(points_, 2 * h_ * h_)) return false;
    pack_b(simd_gemm::loops(s_.isa), candidate, 1, h_, h_, h_, 1, parts_.r_candidate);
    return !points_->stopped;
  }

  void run(std::int64_t tile) {
    first_ = tile * s_.rows;
    rows_ = std::min(s_.rows, s_.size.batch - first_);
    for (std::int64_t i = 0; i < rows_ && !stops(points_, 3 * h_); ++i) start(i);
    const bool backwards = s_.spec.backwards(s_.index);
    for (std::int64_t i = 0; i < s_.size.steps && !points_->stopped; ++i) step(backwards ? i : s_.size.steps - 1 - i);
    for (std::int64_t i = 0; i < rows_ && !stops(points_, 2 * h_); ++i) {
      if (is_wanted(*args_.desc, Out::kDInitialH)) copy(dh(i), args_.out<float>(Out::kDInitialH) + (first_ + i) * h_, h_);
      if (s_.has_cells() && is_wanted(*args_.desc, Out::kDInitialC))
        copy(dc(i), args_.out<float>(Out::kDInitialC) + (first_ + i) * h_, h_);
    }
  }

  // When all tiles are done.
  void sum_peepholes() const {
    float* const to = args_.out<float>(Out::kDPeepholes);
    std::memset(to, 0, static_cast<std::size_t>(3 * h_ * kFloat));
    for (std::int64_t n = 0; n < s_.size.batch && !stops(points_, 3 * h_); ++n) loops_.add(peepholes(n), to, 3 * h_);
  }

 private:
  const KernelArgs& args_;
  const State& s_;
  const std::int64_t h_;
  const simd_recurrent_gradient::Loops& loops_;
  const Parts parts_;
  CancelPoints* const points_;
  Cell cell_{};
  const std::int32_t* lengths_ = nullptr;
  std::int64_t first_ = 0, rows_ = 0;

  static void copy(const float* from, float* to, std::int64_t n) { std::memcpy(to, from, static_cast<std::size_t>(n * kFloat)); }
  static void clear(float* to, std::int64_t n) { std::memset(to, 0, static_cast<std::size_t>(n * kFloat)); }

  // Rows of R as rows of B, by panels with cancellation points before each.
  void pack_rows(const float* r, std::int64_t depth, float* to) const {
    const simd_gemm::Loops& loops = simd_gemm::loops(s_.isa);
    for (std::int64_t j = 0; j < h_ && !stops(points_, 2 * depth * loops.nr); j += loops.nr) {
      pack_panel(r + j, h_, 1, std::min<std::int64_t>(loops.nr, h_ - j), loops.nr, depth, to + j * depth);
    }
  }

  float* dh(std::int64_t row) const { return parts_.dh + row * h_; }
  float* dc(std::int64_t row) const { return parts_.dc + row * h_; }
  float* scratch() const { return reinterpret_cast<float*>(static_cast<char*>(args_.scratch.address()) + kHeader); }
  float* cells(std::int64_t n) const { return scratch() + n * s_.cells(); }
  float* peepholes(std::int64_t n) const { return scratch() + s_.size.batch * s_.cells() + n * 3 * h_; }
  std::int64_t steps_of(std::int64_t n) const { return sequence_steps(lengths_, n, s_.size.steps); }

  std::int64_t row_at(std::int64_t t, std::int64_t row) const { return s_.size.x_row(s_.spec, t, first_ + row); }
  // From one sequence's row to the next one's, of the same step.
  std::int64_t stride() const { return s_.spec.batch_first ? s_.size.steps : 1; }

  void load(int input, std::int64_t at, float* to) const {
    args_.desc->has_input(input) ? copy(args_.in<float>(input) + at, to, h_) : clear(to, h_);
  }

  void start(std::int64_t row) const {
    const std::int64_t n = first_ + row, state = s_.size.state_at(s_.spec, s_.index, n), steps = steps_of(n);
    load(In::kDyH, state, dh(row));
    if (!s_.has_cells()) return;
    load(In::kDyC, state, dc(row));
    float* cell = cells(n);
    load(In::kInitialC, state, cell);
    if (wants_peepholes(*args_.desc)) clear(peepholes(n), 3 * h_);
    for (std::int64_t i = 0; i < steps && !stops(points_, 3 * kFunction * h_); ++i, cell += h_) {
      const std::int64_t t = s_.spec.backwards(s_.index) ? steps - 1 - i : i;
      loops_.lstm_cell(cell_, args_.in<float>(In::kSums) + row_at(t, row) * s_.width(), cell, cell + h_);
    }
  }

  // to = init + a R for a row of each sequence.
  void multiply(const float* a, std::int64_t lda, std::int64_t depth, const float* packed, bool adds, float* to) const {
    simd_gemm::Tile t{};
    t.m = rows_;
    t.n = h_;
    t.k = depth;
    t.a_kind = simd_gemm::AKind::kRows;
    t.a = a;
    t.lda = lda;
    t.b_kind = simd_gemm::BKind::kPacked;
    t.b = packed;
    t.c = to;
    t.ldc = h_;
    t.init = adds ? to : nullptr;
    t.init_row = h_;
    t.init_column = 1;
    t.init_scale = 1;
    t.buffer = parts_.buffer;
    t.points = points_;
    simd_gemm::loops(s_.isa).run(t);
  }

  void step(std::int64_t t) const {
    bool all = true;
    for (std::int64_t i = 0; i < rows_; ++i) all = all && t < steps_of(first_ + i);
    const std::int64_t width = s_.width();
    float* const dsums = args_.out<float>(Out::kDSums) + row_at(t, 0) * width;
    if (stops(points_, rows_ * s_.gates * kFunction * h_)) return;
    if (s_.gates == 3) return s_.resets_before() ? gru_before(t) : gru_after(t);
    for (std::int64_t i = 0; i < rows_; ++i) {
      float* const to = dsums + i * stride() * width;
      if (t >= steps_of(first_ + i)) {
        clear(to, width);
        continue;
      }
      s_.has_cells() ? lstm(t, i, to) : loops_.rnn(cell_, args_.in<float>(In::kSums) + row_at(t, i) * width, dh(i), dy(t, i), to);
      if (!all) clear(dh(i), h_);
    }
    multiply(dsums, stride() * width, width, parts_.r, !all, parts_.dh);
  }

  const float* dy(std::int64_t t, std::int64_t row) const {
    if (!args_.desc->has_input(In::kDy)) return nullptr;
    return args_.in<float>(In::kDy) + s_.size.y_at(s_.spec, s_.index, t, first_ + row);
  }

  void lstm(std::int64_t t, std::int64_t row, float* dsums) const {
    const std::int64_t n = first_ + row;
    const std::int64_t i = s_.spec.backwards(s_.index) ? steps_of(n) - 1 - t : t;
    const float* const before = cells(n) + i * h_;
    loops_.lstm(cell_, {args_.in<float>(In::kSums) + row_at(t, row) * s_.width(), before, before + h_, dh(row), dy(t, row), dc(row),
                        dsums, wants_peepholes(*args_.desc) ? peepholes(n) : nullptr});
  }

  float* drecurrent(std::int64_t t, std::int64_t row) const {
    if (s_.has_own_drecurrent) return parts_.drecurrent + row * s_.recurrent_width();
    return args_.out<float>(Out::kDRecurrent) + row_at(t, row) * s_.recurrent_width();
  }
  std::int64_t drecurrent_step() const { return (s_.has_own_drecurrent ? 1 : stride()) * s_.recurrent_width(); }

  GruStep gru_step(std::int64_t t, std::int64_t row, std::int64_t of_recurrent) const {
    const std::int64_t at = row_at(t, row);
    return {args_.in<float>(In::kSums) + at * s_.width(),
            args_.in<float>(In::kRecurrent) + at * of_recurrent,
            parts_.of_candidate == nullptr ? nullptr : parts_.of_candidate + row * h_,
            args_.in<float>(In::kBefore) + at * h_,
            dy(t, row),
            dh(row),
            args_.out<float>(Out::kDSums) + at * s_.width(),
            drecurrent(t, row)};
  }

  void gru_after(std::int64_t t) const {
    const std::int64_t width = s_.width();
    for (std::int64_t i = 0; i < rows_; ++i) {
      const GruStep g = gru_step(t, i, width);
      if (t < steps_of(first_ + i)) {
        loops_.gru(cell_, g);
      } else {
        clear(g.dsums, width);
        clear(g.drecurrent, width);
      }
    }
    multiply(drecurrent(t, 0), drecurrent_step(), width, parts_.r, true, parts_.dh);
  }

  void gru_before(std::int64_t t) const {
    const std::int64_t width = s_.width();
    const auto each = [&](auto&& of_step, auto&& of_none) {
      for (std::int64_t i = 0; i < rows_; ++i) {
        const GruStep g = gru_step(t, i, 2 * h_);
        t < steps_of(first_ + i) ? of_step(g, i) : of_none(g);
      }
    };
    const auto nothing = [](const GruStep&) {};
    each([&](const GruStep& g, std::int64_t) { loops_.gru_kept(cell_, g.sums, g.recurrent, g.before, g.drecurrent); },
         [&](const GruStep& g) { clear(g.drecurrent, h_); });
    float* const dsums = args_.out<float>(Out::kDSums) + row_at(t, 0) * width;
    multiply(drecurrent(t, 0), drecurrent_step(), h_, parts_.r_candidate, false, parts_.of_candidate);
    each([&](const GruStep& g, std::int64_t) { loops_.gru_candidate(cell_, g); }, [&](const GruStep& g) { clear(g.dsums, width); });
    multiply(dsums + 2 * h_, stride() * width, h_, parts_.r_back, false, parts_.dkept);
    each([&](const GruStep& g, std::int64_t i) { loops_.gru_reset(cell_, g, parts_.dkept + i * h_); }, nothing);
    multiply(dsums, stride() * width, 2 * h_, parts_.r, true, parts_.dh);
  }
};

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  CancelPoints points = points_of(cancel);
  Back back(args, &points);
  if (cancel.stop() || !back.pack()) return;
  for (std::int64_t tile = begin; tile < end && !points.stopped; ++tile) back.run(tile);
  if (points.stopped || !wants_peepholes(*args.desc)) return;
  if (are_all_done(args, end - begin)) back.sum_peepholes();
}

constexpr Kernel kernel(const char* name, const char* op) {
  return {.name = name, .op = op, .domain = kInternalDomain, .rank = 10, .supports = supports, .plan = plan, .run = run};
}
constexpr Kernel kKernels[] = {
    kernel("lstm_gradient", kLstmGradient),
    kernel("gru_gradient", kGruGradient),
    kernel("rnn_gradient", kRnnGradient),
};

}  // namespace

extern const KernelFamily recurrent_gradient_kernels;
const KernelFamily recurrent_gradient_kernels = {kKernels};

}  // namespace evn
