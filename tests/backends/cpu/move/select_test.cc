// Where and And on the CPU.
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

std::vector<std::uint8_t> bits(std::size_t n, std::size_t period) {
  std::vector<std::uint8_t> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = i % period == 0 ? 1 : 0;
  return v;
}

TEST(CpuWhere, BroadcastsEveryInput) {
  KernelCheck("Where", 16).bools({3, 4, 50}, bits(600, 3)).input({3, 4, 50}).input({3, 4, 50}).kernel("where").run();
  KernelCheck("Where", 16).bools({3, 4, 50}, bits(600, 3)).input({}).input({1}).kernel("where").run();
  KernelCheck("Where", 16).bools({4, 1}, bits(4, 2)).input({3, 1, 50}).input({50}).kernel("where").run();
  KernelCheck("Where", 16).bools({1}, {0}).input({300, 400}).input({300, 1}).kernel("where").run();
  KernelCheck("Where", 16)
      .bools({6}, bits(6, 2))
      .input_of<std::int64_t>({6}, {1, 2, 3, 4, 5, 6})
      .input_of<std::int64_t>({}, {-7})
      .kernel("where")
      .run();
}

TEST(CpuAnd, BroadcastsBothInputs) {
  KernelCheck("And", 7).bools({5, 1, 70}, bits(350, 3)).bools({40, 1}, bits(40, 2)).kernel("and").run();
  KernelCheck("And", 7).bools({5, 70}, bits(350, 3)).bools({5, 70}, bits(350, 2)).kernel("and").run();
}

}  // namespace
}  // namespace evn::test
