// Conv over three spatial axes whose window has one tap along some of them becomes one over two, which has faster kernels: with one
// tap along the first axis ((2+1)D networks, 1 x 3 x 3) its positions are images of a batch, between two transpositions; with one
// tap along the other two (3 x 1 x 1) these are one axis.
#include "graph/edit.h"
#include "graph/passes/match.h"
#include "graph/passes/quantization.h"
#include "graph/passes/rewrites.h"
#include "ops/conv.h"

namespace evn {
namespace {

// One tap, which moves by one and sees no padding: position i of the output is that of the input.
bool is_pointwise(const WindowAxis& a) { return a.kernel == 1 && a.stride == 1 && a.pad_begin == 0 && a.pad_end == 0; }

class Flattener {
 public:
  Flattener(Graph& graph, const PassContext& context) : edit_(graph), match_(edit_), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (match_.is(n, "Conv")) flatten(n);
    }
    return edit_.commit();
  }

 private:
  using Ints = std::vector<std::int64_t>;

  void flatten(int n) {
    const std::vector<ValueId> inputs = edit_.node(n).inputs;
    if (inputs.size() < 2 || inputs[0] == kNoValue || inputs[1] == kNoValue) return;
    const Value &x = edit_.value(inputs[0]), &y = edit_.value(edit_.node(n).outputs[0]);
    const WeightPtr weight = edit_.value(inputs[1]).constant;
    if (weight == nullptr || weight->desc.dtype != DType::kFloat32 || weight->desc.shape.rank() != 5) return;
    if (!x.has_shape || x.shape.rank() != 5 || !y.has_shape || y.shape.rank() != 5 || y.dtype != DType::kFloat32) return;
    for (int i = 1; i < 5; ++i) {
      if (x.shape[i] < 1 || y.shape[i] < 1) return;
    }
    const Shape from = x.shape, to = y.shape;
    const Window w = conv_window(edit_.node(n), from, weight->desc.shape);
    const bool joins_last = is_pointwise(w.axis[1]) && is_pointwise(w.axis[2]);
    if (!joins_last && !is_pointwise(w.axis[0])) return;
    const WindowAxis pointwise;
    if (joins_last) {
      const ValueId image = reshape(n, inputs[0], {-1, from[1], from[2], from[3] * from[4]});
      const ValueId made = convolve(n, image, inputs, weight, w.axis[0], pointwise);
      match_.replace(n, "Reshape", 5, {}, {made, ints({-1, to[1], to[2], to[3], to[4]})});
    } else {
      const Ints depth_first = {0, 2, 1, 3, 4};
      const ValueId turned = insert(n, "Transpose", 1, {inputs[0]}, {{"perm", depth_first}});
      const ValueId made = convolve(n, reshape(n, turned, {-1, from[1], from[3], from[4]}), inputs, weight, w.axis[1], w.axis[2]);
      const ValueId back = reshape(n, made, {-1, to[2], to[1], to[3], to[4]});
      match_.replace(n, "Transpose", 1, {{"perm", depth_first}}, {back});
    }
    edit_.node(n).epilogue = {};
  }

  ValueId insert(int n, const char* op, int since, std::vector<ValueId> inputs, std::vector<Attribute> attributes = {},
                 const Epilogue& epilogue = {}) {
    const std::string name = edit_.node(n).name + "/" + op;
    Node node = Matcher::made(op, "", since, name, edit_.node(n).region, std::move(attributes));
    node.model_op = edit_.node(n).op_type;
    node.epilogue = epilogue;
    node.inputs = std::move(inputs);
    const ValueId made = edit_.add_value(name + "/0", DType::kFloat32);
    node.outputs = {made};
    edit_.insert_node(n, std::move(node));
    return made;
  }

  ValueId reshape(int n, ValueId x, const Ints& shape) { return insert(n, "Reshape", 5, {x, ints(shape)}); }

  ValueId convolve(int n, ValueId image, const std::vector<ValueId>& inputs, const WeightPtr& weight, const WindowAxis& y,
                   const WindowAxis& x) {
    const Shape& shape = weight->desc.shape;
    void* bytes = nullptr;
    const WeightPtr flat = make_weight({DType::kFloat32, Shape{shape[0], shape[1], y.kernel, x.kernel}}, context_.ledger, &bytes);
    copy_block(bytes, weight->bytes(), static_cast<std::int64_t>(weight->desc.size_bytes()));
    std::vector<ValueId> operands = {image, edit_.add_constant(edit_.value(inputs[1]).name + "_flat", flat)};
    operands.insert(operands.end(), inputs.begin() + 2, inputs.end());
    const std::int64_t group = attr_int(edit_.node(n), ConvAttr::kGroup);
    return insert(n, "Conv", edit_.node(n).since_version, std::move(operands),
                  {{"kernel_shape", Ints{y.kernel, x.kernel}},
                   {"pads", Ints{y.pad_begin, x.pad_begin, y.pad_end, x.pad_end}},
                   {"strides", Ints{y.stride, x.stride}},
                   {"dilations", Ints{y.dilation, x.dilation}},
                   {"group", group}},
                  edit_.node(n).epilogue);
  }

  ValueId ints(const Ints& values) { return add_vector(edit_, context_, "shape", values); }

  GraphEditor edit_;
  Matcher match_;
  const PassContext& context_;
};

}  // namespace

bool flatten_conv(Graph& graph, const PassContext& context) { return Flattener(graph, context).run(); }

}  // namespace evn
