// The nodes of a loss, and of how many rows are right.
#pragma once

#include "core/shape.h"
#include "train/graphs.h"
#include "train/node_writer.h"

namespace evn_train {

inline constexpr char kLabels[] = "evener/labels";

// Returns the loss, of rank 0.
std::string add_loss(NodeWriter& w, evn_loss loss, Labels labels, const std::string& logits);

// Number of elements of the output that give_shape adds.
inline constexpr std::size_t kShapeElements = EVN_MAX_RANK;

// Adds an output [kShapeElements] of int64: the dims of `value`, then -1.
void give_shape(NodeWriter& w, const std::string& value);

// Shape that labels have for an output of this shape.
evn::Shape shape_of_labels(evn_loss loss, Labels labels, const evn::Shape& output);

struct Rightness {
  std::string right, count;  // int64 of rank 0
};
Rightness add_rightness(NodeWriter& w, evn_loss loss, Labels labels, const std::string& logits);

}  // namespace evn_train
