// Which nodes are element-wise steps in the sense of core/epilogue.h, and what the fusing rewrites share.
#pragma once

#include "graph/edit.h"

namespace evn {

// The constant bounds of a Clip of float32; an absent bound is infinite. False when a bound is not constant or the
// node is no Clip.
bool clip_bounds(const Graph& graph, const Node& node, float* low, float* high);

// Appends the node, taken as a function of its input `x` alone, to the chain. False, with the chain as it was, when it is no
// step or does not fit. A division by a constant becomes a multiplication by the rounded reciprocal: within 1 ulp per step
// for each of the two roundings, exact for powers of two.
bool append_steps(const Graph& graph, const Node& node, ValueId x, Epilogue* chain);

// Whether kernels of this operator can take an epilogue.
bool takes_epilogue(const Node& node);

}  // namespace evn
