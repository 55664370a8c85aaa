// Products with operands of bfloat16 and of float16, on each instruction set of this machine that has them: against sums in float64
// of rounded operands, for any number of threads, with numbers that are none beside what is computed.
#include <array>
#include <cmath>
#include <limits>

#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

struct Spatial {
  std::int64_t h, w, kh, kw, stride, dilation, pad;
};

class Bfloat : public OnIsa {
 protected:
  Isa taken() const override { return precision_ == Precision::kFloat16 ? float16_isa() : bfloat16_isa(); }

  static std::vector<float> draw(std::int64_t count, std::uint64_t seed) {
    Random random(seed);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& v : values) v = random.uniform(-1, 1);
    return values;
  }

  static void add(KernelSubject* s, const Shape& shape, const std::vector<float>& values, bool constant) {
    Bytes bytes(values.size() * sizeof(float));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    add_operand(s, {DType::kFloat32, shape}, std::move(bytes), constant);
  }

  KernelSubject matmul(std::int64_t m, std::int64_t k, std::int64_t n) {
    KernelSubject s;
    add(&s, {m, k}, draw(m * k, 1), false);
    add(&s, {k, n}, draw(k * n, 2), true);
    finish_subject(&s, "MatMul", 13, {}, 1, {});
    s.precision = precision_;
    return s;
  }

  KernelSubject conv(std::int64_t n, std::int64_t in, std::int64_t out, std::int64_t groups, const Spatial& w) {
    KernelSubject s;
    add(&s, {n, in, w.h, w.w}, draw(n * in * w.h * w.w, 3), false);
    add(&s, {out, in / groups, w.kh, w.kw}, draw(out * in / groups * w.kh * w.kw, 4), true);
    add(&s, {out}, draw(out, 5), false);
    const std::vector<std::int64_t> pads(4, w.pad), strides(2, w.stride), dilations(2, w.dilation);
    finish_subject(&s, "Conv", 13, {{"group", groups}, {"pads", pads}, {"strides", strides}, {"dilations", dilations}}, 1, {});
    s.precision = precision_;
    return s;
  }

  static std::vector<float> run(const KernelSubject& s, int threads = 1) {
    const std::shared_ptr<Device> device = cpu_device(threads);
    const std::vector<const Kernel*> kernels = supporting_kernels(*device, s.desc());  // of this precision
    EXPECT_EQ(kernels.size(), 1u) << s.node.op_type;
    return floats_by(*device, *kernels.at(0), s);
  }

  static float at(const KernelSubject& s, std::size_t input, std::int64_t i) {
    const float x = float_at(s, input, i);
    return s.precision == Precision::kFloat16 ? rounded_to_half(x) : rounded_to_bfloat(x);
  }

  // A float32 sum of n products is off by at most n * 2^-24 of the sum of their magnitudes, in any order (Higham). Float16 sums 32
  // of them by itself, each rounded by 2^-11 at most.
  void expect_sum(float got, double sum, double magnitude, std::int64_t terms, std::int64_t where) {
    if (!std::isfinite(sum)) {
      EXPECT_EQ(std::isnan(got), std::isnan(sum)) << where;
      EXPECT_FALSE(std::isfinite(got)) << where;
      return;
    }
    const double parts = precision_ == Precision::kFloat16 ? 32 * std::ldexp(magnitude, -11) : 0;
    EXPECT_LE(std::fabs(static_cast<double>(got) - sum), static_cast<double>(terms + 2) * std::ldexp(magnitude, -24) + parts)
        << where;
  }

  // Conv by plain loops.
  void check_conv(const KernelSubject& s, std::int64_t groups, const Spatial& w) {
    const std::vector<float> y = run(s);
    const Shape &x = s.inputs[0].shape, &o = s.outputs[0].shape;
    const std::int64_t in = x[1] / groups, out = o[1] / groups;
    std::int64_t i = 0;
    for (std::int64_t n = 0; n < o[0]; ++n)
      for (std::int64_t c = 0; c < o[1]; ++c)
        for (std::int64_t oy = 0; oy < o[2]; ++oy)
          for (std::int64_t ox = 0; ox < o[3]; ++ox, ++i) {
            float bias;
            std::memcpy(&bias, &s.values[2][static_cast<std::size_t>(c) * sizeof bias], sizeof bias);
            double sum = static_cast<double>(bias), magnitude = std::fabs(sum);
            for (std::int64_t k = 0; k < in; ++k)
              for (std::int64_t ky = 0; ky < w.kh; ++ky)
                for (std::int64_t kx = 0; kx < w.kw; ++kx) {
                  const std::int64_t iy = oy * w.stride - w.pad + ky * w.dilation, ix = ox * w.stride - w.pad + kx * w.dilation;
                  if (iy < 0 || iy >= x[2] || ix < 0 || ix >= x[3]) continue;
                  const double a = static_cast<double>(at(s, 0, ((n * x[1] + c / out * in + k) * x[2] + iy) * x[3] + ix));
                  const double b = static_cast<double>(at(s, 1, ((c * in + k) * w.kh + ky) * w.kw + kx));
                  sum += a * b;
                  magnitude += std::fabs(a * b);
                }
            expect_sum(y[static_cast<std::size_t>(i)], sum, magnitude, in * w.kh * w.kw, i);
          }
  }

  const Precision precision_ = GetParam() == Isa::k_avx512_fp16 ? Precision::kFloat16 : Precision::kBfloat16;

 private:
};

TEST_P(Bfloat, ProductsAreSumsOfRoundedOperands) {
  for (const auto& [m, k, n] :
       {std::array<std::int64_t, 3>{1, 40, 16}, {5, 33, 17}, {16, 32, 64}, {37, 100, 90}, {70, 777, 35}, {3, 16, 200}}) {
    const KernelSubject s = matmul(m, k, n);
    const std::vector<float> y = run(s);
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        for (std::int64_t p = 0; p < k; ++p) {
          const double term = static_cast<double>(at(s, 0, i * k + p)) * static_cast<double>(at(s, 1, p * n + j));
          sum += term;
          magnitude += std::fabs(term);
        }
        expect_sum(y[static_cast<std::size_t>(i * n + j)], sum, magnitude, k, i * n + j);
      }
    }
  }
}

TEST_P(Bfloat, ConvolutionsAreSumsOfRoundedOperands) {
  const Spatial cases[] = {{9, 11, 3, 3, 1, 1, 1},  {13, 10, 3, 3, 2, 1, 1}, {12, 14, 1, 1, 1, 1, 0},
                           {12, 15, 1, 1, 2, 1, 0}, {15, 17, 3, 3, 1, 2, 2}, {20, 19, 7, 7, 2, 1, 3},
                           {6, 40, 1, 1, 1, 1, 0},  {8, 9, 3, 3, 1, 1, 0},   {7, 7, 5, 1, 1, 1, 2}};
  for (const Spatial& w : cases) {
    for (const std::int64_t in : {17, 32, 37}) check_conv(conv(2, in, 40, 1, w), 1, w);
    check_conv(conv(1, 64, 64, 2, w), 2, w);
  }
  const Spatial first{32, 30, 7, 7, 2, 1, 3};
  check_conv(conv(1, 3, 24, 1, first), 1, first);
  const Spatial deep{5, 6, 1, 1, 1, 1, 0}, window{6, 7, 3, 3, 2, 1, 1};  // more channels than are packed at once
  check_conv(conv(1, 300, 40, 1, deep), 1, deep);
  check_conv(conv(1, 300, 40, 1, window), 1, window);
  const Spatial patches{32, 48, 16, 16, 16, 1, 0};
  check_conv(conv(1, 3, 40, 1, patches), 1, patches);
}

TEST_P(Bfloat, RoundsToNearestEvenAndKeepsNaN) {
  KernelSubject s = matmul(6, 40, 20);
  const float ties[] = {1.00390625f, 1.01171875f, -1.00390625f, 0.99609375f, 1e-39f, 3.3961776e38f, -65280.5f};
  const float half_ties[] = {1.00048828125f, 1.00146484375f, -1.00048828125f, 0.99951171875f,
                             1e-39f,         5.9604645e-8f,  2.9802322e-8f,   8.9406967e-8f};
  const bool is_half = precision_ == Precision::kFloat16;
  std::memcpy(s.values[0].data(), is_half ? half_ties : ties, is_half ? sizeof half_ties : sizeof ties);
  EXPECT_TRUE(same_bits(run(s), run(rounded(s, precision_))));
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  float low_nan;  // whose upper half is that of infinity
  const std::uint32_t bits = 0x7f800001u;
  std::memcpy(&low_nan, &bits, sizeof bits);
  const float specials[] = {nan, low_nan, infinity};
  for (std::size_t r = 0; r < 3; ++r) std::memcpy(&s.values[0][(r * 40 + 3) * sizeof(float)], &specials[r], sizeof(float));
  const std::vector<float> y = run(s);
  for (std::size_t j = 0; j < 20; ++j) {
    EXPECT_TRUE(std::isnan(y[j]) && std::isnan(y[20 + j])) << j;
    EXPECT_TRUE(std::isinf(y[40 + j])) << j;
    EXPECT_TRUE(std::isfinite(y[60 + j])) << j;
  }
}

TEST_P(Bfloat, WhatIsNotFiniteStaysUnderItsWindows) {
  const Spatial cases[] = {{9, 21, 3, 3, 1, 1, 1}, {9, 21, 3, 3, 2, 1, 1}, {11, 20, 3, 3, 1, 2, 2}, {9, 40, 1, 1, 1, 1, 0}};
  const float wrong[] = {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
  for (const Spatial& w : cases) {
    for (const std::int64_t in : {17, 18, 32}) {
      KernelSubject s = conv(1, in, 24, 1, w);
      for (std::int64_t i = 0; i < 2; ++i) {
        std::memcpy(&s.values[0][static_cast<std::size_t>(((i * 4) * w.h + 3 + i) * w.w + 8 + i) * sizeof(float)], &wrong[i],
                    sizeof(float));
      }
      check_conv(s, 1, w);
    }
  }
}

TEST_P(Bfloat, AnyNumberOfThreadsGivesTheSameBits) {
  const Spatial w{29, 31, 3, 3, 2, 1, 1}, one{28, 28, 1, 1, 1, 1, 0};
  for (const KernelSubject& s :
       {matmul(300, 200, 500), matmul(1, 900, 3000), conv(2, 40, 96, 1, w), conv(1, 256, 300, 1, one), conv(1, 5, 64, 1, w)}) {
    const std::vector<float> alone = run(s);
    for (const int threads : {2, 3, 7, 16})
      EXPECT_TRUE(same_bits(run(s, threads), alone)) << s.node.op_type << ", " << threads << " threads";
  }
}

TEST_P(Bfloat, RowsDoNotDependOnTheirNeighbours) {
  KernelSubject all = matmul(40, 200, 70);
  const std::vector<float> together = run(all);
  for (std::int64_t row : {0, 17, 39}) {
    KernelSubject one = matmul(1, 200, 70);
    std::memcpy(one.values[0].data(), &all.values[0][static_cast<std::size_t>(row) * 200 * sizeof(float)], 200 * sizeof(float));
    const std::vector<float> alone = run(one);
    EXPECT_EQ(std::memcmp(alone.data(), &together[static_cast<std::size_t>(row) * 70], 70 * sizeof(float)), 0) << row;
  }
}

TEST(BfloatKernels, AreNotForNodesThatMayNotHaveThem) {
  KernelSubject s;
  add_operand(&s, {DType::kFloat32, {4, 32}}, Bytes(4 * 32 * 4), false);
  add_operand(&s, {DType::kFloat32, {32, 32}}, Bytes(32 * 32 * 4), true);
  finish_subject(&s, "MatMul", 13, {}, 1, {});
  std::string why;
  for (const Precision p : {Precision::kFloat32, Precision::kBfloat16, Precision::kFloat16}) {
    const std::shared_ptr<Device> device = cpu_device(1);
    s.precision = p;
    EXPECT_EQ(device->find_kernel(s.desc(), nullptr)->operands, p == Precision::kFloat32 ? p : device->lowest_precision(p, &why));
  }
}

TEST(BfloatKernels, TheDeviceSaysWhatItLacks) {
  const std::shared_ptr<Device> device = cpu_device(1);
  const ForcedIsa forced(Isa::k_baseline);
  std::string why;
  EXPECT_EQ(device->lowest_precision(Precision::kBfloat16, &why), Precision::kFloat32);
  EXPECT_EQ(why, "this CPU has no AMX or AVX512-BF16");
  EXPECT_EQ(device->lowest_precision(Precision::kFloat16, &why), Precision::kFloat32);
  EXPECT_EQ(why, "this CPU has no AVX512-FP16");
  EXPECT_EQ(device->lowest_precision(Precision::kAuto, &why), Precision::kFloat32);
}

TEST(BfloatKernels, AutoIsBfloat16WhereThatIsFaster) {
  const std::shared_ptr<Device> device = cpu_device(1);
  for (const Isa isa : {Isa::k_baseline, Isa::k_avx2, Isa::k_avx512_bf16, Isa::k_avx512_amx}) {
    if (!isa_available(isa)) continue;
    const ForcedIsa forced(isa);
    SCOPED_TRACE(isa_name(isa));
    std::string why;
    const Precision chosen = device->lowest_precision(Precision::kAuto, &why);
    EXPECT_EQ(chosen, has_fast_bfloat16() ? Precision::kBfloat16 : Precision::kFloat32);
    EXPECT_EQ(why.empty(), chosen == Precision::kBfloat16);
    if (!isa_includes(isa, Isa::k_avx512_bf16)) {
      EXPECT_EQ(chosen, Precision::kFloat32);
    } else if (bfloat16_isa() == Isa::k_avx512_amx) {
      EXPECT_EQ(chosen, Precision::kBfloat16);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(On, Bfloat, testing::Values(Isa::k_avx512_bf16, Isa::k_avx512_fp16, Isa::k_avx512_amx),
                         [](const auto& i) { return std::string(isa_name(i.param)); });

}  // namespace
}  // namespace evn::test
