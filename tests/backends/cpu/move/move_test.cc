// Operators that move elements, and Resize, on the CPU.
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

template <typename T>
std::vector<T> counting(std::int64_t n) {
  std::vector<T> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<T>(i * 7 % 251);
  return v;
}

template <typename T>
void transpose(const Shape& x, std::vector<std::int64_t> perm) {
  KernelCheck("Transpose").input_of<T>(x, counting<T>(x.elements())).ints("perm", std::move(perm)).kernel("transpose").run();
}

TEST(CpuMove, TransposesOfEveryElementSize) {
  const std::pair<Shape, std::vector<std::int64_t>> cases[] = {{Shape{33, 70}, {1, 0}},
                                                               {Shape{2, 20, 30, 3}, {0, 3, 1, 2}},
                                                               {Shape{2, 3, 20, 30}, {0, 2, 3, 1}},
                                                               {Shape{2, 5, 4, 16}, {0, 2, 1, 3}},
                                                               {Shape{2, 5, 4, 16}, {0, 2, 3, 1}},
                                                               {Shape{3, 4, 5}, {2, 1, 0}},
                                                               {Shape{3, 4, 5}, {0, 1, 2}},
                                                               {Shape{300, 200}, {1, 0}},
                                                               {Shape{1, 7, 1, 9}, {3, 2, 1, 0}},
                                                               {Shape{2, 3, 4, 5, 6}, {4, 2, 0, 3, 1}}};
  for (const auto& [shape, perm] : cases) {
    transpose<float>(shape, perm);
    transpose<std::uint8_t>(shape, perm);
    transpose<std::int16_t>(shape, perm);
    transpose<std::int64_t>(shape, perm);
  }
  KernelCheck("Transpose").input(Shape{40, 50}).step(EpilogueOpKind::kRelu).kernel("transpose").run();
}

TEST(CpuMove, TilesOfEveryElementSize) {
  const std::pair<Shape, std::vector<std::int64_t>> cases[] = {{Shape{}, {}},
                                                               {Shape{7}, {5}},
                                                               {Shape{1}, {100}},
                                                               {Shape{3, 5}, {4, 1}},
                                                               {Shape{3, 5}, {1, 4}},
                                                               {Shape{3, 5}, {2, 3}},
                                                               {Shape{1, 1, 9}, {1, 7, 1}},
                                                               {Shape{2, 3, 4}, {1, 1, 1}},
                                                               {Shape{2, 3, 2, 2}, {2, 2, 2, 2}},
                                                               {Shape{3, 0}, {2, 2}},
                                                               {Shape{3, 4}, {0, 2}},
                                                               {Shape{5, 40, 27}, {2, 3, 2}},  // several tiles
                                                               {Shape{2, 37, 50}, {5, 3, 7}},
                                                               {Shape{2, 2, 2, 2, 2, 2, 2, 2}, {2, 2, 2, 2, 2, 2, 2, 2}}};
  for (const auto& [shape, repeats] : cases) {
    const Shape length{static_cast<std::int64_t>(repeats.size())};
    const auto tile = [&]<typename T>(T) {
      KernelCheck("Tile")
          .input_of<T>(shape, counting<T>(shape.elements()))
          .template input_of<std::int64_t>(length, repeats, true)
          .kernel("tile")
          .run();
    };
    tile(float{});
    tile(std::uint8_t{});
    tile(std::int16_t{});
    tile(std::int64_t{});
  }
  KernelCheck("Tile")
      .input(Shape{30, 50})
      .input_of<std::int64_t>(Shape{2}, {3, 40}, true)
      .step(EpilogueOpKind::kRelu)
      .kernel("tile")
      .run();
}

TEST(CpuMove, BlocksBetweenDepthAndSpace) {
  for (const std::int64_t block : {1, 2, 3}) {
    for (const char* mode : {"DCR", "CRD"}) {
      KernelCheck("DepthToSpace")
          .input(Shape{2, 3 * block * block, 5, 7})
          .integer("blocksize", block)
          .attribute("mode", std::string(mode))
          .kernel("depth_to_space")
          .run();
    }
    KernelCheck("SpaceToDepth").input(Shape{2, 3, 5 * block, 7 * block}).integer("blocksize", block).kernel("space_to_depth").run();
    KernelCheck("SpaceToDepth")
        .input_of<std::uint8_t>(Shape{1, 2, 4 * block, 2 * block}, counting<std::uint8_t>(16 * block * block))
        .integer("blocksize", block)
        .kernel("space_to_depth")
        .run();
  }
}

void slice(const Shape& x, std::vector<std::int64_t> starts, std::vector<std::int64_t> ends, std::vector<std::int64_t> axes,
           std::vector<std::int64_t> steps) {
  const Shape n{static_cast<std::int64_t>(starts.size())};
  KernelCheck("Slice")
      .input(x)
      .input_of<std::int64_t>(n, starts)
      .input_of<std::int64_t>(n, ends)
      .input_of<std::int64_t>(n, axes)
      .input_of<std::int64_t>(n, steps)
      .kernel("slice")
      .run();
}

TEST(CpuMove, SlicesWithStepsOfAnySign) {
  slice(Shape{4, 20, 30}, {1}, {3}, {0}, {1});
  slice(Shape{4, 20, 30}, {5}, {-2}, {1}, {1});
  slice(Shape{4, 20, 30}, {2, 3}, {20, 29}, {1, 2}, {3, 2});
  slice(Shape{4, 20, 30}, {-1, -1}, {-100, -100}, {2, 0}, {-1, -2});
  slice(Shape{2, 8, 40, 50}, {0}, {4}, {1}, {1});
  KernelCheck("Slice", 9)
      .input(Shape{5, 6})
      .ints("starts", {1})
      .ints("ends", {4})
      .step(EpilogueOpKind::kScale, 2)
      .kernel("slice")
      .run();
}

TEST(CpuMove, ExpandRepeats) {
  KernelCheck("Expand").input(Shape{3, 1, 5}).input_of<std::int64_t>(Shape{4}, {2, 3, 40, 5}).kernel("expand").run();
  KernelCheck("Expand").input_of<std::int64_t>(Shape{1}, {42}).input_of<std::int64_t>(Shape{2}, {9, 9}).kernel("expand").run();
}

TEST(CpuMove, ConcatOnEveryAxis) {
  for (std::int64_t axis : {0, 1, 2, -1}) {
    std::int64_t d[3] = {3, 4, 5};
    KernelCheck c("Concat");
    for (std::int64_t extent : {1, 6, 2}) {
      Shape s{d[0], d[1], d[2]};
      s[static_cast<int>((axis + 3) % 3)] = extent;
      c.input(s);
    }
    c.integer("axis", axis).step(EpilogueOpKind::kOffset, 1).kernel("concat").run();
  }
  KernelCheck("Concat").input(Shape{2, 3, 200, 200}).input(Shape{2, 5, 200, 200}).integer("axis", 1).kernel("concat").run();
  KernelCheck("Concat")
      .input_of<std::int64_t>(Shape{2}, {1, 2})
      .input_of<std::int64_t>(Shape{1}, {3})
      .integer("axis", 0)
      .kernel("concat")
      .run();
}

TEST(CpuMove, ConcatOfWideRowsAndOfNothing) {
  for (const std::int64_t axis : {1, 2}) {
    KernelCheck("Concat")
        .input(Shape{1, 40, 40, 30})
        .input(Shape{1, 40, 40, 30})
        .integer("axis", axis)
        .step(EpilogueOpKind::kRelu)
        .kernel("concat")
        .run();
  }
  KernelCheck("Concat").input(Shape{2, 0, 5, 6}).input(Shape{2, 3, 5, 6}).integer("axis", 1).kernel("concat").run();
  KernelCheck("Concat")
      .input_of<std::uint8_t>(Shape{1, 3, 2, 2}, counting<std::uint8_t>(12))
      .input_of<std::uint8_t>(Shape{1, 4, 2, 2}, counting<std::uint8_t>(16))
      .integer("axis", 1)
      .kernel("concat")
      .run();
}

TEST(CpuMove, GatherOfBlocksAndOfChannels) {
  const auto gather = [](Shape x, std::vector<std::int64_t> indices, std::int64_t axis) {
    const Shape n{static_cast<std::int64_t>(indices.size())};
    KernelCheck("Gather").input(x).input_of<std::int64_t>(n, indices).integer("axis", axis).kernel("gather").run();
    KernelCheck("Gather")
        .input_of<std::uint8_t>(x, counting<std::uint8_t>(x.elements()))
        .input_of<std::int64_t>(n, indices)
        .integer("axis", axis)
        .kernel("gather")
        .run();
  };
  for (const std::int64_t axis : {0, 1, 2, -1}) gather(Shape{4, 5, 6, 7}, {3, 0, -1, 2, 2}, axis);
  for (const std::int64_t groups : {2, 3, 4, 12, 30}) {
    std::vector<std::int64_t> shuffle;
    for (std::int64_t i = 0; i < 60; ++i) shuffle.push_back(i % groups * (60 / groups) + i / groups);
    gather(Shape{2, 60, 9, 7}, shuffle, 1);
  }
  KernelCheck("Gather")
      .input(Shape{4, 5, 6})
      .input_of<std::int32_t>(Shape{2, 2}, {1, 3, 0, 4})
      .integer("axis", 1)
      .kernel("gather")
      .run();
}

TEST(CpuMove, PadsAndCropsOnEveryAxis) {
  const std::vector<std::int64_t> amounts[] = {{0, 0, 1, 1, 0, 0, 1, 1},
                                               {0, 0, 0, 0, 0, 24, 0, 0},
                                               {1, 0, 2, 0, 0, 3, 0, 4},
                                               {0, -1, -2, 3, 0, 2, 1, -4},
                                               {0, 0, 0, 0, 0, 0, 0, 0}};
  for (const auto& pads : amounts) {
    KernelCheck("Pad", 11)
        .input(Shape{2, 20, 9, 11})
        .input_of<std::int64_t>(Shape{8}, pads, true)
        .input_of<float>(Shape{}, {1.5f}, true)
        .kernel("pad")
        .run();
    KernelCheck("Pad", 18)
        .input_of<std::uint8_t>(Shape{2, 20, 9, 11}, counting<std::uint8_t>(3960))
        .input_of<std::int64_t>(Shape{8}, pads, true)
        .kernel("pad")
        .run();
    KernelCheck("Pad", 2).input(Shape{2, 20, 9, 11}).ints("pads", pads).real("value", -2).kernel("pad").run();
  }
  const std::vector<std::int64_t> mirrored[] = {
      {0, 0, 1, 1, 0, 0, 1, 1}, {1, 3, 12, 0, 0, 0, 9, 64}, {0, -1, -2, 3, 0, 2, 1, -4}, {0, 0, 0, 0, 0, 0, 0, 0}};
  for (const char* mode : {"reflect", "edge", "wrap"}) {
    for (const auto& pads : mirrored) {
      KernelCheck("Pad", 19)
          .input(Shape{2, 20, 9, 11})
          .input_of<std::int64_t>(Shape{8}, pads, true)
          .attribute("mode", std::string(mode))
          .kernel("pad")
          .run();
      KernelCheck("Pad", 19)
          .input_of<std::uint8_t>(Shape{2, 20, 9, 11}, counting<std::uint8_t>(3960))
          .attribute("mode", std::string(mode))
          .input_of<std::int64_t>(Shape{8}, pads, true)
          .kernel("pad")
          .run();
    }
  }
  KernelCheck("Pad", 13)
      .input_of<std::int64_t>(Shape{5}, {1, 2, 3, 4, 5})
      .input_of<std::int64_t>(Shape{2}, {2, -1}, true)
      .kernel("pad")
      .run();
}

TEST(CpuMove, SplitOnEveryAxis) {
  for (const std::int64_t axis : {0, 1, 2, -1}) {
    KernelCheck("Split", 11)
        .input(Shape{6, 6, 6, 6})
        .integer("axis", axis)
        .ints("split", {1, 3, 2})
        .outputs(3)
        .kernel("split")
        .run();
    KernelCheck("Split", 13)
        .input(Shape{6, 6, 6, 6})
        .input_of<std::int64_t>(Shape{3}, {1, 3, 2}, true)
        .integer("axis", axis)
        .outputs(3)
        .kernel("split")
        .run();
    KernelCheck("Split", 13).input(Shape{2, 116, 28, 28}).integer("axis", axis).outputs(2).kernel("split").run();
  }
  KernelCheck("Split", 13)
      .input_of<std::int64_t>(Shape{2, 6, 9}, counting<std::int64_t>(108))
      .integer("axis", 1)
      .outputs(3)
      .kernel("split")
      .run();
  KernelCheck("Split", 13)
      .input_of<std::uint8_t>(Shape{2, 6, 9}, counting<std::uint8_t>(108))
      .integer("axis", 1)
      .outputs(2)
      .kernel("split")
      .run();
  KernelCheck("Split", 13)
      .input(Shape{5, 4})
      .input_of<std::int64_t>(Shape{2}, {0, 4}, true)
      .integer("axis", 1)
      .outputs(2)
      .kernel("split")
      .run();
}

TEST(CpuResize, NearestOfEveryRule) {
  for (const char* rule : {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"}) {
    for (const char* coordinates : {"asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"}) {
      KernelCheck("Resize")
          .input(Shape{2, 3, 7, 9})
          .absent()
          .input_of<float>(Shape{4}, {1, 1, 2, 1.5f}, true)
          .attribute("nearest_mode", std::string(rule))
          .attribute("coordinate_transformation_mode", std::string(coordinates))
          .kernel("resize")
          .run();
    }
  }
  KernelCheck("Resize")
      .input(Shape{1, 3, 40, 60})
      .absent()
      .input_of<float>(Shape{4}, {1, 2, 2, 2}, true)
      .attribute("coordinate_transformation_mode", std::string("asymmetric"))
      .attribute("nearest_mode", std::string("floor"))
      .step(EpilogueOpKind::kRelu)
      .kernel("resize")
      .run();
  KernelCheck("Upsample", 9).input(Shape{1, 3, 5, 6}).input_of<float>(Shape{4}, {1, 1, 3, 2}, true).kernel("upsample").run();
  KernelCheck("Resize", 10).input(Shape{1, 3, 8, 8}).input_of<float>(Shape{4}, {1, 1, 0.5f, 2}, true).kernel("resize").run();
}

TEST(CpuResize, LinearOverTheLastTwoAxes) {
  for (const char* coordinates : {"asymmetric", "half_pixel", "align_corners"}) {
    KernelCheck("Resize")
        .input(Shape{2, 3, 7, 9})
        .absent()
        .absent()
        .input_of<std::int64_t>(Shape{4}, {2, 3, 15, 5}, true)
        .attribute("mode", std::string("linear"))
        .attribute("coordinate_transformation_mode", std::string(coordinates))
        .kernel("resize")
        .run();
  }
  KernelCheck("Resize")
      .input(Shape{2, 3, 7, 9})
      .absent()
      .input_of<float>(Shape{4}, {2, 1, 2, 2}, true)
      .attribute("mode", std::string("linear"))
      .kernel("reference")
      .run();
  KernelCheck("Resize")
      .input(Shape{2, 3, 7, 9})
      .absent()
      .input_of<float>(Shape{4}, {1, 1, 2, 2}, true)
      .attribute("mode", std::string("cubic"))
      .kernel("reference")
      .run();
}

}  // namespace
}  // namespace evn::test
