// A tensor seen through operators that only move elements, as strides over what they began with: for rewrites that let an operator
// read its operand where it lies. All shapes are known.
#pragma once

#include <cstdint>
#include <vector>

#include "core/graph.h"

namespace evn {

// Element (i...) is element offset + sum of i[a] * steps[a] of the tensor. Steps of axes of 1 mean nothing.
struct StridedView {
  std::vector<std::int64_t> dims, steps;
  std::int64_t offset = 0;
};

StridedView dense_view(const Shape& shape);

// Returns true if the outputs of the node may be views of its input 0: Reshape and its like, Transpose, Gather, Slice, and a Split
// of not more than 1024 parts.
bool is_view_maker(const Node& node);

// Whether such a node moves bytes when it runs.
bool copies(const Node& node);

// Takes a view of the node's input 0 to the same view of its output `v`. False, with the view undone, when strides cannot tell it.
bool advance_view(const Graph& graph, const Node& node, ValueId v, StridedView* view);

}  // namespace evn
