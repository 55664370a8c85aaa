#include "tests/cancellation/more_cases.h"

#include <cstring>

namespace evn::test {
namespace {

using conformance::Case;

Case strings_case(const std::string& op, int opset, std::int64_t count) {
  return Case(op, opset).in(DType::kString, {count}, 100, 999);
}

// A Constant whose value, in that attribute, has `count` elements.
Case constant_case(int opset, const char* attribute, std::int64_t count) {
  void* to = nullptr;
  const std::shared_ptr<Weight> value = make_weight({DType::kFloat64, {count}}, nullptr, &to);
  std::memset(to, 0, value->size_bytes);
  return Case("Constant", opset).attr(attribute, WeightPtr(value));
}

// What only hands bytes on does little for each.
void add_moves(std::vector<Case>* all) {
  constexpr std::int64_t kSide = 640, kArea = kSide * kSide;
  using conformance::kF64;
  all->push_back(Case("BitCast", 26).in(kF64, {kSide, kSide}).integer("to", EVN_DTYPE_INT64));
  all->push_back(Case("Identity", 13).in(kF64, {kSide, kSide}));
  all->push_back(Case("Flatten", 9).in(kF64, {2, kSide / 2, kSide}));
  for (const int opset : {5, 14}) all->push_back(Case("Reshape", opset).in(kF64, {kSide, kSide}).list({kArea}));
  all->push_back(Case("Squeeze", 11).in(kF64, {1, kSide, kSide}).ints("axes", {0}));
  all->push_back(Case("Unsqueeze", 11).in(kF64, {kSide, kSide}).ints("axes", {1}));
  all->push_back(Case("Split", 18).in(kF64, {kSide, kSide}).integer("num_outputs", 2).outputs(2));
  all->push_back(Case("CenterCropPad", 18).in(kF64, {kSide, kSide}).list({kSide, kSide - 2}));
  all->push_back(constant_case(1, "value", kArea));
  all->push_back(constant_case(11, "value", kArea));
  all->push_back(constant_case(13, "value", kArea));
}

// Whose indices must lie within what they point at.
void add_indices(std::vector<Case>* all) {
  using conformance::kI64;
  constexpr std::int64_t kMany = 40'000;
  all->push_back(Case("GatherElements", 11).x({kMany}).in(kI64, {kMany}, 0, kMany));
  for (const int opset : {11, 12}) all->push_back(Case("GatherND", opset).x({100, 4}).in(kI64, {kMany, 1}, 0, 100));
  all->push_back(Case("Scatter", 9).x({kMany}).in(kI64, {kMany}, 0, kMany).x({kMany}));
  for (const int opset : {11, 16, 18})
    all->push_back(Case("ScatterElements", opset).x({kMany}).in(kI64, {kMany}, 0, kMany).x({kMany}));
  for (const int opset : {11, 16, 18}) all->push_back(Case("ScatterND", opset).x({1000}).in(kI64, {kMany, 1}, 0, 1000).x({kMany}));
  for (const int opset : {9, 11}) all->push_back(Case("Compress", opset).x({kMany}).in(DType::kBool, {kMany}));
  all->push_back(Case("NegativeLogLikelihoodLoss", 13).x({kMany, 3}).in(kI64, {kMany}, 0, 3));
  all->push_back(Case("MaxUnpool", 9)
                     .x({1, 1, 200, 200})
                     .in(kI64, {1, 1, 200, 200}, 0, 1000)
                     .ints("kernel_shape", {2, 2})
                     .ints("strides", {2, 2}));
  all->push_back(Case("com.microsoft::GatherBlockQuantized", 1)
                     .constant(DType::kInt4, {6, 40})
                     .in(kI64, {2000}, 0, 6)
                     .w({6, 3}, 0.01, 0.1)
                     .integer("block_size", 16));
  all->push_back(Case("com.microsoft::Unique", 1).x({5000}, -1000, 1000).outputs(3));
}

}  // namespace

std::vector<Case> more_cases() {
  std::vector<Case> all;
  add_moves(&all);
  add_indices(&all);
  all.push_back(Case("com.microsoft::FusedConv", 1)
                    .x({64, 4, 6, 5})
                    .w({4, 2, 3, 3})
                    .w({4})
                    .x({64, 4, 4, 3})
                    .integer("group", 2)
                    .word("activation", "Relu"));
  all.push_back(strings_case("StringConcat", 20, 40'000).in(DType::kString, {40'000}, 1, 9));
  all.push_back(strings_case("StringSplit", 20, 10'000).outputs(2).word("delimiter", "5"));
  all.push_back(strings_case("StringNormalizer", 10, 10'000).word("case_change_action", "UPPER"));
  all.push_back(strings_case("RegexFullMatch", 20, 10'000).word("pattern", "[0-4]+5*"));
  all.push_back(strings_case("ai.onnx.ml::CategoryMapper", 1, 40'000)
                    .ints("cats_int64s", {1, 2})
                    .attr("cats_strings", std::vector<std::string>{"101", "102"}));
  all.push_back(strings_case("com.microsoft::Tokenizer", 1, 10'000)
                    .integer("mark", 1)
                    .integer("mincharnum", 1)
                    .word("pad_value", "#")
                    .attr("separators", std::vector<std::string>{"5"}));
  return all;
}

}  // namespace evn::test
