// Paths from values of a model to its loss, and the operators at which the derivative along a path ends.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "train/source_model.h"

namespace evn_train {

// Node whose result does not change, or only in steps, with small changes of its inputs.
struct Cut {
  std::string node, op;
};

// How the loss depends on a value.
struct Way {
  bool is_smooth = false;    // a path of operators with derivatives leads to the loss
  const Cut* cut = nullptr;  // of another path, the node at which the derivative ends; nullptr: there is no such path
  bool reaches() const { return is_smooth || cut != nullptr; }
};

class Ways {
 public:
  // `loss`: the value that the loss reads.
  Ways(const Graph& graph, const std::string& loss);
  Way of(const std::string& value) const;
  // Operator that reads the value as an option (a bound, a size, a scale of a quantization); "": there is none.
  const std::string& option_of(const std::string& value) const;

 private:
  std::map<std::string, Way> ways_;
  std::set<std::string> no_floats_;  // values that are integers, flags, bytes or text
  std::map<std::string, std::string> options_;
  std::map<std::string, Cut> cuts_;      // by node
  std::map<std::string, bool> numbers_;  // float initializers; whether they have one element
  bool changed_ = false;

  void merge(const std::string& value, const Way& way);
  const Cut* cut_at(const NodeAt& place);
  void go_back(const Graph& graph);
  void go_back(const NodeAt& place);
  void go_back_into_bodies(const NodeAt& place);
};

}  // namespace evn_train
