// LSTM, GRU and RNN of float32 with constant W and R. The inputs' products with W are made for many steps at once; then, step by
// step, the products with R and the cell. Gates lie `padded` floats apart everywhere, in packed columns too: whole vectors. A tile
// is one direction of some sequences: of one, when they have lengths of their own.
#include <algorithm>
#include <cstring>

#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/gemm/pack.h"
#include "backends/cpu/gemm/packed_gemm_plan.h"
#include "backends/cpu/move/transpose_loops.h"
#include "backends/cpu/recurrent/recurrent_loops.h"
#include "backends/cpu/support.h"
#include "ops/recurrent.h"

namespace evn {
namespace {

using In = RecurrentInput;
using simd_recurrent::Cell;

constexpr std::int64_t kProjectedRows = 64;  // inputs whose products with W are made at once: they should stay in L2

constexpr std::int64_t kMostLanes = 16;  // of any cluster

std::int64_t padded_size(std::int64_t hidden) { return checked_mul<std::int64_t>(ceil_div(hidden, kMostLanes), kMostLanes); }

int gates_of(const OpDesc& d) {
  const Shape& r = d.inputs[In::kR].shape;
  return r[2] == 0 ? 1 : static_cast<int>(r[1] / r[2]);
}

const RecurrentForm& form_of(int gates) { return gates == 4 ? kLstmForm : gates == 3 ? kGruForm : kRnnForm; }

Refusal supports(const OpDesc& d) {
  for (int i = 0; i < static_cast<int>(d.inputs.size()); ++i) {
    if (i != In::kLengths && d.has_input(i) && d.inputs[i].dtype != DType::kFloat32) return kNeedsFloat32;
  }
  if (d.constant(In::kW) == nullptr || d.constant(In::kR) == nullptr) return "W or R that is not constant";
  return nullptr;
}

// ----------------------------------------------------------------------------------------------------- packing --

// A GRU's third product waits for the first two: its columns of R are a matrix of their own.
int joined_gates(int gates, int input) { return gates == 3 && input == In::kR ? 2 : gates; }

// Floats of one direction. W is packed as gemm/packed_gemm_loops.h has it, R as gemm/gemm_loops.h does.
std::int64_t packed_floats(Isa isa, int gates, std::int64_t padded, std::int64_t depth, int input) {
  if (input == In::kW) return packed_gemm_floats(simd_packed_gemm::loops(isa), checked_mul<std::int64_t>(padded, gates), depth);
  const simd_gemm::Loops& loops = simd_gemm::loops(isa);
  const int joined = joined_gates(gates, input);
  const std::int64_t rest = joined < gates ? packed_b_floats(loops, padded, depth) : 0;
  return checked_add(packed_b_floats(loops, checked_mul<std::int64_t>(padded, joined), depth), rest);
}

std::size_t prepack_bytes(const OpDesc& d, int input) {
  if (input != In::kW && input != In::kR) return 0;
  const Shape& w = d.inputs[input].shape;
  const std::int64_t floats = packed_floats(cpu_isa(), gates_of(d), padded_size(d.inputs[In::kR].shape[2]), w[2], input);
  return checked_mul(static_cast<std::size_t>(checked_mul(floats, w[0])), sizeof(float));
}

std::uint64_t prepack_variant(const OpDesc&, int) { return static_cast<std::uint64_t>(cpu_isa()); }

// Panels of `nr` columns, the last one no wider than it must be with `narrow`.
struct Panels {
  std::int64_t nr;
  bool narrow;
  std::int64_t columns, depth;
  float* to;

  // Calls body(to, width, index, count) for what of columns [begin, end) lies in each panel: `count` columns from begin + index on,
  // at `to`, where rows are `width` floats long.
  template <typename F>
  void each(std::int64_t begin, std::int64_t end, F&& body) const {
    for (std::int64_t column = begin; column < end;) {
      const std::int64_t first = column / nr * nr;
      const std::int64_t width = narrow ? std::min(nr, columns - first) : nr;
      const std::int64_t count = std::min(first + width, end) - column;
      body(to + first * depth + (column - first), width, column - begin, count);
      column += count;
    }
  }
};

// Parts of gates whose padding would share a vector with the next gate's are whole gates.
std::int64_t part_step(const OpDesc& d, int) {
  const std::int64_t hidden = d.inputs[In::kR].shape[2];
  return hidden % kMostLanes == 0 ? kMostLanes : hidden;
}

// Rows of all gates of all directions. What pads a gate, or the last panel, is written with the row before it.
void prepack(const OpDesc& d, int input, const void* rows, std::int64_t begin, std::int64_t end, void* packed) {
  const Isa isa = cpu_isa();
  const simd_transpose::Loops& move = simd_transpose::loops(isa);
  const bool is_w = input == In::kW;
  const std::int64_t hidden = d.inputs[In::kR].shape[2], padded = padded_size(hidden), depth = d.inputs[input].shape[2];
  const std::int64_t nr = is_w ? simd_packed_gemm::loops(isa).nr : simd_gemm::loops(isa).nr;
  const int gates = gates_of(d), joined = joined_gates(gates, input);
  const std::int64_t floats = packed_floats(isa, gates, padded, depth, input);
  const auto* from = static_cast<const float*>(rows);
  for (std::int64_t row = begin; row < end;) {
    const std::int64_t gate = row / hidden % gates, first = row % hidden, count = std::min(hidden - first, end - row);
    const bool second = gate >= joined;
    float* const to = static_cast<float*>(packed) + row / hidden / gates * floats;
    Panels p{nr, is_w, (second ? gates - joined : joined) * padded, depth, to};
    if (second) p.to += packed_b_floats(simd_gemm::loops(isa), joined * padded, depth);
    const std::int64_t column = (second ? gate - joined : gate) * padded + first;
    p.each(column, column + count, [&](float* at, std::int64_t width, std::int64_t index, std::int64_t n) {
      move.transpose(from + index * depth, depth, n, depth, at, width);
    });
    if (first + count == hidden) {
      const std::int64_t next = column - first + padded;
      p.each(column + count, is_w || next < p.columns ? next : ceil_div(next, nr) * nr,
             [&](float* at, std::int64_t width, std::int64_t, std::int64_t n) {
               for (std::int64_t k = 0; k < depth; ++k) std::fill_n(at + k * width, n, 0.0f);
             });
    }
    from += count * depth;
    row += count;
  }
}

constexpr PrepackParts kParts = {part_step, prepack, 2};

// -------------------------------------------------------------------------------------------------------- plan --

struct State {
  Isa isa;
  RecurrentSpec spec;
  RecurrentSizes size;
  std::int32_t gates;
  std::int64_t padded;
  std::int64_t rows, row_tiles;  // sequences of a tile; tiles of one direction
  std::int64_t chunk;            // steps whose products with W are made at once
};

// A thread's block, in floats from its beginning.
struct Scratch {
  std::int64_t bias, recurrent_bias, peepholes, h, c, reset, gates, projected, end;
};

Scratch scratch_of(const State& s) {
  const std::int64_t size = s.padded;
  Scratch at;
  std::int64_t next = 0;
  const auto take = [&](std::int64_t floats) {
    const std::int64_t begin = next;
    next = checked_add(next, checked_mul<std::int64_t>(ceil_div(floats, 16), 16));
    return begin;
  };
  take(simd_gemm::buffer_floats(simd_gemm::loops(s.isa), 0));
  at.bias = take(checked_mul<std::int64_t>(s.gates, size));
  at.recurrent_bias = take(size);
  at.peepholes = take(checked_mul<std::int64_t>(3, size));
  at.h = take(checked_mul(s.rows, size));
  at.c = take(checked_mul(s.rows, size));
  at.reset = take(checked_mul(s.rows, size));
  at.gates = take(checked_mul(s.rows, s.gates * size));
  at.projected = take(checked_mul(checked_mul(s.rows, s.chunk), s.gates * size));
  at.end = next;
  return at;
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<State>();
  s = State{};
  s.isa = cpu_isa();
  s.gates = gates_of(d);
  s.spec = recurrent_spec(*d.node, form_of(s.gates));
  s.size = recurrent_sizes(s.spec, d.inputs[In::kX].shape, d.inputs[In::kR].shape);
  const simd_gemm::Loops& loops = simd_gemm::loops(s.isa);
  s.padded = padded_size(s.size.hidden);
  const double sequence = static_cast<double>(s.size.steps) * static_cast<double>(s.size.inputs + s.size.hidden) * s.gates *
                          static_cast<double>(s.size.hidden);
  // Rows of one tile share what they read of R: fewer than a micro-tile has would only read it more often.
  const std::int64_t least = std::max<std::int64_t>(loops.mr, ceil_div(s.size.batch * s.spec.directions, kManyTiles));
  s.rows = std::min(s.size.batch, std::max(least, units_per_tile(s.size.batch, sequence)));
  if (d.has_input(In::kLengths)) s.rows = 1;
  s.row_tiles = ceil_div(s.size.batch, s.rows);
  s.chunk = std::clamp<std::int64_t>(kProjectedRows / s.rows, 1, s.size.steps);
  p->tiles = checked_mul<std::int64_t>(s.row_tiles, s.spec.directions);
  p->thread_scratch_bytes = checked_mul(static_cast<std::size_t>(scratch_of(s).end), sizeof(float));
  p->flops = 2 * sequence * static_cast<double>(s.size.batch) * s.spec.directions;
  p->bytes = bytes_of(d);
}

// --------------------------------------------------------------------------------------------------------- run --

// One direction of the sequences [first, first + rows).
class Layer {
 public:
  Layer(const KernelArgs& args, const State& s, int direction, std::int64_t first, std::int64_t rows, CancelPoints* points)
      : points_(points),
        args_(args),
        s_(s),
        direction_(direction),
        first_(first),
        rows_(rows),
        at_(scratch_of(s)),
        scratch_(static_cast<float*>(args.thread_scratch)),
        loops_(simd_recurrent::loops(s.isa)) {
    const auto* lengths = args.desc->has_input(In::kLengths) ? args.in<std::int32_t>(In::kLengths) : nullptr;
    steps_ = sequence_steps(lengths, first, s.size.steps);
    w_ = args.pack<float>(In::kW) + direction * packed_floats(s.isa, s.gates, s.padded, s.size.inputs, In::kW);
    r_ = args.pack<float>(In::kR) + direction * packed_floats(s.isa, s.gates, s.padded, s.size.hidden, In::kR);
    const Activation* f = s.spec.activations[direction];
    cell_ = {{f[0], f[1], f[2], s.spec.clip > 0 ? s.spec.clip : __builtin_inff(), s.spec.own}, s.padded, nullptr};
  }

  void run() {
    load();
    const bool backwards = s_.spec.backwards(direction_);
    for (std::int64_t done = 0; done < steps_; done += s_.chunk) {
      const std::int64_t count = std::min(s_.chunk, steps_ - done);
      const std::int64_t begin = backwards ? steps_ - done - count : done;
      project(begin, count);
      for (std::int64_t i = 0; i < count; ++i) {
        if (has_stopped(points_)) return;
        const std::int64_t t = backwards ? count - 1 - i : i;
        // Neighbours in the batch are `stride` floats apart.
        const std::int64_t stride = (s_.spec.batch_first ? count : 1) * s_.gates * s_.padded;
        step(scratch_ + at_.projected + (s_.spec.batch_first ? t : t * rows_) * s_.gates * s_.padded, stride, (i & 1) != 0);
        write_step(begin + t);
      }
    }
    finish();
  }

 private:
  // What the model gives, with gates `padded` apart, or zeros.
  void load_padded(int input, std::int64_t from, std::int64_t count, float* to) const {
    const std::int64_t hidden = s_.size.hidden;
    for (std::int64_t i = 0; i < count; ++i, to += s_.padded) {
      std::memset(to, 0, static_cast<std::size_t>(s_.padded) * sizeof(float));
      if (!args_.desc->has_input(input)) continue;
      std::memcpy(to, args_.in<float>(input) + from + i * hidden, static_cast<std::size_t>(hidden) * sizeof(float));
    }
  }

  bool resets_after() const { return s_.gates == 3 && s_.spec.own; }

  void load() {
    const std::int64_t hidden = s_.size.hidden;
    const std::int64_t biases = direction_ * 2 * s_.gates * hidden;
    float* bias = scratch_ + at_.bias;
    float* other = scratch_ + at_.gates;
    load_padded(In::kB, biases, s_.gates, bias);
    load_padded(In::kB, biases + s_.gates * hidden, s_.gates, other);
    // A GRU that resets after the product keeps the candidate's second bias apart.
    const std::int64_t joined = (resets_after() ? 2 : s_.gates) * s_.padded;
    for (std::int64_t i = 0; i < joined; ++i) bias[i] += other[i];
    if (resets_after())
      std::memcpy(scratch_ + at_.recurrent_bias, other + joined, static_cast<std::size_t>(s_.padded) * sizeof(float));
    if (args_.desc->has_input(In::kPeepholes)) {
      load_padded(In::kPeepholes, direction_ * 3 * hidden, 3, scratch_ + at_.peepholes);
      cell_.peepholes = scratch_ + at_.peepholes;
    }
    for (std::int64_t i = 0; i < rows_ && !stops(points_, 2 * s_.padded); ++i) {
      const std::int64_t state = s_.size.state_at(s_.spec, direction_, first_ + i);
      load_padded(In::kInitialH, state, 1, h(i));
      load_padded(In::kInitialC, state, 1, c(i));
    }
  }

  float* h(std::int64_t row) const { return scratch_ + at_.h + row * s_.padded; }
  float* c(std::int64_t row) const { return scratch_ + at_.c + row * s_.padded; }
  float* gates(std::int64_t row) const { return scratch_ + at_.gates + row * s_.gates * s_.padded; }

  struct Product {
    const float* a;
    std::int64_t lda, m;
    const float* b;
    std::int64_t k, n;
    const float* init;
    std::int64_t init_row;
    float* to;
    bool backwards = false;
  };
  void multiply(const Product& p) const {
    if (p.m == 1) return loops_.row(p.a, p.k, p.b, simd_gemm::loops(s_.isa).nr, p.n, p.backwards, p.init, p.to, points_);
    simd_gemm::Tile t{};
    t.m = p.m;
    t.n = p.n;
    t.k = p.k;
    t.a_kind = simd_gemm::AKind::kRows;
    t.a = p.a;
    t.lda = p.lda;
    t.b_kind = simd_gemm::BKind::kPacked;
    t.b = p.b;
    t.c = p.to;
    t.ldc = s_.gates * s_.padded;
    t.init = p.init;
    t.init_row = p.init_row;
    t.init_column = 1;
    t.init_scale = 1;
    t.buffer = scratch_;
    t.points = points_;
    simd_gemm::loops(s_.isa).run(t);
  }

  // W x + bias of steps [begin, begin + count), rows in the order of x.
  void project(std::int64_t begin, std::int64_t count) const {
    const bool whole = !s_.spec.batch_first && rows_ == s_.size.batch;
    const std::int64_t runs = whole ? 1 : s_.spec.batch_first ? rows_ : count;
    const std::int64_t m = whole ? count * rows_ : s_.spec.batch_first ? count : rows_;
    const std::int64_t inputs = s_.size.inputs;
    for (std::int64_t i = 0; i < runs; ++i) {
      const std::int64_t row =
          s_.spec.batch_first ? s_.size.x_row(s_.spec, begin, first_ + i) : s_.size.x_row(s_.spec, begin + i, first_);
      simd_packed_gemm::Tile t{};
      t.large_l2 = has_large_l2();
      t.m = m;
      t.n = t.ldc = s_.gates * s_.padded;
      t.k = t.lda = inputs;
      t.a = args_.in<float>(In::kX) + row * inputs;
      t.b = w_;
      t.c = scratch_ + at_.projected + i * m * t.n;
      t.init = scratch_ + at_.bias;
      t.init_column = 1;
      t.init_scale = 1;
      t.points = points_;
      simd_packed_gemm::loops(s_.isa).run(t);
    }
  }

  // `odd`: of every second step.
  void step(const float* projected, std::int64_t stride, bool odd) const {
    const std::int64_t size = s_.padded;
    const std::int64_t hidden = s_.size.hidden;
    const std::int64_t joined = joined_gates(s_.gates, In::kR) * size;
    multiply({h(0), size, rows_, r_, hidden, joined, projected, stride, gates(0), odd});
    if (s_.gates == 3) {
      const float* r = r_ + packed_b_floats(simd_gemm::loops(s_.isa), joined, hidden);
      if (resets_after()) {
        multiply({h(0), size, rows_, r, hidden, size, scratch_ + at_.recurrent_bias, 0, gates(0) + 2 * size});
      } else {
        float* reset = scratch_ + at_.reset;
        for (std::int64_t i = 0; i < rows_ && !stops(points_, kFunction * size); ++i)
          loops_.gru_reset(cell_, gates(i), h(i), reset + i * size);
        multiply({reset, size, rows_, r, hidden, size, projected + 2 * size, stride, gates(0) + 2 * size});
      }
    }
    for (std::int64_t i = 0; i < rows_ && !stops(points_, s_.gates * kFunction * size); ++i) {
      switch (s_.gates) {
        case 4: loops_.lstm(cell_, gates(i), c(i), h(i)); break;
        case 3: loops_.gru(cell_, gates(i), resets_after() ? projected + i * stride + 2 * size : nullptr, h(i)); break;
        default: loops_.rnn(cell_, gates(i), h(i)); break;
      }
    }
  }

  bool wanted(std::size_t output) const {
    return output < args_.desc->outputs.size() && args_.desc->outputs[output].dtype != DType::kUndefined;
  }
  std::size_t row_bytes() const { return static_cast<std::size_t>(s_.size.hidden) * sizeof(float); }

  // One row of y, of h or zeros, and what is fused into it.
  void write_row(std::int64_t t, std::int64_t row, const float* from) const {
    float* y = args_.out<float>() + s_.size.y_at(s_.spec, direction_, t, first_ + row);
    from != nullptr ? std::memcpy(y, from, row_bytes()) : std::memset(y, 0, row_bytes());
    if (const Epilogue* e = epilogue_of(*args_.desc)) simd_elementwise::loops(s_.isa).chain(y, s_.size.hidden, e);
  }

  void write_step(std::int64_t t) const {
    for (std::int64_t i = 0; i < rows_ && wanted(0) && !stops(points_, s_.size.hidden); ++i) write_row(t, i, h(i));
  }

  void finish() const {
    for (std::int64_t i = 0; i < rows_; ++i) {
      for (std::int64_t t = steps_; t < s_.size.steps && wanted(0) && !stops(points_, s_.size.hidden + kFarElement); ++t)
        write_row(t, i, nullptr);
      const std::int64_t state = s_.size.state_at(s_.spec, direction_, first_ + i);
      if (wanted(1)) std::memcpy(args_.out<float>(1) + state, h(i), row_bytes());
      if (wanted(2)) std::memcpy(args_.out<float>(2) + state, c(i), row_bytes());
    }
  }

  CancelPoints* const points_;
  const KernelArgs& args_;
  const State& s_;
  int direction_;
  std::int64_t first_, rows_;
  Scratch at_;
  float* scratch_;
  const simd_recurrent::Loops& loops_;
  std::int64_t steps_ = 0;
  const float* w_ = nullptr;
  const float* r_ = nullptr;
  Cell cell_{};
};

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<State>();
  CancelPoints points = points_of(cancel);
  for (std::int64_t tile = begin; tile < end && !cancel.stop(); ++tile) {
    const std::int64_t first = tile % s.row_tiles * s.rows;
    Layer layer(args, s, static_cast<int>(tile / s.row_tiles), first, std::min(s.rows, s.size.batch - first), &points);
    layer.run();
  }
}

constexpr Kernel kKernels[] = {
    {.name = "lstm_gemm",
     .op = "LSTM",
     .rank = 10,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack_all<prepack, 2>,
     .plan = plan,
     .run = run,
     .prepack_parts = kParts},
    {.name = "gru_gemm",
     .op = "GRU",
     .rank = 10,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack_all<prepack, 2>,
     .plan = plan,
     .run = run,
     .prepack_parts = kParts},
    {.name = "rnn_gemm",
     .op = "RNN",
     .rank = 10,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack_all<prepack, 2>,
     .plan = plan,
     .run = run,
     .prepack_parts = kParts},
};

}  // namespace

extern const KernelFamily recurrent_kernels;
const KernelFamily recurrent_kernels = {kKernels};

}  // namespace evn
