// Loop and Scan. The forward node also stacks what it carries, as it is before each iteration. The way back is a Scan over that,
// from the last iteration to the first, whose body is that of the forward node, computed once more, and a Gradient in it: of the
// sum of what the iteration makes, each times its derivative, by what it reads. What it carries are the derivatives by what the
// forward node carries, and the sums of those by values around the body.
#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "graph/bodies.h"
#include "graph/gradient/bound.h"
#include "graph/gradient/rules.h"
#include "ops/merge.h"

namespace evn {
namespace {

// Operators that would give other numbers when the body runs once more.
bool draws(const Node& node) {
  constexpr std::string_view kRandom[] = {"RandomNormal",      "RandomUniform", "RandomNormalLike",
                                          "RandomUniformLike", "Bernoulli",     "Multinomial"};
  if (node.op_type == "Dropout") return node.inputs.size() > 2 && node.inputs[2] != kNoValue;
  return node.domain.empty() && std::find(std::begin(kRandom), std::end(kRandom), node.op_type) != std::end(kRandom);
}

bool draws(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    cancellation_point();
    if (draws(node)) return true;
    for (const Attribute& a : node.attributes) {
      const auto* inner = std::get_if<std::shared_ptr<Graph>>(&a.value);
      if (inner != nullptr && *inner != nullptr && draws(**inner)) return true;
    }
  }
  return false;
}

// A graph that nodes and values are added to. It has not been validated yet.
class BodyWriter {
 public:
  BodyWriter(Graph& graph, std::string prefix) : graph_(graph), prefix_(std::move(prefix)) {}

  ValueId add(DType dtype) {
    if (graph_.values.size() >= INT32_MAX) fail(EVN_ERROR_LIMIT, "a body has too many values");
    Value& value = graph_.values.emplace_back();
    value.name = prefix_ + "/" + std::to_string(graph_.values.size());
    value.dtype = dtype;
    return static_cast<ValueId>(graph_.values.size() - 1);
  }
  ValueId add_like(ValueId v) {
    const ValueId made = add(value(v).dtype);
    value(made).has_shape = value(v).has_shape;
    value(made).shape = value(v).shape;
    return made;
  }
  Value& value(ValueId v) { return graph_.values[static_cast<std::size_t>(v)]; }

  Node& node(const char* op, std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
    Node& made = graph_.nodes.emplace_back();
    made.name = prefix_ + "/" + op + "_" + std::to_string(graph_.nodes.size());
    made.op_type = op;
    made.since_version = 13;
    made.inputs = std::move(inputs);
    made.outputs = std::move(outputs);
    return made;
  }
  ValueId op(const char* op, std::vector<ValueId> inputs, DType dtype) {
    const ValueId y = add(dtype);
    node(op, std::move(inputs), {y});
    return y;
  }

 private:
  Graph& graph_;
  const std::string prefix_;
};

std::int64_t entry(const std::vector<std::int64_t>* list, std::size_t i) {
  return list == nullptr || i >= list->size() ? 0 : (*list)[i];
}

class Iterations {
 public:
  explicit Iterations(Backward& b)
      : b_(b), t_(b.tape), is_loop_(b.node.op_type == "Loop"), forward_(*b.tape.graph().nodes[b.forward_number()].body) {
    count();
    if (draws(forward_)) b.refuse("its body draws random numbers, and would draw others when it is computed once more");
    back_ = std::make_shared<Graph>(forward_);
    for (std::size_t i = 0; i < states_; ++i) {
      is_float_.push_back(t_.may_be_float(b.x(first_ + i)));
      if (t_.graph().values[static_cast<std::size_t>(b.x(first_ + i))].wraps) b.refuse("it carries sequences or optionals");
    }
  }

  void run() {
    describe_inputs();
    BodyWriter w(*back_, t_.fresh_name("body"));
    for (Node& node : back_->nodes) node.name = bounded_path(t_.gradient_name() + "/") + node.name;
    const std::vector<ValueId> own = back_->inputs;
    back_->inputs.clear();
    carry(w, own);
    scan(w, own);
    for (std::size_t k = captured_; k < b_.inputs.size(); ++k) back_->inputs.push_back(own[k]);
    const std::vector<ValueId> captures(b_.inputs.begin() + static_cast<std::ptrdiff_t>(captured_), b_.inputs.end());
    differentiate(w);
    std::vector<ValueId> inputs = carried_;
    inputs.insert(inputs.end(), scanned_.begin(), scanned_.end());
    const Tape::Attributes attributes = {{"num_scan_inputs", static_cast<std::int64_t>(scanned_.size()), {}},
                                         {"scan_input_axes", axes_, {}},
                                         {"scan_input_directions", directions_, {}},
                                         {"scan_output_axes", output_axes_, {}},
                                         {"scan_output_directions", output_directions_, {}}};
    const std::size_t outputs = back_->outputs.size();
    give(t_.with_body("Scan", std::move(inputs), captures, attributes, back_, outputs));
  }

 private:
  Backward& b_;
  Tape& t_;
  const bool is_loop_;
  Graph& forward_;
  std::shared_ptr<Graph> back_;
  std::size_t first_ = 0, states_ = 0, scans_ = 0, captured_ = 0;  // inputs: first state, counts, first capture
  std::size_t body_first_ = 0, stacked_ = 0;                       // outputs of the body before the states; scan outputs
  std::vector<bool> is_float_;                                     // by state

  // What the way back carries and scans, outside of its body, and which inputs of the forward node the results are for.
  std::vector<ValueId> carried_, scanned_;
  Tape::Ints axes_, directions_, output_axes_, output_directions_;
  std::vector<ValueId> terms_, xs_;      // in its body: of the sum, and what is differentiated by
  std::vector<ValueId> sums_;            // in its body: by x, what its derivative is added to; kNoValue: handed on
  std::vector<std::size_t> of_carried_;  // by carried value
  std::vector<std::size_t> of_scanned_;  // by scan output
  DType dtype_ = DType::kUndefined;      // of the sum

  void count() {
    const auto captures = static_cast<std::size_t>(b_.node.captures);
    captured_ = b_.inputs.size() - captures;
    if (is_loop_) {
      first_ = 2;
      body_first_ = 1;
    } else {
      if (b_.node.op->since < 9) b_.refuse("before version 9 it has no rule");
      scans_ = static_cast<std::size_t>(std::max<std::int64_t>(b_.integer("num_scan_inputs"), 0));
    }
    const bool fits = captured_ >= first_ + scans_ && forward_.inputs.size() == b_.inputs.size();
    states_ = fits ? captured_ - first_ - scans_ : 0;
    if (!fits || forward_.outputs.size() < body_first_ + states_) b_.refuse("its body has other inputs or outputs");
    stacked_ = forward_.outputs.size() - body_first_ - states_;
    if (b_.outputs.size() > states_ + stacked_) b_.refuse("its body has other inputs or outputs");
    for (std::size_t i = first_; i < captured_; ++i) {
      if (b_.x(i) == kNoValue) b_.refuse("an input is missing");
    }
  }

  ValueId made_by_body(std::size_t output) const { return back_->outputs[body_first_ + output]; }

  // What is known of the inputs outside: rules within the body go by it.
  void describe_inputs() {
    for (std::size_t i = first_; i < b_.inputs.size(); ++i) {
      Value& inner = back_->values[static_cast<std::size_t>(back_->inputs[i])];
      if (inner.dtype == DType::kUndefined) inner.dtype = t_.dtype(b_.x(i));
      if (inner.has_shape || t_.rank(b_.x(i)) < 0) continue;
      Shape shape = t_.shape(b_.x(i));
      if (i >= first_ + states_ && i < captured_) {
        const std::int64_t axis = entry(b_.list("scan_input_axes"), i - first_ - states_);
        const int at = b_.axis_of(axis, shape.rank());
        Shape slice;
        for (int k = 0; k < shape.rank(); ++k) {
          if (k != at) slice.push_back(shape[k]);
        }
        shape = slice;
      } else if (i < first_ + states_ && is_loop_) {
        for (int k = 0; k < shape.rank(); ++k) shape[k] = -1;  // which an iteration may change
      }
      inner.has_shape = true;
      inner.shape = shape;
    }
  }

  // A value that the way back carries, first `outside`. Returns it in the body.
  ValueId carry_one(BodyWriter& w, ValueId like, ValueId outside, std::size_t input) {
    const ValueId inner = w.add_like(like);
    back_->inputs.push_back(inner);
    carried_.push_back(outside);
    of_carried_.push_back(input);
    return inner;
  }

  void add_term(BodyWriter& w, ValueId made, ValueId dy, DType dtype) {
    if (dtype != DType::kUndefined && dtype_ != DType::kUndefined && dtype != dtype_) b_.refuse("it makes values of several types");
    if (dtype_ == DType::kUndefined) dtype_ = dtype;
    const ValueId sum = w.add(dtype);
    w.node("ReduceSum", {w.op("Mul", {made, dy}, dtype)}, {sum}).attributes = {{"keepdims", std::int64_t{0}, {}}};
    terms_.push_back(sum);
  }

  ValueId dy(std::size_t output) const { return output < b_.dys.size() ? b_.dys[output] : kNoValue; }

  void carry(BodyWriter& w, const std::vector<ValueId>& own) {
    for (std::size_t i = 0; i < states_; ++i) {
      if (!is_float_[i]) continue;
      const ValueId given = dy(i) != kNoValue ? dy(i) : t_.filled(0, b_.demand_output(i));
      const ValueId inner = carry_one(w, own[first_ + i], given, first_ + i);
      if (is_loop_) w.value(inner).has_shape = false;
      add_term(w, made_by_body(i), inner, t_.dtype(b_.x(first_ + i)));
      xs_.push_back(own[first_ + i]);
      sums_.push_back(kNoValue);
    }
    for (std::size_t k = captured_; k < b_.inputs.size(); ++k) {
      if (!b_.wants(k)) continue;
      sums_.push_back(carry_one(w, own[k], t_.filled(0, b_.x(k)), k));
      xs_.push_back(own[k]);
    }
  }

  void scan_one(ValueId inner, ValueId outside, std::int64_t axis, std::int64_t direction) {
    back_->inputs.push_back(inner);
    scanned_.push_back(outside);
    axes_.push_back(axis);
    directions_.push_back(direction);
  }

  void scan(BodyWriter& w, const std::vector<ValueId>& own) {
    const std::vector<std::int64_t>*axes = b_.list("scan_input_axes"), *directions = b_.list("scan_input_directions");
    const std::vector<std::int64_t>*made_axes = b_.list("scan_output_axes"), *made_directions = b_.list("scan_output_directions");
    for (std::size_t k = 0; k < stacked_; ++k) {
      if (dy(states_ + k) == kNoValue) continue;
      const DType dtype = t_.dtype(dy(states_ + k));
      const ValueId inner = w.add(dtype);
      scan_one(inner, dy(states_ + k), entry(made_axes, k), 1 - entry(made_directions, k));
      add_term(w, made_by_body(states_ + k), inner, dtype);
    }
    const std::vector<ValueId> saved = save();
    for (std::size_t i = 0; i < saved.size(); ++i) scan_one(own[is_loop_ && i == states_ ? 0 : first_ + i], saved[i], 0, 1);
    for (std::size_t i = 0; i < scans_; ++i) {
      const std::size_t input = first_ + states_ + i;
      scan_one(own[input], b_.x(input), entry(axes, i), 1 - entry(directions, i));
      if (!b_.wants(input)) continue;
      xs_.push_back(own[input]);
      sums_.push_back(kNoValue);
      output_axes_.push_back(entry(axes, i));
      output_directions_.push_back(1 - entry(directions, i));
      of_scanned_.push_back(input);
    }
    if (is_loop_) set_true(w.value(own[1]));  // else there would have been no iteration
  }

  static void set_true(Value& value) {
    void* bytes = nullptr;
    std::shared_ptr<Weight> weight = make_weight({DType::kBool, {}}, nullptr, &bytes);
    *static_cast<bool*>(bytes) = true;
    value.dtype = DType::kBool;
    value.has_shape = true;
    value.shape = {};
    value.constant = std::move(weight);
  }

  // What is carried, and the numbers of a Loop's iterations, become further scan outputs of the forward node.
  std::vector<ValueId> save() {
    BodyWriter w(forward_, t_.fresh_name("saved"));
    std::vector<ValueId> inner;
    for (std::size_t i = 0; i < states_; ++i) inner.push_back(forward_.inputs[first_ + i]);
    if (is_loop_) inner.push_back(forward_.inputs[0]);
    std::vector<ValueId> saved;
    Node& node = t_.graph().nodes[b_.forward_number()];
    for (Attribute& a : node.attributes) {
      if (a.name != "scan_output_axes" && a.name != "scan_output_directions") continue;
      if (auto* list = std::get_if<std::vector<std::int64_t>>(&a.value)) list->resize(stacked_ + inner.size(), 0);
    }
    const std::size_t before = states_ + stacked_;
    node.outputs.resize(before, kNoValue);
    for (std::size_t i = 0; i < inner.size(); ++i) {
      const DType dtype = is_loop_ && i == states_ ? DType::kInt64 : t_.dtype(b_.x(first_ + i));
      Value& from = w.value(inner[i]);
      if (from.dtype == DType::kUndefined) from.dtype = dtype;
      forward_.outputs.push_back(w.op("Identity", {inner[i]}, from.dtype));
      saved.push_back(t_.add_value());
      t_.graph().nodes[b_.forward_number()].outputs.push_back(saved.back());
    }
    t_.renew(b_.forward_number());
    return saved;
  }

  void differentiate(BodyWriter& w) {
    const ValueId y = w.op("Sum", terms_, dtype_);
    std::vector<ValueId> dxs;
    for (const ValueId x : xs_) dxs.push_back(w.add_like(x));
    std::vector<ValueId> inputs = xs_;  // at what the graph has
    inputs.insert(inputs.end(), xs_.begin(), xs_.end());
    inputs.push_back(y);
    Node& gradient = w.node("Gradient", std::move(inputs), dxs);
    gradient.name = t_.fresh_name("Gradient");
    gradient.domain = kInternalDomain;
    gradient.since_version = 1;
    gradient.attributes = {{kBoundCount, static_cast<std::int64_t>(xs_.size()), {}}};
    back_->outputs.clear();
    for (std::size_t i = 0; i < xs_.size(); ++i) {
      back_->outputs.push_back(sums_[i] == kNoValue ? dxs[i] : w.op("Add", {sums_[i], dxs[i]}, w.value(dxs[i]).dtype));
    }
  }

  void give(const std::vector<ValueId>& made) {
    for (std::size_t i = 0; i < of_carried_.size(); ++i) {
      if (b_.wants(of_carried_[i])) b_.give(of_carried_[i], made[i]);
    }
    for (std::size_t i = 0; i < of_scanned_.size(); ++i) {
      const std::size_t input = of_scanned_[i];
      b_.give(input, t_.reshape_to(b_.x(input), made[of_carried_.size() + i]));
    }
  }
};

void iterations(Backward& b) { Iterations(b).run(); }

constexpr GradientRule kRows[] = {
    {"Loop", iterations, 1 << 20},
    {"Scan", iterations, 1 << 20},
};

}  // namespace

extern const GradientRules kLoopGradients = kRows;

}  // namespace evn
