// LSTM, GRU and RNN. Weights are small, so that errors do not grow from step to step.
#include <cmath>

#include "tests/conformance/case.h"

namespace evn::conformance {
namespace {

struct Sizes {
  std::int64_t steps, batch, inputs, hidden;
  std::int64_t directions = 1;
  bool batch_first = false;
};

const char* const kOps[] = {"LSTM", "GRU", "RNN"};

std::int64_t gates_of(const std::string& op) { return op == "LSTM" ? 4 : op == "GRU" ? 3 : 1; }

// x, W, R, and B where wanted.
Case layer(const std::string& op, int opset, const Sizes& s, bool bias = true, DType dtype = kF32) {
  const std::int64_t rows = gates_of(op) * s.hidden;
  const double scale = 1.5 / std::sqrt(static_cast<double>(s.hidden + s.inputs));
  Case c(op, opset);
  c.in(dtype, s.batch_first ? Shape{s.batch, s.steps, s.inputs} : Shape{s.steps, s.batch, s.inputs});
  c.constant(dtype, {s.directions, rows, s.inputs}, -scale, scale).constant(dtype, {s.directions, rows, s.hidden}, -scale, scale);
  if (bias) c.in(dtype, {s.directions, 2 * rows}, -0.5, 0.5);
  c.integer("hidden_size", s.hidden).outputs(op == "LSTM" ? 3 : 2);
  if (s.batch_first) c.integer("layout", 1);
  if (s.directions == 2) c.word("direction", "bidirectional");
  return c;
}

// The lengths and the initial states.
Case with_states(Case c, const std::string& op, const Sizes& s, const Ints& lengths = {}) {
  lengths.empty() ? c.absent() : c.list(lengths, kI32);
  const Shape state = s.batch_first ? Shape{s.batch, s.directions, s.hidden} : Shape{s.directions, s.batch, s.hidden};
  c.x(state, -1, 1);
  return op == "LSTM" ? c.x(state, -1, 1) : c;
}

Case with_names(Case c, const std::string& op, const char* f, const char* g, const char* h) {
  const std::vector<std::string> names = {f, g, h};
  const std::size_t count = op == "LSTM" ? 3 : op == "GRU" ? 2 : 1;
  return c.attr("activations", std::vector<std::string>(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count)));
}

void add_sizes(Cases* all, const std::string& op) {
  // Hidden sizes around the widths of vectors and panels; more steps and more rows than are projected or run at once.
  for (const Sizes& s : {Sizes{1, 1, 3, 5}, Sizes{4, 1, 7, 16}, Sizes{3, 2, 20, 33}, Sizes{70, 1, 9, 48, 2}, Sizes{3, 70, 5, 17, 2},
                         Sizes{5, 3, 6, 130, 2}, Sizes{6, 1, 4, 30}, Sizes{6, 1, 4, 60, 2}}) {
    all->push_back(layer(op, 14, s));
    all->push_back(with_states(layer(op, 14, s), op, s));
  }
  all->push_back(layer(op, 7, {3, 2, 6, 9}, false));
  all->push_back(layer(op, 22, {3, 2, 6, 9}).word("direction", "reverse"));
  all->push_back(layer(op, 14, {3, 2, 6, 9}, true, kF64));
  // Only all steps.
  all->push_back(layer(op, 14, {3, 2, 6, 9}).outputs(1));
}

void add_layouts(Cases* all, const std::string& op) {
  const std::uint32_t batched = op == "LSTM" ? 0x61 : 0x21;
  for (const std::int64_t directions : {1, 2}) {
    const Sizes first{5, 4, 6, 19, directions, true};
    const Sizes many{3, 40, 6, 19, directions, true};
    all->push_back(with_states(layer(op, 14, first), op, first).batch(batched));
    all->push_back(with_states(layer(op, 14, many), op, many).batch(batched));
    all->push_back(with_states(layer(op, 14, first), op, first, {5, 1, 0, 3}));
    const Sizes last{6, 3, 6, 19, directions};
    all->push_back(with_states(layer(op, 14, last), op, last, {2, 6, 4}));
  }
}

void add_attributes(Cases* all, const std::string& op) {
  const Sizes s{4, 2, 6, 19};
  const auto base = [&] { return with_states(layer(op, 14, s), op, s); };
  all->push_back(base().real("clip", 0.3f));
  for (const char* name :
       {"Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"}) {
    const bool first = std::string(name) == "HardSigmoid" || std::string(name) == "Softsign";
    Case c = first || op == "RNN" ? with_names(base(), op, name, "Tanh", "Tanh") : with_names(base(), op, "Sigmoid", name, name);
    all->push_back(c.attr("activation_alpha", Floats{0.3f, 0.25f}).attr("activation_beta", Floats{0.4f, 0.5f}));
  }
  if (op == "GRU") {
    all->push_back(base().integer("linear_before_reset", 1));
    const Sizes both{5, 3, 6, 50, 2};
    all->push_back(with_states(layer(op, 14, both), op, both).integer("linear_before_reset", 1));
    all->push_back(layer(op, 14, both, false).integer("linear_before_reset", 1));
  }
  if (op != "LSTM") return;
  all->push_back(base().w({1, 3 * s.hidden}, -0.5, 0.5));
  all->push_back(base().w({1, 3 * s.hidden}, -0.5, 0.5).integer("input_forget", 1));
  const Sizes both{4, 3, 6, 21, 2};
  all->push_back(with_states(layer(op, 7, both), op, both).w({2, 3 * both.hidden}, -0.5, 0.5));
}

// Weights that are computed, as in training.
void add_dynamic(Cases* all, const std::string& op) {
  for (const Sizes& s : {Sizes{2, 2, 3, 4}, Sizes{5, 7, 9, 33, 2}, Sizes{4, 3, 5, 16, 2, true}}) {
    Case c = layer(op, 14, s);
    c.operands[1].constant = c.operands[2].constant = false;
    all->push_back(c);
    all->push_back(with_states(c, op, s, s.batch_first ? Ints{4, 1, 0} : Ints{}));
  }
}

// What graph/gradient puts in (ops/training/recurrent_gradient.h).
Case gradient(const std::string& op, const Sizes& s, bool resets_after = false, DType d = kF32, const Ints& lengths = {}) {
  const std::int64_t rows = s.steps * s.batch, gates = gates_of(op) * s.hidden;
  const Shape y = s.batch_first ? Shape{s.batch, s.steps, s.directions, s.hidden} : Shape{s.steps, s.directions, s.batch, s.hidden};
  const Shape state = s.batch_first ? Shape{s.batch, s.directions, s.hidden} : Shape{s.directions, s.batch, s.hidden};
  Case c = Case("evener::" + op + "Gradient", 1).in(d, y).in(d, {rows, gates}).in(d, {s.directions, gates, s.hidden}, -0.4, 0.4);
  lengths.empty() ? c.absent() : c.list(lengths, kI32);
  c.in(d, y).in(d, state);
  if (op == "LSTM") c.in(d, state).in(d, state).in(d, {s.directions, 3 * s.hidden});
  if (op == "GRU") c.in(d, {rows, s.hidden}).in(d, {rows, (resets_after ? 3 : 2) * s.hidden});
  if (resets_after) c.integer("linear_before_reset", 1);
  if (s.batch_first) c.integer("layout", 1);
  if (s.directions == 2) c.word("direction", "bidirectional").integer("index", 1);
  return c.outputs(op == "LSTM" ? 4 : op == "GRU" ? 3 : 2);
}

void add_gradients(Cases* all, const std::string& op) {
  for (const bool resets_after : {false, true}) {
    if (resets_after && op != "GRU") continue;
    all->push_back(gradient(op, {3, 2, 1, 9}, resets_after, kF64));
    all->push_back(gradient(op, {3, 2, 1, 9}, resets_after));
    all->push_back(gradient(op, {5, 7, 1, 33}, resets_after, kF32, {5, 1, 0, 2, 3, 4, 5}));
    all->push_back(gradient(op, {4, 3, 1, 16, 2, true}, resets_after, kF32, {4, 2, 3}));
    all->push_back(gradient(op, {4, 3, 1, 16, 2}, resets_after));
    all->push_back(gradient(op, {4, 6, 1, 21}, resets_after, kF32, {0, 2, 4, 3, 1, 4}).word("direction", "reverse"));
    all->push_back(gradient(op, {3, 2, 1, 130}, resets_after).real("clip", 0.3f));
  }
  for (const char* name :
       {"Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"}) {
    const bool first = std::string(name) == "HardSigmoid" || std::string(name) == "Softsign";
    const Case c = gradient(op, {3, 2, 1, 19});
    all->push_back((first || op == "RNN" ? with_names(c, op, name, "Tanh", "Tanh") : with_names(c, op, "Sigmoid", name, name))
                       .attr("activation_alpha", Floats{0.3f, 0.25f, 0.2f})
                       .attr("activation_beta", Floats{0.4f, 0.5f, 0.6f}));
  }
  if (op != "LSTM") return;
  all->push_back(gradient(op, {3, 2, 1, 19}).integer("input_forget", 1));
  all->push_back(gradient(op, {3, 2, 1, 19}, false, kF32, {3, 1}).outputs(3));
}

void add_states_before(Cases* all) {
  for (const DType d : {kF32, kF64}) {
    all->push_back(Case("evener::RecurrentStates", 1).in(d, {4, 1, 3, 5}).list({4, 0, 2}, kI32).in(d, {1, 3, 5}));
    all->push_back(Case("evener::RecurrentStates", 1).in(d, {4, 1, 3, 5}).word("direction", "reverse"));
    all->push_back(Case("evener::RecurrentStates", 1)
                       .in(d, {3, 4, 2, 5})
                       .absent()
                       .in(d, {3, 2, 5})
                       .word("direction", "bidirectional")
                       .integer("layout", 1)
                       .integer("index", 1));
  }
}

}  // namespace

void add_recurrent_cases(Cases* all) {
  add_states_before(all);
  for (const std::string op : kOps) {
    add_sizes(all, op);
    add_layouts(all, op);
    add_attributes(all, op);
    add_dynamic(all, op);
    add_gradients(all, op);
    // No steps: the reference runs this.
    all->push_back(Case(op, 14).x({0, 2, 3}).w({1, gates_of(op) * 4, 3}).w({1, gates_of(op) * 4, 4}));
  }
}

}  // namespace evn::conformance
