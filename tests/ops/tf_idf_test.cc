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

}  // namespace
}  // namespace evn::test
