// Sums that a kernel computes together with the node before them: which nodes these are.
#pragma once

#include <functional>
#include <vector>

#include "core/graph.h"
#include "device/kernel.h"

namespace evn {

// A sum that a kernel computes together with the node before it.
struct FollowingSum {
  std::int32_t node = -1;     // the Add or QLinearAdd; -1: none
  ValueId operand = kNoValue; // what is added
  std::int32_t maker = -1;    // the node that makes the operand, before the one that takes it; -1: none
  bool of_bytes = false;      // a QLinearAdd
  ByteSum bytes;

  const ByteSum* byte_sum() const { return of_bytes ? &bytes : nullptr; }
};

struct FollowingSums {
  FollowingSum bias, residual;  // if the shapes of a run allow it; bias first
};

class FollowingSumFinder {
 public:
  explicit FollowingSumFinder(const Graph& graph);

  // Of a node whose kernel takes sums (Kernel::takes). `beside`: whether a node runs on a kernel of the same device.
  FollowingSums find(std::int32_t node, std::uint8_t takes, const std::function<bool(std::int32_t)>& beside) const;

  // The node that alone reads what this one makes, as its input 0, in the same region. -1: there is none.
  std::int32_t only_reader(std::int32_t node) const;

 private:
  std::int32_t next_node(std::int32_t at, std::int32_t first, const std::function<bool(std::int32_t)>& beside) const;
  FollowingSum next_sum(std::int32_t at, std::int32_t first, const std::function<bool(std::int32_t)>& beside) const;
  FollowingSum next_byte_sum(std::int32_t at, const std::function<bool(std::int32_t)>& beside) const;
  FollowingSum with_operand(std::int32_t sum, ValueId operand) const;
  bool is_there_before(const FollowingSum& sum, std::int32_t node) const;
  bool is_bias(const Node& node, ValueId v) const;

  const Graph& graph_;
  std::vector<std::int32_t> uses_;    // per value: inputs that read it, and outputs of the graph
  std::vector<std::int32_t> maker_;   // per value
  std::vector<std::int32_t> reader_;  // per value: the last node that reads it
};

}  // namespace evn
