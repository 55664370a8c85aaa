// Which nodes run as one step, on which kernel, and what that is asked about: decided by the shapes of a signature and nothing
// else, so that making a plan and making one over for other dims ask the same.
#pragma once

#include "runtime/lower/plan_state.h"

namespace evn {

struct ProductTrial;  // product_trials.h

// What a kernel reads as one of its inputs.
struct StepOperand {
  ValueId value = kNoValue;  // kNoValue: nothing that lies in memory
  bool may_be_view = false;  // it may be a channel view
};

// A step that is being formed. Plain data: its memory is decided later.
struct StepDraft {
  std::int32_t node = -1;  // the first of its nodes
  std::uint8_t slot = 0;
  const Kernel* kernel = nullptr;
  bool computes = true;  // false: no output has elements
  AbsorbedNodes absorbed;
  OpDesc desc;                          // its spans are of the vectors below, or of the compiled graph
  std::span<const Buffer> packed;       // per input
  std::vector<StepOperand> operands;    // per input
  std::span<const ValueId> outputs;     // per output
  std::uint8_t views = 0;               // which arguments may be channel views (kView...)
  std::uint32_t passes = 0;             // bit i: the i-th of lowering_passes() took part
  std::vector<TensorDesc> descs;        // of inputs, then of outputs; the output of a stage is input 0 of the next one
  std::vector<OpDesc> nodes;            // of a cascade or a segment
  std::vector<WeightPtr> constants;     // where some are known since planning
  std::vector<Layout> late_layouts;     // of a kernel that was chosen now
  std::vector<Buffer> late_packed;      // packed constants of such a kernel
  const ProductTrial* trial = nullptr;  // what chose among two kernels
  const char* why_moved = nullptr;      // PlanStep::why_moved
};

class StepFormer {
 public:
  explicit StepFormer(PlanWork& work) : w_(work) {
    draft_.descs.reserve(work.c.most_step_args);
    draft_.operands.reserve(work.c.most_step_args);
  }

  // Forms the step that begins with the node, whose shapes and those of what follows are known; the draft stays until the next
  // call. Throws where no kernel can run it.
  void form(std::int32_t index);

  StepDraft& draft() { return draft_; }

  // Adds the descs of a node to the draft, of its inputs from input `first` on, of what may be fused, and of its outputs.
  void add_descs(std::int32_t index, std::size_t first);
  // Adds the operands that these descs describe. `packed`: per input.
  void add_operands(std::int32_t index, std::size_t first, int slot, std::span<const Buffer> packed, std::uint8_t views);

  // Whether the shapes of the node (-1: there is none) are known.
  bool is_passed(std::int32_t node) const { return node >= 0 && static_cast<std::size_t>(node) < w_.state.next_node; }

  // Notes that the step computes the node too, and that this makes its output of desc `made`.
  void absorb(std::int32_t node, const TensorDesc& made);

 private:
  // Forms the step of a segment.
  void form_segment(const CompiledSegment& segment);

  void set_constants();

  // A kernel for a node whose ranks were not known when the session was made: of its device, or where a rule only prefers that, of
  // the CPU.
  void choose_late();

  // Replaces a kernel that does not take an input without elements by the reference kernel of its device, or else by that of the
  // CPU, which then runs the step whatever rules say. Inputs that are read by value are lists, which may be empty.
  void choose_for_empty();

  PlanWork& w_;
  StepDraft draft_;
};

}  // namespace evn
