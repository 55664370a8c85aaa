// The work of find_channels: where the channels of each value come from. Rules by operator are in channel_rules.cc.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/channels.h"

namespace evn_train {

// What is known of a value.
struct Flow {
  bool has_rank = false;
  std::vector<std::int64_t> dims;  // -1: not known
  std::size_t axis = 0;            // of the channels, where there are spans
  bool is_flat = false;            // the axis is that of the spans times a number that is not known: it was flattened
  std::vector<ChannelSpan> spans;  // ChannelSpan::group is a dim of ChannelFlow; empty: it has no channels that are followed
  bool has_channels() const { return !spans.empty(); }
};

class ChannelFlow {
 public:
  explicit ChannelFlow(const Graph& graph);
  Channels find();

  // For rules: `node` is the one that is looked at.
  const Node& node() const { return graph_.nodes[node_]; }
  std::string node_text() const;
  bool has_input(std::size_t i) const { return i < node().inputs.size() && node().inputs[i] != kNoValue; }
  const Flow& input(std::size_t i) const;
  bool is_constant(std::size_t input) const;  // of float32, with elements
  std::vector<std::int64_t> constant_dims(std::size_t input) const;
  // The numbers of an input that is an int64 constant. Returns whether it is.
  bool numbers_of(std::size_t input, std::vector<std::int64_t>* numbers) const;
  // The number at `index` of a float32 constant, or `otherwise`.
  float number_at(std::size_t input, std::size_t index, float otherwise) const;
  void set_output(Flow flow);

  ChannelSpan new_dim(std::int64_t count);
  // The convolution of this node makes them.
  void add_convolution(const std::vector<ChannelSpan>& spans);
  // Units of both are the same, at most `units` of them.
  void tie(std::size_t a, std::size_t b, std::int64_t units);
  // Each of the spans is the other one's. Where they are divided differently, all stay.
  void unite(const std::vector<ChannelSpan>& a, const std::vector<ChannelSpan>& b);
  void block(const std::vector<ChannelSpan>& spans, const std::string& reason);
  // This node keeps all channels that it reads.
  void block_inputs(const char* why);

  enum class Part { kOther, kFilter, kStatistic };
  // A constant has the spans along an axis, and along its other axes what has no channels (or, with `also`, those of another).
  struct Axis {
    std::size_t axis;
    std::vector<ChannelSpan> spans;
    Part part = Part::kOther;
  };
  void bind(std::size_t input, const std::vector<Axis>& axes);
  // An operand that is broadcast to a value. Returns whether it is understood.
  bool bind_operand(std::size_t input, const Flow& to);
  void note_groups(std::vector<ChannelSpan> spans);
  void note_reshape(std::size_t position, std::vector<ChannelSpan> spans);

 private:
  struct Dim {
    std::size_t parent;
    std::int64_t units;
    std::vector<std::size_t> nodes;  // convolutions
    std::int64_t count;
    std::string reason;
  };
  struct Binding {  // of an axis of a constant
    bool is_set = false;
    std::vector<ChannelSpan> spans;
    Part part = Part::kOther;
  };
  const Graph& graph_;
  std::size_t node_ = 0;
  std::vector<Dim> dims_;
  std::vector<Flow> flows_;                           // by value
  std::map<ValueId, std::vector<Binding>> bindings_;  // by constant, by axis
  std::vector<std::size_t> references_, understood_;  // by value
  std::vector<GroupedConvolution> grouped_;
  std::vector<ReshapeNumber> reshapes_;

  const evn::Weight* constant(std::size_t input) const;  // nullptr: it is none
  std::size_t root(std::size_t dim);
  void count_references();
  void block_what_others_read();
  Channels collect();
};

// By the operator of flow->node(); sets its outputs.
void follow_channels(ChannelFlow* flow);

std::int64_t total(const std::vector<ChannelSpan>& spans);
// The spans along an axis of `length` elements, to which the value's axis was flattened; empty: they do not fit.
std::vector<ChannelSpan> spans_along(const Flow& flow, std::int64_t length);

}  // namespace evn_train
