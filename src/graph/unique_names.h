// Names that are unique in a graph.
#pragma once

#include <string>
#include <unordered_map>

#include "core/name_map.h"

namespace evn {

class UniqueNames {
 public:
  // Marks a name of the graph as taken.
  void take(const std::string& name);
  // Returns `wanted`, or if that is taken the first of wanted_1, wanted_2, ... that is free. The result is then taken.
  std::string make(const std::string& wanted);

 private:
  std::unordered_map<std::string, int, KeyedHash> latest_;  // by taken name: the last number that was tried behind it
};

}  // namespace evn
