// MatMulNBits of all numbers of rows that take another way, of blocks that end before K, and of all kinds of zero points.
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test::nbits_test {
namespace {

enum class Zeros { kNone, kPacked, kFloats };

struct Case {
  std::int64_t m, k, n, bits, block;
  Zeros zeros = Zeros::kNone;
  bool bias = false;
  EpilogueOpKind step = EpilogueOpKind::kScale;
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
  check.integer("K", c.k).integer("N", c.n).integer("bits", c.bits).integer("block_size", c.block);
  const float scale = c.bits == 8 ? 0.01f : 0.1f;
  check.input({c.m, c.k})
      .input_of({c.n, blocks, blob}, draw_bytes(c.n * blocks * blob, 5), true)
      .input({c.n, blocks}, true, scale / 4, scale);
  if (c.zeros == Zeros::kPacked) {
    check.input_of({c.n, zero_bytes}, draw_bytes(c.n * zero_bytes, 7), true);
  } else if (c.zeros == Zeros::kFloats) {
    check.input({c.n, blocks}, true, c.bits == 8 ? 100 : 2, c.bits == 8 ? 150 : 12);
  } else if (c.bias) {
    check.absent();
  }
  if (c.bias) check.absent().input({c.n}, true);
  if (c.step != EpilogueOpKind::kScale) check.step(c.step);
  check.kernel("matmul_nbits").run();
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

TEST(MatMulNBitsKernel, ManyRowsAreTheReference) {
  for (const std::int64_t bits : {4, 8}) {
    check({40, 96, 130, bits, 32, Zeros::kNone, true, EpilogueOpKind::kRelu});
    check({33, 2085, 81, bits, 64, Zeros::kPacked});
    check({17, 1100, 47, bits, 2048, Zeros::kFloats, true, EpilogueOpKind::kTanh});
    check({300, 130, 200, bits, 16, Zeros::kPacked, true});
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
