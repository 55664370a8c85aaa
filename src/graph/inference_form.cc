#include "graph/inference_form.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "ops/batch_norm.h"

namespace evn {
namespace {

class InferenceForm {
 public:
  explicit InferenceForm(Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes) read_.insert(node.inputs.begin(), node.inputs.end());
    read_.insert(graph.outputs.begin(), graph.outputs.end());
    read_.erase(kNoValue);
  }

  void run() {
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    graph_.nodes.reserve(nodes.size());
    for (Node& node : nodes) {
      cancellation_point(kNodeWork);
      if (node.domain.empty() && node.op_type == "BatchNormalization") use_statistics(node);
      if (node.domain.empty() && node.op_type == "Dropout") drop_nothing(node);
      graph_.nodes.push_back(std::move(node));
    }
  }

 private:
  Graph& graph_;
  std::unordered_set<ValueId> read_;  // by nodes, or as outputs of the graph

  bool is_read(const Node& node, std::size_t output) const {
    return output < node.outputs.size() && read_.contains(node.outputs[output]);
  }

  void use_statistics(Node& node) {
    std::erase_if(node.attributes, [](const Attribute& a) { return a.name == "training_mode"; });
    for (const std::size_t batch : {3u, 4u}) {
      if (!is_read(node, batch)) continue;
      throw make_error(EVN_ERROR_UNSUPPORTED,
                       "output %zu of BatchNormalization, a statistic of the batch, is read: it has none in inference", batch)
          .with_node(node.name.c_str());
    }
    for (const auto& [output, statistic] : {std::pair(1, BatchNormInput::kMean), std::pair(2, BatchNormInput::kVariance)}) {
      if (!is_read(node, static_cast<std::size_t>(output))) continue;
      Node same;
      same.name = node.name + (output == 1 ? "/mean" : "/variance");
      same.op_type = "Identity";
      same.since_version = node.since_version;
      same.region = node.region;
      same.inputs = {node.inputs[static_cast<std::size_t>(statistic)]};
      same.outputs = {node.outputs[static_cast<std::size_t>(output)]};
      graph_.nodes.push_back(std::move(same));
    }
    node.outputs.resize(1);
  }

  void drop_nothing(Node& node) const {
    if (node.inputs.size() > 2) node.inputs.resize(2);
    while (!node.inputs.empty() && node.inputs.back() == kNoValue) node.inputs.pop_back();
    if (!is_read(node, 1)) node.outputs.resize(1);
  }
};

}  // namespace

void take_inference_form(Graph& graph) { InferenceForm(graph).run(); }

}  // namespace evn
