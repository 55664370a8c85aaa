// LSTM, GRU and RNN of float32, whose products may have operands of bfloat16. Where W and R are no constants, as in training, each
// thread packs them when it begins. The inputs' products with W are made for many steps at once; then, step by step, the products
// with R and the cell. Gates lie `padded` floats apart everywhere, in packed columns too: whole vectors. A tile is one direction of
// some sequences: of one, when they have lengths of their own.
#include <algorithm>
#include <cstring>

#include "backends/cpu/bfloat/bfloat_plan.h"
#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/gemm/gemm_loops.h"
#include "backends/cpu/recurrent/recurrent_loops.h"
#include "backends/cpu/recurrent/recurrent_products.h"
#include "backends/cpu/support.h"
#include "ops/recurrent.h"

namespace evn {
namespace {

using In = RecurrentInput;
using simd_recurrent::Cell;

constexpr std::int64_t kLeastRows = 2;       // of a tile that packs, which share what they read of R
constexpr std::int64_t kProjectedRows = 64;  // inputs whose products with W are made at once: they should stay in L2

const RecurrentForm& form_of(int gates) { return gates == 4 ? kLstmForm : gates == 3 ? kGruForm : kRnnForm; }

Refusal supports_float(const OpDesc& d) {
  for (int i = 0; i < static_cast<int>(d.inputs.size()); ++i) {
    if (i != In::kLengths && d.has_input(i) && d.inputs[i].dtype != DType::kFloat32) return kNeedsFloat32;
  }
  return nullptr;
}

Refusal supports(const OpDesc& d) {
  if (const Refusal refusal = supports_float(d)) return refusal;
  if (d.constant(In::kW) == nullptr || d.constant(In::kR) == nullptr) return "W or R that is not constant";
  return nullptr;
}

Refusal supports_bfloat(const OpDesc& d) {
  if (d.precision != Precision::kBfloat16) return "bfloat16 is not asked for";
  if (const Refusal refusal = refuses_half(d)) return refusal;
  if (const Refusal refusal = supports(d)) return refusal;
  return std::max(d.inputs[In::kW].shape[2], d.inputs[In::kR].shape[2]) > kMostHalfDepth ? kTooDeep : nullptr;
}

// ----------------------------------------------------------------------------------------------------- packing --

template <bool kBfloat>
std::size_t prepack_bytes(const OpDesc& d, int input) {
  if (input != In::kW && input != In::kR) return 0;
  const RecurrentMatrix b = recurrent_matrix(d, input, kBfloat);
  return static_cast<std::size_t>(checked_mul(b.bytes(), d.inputs[static_cast<std::size_t>(input)].shape[0]));
}

template <bool kBfloat>
std::uint64_t prepack_variant(const OpDesc&, int) {
  return static_cast<std::uint64_t>(kBfloat ? bfloat16_isa() : cpu_isa()) << 1 | (kBfloat ? 1 : 0);
}

// Parts of gates whose padding would share a vector with the next gate's are whole gates.
std::int64_t part_step(const OpDesc& d, int) {
  constexpr std::int64_t kMostLanes = 16;  // of any cluster
  const std::int64_t hidden = d.inputs[In::kR].shape[2];
  return hidden % kMostLanes == 0 ? kMostLanes : hidden;
}

template <bool kBfloat>
void prepack(const OpDesc& d, int input, const void* rows, std::int64_t begin, std::int64_t end, void* packed) {
  recurrent_matrix(d, input, kBfloat).pack(static_cast<const float*>(rows), begin, end, packed);
}

// -------------------------------------------------------------------------------------------------------- plan --

struct State {
  Isa isa;
  RecurrentSpec spec;
  RecurrentSizes size;
  RecurrentMatrix w, r;
  std::int32_t gates;
  std::int64_t padded;
  std::int64_t rows, row_tiles;  // sequences of a tile; tiles of one direction
  std::int64_t chunk;            // steps whose products with W are made at once
  bool packs;                    // W and R, when it runs
};

constexpr std::int64_t kFloat = sizeof(float);

// A thread's block, in floats from its beginning.
struct Scratch {
  std::int64_t products, bias, recurrent_bias, peepholes, h, c, reset, gates, projected;
  std::int64_t w, r;  // of one direction, where they are packed when it runs
  std::int64_t end;
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
  const std::int64_t projected_rows = checked_mul(s.rows, s.chunk);
  at.products = take(ceil_div(std::max(product_bytes(s.w, projected_rows), product_bytes(s.r, s.rows)), kFloat));
  at.bias = take(checked_mul<std::int64_t>(s.gates, size));
  at.recurrent_bias = take(size);
  at.peepholes = take(checked_mul<std::int64_t>(3, size));
  at.h = take(checked_mul(s.rows, size));
  at.c = take(checked_mul(s.rows, size));
  at.reset = take(checked_mul(s.rows, size));
  at.gates = take(checked_mul(s.rows, s.gates * size));
  at.projected = take(checked_mul(projected_rows, s.gates * size));
  at.w = take(s.packs ? ceil_div(s.w.bytes(), kFloat) : 0);
  at.r = take(s.packs ? ceil_div(s.r.bytes(), kFloat) : 0);
  at.end = next;
  return at;
}

template <bool kBfloat, bool kPacks = false>
void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<State>();
  s = State{};
  s.isa = cpu_isa();
  s.packs = kPacks;
  s.w = recurrent_matrix(d, In::kW, kBfloat);
  s.r = recurrent_matrix(d, In::kR, kBfloat);
  s.gates = s.w.gates;
  s.padded = s.w.padded;
  s.spec = recurrent_spec(*d.node, form_of(s.gates));
  s.size = recurrent_sizes(s.spec, d.inputs[In::kX].shape, d.inputs[In::kR].shape);
  const simd_gemm::Loops& loops = simd_gemm::loops(s.isa);
  const double sequence = static_cast<double>(s.size.steps) * static_cast<double>(s.size.inputs + s.size.hidden) * s.gates *
                          static_cast<double>(s.size.hidden);
  // Rows of one tile share what they read of R: fewer than a micro-tile has would only read it more often.
  const std::int64_t least = std::max<std::int64_t>(loops.mr, ceil_div(s.size.batch * s.spec.directions, kManyTiles));
  s.rows = std::min(s.size.batch, std::max(least, units_per_tile(s.size.batch, sequence)));
  // Steps back through time are cut like this too; each thread packs for itself.
  if (kPacks) s.rows = std::min(s.size.batch, std::max(kLeastRows, ceil_div(s.size.batch, std::max<std::int64_t>(d.threads, 1))));
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
    w_ = s.packs ? packed(at_.w) : args.pack<char>(In::kW) + direction * s.w.bytes();
    r_ = s.packs ? packed(at_.r) : args.pack<char>(In::kR) + direction * s.r.bytes();
    const Activation* f = s.spec.activations[direction];
    cell_ = {{f[0], f[1], f[2], s.spec.clip > 0 ? s.spec.clip : __builtin_inff(), s.spec.own}, s.padded, nullptr};
  }

  // Packs the direction's W and R.
  void pack() const {
    pack_input(In::kW, s_.w, packed(at_.w));
    pack_input(In::kR, s_.r, packed(at_.r));
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
  char* packed(std::int64_t at) const { return reinterpret_cast<char*>(scratch_ + at); }

  void pack_input(int input, const RecurrentMatrix& b, char* to) const {
    const std::int64_t rows = s_.gates * s_.size.hidden, step = part_step(*args_.desc, input);
    const float* const from = args_.in<float>(input) + direction_ * rows * b.depth;
    for (std::int64_t i = 0; i < rows && !stops(points_, 2 * step * b.depth); i += step) {
      b.pack(from + i * b.depth, i, std::min(i + step, rows), to);
    }
  }

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

  // W x + bias of steps [begin, begin + count), rows in the order of x.
  void project(std::int64_t begin, std::int64_t count) const {
    const bool whole = !s_.spec.batch_first && rows_ == s_.size.batch;
    const std::int64_t runs = whole ? 1 : s_.spec.batch_first ? rows_ : count;
    const std::int64_t m = whole ? count * rows_ : s_.spec.batch_first ? count : rows_;
    const std::int64_t inputs = s_.size.inputs;
    for (std::int64_t i = 0; i < runs; ++i) {
      const std::int64_t row =
          s_.spec.batch_first ? s_.size.x_row(s_.spec, begin, first_ + i) : s_.size.x_row(s_.spec, begin + i, first_);
      const std::int64_t columns = s_.gates * s_.padded;
      multiply(s_.w, w_,
               {.a = args_.in<float>(In::kX) + row * inputs,
                .lda = inputs,
                .m = m,
                .column = 0,
                .n = columns,
                .init = scratch_ + at_.bias,
                .init_row = 0,
                .to = scratch_ + at_.projected + i * m * columns,
                .ldc = columns},
               scratch_ + at_.products, points_);
    }
  }

  // The product of a row for each sequence with R; init rows `init_row` apart.
  void multiply_r(const float* a, std::int64_t column, std::int64_t n, const float* init, std::int64_t init_row,
                  bool backwards = false) const {
    multiply(s_.r, r_, {a, s_.padded, rows_, column, n, init, init_row, gates(0) + column, s_.gates * s_.padded, backwards},
             scratch_ + at_.products, points_);
  }

  // `odd`: of every second step.
  void step(const float* projected, std::int64_t stride, bool odd) const {
    const std::int64_t size = s_.padded;
    const std::int64_t joined = joined_gates(s_.gates, false) * size;
    multiply_r(h(0), 0, joined, projected, stride, odd);
    if (s_.gates == 3) {
      if (resets_after()) {
        multiply_r(h(0), joined, size, scratch_ + at_.recurrent_bias, 0);
      } else {
        float* reset = scratch_ + at_.reset;
        for (std::int64_t i = 0; i < rows_ && !stops(points_, kFunction * size); ++i)
          loops_.gru_reset(cell_, gates(i), h(i), reset + i * size);
        multiply_r(reset, joined, size, projected + joined, stride);
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
  const char* w_ = nullptr;
  const char* r_ = nullptr;
  Cell cell_{};
};

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<State>();
  CancelPoints points = points_of(cancel);
  int packed = -1;  // direction
  for (std::int64_t tile = begin; tile < end && !cancel.stop() && !points.stopped; ++tile) {
    const std::int64_t first = tile % s.row_tiles * s.rows;
    const int direction = static_cast<int>(tile / s.row_tiles);
    Layer layer(args, s, direction, first, std::min(s.rows, s.size.batch - first), &points);
    if (s.packs && direction != packed) layer.pack();
    packed = direction;
    layer.run();
  }
}

template <bool kBfloat>
constexpr Kernel kernel(const char* name, const char* op) {
  return {.name = name,
          .op = op,
          .rank = kBfloat ? 20 : 10,
          .supports = kBfloat ? supports_bfloat : supports,
          .prepack_bytes = prepack_bytes<kBfloat>,
          .prepack_variant = prepack_variant<kBfloat>,
          .prepack = prepack_all<prepack<kBfloat>, 2>,
          .plan = plan<kBfloat>,
          .run = run,
          .operands = kBfloat ? Precision::kBfloat16 : Precision::kFloat32,
          .prepack_parts = {part_step, prepack<kBfloat>, 2}};
}
constexpr Kernel packing_kernel(const char* name, const char* op) {
  return {.name = name, .op = op, .rank = 9, .supports = supports_float, .plan = plan<false, true>, .run = run};
}
constexpr Kernel kKernels[] = {
    packing_kernel("lstm_dynamic", "LSTM"), packing_kernel("gru_dynamic", "GRU"), packing_kernel("rnn_dynamic", "RNN"),
    kernel<false>("lstm_gemm", "LSTM"),     kernel<false>("gru_gemm", "GRU"),     kernel<false>("rnn_gemm", "RNN"),
    kernel<true>("lstm_bf16", "LSTM"),      kernel<true>("gru_bf16", "GRU"),      kernel<true>("rnn_bf16", "RNN"),
};

}  // namespace

extern const KernelFamily recurrent_kernels;
const KernelFamily recurrent_kernels = {kKernels};

}  // namespace evn
