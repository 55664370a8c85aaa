// DynamicQuantizeLSTM of com.microsoft: W and R are packed as qgemm/qgemm_loops.h has them. x is quantized as a whole, its products
// with W are made for many steps at once; in each step h of all sequences that go on is quantized and multiplied by R. A tile is a
// direction: its sequences share a scale in each step. Exact, as the reference.
#include <algorithm>
#include <cstring>

#include "backends/cpu/elementwise/bytes_loops.h"
#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/qgemm/qgemm_plan.h"
#include "backends/cpu/recurrent/recurrent_loops.h"
#include "backends/cpu/support.h"
#include "ops/infra/dynamic.h"
#include "ops/recurrent.h"

namespace evn {
namespace {

using In = RecurrentInput;
enum : int { kWScale = In::kPeepholes + 1, kWZero, kRScale, kRZero };

constexpr int kGates = 4;
constexpr std::int64_t kProjectedRows = 64;  // inputs whose products with W are made at once
constexpr std::int64_t kMostLanes = 16;      // of any cluster

Refusal supports(const OpDesc& d) {
  if (d.constant(In::kW) == nullptr || d.constant(In::kR) == nullptr) return "W or R that is not constant";
  return d.node->epilogue.empty() ? nullptr : "fused steps";
}

// Gates begin at whole vectors: all are one matrix, or each is one where the hidden size is none of these.
struct Columns {
  std::int64_t hidden, padded;
  int parts;             // matrices
  std::int64_t columns;  // of each
};

Columns columns_of(std::int64_t hidden) {
  const bool whole = hidden % kMostLanes == 0;
  return {hidden, ceil_div(hidden, kMostLanes) * kMostLanes, whole ? 1 : kGates,
          whole ? checked_mul<std::int64_t>(kGates, hidden) : hidden};
}

std::int64_t hidden_of(const OpDesc& d) { return d.inputs[In::kR].shape[1]; }

std::int64_t part_bytes(Isa isa, const Columns& c, std::int64_t depth) {
  return qgemm_bytes(simd_qgemm::loops(isa), {c.columns, 1, depth});
}

std::size_t prepack_bytes(const OpDesc& d, int input) {
  if (input != In::kW && input != In::kR) return 0;
  const Shape& w = d.inputs[static_cast<std::size_t>(input)].shape;
  const Columns c = columns_of(hidden_of(d));
  return static_cast<std::size_t>(checked_mul(checked_mul(part_bytes(integer_isa(), c, w[1]), w[0]), std::int64_t{c.parts}));
}

std::uint64_t prepack_variant(const OpDesc&, int) { return static_cast<std::uint64_t>(integer_isa()); }

void prepack(const OpDesc& d, int input, void* packed) {
  const TensorDesc& desc = d.inputs[static_cast<std::size_t>(input)];
  const Columns c = columns_of(hidden_of(d));
  const std::int64_t depth = desc.shape[1], row = desc.shape[2], bytes = part_bytes(integer_isa(), c, depth);
  auto* to = static_cast<std::uint8_t*>(packed);
  for (std::int64_t direction = 0; direction < desc.shape[0]; ++direction) {
    const std::uint8_t* const from = d.constant(input)->as<std::uint8_t>() + direction * depth * row;
    for (int part = 0; part < c.parts; ++part, to += bytes) {
      QgemmSource s{from + part * c.columns, 1, depth, row};
      s.flip = is_uint8(desc);
      pack_qgemm(simd_qgemm::loops(integer_isa()), s, c.columns, to);
    }
  }
}

// -------------------------------------------------------------------------------------------------------- plan --

struct State {
  Isa isa;
  RecurrentSpec spec;
  RecurrentSizes size;
  Columns columns;
  std::int64_t chunk;  // steps whose products with W are made at once
};

// A direction's block, in bytes from its beginning.
struct Scratch {
  std::int64_t columns, row_sums, rows, bias, peepholes, h, c, gates, projected, active, end;
  std::int64_t x_row, h_row;  // from one row of bytes to the next
};

Scratch scratch_of(const State& s) {
  const simd_qgemm::Loops& loops = simd_qgemm::loops(s.isa);
  const std::int64_t size = s.columns.padded, batch = s.size.batch, rows = checked_mul(s.chunk, batch);
  Scratch at;
  std::int64_t next = 0;
  const auto take = [&](std::int64_t bytes) {
    const std::int64_t begin = next;
    next = checked_add(next, round_up(bytes, 64));
    return begin;
  };
  const auto floats = [&](std::int64_t count, std::int64_t each) {
    return take(checked_mul<std::int64_t>(checked_mul(count, each), sizeof(float)));
  };
  at.x_row = qgemm_padded(loops, s.size.inputs);
  at.h_row = qgemm_padded(loops, s.size.hidden);
  at.columns = take(static_cast<std::int64_t>(qgemm_columns_bytes(loops, s.columns.columns)));
  at.row_sums = floats(rows, 1);
  at.rows = take(checked_add(std::max(checked_mul(rows, at.x_row), checked_mul(batch, at.h_row)), simd_qgemm::kOverread));
  at.bias = floats(kGates, size);
  at.peepholes = floats(3, size);
  at.h = floats(batch, size);
  at.c = floats(batch, size);
  at.gates = floats(batch, kGates * size);
  at.projected = floats(rows, kGates * size);
  at.active = take(checked_mul<std::int64_t>(batch, sizeof(std::int64_t)));
  at.end = next;
  return at;
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<State>();
  s = State{};
  s.isa = integer_isa();
  s.spec = recurrent_spec(*d.node, kLstmForm);
  const Shape& r = d.inputs[In::kR].shape;
  s.size = recurrent_sizes(s.spec, d.inputs[In::kX].shape, {r[0], r[2], r[1]});
  s.columns = columns_of(s.size.hidden);
  s.chunk = std::clamp<std::int64_t>(kProjectedRows / std::max<std::int64_t>(s.size.batch, 1), 1,
                                     std::max<std::int64_t>(s.size.steps, 1));
  p->tiles = s.spec.directions;
  p->thread_scratch_bytes = static_cast<std::size_t>(scratch_of(s).end);
  p->flops = 2.0 * static_cast<double>(s.size.steps) * static_cast<double>(s.size.inputs + s.size.hidden) * kGates *
             static_cast<double>(s.size.hidden) * static_cast<double>(s.size.batch) * s.spec.directions;
  p->bytes = bytes_of(d);
}

// --------------------------------------------------------------------------------------------------------- run --

class Direction {
 public:
  Direction(const KernelArgs& args, const State& s, int direction, CancelPoints* points)
      : points_(points),
        args_(args),
        s_(s),
        direction_(direction),
        at_(scratch_of(s)),
        memory_(static_cast<std::uint8_t*>(args.thread_scratch)),
        lengths_(args.desc->has_input(In::kLengths) ? args.in<std::int32_t>(In::kLengths) : nullptr) {
    const Activation* f = s.spec.activations[direction];
    cell_ = {{f[0], f[1], f[2], s.spec.clip > 0 ? s.spec.clip : __builtin_inff(), s.spec.own}, s.columns.padded, nullptr};
  }

  void run() {
    load();
    if (!fill_by_parts(points_, memory_ + at_.rows, at_.bias - at_.rows, std::uint8_t{0}))
      return;  // rows may read beside themselves
    std::int64_t longest = 0;
    for (std::int64_t n = 0; n < s_.size.batch; ++n) longest = std::max(longest, steps(n));
    float low = 0, high = 0;
    const bool goes_on = by_parts(
        points_, longest * s_.size.batch * s_.size.inputs, 64, 1,
        [&](std::int64_t begin, std::int64_t end) { bytes().range(args_.in<float>(In::kX) + begin, end - begin, &low, &high); });
    if (!goes_on) return;
    const DynamicRange x_range = dynamic_range_of(low, high);
    for (std::int64_t done = 0; done < longest; done += s_.chunk) {
      const std::int64_t count = std::min(s_.chunk, longest - done);
      project(x_range, done, count);
      for (std::int64_t i = 0; i < count; ++i) {
        if (has_stopped(points_)) return;
        step(done + i, projected(i, 0));
      }
    }
    finish();
  }

 private:
  CancelPoints* const points_;
  const KernelArgs& args_;
  const State& s_;
  int direction_;
  Scratch at_;
  std::uint8_t* memory_;
  const std::int32_t* lengths_;
  simd_recurrent::Cell cell_{};
  const simd_elementwise::Loops& floats_ = simd_elementwise::loops(cluster_of(s_.isa));

  const simd_bytes::Loops& bytes() const { return simd_bytes::loops(cluster_of(s_.isa)); }
  std::int64_t steps(std::int64_t n) const { return sequence_steps(lengths_, n, s_.size.steps); }
  float* floats(std::int64_t at) const { return reinterpret_cast<float*>(memory_ + at); }
  float* h(std::int64_t n) const { return floats(at_.h) + n * s_.columns.padded; }
  float* c(std::int64_t n) const { return floats(at_.c) + n * s_.columns.padded; }
  float* gates(std::int64_t row) const { return floats(at_.gates) + row * kGates * s_.columns.padded; }
  float* projected(std::int64_t i, std::int64_t n) const {
    return floats(at_.projected) + (i * s_.size.batch + n) * kGates * s_.columns.padded;
  }

  // What the model gives, with gates `padded` apart.
  void add_padded(int input, std::int64_t from, std::int64_t count, float* to) const {
    if (!args_.desc->has_input(input)) return;
    const float* x = args_.in<float>(input) + from;
    for (std::int64_t i = 0; i < count; ++i, to += s_.columns.padded) {
      for (std::int64_t j = 0; j < s_.size.hidden; ++j) to[j] += *x++;
    }
  }

  void load() {
    std::memset(memory_ + at_.bias, 0, static_cast<std::size_t>(at_.active - at_.bias));
    const std::int64_t hidden = s_.size.hidden, biases = direction_ * 2 * kGates * hidden;
    add_padded(In::kB, biases, kGates, floats(at_.bias));
    add_padded(In::kB, biases + kGates * hidden, kGates, floats(at_.bias));
    add_padded(In::kPeepholes, direction_ * 3 * hidden, 3, floats(at_.peepholes));
    if (args_.desc->has_input(In::kPeepholes)) cell_.peepholes = floats(at_.peepholes);
    for (std::int64_t n = 0; n < s_.size.batch && !stops(points_, 2 * s_.columns.padded); ++n) {
      const std::int64_t state = s_.size.state_at(s_.spec, direction_, n);
      add_padded(In::kInitialH, state, 1, h(n));
      add_padded(In::kInitialC, state, 1, c(n));
    }
  }

  void quantize(const DynamicRange& range, const float* x, std::int64_t n, std::uint8_t* to) const {
    if (range.scale == 0) {
      std::fill_n(to, n, static_cast<std::uint8_t>(range.zero));
    } else {
      bytes().quantize(x, n, range.scale, static_cast<std::int32_t>(range.zero), false, to);
    }
  }

  // to = bias + products of `rows` rows of bytes with W or R. bias: [4][padded]; null: none.
  void multiply(int input, const DynamicRange& range, std::int64_t rows, std::int64_t row_step, const float* bias,
                float* to) const {
    const simd_qgemm::Loops& loops = simd_qgemm::loops(s_.isa);
    const OpDesc& d = *args_.desc;
    const int scale = input == In::kW ? kWScale : kRScale, zero = scale + 1;
    const std::int64_t depth = d.inputs[static_cast<std::size_t>(input)].shape[1], columns = s_.columns.columns, start = 0;
    const auto numbers_of = [&](int i) { return d.inputs[static_cast<std::size_t>(i)].shape.elements() / s_.spec.directions; };
    for (int part = 0; part < s_.columns.parts; ++part) {
      QgemmParameters numbers;
      numbers.a_scale = static_cast<double>(range.scale);
      numbers.a_zero = static_cast<std::int32_t>(range.zero);
      numbers.flip_b = is_uint8(d.inputs[static_cast<std::size_t>(input)]);
      numbers.b_scale_step = numbers_of(scale) == 1 ? 0 : 1;
      numbers.b_zero_step = numbers_of(zero) == 1 ? 0 : 1;
      numbers.b_scale = args_.in<float>(scale) + direction_ * numbers_of(scale) + part * columns * numbers.b_scale_step;
      numbers.b_zero = args_.in<std::uint8_t>(zero) + direction_ * numbers_of(zero) + part * columns * numbers.b_zero_step;
      simd_qgemm::Tile t{};
      t.n = columns;
      const std::int64_t packed = (direction_ * s_.columns.parts + part) * part_bytes(s_.isa, s_.columns, depth);
      t.points = points_;
      if (!set_columns(loops, numbers, {columns, 1, depth}, args_.pack<std::uint8_t>(input) + packed, 0, memory_ + at_.columns, &t))
        return;
      t.bias = bias == nullptr ? nullptr : bias + part * s_.columns.padded;
      t.a = memory_ + at_.rows;
      t.lda = row_step;
      t.lines = 1;
      t.width = rows;
      t.offsets = &start;
      t.row_sums = reinterpret_cast<std::int32_t*>(memory_ + at_.row_sums);
      t.output = simd_qgemm::Output::kFloat;
      t.c = to + part * s_.columns.padded;
      t.ldc = kGates * s_.columns.padded;
      loops.run(t);
    }
  }

  // Where step `s` of sequence n stands in x and y.
  std::int64_t time(std::int64_t s, std::int64_t n) const { return s_.spec.backwards(direction_) ? steps(n) - 1 - s : s; }

  void project(const DynamicRange& range, std::int64_t begin, std::int64_t count) const {
    const std::int64_t inputs = s_.size.inputs, batch = s_.size.batch;
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t n = 0; n < batch; ++n) {
        if (stops(points_, 2 * inputs)) return;
        const std::int64_t t = std::max<std::int64_t>(time(begin + i, n), 0);  // of sequences that have ended, whatever
        quantize(range, args_.in<float>(In::kX) + s_.size.x_row(s_.spec, t, n) * inputs, inputs,
                 memory_ + at_.rows + (i * batch + n) * at_.x_row);
      }
    }
    multiply(In::kW, range, count * batch, at_.x_row, floats(at_.bias), projected(0, 0));
  }

  void step(std::int64_t s, const float* projected) const {
    const std::int64_t hidden = s_.size.hidden, all = kGates * s_.columns.padded;
    auto* const active = reinterpret_cast<std::int64_t*>(memory_ + at_.active);
    std::int64_t count = 0;
    float low = 0, high = 0;
    for (std::int64_t n = 0; n < s_.size.batch; ++n) {
      if (stops(points_, hidden)) return;
      if (s >= steps(n)) continue;
      active[count++] = n;
      bytes().range(h(n), hidden, &low, &high);
    }
    const DynamicRange range = dynamic_range_of(low, high);
    for (std::int64_t i = 0; i < count && !stops(points_, 2 * hidden); ++i)
      quantize(range, h(active[i]), hidden, memory_ + at_.rows + i * at_.h_row);
    const bool alone = count == 1;
    multiply(In::kR, range, count, at_.h_row, alone ? projected + active[0] * all : nullptr, gates(0));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t n = active[i];
      if (stops(points_, kGates * kFunction * s_.columns.padded)) return;
      const float* const added = projected + n * all;
      if (!alone)
        floats_.binary(simd_elementwise::Binary::kAdd, gates(i), 1, added, 1, gates(i), all, {1, 0, 0, 0}, false, nullptr);
      simd_recurrent::loops(cluster_of(s_.isa)).lstm_exact(cell_, gates(i), c(n), h(n));
      if (wanted(0)) std::memcpy(args_.out<float>() + s_.size.y_at(s_.spec, direction_, time(s, n), n), h(n), row_bytes());
    }
  }

  bool wanted(std::size_t output) const {
    return output < args_.desc->outputs.size() && args_.desc->outputs[output].dtype != DType::kUndefined;
  }
  std::size_t row_bytes() const { return static_cast<std::size_t>(s_.size.hidden) * sizeof(float); }

  void finish() const {
    for (std::int64_t n = 0; n < s_.size.batch; ++n) {
      for (std::int64_t t = steps(n); t < s_.size.steps && wanted(0) && !stops(points_, s_.size.hidden + kFarElement); ++t) {
        std::memset(args_.out<float>() + s_.size.y_at(s_.spec, direction_, t, n), 0, row_bytes());
      }
      const std::int64_t state = s_.size.state_at(s_.spec, direction_, n);
      if (wanted(1)) std::memcpy(args_.out<float>(1) + state, h(n), row_bytes());
      if (wanted(2)) std::memcpy(args_.out<float>(2) + state, c(n), row_bytes());
    }
  }
};

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  CancelPoints points = points_of(cancel);
  for (std::int64_t d = begin; d < end && !cancel.stop(); ++d)
    Direction(args, args.plan->state<State>(), static_cast<int>(d), &points).run();
}

constexpr Kernel kKernels[] = {
    {.name = "dynamic_quantize_lstm_packed",
     .op = "DynamicQuantizeLSTM",
     .domain = "com.microsoft",
     .rank = 10,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack,
     .plan = plan,
     .run = run},
};

}  // namespace

extern const KernelFamily quantized_recurrent_kernels;
const KernelFamily quantized_recurrent_kernels = {kKernels};

}  // namespace evn
