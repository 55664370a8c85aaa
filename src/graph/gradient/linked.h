// For programs that have the rules of differentiation linked in: take_differentiation(differentiate_here).
#pragma once

#include "graph/gradient.h"

namespace evn {

void differentiate_here(Graph& graph, const Limits& limits, const std::function<void(Node&)>& complete, WorkMeter& meter);

}  // namespace evn
