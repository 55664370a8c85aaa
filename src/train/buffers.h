// Recognition of initializers that a model computes with but that were no parameters of the network: masks, epsilons, frequencies,
// first states. ONNX does not tell them from parameters.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "train/onnx.h"

namespace evn_train {

struct Suspicion {
  std::string why{};        // "": it looks like a parameter
  bool is_certain = false;  // a step of an optimizer would make no sense
  bool is_finite = true;    // all elements are
};

class BufferFinder {
 public:
  // The model outlives this.
  explicit BufferFinder(const OnnxModel& model);
  // `tensor`: a float32 initializer of the model.
  Suspicion look_at(const OnnxTensor& tensor) const;

 private:
  struct Use {
    const OnnxNode* node;
    std::size_t input;
  };
  std::vector<std::vector<OnnxNode>> inner_;  // nodes of bodies
  std::map<std::string, std::vector<Use>> uses_;
  std::map<std::string, const OnnxNode*> producers_;
  std::set<std::string_view> roots_;  // values that a root, a logarithm or a quotient is of
  std::set<std::string_view> waves_;  // values that go into Sin or Cos, after a few nodes at most

  void add(const OnnxNode& node);
  void find_roots(const OnnxModel& model);
  void find_waves();
  const std::vector<Use>& uses_of(const std::string& value) const;
  bool is_epsilon(const std::string& name) const;
  bool is_added_to_product(const std::string& name) const;
  bool is_added_to_scores(const std::string& name) const;
  bool is_exponent(const std::string& name) const;
  bool is_operand(const std::string& name) const;
  std::string norm_that_tells(const std::string& name, bool are_ones) const;
  std::string use_that_tells(const OnnxTensor& tensor, std::size_t elements) const;
};

}  // namespace evn_train
