// TfIdfVectorizer: skips, modes, and tables that do not fit together.
#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

// The example of ONNX's documentation: 2-grams of [94, 17, 36, 12, 28].
struct Tables {
  int skip = 0;
  const char* mode = "TF";
  Ints counts = {0, 0};
  Ints indexes = {1, 0, 2};
  Floats weights = {2, 3, 5};

  Op op() const {
    Op made("TfIdfVectorizer", 9);
    made.with("min_gram_length", 2).with("max_gram_length", 2).with("max_skip_count", skip).with("mode", mode);
    made.with("ngram_counts", counts).with("ngram_indexes", indexes).with("pool_int64s", Ints{94, 17, 17, 36, 94, 12});
    made.with("weights", AttributeValue(weights));
    return made;
  }
};

Op pairs(int skip, const char* mode = "TF") { return Tables{skip, mode}.op(); }

TEST(TfIdfVectorizer, CountsNGramsWithAndWithoutSkips) {
  const Tensor x = i64({94, 17, 36, 12, 28});
  EXPECT_EQ(pairs(0).run({x})[0].floats(), (Floats{1, 1, 0}));
  EXPECT_EQ(pairs(2).run({x})[0].floats(), (Floats{1, 1, 1}));
}

TEST(TfIdfVectorizer, WeighsByMode) {
  const Tensor x = i64({94, 17, 94, 17});
  EXPECT_EQ(pairs(0, "TFIDF").run({x})[0].floats(), (Floats{0, 4, 0}));  // the weight of the pair, not that of the place
  EXPECT_EQ(pairs(0, "IDF").run({x})[0].floats(), (Floats{0, 2, 0}));
}

TEST(TfIdfVectorizer, RefusesTablesThatDoNotFit) {
  const Tensor x = i64({1, 2, 3});
  EXPECT_EQ(pairs(-1).status({x}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(pairs(0, "tf").status({x}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ((Tables{0, "TF", {0, 9}}.op().status({x})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ((Tables{0, "TF", {0, 1}}.op().status({x})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ((Tables{0, "TF", {0, 0}, {1, 0}}.op().status({x})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ((Tables{0, "TF", {0, 0}, {1, 0, -2}}.op().status({x})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ((Tables{0, "TF", {0, 0}, {1, 0, INT64_MAX}}.op().status({x})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ((Tables{0, "TF", {0, 0}, {1, 0, 2}, {1}}.op().status({x})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(pairs(0).with("pool_strings", AttributeValue(std::vector<std::string>{"a"})).status({x}), EVN_ERROR_INVALID_MODEL);
}

// Several n-grams may count for one output: the weights are those of the n-grams.
TEST(TfIdfVectorizer, EachNGramHasItsWeight) {
  const auto status = [](const Floats& weights) {
    Op op("TfIdfVectorizer", 9);
    op.with("min_gram_length", 1).with("max_gram_length", 1).with("max_skip_count", 0).with("mode", "IDF");
    op.with("ngram_counts", Ints{0}).with("ngram_indexes", Ints{0, 0, 0, 0}).with("pool_int64s", Ints{4, 5, 6, 7});
    return op.with("weights", AttributeValue(weights)).status({i64({7, 4})});
  };
  EXPECT_EQ(status({1, 2, 3, 4}), EVN_OK);
  EXPECT_EQ(status({}), EVN_OK);
  EXPECT_EQ(status({1}), EVN_ERROR_INVALID_MODEL) << "one for each output";
  EXPECT_EQ(status({1, 2, 3}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status({1, 2, 3, 4, 5}), EVN_ERROR_INVALID_MODEL);
}

}  // namespace
}  // namespace evn::test
