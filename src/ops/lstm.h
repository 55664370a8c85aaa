// LSTM: what becomes of the sums of its gates.
#pragma once

#include "ops/recurrent.h"

namespace evn {

// Gates, in the order of their rows; the first three are P's too.
struct LstmGate {
  enum : int { kI, kO, kF, kC };
};

// Takes h and c of one sequence a step further. `sums` are W x + R h + Wb + Rb, [4 * hidden].
void lstm_cell(const RecurrentLayer& layer, const std::vector<double>& sums, std::vector<double>& h, std::vector<double>& c);

}  // namespace evn
