// Pictures of a placed graph: Graphviz's language, and an SVG file that stands by itself.
#pragma once

#include <span>
#include <string>

#include "runtime/lower/compile.h"

namespace evn {

// What is drawn: inputs, nodes and outputs as boxes, values as edges. Constants and values that nothing uses are left out.
struct Drawing {
  struct Box {
    std::string title;   // one line; names come from models and may hold any bytes
    std::string detail;  // a second line, or ""
    std::string reason;  // shown when pointed at
    int slot = -1;       // device, or -1 for inputs and outputs
    int layer = 0;       // longest path from an input
  };
  struct Edge {
    int from = 0;
    int to = 0;
    std::string value;
    bool copy = false;        // crosses from one device to another
    bool shape_only = false;  // its bytes, or only its shape, are read on the host when a run is planned
  };
  std::vector<Box> boxes;  // in topological order
  std::vector<Edge> edges;
  std::vector<std::string> devices;  // by slot
};

// `kernels`: per node, the name that explain gives.
Drawing make_drawing(const CompiledGraph& compiled, std::span<const char* const> kernels);

// The colour of a device's boxes, light enough for black text; slot -1: of inputs and outputs.
const char* drawing_fill(int slot);

std::string drawing_to_dot(const Drawing& drawing);
std::string drawing_to_svg(const Drawing& drawing);

}  // namespace evn
