// Which channels of convolutions can leave a model, and what leaves with them. Channels of two values that are added, multiplied or
// normalized channel by channel are the same: those of a residual stream, of a depthwise convolution and of what reads it. They
// form a group, of which each unit (a channel; of a grouped convolution all channels of one of its groups) is in all its
// constants or in none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/source_model.h"

namespace evn_train {

// Elements first .. first + length - 1 of an axis of a constant, in as many equal parts as the group has units.
struct ChannelUse {
  ValueId value = kNoValue;
  std::size_t axis = 0;
  std::int64_t first = 0, length = 0;
  bool is_filter = false;     // of a convolution that makes the channels
  bool is_statistic = false;  // the mean or variance of BatchNormalization
};

struct ChannelGroup {
  std::string name;                       // of the first convolution
  std::vector<std::string> convolutions;  // that make the channels
  std::int64_t channels = 0;              // of the first convolution
  std::int64_t units = 0;
  std::vector<ChannelUse> uses;
  std::string reason;  // why its channels stay; empty: they can leave
};

// A part of an axis: of a group, or of none.
struct ChannelSpan {
  static constexpr std::size_t kNone = SIZE_MAX;
  std::size_t group = kNone;
  std::int64_t length = 0;
};

// A node whose attribute `group` is the sum of the spans.
struct GroupedConvolution {
  std::size_t node = 0;
  std::vector<ChannelSpan> spans;
};

// A number of a Reshape's target that is the sum of the spans.
struct ReshapeNumber {
  std::size_t node = 0, position = 0;
  std::vector<ChannelSpan> spans;
};

struct Channels {
  std::vector<ChannelGroup> groups;  // in the order of their first convolutions
  std::vector<GroupedConvolution> grouped;
  std::vector<ReshapeNumber> reshapes;
};

// Nodes of the graph are in order.
Channels find_channels(const Graph& graph);

}  // namespace evn_train
