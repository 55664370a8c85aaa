// ai.onnx.ml, support vector machines: SVMRegressor, SVMClassifier.
//   K(x, v) by kernel_type: LINEAR x.v, POLY (gamma x.v + coef0)^degree, RBF exp(-gamma |x - v|^2), SIGMOID tanh(gamma x.v +
//   coef0). SVMRegressor: sum of coefficients[i] K(x, vector i) + rho, without vectors x . coefficients + rho, then the transform;
//   one_class: 1 where that is above 0, else -1. SVMClassifier: a decision for each pair of classes, sum over the vectors of both +
//   rho of the pair, is a vote for the first where it is above 0; the label is that of the most votes. The scores are the decisions
//   (of two classes: -s and s) or, with prob_a and prob_b, probabilities of the classes from those of the pairs, 1 / (1 + exp(a s +
//   b)). Without vectors the score of a class is x . its coefficients + rho[0], the label that of the largest, and there are no
//   probabilities.
// dtypes: floats, int64, int32; float32 comes out. Failures: lists that do not fit each other, numbers that are not finite.
// Sums in double; the tolerance is of sums, kernels and transforms.
#include <vector>

#include "base/checked.h"
#include "ops/infra/ml_scores.h"

namespace evn {
namespace {

// The attributes that both have come first.
enum : int { kKernelType, kKernelParams, kTransform, kCoefficients, kRho, kVectors };
enum : int { kSupports = kVectors + 1, kOneClass };
enum : int { kPerClass = kVectors + 1, kProbA, kProbB, kLabelInts, kLabelStrings };

constexpr const char* kKernelNames[] = {"LINEAR", "POLY", "RBF", "SIGMOID"};

enum class KernelType { kLinear, kPoly, kRbf, kSigmoid };

KernelType kernel_type(const Node& node) {
  const std::string& name = attr_string(node, kKernelType);
  for (int i = 0; i < 4; ++i) {
    if (name == kKernelNames[i]) return static_cast<KernelType>(i);
  }
  fail(EVN_ERROR_INVALID_MODEL, "kernel_type '%.40s' is not known", name.c_str());
}

// ------------------------------------------------------------------------------------------------------------- checks --

void require_finite(const Node& node, int attribute) {
  const auto list = attr_floats(node, attribute);
  for (std::size_t i = 0; i < list.size(); ++i) {
    cancellation_point();
    if (!std::isfinite(list[i]))
      fail(EVN_ERROR_INVALID_MODEL, "%s[%zu] is not a finite number", node.op->attributes[static_cast<std::size_t>(attribute)].name,
           i);
  }
}

void require_count(const Node& node, int attribute, std::uint64_t expected) {
  const std::size_t count = attr_floats(node, attribute).size();
  if (count == expected) return;
  fail(EVN_ERROR_INVALID_MODEL, "%s has %zu elements, not %llu", node.op->attributes[static_cast<std::size_t>(attribute)].name,
       count, static_cast<unsigned long long>(expected));
}

void require_machine(const InferContext& c) {
  require_rows(c);
  const bool is_linear = kernel_type(c.node) == KernelType::kLinear;
  if (!is_linear || !attr_floats(c.node, kKernelParams).empty()) require_count(c.node, kKernelParams, 3);
  score_transform(attr_string(c.node, kTransform));
  for (const int list : {kKernelParams, kCoefficients, kRho, kVectors}) require_finite(c.node, list);
}

// The vectors fill their list with the rows' features.
void require_vectors(const InferContext& c, std::uint64_t vectors) {
  const std::size_t count = attr_floats(c.node, kVectors).size();
  if (count == 0 || vectors > count || count % vectors != 0) {
    fail(EVN_ERROR_INVALID_MODEL, "support_vectors has %zu elements for %llu vectors", count,
         static_cast<unsigned long long>(vectors));
  }
  require_dim(feature_count(c.shape(0)), static_cast<std::int64_t>(count / vectors), 0);
}

// ------------------------------------------------------------------------------------------------------------ kernels --

struct Machine {
  explicit Machine(const Node& node) : type(kernel_type(node)), vectors(attr_floats(node, kVectors)) {
    const auto params = attr_floats(node, kKernelParams);
    if (params.empty()) return;
    gamma = params[0];
    coef0 = params[1];
    degree = params[2];
  }

  double kernel(std::span<const double> x, std::size_t vector) const {
    const auto v = vectors.subspan(vector * x.size(), x.size());
    double dot = 0, distance = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      cancellation_point();
      dot += x[i] * v[i];
      distance += (x[i] - v[i]) * (x[i] - v[i]);
    }
    switch (type) {
      case KernelType::kLinear: return dot;
      case KernelType::kPoly: return std::pow(gamma * dot + coef0, degree);
      case KernelType::kRbf: return std::exp(-gamma * distance);
      default: return std::tanh(gamma * dot + coef0);
    }
  }

  KernelType type;
  std::span<const float> vectors;
  double gamma = 0, coef0 = 0, degree = 0;
};

void read_row(const ConstTensor& x, std::int64_t row, std::span<double> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    cancellation_point();
    to[i] = feature_at(x, row * static_cast<std::int64_t>(to.size()) + static_cast<std::int64_t>(i));
  }
}

double weighted(std::span<const float> coefficients, std::span<const double> values) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    cancellation_point();
    sum += coefficients[i] * values[i];
  }
  return sum;
}

// ---------------------------------------------------------------------------------------------------------- regressor --

DType float_dtype(const Node&, std::span<const DType>, int) { return DType::kFloat32; }

void infer_regressor(InferContext& c) {
  require_machine(c);
  require_count(c.node, kRho, 1);
  const std::int64_t supports = attr_int(c.node, kSupports);
  const std::size_t coefficients = attr_floats(c.node, kCoefficients).size();
  if (supports < 0) fail(EVN_ERROR_INVALID_MODEL, "n_supports is %lld", static_cast<long long>(supports));
  if (supports > 0) {
    require_count(c.node, kCoefficients, static_cast<std::uint64_t>(supports));
    require_vectors(c, static_cast<std::uint64_t>(supports));
  } else {
    if (coefficients == 0) fail(EVN_ERROR_INVALID_MODEL, "coefficients is empty");
    require_count(c.node, kVectors, 0);
    require_dim(feature_count(c.shape(0)), static_cast<std::int64_t>(coefficients), 0);
  }
  c.outputs[0].shape = {row_count(c.shape(0)), 1};
}

void reference_regressor(const ReferenceContext& c) {
  const Machine machine(c.node);
  const auto coefficients = attr_floats(c.node, kCoefficients);
  const Shape& shape = c.input(0).desc.shape;
  std::vector<double> x(static_cast<std::size_t>(feature_count(shape))),
      kernels(static_cast<std::size_t>(attr_int(c.node, kSupports)));
  for (std::int64_t row = 0; row < row_count(shape); ++row) {
    cancellation_point();
    read_row(c.input(0), row, x);
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      cancellation_point();
      kernels[i] = machine.kernel(x, i);
    }
    double y = weighted(coefficients, kernels.empty() ? x : kernels) + attr_floats(c.node, kRho)[0];
    if (attr_int(c.node, kOneClass) != 0) {
      y = y > 0 ? 1 : -1;
    } else {
      transform_scores(score_transform(attr_string(c.node, kTransform)), {&y, 1});
    }
    c.output().as<float>()[row] = static_cast<float>(y);
  }
}

// --------------------------------------------------------------------------------------------------------- classifier --

std::size_t pair_count(std::size_t classes) { return classes * (classes - 1) / 2; }

// 0 of a linear classifier. Throws where the counts are not a list of small numbers, one for each class.
std::size_t vector_count(const Node& node, std::size_t classes) {
  const auto counts = attr_ints(node, kPerClass);
  const std::size_t limit = attr_floats(node, kVectors).size();
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    cancellation_point();
    const auto count = static_cast<std::uint64_t>(counts[i]);
    if (counts[i] < 0 || count > limit)
      fail(EVN_ERROR_INVALID_MODEL, "vectors_per_class[%zu] is %lld", i, static_cast<long long>(counts[i]));
    sum += count;
  }
  if (sum > limit)
    fail(EVN_ERROR_INVALID_MODEL, "vectors_per_class is of %llu vectors, support_vectors has %zu elements",
         static_cast<unsigned long long>(sum), limit);
  if (sum > 0 && counts.size() != classes)
    fail(EVN_ERROR_INVALID_MODEL, "vectors_per_class has %zu elements for %zu classes", counts.size(), classes);
  return static_cast<std::size_t>(sum);
}

bool has_probabilities(const Node& node) { return !attr_floats(node, kProbA).empty(); }

void require_pairs(const InferContext& c, std::size_t classes, std::size_t vectors) {
  if (classes < 2) fail(EVN_ERROR_INVALID_MODEL, "%zu class labels, where vectors_per_class separates classes", classes);
  require_vectors(c, vectors);
  require_count(c.node, kCoefficients, checked_mul(vectors, classes - 1));
  require_count(c.node, kRho, pair_count(classes));
  if (has_probabilities(c.node)) require_count(c.node, kProbA, pair_count(classes));
}

void require_linear(const InferContext& c, std::size_t classes) {
  const std::size_t count = attr_floats(c.node, kCoefficients).size(), rho = attr_floats(c.node, kRho).size();
  if (count == 0 || count % classes != 0)
    fail(EVN_ERROR_INVALID_MODEL, "coefficients has %zu elements for %zu classes", count, classes);
  if (rho != 1 && rho != classes) fail(EVN_ERROR_INVALID_MODEL, "rho has %zu elements for %zu classes", rho, classes);
  require_count(c.node, kVectors, 0);
  require_dim(feature_count(c.shape(0)), static_cast<std::int64_t>(count / classes), 0);
}

// How many scores a row has: one for each class, or for each pair of more than two.
std::size_t score_count(const Node& node, std::size_t classes, std::size_t vectors) {
  return vectors == 0 || has_probabilities(node) || classes == 2 ? classes : pair_count(classes);
}

void infer_classifier(InferContext& c) {
  require_machine(c);
  require_finite(c.node, kProbA);
  require_finite(c.node, kProbB);
  require_count(c.node, kProbB, attr_floats(c.node, kProbA).size());
  const std::size_t classes = class_labels(c.node, kLabelInts, kLabelStrings).count(), vectors = vector_count(c.node, classes);
  if (vectors > 0) {
    require_pairs(c, classes, vectors);
  } else {
    require_linear(c, classes);
  }
  c.outputs[0].shape = {row_count(c.shape(0))};
  if (c.outputs.size() > 1)
    c.outputs[1].shape = {row_count(c.shape(0)), static_cast<std::int64_t>(score_count(c.node, classes, vectors))};
}

DType classifier_dtype(const Node& node, std::span<const DType>, int output) {
  if (output == 1) return DType::kFloat32;
  return class_labels(node, kLabelInts, kLabelStrings).are_strings() ? DType::kString : DType::kInt64;
}

// The decisions of all pairs, and the votes of the classes.
struct Pairwise {
  Pairwise(const Node& n, std::size_t classes, std::size_t vectors)
      : node(n), machine(n), kernels(vectors), decisions(vectors > 0 ? pair_count(classes) : 0), votes(classes) {}

  // The sum over a class's vectors as they count against another one, which has its row in the coefficients.
  double side(std::size_t first, std::size_t own, std::size_t other) const {
    const std::size_t row = other > own ? other - 1 : other;
    const auto count = static_cast<std::size_t>(attr_ints(node, kPerClass)[own]);
    return weighted(attr_floats(node, kCoefficients).subspan(row * kernels.size() + first),
                    std::span(kernels).subspan(first, count));
  }

  void decide(std::span<const double> x) {
    const auto counts = attr_ints(node, kPerClass);
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      cancellation_point();
      kernels[i] = machine.kernel(x, i);
    }
    std::fill(votes.begin(), votes.end(), 0.0);
    std::size_t pair = 0, first_i = 0;
    for (std::size_t i = 0; i < votes.size(); ++i) {
      cancellation_point();
      std::size_t first_j = first_i + static_cast<std::size_t>(counts[i]);
      for (std::size_t j = i + 1; j < votes.size(); ++j, ++pair) {
        cancellation_point();
        decisions[pair] = side(first_i, i, j) + side(first_j, j, i) + attr_floats(node, kRho)[pair];
        votes[decisions[pair] > 0 ? i : j] += 1;
        first_j += static_cast<std::size_t>(counts[j]);
      }
      first_i += static_cast<std::size_t>(counts[i]);
    }
  }

  const Node& node;
  Machine machine;
  std::vector<double> kernels, decisions, votes;
};

// The probabilities p of k classes from those of pairs, r[i][j] = P(i | i or j): the p for which the sum over all pairs of
// (r[j][i] p[i] - r[i][j] p[j])^2 is least, by the iteration of Wu, Lin and Weng, "Probability estimates for multi-class
// classification by pairwise coupling" (2004), stopped where it is stopped everywhere.
void couple(std::span<const double> r, std::span<double> p) {
  const std::size_t k = p.size();
  std::vector<double> q(k * k), qp(k);
  for (std::size_t i = 0; i < k; ++i) {
    cancellation_point();
    for (std::size_t j = 0; j < k; ++j) {
      cancellation_point();
      if (j == i) continue;
      q[i * k + i] += r[j * k + i] * r[j * k + i];
      q[i * k + j] = -r[j * k + i] * r[i * k + j];
    }
  }
  std::fill(p.begin(), p.end(), 1.0 / static_cast<double>(k));
  for (std::size_t turn = 0; turn < std::max<std::size_t>(100, k); ++turn) {
    cancellation_point();
    double pqp = 0, error = 0;
    for (std::size_t i = 0; i < k; ++i) {
      cancellation_point();
      qp[i] = 0;
      for (std::size_t j = 0; j < k; ++j) {
        cancellation_point();
        qp[i] += q[i * k + j] * p[j];
      }
      pqp += p[i] * qp[i];
    }
    for (const double v : qp) {
      cancellation_point();
      error = std::max(error, std::fabs(v - pqp));
    }
    if (error < 0.005 / static_cast<double>(k)) return;
    for (std::size_t i = 0; i < k; ++i) {
      cancellation_point();
      const double step = (pqp - qp[i]) / q[i * k + i];
      p[i] += step;
      pqp = (pqp + step * (step * q[i * k + i] + 2 * qp[i])) / ((1 + step) * (1 + step));
      for (std::size_t j = 0; j < k; ++j) {
        cancellation_point();
        qp[j] = (qp[j] + step * q[i * k + j]) / (1 + step);
        p[j] /= 1 + step;
      }
    }
  }
}

void class_probabilities(const Node& node, std::span<const double> decisions, std::span<double> p) {
  constexpr double kLeast = 1e-7;
  const std::size_t k = p.size();
  std::vector<double> r(k * k);
  std::size_t pair = 0;
  for (std::size_t i = 0; i < k; ++i) {
    cancellation_point();
    for (std::size_t j = i + 1; j < k; ++j, ++pair) {
      cancellation_point();
      const double first = logistic(-(decisions[pair] * attr_floats(node, kProbA)[pair] + attr_floats(node, kProbB)[pair]));
      r[i * k + j] = std::min(std::max(first, kLeast), 1 - kLeast);
      r[j * k + i] = 1 - r[i * k + j];
    }
  }
  couple(r, p);
}

void reference_classifier(const ReferenceContext& c) {
  const ClassLabels labels = class_labels(c.node, kLabelInts, kLabelStrings);
  const std::size_t classes = labels.count(), vectors = vector_count(c.node, classes);
  const ScoreTransform transform = score_transform(attr_string(c.node, kTransform));
  Pairwise pairs(c.node, classes, vectors);
  const Shape& shape = c.input(0).desc.shape;
  std::vector<double> x(static_cast<std::size_t>(feature_count(shape))), scores(score_count(c.node, classes, vectors));
  for (std::int64_t row = 0; row < row_count(shape); ++row) {
    cancellation_point();
    read_row(c.input(0), row, x);
    if (vectors == 0) {
      for (std::size_t k = 0; k < classes; ++k) {
        cancellation_point();
        scores[k] = weighted(attr_floats(c.node, kCoefficients).subspan(k * x.size()), x) + attr_floats(c.node, kRho)[0];
      }
    } else {
      pairs.decide(x);
    }
    labels.write(c, row, best_class(vectors == 0 ? scores : pairs.votes));
    if (c.outputs.size() < 2 || !c.output(1).present()) continue;
    if (vectors > 0 && has_probabilities(c.node)) {
      class_probabilities(c.node, pairs.decisions, scores);
    } else if (vectors > 0 && classes > 2) {
      scores = pairs.decisions;
    }
    if (vectors > 0 && classes == 2 && !has_probabilities(c.node)) {
      transform_pair(transform, transform != ScoreTransform::kNone, pairs.decisions[0], scores);
    } else {
      transform_scores(transform, scores);
    }
    std::copy(scores.begin(), scores.end(), c.output(1).as<float>() + row * static_cast<std::int64_t>(scores.size()));
  }
}

// --------------------------------------------------------------------------------------------------------------- table --

constexpr const char* kDomain = "ai.onnx.ml";
constexpr AttributeSpec kRegress[] = {string_attribute("kernel_type", "LINEAR"),
                                      optional_attribute("kernel_params", AttributeType::kFloats),
                                      string_attribute("post_transform", "NONE"),
                                      optional_attribute("coefficients", AttributeType::kFloats),
                                      optional_attribute("rho", AttributeType::kFloats),
                                      optional_attribute("support_vectors", AttributeType::kFloats),
                                      int_attribute("n_supports", 0),
                                      int_attribute("one_class", 0)};
constexpr AttributeSpec kClassify[] = {string_attribute("kernel_type", "LINEAR"),
                                       optional_attribute("kernel_params", AttributeType::kFloats),
                                       string_attribute("post_transform", "NONE"),
                                       optional_attribute("coefficients", AttributeType::kFloats),
                                       optional_attribute("rho", AttributeType::kFloats),
                                       optional_attribute("support_vectors", AttributeType::kFloats),
                                       optional_attribute("vectors_per_class", AttributeType::kInts),
                                       optional_attribute("prob_a", AttributeType::kFloats),
                                       optional_attribute("prob_b", AttributeType::kFloats),
                                       optional_attribute("classlabels_ints", AttributeType::kInts),
                                       optional_attribute("classlabels_strings", AttributeType::kStrings)};
constexpr Tolerance kTolerance{1e-6, 1e-6};
constexpr OpDef kOps[] = {
    {.name = "SVMRegressor",
     .domain = kDomain,
     .since = 1,
     .attributes = kRegress,
     .dtypes = kFeatureDtypes,
     .output_dtype = float_dtype,
     .infer = infer_regressor,
     .reference = reference_regressor,
     .tolerance = kTolerance},
    {.name = "SVMClassifier",
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
};

}  // namespace

extern const OpFamily ml_svm_family;
const OpFamily ml_svm_family = {kOps};

}  // namespace evn
