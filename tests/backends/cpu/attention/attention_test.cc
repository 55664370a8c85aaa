// Attention on the CPU: the operator of ai.onnx and the fused one.
#include <limits>

#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

KernelCheck fused() { return KernelCheck("evener::Attention", 1).kernel("fused_attention"); }
KernelCheck standard(int opset = 23) { return KernelCheck("Attention", opset).kernel("attention"); }

TEST(CpuFusedAttention, QueriesKeysAndDepths) {
  for (const std::int64_t queries : {1, 2, 3, 4, 7, 13, 130}) {
    for (const std::int64_t keys : {1, 15, 16, 17, 64, 65, 130}) {
      fused().input({2, 3, queries, 24}).input({2, 3, keys, 24}).input({2, 3, keys, 40}).real("scale", 0.3f).run();
    }
  }
  for (const std::int64_t depth : {1, 8, 15, 16, 33, 64, 80, 128, 144, 150}) {
    fused().input({1, 2, 9, depth}).input({1, 2, 21, depth}).input({1, 2, 21, depth}).run();
    fused().input({1, 2, 1, depth}).input({1, 2, 21, depth}).input({1, 2, 21, depth}).run();
  }
}

TEST(CpuFusedAttention, AxesInAnyOrder) {
  fused()
      .input({2, 19, 3, 16})
      .input({2, 21, 3, 16})
      .input({2, 21, 3, 16})
      .ints("q_perm", {0, 2, 1, 3})
      .ints("k_perm", {0, 2, 1, 3})
      .ints("v_perm", {0, 2, 1, 3})
      .ints("y_perm", {2, 0, 1, 3})
      .run();
  for (const std::int64_t queries : {1, 19}) {
    fused()
        .input({queries, 2, 3, 16})
        .input({2, 3, 16, 21})
        .input({2, 3, 21, 16})
        .ints("q_perm", {1, 2, 0, 3})
        .ints("k_perm", {0, 1, 3, 2})
        .run();
  }
}

TEST(CpuFusedAttention, ViewsOfOnePackedTensor) {
  const auto view = [](std::int64_t offset) { return std::vector<std::int64_t>{1, 4, 19, 16, 0, 16, 192, 1, offset}; };
  fused()
      .input({19, 1, 192})
      .input({19, 192})
      .input({19 * 192})
      .ints("q_view", view(0))
      .ints("k_view", view(64))
      .ints("v_view", view(128))
      .run();
}

TEST(CpuFusedAttention, MasksBroadcastToEveryAxis) {
  for (const Shape& mask : {Shape{2, 3, 9, 21}, Shape{2, 1, 1, 21}, Shape{9, 21}, Shape{1, 3, 9, 1}, Shape{1}, Shape{}}) {
    fused().input({2, 3, 9, 16}).input({2, 3, 21, 16}).input({2, 3, 21, 16}).input(mask, false, -5, 5).run();
  }
}

TEST(CpuFusedAttention, OperandsBroadcastAsInMatMul) {
  fused().input({1, 3, 9, 16}).input({2, 1, 21, 16}).input({1, 1, 21, 16}).run();
  fused().input({1, 1, 1, 16}).input({1, 3, 1, 16}).input({4, 1, 21, 16}).input({1, 3, 9, 21}).run();
}

TEST(CpuFusedAttention, LargeNumbersDoNotOverflow) {
  fused().input({1, 2, 9, 16}, false, -20, 20).input({1, 2, 40, 16}, false, -20, 20).input({1, 2, 40, 16}).run();
  std::vector<float> mask(9 * 40, 0.0f);
  for (std::size_t i = 0; i < mask.size(); ++i)
    mask[i] = i % 3 == 0 ? -std::numeric_limits<float>::infinity() : i % 3 == 1 ? -1e30f : 0.0f;
  fused().input({1, 2, 9, 16}).input({1, 2, 40, 16}).input({1, 2, 40, 16}).input_of<float>({9, 40}, mask).run();
}

TEST(CpuFusedAttention, RowThatIsHiddenIsNoNumber) {
  const std::vector<float> mask(2 * 20, -std::numeric_limits<float>::infinity());
  fused().input({1, 1, 2, 8}).input({1, 1, 20, 8}).input({1, 1, 20, 8}).input_of<float>({2, 20}, mask).run();
}

TEST(CpuAttention, HeadsMasksAndPasts) {
  for (const std::int64_t queries : {1, 5, 40}) {
    standard().input({2, 4, queries, 16}).input({2, 2, 21, 16}).input({2, 2, 21, 24}).run();
    standard()
        .input({2, queries, 64})
        .input({2, 21, 32})
        .input({2, 21, 48})
        .integer("q_num_heads", 4)
        .integer("kv_num_heads", 2)
        .run();
    standard()
        .input({2, 4, queries, 16})
        .input({2, 2, 21, 16})
        .input({2, 2, 21, 16})
        .input({queries, 21}, false, -3, 3)
        .input({2, 2, 10, 16})
        .input({2, 2, 10, 16})
        .outputs(3)
        .run();
    standard()
        .input({2, 4, queries, 16})
        .input({2, 2, queries, 16})
        .input({2, 2, queries, 16})
        .absent()
        .input({2, 2, 10, 16})
        .input({2, 2, 10, 16})
        .integer("is_causal", 1)
        .outputs(3)
        .run();
  }
}

TEST(CpuAttention, CachesGoOnWithoutQueries) {
  for (const std::int64_t past : {0, 4}) {
    KernelCheck plain = standard(), packed = standard();
    plain.input({2, 4, 0, 8}).input({2, 2, 3, 8}).input({2, 2, 3, 6});
    packed.input({2, 0, 32}).input({2, 3, 16}).input({2, 3, 12}).integer("q_num_heads", 4).integer("kv_num_heads", 2);
    for (KernelCheck* check : {&plain, &packed}) {
      if (past > 0) check->absent().input({2, 2, past, 8}).input({2, 2, past, 6});
      check->outputs(3).run();
    }
  }
  standard().input({1, 2, 5, 8}).input({1, 2, 3, 8}).input({1, 2, 3, 0}).outputs(3).run();
}

TEST(CpuAttention, BoolMaskMayHideARow) {
  std::vector<std::uint8_t> mask(9 * 21, 1);
  for (std::size_t i = 0; i < 21; ++i) mask[3 * 21 + i] = 0;
  for (std::size_t i = 0; i < mask.size(); i += 4) mask[i] = 0;
  standard().input({1, 2, 9, 16}).input({1, 2, 21, 16}).input({1, 2, 21, 16}).bools({9, 21}, mask).run();
}

TEST(CpuAttention, WindowsAndLengths) {
  standard(25)
      .input({2, 2, 19, 16})
      .input({2, 2, 40, 16})
      .input({2, 2, 40, 16})
      .absent()
      .absent()
      .absent()
      .input_of<std::int64_t>({2}, {30, 25})
      .integer("left_window_size", 7)
      .integer("right_window_size", 2)
      .run();
  standard(24)
      .input({2, 2, 19, 16})
      .input({2, 2, 40, 16})
      .input({2, 2, 40, 16})
      .absent()
      .absent()
      .absent()
      .input_of<std::int64_t>({2}, {30, 0})
      .integer("is_causal", 1)
      .run();
}

TEST(CpuAttention, PaddingMayBeAnything) {
  const Shape rows = {2, 2, 40, 16};
  const std::vector<std::int64_t> lengths = {30, 0};
  for (const std::int64_t queries : {1, 19}) {
    const auto attention = [&](float padding) {
      KernelCheck c = standard(24);
      c.input({2, 4, queries, 16}).input_of<float>(rows, padded_rows(rows, lengths, padding));
      c.input_of<float>(rows, padded_rows(rows, lengths, padding)).absent().absent().absent().input_of<std::int64_t>({2}, lengths);
      return c.run();
    };
    EXPECT_TRUE(attention(std::numeric_limits<float>::quiet_NaN()) == attention(0));
  }
}

TEST(CpuAttention, WhatItDoesNotTakeGoesToTheReference) {
  KernelCheck("Attention", 23)
      .input({1, 2, 3, 8})
      .input({1, 2, 5, 8})
      .input({1, 2, 5, 8})
      .real("softcap", 2)
      .kernel("reference")
      .run();
  KernelCheck("Attention", 23).input({1, 2, 3, 8}).input({1, 2, 5, 8}).input({1, 2, 5, 8}).outputs(4).kernel("reference").run();
}

}  // namespace
}  // namespace evn::test
