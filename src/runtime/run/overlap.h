// Outputs that a caller gives in the memory of inputs.
#pragma once

#include "base/small_array.h"
#include "runtime/lower/plan.h"
#include "runtime/run/host_run.h"

namespace evn {

// Address range of the tensor that is given for an output.
struct OutputRange {
  TensorRange range;
  std::uint32_t output = 0;
};

// Address ranges of the tensors that are given for outputs, sorted.
class OutputRanges {
 public:
  // `spare`: SmallArray's.
  OutputRanges(std::span<const RunValue> outputs, SpareBlocks* spare);

  bool is_empty() const { return count_ == 0; }
  // Returns true if two of the ranges overlap.
  bool overlap_each_other() const;
  // Overlap of `range` with the outputs, which do not overlap each other. kAll: *output gets the number of the output.
  Overlap find(const TensorRange& range, std::uint32_t* output) const;

 private:
  SmallArray<OutputRange> sorted_;
  std::size_t count_ = 0;

  std::span<const OutputRange> all() const { return sorted_.span().first(count_); }
};

// Use of an output that lies over inputs, by the steps of a plan up to one of them.
struct OverwriteUse {
  const PlanStep* writer = nullptr;  // latest step that writes the output
  InPlace allowed{0, -1};            // inputs of `writer` that may have the memory of the output
  std::uint32_t readers = 0;         // slots of devices that may still read the inputs when other devices are given work
  bool is_over_input = false;
  bool is_written = false;  // by an earlier step
  bool must_stage = false;
};

// Outputs of a plan that the caller gives in the memory of inputs, and that must be staged there: a step reads the input when, or
// after, the plan writes the output.
class OverwriteCheck {
 public:
  // `inputs`: the tensors that the run reads, nullable each. `outputs`: the given ones, which check_overlap has accepted.
  OverwriteCheck(const CompiledGraph& graph, const Plan& plan, std::span<const TensorPtr> inputs, std::span<const RunValue> outputs,
                 SpareBlocks* spare);

  bool must_stage(std::size_t output) const { return uses_[output].must_stage; }

 private:
  static constexpr std::uint32_t kNoOutput = UINT32_MAX;

  const CompiledGraph& graph_;
  const Plan& plan_;
  SmallArray<std::uint32_t> outputs_over_;  // per input: the output that lies over it, or kNoOutput
  SmallArray<OverwriteUse> uses_;           // per output

  bool find_outputs_over(std::span<const TensorPtr> inputs, std::span<const RunValue> outputs, SpareBlocks* spare);
  OverwriteUse* use_of(std::size_t buffer, Source source);
  void follow(const PlanStep& step);
};

// Returns true if a tensor that is given for an output overlaps another one or an input.
bool any_overlap(std::span<const RunValue> inputs, std::span<const RunValue> outputs);

// Throws EVN_ERROR_INVALID_ARGUMENT where a tensor that is given for an output overlaps another one or an input. `over_inputs`: it
// may be all of an input. `spare`: SmallArray's.
void check_overlap(std::span<const RunValue> inputs, std::span<const RunValue> outputs, bool over_inputs, SpareBlocks* spare);

}  // namespace evn
