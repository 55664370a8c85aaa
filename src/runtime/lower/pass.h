// Optimizations across nodes. Each is one file in runtime/lower/passes/: what it finds in a graph when a session is made, and what
// it does of that for the shapes of a run. Making a plan, making one over, and the estimate of a run all go through it. passes.cc
// lists them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/graph.h"

namespace evn {

class PlanRoots;
class StepFormer;
struct CompiledGraph;
struct PlanStep;
struct PlanWork;

// What a pass found in one graph.
class LoweringPass {
 public:
  virtual ~LoweringPass() = default;

  // Takes further nodes into the step that is being formed (StepFormer::draft), if its shapes allow it. Returns whether it did.
  virtual bool extend(PlanWork&, StepFormer&) const { return false; }

  // Whether the node needs no step; then its outputs have been given roots.
  virtual bool elide(PlanWork&, PlanRoots&, std::int32_t /*node*/) const { return false; }

  // Whether a node that this pass elided stays so for other dims (replan.cc); then its outputs' roots have been given their places.
  virtual bool respecialize(PlanWork&, std::int32_t /*node*/) const { return true; }

  // The root into which the step that begins with `node` should write v, channels last; -1: where it likes.
  virtual std::int32_t output_root(PlanWork&, PlanRoots&, ValueId /*v*/, std::int32_t /*node*/) const { return -1; }

  // Changes a step whose inputs have these roots before its kernel plans. `placed`: the root that output 0 is to be written into,
  // or -1.
  virtual bool finish(PlanWork&, PlanRoots&, PlanStep*, std::span<const std::int32_t> /*inputs*/, std::int32_t /*placed*/) const {
    return false;
  }
};

struct LoweringPassInfo {
  const char* name;  // in explain, and where it is switched off
  const char* summary;
  bool of_storage;  // decides where values lie, once layouts are chosen; others decide which nodes run as one step
  // nullptr: there is nothing to do in this graph.
  std::unique_ptr<LoweringPass> (*find)(CompiledGraph& c);
};

// In the order in which they are asked.
std::span<const LoweringPassInfo* const> lowering_passes();

// Its bit in PlanStep::passes.
std::uint32_t lowering_pass_bit(const LoweringPassInfo& pass);

}  // namespace evn
