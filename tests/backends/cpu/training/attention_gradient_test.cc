// The derivative of Attention against the reference, over instruction sets and threads, at sizes that are cut into blocks.
#include <functional>
#include <limits>

#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

struct Sizes {
  std::int64_t batch = 2, heads = 4, kv_heads = 2, queries = 9, keys = 21, depth = 19, value_depth = 6;
};

KernelCheck gradient(const Sizes& s, const std::function<void(KernelCheck*)>& add_mask = {}) {
  KernelCheck c("evener::AttentionGradient", 1);
  c.input({s.batch, s.heads, s.queries, s.depth}, false, -2, 2).input({s.batch, s.kv_heads, s.keys, s.depth}, false, -2, 2);
  c.input({s.batch, s.kv_heads, s.keys, s.value_depth});
  add_mask ? add_mask(&c) : static_cast<void>(c.absent());
  c.absent().absent().absent().input({s.batch, s.heads, s.queries, s.value_depth}).outputs(3).kernel("attention_gradient");
  return c;
}

TEST(AttentionGradientKernel, IsLikeTheReference) {
  gradient({}).run();
  gradient({1, 1, 1, 1, 1, 1, 1}).run();
  gradient({1, 3, 1, 300, 700, 8, 33}).run();
  gradient({3, 2, 2, 40, 17, 64, 64}).run();
}

TEST(AttentionGradientKernel, OfWhatIsHidden) {
  gradient({2, 2, 1, 260, 260, 16, 16}).integer("is_causal", 1).run();
  gradient({2, 2, 1, 150, 20, 16, 16}).integer("is_causal", 1).run();  // more queries than keys
  gradient({1, 2, 2, 90, 90, 16, 16}).integer("left_window_size", 5).integer("right_window_size", 0).run();
  const Sizes s{2, 4, 2, 33, 50, 8, 8};
  std::vector<std::uint8_t> hidden(static_cast<std::size_t>(s.queries * s.keys));
  for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = i / 50 % 7 != 3 && i % 3 != 0;  // some queries see nothing
  gradient(s, [&](KernelCheck* c) { c->bools({s.queries, s.keys}, hidden); }).run();
}

TEST(AttentionGradientKernel, OfMasksThatAreAdded) {
  const Sizes s{2, 4, 2, 33, 50, 8, 8};
  for (const Shape& mask : {Shape{33, 50}, Shape{2, 4, 33, 50}, Shape{4, 1, 50}, Shape{33, 31}, Shape{2, 1, 1, 50}}) {
    gradient(s, [&](KernelCheck* c) { c->input(mask); }).outputs(4).real("softcap", 2).run();
    gradient(s, [&](KernelCheck* c) { c->input(mask); }).integer("is_causal", 1).run();
  }
}

TEST(AttentionGradientKernel, OfHeadsThatLieSideBySide) {
  KernelCheck c("evener::AttentionGradient", 1);
  c.input({2, 70, 48}).input({2, 90, 24}).input({2, 90, 10}).absent().absent().absent().absent().input({2, 70, 20});
  c.integer("q_num_heads", 4).integer("kv_num_heads", 2).outputs(3).kernel("attention_gradient").run();
}

TEST(AttentionGradientKernel, PaddingMayBeAnything) {
  const Shape keys = {2, 2, 140, 16}, values = {2, 2, 140, 7};
  for (const std::vector<std::int64_t>& lengths : std::vector<std::vector<std::int64_t>>{{101, 12}, {0, 140}}) {
    for (const std::int64_t is_causal : {0, 1}) {
      const auto derivatives = [&](float padding) {
        KernelCheck c("evener::AttentionGradient", 1);
        c.input({2, 4, 130, 16}).input_of<float>(keys, padded_rows(keys, lengths, padding));
        c.input_of<float>(values, padded_rows(values, lengths, padding)).absent().absent().absent();
        c.input_of<std::int64_t>({2}, lengths).input({2, 4, 130, 7}).integer("is_causal", is_causal).real("softcap", 2);
        return c.outputs(3).kernel("attention_gradient").run();
      };
      const std::vector<Bytes> clean = derivatives(0);
      EXPECT_TRUE(derivatives(std::numeric_limits<float>::quiet_NaN()) == clean);
      EXPECT_TRUE(derivatives(-std::numeric_limits<float>::infinity()) == clean);
    }
  }
}

}  // namespace
}  // namespace evn::test
