// Attention and MultiHeadAttention of com.microsoft become products, sums and the Attention of ai.onnx, which have kernels: the
// projection is a MatMul whose bias its epilogue adds, and a mask of 0 and 1 a sum of mask_filter_value where it is 0. What has no
// equivalent stays: masks that are lengths, a past of both in one tensor, buffers that past and present share, packed keys.
#include "graph/edit.h"
#include "graph/passes/match.h"
#include "graph/passes/quantization.h"
#include "graph/passes/rewrites.h"
#include "ops/contrib_attention_rows.h"

namespace evn {
namespace {

using namespace contrib_attention;

class Attentions {
 public:
  Attentions(Graph& graph, const PassContext& context) : edit_(graph), match_(edit_), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (edit_.removed(n)) continue;
      const Node& node = edit_.node(n);
      if (node.domain != "com.microsoft" || !node.epilogue.empty()) continue;
      if (node.op_type == "Attention") expand_projected(n);
      else if (node.op_type == "MultiHeadAttention") expand_multi(n);
    }
    return edit_.commit();
  }

 private:
  struct Parts {
    ValueId q, k, v;
    ValueId mask = kNoValue, bias = kNoValue;  // of the scores
    ValueId past_key = kNoValue, past_value = kNoValue;
  };

  ValueId input(int n, std::size_t i) const {
    const std::vector<ValueId>& inputs = edit_.graph().nodes[static_cast<std::size_t>(n)].inputs;
    return i < inputs.size() ? inputs[i] : kNoValue;
  }
  bool wants(int n, std::size_t i) {
    const std::vector<ValueId>& outputs = edit_.node(n).outputs;
    return i < outputs.size() && outputs[i] != kNoValue;
  }
  int rank(ValueId v) const { return value_rank(edit_.value(v)); }

  // A new node before node n, and its output.
  ValueId insert(int n, const char* op, int since, std::vector<ValueId> inputs, std::vector<Attribute> attributes = {},
                 DType dtype = DType::kFloat32) {
    return insert_some(n, op, since, std::move(inputs), std::move(attributes), dtype, 1)[0];
  }
  std::vector<ValueId> insert_some(int n, const char* op, int since, std::vector<ValueId> inputs, std::vector<Attribute> attributes,
                                   DType dtype, int outputs) {
    const std::string name = edit_.node(n).name + "/" + op;
    Node node = Matcher::made(op, "", since, name, edit_.node(n).region, std::move(attributes));
    node.model_op = edit_.node(n).op_type;
    node.inputs = std::move(inputs);
    for (int i = 0; i < outputs; ++i) node.outputs.push_back(edit_.add_value(name + "/" + std::to_string(i), dtype));
    std::vector<ValueId> values = node.outputs;
    edit_.insert_node(n, std::move(node));
    return values;
  }

  bool takes_mask(ValueId mask) const { return mask == kNoValue || rank(mask) == 2 || rank(mask) == 3; }

  void expand_projected(int n) {
    const ValueId x = input(n, 0), weight = input(n, 1), bias = input(n, 2), mask = input(n, 3);
    if (input(n, 4) != kNoValue || input(n, 6) != kNoValue || wants(n, 1) || !takes_mask(mask)) return;
    if (rank(weight) != 2 || edit_.value(weight).shape[1] < 3 || edit_.value(weight).shape[1] % 3 != 0) return;
    const std::int64_t third = edit_.value(weight).shape[1] / 3;
    std::vector<std::int64_t> widths = {third, third, third};
    if (const auto* given = std::get_if<std::vector<std::int64_t>>(&edit_.node(n).resolved[kHiddenSizes])) widths = *given;
    ValueId product = insert(n, "MatMul", 1, {x, weight});
    if (bias != kNoValue) product = insert(n, "Add", 7, {product, bias});
    const std::vector<ValueId> parts =
        insert_some(n, "Split", 2, {product}, {{"axis", std::int64_t{2}}, {"split", widths}}, DType::kFloat32, 3);
    become(n, {parts[0], parts[1], parts[2], mask, input(n, 5)});
  }

  void expand_multi(int n) {
    Parts p = {input(n, 0), input(n, 1), input(n, 2), input(n, 4), input(n, 5), input(n, 6), input(n, 7)};
    if (input(n, kPastLength) != kNoValue || input(n, kIndirection) != kNoValue || wants(n, 3) || !takes_mask(p.mask)) return;
    if ((wants(n, 1) || wants(n, 2)) != (p.past_key != kNoValue)) return;
    if (p.k == kNoValue || p.v == kNoValue || rank(p.q) != 3 || rank(p.k) != 3 || rank(p.v) != 3) return;
    if (const ValueId bias = input(n, 3); bias != kNoValue) {
      const std::vector<std::int64_t> widths = {edit_.value(p.q).shape[2], edit_.value(p.q).shape[2], edit_.value(p.v).shape[2]};
      if (widths[0] < 1 || widths[2] < 1) return;
      const std::vector<ValueId> parts =
          insert_some(n, "Split", 2, {bias}, {{"axis", std::int64_t{0}}, {"split", widths}}, DType::kFloat32, 3);
      ValueId* const operands[] = {&p.q, &p.k, &p.v};
      for (std::size_t i = 0; i < 3; ++i) *operands[i] = insert(n, "Add", 7, {*operands[i], parts[i]});
    }
    become(n, p);
  }

  // What is added to the scores; kNoValue: nothing.
  ValueId added(int n, const Parts& p) {
    if (p.mask == kNoValue) return p.bias;
    const float filter = std::get<float>(edit_.node(n).resolved[kFilter]);
    const ValueId none = add_vector<std::int32_t>(edit_, context_, "none", {0});
    const ValueId hidden = insert(n, "LessOrEqual", 16, {p.mask, none}, {}, DType::kBool);
    const ValueId filtered = add_vector<float>(edit_, context_, "mask_filter_value", {filter});
    const ValueId sum = insert(n, "Where", 9, {hidden, filtered, add_vector<float>(edit_, context_, "zero", {0.0f})});
    std::vector<std::int64_t> axes = {1};
    if (rank(p.mask) == 2) axes.push_back(2);
    const ValueId mask = insert(n, "Unsqueeze", 1, {sum}, {{"axes", axes}});
    return p.bias == kNoValue ? mask : insert(n, "Add", 7, {mask, p.bias});
  }

  void become(int n, const Parts& p) {
    const std::vector<AttributeValue>& resolved = edit_.node(n).resolved;
    const std::int64_t heads = std::get<std::int64_t>(resolved[kHeads]), causal = std::get<std::int64_t>(resolved[kUnidirectional]);
    const float scale = std::get<float>(resolved[kScale]);
    std::vector<ValueId> inputs = {p.q, p.k, p.v, added(n, p), p.past_key, p.past_value};
    while (inputs.back() == kNoValue) inputs.pop_back();
    std::vector<Attribute> attributes = {
        {"q_num_heads", heads}, {"kv_num_heads", heads}, {"is_causal", causal != 0 ? std::int64_t{1} : std::int64_t{0}}};
    if (scale != 0) attributes.push_back({"scale", scale});
    match_.replace(n, "Attention", 23, std::move(attributes), inputs);
  }

  GraphEditor edit_;
  Matcher match_;
  const PassContext& context_;
};

}  // namespace

bool expand_attention(Graph& graph, const PassContext& context) { return Attentions(graph, context).run(); }

}  // namespace evn
