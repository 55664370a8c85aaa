// Inputs with a default (an initializer of the same name) of models that are rewritten and saved. They are constants of the graph.
// A saved model has such an input still if all nodes that read it do so after the rewrites; a constant that was folded, quantized
// or converted cannot be given any more.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/graph.h"

namespace evn {

// Input with a default, and the nodes that read it.
struct DefaultReads {
  struct Read {
    std::string node;
    std::size_t input;
  };
  std::string name;
  std::uint64_t weight = 0;  // Weight::id of the default
  std::vector<Read> reads;   // a node's captures for its bodies are among its inputs
};

// For each of Model::defaults, which are constants of the graph.
std::vector<DefaultReads> reads_of_defaults(const Model& model);

// Drops from Model::defaults those whose constant is another or is read by fewer nodes than `before`.
void drop_changed_defaults(std::span<const DefaultReads> before, Model* model);

}  // namespace evn
