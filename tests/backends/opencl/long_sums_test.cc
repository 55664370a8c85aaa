// Sums of up to a million terms stay within the tolerance of their operators, on devices whose kernels are those for CPUs and
// those for GPUs. All terms are alike, so that rounding goes one way, and the right values are known in float64.
#include <bit>
#include <cmath>
#include <functional>

#include "ops/gradient.h"
#include "tests/backends/opencl/opencl_test.h"

namespace evn {

namespace test {
namespace {

using Ints = std::vector<std::int64_t>;

const double kTerm = static_cast<double>(0.1f);

struct LongSum {
  Graph graph;
  double want;              // of the elements of output 0; of the last one alone if `of_last`
  double tolerance = 2e-6;  // relative
  bool of_last = false;
  float term = 0.1f;  // all elements of the inputs
};

OpenClDevice& device_for(const char* kernels) {
  const auto open = [](const char* kind) {
    DeviceRequest request;
    request.settings.set_text("kernels", kind);
    request.settings.set_text("clblast", "never");
    return new std::shared_ptr<OpenClDevice>(open_opencl(request));
  };
  static auto* const of_cpus = open("cpu");
  static auto* const of_gpus = open("gpu");
  return std::string(kernels) == "gpu" ? **of_gpus : **of_cpus;
}

void check(const std::string& name, const LongSum& sum) {
  for (const char* kernels : {"cpu", "gpu"}) {
    SCOPED_TRACE(name + " by kernels for a " + kernels);
    NodeRun run(sum.graph, 1, sum.term, sum.term);
    const std::vector<float> y = run.on(device_for(kernels));
    ASSERT_FALSE(y.empty());
    for (std::size_t i = sum.of_last ? y.size() - 1 : 0; i < y.size(); ++i)
      ASSERT_LE(std::abs(static_cast<double>(y[i]) - sum.want), sum.tolerance * std::abs(sum.want)) << "at " << i;
  }
}

// A node of inputs of these shapes.
Graph node_of(const char* op, const std::vector<Shape>& inputs, const std::vector<Attribute>& attributes = {}, int opset = 13) {
  GraphBuilder b(opset);
  std::vector<ValueId> values;
  for (std::size_t i = 0; i < inputs.size(); ++i) values.push_back(b.input("x" + std::to_string(i), inputs[i]));
  b.output(b.node(op, values, attributes));
  return b.build();
}

class OpenClLongSums : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { EVN_NEEDS_OPENCL(); }
  const std::int64_t n = GetParam();
  const double count = static_cast<double>(n);
};

TEST_P(OpenClLongSums, OfReductions) {
  const struct {
    const char* op;
    double want, tolerance;
  } folds[] = {{"ReduceMean", kTerm, 1e-6},
               {"ReduceSum", count * kTerm, 1e-6},
               {"ReduceL1", count * kTerm, 1e-6},
               {"ReduceL2", std::sqrt(count) * kTerm, 1e-6},
               {"ReduceSumSquare", count * kTerm * kTerm, 1e-6},
               {"ReduceLogSum", std::log(count * kTerm), 1e-5},
               {"ReduceLogSumExp", kTerm + std::log(count), 1e-5}};
  for (const auto& f : folds) {
    const auto graph = [&](const Shape& x, const Ints& axes) { return node_of(f.op, {x}, {{"axes", axes}}, 11); };
    check(std::string(f.op) + " of rows", {graph({2, n}, {1}), f.want, f.tolerance});
    check(std::string(f.op) + " of columns", {graph({n, 4}, {0}), f.want, f.tolerance});
    check(std::string(f.op) + " of vectors of columns", {graph({n, 17}, {0}), f.want, f.tolerance});
    check(std::string(f.op) + " of short runs", {graph({n / 4, 3, 4}, {0, 2}), f.want, f.tolerance});
  }
}

TEST_P(OpenClLongSums, OfPools) {
  check("GlobalAveragePool", {node_of("GlobalAveragePool", {{1, 2, n / 16, 16}}), kTerm});
  check("AveragePool", {node_of("AveragePool", {{1, 2, n}}, {{"kernel_shape", Ints{n}}}), kTerm});
  check("AveragePool of two axes", {node_of("AveragePool", {{1, 2, n / 16, 16}}, {{"kernel_shape", Ints{n / 16, 16}}}), kTerm});
  check("LpPool", {node_of("LpPool", {{1, 1, n}}, {{"kernel_shape", Ints{n}}}), std::sqrt(count) * kTerm});
}

TEST_P(OpenClLongSums, OfSoftmax) {
  check("Softmax of rows", {node_of("Softmax", {{2, n}}), 1 / count});
  check("Softmax of columns", {node_of("Softmax", {{n, 17}}, {{"axis", std::int64_t{0}}}), 1 / count});
  check("LogSoftmax", {node_of("LogSoftmax", {{2, n}}), -std::log(count)});
  check("LogSoftmax of columns", {node_of("LogSoftmax", {{n, 3}}, {{"axis", std::int64_t{0}}}), -std::log(count)});
}

TEST_P(OpenClLongSums, OfProducts) {
  const double want = count * kTerm * kTerm;
  check("MatMul", {node_of("MatMul", {{2, n}, {n, 3}}), want, 1e-4});
  check("MatMul of rows", {node_of("MatMul", {{9, n}, {n, 3}}), want, 1e-4});
  check("Gemm", {node_of("Gemm", {{2, n}, {3, n}}, {{"transB", std::int64_t{1}}}), want, 1e-4});
  check("Einsum", {node_of("Einsum", {{2, n}, {n, 17}}, {{"equation", std::string("ij,jk->ik")}}), want});
  check("Einsum of one", {node_of("Einsum", {{2, n}}, {{"equation", std::string("ij->i")}}), count * kTerm});
  check("Conv", {node_of("Conv", {{1, n / 16, 4, 4}, {2, n / 16, 4, 4}}), want, 1e-4});
  check("Conv of one channel", {node_of("Conv", {{1, 1, n}, {1, 1, n}}), want, 1e-4});
  check("Conv of channels", {node_of("Conv", {{1, n, 1, 1}, {2, n, 1, 1}}), want, 1e-4});
  GraphBuilder b(11);
  const ValueId x = b.input("x", {1, n, 1, 1});
  b.output(b.node("ConvTranspose", {x, b.random("w", {n, 2, 1, 1}, 0.1f, 0.1f)}));
  check("ConvTranspose of channels", {b.build(), want, 2e-5});
}

// Weights of 1 in short blocks, and in one block that has all of them.
TEST_P(OpenClLongSums, OfQuantizedProducts) {
  for (const std::int64_t bits : {4, 8}) {
    for (const std::int64_t block : {std::int64_t{32}, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)))}) {
      for (const std::int64_t rows : {1, 9}) {
        const std::int64_t columns = 3, blocks = (n + block - 1) / block, bytes = block * bits / 8;
        const auto parts = static_cast<std::size_t>(columns * blocks);
        GraphBuilder b(1);
        const ValueId x = b.input("x", {rows, n});
        const std::vector<std::uint8_t> ones(parts * static_cast<std::size_t>(bytes), bits == 4 ? 0x99 : 0x81);
        const ValueId w = b.constant("w", {columns, blocks, bytes}, ones);
        const ValueId scales = b.constant("scales", {columns, blocks}, std::vector<float>(parts, 1));
        b.output(b.node("com.microsoft::MatMulNBits", {x, w, scales},
                        {{"K", n}, {"N", columns}, {"bits", bits}, {"block_size", block}}));
        check("MatMulNBits of " + std::to_string(bits) + " bits in blocks of " + std::to_string(block),
              {b.build(), static_cast<double>(n) * kTerm, 2e-5});
      }
    }
  }
}

TEST_P(OpenClLongSums, OfRowsOfNumbers) {
  LongSum sum{node_of("CumSum", {{2, n}}), count * kTerm, 1e-6, true};
  GraphBuilder b(14);
  const ValueId x = b.input("x", {2, n});
  b.output(b.node("CumSum", {x, b.ints({1})}));
  sum.graph = b.build();
  check("CumSum", sum);
  check("LpNormalization", {node_of("LpNormalization", {{2, n}}), 1 / std::sqrt(count)});
  check("RMSNormalization", {node_of("RMSNormalization", {{2, n}, {n}}, {{"epsilon", 0.0f}}, 23), kTerm});
}

// Numbers about a mean of 1: those that are larger by a quarter become 1.
TEST_P(OpenClLongSums, OfNormalizations) {
  const struct {
    const char* name;
    Graph graph;
  } rows[] = {
      {"LayerNormalization", node_of("LayerNormalization", {{1, n}, {n}, {n}}, {{"epsilon", 0.0f}}, 17)},
      {"InstanceNormalization", node_of("InstanceNormalization", {{1, 1, n}, {1}, {1}}, {{"epsilon", 0.0f}})},
      {"GroupNormalization",
       node_of("GroupNormalization", {{1, 2, n / 2}, {2}, {2}}, {{"epsilon", 0.0f}, {"num_groups", std::int64_t{1}}}, 21)},
      {"MeanVarianceNormalization", node_of("MeanVarianceNormalization", {{1, n}}, {{"axes", Ints{0, 1}}})},
  };
  for (const auto& row : rows) {
    for (const char* kernels : {"cpu", "gpu"}) {
      SCOPED_TRACE(std::string(row.name) + " by kernels for a " + kernels);
      NodeRun run(row.graph, 1, 1, 1);
      const bool has_scale = row.graph.nodes[0].inputs.size() > 1;
      for (std::size_t i = 0; i < run.input(0).data.size(); ++i) run.input(0).data[i] = i % 2 == 0 ? 1.25f : 0.75f;
      const std::vector<float> y = run.on(device_for(kernels));
      for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], (i % 2 == 0 ? 1 : -1) + (has_scale ? 1 : 0), 1e-5) << "at " << i;
    }
  }
}

TEST_P(OpenClLongSums, OfAttention) {
  const std::int64_t keys = n / 16;
  GraphBuilder b(23);
  const ValueId q = b.input("q", {1, 1, 2, 4}), k = b.input("k", {1, 1, keys, 4}), v = b.input("v", {1, 1, keys, 4});
  b.output(b.node("Attention", {q, k, v}));
  check("Attention", {b.build(), kTerm, 1e-5});
}

TEST_P(OpenClLongSums, OfGradients) {
  const double want = count * kTerm * kTerm;
  check("GradientNorm", {node_of("evener::GradientNorm", {{}, {n}}), std::sqrt(count) * kTerm * kTerm, 1e-6});
  check("ConvWeightGradient of pixels",
        {node_of("evener::ConvWeightGradient", {{3, 2, 1, 1}, {1, 2, n / 16, 16}, {1, 3, n / 16, 16}}), want, 1e-4});
  check("ConvWeightGradient of images",
        {node_of("evener::ConvWeightGradient", {{3, 2, 1, 1}, {n / 16, 2, 4, 4}, {n / 16, 3, 4, 4}}), want, 1e-4});
}

// Lengths about those at which products and convolutions begin other chains of sums. Which values round most depends on the length.
class OpenClProductsOfMiddleLength : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(OpenClProductsOfMiddleLength, StayWithinTheTolerance) {
  EVN_NEEDS_OPENCL();
  const std::int64_t n = GetParam();
  for (const float term : {0.1f, 0.07f, 0.3f}) {
    SCOPED_TRACE(term);
    const double want = static_cast<double>(n) * term * term;
    const auto check_products = [&](const char* name, Graph graph, double tolerance) {
      check(name, {std::move(graph), want, tolerance, false, term});
    };
    const auto conv = [&](const Shape& x, const Shape& w, std::int64_t group = 1) {
      return node_of("Conv", {x, w}, {{"group", group}});
    };
    const auto transposed = [&](std::int64_t width) {
      GraphBuilder b(11);
      const ValueId x = b.input("x", {1, n, 1, width});
      b.output(b.node("ConvTranspose", {x, b.random("w", {n, 2, 1, 1}, term, term)}));
      return b.build();
    };
    check_products("MatMul", node_of("MatMul", {{9, n}, {n, 3}}), 5e-5);
    check_products("MatMul of a row", node_of("MatMul", {{1, n}, {n, 3}}), 5e-5);
    check_products("Gemm", node_of("Gemm", {{9, n}, {3, n}}, {{"transB", std::int64_t{1}}}), 5e-5);
    check_products("Conv", conv({1, n / 16, 4, 4}, {2, n / 16, 4, 4}), 5e-5);
    check_products("Conv of rows", conv({1, n / 16, 6, 6}, {2, n / 16, 4, 4}), 5e-5);
    check_products("Conv of wide rows", conv({1, n / 16, 4, 43}, {2, n / 16, 4, 4}), 5e-5);
    check_products("Conv of one channel", conv({1, 1, n + 2}, {1, 1, n}), 5e-5);
    check_products("Conv of channels", conv({1, n, 1, 1}, {2, n, 1, 1}), 5e-5);
    check_products("Conv of channels of 49 pixels", conv({1, n, 7, 7}, {2, n, 1, 1}), 5e-5);
    check_products("Conv of channels of 33 pixels", conv({1, n, 1, 33}, {9, n, 1, 1}), 5e-5);
    check_products("Conv of depth 1", conv({1, 2, n / 16, 16}, {2, 1, n / 16, 16}, 2), 5e-5);
    check_products("ConvTranspose", transposed(1), 5e-5);
    check_products("ConvTranspose of rows", transposed(17), 5e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, OpenClProductsOfMiddleLength, ::testing::Values(4096, 8192, 28'672, 28'688, 65'536));

INSTANTIATE_TEST_SUITE_P(Terms, OpenClLongSums, ::testing::Values(10'000, 1 << 20));

}  // namespace
}  // namespace test
}  // namespace evn
