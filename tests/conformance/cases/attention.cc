// Attention and RotaryEmbedding.
#include "tests/conformance/case.h"

namespace evn::conformance {

// What a FlexAttention is taken apart into.
static void add_flex(Cases* all) {
  for (const DType d : {kF32, kF64, DType::kFloat16, DType::kBfloat16}) {
    all->push_back(Case("evener::FlexScores", 1).in(d, {2, 4, 3, 8}).in(d, {2, 2, 5, 8}).batch());
    all->push_back(Case("evener::FlexOutput", 1).in(d, {2, 4, 3, 5}).in(d, {2, 2, 5, 6}));
  }
  all->push_back(Case("evener::FlexScores", 1)
                     .x({1, 1, 3, 8})
                     .x({1, 1, 2, 8})
                     .real("scale", 0.5f)
                     .integer("softmax_precision", EVN_DTYPE_FLOAT64));
}

// What graph/passes/fuse_attention makes.
static void add_fused(Cases* all) {
  const auto of = [] { return Case("evener::Attention", 1); };
  all->push_back(of().x({2, 4, 7, 8}).x({2, 4, 20, 8}).x({2, 4, 20, 12}).real("scale", 0.4f).batch(7));
  all->push_back(of().x({2, 4, 1, 20}).x({2, 4, 35, 20}).x({2, 4, 35, 16}).x({2, 1, 1, 35}).real("scale", 0.3f).batch(15));
  all->push_back(of().x({2, 9, 3, 16})
                     .x({2, 18, 3, 16})
                     .x({2, 18, 3, 16})
                     .x({9, 18})
                     .ints("q_perm", {0, 2, 1, 3})
                     .ints("k_perm", {0, 2, 1, 3})
                     .ints("v_perm", {0, 2, 1, 3})
                     .ints("y_perm", {0, 2, 1, 3})
                     .real("scale", 0.25f)
                     .batch(7));
  all->push_back(of().x({1, 2, 9, 6}).x({1, 2, 6, 18}).x({1, 2, 18, 5}).ints("k_perm", {0, 1, 3, 2}));
  all->push_back(of().x({1, 2, 9, 6}).x({1, 2, 18, 6}).x({1, 2, 5, 18}).ints("v_perm", {0, 1, 3, 2}));
  const auto view = [](std::int64_t offset) { return Ints{1, 3, 7, 8, 0, 8, 72, 1, offset}; };
  all->push_back(
      of().x({7, 1, 72}).x({7, 72}).x({1, 7, 72}).ints("q_view", view(0)).ints("k_view", view(24)).ints("v_view", view(48)));
}

// What graph/gradient puts in (ops/training/attention_gradient.h): of 4 heads, and 2 of keys and values, unless there are others.
static Case attention_gradient(DType d = kF32, std::int64_t queries = 9, std::int64_t keys = 21) {
  return Case("evener::AttentionGradient", 1).in(d, {2, 4, queries, 19}).in(d, {2, 2, keys, 19}).in(d, {2, 2, keys, 6});
}

static void add_gradients(Cases* all) {
  const auto with_dy = [](Case c, DType d = kF32, std::int64_t queries = 9) { return c.in(d, {2, 4, queries, 6}).outputs(3); };
  const auto masked = [](Case c) { return c.absent().absent().absent(); };
  for (const DType d : {kF32, kF64}) {
    all->push_back(with_dy(masked(attention_gradient(d).absent()), d).batch(135));
    all->push_back(with_dy(masked(attention_gradient(d).in(d, {9, 21})), d).outputs(4));
  }
  all->push_back(with_dy(masked(attention_gradient(kF32, 200, 200).absent()), kF32, 200).integer("is_causal", 1));
  all->push_back(with_dy(masked(attention_gradient(kF32, 70, 600).absent()), kF32, 70).real("softcap", 1.5f).real("scale", 0.2f));
  all->push_back(with_dy(masked(attention_gradient().in(DType::kBool, {2, 1, 9, 21}, 0, 2))).integer("is_causal", 1));
  for (const Shape& mask : {Shape{4, 1, 17}, Shape{2, 1, 9, 21}, Shape{1, 4, 9, 20}, Shape{2, 4, 1, 21}, Shape{5}}) {
    all->push_back(with_dy(masked(attention_gradient().x(mask))).outputs(4));
  }
  all->push_back(with_dy(masked(attention_gradient().x({9, 21}))).outputs(4).integer("is_causal", 1).real("softcap", 3.0f));
  all->push_back(with_dy(masked(attention_gradient().absent())).integer("left_window_size", 3).integer("right_window_size", 2));
  all->push_back(with_dy(attention_gradient().absent().absent().absent().list({21, 12})).integer("is_causal", 1));
  all->push_back(with_dy(attention_gradient().x({9, 21}).absent().absent().list({5, 0}))
                     .integer("left_window_size", 4)
                     .integer("right_window_size", 0)
                     .outputs(4));
  all->push_back(masked(Case("evener::AttentionGradient", 1).x({2, 3, 24}).x({2, 50, 12}).x({2, 50, 8}).absent())
                     .x({2, 3, 16})
                     .integer("q_num_heads", 4)
                     .integer("kv_num_heads", 2)
                     .outputs(3));
}

void add_attention_cases(Cases* all) {
  add_flex(all);
  add_fused(all);
  add_gradients(all);
  for (const DType d : {kF32, kF64}) {
    all->push_back(Case("Attention", 23).in(d, {2, 4, 3, 5}).in(d, {2, 2, 6, 5}).in(d, {2, 2, 6, 7}).batch(7));
    all->push_back(Case("Attention", 24)
                       .in(d, {2, 3, 8})
                       .in(d, {2, 6, 8})
                       .in(d, {2, 6, 4})
                       .in(d, {3, 4})
                       .integer("q_num_heads", 2)
                       .integer("kv_num_heads", 2)
                       .real("softcap", 2)
                       .integer("qk_matmul_output_mode", 1)
                       .outputs(4));
    for (const bool interleaved : {false, true}) {
      all->push_back(Case("RotaryEmbedding", 23)
                         .in(d, {2, 3, 4, 8})
                         .in(d, {2, 4, 3})
                         .in(d, {2, 4, 3})
                         .integer("rotary_embedding_dim", 6)
                         .integer("interleaved", interleaved ? 1 : 0)
                         .batch(7));
    }
  }
  all->push_back(Case("Attention", 23)
                     .x({1, 2, 3, 4})
                     .x({1, 2, 3, 4})
                     .x({1, 2, 3, 4})
                     .absent()
                     .x({1, 2, 5, 4})
                     .x({1, 2, 5, 4})
                     .integer("is_causal", 1)
                     .integer("qk_matmul_output_mode", 3)
                     .outputs(4));
  for (const int precision : {EVN_DTYPE_FLOAT32, EVN_DTYPE_FLOAT64, EVN_DTYPE_FLOAT16, EVN_DTYPE_BFLOAT16}) {
    all->push_back(
        Case("Attention", 23).x({2, 4, 3, 5}).x({2, 2, 6, 5}).x({2, 2, 6, 7}).integer("softmax_precision", precision).batch(7));
  }
  all->push_back(Case("Attention", 24).x({2, 4, 3, 8}).x({2, 2, 20, 8}).x({2, 2, 20, 8}).x({3, 20}).real("softcap", 2));
  // A single query, whose heads stand in the place of rows.
  for (const Shape& mask : {Shape{2, 8, 1, 70}, Shape{1, 1, 1, 70}, Shape{8, 1, 70}}) {
    all->push_back(Case("Attention", 23).x({2, 8, 1, 20}).x({2, 2, 70, 20}).x({2, 2, 70, 12}).in(DType::kBool, mask));
  }
  all->push_back(Case("Attention", 23)
                     .x({2, 1, 7 * 16})
                     .x({2, 1, 16})
                     .x({2, 1, 16})
                     .x({2, 7, 1, 67})
                     .x({2, 1, 66, 16})
                     .x({2, 1, 66, 16})
                     .integer("q_num_heads", 7)
                     .integer("kv_num_heads", 1)
                     .integer("is_causal", 1)
                     .outputs(3));
  // A mask that hides new keys and some of the past ones.
  for (const std::int64_t columns : {2, 9}) {
    all->push_back(Case("Attention", 23)
                       .x({2, 4, 3, 16})
                       .x({2, 2, 2, 16})
                       .x({2, 2, 2, 16})
                       .x({3, columns})
                       .x({2, 2, 12, 16})
                       .x({2, 2, 12, 16})
                       .outputs(3));
  }
  all->push_back(Case("Attention", 25)
                     .x({2, 2, 3, 4})
                     .x({2, 2, 6, 4})
                     .x({2, 2, 6, 4})
                     .in(DType::kBool, {2, 1, 3, 6})
                     .absent()
                     .absent()
                     .list({4, 6})
                     .integer("left_window_size", 2)
                     .integer("right_window_size", 1));
  for (const Shape& mask : {Shape{9, 40}, Shape{2, 1, 9, 33}, Shape{4, 1, 40}}) {
    all->push_back(Case("Attention", 23).x({2, 4, 9, 20}).x({2, 2, 40, 20}).x({2, 2, 40, 12}).x(mask).integer("is_causal", 1));
  }
  all->push_back(Case("Attention", 23)
                     .x({2, 7, 24})
                     .x({2, 30, 12})
                     .x({2, 30, 8})
                     .integer("q_num_heads", 4)
                     .integer("kv_num_heads", 2)
                     .batch(7));
  all->push_back(Case("Attention", 23).x({1, 3, 70, 16}).x({1, 3, 300, 16}).x({1, 3, 300, 33}).real("scale", 0.5f));
  all->push_back(Case("RotaryEmbedding", 23)
                     .x({2, 4, 12})
                     .x({9, 2})
                     .x({9, 2})
                     .literal({kI64, {2, 4}}, {0, 1, 2, 3, 8, 7, 6, 5})
                     .integer("num_heads", 3));
}

}  // namespace evn::conformance
