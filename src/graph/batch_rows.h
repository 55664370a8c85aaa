// Rows of a batch stay apart in each node, also for another size of the batch than that of the export.
#pragma once

#include <optional>
#include <vector>

#include "base/error.h"
#include "core/graph.h"
#include "graph/batch_walk.h"

namespace evn {

// Finds nodes in which rows of the batch would meet that do not in the model as it was exported. Compares the shapes for two sizes
// of the batch: a dim may have the batch as a factor beside another one, as tokens of all rows in one dim have.
class BatchRows {
 public:
  // `own`, `walk`: shapes for `batch` and for `other`, which are coprime. They outlive this.
  BatchRows(const Graph& graph, std::int64_t batch, std::int64_t other, const BatchWalk& own, const BatchWalk& walk);

  // Takes the nodes in their order, each after both walks. Returns why the node mixes rows.
  std::optional<Error> visit(const Node& node);

 private:
  const Graph& graph_;
  std::int64_t batch_, other_;
  const BatchWalk &own_, &walk_;
  std::vector<std::int64_t> outer_;  // by value: the factor before the batch in its dim; 0: not known

  bool holds_batch(std::int64_t own, std::int64_t other) const;
  bool is_shared(std::int64_t own, std::int64_t other) const;
  int dim_of_batch(ValueId v) const;
  std::int64_t outer_of(ValueId v, int dim) const;
  bool follow_reshape(ValueId in, ValueId out);
  bool follow(const Node& node, ValueId out);
  bool works_along_rows(const Node& node) const;
  std::vector<std::int64_t> worked_axes(const Node& node, int rank) const;
  std::vector<std::int64_t> reduced_axes(const Node& node, int rank) const;
  bool moves_rows(const Node& node) const;
  bool loses_rows(const Node& node) const;
  bool is_same(ValueId v) const;
};

}  // namespace evn
