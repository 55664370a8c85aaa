// The operators of ai.onnx.ml.
#include <cmath>
#include <cstring>

#include "tests/conformance/case.h"

namespace evn::conformance {
namespace {

using Words = std::vector<std::string>;

constexpr DType kFour[] = {kF32, kF64, kI64, kI32};

Case ml(const char* name, int version) { return Case(std::string("ai.onnx.ml::") + name, version); }

template <typename T>
WeightPtr tensor_of(const std::vector<T>& values) {
  void* bytes = nullptr;
  const std::shared_ptr<Weight> w = make_weight({kDTypeOf<T>, {static_cast<std::int64_t>(values.size())}}, nullptr, &bytes);
  std::memcpy(bytes, values.data(), values.size() * sizeof(T));
  return w;
}

void add_encoders(Cases* all) {
  for (const DType d : {kF32, kF64, kI64, kI32, DType::kString}) {
    all->push_back(ml("ArrayFeatureExtractor", 1).in(d, {3, 6}, -9, 9).list({4, 0, 1, 4}).batch());
    Case one_hot = ml("OneHotEncoder", 1).in(d, {3, 5}, -2, 3);
    all->push_back(d == DType::kString ? one_hot.attr("cats_strings", Words{"1", "-2", "0"})
                                       : one_hot.ints("cats_int64s", {1, -2, 0}));
  }
  for (const DType d : kFour) all->push_back(ml("Binarizer", 1).in(d, {3, 7}).real("threshold", 0.5f).batch());
  const auto strings = [](const char* op, int version) { return ml(op, version).in(DType::kString, {9}, -2, 3); };
  all->push_back(strings("LabelEncoder", 1).attr("classes_strings", Words{"1", "0", "-2"}));
  all->push_back(strings("LabelEncoder", 2).attr("keys_strings", Words{"1", "0", "-2"}).ints("values_int64s", {7, 5, 3}));
  all->push_back(strings("LabelEncoder", 4).attr("keys_strings", Words{"1", "0", "-2"}).attr("values_floats", Floats{7, 5, 3}));
  all->push_back(strings("CategoryMapper", 1).attr("cats_strings", Words{"1", "0", "-2"}).ints("cats_int64s", {7, 5, 3}));
  for (const int version : {2, 4}) {
    const auto numbers = [&](DType d) { return ml("LabelEncoder", version).in(d, {9}, -2, 3).whole(); };
    all->push_back(
        numbers(kI64).ints("keys_int64s", {1, 0, -2, 1}).attr("values_floats", Floats{7, 5, 3, 2}).real("default_float", 9));
    all->push_back(numbers(kF32).specials().attr("keys_floats", Floats{1, NAN, 0}).ints("values_int64s", {7, 5, 3}).flat());
  }
  const auto tensors = [](DType d, WeightPtr keys) {
    Case c = ml("LabelEncoder", 4).in(d, {9}, -2, 3).whole().attr("keys_tensor", std::move(keys));
    return c.attr("values_tensor", tensor_of<std::int16_t>({7, 5, 3})).attr("default_tensor", tensor_of<std::int16_t>({9}));
  };
  all->push_back(tensors(kI32, tensor_of<std::int32_t>({1, 0, -2})));
  all->push_back(tensors(DType::kInt16, tensor_of<std::int16_t>({1, 0, -2})));
  all->push_back(tensors(kF64, tensor_of<double>({1, 0, -2})));
}

// Two trees over three features: (0: x0 <= 0.5 ? 1 : (2: x2 > -0.5 ? 3 : 4)) and (0: x1 < 0 ? 1 : 2).
Case tree_tables(const char* op, int version, DType dtype) {
  Case c = ml(op, version).in(dtype, {7, 3}, -2, 3).batch();
  c.ints("nodes_treeids", {0, 0, 0, 0, 0, 1, 1, 1}).ints("nodes_nodeids", {0, 1, 2, 3, 4, 0, 1, 2});
  c.ints("nodes_featureids", {0, 0, 2, 0, 0, 1, 0, 0});
  c.attr("nodes_modes", Words{"BRANCH_LEQ", "LEAF", "BRANCH_GT", "LEAF", "LEAF", "BRANCH_LT", "LEAF", "LEAF"});
  return c.ints("nodes_truenodeids", {1, 0, 3, 0, 0, 1, 0, 0}).ints("nodes_falsenodeids", {2, 0, 4, 0, 0, 2, 0, 0});
}

Case regressor(int version, DType dtype, bool tensors) {
  Case c = tree_tables("TreeEnsembleRegressor", version, dtype).integer("n_targets", 2);
  c.ints("target_treeids", {0, 0, 0, 1, 1, 1}).ints("target_nodeids", {1, 3, 4, 1, 2, 2}).ints("target_ids", {0, 1, 0, 0, 1, 0});
  if (!tensors) {
    c.attr("target_weights", Floats{1, -2, 3, 0.5f, 4, -1});
    return c.attr("nodes_values", Floats{0.5f, 0, -0.5f, 0, 0, 0, 0, 0});
  }
  c.attr("target_weights_as_tensor", tensor_of<double>({1, -2, 3, 0.5, 4, -1}));
  c.attr("nodes_values_as_tensor", tensor_of<double>({0.5, 0, -0.5, 0, 0, 0, 0, 0}));
  return c.attr("base_values_as_tensor", tensor_of<double>({0.25, 1}));
}

Case classifier(int version, DType dtype) {
  Case c = tree_tables("TreeEnsembleClassifier", version, dtype).outputs(2).ints("classlabels_int64s", {5, -3, 8});
  c.ints("class_treeids", {0, 0, 0, 1, 1, 1}).ints("class_nodeids", {1, 3, 4, 1, 2, 2}).ints("class_ids", {0, 1, 2, 0, 1, 2});
  c.attr("class_weights", Floats{1, 2, 3, 0.5f, 1.5f, 2.5f});
  return c.attr("nodes_values", Floats{0.5f, 0, -0.5f, 0, 0, 0, 0, 0});
}

template <typename T>
Case ensemble(DType dtype) {
  Case c = ml("TreeEnsemble", 5).in(dtype, {7, 3}, -2, 3).whole().batch().integer("n_targets", 2).ints("tree_roots", {0, 2});
  c.ints("nodes_featureids", {0, 2, 1})
      .attr("nodes_modes", tensor_of<std::uint8_t>({0, 6, 1}))
      .attr("nodes_splits", tensor_of<T>({0, 0, 1}));
  c.ints("nodes_truenodeids", {0, 1, 0}).ints("nodes_trueleafs", {1, 1, 1});
  c.ints("nodes_falsenodeids", {1, 2, 3}).ints("nodes_falseleafs", {0, 1, 1});
  c.attr("membership_values", tensor_of<T>({1, -2, static_cast<T>(NAN)}));
  return c.attr("leaf_weights", tensor_of<T>({1, -2, 3, 4})).ints("leaf_targetids", {0, 1, 0, 1});
}

void add_trees(Cases* all) {
  for (const int version : {1, 3, 5}) {
    for (const DType d : kFour) {
      all->push_back(regressor(version, d, version > 1));
      all->push_back(classifier(version, d));
    }
    all->push_back(regressor(version, kF32, false).word("aggregate_function", "MAX").word("post_transform", "LOGISTIC"));
    all->push_back(classifier(version, kF32).word("post_transform", "SOFTMAX"));
  }
  for (const std::int64_t how : {0, 1, 2, 3}) all->push_back(ensemble<float>(kF32).integer("aggregate_function", how));
  for (const std::int64_t transform : {1, 2, 3}) all->push_back(ensemble<double>(kF64).integer("post_transform", transform));
}

void add_linear(Cases* all) {
  for (const DType d : kFour) {
    const auto rows = [&](const char* op) { return ml(op, 1).in(d, {7, 3}, -2, 3).batch(); };
    all->push_back(rows("LinearRegressor")
                       .integer("targets", 2)
                       .attr("coefficients", Floats{1, 2, -1, 0.5f, 0, 3})
                       .attr("intercepts", Floats{1, -1}));
    Case classes = rows("LinearClassifier").ints("classlabels_ints", {5, -3, 8}).outputs(2).word("post_transform", "SOFTMAX");
    all->push_back(classes.attr("coefficients", Floats{1, 2, -1, 0.5f, 0, 3, -1, -1, 1}).attr("intercepts", Floats{0, 0.5f, 1}));
    all->push_back(rows("Scaler").attr("offset", Floats{1, 2, 3}).attr("scale", Floats{0.5f, -1, 2}));
    for (const char* norm : {"MAX", "L1", "L2"}) all->push_back(rows("Normalizer").word("norm", norm));
    Case imputer = rows("Imputer").whole();
    const bool is_float = d == kF32 || d == kF64;
    all->push_back(is_float ? imputer.attr("imputed_value_floats", Floats{9, 8, 7})
                            : imputer.ints("imputed_value_int64s", {9, 8, 7}));
    all->push_back(rows("FeatureVectorizer").in(kF32, {7, 2}).in(kI64, {7, 1}, -9, 9).ints("inputdimensions", {3, 2, 1}).batch(7));
  }
}

void add_machines(Cases* all) {
  const Floats vectors = {1, 0, -1, 0.5f, 2, 0, -1, -1, 0.25f, 0, 1, 1};
  for (const DType d : kFour) {
    for (const char* kernel : {"LINEAR", "POLY", "RBF", "SIGMOID"}) {
      const auto machine = [&](const char* op) {
        return ml(op, 1)
            .in(d, {7, 3}, -2, 3)
            .batch()
            .word("kernel_type", kernel)
            .attr("kernel_params", Floats{0.25f, 0.125f, 2})
            .attr("support_vectors", vectors);
      };
      all->push_back(
          machine("SVMRegressor").integer("n_supports", 4).attr("coefficients", Floats{1, -2, 0.5f, 3}).attr("rho", Floats{0.25f}));
      Case classes = machine("SVMClassifier").outputs(2).ints("classlabels_ints", {5, -3, 8}).ints("vectors_per_class", {1, 2, 1});
      classes.attr("coefficients", Floats{1, -2, 0.5f, 3, -1, 0.25f, 2, -0.5f}).attr("rho", Floats{0.25f, 0, -0.25f});
      all->push_back(classes);
      all->push_back(classes.attr("prob_a", Floats{-1, -2, -0.5f}).attr("prob_b", Floats{0.5f, 0, 0.25f}));
    }
    all->push_back(ml("SVMRegressor", 1)
                       .in(d, {7, 3}, -2, 3)
                       .batch()
                       .attr("coefficients", Floats{1, 2, -1})
                       .attr("rho", Floats{0.5f})
                       .integer("one_class", 1));
  }
}

}  // namespace

void add_ml_cases(Cases* all) {
  add_encoders(all);
  add_trees(all);
  add_linear(all);
  add_machines(all);
}

}  // namespace evn::conformance
