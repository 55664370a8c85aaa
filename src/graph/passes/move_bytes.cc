// Operators that only move or choose elements, between a DequantizeLinear and QuantizeLinears, run on bytes:
//   DequantizeLinear -> MaxPool, Reshape, Transpose, Slice, Split, Pad, Resize (nearest), ... -> QuantizeLinear
// Nothing is left of the two where their numbers are equal, otherwise a table of 256 elements. Exact: scales are positive, so that
// the largest element is that of the largest step. A padding value must be a step of the scale.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "graph/passes/match.h"
#include "graph/passes/quantization.h"
#include "graph/passes/rewrites.h"
#include "ops/pad.h"
#include "ops/pool.h"
#include "ops/resize.h"

namespace evn {
namespace {

// Input 0 is what they move.
constexpr const char* kMovers[] = {"MaxPool", "Reshape", "Flatten", "Transpose",    "Squeeze",      "Unsqueeze", "Slice", "Split",
                                   "Pad",     "Resize",  "Expand",  "DepthToSpace", "SpaceToDepth", "Identity",  "Tile",  "Gather"};
constexpr int kLongest = 8;  // of a chain of them

class Moves {
 public:
  Moves(Graph& graph, const PassContext& context) : edit_(graph), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      Quantization to;
      if (!edit_.removed(n) && quantizes(n, &to)) from_quantize(n);
    }
    return edit_.commit();
  }

 private:
  bool quantizes(int n, Quantization* to) const {
    return is_op(edit_.graph().nodes[n], "QuantizeLinear") && quantization_of(edit_, edit_.graph().nodes[n], to) && to->single();
  }

  bool moves(const Node& node, DType dtype) const {
    const auto same = [&](const char* name) { return is_op(node, name); };
    if (!std::any_of(std::begin(kMovers), std::end(kMovers), same) || !node.epilogue.empty()) return false;
    if ((node.op->dtypes & dtype_bit(dtype)) == 0) return false;
    if (is_op(node, "Resize")) return attr_string(node, ResizeAttr::kMode) == "nearest" && node.op->since >= 11 && !crops(node);
    if (is_op(node, "Pad")) return node.op->since >= 11;
    return !is_op(node, "MaxPool") || (node.outputs.size() == 1 && sees_pixels(node));
  }

  // Returns true if no window of the pool lies in the padding alone: its maximum is -inf, which is no byte.
  static bool sees_pixels(const Node& node) {
    const std::span<const std::int64_t> kernel = attr_ints(node, MaxPoolAttr::kKernelShape),
                                        pads = attr_ints(node, MaxPoolAttr::kPads);
    if (attr_given(node, MaxPoolAttr::kDilations)) {
      for (const std::int64_t dilation : attr_ints(node, MaxPoolAttr::kDilations)) {
        if (dilation != 1) return false;
      }
    }
    for (std::size_t i = 0; i < pads.size(); ++i) {
      if (pads[i] >= kernel[i % kernel.size()]) return false;
    }
    return true;
  }

  static bool crops(const Node& node) {
    return attr_string(node, ResizeAttr::kCoordinateTransformationMode) == "tf_crop_and_resize";
  }

  // Whether each of its outputs goes to one QuantizeLinear and nowhere else.
  bool only_quantized(const Node& node) const {
    return std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) {
      Quantization to;
      const int reader = v == kNoValue ? -1 : edit_.only_consumer(v);
      return reader >= 0 && edit_.graph().nodes[reader].inputs[0] == v && quantizes(reader, &to);
    });
  }

  void from_quantize(int last) {
    std::vector<int> chain;  // the last mover first
    ValueId v = edit_.node(last).inputs[0];
    Quantization from;
    for (;;) {
      if (!chain.empty() && bytes_behind(edit_, v, &from) >= 0) break;
      const int n = edit_.producer(v);
      if (n < 0 || edit_.only_consumer(v) < 0 || static_cast<int>(chain.size()) == kLongest) return;
      const Node& node = edit_.node(n);
      if (node.inputs.empty() || node.inputs[0] == kNoValue || !moves(node, DType::kUint8)) return;
      if (node.outputs.size() > 1 && (!chain.empty() || !only_quantized(node))) return;
      chain.push_back(n);
      v = node.inputs[0];
    }
    for (const int n : chain) {
      if (!moves(edit_.node(n), from.dtype) || !can_pad(edit_.node(n), from)) return;
    }
    const int dequantize = edit_.producer(v);
    edit_.set_input(chain.back(), 0, edit_.node(dequantize).inputs[0]);
    for (const int n : chain) {
      if (is_op(edit_.node(n), "Pad")) pad_with_bytes(n, from);
      for (const ValueId y : edit_.node(n).outputs) edit_.value(y).dtype = from.dtype;
    }
    const std::vector<ValueId> outputs = edit_.node(chain.front()).outputs;
    for (const ValueId y : outputs) finish(edit_.only_consumer(y), y, from);
  }

  // The value that is padded with; false when it is not known.
  bool padding(const Node& node, float* value) const {
    *value = 0;
    if (attr_string(node, 0) != "constant" || node.inputs.size() < 3 || node.inputs[2] == kNoValue) return true;
    return scalar_constant(edit_.graph(), node.inputs[2], 1, value);
  }

  bool can_pad(const Node& node, const Quantization& from) const {
    float value = 0;
    if (!is_op(node, "Pad")) return true;
    if (!padding(node, &value)) return false;
    return static_cast<float>(from.step_of(value) - from.zeros[0]) * from.scales[0] == value;
  }

  void pad_with_bytes(int n, const Quantization& from) {
    float value = 0;
    padding(edit_.node(n), &value);
    const std::int32_t step = from.step_of(value);
    edit_.set_input(n, 2, from.dtype == DType::kInt8 ? add_number<std::int8_t>(step) : add_number<std::uint8_t>(step));
  }

  template <typename T>
  ValueId add_number(std::int32_t step) {
    void* bytes = nullptr;
    std::shared_ptr<Weight> weight = make_weight({kDTypeOf<T>, Shape{}}, context_.ledger, &bytes);
    *static_cast<T*>(bytes) = static_cast<T>(step);
    return edit_.add_constant("padding", std::move(weight));
  }

  // QuantizeLinear n of what is bytes now.
  void finish(int n, ValueId bytes, const Quantization& from) {
    Quantization to;
    // The graph knows it as float32 no longer: the numbers alone count.
    edit_.value(bytes).dtype = DType::kFloat32;
    const bool known = quantization_of(edit_, edit_.node(n), &to);
    edit_.value(bytes).dtype = from.dtype;
    EVN_CHECK(known);
    const ByteValues values = requantized(from, to);
    const ValueId y = edit_.node(n).outputs[0];
    if (to.dtype == from.dtype && is_identity(values) && !edit_.is_output(y)) {
      edit_.replace_uses(y, bytes);
      edit_.remove_node(n);
      return;
    }
    become_table(edit_, context_, n, bytes, to.dtype, values);
  }

  GraphEditor edit_;
  const PassContext& context_;
};

}  // namespace

bool move_bytes(Graph& graph, const PassContext& context) { return Moves(graph, context).run(); }

}  // namespace evn
