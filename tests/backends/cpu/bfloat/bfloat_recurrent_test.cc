// LSTM, GRU and RNN with products of bfloat16: against the equations of the ONNX operators in float64, with the inputs, the weights
// and the state that goes into each step's products rounded to bfloat16, for any number of threads and whatever else is in the
// batch.
#include <cmath>

#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

struct Net {
  const char* op;
  std::int64_t gates, steps, batch, inputs, hidden;
  bool reset_after = false;  // GRU: linear_before_reset
};

class BfloatRecurrent : public OnIsa {
 protected:
  Isa taken() const override { return bfloat16_isa(); }

  static KernelSubject subject(const Net& n) {
    KernelSubject s;
    const auto add = [&](const Shape& shape, float bound, bool constant) {
      Random random(s.inputs.size() + 31);
      std::vector<float> values(static_cast<std::size_t>(shape.elements()));
      for (float& v : values) v = random.uniform(-bound, bound);
      Bytes bytes(values.size() * sizeof(float));
      std::memcpy(bytes.data(), values.data(), bytes.size());
      add_operand(&s, {DType::kFloat32, shape}, std::move(bytes), constant);
    };
    add({n.steps, n.batch, n.inputs}, 1, false);
    add({1, n.gates * n.hidden, n.inputs}, 0.3f, true);
    add({1, n.gates * n.hidden, n.hidden}, 0.3f, true);
    add({1, 2 * n.gates * n.hidden}, 0.5f, false);
    std::vector<Attribute> attributes = {{"hidden_size", n.hidden}};
    if (n.reset_after) attributes.push_back({"linear_before_reset", std::int64_t{1}});
    finish_subject(&s, n.op, 14, attributes, 1, {});
    s.precision = Precision::kBfloat16;
    return s;
  }

  static std::vector<float> run(const KernelSubject& s, int threads = 1) {
    const std::shared_ptr<Device> device = cpu_device(threads);
    const std::vector<const Kernel*> kernels = supporting_kernels(*device, s.desc());  // of this precision
    EXPECT_EQ(kernels.size(), 1u) << s.node.op_type;
    return floats_by(*device, *kernels.at(0), s);
  }

  static double rounded_at(const KernelSubject& s, std::size_t input, std::int64_t i) {
    return static_cast<double>(rounded_to_bfloat(float_at(s, input, i)));
  }

  // The states of all steps of one sequence of the batch.
  static std::vector<double> expected(const KernelSubject& s, const Net& n, std::int64_t sequence) {
    const std::int64_t hidden = n.hidden;
    std::vector<double> all, h(static_cast<std::size_t>(hidden)), c(h);
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    // A gate's sum of a unit: the input's part, and that of a state.
    const auto input_sum = [&](std::int64_t t, std::int64_t row) {
      double sum = static_cast<double>(float_at(s, 3, row));
      for (std::int64_t k = 0; k < n.inputs; ++k)
        sum += rounded_at(s, 0, (t * n.batch + sequence) * n.inputs + k) * rounded_at(s, 1, row * n.inputs + k);
      return sum;
    };
    const auto state_sum = [&](const std::vector<double>& state, std::int64_t row) {
      double sum = static_cast<double>(float_at(s, 3, n.gates * hidden + row));
      for (std::int64_t k = 0; k < hidden; ++k) {
        const auto rounded = static_cast<double>(rounded_to_bfloat(static_cast<float>(state[static_cast<std::size_t>(k)])));
        sum += rounded * rounded_at(s, 2, row * hidden + k);
      }
      return sum;
    };
    for (std::int64_t t = 0; t < n.steps; ++t) {
      std::vector<double> next(h), reset(h);
      const auto both = [&](std::int64_t gate, std::int64_t i) {
        return input_sum(t, gate * hidden + i) + state_sum(h, gate * hidden + i);
      };
      if (n.gates == 3)
        for (std::int64_t i = 0; i < hidden; ++i) reset[static_cast<std::size_t>(i)] *= sigmoid(both(1, i));
      for (std::int64_t i = 0; i < hidden; ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (n.gates == 4) {  // i, o, f, c
          c[at] = sigmoid(both(2, i)) * c[at] + sigmoid(both(0, i)) * std::tanh(both(3, i));
          next[at] = sigmoid(both(1, i)) * std::tanh(c[at]);
        } else if (n.gates == 3) {  // z, r, h
          const std::int64_t row = 2 * hidden + i;
          const double recurrent = n.reset_after ? sigmoid(both(1, i)) * state_sum(h, row) : state_sum(reset, row);
          const double z = sigmoid(both(0, i));
          next[at] = (1 - z) * std::tanh(input_sum(t, row) + recurrent) + z * h[at];
        } else {
          next[at] = std::tanh(both(0, i));
        }
      }
      h = next;
      all.insert(all.end(), h.begin(), h.end());
    }
    return all;
  }
};

constexpr Net kNets[] = {{"LSTM", 4, 6, 2, 13, 20}, {"LSTM", 4, 5, 1, 40, 64},      {"LSTM", 4, 3, 7, 8, 16},
                         {"GRU", 3, 6, 3, 9, 33},   {"GRU", 3, 6, 1, 16, 48, true}, {"RNN", 1, 8, 5, 21, 17},
                         {"RNN", 1, 3, 3, 6, 130},  {"LSTM", 4, 3, 2, 300, 140}};

// A state that lies next to the middle between two numbers of bfloat16 may be rounded either way, by 2^-8 of itself: few do. What
// that changes later is smaller than the state's own share of a sum.
TEST_P(BfloatRecurrent, StatesAreRoundedForEachProduct) {
  for (const Net& n : kNets) {
    const KernelSubject s = subject(n);
    const std::vector<float> y = run(s);  // steps, directions, batch, hidden
    double worst = 0;
    std::int64_t beyond = 0;
    for (std::int64_t b = 0; b < n.batch; ++b) {
      const std::vector<double> wanted = expected(s, n, b);
      for (std::int64_t t = 0; t < n.steps; ++t) {
        for (std::int64_t i = 0; i < n.hidden; ++i) {
          const double got = static_cast<double>(y.at(static_cast<std::size_t>((t * n.batch + b) * n.hidden + i)));
          const double error = std::fabs(got - wanted.at(static_cast<std::size_t>(t * n.hidden + i)));
          worst = std::max(worst, error);
          if (error > 2e-6) ++beyond;
        }
      }
    }
    EXPECT_LE(worst, 1e-3) << n.op << " of " << n.hidden;
    EXPECT_LE(beyond * 4, static_cast<std::int64_t>(y.size())) << n.op << " of " << n.hidden;
  }
}

TEST_P(BfloatRecurrent, AnyNumberOfThreadsGivesTheSameBits) {
  for (const Net& n : kNets) {
    const KernelSubject s = subject(n);
    const std::vector<float> one = run(s);
    for (const int threads : {2, 5}) EXPECT_TRUE(same_bits(one, run(s, threads))) << n.op << ", " << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(On, BfloatRecurrent, ::testing::Values(Isa::k_avx512_bf16, Isa::k_avx512_amx),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

}  // namespace
}  // namespace evn::test
