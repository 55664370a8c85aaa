// The work of find_channels: where the channels of each value come from. Rules by operator are in channel_rules.cc.
#pragma once

#include <map>
#include <set>
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
  explicit ChannelFlow(const OnnxModel& model);
  Channels find();

  // For rules: `node` is the one that is looked at.
  const OnnxNode& node() const { return model_.nodes[node_]; }
  std::string node_text() const;
  const std::string& input_name(std::size_t i) const;  // "" where there is none
  const Flow& input(std::size_t i) const;
  bool is_initializer(std::size_t input) const;  // of float32, with data
  const std::vector<std::int64_t>& initializer_dims(std::size_t input) const;
  // The numbers of an input that is an int64 initializer. Returns whether it is.
  bool numbers_of(std::size_t input, std::vector<std::int64_t>* numbers) const;
  // The number at `index` of a float32 initializer, or `otherwise`.
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
  // An initializer has the spans along an axis, and along its other axes what has no channels (or, with `also`, those of another).
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
  struct Binding {  // of an axis of an initializer
    bool is_set = false;
    std::vector<ChannelSpan> spans;
    Part part = Part::kOther;
  };
  const OnnxModel& model_;
  std::size_t node_ = 0;
  std::vector<Dim> dims_;
  std::map<std::string, std::size_t, std::less<>> initializers_;
  std::map<std::string, Flow, std::less<>> flows_;
  std::map<std::size_t, std::vector<Binding>> bindings_;  // by initializer, by axis
  std::map<std::string, std::size_t, std::less<>> references_, understood_;
  std::vector<GroupedConvolution> grouped_;
  std::vector<ReshapeNumber> reshapes_;

  std::size_t root(std::size_t dim);
  bool is_in_order() const;
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
