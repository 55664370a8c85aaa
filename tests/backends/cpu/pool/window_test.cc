// Pools on the CPU.
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

struct Pool2d {
  std::int64_t h, w;
  std::vector<std::int64_t> kernel, strides, pads;
  std::int64_t ceil_mode;
};

const Pool2d kPools[] = {
    {8, 8, {2, 2}, {2, 2}, {0, 0, 0, 0}, 0},   {15, 33, {3, 3}, {2, 2}, {1, 1, 1, 1}, 0}, {15, 34, {3, 3}, {2, 2}, {0, 0, 0, 0}, 1},
    {20, 70, {3, 3}, {1, 1}, {1, 1, 1, 1}, 0}, {9, 9, {5, 5}, {1, 1}, {2, 2, 2, 2}, 0},   {24, 40, {2, 1}, {2, 1}, {0, 0, 0, 0}, 0},
    {12, 13, {4, 3}, {3, 4}, {2, 1, 0, 2}, 1}, {7, 7, {7, 7}, {1, 1}, {0, 0, 0, 0}, 0},   {13, 75, {2, 2}, {2, 2}, {1, 1, 0, 0}, 0},
    {9, 91, {3, 3}, {2, 2}, {2, 2, 2, 2}, 1},  {40, 64, {3, 2}, {1, 2}, {1, 0, 1, 0}, 0}, {11, 70, {1, 3}, {3, 2}, {0, 0, 0, 1}, 1},
};

TEST(CpuPool, MaximumOfWindows) {
  for (const Pool2d& p : kPools) {
    KernelCheck("MaxPool")
        .input(Shape{2, 3, p.h, p.w})
        .ints("kernel_shape", p.kernel)
        .ints("strides", p.strides)
        .ints("pads", p.pads)
        .integer("ceil_mode", p.ceil_mode)
        .kernel("max_pool")
        .run();
  }
  KernelCheck("MaxPool").input(Shape{1, 2, 20, 20}).ints("kernel_shape", {3, 3}).ints("dilations", {2, 3}).kernel("max_pool").run();
  KernelCheck("MaxPool")
      .input(Shape{1, 2, 50})
      .ints("kernel_shape", {3})
      .ints("strides", {2})
      .step(EpilogueOpKind::kScale, 2)
      .kernel("max_pool")
      .run();
  KernelCheck("MaxPool")
      .input(Shape{1, 2, 20, 50})
      .ints("kernel_shape", {3, 3})
      .ints("strides", {2, 2})
      .ints("dilations", {2, 1})
      .kernel("max_pool")
      .run();
}

TEST(CpuPool, IndicesAreLeftToTheReference) {
  KernelCheck("MaxPool").input(Shape{1, 2, 8, 8}).ints("kernel_shape", {2, 2}).outputs(2).kernel("reference").run();
}

TEST(CpuPool, NaNIsTheMaximumOfItsWindow) {
  for (const std::int64_t stride : {1, 2, 3}) {
    for (const std::int64_t width : {8, 70}) {
      std::vector<float> x(static_cast<std::size_t>(8 * width), -1.0f);
      x[10] = std::nanf("");
      x[40] = 3;
      x[static_cast<std::size_t>(6 * width + 5)] = std::numeric_limits<float>::infinity();
      x[static_cast<std::size_t>(7 * width + 5)] = -std::numeric_limits<float>::infinity();
      KernelCheck("MaxPool")
          .input_of<float>(Shape{1, 1, 8, width}, x)
          .ints("kernel_shape", {3, 3})
          .ints("strides", {stride, stride})
          .ints("pads", {1, 1, 1, 1})
          .kernel("max_pool")
          .run();
    }
  }
}

TEST(CpuPool, NaNInAnyOfManyLines) {
  for (const std::int64_t kernel : {2, 3}) {
    std::vector<float> x(static_cast<std::size_t>(2 * 40 * 77));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 31) - 15;
    for (const std::size_t at : {0, 77 * 12 + 76, 77 * 13 + 40, 77 * 30, 77 * 79 + 76}) x[at] = std::nanf("");
    KernelCheck("MaxPool")
        .input_of<float>(Shape{1, 2, 40, 77}, x)
        .ints("kernel_shape", {kernel, kernel})
        .ints("strides", {2, 2})
        .ints("pads", {1, 1, 1, 1})
        .kernel("max_pool")
        .run();
  }
}

TEST(CpuPool, AverageOfWindows) {
  for (const Pool2d& p : kPools) {
    for (std::int64_t include : {0, 1}) {
      KernelCheck("AveragePool")
          .input(Shape{2, 3, p.h, p.w})
          .ints("kernel_shape", p.kernel)
          .ints("strides", p.strides)
          .ints("pads", p.pads)
          .integer("ceil_mode", p.ceil_mode)
          .integer("count_include_pad", include)
          .kernel("average_pool")
          .run();
    }
  }
}

TEST(CpuPool, WholePlanes) {
  for (std::int64_t hw : {1, 3, 7, 20}) {
    KernelCheck("GlobalAveragePool")
        .input(Shape{2, 50, hw, hw})
        .step(EpilogueOpKind::kOffset, 1)
        .kernel("global_average_pool")
        .run();
    KernelCheck("GlobalMaxPool").input(Shape{2, 50, hw, hw}).kernel("global_max_pool").run();
  }
}

// The scratch has a place for each position under a window of a line.
TEST(CpuPool, WideDilationsAreLeftToTheReference) {
  constexpr std::int64_t kWidest = 8192;  // of three taps
  const std::shared_ptr<Device> device = cpu_device(1);
  for (const char* op : {"MaxPool", "AveragePool"}) {
    const char* const name = op[0] == 'A' ? "average_pool" : "max_pool";
    for (const std::int64_t wide : {kWidest, kWidest + 1, std::int64_t{1} << 20, (std::int64_t{1} << 31) - 1}) {
      SCOPED_TRACE(std::string(op) + " " + std::to_string(wide));
      KernelSubject s;
      add_operand(&s, {DType::kFloat32, Shape{1, 1, 1}}, Bytes(sizeof(float), 1), false);
      const std::vector<std::int64_t> steps = {wide}, pads = {wide, wide}, taps = {3};
      finish_subject(&s, op, 19, {{"kernel_shape", taps}, {"dilations", steps}, {"strides", steps}, {"pads", pads}}, 1, {});
      ASSERT_EQ(s.outputs[0].shape, (Shape{1, 1, 1}));
      const std::vector<const Kernel*> kernels = supporting_kernels(*device, s.desc());
      if (wide > kWidest) {
        EXPECT_TRUE(kernels.empty()) << kernels[0]->name;
        const Kernel* const reference = device->reference_kernel(s.desc());
        ASSERT_NE(reference, nullptr);
        EXPECT_EQ(KernelRun(*device, *reference, s).run()[0], s.values[0]);
        continue;
      }
      ASSERT_EQ(kernels.size(), 1u);
      EXPECT_STREQ(kernels[0]->name, name);
      EXPECT_LE(KernelRun(*device, *kernels[0], s).plan().thread_scratch_bytes, std::size_t{2} << 20);
    }
    KernelCheck(op, 19)
        .input(Shape{1, 2, 9})
        .ints("kernel_shape", {3})
        .ints("dilations", {kWidest})
        .ints("strides", {4})
        .ints("pads", {kWidest, kWidest})
        .kernel(name)
        .run();
  }
}

struct Pool3d {
  Shape x;
  std::vector<std::int64_t> kernel, strides, pads;
  std::int64_t ceil_mode;
};

const Pool3d kVolumes[] = {
    {{2, 3, 4, 8, 8}, {2, 2, 2}, {2, 2, 2}, {0, 0, 0, 0, 0, 0}, 0},
    {{1, 2, 5, 9, 33}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1, 1, 1, 1}, 0},
    {{1, 2, 5, 9, 34}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1, 0, 1, 1}, 1},
    {{1, 1, 3, 20, 70}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}, 0},
    {{1, 2, 6, 12, 13}, {2, 4, 3}, {3, 3, 4}, {1, 2, 1, 0, 0, 2}, 1},
    {{1, 2, 3, 7, 7}, {3, 7, 7}, {1, 1, 1}, {0, 0, 0, 0, 0, 0}, 0},
};

TEST(CpuPool, Volumes) {
  for (const Pool3d& p : kVolumes) {
    for (const char* op : {"MaxPool", "AveragePool"}) {
      for (const std::int64_t counts_pads : {0, 1}) {
        KernelCheck c(op);
        c.input(p.x)
            .ints("kernel_shape", p.kernel)
            .ints("strides", p.strides)
            .ints("pads", p.pads)
            .integer("ceil_mode", p.ceil_mode);
        if (op[0] == 'A') c.integer("count_include_pad", counts_pads);
        c.step(EpilogueOpKind::kHardSwish, 1.0f / 6, 0.5f).kernel(op[0] == 'A' ? "average_pool" : "max_pool").run();
      }
    }
  }
  KernelCheck("MaxPool", 22)
      .input(Shape{1, 2, 9, 9, 9})
      .ints("kernel_shape", {2, 3, 3})
      .ints("dilations", {3, 2, 3})
      .kernel("max_pool")
      .run();
}

TEST(CpuPool, NaNIsTheMaximumOfItsVolume) {
  std::vector<float> x(4 * 6 * 10);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17);
  x[0] = x[77] = x[239] = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t stride : {1, 2, 3}) {
    KernelCheck("MaxPool")
        .input_of<float>(Shape{1, 1, 4, 6, 10}, x)
        .ints("kernel_shape", {2, 2, 3})
        .ints("strides", {1, stride, stride})
        .kernel("max_pool")
        .run();
  }
}

}  // namespace
}  // namespace evn::test
