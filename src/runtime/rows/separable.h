// The proof that rows of a batch do not depend on each other, for one graph and the shapes of its inputs.
#pragma once

#include <vector>

#include "runtime/lower/compile.h"

namespace evn {

inline constexpr int kNoRows = -1;  // an input or output without rows: alike for all that are joined

// What a run of one row is given: descs of the inputs, and the bytes of those without rows that shapes may depend on.
struct RowInputs {
  std::vector<TensorDesc> one;
  std::vector<std::vector<unsigned char>> values;
  bool on_any_device = false;  // also nodes on devices whose kernels may round otherwise for other sizes of a batch
};

// What is proven of its outputs.
struct RowOutputs {
  std::vector<TensorDesc> one;  // of the run of one row
  std::vector<int> axes;        // where a batch has its rows, or kNoRows
};

// Where each input of the graph has its rows: axis 0 where its dim is open, else the axis of the same name. Throws
// EVN_ERROR_UNSUPPORTED with an input where there are no rows, or texts.
std::vector<int> row_axes(const Graph& graph);

// Proves it for a batch of so many rows. Throws EVN_ERROR_UNSUPPORTED with the node that mixes rows, or of which it is not known
// that it does not; and what shape rules throw where the inputs do not fit the graph.
RowOutputs prove_rows(const CompiledGraph& graph, std::span<const int> axes, const RowInputs& inputs, std::int64_t rows);

// Proves it when a session is made, while open dims are unknown: for sample lengths that the graph accepts, and both branches of
// each If that depends on an input without rows. False: the graph takes none of these lengths, so that only a run can tell.
bool prove_rows_beforehand(const CompiledGraph& graph, std::span<const int> axes, bool on_any_device = false);

}  // namespace evn
