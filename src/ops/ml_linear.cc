// ai.onnx.ml, rows of features: LinearRegressor, LinearClassifier, Scaler, Normalizer, Imputer, FeatureVectorizer.
//   Linear: x . coefficients + intercepts per target or class, then the transform. The label is that of the largest score; with one
//   row of coefficients for two classes the score is the second's, which is chosen above 0. Scaler: (x - offset) * scale.
//   Normalizer: each row by its largest element, its sum of magnitudes or its length; a row for which that is 0 stays. Imputer:
//   elements that are replaced_value (NaN is one as any other) become imputed_value, of their column where there are several.
//   FeatureVectorizer: inputs side by side.
// dtypes: floats, int64, int32; float32 comes out (of Imputer what went in). Failures: lists of unlike lengths or not of the row's.
// Sums in double; the tolerance is of sums and transforms.
#include <vector>

#include "base/checked.h"
#include "ops/infra/ml_scores.h"

namespace evn {
namespace {

DType float_dtype(const Node&, std::span<const DType>, int) { return DType::kFloat32; }

// A list of one number, or of one for each feature (as far as their count is known).
void require_per_feature(const InferContext& c, std::size_t count, const char* what) {
  const std::int64_t features = c.shape(0).rank() == 0 ? 1 : feature_count(c.shape(0));
  if (count == 1 || (count > 0 && (features < 0 || count == static_cast<std::uint64_t>(features)))) return;
  fail(EVN_ERROR_INVALID_MODEL, "%s has %zu elements for %lld features", what, count, static_cast<long long>(features));
}

// ------------------------------------------------------------------------------------------------------------- linear --

enum : int { kTransform, kCoefficients, kIntercepts, kTargets, kLabelInts = 3, kLabelStrings, kMultiClass };

void require_coefficients(const InferContext& c, std::int64_t targets) {
  const std::size_t count = attr_floats(c.node, kCoefficients).size(), intercepts = attr_floats(c.node, kIntercepts).size();
  const auto rows = static_cast<std::uint64_t>(targets);
  if (targets < 1 || count == 0 || rows > count || count % rows != 0) {
    fail(EVN_ERROR_INVALID_MODEL, "%zu coefficients for %lld targets", count, static_cast<long long>(targets));
  }
  if (intercepts != 0 && intercepts != rows)
    fail(EVN_ERROR_INVALID_MODEL, "%zu intercepts for %lld targets", intercepts, static_cast<long long>(targets));
  require_dim(feature_count(c.shape(0)), static_cast<std::int64_t>(count / rows), 0);
  score_transform(attr_string(c.node, kTransform));
}

void linear_scores(const ReferenceContext& c, std::int64_t row, std::span<double> scores) {
  const auto coefficients = attr_floats(c.node, kCoefficients), intercepts = attr_floats(c.node, kIntercepts);
  const std::size_t features = coefficients.size() / scores.size();
  for (std::size_t k = 0; k < scores.size(); ++k) {
    cancellation_point();
    scores[k] = intercepts.empty() ? 0 : intercepts[k];
    for (std::size_t i = 0; i < features; ++i) {
      cancellation_point();
      scores[k] += feature_at(c.input(0), row * static_cast<std::int64_t>(features) + static_cast<std::int64_t>(i)) *
                   coefficients[k * features + i];
    }
  }
}

void infer_regressor(InferContext& c) {
  require_rows(c);
  require_coefficients(c, attr_int(c.node, kTargets));
  c.outputs[0].shape = {row_count(c.shape(0)), attr_int(c.node, kTargets)};
}

void reference_regressor(const ReferenceContext& c) {
  const Shape& y = c.output().desc.shape;
  std::vector<double> scores(static_cast<std::size_t>(y[1]));
  for (std::int64_t row = 0; row < y[0]; ++row) {
    cancellation_point();
    linear_scores(c, row, scores);
    transform_scores(score_transform(attr_string(c.node, kTransform)), scores);
    std::copy(scores.begin(), scores.end(), c.output().as<float>() + row * y[1]);
  }
}

DType classifier_dtype(const Node& node, std::span<const DType>, int output) {
  if (output == 1) return DType::kFloat32;
  return class_labels(node, kLabelInts, kLabelStrings).are_strings() ? DType::kString : DType::kInt64;
}

// One row of coefficients for two classes: the intercepts tell, and where there are none, the features.
bool is_pair(const Node& node, const Shape& x) {
  if (class_labels(node, kLabelInts, kLabelStrings).count() != 2) return false;
  const std::size_t intercepts = attr_floats(node, kIntercepts).size();
  if (intercepts != 0) return intercepts == 1;
  return feature_count(x) == static_cast<std::int64_t>(attr_floats(node, kCoefficients).size());
}

void infer_classifier(InferContext& c) {
  require_rows(c);
  const auto classes = static_cast<std::int64_t>(class_labels(c.node, kLabelInts, kLabelStrings).count());
  if (feature_count(c.shape(0)) >= 0 || !attr_floats(c.node, kIntercepts).empty()) {
    require_coefficients(c, is_pair(c.node, c.shape(0)) ? 1 : classes);
  }
  c.outputs[0].shape = {row_count(c.shape(0))};
  if (c.outputs.size() > 1) c.outputs[1].shape = {row_count(c.shape(0)), classes};
}

void reference_classifier(const ReferenceContext& c) {
  const ClassLabels labels = class_labels(c.node, kLabelInts, kLabelStrings);
  const bool pair = is_pair(c.node, c.input(0).desc.shape);
  const ScoreTransform transform = score_transform(attr_string(c.node, kTransform));
  std::vector<double> scores(labels.count());
  for (std::int64_t row = 0; row < row_count(c.input(0).desc.shape); ++row) {
    cancellation_point();
    linear_scores(c, row, std::span(scores).first(pair ? 1 : scores.size()));
    labels.write(c, row, pair ? (scores[0] > 0 ? 1 : 0) : best_class(scores));
    if (pair) {
      transform_pair(transform, true, scores[0], scores);
    } else {
      transform_scores(transform, scores);
    }
    if (c.outputs.size() < 2 || !c.output(1).present()) continue;
    std::copy(scores.begin(), scores.end(), c.output(1).as<float>() + row * static_cast<std::int64_t>(scores.size()));
  }
}

// ------------------------------------------------------------------------------------------------- scaler, normalizer --

enum : int { kOffset, kScale };

void infer_scaler(InferContext& c) {
  const std::size_t offsets = attr_floats(c.node, kOffset).size(), scales = attr_floats(c.node, kScale).size();
  if (offsets != scales) fail(EVN_ERROR_INVALID_MODEL, "%zu offsets and %zu scales", offsets, scales);
  require_per_feature(c, scales, "scale");
  infer_same_shape(c);
}

void reference_scaler(const ReferenceContext& c) {
  const auto offset = attr_floats(c.node, kOffset), scale = attr_floats(c.node, kScale);
  for (std::int64_t i = 0; i < c.output().desc.shape.elements(); ++i) {
    cancellation_point();
    const std::size_t at = static_cast<std::size_t>(i) % scale.size();
    c.output().as<float>()[i] = static_cast<float>((feature_at(c.input(0), i) - offset[at]) * scale[at]);
  }
}

double divisor_of(const ConstTensor& x, std::int64_t start, std::int64_t count, const std::string& norm) {
  double result = norm == "MAX" ? -std::numeric_limits<double>::infinity() : 0;
  for (std::int64_t i = start; i < start + count; ++i) {
    cancellation_point();
    const double v = feature_at(x, i);
    if (norm == "MAX") result = std::max(result, v);
    if (norm == "L1") result += std::fabs(v);
    if (norm == "L2") result += v * v;
  }
  return norm == "L2" ? std::sqrt(result) : result;
}

void infer_normalizer(InferContext& c) {
  require_rows(c);
  const std::string& norm = attr_string(c.node, 0);
  if (norm != "MAX" && norm != "L1" && norm != "L2") fail(EVN_ERROR_INVALID_MODEL, "norm '%.40s' is not known", norm.c_str());
  infer_same_shape(c);
}

void reference_normalizer(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const std::int64_t count = feature_count(x);
  for (std::int64_t start = 0; start < x.elements(); start += count) {
    cancellation_point();
    const double divisor = divisor_of(c.input(0), start, count, attr_string(c.node, 0));
    for (std::int64_t i = start; i < start + count; ++i) {
      cancellation_point();
      const double v = feature_at(c.input(0), i);
      c.output().as<float>()[i] = static_cast<float>(divisor != 0 ? v / divisor : v);
    }
  }
}

// ------------------------------------------------------------------------------------------------ imputer, vectorizer --

enum : int { kImputedFloats, kImputedInts, kReplacedFloat, kReplacedInt };

void infer_imputer(InferContext& c) {
  require_dtype(c, 0, kFeatureDtypes);
  const bool is_float = (kFloats & dtype_bit(c.inputs[0].dtype)) != 0;
  if (attr_given(c.node, is_float ? kImputedInts : kImputedFloats))
    fail(EVN_ERROR_INVALID_MODEL, "the imputed values are not of the input's type");
  require_per_feature(c, is_float ? attr_floats(c.node, kImputedFloats).size() : attr_ints(c.node, kImputedInts).size(),
                      "imputed_value");
  infer_same_shape(c);
}

void reference_imputer(const ReferenceContext& c) {
  dispatch<float, double, std::int64_t, std::int32_t>(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < c.output().desc.shape.elements(); ++i) {
      cancellation_point();
      const T x = c.input(0).as<T>()[i];
      T& y = c.output().as<T>()[i];
      if constexpr (std::is_floating_point_v<T>) {
        const auto values = attr_floats(c.node, kImputedFloats);
        const T replaced = attr_float(c.node, kReplacedFloat);
        y = x == replaced || (std::isnan(x) && std::isnan(replaced)) ? values[static_cast<std::size_t>(i) % values.size()] : x;
      } else {
        const auto values = attr_ints(c.node, kImputedInts);
        y = x == attr_int(c.node, kReplacedInt) ? static_cast<T>(values[static_cast<std::size_t>(i) % values.size()]) : x;
      }
    }
  });
}

// A vector is one row, as is every input of a batch's one row.
void infer_vectorizer(InferContext& c) {
  const auto widths = attr_ints(c.node, 0);
  if (!widths.empty() && widths.size() != c.inputs.size()) {
    fail(EVN_ERROR_INVALID_MODEL, "%zu inputdimensions for %zu inputs", widths.size(), c.inputs.size());
  }
  std::int64_t rows = -1, width = 0;
  for (int i = 0; i < static_cast<int>(c.inputs.size()); ++i) {
    require_input(c, i);
    require_dtype(c, i, kFeatureDtypes);
    require_rank(c, i, 1, 2);
    const std::int64_t own = feature_count(c.shape(i)), own_rows = row_count(c.shape(i));
    if (!widths.empty()) require_dim(own, widths[static_cast<std::size_t>(i)], i);
    if (rows >= 0) require_dim(own_rows, rows, i);
    rows = own_rows >= 0 ? own_rows : rows;
    width = own < 0 || width < 0 ? -1 : checked_add(width, own);
  }
  c.outputs[0].shape = {rows, width};
}

void reference_vectorizer(const ReferenceContext& c) {
  const Shape& y = c.output().desc.shape;
  std::int64_t start = 0;
  for (const ConstTensor& x : c.inputs) {
    cancellation_point();
    const std::int64_t width = feature_count(x.desc.shape);
    for (std::int64_t i = 0; i < x.desc.shape.elements(); ++i) {
      cancellation_point();
      c.output().as<float>()[i / width * y[1] + start + i % width] = static_cast<float>(feature_at(x, i));
    }
    start += width;
  }
}

// --------------------------------------------------------------------------------------------------------------- table --

constexpr const char* kDomain = "ai.onnx.ml";
constexpr AttributeSpec kRegress[] = {string_attribute("post_transform", "NONE"),
                                      optional_attribute("coefficients", AttributeType::kFloats),
                                      optional_attribute("intercepts", AttributeType::kFloats), int_attribute("targets", 1)};
constexpr AttributeSpec kClassify[] = {string_attribute("post_transform", "NONE"),
                                       required_attribute("coefficients", AttributeType::kFloats),
                                       optional_attribute("intercepts", AttributeType::kFloats),
                                       optional_attribute("classlabels_ints", AttributeType::kInts),
                                       optional_attribute("classlabels_strings", AttributeType::kStrings),
                                       int_attribute("multi_class", 0)};
constexpr AttributeSpec kScaler[] = {optional_attribute("offset", AttributeType::kFloats),
                                     optional_attribute("scale", AttributeType::kFloats)};
constexpr AttributeSpec kNormalizer[] = {string_attribute("norm", "MAX")};
constexpr AttributeSpec kImputer[] = {optional_attribute("imputed_value_floats", AttributeType::kFloats),
                                      optional_attribute("imputed_value_int64s", AttributeType::kInts),
                                      float_attribute("replaced_value_float", 0), int_attribute("replaced_value_int64", 0)};
constexpr AttributeSpec kVectorizer[] = {optional_attribute("inputdimensions", AttributeType::kInts)};
constexpr Tolerance kTolerance{1e-6, 1e-6};
constexpr OpDef kOps[] = {
    {.name = "LinearRegressor",
     .domain = kDomain,
     .since = 1,
     .attributes = kRegress,
     .dtypes = kFeatureDtypes,
     .output_dtype = float_dtype,
     .infer = infer_regressor,
     .reference = reference_regressor,
     .tolerance = kTolerance},
    {.name = "LinearClassifier",
     .domain = kDomain,
     .since = 1,
     .min_outputs = 2,
     .max_outputs = 2,
     .attributes = kClassify,
     .dtypes = kFeatureDtypes,
     .output_dtype = classifier_dtype,
     .infer = infer_classifier,
     .reference = reference_classifier,
     .tolerance = kTolerance},
    {.name = "Scaler",
     .domain = kDomain,
     .since = 1,
     .attributes = kScaler,
     .dtypes = kFeatureDtypes,
     .output_dtype = float_dtype,
     .infer = infer_scaler,
     .reference = reference_scaler,
     .tolerance = kTolerance},
    {.name = "Normalizer",
     .domain = kDomain,
     .since = 1,
     .attributes = kNormalizer,
     .dtypes = kFeatureDtypes,
     .output_dtype = float_dtype,
     .infer = infer_normalizer,
     .reference = reference_normalizer,
     .tolerance = kTolerance},
    {.name = "Imputer",
     .domain = kDomain,
     .since = 1,
     .attributes = kImputer,
     .dtypes = kFeatureDtypes,
     .infer = infer_imputer,
     .reference = reference_imputer},
    {.name = "FeatureVectorizer",
     .domain = kDomain,
     .since = 1,
     .max_inputs = kVariadic,
     .attributes = kVectorizer,
     .dtypes = kFeatureDtypes,
     .output_dtype = float_dtype,
     .infer = infer_vectorizer,
     .reference = reference_vectorizer},
};

}  // namespace

extern const OpFamily ml_linear_family;
const OpFamily ml_linear_family = {kOps};

}  // namespace evn
