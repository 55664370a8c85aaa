// What LSTM, GRU and RNN share: inputs, attributes, the shape rule, and the reference's loops over directions, sequences and steps.
// Each operator brings its number of gates and what one step does.
#pragma once

#include <vector>

#include "ops/op.h"
#include "ops/recurrent_activation.h"

namespace evn {

// Inputs; the last two are LSTM's alone.
struct RecurrentInput {
  enum : int { kX, kW, kR, kB, kLengths, kInitialH, kInitialC, kPeepholes };
};

// Attributes; kOwn is LSTM's input_forget and GRU's linear_before_reset. RNN has none. Behind it, from opset 14 on, stands
// `layout`.
struct RecurrentAttr {
  enum : int { kActivationAlpha, kActivationBeta, kActivations, kClip, kDirection, kHiddenSize, kOwn };
};

struct RecurrentForm {
  int gates;      // W and R have gates * hidden rows
  int functions;  // activations of one direction
  const char* defaults[3];
};
inline constexpr RecurrentForm kLstmForm = {4, 3, {"Sigmoid", "Tanh", "Tanh"}};
inline constexpr RecurrentForm kGruForm = {3, 2, {"Sigmoid", "Tanh", ""}};
inline constexpr RecurrentForm kRnnForm = {1, 1, {"Tanh", "", ""}};

struct RecurrentSpec {
  int directions = 1;
  bool reverse = false;      // of direction 0; direction 1 runs backwards always
  bool batch_first = false;  // the layout of x, y and the states
  bool own = false;          // see RecurrentAttr::kOwn
  float clip = 0;            // bound of the activations' inputs; 0: none
  Activation activations[2][3];

  bool backwards(int direction) const { return direction == 1 || reverse; }
};

// The node's attributes, checked.
RecurrentSpec recurrent_spec(const Node& node, const RecurrentForm& form);

// Sizes of a node whose shapes are known.
struct RecurrentSizes {
  std::int64_t steps, batch, inputs, hidden;

  // Where step t of sequence n stands: its row of x, its element 0 of y; and element 0 of the sequence's state.
  std::int64_t x_row(const RecurrentSpec& spec, std::int64_t t, std::int64_t n) const {
    return spec.batch_first ? n * steps + t : t * batch + n;
  }
  std::int64_t y_at(const RecurrentSpec& spec, int direction, std::int64_t t, std::int64_t n) const {
    const std::int64_t d = direction;
    return (spec.batch_first ? (n * steps + t) * spec.directions + d : (t * spec.directions + d) * batch + n) * hidden;
  }
  std::int64_t state_at(const RecurrentSpec& spec, int direction, std::int64_t n) const {
    const std::int64_t d = direction;
    return (spec.batch_first ? n * spec.directions + d : d * batch + n) * hidden;
  }
};
RecurrentSizes recurrent_sizes(const RecurrentSpec& spec, const Shape& x, const Shape& r);

// Steps of the sequence `n`, which are all where no lengths are given. Throws EVN_ERROR_INVALID_ARGUMENT when it has more than all.
std::int64_t sequence_steps(const std::int32_t* lengths, std::int64_t n, std::int64_t all);

void infer_recurrent(InferContext& c, const RecurrentForm& form);

// Elements [begin, begin + count) of an input; zeros when it is not given.
std::vector<double> recurrent_slice(const ReferenceContext& c, int input, std::int64_t begin, std::int64_t count);

// Writes them to an output from element `at` on, when it is wanted.
void write_recurrent(const ReferenceContext& c, std::size_t output, std::int64_t at, const std::vector<double>& values);

// One direction of a layer, in doubles; what the model does not give is 0.
struct RecurrentLayer {
  const RecurrentSpec* spec;
  int direction;
  std::int64_t hidden;
  std::vector<double> r;       // [gates * hidden][hidden]
  std::vector<double> w_bias;  // [gates * hidden]
  std::vector<double> r_bias;
  std::vector<double> peephole;  // [3 * hidden]

  // R[row] . h
  double recur(std::int64_t row, const std::vector<double>& h) const;
  double apply(int function, double x) const;
  // The function of x clipped.
  double activate(int function, double x) const;
};

// Takes the states from one step to the next. `wx` is W x of the step.
using RecurrentStep = void (*)(const RecurrentLayer& layer, const std::vector<double>& wx, std::vector<double>& h,
                               std::vector<double>& c);
void reference_recurrent(const ReferenceContext& c, const RecurrentForm& form, RecurrentStep step);

}  // namespace evn
