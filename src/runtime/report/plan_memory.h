// How many bytes of intermediate values live at each step of a run, as its plans have placed them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/lower/plan.h"

namespace evn {

struct RunMemory {
  static constexpr std::uint64_t kNotKnown = UINT64_MAX;

  struct Place {
    std::uint64_t arena = 0;  // of all plans of the run
    std::uint64_t most = 0;   // that live at a time; the rest lies between values
    std::string at;           // the step at which these are: the name of its node, or "copy of VALUE"
  };
  std::vector<Place> devices;       // per slot
  std::vector<std::uint64_t> live;  // per node: on the device that runs it, while it does; kNotKnown: it has no step of its own
};

// What a run needs whose plans follow each other in the chain: arenas of earlier ones stay while a later one runs.
RunMemory memory_of(const CompiledGraph& graph, std::span<const std::shared_ptr<const Plan>> chain);

}  // namespace evn
