// LSTM, GRU and RNN. What the gates are made of is computed once more, of the states that the forward node gives, for all steps at
// once; then one node goes back through the steps (ops/training/recurrent_gradient.h), and the derivatives by the weights and by x
// are products over all steps.
#include "graph/gradient/rules.h"
#include "ops/merge.h"
#include "ops/training/recurrent_gradient.h"

namespace evn {
namespace {

using In = RecurrentInput;
using Out = RecurrentGradientOutput;

ValueId gemm(Tape& t, ValueId a, bool trans_a, ValueId b, bool trans_b, ValueId c = kNoValue) {
  std::vector<ValueId> inputs = {a, b};
  if (c != kNoValue) inputs.push_back(c);
  return t.op("Gemm", std::move(inputs), {{"transA", std::int64_t{trans_a}, {}}, {"transB", std::int64_t{trans_b}, {}}});
}

std::vector<ValueId> split(Tape& t, ValueId v, std::int64_t axis, std::int64_t parts) {
  return t.ops("Split", {v}, {{"axis", axis, {}}, {"num_outputs", parts, {}}}, static_cast<std::size_t>(parts));
}

ValueId concat(Tape& t, std::vector<ValueId> parts, std::int64_t axis) {
  return parts.size() == 1 ? parts[0] : t.op("Concat", std::move(parts), {{"axis", axis, {}}});
}

ValueId column_sums(Tape& t, ValueId v) { return t.op("ReduceSum", {v, t.ints({0})}, {{"keepdims", std::int64_t{0}, {}}}); }

// What one direction gives; kNoValue where it is not wanted.
struct Direction {
  ValueId x, w, r, b, h, c, p;
};

class Layer {
 public:
  Layer(Backward& b, const RecurrentForm& form, const char* op)
      : b_(b),
        t_(b.tape),
        form_(form),
        op_(op),
        spec_(recurrent_spec(b.node, form)),
        x_(t_.op("Flatten", {b.x()}, {{"axis", std::int64_t{2}, {}}})) {
    y_ = b.demand_output(0);
    attributes_ = b.copied({"activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size",
                            "input_forget", "linear_before_reset", "layout"});
  }

  void run() {
    std::vector<Direction> found;
    for (int d = 0; d < spec_.directions; ++d) found.push_back(direction(d));
    const auto give = [&](std::size_t input, ValueId Direction::*member, std::int64_t axis) {
      if (!b_.wants(input)) return;
      std::vector<ValueId> parts;
      for (const Direction& d : found) parts.push_back(t_.op("Unsqueeze", {d.*member, t_.ints({axis})}));
      b_.give(input, concat(t_, std::move(parts), axis));
    };
    const std::int64_t of_states = spec_.batch_first ? 1 : 0;
    give(In::kW, &Direction::w, 0);
    give(In::kR, &Direction::r, 0);
    give(In::kB, &Direction::b, 0);
    give(In::kInitialH, &Direction::h, of_states);
    give(In::kInitialC, &Direction::c, of_states);
    give(In::kPeepholes, &Direction::p, 0);
    if (!b_.wants(In::kX)) return;
    const ValueId dx = found.size() == 1 ? found[0].x : t_.add(found[0].x, found[1].x);
    b_.give(In::kX, t_.reshape_to(b_.x(), dx));
  }

 private:
  Backward& b_;
  Tape& t_;
  const RecurrentForm& form_;
  const char* const op_;
  const RecurrentSpec spec_;
  const ValueId x_;  // a row for each step of each sequence
  ValueId y_;
  Tape::Attributes attributes_;

  // The part of one direction, without the axis of directions.
  ValueId slice(ValueId v, int direction) {
    if (spec_.directions == 1) return t_.op("Squeeze", {v, t_.ints({0})});
    return t_.op("Squeeze", {t_.op("Gather", {v, t_.ints({direction})}), t_.ints({0})});
  }

  Tape::Attributes with_index(Tape::Attributes attributes, int direction) const {
    attributes.push_back({"index", std::int64_t{direction}, {}});
    return attributes;
  }

  ValueId states_before(int direction) {
    Tape::Attributes attributes = b_.copied({"direction", "layout"});
    return t_.own(kRecurrentStates, {y_, b_.x(In::kLengths), b_.x(In::kInitialH)}, with_index(std::move(attributes), direction));
  }

  // The biases of W and of R; none where the node has none.
  std::vector<ValueId> biases(int direction) {
    if (b_.x(In::kB) == kNoValue) return {kNoValue, kNoValue};
    return split(t_, slice(b_.x(In::kB), direction), 0, 2);
  }
  ValueId sum_or_none(ValueId a, ValueId b) { return a == kNoValue ? kNoValue : t_.add(a, b); }
  ValueId dy(std::size_t output) const { return output < b_.dys.size() ? b_.dys[output] : kNoValue; }

  Direction direction(int d) {
    const ValueId before = states_before(d), w = slice(b_.x(In::kW), d), r = slice(b_.x(In::kR), d);
    const std::vector<ValueId> bias = biases(d);
    return form_.gates == 3 ? gru(d, before, w, r, bias) : plain(d, before, w, r, bias);
  }

  std::vector<ValueId> go_back(std::vector<ValueId> inputs, int direction, std::size_t outputs) {
    while (inputs.back() == kNoValue) inputs.pop_back();
    return t_.owns(op_, std::move(inputs), with_index(attributes_, direction), outputs);
  }

  // By x, W and the biases.
  Direction common(ValueId dsums, ValueId w) {
    Direction found = {kNoValue, kNoValue, kNoValue, kNoValue, kNoValue, kNoValue, kNoValue};
    if (b_.wants(In::kX)) found.x = gemm(t_, dsums, false, w, false);
    if (b_.wants(In::kW)) found.w = gemm(t_, dsums, true, x_, false);
    return found;
  }

  // LSTM and RNN.
  Direction plain(int d, ValueId before, ValueId w, ValueId r, const std::vector<ValueId>& bias) {
    const bool is_lstm = form_.gates == 4;
    const ValueId of_x = gemm(t_, x_, false, w, true, sum_or_none(bias[0], bias[1]));
    const ValueId sums = gemm(t_, before, false, r, true, of_x);
    std::vector<ValueId> inputs = {y_, sums, b_.x(In::kR), b_.x(In::kLengths), dy(0), dy(1)};
    if (is_lstm) inputs.insert(inputs.end(), {dy(2), b_.x(In::kInitialC), b_.x(In::kPeepholes)});
    const std::vector<ValueId> made = go_back(std::move(inputs), d, is_lstm ? (b_.wants(In::kPeepholes) ? 4 : 3) : 2);
    const ValueId dsums = made[Out::kDSums];
    Direction found = common(dsums, w);
    if (b_.wants(In::kR)) found.r = gemm(t_, dsums, true, before, false);
    if (b_.wants(In::kB)) {
      const ValueId sum = column_sums(t_, dsums);
      found.b = concat(t_, {sum, sum}, 0);
    }
    found.h = made[Out::kDInitialH];
    if (is_lstm) found.c = made[Out::kDInitialC];
    if (made.size() > Out::kDPeepholes) found.p = made[Out::kDPeepholes];
    return found;
  }

  Direction gru(int d, ValueId before, ValueId w, ValueId r, const std::vector<ValueId>& bias) {
    const bool resets_after = spec_.own;
    const ValueId sums = gemm(t_, x_, false, w, true, resets_after ? bias[0] : sum_or_none(bias[0], bias[1]));
    std::vector<ValueId> parts;
    if (!resets_after) parts = split(t_, r, 0, 3);
    const ValueId recurrent = resets_after ? gemm(t_, before, false, r, true, bias[1])
                                           : gemm(t_, before, false, concat(t_, {parts[0], parts[1]}, 0), true);
    const std::vector<ValueId> made = go_back({y_, sums, b_.x(In::kR), b_.x(In::kLengths), dy(0), dy(1), before, recurrent}, d, 3);
    const ValueId dsums = made[Out::kDSums], last = made[Out::kDRecurrent];
    Direction found = common(dsums, w);
    found.h = made[Out::kDInitialH];
    if (b_.wants(In::kR) && resets_after) found.r = gemm(t_, last, true, before, false);
    if (b_.wants(In::kR) && !resets_after) {
      const std::vector<ValueId> gates = split(t_, gemm(t_, dsums, true, before, false), 0, 3);
      const ValueId candidate = gemm(t_, split(t_, dsums, 1, 3)[2], true, last, false);
      found.r = concat(t_, {gates[0], gates[1], candidate}, 0);
    }
    if (b_.wants(In::kB)) {
      const ValueId sum = column_sums(t_, dsums);
      found.b = concat(t_, {sum, resets_after ? column_sums(t_, last) : sum}, 0);
    }
    return found;
  }
};

void lstm(Backward& b) { Layer(b, kLstmForm, kLstmGradient).run(); }
void gru(Backward& b) { Layer(b, kGruForm, kGruGradient).run(); }
void rnn(Backward& b) { Layer(b, kRnnForm, kRnnGradient).run(); }

constexpr GradientRule kRows[] = {
    {"LSTM", lstm, 3},
    {"GRU", gru, 2},
    {"RNN", rnn, 2},
};

}  // namespace

extern const GradientRules kRecurrentGradients = kRows;

}  // namespace evn
