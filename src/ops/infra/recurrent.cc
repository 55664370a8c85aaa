// See ops/recurrent.h.
#include "ops/recurrent.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "base/checked.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

struct ActivationRow {
  const char* name;
  ActivationKind kind;
  bool has_a, has_b;  // takes a value of activation_alpha, of activation_beta
  float a, b;         // where the lists have none
};
constexpr ActivationRow kActivations[] = {
    {"Sigmoid", ActivationKind::kSigmoid, false, false, 0, 0},
    {"Tanh", ActivationKind::kTanh, false, false, 0, 0},
    {"Relu", ActivationKind::kRelu, false, false, 0, 0},
    {"Affine", ActivationKind::kAffine, true, true, 1, 0},
    {"LeakyRelu", ActivationKind::kLeakyRelu, true, false, 0.01f, 0},
    {"ThresholdedRelu", ActivationKind::kThresholdedRelu, true, false, 1, 0},
    {"ScaledTanh", ActivationKind::kScaledTanh, true, true, 1, 1},
    {"HardSigmoid", ActivationKind::kHardSigmoid, true, true, 0.2f, 0.5f},
    {"Elu", ActivationKind::kElu, true, false, 1, 0},
    {"Softsign", ActivationKind::kSoftsign, false, false, 0, 0},
    {"Softplus", ActivationKind::kSoftplus, false, false, 0, 0},
};

// Some exporters write them in lower case.
bool same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

const ActivationRow& find_activation(std::string_view name) {
  for (const ActivationRow& row : kActivations) {
    if (same_name(row.name, name)) return row;
  }
  fail(EVN_ERROR_INVALID_MODEL, "'%.64s' is no activation", std::string(name).c_str());
}

// The values of the lists are for the activations that take one, in their order.
void read_activations(const Node& node, const RecurrentForm& form, RecurrentSpec* spec) {
  const std::span<const std::string> names = attr_strings(node, RecurrentAttr::kActivations);
  const std::span<const float> alphas = attr_floats(node, RecurrentAttr::kActivationAlpha);
  const std::span<const float> betas = attr_floats(node, RecurrentAttr::kActivationBeta);
  const auto count = static_cast<std::size_t>(spec->directions * form.functions);
  if (!names.empty() && names.size() != count) {
    fail(EVN_ERROR_INVALID_MODEL, "%zu activations, where %zu are needed", names.size(), count);
  }
  std::size_t alpha = 0;
  std::size_t beta = 0;
  for (std::size_t i = 0; i < count; ++i) {
    cancellation_point();
    const int function = static_cast<int>(i) % form.functions;
    const ActivationRow& row = find_activation(names.empty() ? std::string_view(form.defaults[function]) : names[i]);
    Activation& activation = spec->activations[static_cast<int>(i) / form.functions][function];
    activation = {row.kind, row.a, row.b};
    if (row.has_a && alpha < alphas.size()) activation.a = alphas[alpha++];
    if (row.has_b && beta < betas.size()) activation.b = betas[beta++];
  }
}

double activation(const Activation& f, double x) {
  const double a = static_cast<double>(f.a);
  const double b = static_cast<double>(f.b);
  switch (f.kind) {
    case ActivationKind::kSigmoid: return 1 / (1 + std::exp(-x));
    case ActivationKind::kTanh: return std::tanh(x);
    case ActivationKind::kRelu: return x < 0 ? 0 : x;
    case ActivationKind::kAffine: return a * x + b;
    case ActivationKind::kLeakyRelu: return x < 0 ? a * x : x;
    case ActivationKind::kThresholdedRelu: return x > a ? x : 0;
    case ActivationKind::kScaledTanh: return a * std::tanh(b * x);
    case ActivationKind::kHardSigmoid: return std::min(std::max(a * x + b, 0.0), 1.0);
    case ActivationKind::kElu: return x < 0 ? a * std::expm1(x) : x;
    case ActivationKind::kSoftsign: return x / (1 + std::fabs(x));
    case ActivationKind::kSoftplus: return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
  }
  return x;
}

// ------------------------------------------------------------------------------------------------------ reference --

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    cancellation_point();
    sum += a[i] * b[i];
  }
  return sum;
}

// One direction over all sequences.
class Direction {
 public:
  Direction(const ReferenceContext& c, const RecurrentForm& form, const RecurrentSpec& spec, int direction)
      : c_(c), spec_(spec), direction_(direction), size_(recurrent_sizes(spec, c.input(0).desc.shape, c.input(2).desc.shape)) {
    rows_ = form.gates * size_.hidden;
    w_ = recurrent_slice(c, RecurrentInput::kW, direction * rows_ * size_.inputs, rows_ * size_.inputs);
    layer_.spec = &spec;
    layer_.direction = direction;
    layer_.hidden = size_.hidden;
    layer_.r = recurrent_slice(c, RecurrentInput::kR, direction * rows_ * size_.hidden, rows_ * size_.hidden);
    layer_.w_bias = recurrent_slice(c, RecurrentInput::kB, direction * 2 * rows_, rows_);
    layer_.r_bias = recurrent_slice(c, RecurrentInput::kB, (direction * 2 + 1) * rows_, rows_);
    layer_.peephole = recurrent_slice(c, RecurrentInput::kPeepholes, direction * 3 * size_.hidden, 3 * size_.hidden);
  }

  void run_sequence(std::int64_t n, RecurrentStep step) {
    const bool has_lengths = c_.has_input(RecurrentInput::kLengths);
    const auto* lengths = has_lengths ? c_.input(RecurrentInput::kLengths).as<std::int32_t>() : nullptr;
    const std::int64_t steps = sequence_steps(lengths, n, size_.steps);
    const std::int64_t state = size_.state_at(spec_, direction_, n);
    std::vector<double> h = recurrent_slice(c_, RecurrentInput::kInitialH, state, size_.hidden);
    std::vector<double> cell = recurrent_slice(c_, RecurrentInput::kInitialC, state, size_.hidden);
    for (std::int64_t s = 0; s < steps; ++s) {
      cancellation_point();
      const std::int64_t t = spec_.backwards(direction_) ? steps - 1 - s : s;
      step(layer_, project(t, n), h, cell);
      write(0, size_.y_at(spec_, direction_, t, n), h);
    }
    for (std::int64_t t = steps; t < size_.steps; ++t) {
      cancellation_point();
      write(0, size_.y_at(spec_, direction_, t, n), std::vector<double>(h.size(), 0.0));
    }
    write(1, state, h);
    write(2, state, cell);
  }

 private:
  std::vector<double> project(std::int64_t t, std::int64_t n) const {
    const std::int64_t row = size_.x_row(spec_, t, n);
    const std::vector<double> x = recurrent_slice(c_, RecurrentInput::kX, row * size_.inputs, size_.inputs);
    std::vector<double> wx(static_cast<std::size_t>(rows_));
    for (std::int64_t i = 0; i < rows_; ++i) {
      cancellation_point();
      wx[i] = dot(w_.data() + i * size_.inputs, x.data(), size_.inputs);
    }
    return wx;
  }

  void write(std::size_t output, std::int64_t at, const std::vector<double>& values) const {
    write_recurrent(c_, output, at, values);
  }

  const ReferenceContext& c_;
  const RecurrentSpec& spec_;
  int direction_;
  RecurrentSizes size_;
  std::int64_t rows_;
  std::vector<double> w_;
  RecurrentLayer layer_;
};

}  // namespace

RecurrentSpec recurrent_spec(const Node& node, const RecurrentForm& form) {
  RecurrentSpec spec;
  const std::string& direction = attr_string(node, RecurrentAttr::kDirection);
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    fail(EVN_ERROR_INVALID_MODEL, "direction is '%.64s'", direction.c_str());
  }
  spec.directions = direction == "bidirectional" ? 2 : 1;
  spec.reverse = direction == "reverse";
  spec.clip = attr_float(node, RecurrentAttr::kClip);
  if (!(spec.clip >= 0)) fail(EVN_ERROR_INVALID_MODEL, "clip is negative");
  const int layout_at = RecurrentAttr::kOwn + (form.gates > 1 ? 1 : 0);
  if (node.op->attributes.size() > static_cast<std::size_t>(layout_at)) {
    const std::int64_t layout = attr_int(node, layout_at);
    if (layout != 0 && layout != 1) fail(EVN_ERROR_INVALID_MODEL, "layout is %lld", static_cast<long long>(layout));
    spec.batch_first = layout == 1;
  }
  spec.own = form.gates > 1 && attr_int(node, RecurrentAttr::kOwn) != 0;
  read_activations(node, form, &spec);
  return spec;
}

RecurrentSizes recurrent_sizes(const RecurrentSpec& spec, const Shape& x, const Shape& r) {
  const int steps_axis = spec.batch_first ? 1 : 0;
  return {x[steps_axis], x[1 - steps_axis], x[2], r[2]};
}

std::int64_t sequence_steps(const std::int32_t* lengths, std::int64_t n, std::int64_t all) {
  if (lengths == nullptr) return all;
  if (lengths[n] < 0 || lengths[n] > all) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "sequence %lld has a length of %d, where x has %lld steps", static_cast<long long>(n),
         lengths[n], static_cast<long long>(all));
  }
  return lengths[n];
}

void infer_recurrent(InferContext& c, const RecurrentForm& form) {
  using In = RecurrentInput;
  const RecurrentSpec spec = recurrent_spec(c.node, form);
  for (int i = In::kW; i <= In::kPeepholes; ++i) {
    require_dtype(c, i, i == In::kLengths ? dtype_bit(DType::kInt32) : dtype_bit(c.inputs[0].dtype));
  }
  for (const int i : {In::kX, In::kW, In::kR, In::kInitialH, In::kInitialC}) require_rank(c, i, 3, 3);
  const RecurrentSizes size = recurrent_sizes(spec, c.shape(In::kX), c.shape(In::kR));
  const std::int64_t given = attr_int(c.node, RecurrentAttr::kHiddenSize);
  if (given < 0) fail(EVN_ERROR_INVALID_MODEL, "hidden_size is %lld", static_cast<long long>(given));
  const std::int64_t hidden = given > 0 ? given : size.hidden;
  const std::int64_t rows = hidden < 0 ? -1 : checked_mul<std::int64_t>(form.gates, hidden);
  const auto require_dims = [&](int i, std::initializer_list<std::int64_t> dims) {
    if (!c.has_input(i)) return;
    require_rank(c, i, static_cast<int>(dims.size()), static_cast<int>(dims.size()));
    for (std::size_t k = 0; k < dims.size(); ++k) require_dim(c.shape(i)[static_cast<int>(k)], dims.begin()[k], i);
  };
  const Shape state = spec.batch_first ? Shape{size.batch, spec.directions, hidden} : Shape{spec.directions, size.batch, hidden};
  require_dims(In::kW, {spec.directions, rows, size.inputs});
  require_dims(In::kR, {spec.directions, rows, hidden});
  require_dims(In::kB, {spec.directions, rows < 0 ? -1 : checked_mul<std::int64_t>(2, rows)});
  require_dims(In::kLengths, {size.batch});
  require_dims(In::kInitialH, {state[0], state[1], state[2]});
  require_dims(In::kInitialC, {state[0], state[1], state[2]});
  require_dims(In::kPeepholes, {spec.directions, hidden < 0 ? -1 : checked_mul<std::int64_t>(3, hidden)});
  for (std::size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i].shape = state;
  if (c.outputs.empty()) return;
  c.outputs[0].shape = spec.batch_first ? Shape{size.batch, size.steps, spec.directions, hidden}
                                        : Shape{size.steps, spec.directions, size.batch, hidden};
}

std::vector<double> recurrent_slice(const ReferenceContext& c, int input, std::int64_t begin, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count), 0.0);
  if (!c.has_input(input)) return values;
  dispatch_floats(c.input(input).desc.dtype, [&](auto zero) {
    const auto* from = c.input(input).as<decltype(zero)>() + begin;
    copy_in_pieces(from, count, values.data());
  });
  return values;
}

void write_recurrent(const ReferenceContext& c, std::size_t output, std::int64_t at, const std::vector<double>& values) {
  if (output >= c.outputs.size() || !c.outputs[output].present()) return;
  dispatch_floats(c.outputs[output].desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    copy_in_pieces(values.data(), static_cast<std::int64_t>(values.size()), c.outputs[output].as<T>() + at);
  });
}

double RecurrentLayer::recur(std::int64_t row, const std::vector<double>& h) const {
  return dot(r.data() + row * hidden, h.data(), hidden);
}

double RecurrentLayer::apply(int function, double x) const { return activation(spec->activations[direction][function], x); }

double RecurrentLayer::activate(int function, double x) const {
  const double bound = static_cast<double>(spec->clip);
  if (bound > 0 && !std::isnan(x)) x = std::clamp(x, -bound, bound);
  return apply(function, x);
}

void reference_recurrent(const ReferenceContext& c, const RecurrentForm& form, RecurrentStep step) {
  const RecurrentSpec spec = recurrent_spec(c.node, form);
  const std::int64_t batch = c.input(0).desc.shape[spec.batch_first ? 0 : 1];
  for (int d = 0; d < spec.directions; ++d) {
    Direction direction(c, form, spec, d);
    for (std::int64_t n = 0; n < batch; ++n) {
      cancellation_point();
      direction.run_sequence(n, step);
    }
  }
}

}  // namespace evn
