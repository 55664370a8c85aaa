// Attention whose products have operands of bfloat16, on each instruction set of this machine that has them: against attention in
// float64 of rounded operands, in the layouts that the operator has, beside what is not finite, and for any number of threads.
#include <array>
#include <cmath>
#include <limits>

#include "ops/fused_attention.h"
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class BfloatAttention : public OnIsa {
 protected:
  Isa taken() const override { return bfloat16_isa(); }

  struct Call {
    KernelSubject s;
    std::vector<Attribute> attributes;

    Call& in(const Shape& shape, float low = -1, float high = 1) {
      Random random(s.inputs.size() + 7);
      std::vector<float> values(static_cast<std::size_t>(shape.elements()));
      for (float& v : values) v = random.uniform(low, high);
      return of(shape, values);
    }
    Call& of(const Shape& shape, const std::vector<float>& values) {
      Bytes bytes(values.size() * sizeof(float));
      std::memcpy(bytes.data(), values.data(), bytes.size());
      add_operand(&s, {DType::kFloat32, shape}, std::move(bytes), false);
      return *this;
    }
    Call& ints(const char* name, std::vector<std::int64_t> v) {
      attributes.push_back({name, std::move(v)});
      return *this;
    }
    Call& scale(float x) {
      attributes.push_back({"scale", x});
      return *this;
    }
    void set(std::size_t input, std::int64_t i, float x) {
      std::memcpy(&s.values[input][static_cast<std::size_t>(i) * sizeof x], &x, sizeof x);
    }
    const KernelSubject& subject() {
      finish_subject(&s, "evener::Attention", 1, attributes, 1, {});
      s.precision = Precision::kBfloat16;
      return s;
    }
  };
  static Call heads(std::int64_t heads, std::int64_t queries, std::int64_t keys, std::int64_t depth, std::int64_t value_depth) {
    Call c;
    c.in({1, heads, queries, depth}).in({1, heads, keys, depth}).in({1, heads, keys, value_depth}).scale(0.3f);
    return c;
  }

  static std::vector<float> run(const KernelSubject& s, int threads = 1) {
    const std::shared_ptr<Device> device = cpu_device(threads);
    const Kernel* const kernel = device->find_kernel(s.desc(), nullptr);
    EXPECT_STREQ(kernel->name, s.precision == Precision::kBfloat16 ? "fused_attention_bf16" : "fused_attention");
    return floats_by(*device, *kernel, s);
  }
  static std::int64_t place(const std::int64_t* step, const std::array<std::int64_t, 4>& i) {
    return i[0] * step[0] + i[1] * step[1] + i[2] * step[2] + i[3] * step[3];
  }
  static double element(const KernelSubject& s, std::size_t input, const AttentionOperand& o,
                        const std::array<std::int64_t, 4>& i) {
    return static_cast<double>(rounded_to_bfloat(float_at(s, input, o.offset + place(o.step, i))));
  }

  // Weights are rounded to bfloat16, each by 2^-8 of itself at most. The rest is float32: scores with the error of their sums,
  // which the exponential makes a relative one of the weights, and sums of as many terms as there are keys.
  static void check(const KernelSubject& s) {
    const std::vector<float> y = run(s);
    const bool masked = s.inputs.size() > 3;
    const FusedAttentionSizes z = fused_attention_sizes(s.node, s.inputs[0].shape, s.inputs[1].shape, s.inputs[2].shape,
                                                        masked ? &s.inputs[3].shape : nullptr);
    const double scale = static_cast<double>(attr_float(s.node, FusedAttentionAttr::kScale));
    std::vector<double> weights(static_cast<std::size_t>(z.keys));
    for (std::int64_t b = 0; b < z.batch; ++b)
      for (std::int64_t h = 0; h < z.heads; ++h)
        for (std::int64_t i = 0; i < z.queries; ++i) {
          double top = -std::numeric_limits<double>::infinity(), magnitude = 0, sum = 0;
          for (std::int64_t t = 0; t < z.keys; ++t) {
            double score = 0, terms = 0;
            for (std::int64_t d = 0; d < z.depth; ++d) {
              const double term = scale * element(s, 0, z.q, {b, h, i, d}) * element(s, 1, z.k, {b, h, t, d});
              score += term;
              terms += std::fabs(term);
            }
            if (masked) score += static_cast<double>(float_at(s, 3, place(z.mask_step, {b, h, i, t})));
            weights[static_cast<std::size_t>(t)] = score;
            top = std::max(top, score);
            magnitude = std::max(magnitude, terms + std::fabs(score == -std::numeric_limits<double>::infinity() ? 0 : score));
          }
          for (double& w : weights) sum += w = std::exp(w - top);
          const double of_floats = std::ldexp(static_cast<double>(z.depth + 4) * magnitude + static_cast<double>(z.keys) + 16, -22);
          for (std::int64_t d = 0; d < z.value_depth; ++d) {
            double expected = 0, size = 0;
            for (std::int64_t t = 0; t < z.keys; ++t) {
              const double term = weights[static_cast<std::size_t>(t)] / sum * element(s, 2, z.v, {b, h, t, d});
              expected += term;
              size += std::fabs(term);
            }
            const double got = static_cast<double>(y[static_cast<std::size_t>(place(z.y_step, {b, h, i, d}))]);
            if (std::isfinite(expected)) {
              ASSERT_LE(std::fabs(got - expected), size * (std::ldexp(1, -8) + of_floats))
                  << b << ", " << h << ", " << i << ", " << d;
            } else {
              ASSERT_EQ(std::isnan(got), std::isnan(expected)) << b << ", " << h << ", " << i << ", " << d;
              ASSERT_FALSE(std::isfinite(got)) << b << ", " << h << ", " << i << ", " << d;
            }
          }
        }
  }

 private:
};

TEST_P(BfloatAttention, IsThatOfRoundedOperands) {
  for (const std::int64_t queries : {4, 16, 33, 70}) {
    for (const std::int64_t keys : {1, 2, 15, 33, 64, 197}) check(heads(2, queries, keys, 64, 64).subject());
  }
  for (const std::int64_t depth : {1, 2, 15, 17, 31, 33, 80}) {
    check(heads(3, 9, 21, depth, 40).subject());
    check(heads(2, 9, 35, 24, depth).subject());
  }
  check(heads(1, 40, 1100, 40, 48).subject());
}

TEST_P(BfloatAttention, AxesAndViews) {
  Call c;
  check(c.in({2, 19, 3, 20})
            .in({2, 21, 3, 20})
            .in({2, 21, 3, 12})
            .ints("q_perm", {0, 2, 1, 3})
            .ints("k_perm", {0, 2, 1, 3})
            .ints("v_perm", {0, 2, 1, 3})
            .ints("y_perm", {2, 0, 1, 3})
            .subject());
  for (const std::int64_t keys : {1, 2, 21, 40}) {
    Call across;
    check(across.in({2, 3, 19, 17}).in({2, 3, 17, keys}).in({2, 3, keys, 16}).ints("k_perm", {0, 1, 3, 2}).subject());
  }
  Call one;
  const auto view = [](std::int64_t offset) { return std::vector<std::int64_t>{1, 4, 19, 16, 0, 16, 192, 1, offset}; };
  check(one.in({19, 1, 192})
            .in({19, 192})
            .in({19 * 192})
            .ints("q_view", view(0))
            .ints("k_view", view(64))
            .ints("v_view", view(128))
            .subject());
  Call broadcast;
  check(broadcast.in({1, 3, 9, 16}).in({2, 1, 21, 16}).in({1, 1, 21, 16}).subject());
}

TEST_P(BfloatAttention, Masks) {
  for (const Shape& mask : {Shape{2, 3, 40, 21}, Shape{2, 1, 1, 21}, Shape{40, 21}, Shape{1, 3, 40, 1}, Shape{}}) {
    Call c;
    check(c.in({2, 3, 40, 16}).in({2, 3, 21, 16}).in({2, 3, 21, 16}).in(mask, -5, 5).scale(0.25f).subject());
  }
  std::vector<float> hides(40 * 21, 0.0f);
  for (std::size_t i = 0; i < hides.size(); ++i) hides[i] = i / 21 == 35 || i % 3 == 0 ? -kInfinity : i % 3 == 1 ? -1e30f : 0.0f;
  Call c = heads(2, 40, 21, 16, 16);
  c.of({40, 21}, hides);
  const KernelSubject& s = c.subject();
  check(s);
  EXPECT_TRUE(std::isnan(run(s)[35 * 16]));  // a row that sees nothing
}

TEST_P(BfloatAttention, LargeScoresDoNotOverflow) {
  Call c;
  check(c.in({1, 2, 9, 16}, -20, 20).in({1, 2, 40, 16}, -20, 20).in({1, 2, 40, 16}).subject());
}

// Heads lie side by side, and a thread's scratch has seen the one before.
TEST_P(BfloatAttention, WhatIsNotFiniteStaysInItsHead) {
  for (const std::int64_t depth : {17, 20, 32}) {
    for (const std::int64_t keys : {19, 33}) {
      Call c;
      c.in({1, 9, 4, depth})
          .in({1, keys, 4, depth})
          .in({1, keys, 4, depth})
          .ints("q_perm", {0, 2, 1, 3})
          .ints("k_perm", {0, 2, 1, 3})
          .ints("v_perm", {0, 2, 1, 3});
      for (std::int64_t t = 0; t < keys; ++t) {
        for (const std::int64_t head : {0, 2}) {
          for (std::int64_t d = 0; d < depth; ++d) {
            c.set(1, (t * 4 + head) * depth + d, d % 2 == 0 ? kNaN : kInfinity);
            c.set(2, (t * 4 + head) * depth + d, d % 2 == 0 ? kInfinity : kNaN);
          }
        }
      }
      check(c.subject());
      Call queries = heads(1, 40, keys, depth, depth);
      queries.set(0, 5 * depth + 3, kNaN);
      queries.set(0, 37 * depth + 1, kInfinity);
      const std::vector<float> y = run(queries.subject());
      for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(std::isnan(y[static_cast<std::size_t>(i * depth)]), i == 5 || i == 37) << i;
      Call values = heads(1, 40, keys, depth, depth);
      values.set(2, 7 * depth + 3, kInfinity);
      check(values.subject());
    }
  }
}

TEST_P(BfloatAttention, AnyNumberOfThreadsGivesTheSameBits) {
  for (const auto& [h, queries, keys] : {std::array<std::int64_t, 3>{1, 500, 90}, {3, 197, 197}, {20, 40, 33}}) {
    Call c = heads(h, queries, keys, 40, 24);
    const KernelSubject& s = c.in({queries, keys}).subject();
    const std::vector<float> alone = run(s);
    for (const int threads : {2, 3, 7, 16})
      EXPECT_TRUE(same_bits(run(s, threads), alone)) << h << " heads, " << threads << " threads";
  }
}

TEST_P(BfloatAttention, RowsDoNotDependOnTheirNeighbours) {
  Call all = heads(1, 90, 70, 48, 24);
  const std::vector<float> together = run(all.subject());
  for (const std::int64_t row : {0, 13, 30, 61, 86}) {
    Call some = heads(1, 4, 70, 48, 24);
    for (std::int64_t i = 0; i < 4 * 48; ++i) some.set(0, i, float_at(all.s, 0, row * 48 + i));
    const std::vector<float> alone = run(some.subject());
    EXPECT_EQ(std::memcmp(alone.data(), &together[static_cast<std::size_t>(row) * 24], 4 * 24 * sizeof(float)), 0) << row;
  }
}

TEST_P(BfloatAttention, FewQueriesAndNodesThatStayFloat32) {
  for (const std::int64_t queries : {1, 3, 4}) {
    Call c = heads(2, queries, 40, 24, 24);
    KernelSubject s = c.subject();
    const std::vector<float> bfloat = run(s);
    s.precision = Precision::kFloat32;
    EXPECT_EQ(same_bits(run(s), bfloat), queries <= 3) << queries;
  }
}

INSTANTIATE_TEST_SUITE_P(On, BfloatAttention, testing::Values(Isa::k_avx512_bf16, Isa::k_avx512_amx),
                         [](const auto& i) { return std::string(isa_name(i.param)); });

}  // namespace
}  // namespace evn::test
