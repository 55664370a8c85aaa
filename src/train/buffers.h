// Recognition of initializers that a model computes with but that were no parameters of the network: masks, epsilons, frequencies,
// first states. ONNX does not tell them from parameters.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "train/source_model.h"

namespace evn_train {

struct Suspicion {
  std::string why{};        // "": it looks like a parameter
  bool is_certain = false;  // a step of an optimizer would make no sense
  bool is_finite = true;    // all elements are
};

class BufferFinder {
 public:
  // The graph outlives this.
  explicit BufferFinder(const Graph& graph);
  // `tensor`: a float32 constant of the graph.
  Suspicion look_at(const Value& tensor) const;

 private:
  struct Use : NodeAt {
    std::size_t number = 0;  // of the input
  };
  std::map<std::string_view, std::vector<Use>> uses_;
  std::map<std::string_view, NodeAt> producers_;
  std::set<std::string_view> roots_;  // values that a root, a logarithm or a quotient is of
  std::set<std::string_view> waves_;  // values that go into Sin or Cos, after a few nodes at most

  void add(const NodeAt& place);
  void find_roots(const Graph& graph);
  void find_waves();
  const std::vector<Use>& uses_of(std::string_view value) const;
  bool is_epsilon(const std::string& name) const;
  bool is_added_to_product(const std::string& name) const;
  bool is_added_to_scores(const std::string& name) const;
  bool is_exponent(const std::string& name) const;
  bool is_operand(const std::string& name) const;
  std::string norm_that_tells(const std::string& name, bool are_ones) const;
  std::string use_that_tells(const Value& tensor, std::size_t elements) const;
};

}  // namespace evn_train
