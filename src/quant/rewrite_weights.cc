#include "quant/rewrite_weights.h"

#include <map>

#include "base/cancel.h"
#include "base/heap.h"
#include "quant/block_weights.h"
#include "quant/graph_writer.h"
#include "quant/keep.h"
#include "quant/weights.h"

namespace evn {
namespace {

bool is_float_constant(const Graph& graph, ValueId v) {
  if (v == kNoValue) return false;
  const Value& value = graph.values[static_cast<std::size_t>(v)];
  return value.constant != nullptr && value.constant->desc.dtype == DType::kFloat32 && value.constant->desc.shape.elements() > 0;
}

class WeightRewriter {
 public:
  WeightRewriter(Graph& graph, const QuantScheme& scheme, const WeightOptions& options)
      : graph_(graph), scheme_(scheme), options_(options), writer_(graph, options.ledger) {}

  void run() {
    std::vector<Node> old = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (std::size_t i = 0; i < old.size(); ++i) {
      cancellation_point(kNodeWork);
      const std::string name = old[i].name;  // a copy: the node is moved
      naming_node(name, [&] { rewrite(std::move(old[i]), scheme_.nodes[i]); });
    }
    writer_.drop_unused_constants();
  }

 private:
  Graph& graph_;
  const QuantScheme& scheme_;
  const WeightOptions& options_;
  GraphWriter writer_;
  struct Made {
    ValueId ids[3] = {kNoValue, kNoValue, kNoValue};
    std::map<std::int32_t, ValueId> dequantized = {};  // by region: what DequantizeLinear makes of them there
  };
  std::map<std::pair<ValueId, int>, Made> made_;  // by weight and how it is made anew
  std::int32_t region_ = -1;                      // of the node that is looked at

  // How a weight is made anew: matrices by the axis of k, and these.
  enum : int { kChannels = 2, kRows, kCutRows };

  void rewrite(Node node, const QuantNode& q) {
    writer_.set_region(region_ = node.region);
    if (q.role != QuantRole::kProduct) {
      graph_.nodes.push_back(std::move(node));
    } else if (node.op_type == "Gather") {
      replace_gather(node);
    } else if (node.op_type == "Conv") {
      replace_conv(std::move(node));
    } else if (options_.contrib) {
      replace_product(node, q);
    } else {
      replace_weight(std::move(node), q);
    }
  }

  // Replacement of the weight; empty if it has not been made yet.
  Made& made_of(ValueId weight, int how) { return made_[{weight, how}]; }

  const Weight& constant(ValueId v) { return *writer_.value(v).constant; }
  std::string name_of(ValueId v) { return writer_.value(v).name; }
  static int axis_of(const QuantNode& q) { return 1 - q.weight_axis; }  // of k

  // Rows of numbers of `bits` each, padded to `length`.
  ValueId add_packed(const std::string& name, DType dtype, const Shape& shape, int bits, std::span<const std::uint8_t> numbers,
                     std::int64_t row, std::int64_t length) {
    void* to = nullptr;
    std::shared_ptr<Weight> weight = make_weight({dtype, shape}, options_.ledger, &to);
    auto* const bytes = static_cast<std::uint8_t*>(to);
    const auto rows = static_cast<std::int64_t>(numbers.size()) / row;
    for (std::int64_t r = 0; r < rows; ++r) {
      in_pieces(row, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::uint8_t x = numbers[static_cast<std::size_t>(r * row + i)];
          const std::int64_t at = r * length + i;
          if (bits == 8) {
            bytes[at] = x;
          } else {
            bytes[at / 2] = static_cast<std::uint8_t>(bytes[at / 2] | x << (at % 2 * 4));
          }
        }
      });
    }
    return writer_.add_constant(name, "", std::move(weight));
  }

  BlockWeight blocks_of(ValueId v, int axis) {
    return quantize_blocks(constant(v), name_of(v), axis, options_.bits, options_.block);
  }

  // [n][count] becomes [count][n] where k is along the first axis.
  template <typename T>
  static std::vector<T> laid(const std::vector<T>& rows, std::int64_t n, int axis) {
    if (axis == 1) return rows;
    const std::int64_t count = static_cast<std::int64_t>(rows.size()) / n;
    std::vector<T> turned(rows.size());
    for (std::int64_t j = 0; j < n; ++j) {
      in_pieces(count, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          turned[static_cast<std::size_t>(i * n + j)] = rows[static_cast<std::size_t>(j * count + i)];
      });
    }
    return turned;
  }

  // Converts numbers around 128 to int8, or back.
  static void flip_signs(std::vector<std::uint8_t>& numbers) {
    in_pieces(std::ssize(numbers), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) numbers[static_cast<std::size_t>(i)] ^= 0x80u;
    });
  }

  // Elements of DequantizeLinear: int8 for 8 bits, which are around 0, and uint4.
  ValueId add_laid(const std::string& name, const BlockWeight& w, const Shape& shape, const std::vector<std::uint8_t>& rows,
                   int axis) {
    std::vector<std::uint8_t> numbers = laid(rows, w.n, axis);
    if (w.bits == 8) flip_signs(numbers);
    const auto all = static_cast<std::int64_t>(numbers.size());
    return add_packed(name, w.bits == 8 ? DType::kInt8 : DType::kUint4, shape, w.bits, numbers, all, all);
  }

  void replace_weight(Node node, const QuantNode& q) {
    const ValueId weight = node.inputs[1];
    const int axis = axis_of(q);
    Made& made = made_of(weight, axis);
    if (made.ids[0] == kNoValue) {
      const std::string name = name_of(weight);
      const BlockWeight w = blocks_of(weight, axis);
      const Shape numbers = axis == 0 ? Shape{w.blocks(), w.n} : Shape{w.n, w.blocks()};
      const ValueId elements = add_laid(name + "_quantized", w, constant(weight).desc.shape, w.numbers, axis);
      const ValueId scales = writer_.add_floats(name, "_scale", numbers, laid(w.scales, w.n, axis));
      const ValueId zeros = w.bits == 4 ? add_laid(name + "_zero_point", w, numbers, w.zeros, axis) : kNoValue;
      made.ids[0] = elements;
      made.ids[1] = scales;
      made.ids[2] = zeros;
    }
    node.inputs[1] = dequantized(&made, name_of(weight), axis, options_.block);
    graph_.nodes.push_back(std::move(node));
  }

  // The weight in float32 in the region of the node that is looked at. block 0: a scale for each index along the axis.
  ValueId dequantized(Made* made, const std::string& name, int axis, std::int64_t block) {
    const auto [it, is_new] = made->dequantized.try_emplace(region_, kNoValue);
    if (!is_new) return it->second;
    it->second = writer_.add_value(name, "_dequantized", DType::kFloat32);
    writer_.add_node("DequantizeLinear", name, "_DequantizeLinear", {made->ids, made->ids[2] == kNoValue ? 2u : 3u}, it->second);
    writer_.set_int("axis", axis);
    if (block != 0) writer_.set_int("block_size", block);
    return it->second;
  }

  // MatMulNBits, and an Add for the bias, which older engines do not take with it.
  void replace_product(const Node& node, const QuantNode& q) {
    const ValueId weight = node.inputs[1], y = node.outputs[0];
    const int axis = axis_of(q);
    const Shape shape = constant(weight).desc.shape;
    const std::int64_t k = shape[axis], n = shape[1 - axis], blocks = (k + options_.block - 1) / options_.block,
                       bits = options_.bits;
    Made& made = made_of(weight, axis);
    if (made.ids[0] == kNoValue) {
      const std::string name = name_of(weight);
      const BlockWeight w = blocks_of(weight, axis);
      const std::int64_t zero_bytes = (blocks * bits + 7) / 8;
      made.ids[0] =
          add_packed(name + "_quantized", DType::kUint8, {n, blocks, w.block * bits / 8}, w.bits, w.numbers, k, blocks * w.block);
      made.ids[1] = writer_.add_floats(name, "_scale", {n * blocks}, w.scales);
      if (bits == 4)
        made.ids[2] = add_packed(name + "_zero_point", DType::kUint8, {n * zero_bytes}, w.bits, w.zeros, blocks, zero_bytes * 2);
    }
    const ValueId inputs[] = {node.inputs[0], made.ids[0], made.ids[1], made.ids[2]};
    const ValueId product = q.bias < 0 ? y : writer_.add_value(node.name, "_product", DType::kFloat32);
    writer_.add_node("MatMulNBits", node.name, "", {inputs, bits == 4 ? 4u : 3u}, product, "com.microsoft");
    writer_.set_int("K", k);
    writer_.set_int("N", n);
    writer_.set_int("accuracy_level",
                    4);  // inputs may be quantized, as ONNX Runtime does behind DequantizeLinear: else its 8 bits are slow
    writer_.set_int("bits", bits);
    writer_.set_int("block_size", options_.block);
    if (q.bias < 0) return;
    const ValueId operands[] = {product, node.inputs[static_cast<std::size_t>(q.bias)]};
    writer_.add_node("Add", node.name, "_Add", operands, y);
  }

  QuantizedWeight quantized(ValueId v) { return quantize_weight(constant(v), name_of(v), 0, options_.ledger); }

  void replace_conv(Node node) {
    const ValueId weight = node.inputs[1];
    Made& made = made_of(weight, kChannels);
    if (made.ids[0] == kNoValue) {
      const std::string name = name_of(weight);
      const QuantizedWeight q = quantized(weight);
      made.ids[0] = writer_.add_constant(name, "_quantized", q.values);
      made.ids[1] = writer_.add_floats(name, "_scale", {static_cast<std::int64_t>(q.scales.size())}, q.scales);
    }
    node.inputs[1] = dequantized(&made, name_of(weight), 0, 0);
    graph_.nodes.push_back(std::move(node));
  }

  // Rows are gathered as bytes, and become float32 then: a table that is dequantized first would be so in each run. Where the shape
  // of what is gathered can be said, rows have a scale for each block.
  void replace_gather(const Node& node) {
    const ValueId table = node.inputs[0], index = node.inputs[1], y = node.outputs[0];
    const std::string name = name_of(table);
    const Shape shape = constant(table).desc.shape;
    const Value& at = writer_.value(index);
    const bool cut = at.has_shape && at.shape.rank() + 2 <= kMaxRank && shape[1] % options_.block == 0;
    const int index_rank = cut ? at.shape.rank() : 0;
    Made& made = made_of(table, cut ? kCutRows : kRows);
    if (made.ids[0] == kNoValue) add_table(name, table, cut, &made);
    const ValueId bytes = writer_.add_value(node.name, "_bytes", DType::kInt8),
                  scale = writer_.add_value(node.name, "_scale", DType::kFloat32);
    const ValueId real = writer_.add_value(node.name, "_float", DType::kFloat32);
    const ValueId product = cut ? writer_.add_value(node.name, "_blocks", DType::kFloat32) : y;
    const ValueId rows[] = {made.ids[0], index}, scales[] = {made.ids[1], index}, factors[] = {real, scale};
    writer_.add_node("Gather", node.name, "", rows, bytes);
    writer_.add_node("Gather", node.name, "_scale_Gather", scales, scale);
    writer_.add_cast(node.name, bytes, real, DType::kFloat32);
    writer_.add_node("Mul", node.name, "_Mul", factors, product);
    if (!cut) return;
    std::int64_t dims[kMaxRank] = {};
    dims[index_rank] = shape[1];
    const ValueId whole[] = {product, writer_.add_bytes(node.name, "_shape", DType::kInt64, {index_rank + 1}, dims)};
    writer_.add_node("Reshape", node.name, "_Reshape", whole, y);
  }

  // [rows, columns] and scales [rows, 1], or [rows, blocks, block] and [rows, blocks, 1].
  void add_table(const std::string& name, ValueId table, bool cut, Made* made) {
    if (!cut) {
      const QuantizedWeight q = quantized(table);
      made->ids[0] = writer_.add_constant(name, "_quantized", q.values);
      made->ids[1] = writer_.add_floats(name, "_scale", {static_cast<std::int64_t>(q.scales.size()), 1}, q.scales);
      return;
    }
    BlockWeight w = quantize_blocks(constant(table), name, 1, 8, options_.block);
    flip_signs(w.numbers);
    made->ids[0] = writer_.add_bytes(name, "_quantized", DType::kInt8, {w.n, w.blocks(), w.block}, w.numbers.data());
    made->ids[1] = writer_.add_floats(name, "_scale", {w.n, w.blocks(), 1}, w.scales);
  }
};

// Why a Conv or Gather stays; "" where it does not. Null: other nodes.
const char* refusal_of(const Graph& graph, const Node& node) {
  const bool conv = node.op_type == "Conv", gather = node.op_type == "Gather";
  if (!node.domain.empty() || (!conv && !gather)) return nullptr;
  const ValueId weight = node.inputs.size() < 2 ? kNoValue : node.inputs[conv ? 1 : 0];
  if (gather) {
    if (!is_float_constant(graph, weight)) return nullptr;  // shapes and the like
    const Shape& table = graph.values[static_cast<std::size_t>(weight)].constant->desc.shape;
    if (table.rank() != 2 || int_attribute_of(node, "axis", 0) != 0) return "not rows of a matrix";
    return table[1] < 16 ? "its rows are short" : "";
  }
  return is_float_constant(graph, weight) ? "" : "its weight is computed, or not float32";
}

}  // namespace

QuantScheme make_weight_scheme(const Graph& graph, const std::vector<std::string>& keep, const WeightOptions& options) {
  const NodePatterns patterns(keep);
  QuantScheme scheme = make_scheme(graph, {keep, true});
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    cancellation_point(kNodeWork);
    const Node& node = graph.nodes[i];
    QuantNode& q = scheme.nodes[i];
    if (q.role == QuantRole::kProduct && node.op_type != "Conv") {
      const Shape& w = graph.values[static_cast<std::size_t>(node.inputs[1])].constant->desc.shape;
      if (w[1 - q.weight_axis] >= options.block) continue;
      q = {};
      q.reason = "its weight has fewer rows than a block";
      continue;
    }
    const char* const why = refusal_of(graph, node);
    if (why == nullptr || is_kept_by(patterns, node, &q.reason)) continue;
    q = {};
    q.reason = why;
    if (!q.reason.empty()) continue;
    q.role = QuantRole::kProduct;
    q.weight = node.op_type == "Conv" ? 1 : 0;
  }
  return scheme;
}

void rewrite_weights(Graph* graph, const QuantScheme& scheme, const WeightOptions& options) {
  WeightRewriter(*graph, scheme, options).run();
}

}  // namespace evn
