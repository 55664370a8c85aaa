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
    all->push_back(d == DType::kString ? one_hot.attr("cats_strings", Words{"1", "-2", "0"}) : one_hot.ints("cats_int64s", {1, -2, 0}));
  }
  for (const DType d : kFour) all->push_back(ml("Binarizer", 1).in(d, {3, 7}).real("threshold", 0.5f).batch());
  const auto strings = [](const char* op, int version) { return ml(op, version).in(DType::kString, {9}, -2, 3); };
  all->push_back(strings("LabelEncoder", 1).attr("classes_strings", Words{"1", "0", "-2"}));
  all->push_back(strings("LabelEncoder", 2).attr("keys_strings", Words{"1", "0", "-2"}).ints("values_int64s", {7, 5, 3}));
  all->push_back(strings("LabelEncoder", 4).attr("keys_strings", Words{"1", "0", "-2"}).attr("values_floats", Floats{7, 5, 3}));
  all->push_back(strings("CategoryMapper", 1).attr("cats_strings", Words{"1", "0", "-2"}).ints("cats_int64s", {7, 5, 3}));
  for (const int version : {2, 4}) {
    const auto numbers = [&](DType d) { return ml("LabelEncoder", version).in(d, {9}, -2, 3).whole(); };
    all->push_back(numbers(kI64).ints("keys_int64s", {1, 0, -2, 1}).attr("values_floats", Floats{7, 5, 3, 2}).real("default_float", 9));
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

}  // namespace

void add_ml_cases(Cases* all) { add_encoders(all); }

}  // namespace evn::conformance
