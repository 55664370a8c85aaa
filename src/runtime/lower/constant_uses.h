// Who reads which constant of a graph while it is compiled: the plain bytes of a constant are let go as soon as all that read it
// have packed copies, so that the plain and the packed bytes of all constants never exist together.
#pragma once

#include <map>

#include "runtime/lower/compile.h"

namespace evn {

class ConstantUses {
 public:
  // CompiledGraph::needed is known. As long as this lives no other session of the model is compiled.
  explicit ConstantUses(const CompiledGraph& c);

  PlainWeights::Access* plain() { return &plain_; }
  bool may_go(const Weight& weight) const { return plain_.may_go(weight); }

  // A node's input is settled: the host reads a packed copy of it, or it is read as it is.
  void done(ValueId v, bool packed);

  // What plans may read.
  void set_constants(std::vector<ConstTensor>* constants);

 private:
  void add(const Graph& graph, ValueId v);
  void add_body(const Graph& body);

  const CompiledGraph& c_;
  PlainWeights::Access plain_;
  std::map<const Weight*, int> left_;  // uses that are not settled, or read the plain bytes
};

}  // namespace evn
