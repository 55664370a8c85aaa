// The nodes of a loss, and of how many rows are right.
#pragma once

#include "modules/train/graphs.h"
#include "modules/train/node_writer.h"

namespace evn_train {

inline constexpr char kLabels[] = "evener/labels";

// Returns the loss, of rank 0.
std::string add_loss(NodeWriter& w, evn_loss loss, Labels labels, const std::string& logits);

struct Rightness {
  std::string right, count;  // int64 of rank 0
};
Rightness add_rightness(NodeWriter& w, evn_loss loss, Labels labels, const std::string& logits);

}  // namespace evn_train
