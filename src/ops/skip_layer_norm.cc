// com.microsoft's fused operators of transformers:
//   SkipLayerNormalization  s = x + skip + bias; y = (s - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis;
//                           outputs 1, 2 and 3, when wanted: mean, 1 / sqrt(variance + epsilon), s; beta and bias are optional
//   SkipSimplifiedLayerNormalization   the same without beta, and with 0 for the mean
//   FastGelu                y = s / 2 * (1 + tanh(sqrt(2 / pi) * (s + 0.044715 s^3))), s = x + bias
//   BiasGelu, Gelu          y = s / 2 * (1 + erf(s / sqrt(2))), s = x + bias, and x
//   QuickGelu               y = x * Sigmoid(alpha * x)
//   BiasSplitGelu           y = left * Gelu(right), the halves of x + bias along the last axis
// skip has the shape of x, or lacks its batch axis (or has 1 there); gamma, beta and bias are as long as the last axis.
// dtypes: floating point, all alike. Failures: dims that do not fit. Tolerance: rtol 1e-4, atol 1e-5.
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

enum : int { kX, kSkip, kGamma };

// The numbers of optional inputs; -1: the operator has none.
struct SkipForm {
  bool centered;
  int beta, bias;
};
constexpr SkipForm kCentered = {true, 3, 4};
constexpr SkipForm kSimplified = {false, -1, 3};

std::int64_t last_dim(const Shape& s) { return s[s.rank() - 1]; }

DType skip_dtype(const Node&, std::span<const DType> inputs, int output) {
  return output == 1 || output == 2 ? DType::kFloat32 : inputs[0];
}

void infer_skip(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  require_rank(c, kX, 2, 3);
  const Shape& x = c.shape(kX);
  const Shape& skip = c.shape(kSkip);
  require_rank(c, kSkip, x.rank() - 1, x.rank());
  const int missing = x.rank() - skip.rank();
  for (int i = missing; i < x.rank(); ++i) {
    if (i == 0 && skip[0] == 1) continue;
    require_dim(skip[i - missing], x[i], kSkip);
  }
  for (int i = kGamma; i < static_cast<int>(c.inputs.size()); ++i) require_vector(c, i, last_dim(x));
  Shape reduced = x;
  reduced[x.rank() - 1] = 1;
  for (std::size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i].shape = i == 1 || i == 2 ? reduced : x;
}

bool wanted(const ReferenceContext& c, std::size_t i) { return c.outputs.size() > i && c.outputs[i].present(); }

template <typename T>
void skip_layer_norm(const ReferenceContext& c, const SkipForm& form) {
  const Shape& x = c.input(kX).desc.shape;
  const std::int64_t size = last_dim(x);
  const std::int64_t skipped = c.input(kSkip).desc.shape.elements();
  const double epsilon = attr_float(c.node, 0);
  if (x.elements() == 0) return;
  const auto element = [&](int input, std::int64_t i) {
    return input >= 0 && c.has_input(input) ? static_cast<double>(c.input(input).as<T>()[i]) : 0.0;
  };
  for (std::int64_t begin = 0; begin < x.elements(); begin += size) {
    cancellation_point();
    const auto sum_at = [&](std::int64_t i) {
      return element(kX, begin + i) + element(kSkip, (begin + i) % skipped) + element(form.bias, i);
    };
    double mean = 0, variance = 0;
    for (std::int64_t i = 0; i < size && form.centered; ++i) {
      cancellation_point();
      mean += sum_at(i);
    }
    mean /= static_cast<double>(size);
    for (std::int64_t i = 0; i < size; ++i) {
      cancellation_point();
      variance += (sum_at(i) - mean) * (sum_at(i) - mean);
    }
    const double inverse = 1 / std::sqrt(variance / static_cast<double>(size) + epsilon);
    for (std::int64_t i = 0; i < size; ++i) {
      cancellation_point();
      const double y = (sum_at(i) - mean) * inverse * element(kGamma, i) + element(form.beta, i);
      if (wanted(c, 0)) c.output().as<T>()[begin + i] = static_cast<T>(y);
      if (wanted(c, 3)) c.output(3).as<T>()[begin + i] = static_cast<T>(sum_at(i));
    }
    if (wanted(c, 1)) c.output(1).as<float>()[begin / size] = static_cast<float>(mean);
    if (wanted(c, 2)) c.output(2).as<float>()[begin / size] = static_cast<float>(inverse);
  }
}

void reference_skip(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { skip_layer_norm<decltype(zero)>(c, kCentered); });
}

void reference_simplified(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { skip_layer_norm<decltype(zero)>(c, kSimplified); });
}

// -------------------------------------------------------------------------------------------------- activations --

void infer_biased(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  if (c.has_input(1)) {
    require_rank(c, 0, 1);
    require_vector(c, 1, last_dim(c.shape(0)));
  }
  infer_same_shape(c);
}

double fast_gelu(double x, double) { return x / (1 + std::exp(-1.5957691216057308 * (x + 0.044715 * x * x * x))); }
double gelu(double x, double) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }
double quick_gelu(double x, double alpha) { return x / (1 + std::exp(-alpha * x)); }

template <double (*kFunction)(double, double)>
void reference_biased(const ReferenceContext& c) {
  const double alpha = c.node.op->attributes.empty() ? 0 : attr_float(c.node, 0);
  const std::int64_t count = c.output().desc.shape.elements();
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < count; ++i) {
      cancellation_point();
      double x = c.input(0).as<T>()[i];
      if (c.has_input(1)) x += static_cast<double>(c.input(1).as<T>()[i % c.input(1).desc.shape[0]]);
      c.output().as<T>()[i] = static_cast<T>(kFunction(x, alpha));
    }
  });
}

void infer_split(InferContext& c) {
  require_same_dtype(c, 0, 1);
  require_rank(c, 0, 1);
  const std::int64_t size = last_dim(c.shape(0));
  require_vector(c, 1, size);
  infer_same_shape(c);
  if (size < 0) return;
  if (size % 2 != 0) fail(EVN_ERROR_INVALID_MODEL, "%lld elements have no halves", static_cast<long long>(size));
  c.outputs[0].shape[c.shape(0).rank() - 1] = size / 2;
}

void reference_split(const ReferenceContext& c) {
  const std::int64_t half = last_dim(c.output().desc.shape);
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < c.output().desc.shape.elements(); ++i) {
      cancellation_point();
      const auto sum = [&](std::int64_t at) {
        const std::int64_t from = i / half * 2 * half + at;
        return static_cast<double>(c.input(0).as<T>()[from]) + static_cast<double>(c.input(1).as<T>()[at]);
      };
      c.output().as<T>()[i] = static_cast<T>(sum(i % half) * gelu(sum(half + i % half), 0));
    }
  });
}

constexpr const char* kDomain = "com.microsoft";
constexpr AttributeSpec kEpsilon[] = {float_attribute("epsilon", 1e-12f)};
constexpr AttributeSpec kAlpha[] = {float_attribute("alpha", 1.702f)};
constexpr Tolerance kNear = {1e-4, 1e-5};

using Reference = void (*)(const ReferenceContext&);
constexpr OpDef biased(const char* name, int least, int most, Reference reference, std::span<const AttributeSpec> attributes = {}) {
  return {name, kDomain, 1, least, most, 1, 1, attributes, kFloats, 0, 0, nullptr, infer_biased, reference, {1e-5, 1e-6}};
}

constexpr OpDef kOps[] = {
    {.name = "SkipLayerNormalization",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 5,
     .max_outputs = 4,
     .attributes = kEpsilon,
     .dtypes = kFloats,
     .output_dtype = skip_dtype,
     .infer = infer_skip,
     .reference = reference_skip,
     .tolerance = kNear},
    {.name = "SkipSimplifiedLayerNormalization",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 4,
     .max_outputs = 4,
     .attributes = kEpsilon,
     .dtypes = kFloats,
     .output_dtype = skip_dtype,
     .infer = infer_skip,
     .reference = reference_simplified,
     .tolerance = kNear},
    {.name = "BiasSplitGelu",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kFloats,
     .infer = infer_split,
     .reference = reference_split,
     .tolerance = {1e-5, 1e-6}},
    biased("FastGelu", 1, 2, reference_biased<fast_gelu>),
    biased("BiasGelu", 2, 2, reference_biased<gelu>),
    biased("Gelu", 1, 1, reference_biased<gelu>),
    biased("QuickGelu", 1, 1, reference_biased<quick_gelu>, kAlpha),
};

}  // namespace

extern const OpFamily skip_layer_norm_family;
const OpFamily skip_layer_norm_family = {kOps};

}  // namespace evn
