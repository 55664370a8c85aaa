// The nodes of a loss, and of how many rows are right.
#pragma once

#include "core/shape.h"
#include "train/graphs.h"

namespace evn_train {

inline constexpr char kLabels[] = "evener/labels";

// Returns the loss, of rank 0. `of_labels`: their value; kNoValue for kNone.
ValueId add_loss(evn::NodeWriter& w, evn_loss loss, ValueId of_labels, Labels labels, ValueId logits);

// Number of elements of the output that give_shape adds.
inline constexpr std::size_t kShapeElements = EVN_MAX_RANK;

// Adds an output [kShapeElements] of int64: the dims of `value`, then -1.
void give_shape(evn::NodeWriter& w, ValueId value);

// Shape that labels have for an output of this shape.
evn::Shape shape_of_labels(evn_loss loss, Labels labels, const evn::Shape& output);

struct Rightness {
  ValueId right, count;  // int64 of rank 0
};
Rightness add_rightness(evn::NodeWriter& w, evn_loss loss, ValueId of_labels, Labels labels, ValueId logits);

}  // namespace evn_train
