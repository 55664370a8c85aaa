// LSTM, GRU and RNN with weights that are computed, and the way back through them, against the references.
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

struct Layer {
  const char* op;
  std::int64_t steps, batch, inputs, hidden, directions = 1;
  bool batch_first = false;
  std::vector<std::int32_t> lengths = {};

  std::int64_t gates() const { return std::string_view(op) == "LSTM" ? 4 : std::string_view(op) == "GRU" ? 3 : 1; }
  bool is_lstm() const { return gates() == 4; }
  std::int64_t rows() const { return gates() * hidden; }
  Shape state() const { return batch_first ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden}; }
  Shape y() const { return batch_first ? Shape{batch, steps, directions, hidden} : Shape{steps, directions, batch, hidden}; }
  std::string prefix() const { return is_lstm() ? "lstm" : gates() == 3 ? "gru" : "rnn"; }
};

const std::vector<Layer>& layers() {
  static const std::vector<Layer> all = [] {
    std::vector<Layer> made;
    for (const char* op : {"LSTM", "GRU", "RNN"}) {
      made.push_back({op, 1, 1, 3, 5});
      made.push_back({op, 7, 5, 9, 33});
      made.push_back({op, 3, 19, 20, 16, 2});
      made.push_back({op, 6, 4, 5, 70, 2, true, {6, 1, 0, 3}});
      made.push_back({op, 5, 3, 5, 21, 1, false, {2, 5, 4}});
    }
    return made;
  }();
  return all;
}

KernelCheck& with_attributes(KernelCheck& c, const Layer& l) {
  if (l.directions == 2) c.attribute("direction", std::string("bidirectional"));
  if (l.batch_first) c.integer("layout", 1);
  return c.integer("hidden_size", l.hidden);
}

KernelCheck& with_lengths(KernelCheck& c, const Layer& l) {
  return l.lengths.empty() ? c.absent() : c.input_of<std::int32_t>({l.batch}, l.lengths);
}

KernelCheck forward(const Layer& l) {
  KernelCheck c(l.op, 14);
  c.input(l.batch_first ? Shape{l.batch, l.steps, l.inputs} : Shape{l.steps, l.batch, l.inputs});
  c.input({l.directions, l.rows(), l.inputs}, false, -0.3f, 0.3f).input({l.directions, l.rows(), l.hidden}, false, -0.2f, 0.2f);
  with_lengths(c.input({l.directions, 2 * l.rows()}), l).input(l.state());
  if (l.is_lstm()) c.input(l.state()).input({l.directions, 3 * l.hidden});
  with_attributes(c, l).outputs(l.is_lstm() ? 3 : 2).kernel(l.prefix() + "_dynamic");
  return c;
}

KernelCheck backward(const Layer& l, std::int64_t index, bool resets_after = false) {
  KernelCheck c(std::string("evener::") + l.op + "Gradient", 1);
  const std::int64_t rows = l.steps * l.batch;
  c.input(l.y()).input({rows, l.rows()}, false, -2, 2).input({l.directions, l.rows(), l.hidden}, false, -0.2f, 0.2f);
  with_lengths(c, l).input(l.y()).input(l.state());
  if (l.is_lstm()) c.input(l.state()).input(l.state()).input({l.directions, 3 * l.hidden});
  if (l.gates() == 3) c.input({rows, l.hidden}).input({rows, (resets_after ? 3 : 2) * l.hidden});
  with_attributes(c, l).integer("index", index).outputs(l.is_lstm() ? 4 : l.gates() == 3 ? 3 : 2).kernel(l.prefix() + "_gradient");
  return c;
}

TEST(RecurrentKernel, WeightsThatAreComputedGiveWhatTheReferenceGives) {
  for (const Layer& l : layers()) forward(l).run();
  forward({"GRU", 6, 5, 4, 18}).integer("linear_before_reset", 1).run();
}

TEST(RecurrentGradientKernel, IsLikeTheReference) {
  for (const Layer& l : layers()) {
    for (std::int64_t index = 0; index < l.directions; ++index) {
      backward(l, index).run();
      if (l.gates() == 3) backward(l, index, true).integer("linear_before_reset", 1).run();
    }
  }
}

TEST(RecurrentGradientKernel, OfEveryActivation) {
  const std::vector<std::string> names = {"Sigmoid",    "Tanh",        "Relu", "Affine",   "LeakyRelu", "ThresholdedRelu",
                                          "ScaledTanh", "HardSigmoid", "Elu",  "Softsign", "Softplus"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::vector<std::string> three = {names[i], names[(i + 1) % names.size()], names[(i + 2) % names.size()]};
    for (const char* op : {"LSTM", "GRU", "RNN"}) {
      const Layer l{op, 4, 3, 1, 19};
      const std::size_t count = l.is_lstm() ? 3 : l.gates() == 3 ? 2 : 1;
      KernelCheck c = backward(l, 0);
      c.attribute("activations", std::vector<std::string>(three.begin(), three.begin() + static_cast<std::ptrdiff_t>(count)));
      c.attribute("activation_alpha", std::vector<float>{0.3f, 0.4f, 0.6f})
          .attribute("activation_beta", std::vector<float>{0.4f, 0.3f});
      c.run();
    }
  }
}

TEST(RecurrentGradientKernel, OfClipsAndInputForget) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) backward({op, 5, 3, 1, 20}, 0).real("clip", 0.8f).run();
  backward({"LSTM", 5, 3, 1, 20}, 0).integer("input_forget", 1).run();
  backward({"GRU", 5, 3, 1, 20}, 0, true).integer("linear_before_reset", 1).real("clip", 0.8f).run();
}

TEST(RecurrentGradientKernel, WhatIsNotGivenIsZero) {
  KernelCheck c("evener::LSTMGradient", 1);
  c.input({5, 1, 3, 18}).input({15, 72}).input({1, 72, 18}).absent().absent().absent().input({1, 3, 18}).outputs(3);
  c.kernel("lstm_gradient").run();
  KernelCheck r("evener::RNNGradient", 1);
  r.input({5, 1, 3, 18}).input({15, 18}).input({1, 18, 18}).absent().input({5, 1, 3, 18}).outputs(1).kernel("rnn_gradient").run();
}

}  // namespace
}  // namespace evn::test
