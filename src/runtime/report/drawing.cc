// From a placed graph to boxes and edges, and these in Graphviz's language. The SVG is in drawing_svg.cc.
#include "runtime/report/drawing.h"

#include <algorithm>

#include "base/text.h"

namespace evn {
namespace {

constexpr std::size_t kLabelBytes = 48;

class Builder {
 public:
  Builder(const CompiledGraph& c, std::span<const char* const> kernels) : c_(c), graph_(c.graph()), kernels_(kernels) {}

  Drawing build() {
    maker_.assign(graph_.values.size(), -1);
    for (const Device* device : c_.devices) d_.devices.push_back(device->name());
    for (const ValueId v : graph_.inputs) maker_[v] = add_box({graph_.values[v].name, "input", "", -1, 0});
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) add_node(i);
    for (const ValueId v : graph_.outputs) {
      const int box = add_box({graph_.values[v].name, "output", "", -1, 0});
      add_edge(v, box, false);
    }
    return std::move(d_);
  }

 private:
  int add_box(Drawing::Box box) {
    d_.boxes.push_back(std::move(box));
    return static_cast<int>(d_.boxes.size() - 1);
  }

  void add_node(std::size_t i) {
    const Node& node = graph_.nodes[i];
    const NodePlacement& p = c_.placement.nodes[i];
    const std::string detail = p.device->name() + "  " + kernels_[i];
    const int box = add_box({node.op_type + "  " + node.name, detail, p.reason, c_.nodes[i].slot, 0});
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const bool by_value =
          c_.nodes[i].mode == NodeMode::kPlanned || node.op->reads_value(k) || (k == 0 && (node.op->flags & kOpShapeOnly) != 0);
      if (node.inputs[k] != kNoValue) add_edge(node.inputs[k], box, by_value);
    }
    for (const ValueId v : node.outputs) {
      if (v != kNoValue) maker_[v] = box;
    }
  }

  void add_edge(ValueId v, int to, bool shape_only) {
    const int from = maker_[v];
    if (from < 0) return;  // a constant
    // Inputs come from the host, and outputs go there: slot 0.
    const bool copy = !shape_only && std::max(d_.boxes[from].slot, 0) != std::max(d_.boxes[to].slot, 0);
    d_.edges.push_back({from, to, graph_.values[v].name, copy, shape_only});
    d_.boxes[to].layer = std::max(d_.boxes[to].layer, d_.boxes[from].layer + 1);
  }

  const CompiledGraph& c_;
  const Graph& graph_;
  std::span<const char* const> kernels_;
  Drawing d_;
  std::vector<int> maker_;  // per value: the box that makes it, or -1
};

// A string of the language: quotes and backslashes escaped, what is no printable UTF-8 replaced.
std::string quoted(std::string_view text) {
  const std::string cut = shorten(text, kLabelBytes * 2);
  std::string result = "\"";
  const bool utf8 = find_invalid_utf8(cut) == std::string_view::npos;
  for (const char c : cut) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') result += '\\';
    result += u < 0x20 || u == 0x7f || (u >= 0x80 && !utf8) ? '?' : c;
  }
  return result + "\"";
}

}  // namespace

Drawing make_drawing(const CompiledGraph& compiled, std::span<const char* const> kernels) {
  return Builder(compiled, kernels).build();
}

const char* drawing_fill(int slot) {
  static constexpr const char* kFills[] = {"#dbe9f6", "#fde0c5", "#d9f0d3", "#eadcf4", "#fff3b0", "#d0efec", "#f8d7e3", "#e3e3e3"};
  return slot < 0 ? "#ffffff" : kFills[static_cast<std::size_t>(slot) % std::size(kFills)];
}

std::string drawing_to_dot(const Drawing& drawing) {
  std::string text = "digraph placement {\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n";
  for (std::size_t i = 0; i < drawing.boxes.size(); ++i) {
    const Drawing::Box& box = drawing.boxes[i];
    std::string label = quoted(box.title);
    if (!box.detail.empty()) {
      label.pop_back();
      label += "\\n" + quoted(box.detail).substr(1);
    }
    text += "  b" + std::to_string(i) + " [label=" + label + ", fillcolor=\"" + drawing_fill(box.slot) + "\"";
    if (box.slot < 0) text += ", shape=ellipse";
    if (!box.reason.empty()) text += ", tooltip=" + quoted(box.reason);
    text += "];\n";
  }
  for (const Drawing::Edge& edge : drawing.edges) {
    text += "  b" + std::to_string(edge.from) + " -> b" + std::to_string(edge.to) + " [tooltip=" + quoted(edge.value);
    if (edge.copy) text += ", label=\"copy\", color=\"#c0392b\", fontcolor=\"#c0392b\", penwidth=2";
    if (edge.shape_only) text += ", style=dashed";
    text += "];\n";
  }
  return text + "}\n";
}

}  // namespace evn
