// Shapes of all values of a graph for one size of the batch, node by node, as a run would have them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "core/graph.h"
#include "ops/op.h"

namespace evn {

class BatchWalk {
 public:
  // Dim 0 of each input is `batch`. Other dims that are not known are small numbers, one for each name.
  BatchWalk(const Graph& graph, std::int64_t batch);

  // Infers the outputs of a node; these are unknown if an input is. Values of a few elements are computed. Returns the failure of a
  // node whose inputs do not fit together; its outputs are then unknown. Throws the status of a call that is to end.
  // `given` has what the node reads as some of its inputs, in the place of the values of the graph.
  struct Given {
    std::size_t input = 0;
    ConstTensor value;  // without data: the elements are not known
  };
  std::optional<Error> infer(const Node& node, std::span<const Given> given = {});
  // Makes the outputs of a node unknown.
  void forget(const Node& node);

  // nullptr: the shape is not known.
  const Shape* shape(ValueId v) const;
  // The elements of a small int64 value; nullptr: they are not known.
  const std::vector<std::int64_t>* numbers(ValueId v) const;

 private:
  struct Known {
    TensorDesc desc;  // of no dtype: the shape is not known
    std::vector<std::uint64_t> bytes;
    bool has_bytes = false;
    mutable std::vector<std::int64_t> numbers;
  };

  std::vector<Known> known_;
  std::size_t computed_bytes_ = 0;  // of values that were computed
  std::vector<TensorDesc> inputs_, outputs_;
  std::vector<ConstTensor> values_;

  bool gather(const Node& node, std::span<const Given> given);
  void compute(const Node& node);
};

}  // namespace evn
