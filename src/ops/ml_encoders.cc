// ai.onnx.ml, from one code to another: ArrayFeatureExtractor, Binarizer, LabelEncoder, CategoryMapper, OneHotEncoder.
//   ArrayFeatureExtractor: of the last axis of x the elements that y lists; of a vector [1, count]. Binarizer: x > threshold.
//   LabelEncoder: keys[i] becomes values[i], what is no key the default; of equal keys the first counts, NaN is a key as any other.
//   Version 1 maps strings to their places in classes_strings and back, CategoryMapper between cats_strings and cats_int64s.
//   OneHotEncoder: a further axis, 1 at the place of x (as a whole number where it is none) among the categories.
// dtypes: int64, int32, floats, strings; LabelEncoder int16 too. Failures: lists of unlike lengths or that are not there or there
// twice, a type of x that is not the keys'; at run: an index outside, with zeros = 0 a value that is no category
// (INVALID_ARGUMENT). Exact.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/key_less.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

// ---------------------------------------------------------------------------------------------------- extract, binarize --

void infer_extract(InferContext& c) {
  require_dtype(c, 1, dtype_bit(DType::kInt64));
  require_rank(c, 0, 1);
  Shape shape = c.shape(0);
  if (shape.rank() == 1) shape = {1, 0};
  shape[shape.rank() - 1] = dim_elements(c.shape(1), 0, c.shape(1).rank());
  c.outputs[0].shape = shape;
}

void reference_extract(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const std::int64_t length = x[x.rank() - 1];
  const std::int64_t count = c.input(1).desc.shape.elements();
  const auto* index = c.input(1).as<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    cancellation_point();
    if (index[i] >= 0 && index[i] < length) continue;
    fail(EVN_ERROR_INVALID_ARGUMENT, "index %lld of an axis of %lld", static_cast<long long>(index[i]),
         static_cast<long long>(length));
  }
  if (count == 0) return;
  with_width(c.output().desc.dtype, [&](auto width) {
    for (std::int64_t to = 0; to < c.output().desc.shape.elements(); ++to) {
      cancellation_point();
      move_element<width()>(c.output().data, to, c.input(0).data, to / count * length + index[to % count]);
    }
  });
}

void reference_binarize(const ReferenceContext& c) {
  const double threshold = attr_float(c.node, 0);
  dispatch<float, double, std::int64_t, std::int32_t>(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < c.output().desc.shape.elements(); ++i) {
      cancellation_point();
      c.output().as<T>()[i] = static_cast<double>(c.input(0).as<T>()[i]) > threshold ? 1 : 0;
    }
  });
}

// -------------------------------------------------------------------------------------------------------------- lists --

// The keys or values of a mapping, from the attribute that has them.
struct List {
  DType dtype = DType::kUndefined;
  std::size_t count = 0;
  std::span<const std::string> strings = {};
  std::span<const float> floats = {};
  std::span<const std::int64_t> ints = {};
  const Weight* tensor = nullptr;

  template <typename T>
  T at(std::size_t i) const {
    if constexpr (std::is_same_v<T, std::string_view>) {
      return tensor == nullptr ? std::string_view(strings[i]) : text_of(stored<TextElement>(i));
    } else {
      if (tensor != nullptr) return stored<T>(i);
      return dtype == DType::kFloat32 ? static_cast<T>(floats[i]) : static_cast<T>(ints[i]);
    }
  }

 private:
  template <typename T>
  T stored(std::size_t i) const {  // a file's bytes may lie anywhere
    T value;
    std::memcpy(&value, static_cast<const char*>(tensor->data.get()) + i * sizeof(T), sizeof(T));
    return value;
  }
};

constexpr std::uint32_t kLabels = dtype_bit(DType::kString) | dtype_bit(DType::kFloat32) | dtype_bit(DType::kFloat64) |
                                  dtype_bit(DType::kInt64) | dtype_bit(DType::kInt32) | dtype_bit(DType::kInt16);

// Calls f with a T{} of what an element is read as.
template <typename F>
void dispatch_labels(DType dtype, F&& f) {
  if (dtype == DType::kString) return f(std::string_view());
  dispatch<float, double, std::int64_t, std::int32_t, std::int16_t>(dtype, f);
}

List list_of(std::span<const std::string> v) { return {DType::kString, v.size(), v}; }
List list_of(std::span<const std::int64_t> v) { return {DType::kInt64, v.size(), {}, {}, v}; }
List list_of(std::span<const float> v) { return {DType::kFloat32, v.size(), {}, v}; }

List list_of(const Weight& tensor) {
  if ((dtype_bit(tensor.desc.dtype) & kLabels) == 0)
    fail(EVN_ERROR_UNSUPPORTED, "labels of type %s", dtype_name(tensor.desc.dtype));
  return {tensor.desc.dtype, static_cast<std::size_t>(tensor.desc.shape.elements()), {}, {}, {}, &tensor};
}

// Attributes of LabelEncoder: strings, int64s, float(s) of each, and then a tensor of each.
enum : int { kKeys, kValues = 3, kDefaults = 6, kTensors = 9, kDefaultTensor = 11 };

// The one list of the attributes from `first` on.
List one_list(const Node& node, int first, const char* what) {
  const int tensor = kTensors + first / 3;
  int given = attr_given(node, tensor) ? 1 : 0;
  for (int i = 0; i < 3; ++i) given += attr_given(node, first + i) ? 1 : 0;
  if (given != 1) fail(EVN_ERROR_INVALID_MODEL, "%d attributes give the %s; just one must", given, what);
  if (attr_given(node, first)) return list_of(attr_strings(node, first));
  if (attr_given(node, first + 1)) return list_of(attr_ints(node, first + 1));
  if (attr_given(node, first + 2)) return list_of(attr_floats(node, first + 2));
  return list_of(*attr_tensor(node, tensor));
}

// ------------------------------------------------------------------------------------------------------------ mapping --

template <typename T>
T element(const ConstTensor& x, std::int64_t i) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return text_of(x.as<TextElement>()[i]);
  } else {
    return x.as<T>()[i];
  }
}

// The place of each element of x among the keys, or -1.
std::vector<std::int64_t> places(const ConstTensor& x, const List& keys) {
  std::vector<std::size_t> order(keys.count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<std::int64_t> found(static_cast<std::size_t>(x.desc.shape.elements()), -1);
  const KeyLess less;
  dispatch_labels(keys.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::ranges::sort(order, [&](std::size_t i, std::size_t j) {  // of equal keys the first one stays first
      return less(keys.at<T>(i), keys.at<T>(j)) || (i < j && !less(keys.at<T>(j), keys.at<T>(i)));
    });
    for (std::size_t i = 0; i < found.size(); ++i) {
      cancellation_point();
      const T key = element<T>(x, static_cast<std::int64_t>(i));
      const auto at =
          std::lower_bound(order.begin(), order.end(), key, [&](std::size_t k, const T& y) { return less(keys.at<T>(k), y); });
      if (at != order.end() && !less(key, keys.at<T>(*at))) found[i] = static_cast<std::int64_t>(*at);
    }
  });
  return found;
}

// y[i] = values[places[i]], or the default where that is -1.
template <typename T>
void write_values(const ReferenceContext& c, const std::vector<std::int64_t>& at, const List& values, T otherwise) {
  for (std::size_t i = 0; i < at.size(); ++i) {
    cancellation_point();
    const T value = at[i] < 0 ? otherwise : values.at<T>(static_cast<std::size_t>(at[i]));
    if constexpr (std::is_same_v<T, std::string_view>) {
      c.output().as<TextElement>()[i] = c.add_text(value);
    } else {
      c.output().as<T>()[i] = value;
    }
  }
}

DType swapped_dtype(const Node&, std::span<const DType> inputs, int) {
  return inputs[0] == DType::kString ? DType::kInt64 : DType::kString;
}

DType encoded_dtype(const Node& node, std::span<const DType>, int) { return one_list(node, kValues, "values").dtype; }

void infer_encode(InferContext& c) {
  const List keys = one_list(c.node, kKeys, "keys");
  const List values = one_list(c.node, kValues, "values");
  if (keys.count != values.count) fail(EVN_ERROR_INVALID_MODEL, "%zu keys and %zu values", keys.count, values.count);
  require_dtype(c, 0, dtype_bit(keys.dtype));
  if (const Weight* given = attr_tensor(c.node, kDefaultTensor)) {
    if (given->desc.shape.elements() != 1) fail(EVN_ERROR_INVALID_MODEL, "default_tensor must have one element");
    if (given->desc.dtype != values.dtype) fail(EVN_ERROR_INVALID_MODEL, "default_tensor is not of the values' type");
  }
  infer_same_shape(c);
}

void reference_encode(const ReferenceContext& c) {
  const List values = one_list(c.node, kValues, "values");
  const std::vector<std::int64_t> at = places(c.input(0), one_list(c.node, kKeys, "keys"));
  const Weight* given = attr_tensor(c.node, kDefaultTensor);
  dispatch_labels(values.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (given != nullptr) return write_values<T>(c, at, values, list_of(*given).at<T>(0));
    if constexpr (std::is_same_v<T, std::string_view>) {
      write_values<T>(c, at, values, attr_string(c.node, kDefaults));
    } else if constexpr (std::is_floating_point_v<T>) {
      write_values<T>(c, at, values, static_cast<T>(attr_float(c.node, kDefaults + 2)));
    } else {
      write_values<T>(c, at, values, static_cast<T>(attr_int(c.node, kDefaults + 1)));
    }
  });
}

// LabelEncoder 1 and CategoryMapper: the attributes are default_int64, default_string, the strings, and the mapper's the numbers.
void infer_swap(InferContext& c) {
  if (!attr_given(c.node, 2)) fail(EVN_ERROR_INVALID_MODEL, "the list of strings is missing");
  if (attr_given(c.node, 3) && attr_strings(c.node, 2).size() != attr_ints(c.node, 3).size()) {
    fail(EVN_ERROR_INVALID_MODEL, "%zu strings and %zu numbers", attr_strings(c.node, 2).size(), attr_ints(c.node, 3).size());
  }
  infer_same_shape(c);
}

void infer_mapper(InferContext& c) {
  if (!attr_given(c.node, 3)) fail(EVN_ERROR_INVALID_MODEL, "attribute 'cats_int64s' is missing");
  infer_swap(c);
}

void reference_swap(const ReferenceContext& c) {
  const List strings = list_of(attr_strings(c.node, 2));
  std::vector<std::int64_t> own(attr_given(c.node, 3) ? 0 : strings.count);
  std::iota(own.begin(), own.end(), std::int64_t{0});
  const List numbers = list_of(attr_given(c.node, 3) ? attr_ints(c.node, 3) : std::span<const std::int64_t>(own));
  if (c.input(0).desc.dtype == DType::kString) {
    write_values<std::int64_t>(c, places(c.input(0), strings), numbers, attr_int(c.node, 0));
  } else {
    write_values<std::string_view>(c, places(c.input(0), numbers), strings, attr_string(c.node, 1));
  }
}

// ------------------------------------------------------------------------------------------------------------ one hot --

enum : int { kCatsInts, kCatsStrings, kZeros };

DType float_dtype(const Node&, std::span<const DType>, int) { return DType::kFloat32; }

void infer_one_hot(InferContext& c) {
  const bool of_strings = c.inputs[0].dtype == DType::kString;
  if (attr_given(c.node, kCatsInts) == attr_given(c.node, kCatsStrings)) {
    fail(EVN_ERROR_INVALID_MODEL, "one of cats_int64s and cats_strings must be there");
  }
  if (attr_given(c.node, kCatsStrings) != of_strings) fail(EVN_ERROR_INVALID_MODEL, "the categories are not of the input's type");
  const std::size_t count = of_strings ? attr_strings(c.node, kCatsStrings).size() : attr_ints(c.node, kCatsInts).size();
  if (count == 0) fail(EVN_ERROR_INVALID_MODEL, "there are no categories");
  c.outputs[0].shape = c.shape(0);
  c.outputs[0].shape.push_back(static_cast<std::int64_t>(count));
}

// The elements as int64.
std::vector<std::int64_t> whole_numbers(const ConstTensor& x) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(x.desc.shape.elements()));
  dispatch<float, double, std::int64_t, std::int32_t>(x.desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      cancellation_point();
      if constexpr (std::is_floating_point_v<T>) {
        numbers[i] = saturate_to<std::int64_t>(static_cast<double>(x.as<T>()[i]));
      } else {
        numbers[i] = x.as<T>()[i];
      }
    }
  });
  return numbers;
}

void reference_one_hot(const ReferenceContext& c) {
  const ConstTensor& x = c.input(0);
  std::vector<std::int64_t> at;
  if (x.desc.dtype == DType::kString) {
    at = places(x, list_of(attr_strings(c.node, kCatsStrings)));
  } else {
    const std::vector<std::int64_t> numbers = whole_numbers(x);
    at = places({{DType::kInt64, x.desc.shape}, numbers.data()}, list_of(attr_ints(c.node, kCatsInts)));
  }
  const Shape& y = c.output().desc.shape;
  const std::int64_t width = y[y.rank() - 1];
  fill_in_pieces(c.output().as<float>(), y.elements(), 0.0f);
  for (std::size_t i = 0; i < at.size(); ++i) {
    cancellation_point();
    if (at[i] >= 0) c.output().as<float>()[static_cast<std::int64_t>(i) * width + at[i]] = 1;
    if (at[i] < 0 && attr_int(c.node, kZeros) == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "element %zu is no category", i);
  }
}

// ---------------------------------------------------------------------------------------------------------------- table --

constexpr const char* kDomain = "ai.onnx.ml";
constexpr AttributeSpec kThreshold[] = {float_attribute("threshold", 0)};
constexpr AttributeSpec kSwap[] = {int_attribute("default_int64", -1), string_attribute("default_string", "_Unused"),
                                   optional_attribute("classes_strings", AttributeType::kStrings)};
constexpr AttributeSpec kMapper[] = {int_attribute("default_int64", -1), string_attribute("default_string", "_Unused"),
                                     optional_attribute("cats_strings", AttributeType::kStrings),
                                     optional_attribute("cats_int64s", AttributeType::kInts)};
constexpr AttributeSpec kEncode[] = {optional_attribute("keys_strings", AttributeType::kStrings),
                                     optional_attribute("keys_int64s", AttributeType::kInts),
                                     optional_attribute("keys_floats", AttributeType::kFloats),
                                     optional_attribute("values_strings", AttributeType::kStrings),
                                     optional_attribute("values_int64s", AttributeType::kInts),
                                     optional_attribute("values_floats", AttributeType::kFloats),
                                     string_attribute("default_string", "_Unused"),
                                     int_attribute("default_int64", -1),
                                     float_attribute("default_float", -0.0f),
                                     optional_attribute("keys_tensor", AttributeType::kTensor),
                                     optional_attribute("values_tensor", AttributeType::kTensor),
                                     optional_attribute("default_tensor", AttributeType::kTensor)};
constexpr std::span<const AttributeSpec> kEncodeAll(kEncode);
constexpr AttributeSpec kOneHot[] = {optional_attribute("cats_int64s", AttributeType::kInts),
                                     optional_attribute("cats_strings", AttributeType::kStrings), int_attribute("zeros", 1)};
constexpr std::uint32_t kFour = kFloats | kIndexDtypes;
constexpr std::uint32_t kSwapped = kString | dtype_bit(DType::kInt64);
constexpr OpDef kOps[] = {
    {.name = "ArrayFeatureExtractor",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kFour | kString,
     .infer = infer_extract,
     .reference = reference_extract},
    {.name = "Binarizer",
     .domain = kDomain,
     .since = 1,
     .attributes = kThreshold,
     .dtypes = kFour,
     .infer = infer_same_shape,
     .reference = reference_binarize},
    {.name = "LabelEncoder",
     .domain = kDomain,
     .since = 1,
     .attributes = kSwap,
     .dtypes = kSwapped,
     .output_dtype = swapped_dtype,
     .infer = infer_swap,
     .reference = reference_swap},
    {.name = "LabelEncoder",
     .domain = kDomain,
     .since = 2,
     .attributes = kEncodeAll.first(9),
     .dtypes = kSwapped | dtype_bit(DType::kFloat32),
     .output_dtype = encoded_dtype,
     .infer = infer_encode,
     .reference = reference_encode},
    {.name = "LabelEncoder",
     .domain = kDomain,
     .since = 4,
     .attributes = kEncodeAll,
     .dtypes = kLabels,
     .output_dtype = encoded_dtype,
     .infer = infer_encode,
     .reference = reference_encode},
    {.name = "CategoryMapper",
     .domain = kDomain,
     .since = 1,
     .attributes = kMapper,
     .dtypes = kSwapped,
     .output_dtype = swapped_dtype,
     .infer = infer_mapper,
     .reference = reference_swap},
    {.name = "OneHotEncoder",
     .domain = kDomain,
     .since = 1,
     .attributes = kOneHot,
     .dtypes = kFour | kString,
     .output_dtype = float_dtype,
     .infer = infer_one_hot,
     .reference = reference_one_hot},
};

}  // namespace

extern const OpFamily ml_encoders_family;
const OpFamily ml_encoders_family = {kOps};

}  // namespace evn
