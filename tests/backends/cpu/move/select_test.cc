// Where, logic and comparisons on the CPU.
#include <limits>

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

TEST(CpuWhere, EveryWidthAndStep) {
  const auto check = [&]<typename T>(T) {
    std::vector<T> x(600), z(600);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<T>(i * 37 + 1);
      z[i] = static_cast<T>(i * 91 + 2);
    }
    const std::vector<T> one = {x[7]}, other = {z[9]};
    KernelCheck("Where", 16).bools({600}, bits(600, 3)).input_of<T>({600}, x).template input_of<T>({600}, z).kernel("where").run();
    KernelCheck("Where", 16).bools({600}, bits(600, 3)).input_of<T>({600}, x).template input_of<T>({}, other).kernel("where").run();
    KernelCheck("Where", 16).bools({600}, bits(600, 3)).input_of<T>({1}, one).template input_of<T>({600}, z).kernel("where").run();
    KernelCheck("Where", 16)
        .bools({20, 1}, bits(20, 3))
        .input_of<T>({20, 30}, x)
        .template input_of<T>({30, 20, 1}, z)
        .kernel("where")
        .run();
  };
  check(std::uint8_t{});
  check(std::int16_t{});
  check(std::int32_t{});
  check(std::int64_t{});
}

TEST(CpuLogic, BroadcastsBothInputs) {
  for (const auto& [op, kernel] : {std::pair{"Or", "or"}, {"Xor", "xor"}, {"And", "and"}}) {
    KernelCheck(op, 7).bools({5, 1, 70}, bits(350, 3)).bools({40, 1}, bits(40, 2)).kernel(kernel).run();
    KernelCheck(op, 7).bools({5, 70}, bits(350, 3)).bools({5, 70}, bits(350, 2)).kernel(kernel).run();
    KernelCheck(op, 7).bools({}, {1}).bools({5, 70}, bits(350, 2)).kernel(kernel).run();
  }
}

TEST(CpuCompare, InfinitiesAndNaN) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float specials[] = {0, nan, 1, inf, std::numeric_limits<float>::max(), -inf, -nan};
  std::vector<float> x;
  for (std::size_t i = 0; i < 300; ++i) x.push_back(specials[i % std::size(specials)]);
  KernelCheck("IsNaN").input_of<float>({300}, x).kernel("is_nan").run();
  for (const std::int64_t negative : {0, 1}) {
    for (const std::int64_t positive : {0, 1}) {
      KernelCheck("IsInf", 10)
          .input_of<float>({300}, x)
          .integer("detect_negative", negative)
          .integer("detect_positive", positive)
          .kernel("is_inf")
          .run();
    }
  }
}

TEST(CpuCompare, EveryTypeAndStep) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  std::vector<float> x = {nan, inf, -inf, 0.0f, -0.0f, 1.0f}, z = {nan, inf, inf, -0.0f, 0.0f, nan};
  std::vector<std::int64_t> a, b;
  std::vector<std::int32_t> c, d;
  Random random(5);
  while (x.size() < 300) {
    x.push_back(static_cast<float>(random.next() % 5));
    z.push_back(static_cast<float>(random.next() % 5));
  }
  for (int i = 0; i < 300; ++i) {
    a.push_back(static_cast<std::int64_t>(random.next() >> 62) - (std::int64_t{1} << 62));
    b.push_back(static_cast<std::int64_t>(random.next() >> 62) - (std::int64_t{1} << 62));
    c.push_back(static_cast<std::int32_t>(a.back()));
    d.push_back(static_cast<std::int32_t>(b.back()));
  }
  const std::pair<const char*, const char*> ops[] = {{"Equal", "equal"},
                                                     {"Less", "less"},
                                                     {"Greater", "greater"},
                                                     {"LessOrEqual", "less_or_equal"},
                                                     {"GreaterOrEqual", "greater_or_equal"}};
  for (const auto& [op, kernel] : ops) {
    const auto check = [&, op = op, kernel = kernel]<typename T>(const std::vector<T>& p, const std::vector<T>& q) {
      const std::vector<T> one = {q[3]};
      KernelCheck(op, 16).input_of<T>({300}, p).template input_of<T>({300}, q).kernel(kernel).run();
      KernelCheck(op, 16).input_of<T>({300}, p).template input_of<T>({}, one).kernel(kernel).run();
      KernelCheck(op, 16).input_of<T>({1}, one).template input_of<T>({300}, q).kernel(kernel).run();
      KernelCheck(op, 16).input_of<T>({10, 30}, p).template input_of<T>({300, 1, 1}, q).kernel(kernel).run();
    };
    check(x, z);
    check(a, b);
    check(c, d);
  }
}

}  // namespace
}  // namespace evn::test
