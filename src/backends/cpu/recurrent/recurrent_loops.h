// One step of LSTM, GRU and RNN after its products, float32: from the gates' sums to the new states of one sequence. Every run of
// gates and states has `size` floats, a multiple of the vectors of every cluster; what stands beyond the hidden size is never read.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/cancel_points.h"
#include "ops/lstm_cell.h"

namespace evn::simd_recurrent {

struct Cell : LstmFunctions {
  std::int64_t size;
  const float* peepholes;  // LSTM: i, o, f; null: none
};

struct Loops {
  // to = init + a B for one row a of k floats and n columns, a multiple of the vectors, of B as gemm/gemm_loops.h packs it with
  // `nr`: the same sums in blocks of `kc`, for many panels at once, as one row alone waits for memory. `backwards`: the last panels
  // first; who reads a B that just does not fit into a cache in turns finds there what it read last.
  void (*row)(const float* a, std::int64_t k, const float* b, std::int64_t nr, std::int64_t kc, std::int64_t n, bool backwards,
              const float* init, float* to, CancelPoints* points);
  // gates: i, o, f, c. c and h are read and written.
  void (*lstm)(const Cell& cell, const float* gates, float* c, float* h);
  // Equal to the last bit on every cluster: multiply-adds round once.
  void (*lstm_exact)(const Cell& cell, const float* gates, float* c, float* h);
  // gates: z, r. to = r . h
  void (*gru_reset)(const Cell& cell, const float* gates, const float* h, float* to);
  // gates: z, r, and the candidate's sum; with `x`, that is R h + Rb, and the sum is x + r . (R h + Rb).
  void (*gru)(const Cell& cell, const float* gates, const float* x, float* h);
  void (*rnn)(const Cell& cell, const float* gates, float* h);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_recurrent
