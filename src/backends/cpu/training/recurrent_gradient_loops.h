// One step back through LSTM, GRU and RNN for one sequence, float32, between its products. Gates lie `size` floats apart, which may
// be any number.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "ops/lstm_cell.h"

namespace evn::simd_recurrent_gradient {

struct Cell : LstmFunctions {
  std::int64_t size;
  const float* peepholes;  // LSTM: i, o, f; null: none
};

// What a step of an LSTM reads and writes. dh is the derivative by the step's h, without dy; dc is taken to the step before.
struct LstmStep {
  const float *sums, *before, *cell;  // cells before and behind the step
  const float *dh, *dy;               // dy may be null
  float *dc, *dsums;
  float* dpeepholes;  // added to; null: not wanted
};

// Without linear_before_reset `recurrent` has the gates z and r alone, and `of_candidate` is R (r . h).
struct GruStep {
  const float *sums, *recurrent, *of_candidate, *before;
  const float* dy;  // may be null
  float* dh;        // becomes the part of the earlier dh that is no product
  float *dsums, *drecurrent;
};

struct Loops {
  // The next cells of the sums of the gates.
  void (*lstm_cell)(const Cell& cell, const float* sums, const float* before, float* to);
  void (*lstm)(const Cell& cell, const LstmStep& step);
  // With linear_before_reset: all of a step.
  void (*gru)(const Cell& cell, const GruStep& step);
  // Without: to = r . h; then the derivatives by the gates z and by the candidate; then, of the derivative by r . h, that by r.
  void (*gru_kept)(const Cell& cell, const float* sums, const float* recurrent, const float* before, float* to);
  void (*gru_candidate)(const Cell& cell, const GruStep& step);
  void (*gru_reset)(const Cell& cell, const GruStep& step, const float* dkept);
  void (*rnn)(const Cell& cell, const float* sums, const float* dh, const float* dy, float* dsums);
  void (*add)(const float* from, float* to, std::int64_t n);  // to += from
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_recurrent_gradient
