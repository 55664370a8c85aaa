// One row of the conformance tables: an operator, its attributes and operands. The rows of a family stand in cases/<family>.cc.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/kernel_run.h"

namespace evn::conformance {

using Ints = std::vector<std::int64_t>;
using Floats = std::vector<float>;
inline constexpr DType kF32 = DType::kFloat32;
inline constexpr DType kF64 = DType::kFloat64;
inline constexpr DType kI64 = DType::kInt64;
inline constexpr DType kI32 = DType::kInt32;

struct Operand {
  TensorDesc desc;  // no dtype: absent
  bool constant = false;
  bool specials = false;      // NaN, infinities and zeros of both signs among the random ones
  bool whole = false;         // random values are whole numbers
  double low = -2, high = 2;  // of the random values; integers are rounded towards low
  bool random = true;
  std::vector<double> literal;  // the values themselves, when they are not random
};

class Case {
 public:
  Case(std::string op_name, int opset_version) : op(std::move(op_name)), opset(opset_version) {}

  // Operands, in order. `x` and `w` are float32; `w` is constant.
  Case& x(Shape shape, double low = -2, double high = 2) { return in(kF32, shape, low, high); }
  Case& w(Shape shape, double low = -2, double high = 2) { return constant(kF32, shape, low, high); }
  Case& in(DType dtype, Shape shape, double low = -2, double high = 2) {
    return add({{dtype, shape}, false, false, false, low, high, true, {}});
  }
  Case& constant(DType dtype, Shape shape, double low = -2, double high = 2) {
    return add({{dtype, shape}, true, false, false, low, high, true, {}});
  }
  Case& list(const Ints& values, DType dtype = kI64) {
    return literal({dtype, {static_cast<std::int64_t>(values.size())}}, {values.begin(), values.end()});
  }
  Case& floats(const Floats& values) {
    return literal({kF32, {static_cast<std::int64_t>(values.size())}}, {values.begin(), values.end()});
  }
  Case& scalar(DType dtype, double value) { return literal({dtype, {}}, {value}); }
  Case& literal(TensorDesc desc, std::vector<double> values) {
    return add({desc, true, false, false, 0, 0, false, std::move(values)});
  }
  Case& absent() { return add({{}, false, false, false, 0, 0, false, {}}); }

  // Of the last operand.
  Case& specials() {
    operands.back().specials = true;
    return *this;
  }
  Case& variable() {
    operands.back().constant = false;
    return *this;
  }

  Case& attr(const std::string& name, AttributeValue value) {
    attributes.push_back({name, std::move(value)});
    return *this;
  }
  Case& ints(const std::string& name, const Ints& v) { return attr(name, v); }
  Case& integer(const std::string& name, std::int64_t v) { return attr(name, v); }
  Case& real(const std::string& name, float v) { return attr(name, v); }
  Case& word(const std::string& name, const char* v) { return attr(name, std::string(v)); }

  Case& outputs(int n) {
    output_count = n;
    return *this;
  }
  // Random values of the operands so far are whole numbers.
  Case& whole() {
    for (Operand& o : operands) o.whole = true;
    return *this;
  }
  // The first axis of these inputs (bits) and of all outputs is a batch: what one element gives does not depend on the others.
  Case& batch(std::uint32_t inputs = 1) {
    batch_inputs = inputs;
    return *this;
  }
  // The expected outputs may be constant.
  Case& flat() {
    may_be_flat = true;
    return *this;
  }
  // Operator, opset, operands, attributes: what an error message shows.
  std::string describe() const;

  std::string op;
  int opset;
  std::vector<Operand> operands;
  std::vector<Attribute> attributes;
  int output_count = 1;
  std::uint32_t batch_inputs = 0;
  bool may_be_flat = false;

 private:
  Case& add(Operand o) {
    operands.push_back(std::move(o));
    return *this;
  }
};

using Cases = std::vector<Case>;

// The tables.
void add_elementwise_cases(Cases* all);
void add_binary_cases(Cases* all);
void add_window_cases(Cases* all);
void add_product_cases(Cases* all);
void add_row_cases(Cases* all);
void add_move_cases(Cases* all);
void add_resize_cases(Cases* all);
void add_recurrent_cases(Cases* all);
void add_index_cases(Cases* all);
void add_attention_cases(Cases* all);
void add_vision_cases(Cases* all);
void add_signal_cases(Cases* all);
void add_contrib_cases(Cases* all);
void add_ml_cases(Cases* all);
void add_gradient_cases(Cases* all);
void add_quantized_cases(Cases* all);

// All rows, made once.
const Cases& cases();

// Names of the operators that the tables speak of, each once.
std::vector<std::string> case_ops();

// Calls f(dtype) for each dtype of a set.
template <typename F>
void for_dtypes(std::uint32_t set, F&& f) {
  for (int bit = 0; bit < 32; ++bit) {
    if ((set >> bit & 1u) != 0) f(static_cast<DType>(bit));
  }
}

// Chains of fused steps that between them have every kind of step; `number` and those after it, cyclically. None is empty.
inline constexpr int kChains = 6;
const Epilogue& chain(std::size_t number);

// The chain's number that is a case's own.
std::size_t chain_of(const Case& c);

// The node with operands of one seed. Throws Error where the shape rule does.
test::KernelSubject make_subject(const Case& c, std::uint64_t seed, const Epilogue& epilogue);

// True when an operand is drawn, so that another seed gives other values.
bool is_random(const Case& c);

}  // namespace evn::conformance
