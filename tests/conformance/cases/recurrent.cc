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

}  // namespace

void add_recurrent_cases(Cases* all) {
  for (const std::string op : kOps) {
    add_sizes(all, op);
    add_layouts(all, op);
    add_attributes(all, op);
    // Weights that are computed, and none: the reference runs these.
    all->push_back(Case(op, 14).x({2, 2, 3}).x({1, gates_of(op) * 4, 3}, -0.5, 0.5).x({1, gates_of(op) * 4, 4}, -0.5, 0.5));
    all->push_back(Case(op, 14).x({0, 2, 3}).w({1, gates_of(op) * 4, 3}).w({1, gates_of(op) * 4, 4}));
  }
}

}  // namespace evn::conformance
