// What has been proven of the rows of a graph's batches (separable.h), kept by the inputs of one row and the number of rows.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "runtime/rows/separable.h"
#include "runtime/run/host_run.h"

namespace evn {

// What a run of one row of these tensors on the host is given.
RowInputs one_row_of(const CompiledGraph& graph, std::span<const int> axes, std::span<const RunValue> inputs);

// Throws EVN_ERROR_UNSUPPORTED with an output whose rows are no whole bytes: texts, and elements of 4 bits.
void check_row_outputs(const Graph& graph);

class RowProofs {
 public:
  // `axes` stay as long as this. At most `most` proofs are kept. `log`: tells why nothing is proven, once for what is kept.
  using Log = void (*)(const CompiledGraph& graph, const Error& why);
  RowProofs(const CompiledGraph& graph, std::span<const int> axes, std::size_t most, Log log);

  // What is proven of a batch of so many rows; null: nothing. Throws EVN_ERROR_OUT_OF_MEMORY, std::bad_alloc.
  std::shared_ptr<const RowOutputs> of(RowInputs inputs, std::int64_t rows);

 private:
  struct Proof {
    RowInputs inputs;
    std::int64_t rows;
    std::shared_ptr<const RowOutputs> outputs;
  };

  const CompiledGraph& graph_;
  const std::span<const int> axes_;
  const std::size_t most_;
  const Log log_;
  Mutex mutex_;
  std::vector<Proof> proofs_;  // most recently used first
};

}  // namespace evn
