// The derivatives of LSTM, GRU and RNN by what goes into their gates, through all steps, for one of the node's directions
// (`index`). Products that do not wait for one another (those with W, and those with R over all steps at once) are nodes around
// these. Not operators of the format (ops/gradient.h). Rows of "sums" are steps of sequences, in the order of the rows of x.
//   RecurrentStates: of inputs y (the forward node's output 0), lengths, initial h: the state before each step [rows, hidden], 0
//   behind the end of a sequence.
//   LSTMGradient: of y (its shape), sums = W x + R h + both biases [rows, 4 hidden], R, lengths, dy, dy_h, dy_c, initial c, P: the
//   derivatives by sums, initial h, initial c [batch, hidden] and P [3 hidden].
//   GRUGradient: of y (its shape), sums, R, lengths, dy, dy_h, the states before each step and `recurrent`: the derivatives by sums
//   and initial h. With linear_before_reset sums are W x + Wb and recurrent is R h + Rb [rows, 3 hidden]; output 2 is the
//   derivative by it. Without, sums are W x + both biases, recurrent is R h of the gates z and r [rows, 2 hidden], and output 2 is
//   r . h. RNNGradient: of y (its shape), sums, R, lengths, dy, dy_h: the derivatives by sums and initial h.
// Attributes: those of the forward node, and `index`. At a corner of an activation the derivative is that of the left side; that of
// HardSigmoid is 0 at both of its corners, that of the clip is 1 at its bounds. dtypes: floating point, all alike. Failures: as
// those of the forward nodes. Tolerance: rtol 1e-4, atol 1e-5.
#include "ops/training/recurrent_gradient.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/merge.h"

namespace evn {
namespace {

using In = RecurrentGradientInput;
using Out = RecurrentGradientOutput;

// ------------------------------------------------------------------------------------------------------------ shapes --

void require_dims(const InferContext& c, int i, std::initializer_list<std::int64_t> dims) {
  if (!c.has_input(i)) return;
  const int rank = static_cast<int>(dims.size());
  require_rank(c, i, rank, rank);
  for (int k = 0; k < rank; ++k) require_dim(c.shape(i)[k], dims.begin()[k], i);
}

void require_lengths(const InferContext& c, int i, std::int64_t batch) {
  if (!c.has_input(i)) return;
  require_dtype(c, i, dtype_bit(DType::kInt32));
  require_dims(c, i, {batch});
}

void infer_states(InferContext& c) {
  using States = RecurrentStatesInput;
  require_rank(c, States::kY, 4, 4);
  const bool batch_first = attr_int(c.node, RecurrentStatesAttr::kLayout) != 0;
  const Shape& y = c.shape(States::kY);
  const RecurrentSizes size = recurrent_output_sizes(batch_first, y);
  const std::int64_t directions = attr_string(c.node, RecurrentStatesAttr::kDirection) == "bidirectional" ? 2 : 1;
  const std::int64_t index = attr_int(c.node, RecurrentStatesAttr::kIndex);
  if (index < 0 || index >= directions) fail(EVN_ERROR_INVALID_MODEL, "index is %lld", static_cast<long long>(index));
  require_dim(y[batch_first ? 2 : 1], directions, States::kY);
  require_lengths(c, States::kLengths, size.batch);
  require_dtype(c, States::kInitialH, dtype_bit(c.inputs[0].dtype));
  if (batch_first) require_dims(c, States::kInitialH, {size.batch, directions, size.hidden});
  else require_dims(c, States::kInitialH, {directions, size.batch, size.hidden});
  c.outputs[0].shape = {dim_product(size.steps, size.batch), size.hidden};
}

void infer_gradient(InferContext& c) {
  const RecurrentForm& form = recurrent_gradient_form(c.node);
  const RecurrentSpec spec = recurrent_spec(c.node, form);
  const std::int64_t directions = spec.directions;
  recurrent_index(c.node, spec);
  require_rank(c, In::kY, 4, 4);
  const RecurrentSizes size = recurrent_output_sizes(spec.batch_first, c.shape(In::kY));
  const std::int64_t given = attr_int(c.node, RecurrentAttr::kHiddenSize);
  if (given > 0) require_dim(size.hidden, given, In::kY);
  const std::int64_t rows = dim_product(size.steps, size.batch), gates = dim_product(form.gates, size.hidden);
  for (int i = 0; i < static_cast<int>(c.inputs.size()); ++i) {
    if (i != In::kLengths) require_dtype(c, i, dtype_bit(c.inputs[0].dtype));
  }
  const Shape& y = c.shape(In::kY);
  require_dim(y[spec.batch_first ? 2 : 1], directions, In::kY);
  const Shape state = spec.batch_first ? Shape{size.batch, directions, size.hidden} : Shape{directions, size.batch, size.hidden};
  require_dims(c, In::kSums, {rows, gates});
  require_dims(c, In::kR, {directions, gates, size.hidden});
  require_lengths(c, In::kLengths, size.batch);
  require_dims(c, In::kDy, {y[0], y[1], y[2], y[3]});
  require_dims(c, In::kDyH, {state[0], state[1], state[2]});
  if (form.gates == 4) {
    require_dims(c, In::kDyC, {state[0], state[1], state[2]});
    require_dims(c, In::kInitialC, {state[0], state[1], state[2]});
    require_dims(c, In::kPeepholes, {directions, dim_product(3, size.hidden)});
  } else if (form.gates == 3) {
    require_input(c, In::kBefore);
    require_input(c, In::kRecurrent);
    require_dims(c, In::kBefore, {rows, size.hidden});
    require_dims(c, In::kRecurrent, {rows, spec.own ? gates : dim_product(2, size.hidden)});
  }
  const Shape shapes[] = {{rows, gates},
                          {size.batch, size.hidden},
                          form.gates == 4 ? Shape{size.batch, size.hidden} : Shape{rows, spec.own ? gates : size.hidden},
                          {dim_product(3, size.hidden)}};
  for (std::size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i].shape = shapes[i];
}

// ------------------------------------------------------------------------------------------------------- activations --

double slope_of(const Activation& f, double x) {
  const auto a = static_cast<double>(f.a), b = static_cast<double>(f.b);
  switch (f.kind) {
    case ActivationKind::kSigmoid: {
      const double y = 1 / (1 + std::exp(-x));
      return y * (1 - y);
    }
    case ActivationKind::kTanh: return 1 - std::tanh(x) * std::tanh(x);
    case ActivationKind::kRelu: return x > 0 ? 1 : 0;
    case ActivationKind::kAffine: return a;
    case ActivationKind::kLeakyRelu: return x > 0 ? 1 : a;
    case ActivationKind::kThresholdedRelu: return x > a ? 1 : 0;
    case ActivationKind::kScaledTanh: return a * b * (1 - std::tanh(b * x) * std::tanh(b * x));
    case ActivationKind::kHardSigmoid: return a * x + b > 0 && a * x + b < 1 ? a : 0;
    case ActivationKind::kElu: return x > 0 ? 1 : a * std::exp(x);
    case ActivationKind::kSoftsign: return 1 / ((1 + std::fabs(x)) * (1 + std::fabs(x)));
    case ActivationKind::kSoftplus: return 1 / (1 + std::exp(-x));
  }
  return 0;
}

// --------------------------------------------------------------------------------------------------------- reference --

using Line = std::vector<double>;

// One direction of the sequences, one after another.
class Back {
 public:
  explicit Back(const ReferenceContext& c)
      : c_(c),
        form_(recurrent_gradient_form(c.node)),
        spec_(recurrent_spec(c.node, form_)),
        size_(recurrent_output_sizes(spec_.batch_first, c.input(In::kY).desc.shape)),
        index_(recurrent_index(c.node, spec_)),
        hidden_(static_cast<std::size_t>(size_.hidden)),
        gates_(form_.gates * size_.hidden) {
    layer_.spec = &spec_;
    layer_.direction = index_;
    layer_.hidden = size_.hidden;
    r_ = recurrent_slice(c, In::kR, index_ * gates_ * size_.hidden, gates_ * size_.hidden);
    if (form_.gates == 4) peephole_ = recurrent_slice(c, In::kPeepholes, index_ * 3 * size_.hidden, 3 * size_.hidden);
    dpeephole_.assign(3 * hidden_, 0);
  }

  void run() {
    const auto* lengths = c_.has_input(In::kLengths) ? c_.input(In::kLengths).as<std::int32_t>() : nullptr;
    for (std::int64_t n = 0; n < size_.batch; ++n) {
      cancellation_point();
      n_ = n;
      steps_ = sequence_steps(lengths, n, size_.steps);
      state_ = size_.state_at(spec_, index_, n);
      run_sequence();
    }
    if (form_.gates == 4) write_recurrent(c_, Out::kDPeepholes, 0, dpeephole_);
  }

 private:
  const ReferenceContext& c_;
  const RecurrentForm& form_;
  const RecurrentSpec spec_;
  const RecurrentSizes size_;
  const int index_;
  const std::size_t hidden_;
  const std::int64_t gates_;
  RecurrentLayer layer_;
  Line r_, peephole_, dpeephole_;
  std::int64_t n_ = 0, steps_ = 0, state_ = 0;
  Line dh_, dc_;                  // of the state behind the step that is looked at
  std::vector<Line> cells_ = {};  // of an LSTM, before the first step and behind each

  std::int64_t place(std::int64_t step) const { return spec_.backwards(index_) ? steps_ - 1 - step : step; }
  std::int64_t row(std::int64_t t) const { return size_.x_row(spec_, t, n_); }
  Line line(int input, std::int64_t t, std::int64_t width) const { return recurrent_slice(c_, input, row(t) * width, width); }
  // Of the function of a clipped x.
  double slope(int function, double x) const {
    const auto bound = static_cast<double>(spec_.clip);
    return bound > 0 && std::fabs(x) > bound ? 0 : slope_of(spec_.activations[index_][function], x);
  }
  // to += what rows [first, last) of R give of d, one element for each row.
  void add_product(const Line& d, std::int64_t first, std::int64_t last, Line* to) const {
    for (std::int64_t i = first; i < last; ++i) {
      for (std::size_t j = 0; j < hidden_; ++j) {
        cancellation_point();
        (*to)[j] += d[static_cast<std::size_t>(i - first)] * r_[static_cast<std::size_t>(i) * hidden_ + j];
      }
    }
  }

  void run_sequence() {
    dh_ = recurrent_slice(c_, In::kDyH, state_, size_.hidden);
    if (form_.gates == 4) start_cells();
    for (std::int64_t s = steps_ - 1; s >= 0; --s) {
      cancellation_point();
      const std::int64_t t = place(s);
      const Line dy = recurrent_slice(c_, In::kDy, size_.y_at(spec_, index_, t, n_), size_.hidden);
      for (std::size_t j = 0; j < hidden_; ++j) dh_[j] += dy[j];
      const Line sums = line(In::kSums, t, gates_);
      const Line d = form_.gates == 4 ? lstm(sums, s) : form_.gates == 3 ? gru(sums, t) : rnn(sums);
      write_recurrent(c_, Out::kDSums, row(t) * gates_, d);
    }
    for (std::int64_t t = steps_; t < size_.steps; ++t) {
      cancellation_point();
      write_recurrent(c_, Out::kDSums, row(t) * gates_, Line(static_cast<std::size_t>(gates_)));
      if (form_.gates != 3) continue;
      const std::int64_t width = spec_.own ? gates_ : size_.hidden;
      write_recurrent(c_, Out::kDRecurrent, row(t) * width, Line(static_cast<std::size_t>(width)));
    }
    write_recurrent(c_, Out::kDInitialH, n_ * size_.hidden, dh_);
    if (form_.gates == 4) write_recurrent(c_, Out::kDInitialC, n_ * size_.hidden, dc_);
  }

  // Gates of an LSTM, in the order of their rows; the first three are P's too.
  enum : std::size_t { kI, kO, kF, kC };
  double gate_sum(const Line& sums, std::size_t gate, const Line& cell, std::size_t j) const {
    return sums[gate * hidden_ + j] + (gate == kC ? 0 : peephole_[gate * hidden_ + j] * cell[j]);
  }

  void start_cells() {
    dc_ = recurrent_slice(c_, In::kDyC, state_, size_.hidden);
    cells_.assign(1, recurrent_slice(c_, In::kInitialC, state_, size_.hidden));
    for (std::int64_t s = 0; s < steps_; ++s) {
      const Line sums = line(In::kSums, place(s), gates_);
      const Line& before = cells_.back();
      Line cell(hidden_);
      for (std::size_t j = 0; j < hidden_; ++j) {
        cancellation_point();
        const double i = layer_.activate(0, gate_sum(sums, kI, before, j));
        const double f = spec_.own ? 1 - i : layer_.activate(0, gate_sum(sums, kF, before, j));
        cell[j] = f * before[j] + i * layer_.activate(1, sums[kC * hidden_ + j]);
      }
      cells_.push_back(std::move(cell));
    }
  }

  Line lstm(const Line& sums, std::int64_t s) {
    const Line &before = cells_[static_cast<std::size_t>(s)], &cell = cells_[static_cast<std::size_t>(s) + 1];
    Line d(sums.size());
    for (std::size_t j = 0; j < hidden_; ++j) {
      cancellation_point();
      const double in_i = gate_sum(sums, kI, before, j), in_f = gate_sum(sums, kF, before, j);
      const double in_o = gate_sum(sums, kO, cell, j), in_c = sums[kC * hidden_ + j];
      const double i = layer_.activate(0, in_i), f = spec_.own ? 1 - i : layer_.activate(0, in_f);
      const double by_o = dh_[j] * layer_.apply(2, cell[j]) * slope(0, in_o);
      const double by_cell = dc_[j] + dh_[j] * layer_.activate(0, in_o) * slope_of(spec_.activations[index_][2], cell[j]) +
                             by_o * peephole_[kO * hidden_ + j];
      const double by_i = (by_cell * layer_.activate(1, in_c) - (spec_.own ? by_cell * before[j] : 0)) * slope(0, in_i);
      const double by_f = spec_.own ? 0 : by_cell * before[j] * slope(0, in_f);
      d[kI * hidden_ + j] = by_i;
      d[kO * hidden_ + j] = by_o;
      d[kF * hidden_ + j] = by_f;
      d[kC * hidden_ + j] = by_cell * i * slope(1, in_c);
      dc_[j] = by_cell * f + by_i * peephole_[kI * hidden_ + j] + by_f * peephole_[kF * hidden_ + j];
      dpeephole_[kI * hidden_ + j] += by_i * before[j];
      dpeephole_[kO * hidden_ + j] += by_o * cell[j];
      dpeephole_[kF * hidden_ + j] += by_f * before[j];
    }
    std::fill(dh_.begin(), dh_.end(), 0);
    add_product(d, 0, gates_, &dh_);
    return d;
  }

  // Gates z, r and the candidate.
  Line gru(const Line& sums, std::int64_t t) {
    const std::size_t h = hidden_;
    const Line before = line(In::kBefore, t, size_.hidden);
    const Line recurrent = line(In::kRecurrent, t, spec_.own ? gates_ : 2 * size_.hidden);
    Line d(sums.size()), reset(h), kept(h), z(h), of_candidate(h);
    for (std::size_t j = 0; j < h; ++j) {
      cancellation_point();
      z[j] = layer_.activate(0, sums[j] + recurrent[j]);
      reset[j] = layer_.activate(0, sums[h + j] + recurrent[h + j]);
      kept[j] = reset[j] * before[j];
    }
    for (std::size_t j = 0; j < h; ++j) {
      double in = sums[2 * h + j] + (spec_.own ? reset[j] * recurrent[2 * h + j] : 0);
      for (std::size_t k = 0; !spec_.own && k < h; ++k) {
        cancellation_point();
        in += r_[(2 * h + j) * h + k] * kept[k];
      }
      of_candidate[j] = dh_[j] * (1 - z[j]) * slope(1, in);
      d[2 * h + j] = of_candidate[j];
      d[j] = dh_[j] * (before[j] - layer_.activate(1, in)) * slope(0, sums[j] + recurrent[j]);
    }
    Line of_kept(h);
    if (!spec_.own) add_product(of_candidate, 2 * size_.hidden, gates_, &of_kept);
    for (std::size_t j = 0; j < h; ++j) {
      cancellation_point();
      const double by_reset = spec_.own ? of_candidate[j] * recurrent[2 * h + j] : of_kept[j] * before[j];
      d[h + j] = by_reset * slope(0, sums[h + j] + recurrent[h + j]);
      dh_[j] = z[j] * dh_[j] + of_kept[j] * reset[j];
    }
    Line by_recurrent = d;
    for (std::size_t j = 0; j < h; ++j) by_recurrent[2 * h + j] *= reset[j];
    add_product(by_recurrent, 0, spec_.own ? gates_ : 2 * size_.hidden, &dh_);
    const std::int64_t width = spec_.own ? gates_ : size_.hidden;
    write_recurrent(c_, Out::kDRecurrent, row(t) * width, spec_.own ? by_recurrent : kept);
    return d;
  }

  Line rnn(const Line& sums) {
    Line d(hidden_);
    for (std::size_t j = 0; j < hidden_; ++j) d[j] = dh_[j] * slope(0, sums[j]);
    std::fill(dh_.begin(), dh_.end(), 0);
    add_product(d, 0, gates_, &dh_);
    return d;
  }
};

void reference_gradient(const ReferenceContext& c) { Back(c).run(); }

template <typename T>
void copy_states(const ReferenceContext& c) {
  using States = RecurrentStatesInput;
  const bool batch_first = attr_int(c.node, RecurrentStatesAttr::kLayout) != 0;
  const int index = static_cast<int>(attr_int(c.node, RecurrentStatesAttr::kIndex));
  const std::string& direction = attr_string(c.node, RecurrentStatesAttr::kDirection);
  RecurrentSpec spec;
  spec.batch_first = batch_first;
  spec.directions = direction == "bidirectional" ? 2 : 1;
  spec.reverse = direction == "reverse";
  const RecurrentSizes size = recurrent_output_sizes(batch_first, c.input(States::kY).desc.shape);
  const auto* lengths = c.has_input(States::kLengths) ? c.input(States::kLengths).as<std::int32_t>() : nullptr;
  for (std::int64_t n = 0; n < size.batch; ++n) {
    const std::int64_t steps = sequence_steps(lengths, n, size.steps);
    for (std::int64_t t = 0; t < size.steps; ++t) {
      cancellation_point(static_cast<std::uint64_t>(size.hidden));
      T* const to = c.output().as<T>() + size.x_row(spec, t, n) * size.hidden;
      const std::int64_t earlier = spec.backwards(index) ? t + 1 : t - 1;
      const bool is_first = earlier < 0 || earlier >= steps;
      if (t >= steps || (is_first && !c.has_input(States::kInitialH))) {
        std::fill_n(to, size.hidden, T(0));
      } else if (is_first) {
        std::copy_n(c.input(States::kInitialH).as<T>() + size.state_at(spec, index, n), size.hidden, to);
      } else {
        std::copy_n(c.input(States::kY).as<T>() + size.y_at(spec, index, earlier, n), size.hidden, to);
      }
    }
  }
}

void reference_states(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { copy_states<decltype(zero)>(c); });
}

// In the order of RecurrentAttr; RNN has none of its own.
constexpr AttributeSpec own_attribute(const char* name) { return int_attribute(name, 0); }
constexpr AttributeSpec kLstm[] = {optional_attribute("activation_alpha", AttributeType::kFloats),
                                   optional_attribute("activation_beta", AttributeType::kFloats),
                                   optional_attribute("activations", AttributeType::kStrings),
                                   float_attribute("clip", 0),
                                   string_attribute("direction", "forward"),
                                   int_attribute("hidden_size", 0),
                                   own_attribute("input_forget"),
                                   int_attribute("layout", 0),
                                   int_attribute("index", 0)};
constexpr AttributeSpec kGru[] = {kLstm[0], kLstm[1], kLstm[2], kLstm[3], kLstm[4], kLstm[5], own_attribute("linear_before_reset"),
                                  kLstm[7], kLstm[8]};
constexpr AttributeSpec kRnn[] = {kLstm[0], kLstm[1], kLstm[2], kLstm[3], kLstm[4], kLstm[5], kLstm[7], kLstm[8]};
constexpr AttributeSpec kStates[] = {kLstm[4], kLstm[7], kLstm[8]};

constexpr OpDef row(const char* name, int inputs, int least, int outputs, std::span<const AttributeSpec> attributes) {
  return {.name = name,
          .domain = kInternalDomain,
          .since = 1,
          .min_inputs = least,
          .max_inputs = inputs,
          .max_outputs = outputs,
          .attributes = attributes,
          .dtypes = kFloats,
          .flags = kOpShapeOnly,
          .infer = infer_gradient,
          .reference = reference_gradient,
          .tolerance = {1e-4, 1e-5}};
}
constexpr OpDef states_row() {
  OpDef op = row(kRecurrentStates, 3, 1, 1, kStates);
  op.flags = 0;
  op.infer = infer_states;
  op.reference = reference_states;
  op.tolerance = {};
  return op;
}

constexpr OpDef kOps[] = {
    row(kLstmGradient, 9, 3, 4, kLstm),
    row(kGruGradient, 8, 3, 3, kGru),
    row(kRnnGradient, 6, 3, 2, kRnn),
    states_row(),
};

}  // namespace

int recurrent_index(const Node& node, const RecurrentSpec& spec) {
  const std::int64_t index = attr_int(node, static_cast<int>(node.op->attributes.size()) - 1);
  if (index < 0 || index >= spec.directions) fail(EVN_ERROR_INVALID_MODEL, "index is %lld", static_cast<long long>(index));
  return static_cast<int>(index);
}

const RecurrentForm& recurrent_gradient_form(const Node& node) {
  if (node.op_type == kLstmGradient) return kLstmForm;
  return node.op_type == kGruGradient ? kGruForm : kRnnForm;
}

RecurrentSizes recurrent_output_sizes(bool batch_first, const Shape& y) {
  return {y[batch_first ? 1 : 0], y[batch_first ? 0 : 2], -1, y[3]};
}

extern const OpFamily recurrent_gradient_family;
const OpFamily recurrent_gradient_family = {kOps};

}  // namespace evn
