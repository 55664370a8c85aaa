// Rules of follow_channels: each looks at flow->node() and sets its output.
#pragma once

#include <string_view>

#include "train/channel_flow.h"

namespace evn_train {

// The product of known dims; -1: not known, or it does not fit.
std::int64_t product(const std::vector<std::int64_t>& dims, std::size_t first);
// The axis of that number, which may count from the end; rank: there is none.
std::size_t axis_of(std::int64_t axis, std::size_t rank);
// An image [batch, channels, ...] with the channels where convolutions expect them.
bool is_image(const Flow& x);
// The dims of what has the windows of an image, without those of the channels.
std::vector<std::int64_t> windowed(const Node& node, const Flow& x, const std::vector<std::int64_t>& kernel);

// channel_products.cc
void conv_channels(ChannelFlow* f);
void conv_transpose_channels(ChannelFlow* f);
void gemm_channels(ChannelFlow* f);
void matmul_channels(ChannelFlow* f);
// channel_places.cc
void concat_channels(ChannelFlow* f);
void flatten_channels(ChannelFlow* f);
void reshape_channels(ChannelFlow* f);
void transpose_channels(ChannelFlow* f);
void reduce_channels(ChannelFlow* f);  // and Squeeze
void unsqueeze_channels(ChannelFlow* f);

}  // namespace evn_train
