// MatMulNBits of all numbers of rows that take another way, of blocks that end before K, and of all kinds of zero points.
#include <cmath>
#include <limits>

#include "tests/backends/cpu/kernel_check.h"

namespace evn::test::nbits_test {
namespace {

enum class Zeros { kNone, kPacked, kFloats };

struct Case {
  std::int64_t m, k, n, bits, block;
  Zeros zeros = Zeros::kNone;
  bool bias = false;
  EpilogueOpKind step = EpilogueOpKind::kScale;
  std::int64_t accuracy = 0;
  bool half_scales = false;  // scales that float16 holds
};

std::vector<std::uint8_t> draw_bytes(std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(random.next() >> 24);
  return bytes;
}

void check(const Case& c) {
  const std::int64_t blocks = (c.k + c.block - 1) / c.block, blob = c.block * c.bits / 8, zero_bytes = (blocks * c.bits + 7) / 8;
  KernelCheck check("com.microsoft::MatMulNBits", 1);
  check.integer("K", c.k)
      .integer("N", c.n)
      .integer("bits", c.bits)
      .integer("block_size", c.block)
      .integer("accuracy_level", c.accuracy);
  const float scale = c.bits == 8 ? 0.01f : 0.1f;
  check.input({c.m, c.k}).input_of({c.n, blocks, blob}, draw_bytes(c.n * blocks * blob, 5), true);
  if (c.half_scales) {
    std::vector<float> scales;
    for (const std::uint8_t b : draw_bytes(c.n * blocks, 9)) scales.push_back(std::ldexp(b + 1.0f, c.bits == 8 ? -15 : -12));
    check.input_of({c.n, blocks}, scales, true);
  } else {
    check.input({c.n, blocks}, true, scale / 4, scale);
  }
  if (c.zeros == Zeros::kPacked) {
    check.input_of({c.n, zero_bytes}, draw_bytes(c.n * zero_bytes, 7), true);
  } else if (c.zeros == Zeros::kFloats) {
    check.input({c.n, blocks}, true, c.bits == 8 ? 100 : 2, c.bits == 8 ? 150 : 12);
  } else if (c.bias) {
    check.absent();
  }
  if (c.bias) check.absent().input({c.n}, true);
  if (c.step != EpilogueOpKind::kScale) check.step(c.step);
  check.kernel(c.accuracy == 4 ? "matmul_nbits_dot" : "matmul_nbits").run();
}

TEST(MatMulNBitsKernel, FewRowsAreTheReference) {
  for (const std::int64_t bits : {4, 8}) {
    for (std::int64_t m = 1; m <= 5; ++m) {
      check({m, 96, 130, bits, 32});
      check({m, 75, 70, bits, 16, Zeros::kPacked, true});
      check({m, 300, 64, bits, 128, Zeros::kFloats, false, EpilogueOpKind::kGelu});
    }
  }
}

TEST(MatMulNBitsKernel, QuantizedRowsAreTheReference) {
  for (const std::int64_t bits : {4, 8}) {
    for (const std::int64_t m : {1, 2, 5, 6, 13, 70}) {
      check({m, 96, 130, bits, 32, Zeros::kNone, false, EpilogueOpKind::kScale, 4});
      check({m, 75, 70, bits, 16, Zeros::kPacked, true, EpilogueOpKind::kScale, 4});
      check({m, 300, 64, bits, 128, Zeros::kFloats, false, EpilogueOpKind::kGelu, 4});
    }
    for (const std::int64_t m : {1, 7}) {
      check({m, 300, 130, bits, 32, Zeros::kNone, false, EpilogueOpKind::kScale, 4, true});
      check({m, 96, 70, bits, 16, Zeros::kFloats, false, EpilogueOpKind::kScale, 4, true});
    }
    check({1, 40000, 33, bits, 64, Zeros::kPacked, true, EpilogueOpKind::kRelu, 4});
    check({7, 17000, 5, bits, 4096, Zeros::kNone, false, EpilogueOpKind::kScale, 4});
  }
}

TEST(MatMulNBitsKernel, BlocksThatAreNotFiniteMakeTheRowNaN) {
  std::vector<float> a(4 * 64, 0.5f);
  a[70] = std::numeric_limits<float>::infinity();
  a[130] = std::nanf("");
  for (int i = 192; i < 256; ++i) a[static_cast<std::size_t>(i)] = 1e-32f;
  KernelCheck check("com.microsoft::MatMulNBits", 1);
  check.integer("K", 64).integer("N", 3).integer("bits", 4).integer("block_size", 32).integer("accuracy_level", 4);
  check.input_of<float>({4, 64}, a).input_of({3, 2, 16}, draw_bytes(96, 5), true).input({3, 2}, true, 0.1f, 0.2f);
  check.kernel("matmul_nbits_dot").run();
}

TEST(MatMulNBitsKernel, ManyRowsAreTheReference) {
  for (const std::int64_t bits : {4, 8}) {
    check({40, 96, 130, bits, 32, Zeros::kNone, true, EpilogueOpKind::kRelu});
    check({33, 2085, 81, bits, 64, Zeros::kPacked});
    check({17, 1100, 47, bits, 2048, Zeros::kFloats, true, EpilogueOpKind::kTanh});
    check({300, 130, 200, bits, 16, Zeros::kPacked, true});
  }
}

// Terms that are alike round the same way: the error grows with the length of a chain of sums.
TEST(MatMulNBitsKernel, LongSumsOfLikeTerms) {
  constexpr std::int64_t kBlock = 1 << 12, kColumns = 3;
  for (const std::int64_t bits : {4, 8}) {
    for (const std::int64_t m : {1, 9}) {
      KernelCheck check("com.microsoft::MatMulNBits", 1);
      check.integer("K", kBlock).integer("N", kColumns).integer("bits", bits).integer("block_size", kBlock);
      const std::vector<std::uint8_t> ones(static_cast<std::size_t>(kColumns * kBlock * bits / 8), bits == 4 ? 0x99 : 0x81);
      check.input({m, kBlock}, false, 0.1f, 0.1f).input_of({kColumns, 1, kBlock * bits / 8}, ones, true);
      check.input({kColumns, 1}, true, 1, 1).kernel("matmul_nbits").run();
    }
  }
}

TEST(MatMulNBitsKernel, ManyColumnsAreCutIntoTiles) {
  for (const std::int64_t bits : {4, 8}) {
    check({1, 1000, 3000, bits, 32, Zeros::kPacked});
    check({2, 1024, 3000, bits, 256});
  }
}

}  // namespace
}  // namespace evn::test::nbits_test
