// Products and convolutions of training whose operands are rounded to bfloat16 or float16, against the references with rounded
// operands, on each instruction set of this machine that has them, and with the same bits for any number of threads.
#include <limits>
#include <span>

#include "ops/gradient.h"
#include "ops/merge.h"
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test::rounded_products_test {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr Precision kPrecisions[] = {Precision::kBfloat16, Precision::kFloat16Operands};

void add(KernelSubject* s, const Shape& shape, bool constant = false) {
  Random random(s->inputs.size() + 7);
  Bytes bytes(static_cast<std::size_t>(shape.elements()) * sizeof(float));
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(float)) {
    const float x = random.uniform(-1, 1);
    std::memcpy(&bytes[i], &x, sizeof x);
  }
  add_operand(s, {DType::kFloat32, shape}, std::move(bytes), constant);
}

// A start value is no operand: numbers that rounding leaves as they are.
void add_exact(KernelSubject* s, const Shape& shape) {
  add(s, shape);
  Bytes& bytes = s->values.back();
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(float)) {
    const float x = static_cast<float>(i / sizeof(float) % 15) / 8 - 1;
    std::memcpy(&bytes[i], &x, sizeof x);
  }
}

const Kernel* kernel_named(const Device& device, const KernelSubject& s, const std::string& name) {
  for (const Kernel* kernel : supporting_kernels(device, s.desc())) {
    if (kernel->name == name) return kernel;
  }
  return nullptr;
}

void check(KernelSubject s, const std::string& name, std::span<const Precision> precisions = kPrecisions) {
  for (const Precision precision : precisions) {
    s.precision = precision;
    const std::string suffix = precision == Precision::kBfloat16 ? "_bf16" : "_half";
    const std::vector<Bytes> expected = reference_result(rounded(s, precision));
    for (const Isa isa : available_isas(precision == Precision::kBfloat16)) {
      const ForcedIsa forced(isa);
      const bool has_bfloat16 = bfloat16_isa() == isa && isa_includes(isa, Isa::k_avx512_bf16);
      if (precision == Precision::kBfloat16 && !has_bfloat16) continue;
      SCOPED_TRACE(name + suffix + " on " + isa_name(isa));
      std::vector<Bytes> alone;
      for (const int threads : {1, 2, 3, 7, 16}) {
        const std::shared_ptr<Device> device = cpu_device(threads);
        const Kernel* const kernel = kernel_named(*device, s, name + suffix);
        ASSERT_NE(kernel, nullptr);
        EXPECT_EQ(device->find_kernel(s.desc(), nullptr), kernel);
        const std::vector<Bytes> got = KernelRun(*device, *kernel, s).run();
        if (threads == 1) {
          EXPECT_TRUE(outputs_near(s, got, expected, tolerance_of(s.node)));
          alone = got;
        }
        EXPECT_TRUE(got == alone) << threads << " threads";
      }
    }
  }
}

// ---------------------------------------------------------------------------------------------------------- products --

KernelSubject gemm(std::int64_t m, std::int64_t k, std::int64_t n, bool trans_a, bool trans_b, const Shape& c,
                   Epilogue steps = {}) {
  KernelSubject s;
  add(&s, trans_a ? Shape{k, m} : Shape{m, k});
  add(&s, trans_b ? Shape{n, k} : Shape{k, n});
  if (c.rank() > 0) add_exact(&s, c);
  finish_subject(&s, "Gemm", 13,
                 {{"transA", std::int64_t{trans_a}}, {"transB", std::int64_t{trans_b}}, {"beta", c.rank() == 2 ? 0.5f : 1.0f}}, 1,
                 steps);
  return s;
}

TEST(CpuRoundedProducts, GemmOfEveryOrder) {
  const Ints sizes[] = {{1, 16, 16}, {5, 33, 17}, {37, 100, 90}, {200, 40, 64}, {97, 513, 35}, {130, 1100, 530}};
  for (const Ints& size : sizes) {
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        const std::int64_t m = size[0], k = size[1], n = size[2];
        check(gemm(m, k, n, trans_a, trans_b, {}), "gemm_dynamic");
        check(gemm(m, k, n, trans_a, trans_b, {n}), "gemm_dynamic");
      }
    }
  }
}

TEST(CpuRoundedProducts, StartValuesAndSteps) {
  Epilogue steps;
  steps.push({EpilogueOpKind::kScale, 0.5f, 0});
  steps.push({EpilogueOpKind::kRelu, 0, 0});
  for (const Shape& c : {Shape{40, 48}, Shape{40, 1}, Shape{1, 48}, Shape{1}}) {
    check(gemm(40, 600, 48, true, false, c), "gemm_dynamic");
    check(gemm(40, 600, 48, false, true, c, steps), "gemm_dynamic");
  }
}

TEST(CpuRoundedProducts, MatMulOfBatches) {
  const std::pair<Shape, Shape> sizes[] = {{{3, 20, 40}, {40, 33}},      {{2, 3, 20, 40}, {2, 3, 40, 33}},
                                           {{20, 40}, {3, 40, 33}},      {{2, 1, 9, 64}, {1, 5, 64, 70}},
                                           {{7, 128, 64}, {7, 64, 128}}, {{900}, {900, 40}}};
  for (const auto& [a, b] : sizes) {
    KernelSubject s;
    add(&s, a);
    add(&s, b);
    finish_subject(&s, "MatMul", 13, {}, 1, {});
    check(s, "matmul_dynamic");
  }
}

TEST(CpuRoundedProducts, Float16OverflowsAndBfloat16DoesNot) {
  KernelSubject s = gemm(4, 16, 16, false, false, {});
  const float large = 70000;  // more than the largest float16
  std::memcpy(s.values[0].data(), &large, sizeof large);
  const std::shared_ptr<Device> device = cpu_device(1);
  for (const Precision precision : kPrecisions) {
    s.precision = precision;
    const Kernel* const kernel = device->find_kernel(s.desc(), nullptr);
    if (precision == Precision::kBfloat16 && kernel->operands != precision) continue;  // not every CPU has instructions for it
    ASSERT_EQ(kernel->operands, precision) << kernel->name;
    EXPECT_EQ(std::isinf(floats_by(*device, *kernel, s)[0]), precision != Precision::kBfloat16) << kernel->name;
  }
}

// ------------------------------------------------------------------------------------------------------ convolutions --

struct Case {
  std::int64_t n, in, out, group;
  Ints size, kernel, strides = {}, dilations = {}, pads = {};
};

std::vector<Case> cases() {
  return {{2, 16, 16, 1, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
          {3, 17, 35, 1, {13, 11}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
          {1, 20, 70, 1, {20, 37}, {5, 5}, {1, 1}, {1, 1}, {2, 2, 2, 2}},
          {5, 16, 24, 1, {17, 19}, {7, 7}, {2, 2}, {1, 1}, {3, 3, 3, 3}},
          {2, 32, 64, 2, {12, 30}, {3, 3}, {1, 1}, {2, 2}, {2, 2, 2, 2}},
          {2, 66, 40, 2, {14, 14}, {1, 1}, {2, 2}, {1, 1}, {0, 0, 0, 0}},
          {4, 99, 97, 1, {7, 7}, {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}},
          {2, 16, 18, 1, {10, 9}, {2, 3}, {3, 2}, {2, 3}, {1, 0, 2, 3}},
          {3, 16, 130, 1, {40, 45}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
          {3, 18, 17, 1, {300}, {9}, {4}, {2}, {8, 7}},
          {3, 16, 17, 1, {4, 6, 9}, {3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}}};
}

// Few output channels of a group, which products of bfloat16 leave to others.
std::vector<Case> narrow_cases() {
  return {{2, 16, 4, 1, {9, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
          {2, 16, 4, 1, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
          {2, 16, 16, 8, {9, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
          {2, 16, 2, 1, {30}, {5}, {3}, {1}, {2, 2}}};
}

Shape with(std::int64_t n, std::int64_t c, const Ints& size) {
  Shape s{n, c};
  for (const std::int64_t d : size) s.push_back(d);
  return s;
}

std::vector<Attribute> attributes(const Case& c) {
  return {{"group", c.group}, {"strides", c.strides}, {"dilations", c.dilations}, {"pads", c.pads}};
}

// What a Conv makes of the size.
Ints result_of(const Case& c) {
  Ints size;
  const std::size_t rank = c.size.size();
  for (std::size_t i = 0; i < rank; ++i)
    size.push_back((c.size[i] + c.pads[i] + c.pads[i + rank] - (c.kernel[i] - 1) * c.dilations[i] - 1) / c.strides[i] + 1);
  return size;
}

KernelSubject convolution(const Case& c, Epilogue steps = {}) {
  KernelSubject s;
  add(&s, with(c.n, c.in, c.size));
  add(&s, with(c.out, c.in / c.group, c.kernel));
  add_exact(&s, {c.out});
  finish_subject(&s, "Conv", 13, attributes(c), 1, steps);
  return s;
}

KernelSubject gradient(const char* op, const Case& c, Epilogue steps = {}) {
  KernelSubject s;
  const Shape x = with(c.n, c.in, c.size), w = with(c.out, c.in / c.group, c.kernel);
  const bool of_weight = std::string(op) == kConvWeightGradient;
  add(&s, of_weight ? w : x);
  add(&s, of_weight ? x : w);
  add(&s, with(c.n, c.out, result_of(c)));
  finish_subject(&s, std::string(kInternalDomain) + "::" + op, 1, attributes(c), 1, steps);
  return s;
}

TEST(CpuRoundedProducts, Convolutions) {
  for (const Case& c : cases()) check(convolution(c), "conv_dynamic_weight");
}

TEST(CpuRoundedProducts, ConvolutionsOfFewOutputs) {
  constexpr Precision kHalf[] = {Precision::kFloat16Operands};
  for (const Case& c : narrow_cases()) check(convolution(c), "conv_dynamic_weight", kHalf);
}

TEST(CpuRoundedProducts, GradientsOfInputs) {
  for (const Case& c : cases()) check(gradient(kConvInputGradient, c), "conv_input_gradient");
}

TEST(CpuRoundedProducts, GradientsOfWeights) {
  for (const Case& c : cases()) check(gradient(kConvWeightGradient, c), "conv_weight_gradient");
}

TEST(CpuRoundedProducts, TransposedConvolutions) {
  for (const std::int64_t stride : {1, 2}) {
    KernelSubject s;
    add(&s, {2, 19, 7, 8});
    add(&s, {19, 20, 3, 3});
    add_exact(&s, {20});
    finish_subject(&s, "ConvTranspose", 13, {{"strides", Ints{stride, stride}}, {"pads", Ints{1, 1, 1, 1}}}, 1, {});
    check(s, "conv_transpose_dynamic_weight");
  }
}

TEST(CpuRoundedProducts, ConvolutionsWithSteps) {
  Epilogue steps;
  steps.push({EpilogueOpKind::kScale, 0.5f, 0});
  steps.push({EpilogueOpKind::kRelu, 0, 0});
  const Case c = cases()[1];
  check(convolution(c, steps), "conv_dynamic_weight");
  check(gradient(kConvInputGradient, c, steps), "conv_input_gradient");
  check(gradient(kConvWeightGradient, c, steps), "conv_weight_gradient");
}

TEST(CpuRoundedProducts, WhatIsNarrowStaysFloat32WhereThatIsFaster) {
  const std::shared_ptr<Device> device = cpu_device(1);
  KernelSubject s = gradient(kConvWeightGradient, {2, 8, 8, 8, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}});
  s.precision = Precision::kBfloat16;
  EXPECT_EQ(std::string(device->find_kernel(s.desc(), nullptr)->name), "conv_weight_gradient_depthwise");
}

}  // namespace
}  // namespace evn::test::rounded_products_test
