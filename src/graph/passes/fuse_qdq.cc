// Float operators between DequantizeLinear and QuantizeLinear become operators on bytes:
//   Conv, with or without a bias             -> QLinearConv
//   MatMul, Gemm, MatMul and Add             -> QLinearMatMul, QGemm
//   the same without a QuantizeLinear behind -> MatMulIntegerToFloat
//   Add, Sub, Mul                            -> QLinearAdd, QLinearMul (Sub: the second scale is negative)
//   GlobalAveragePool, AveragePool           -> QLinearGlobalAveragePool, QLinearAveragePool
//   ReduceMean over all spatial axes         -> QLinearGlobalAveragePool, flattened where the axes do not stay
//   Concat                                   -> Concat of bytes, behind a table where an input has other numbers
// com.microsoft's QLinearConcat becomes the same.
// Relu and Clip in front of the QuantizeLinear are what saturation does, or a table behind the operator. A bias becomes int32 in
// steps of x scale * w scale. Products and convolutions whose int32 sums could overflow stay float32, as do products of two
// activations whose number of terms is unknown, unless the left one is a Softmax. What is not told here stays as it is: other
// types, scales that are not constant, are zero or no number.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "graph/passes/epilogue_ops.h"
#include "graph/passes/match.h"
#include "graph/passes/qdq_sums.h"
#include "graph/passes/quantization.h"
#include "graph/passes/rewrites.h"
#include "ops/byte_table.h"
#include "ops/gemm.h"
#include "ops/infra/round.h"
#include "ops/merge.h"
#include "ops/reduce.h"
#include "ops/softmax.h"

namespace evn {
namespace {

constexpr double kUnseen = 1.0 / 32;  // of a step of the result: as much may be cut off a bias

// Where the result goes: the node that becomes the operator, and what is behind it.
struct Target {
  int node = -1;  // the QuantizeLinear, or the Relu or Clip whose place the operator takes
  Quantization y;
  std::vector<int> spent;  // nodes that vanish into it
};

class Qdq {
 public:
  Qdq(Graph& graph, const PassContext& context) : edit_(graph), match_(edit_), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (edit_.removed(n)) continue;
      if (match_.is(n, "QuantizeLinear")) from_quantize(n);
      else if (node(n).op_type == "QLinearConcat" && node(n).domain == kContrib) from_qlinear_concat(n);
    }
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (!edit_.removed(n) && (match_.is(n, "MatMul") || match_.is(n, "Gemm"))) product_to_float(n);
    }
    return edit_.commit();
  }

 private:
  const Node& node(int n) const { return edit_.graph().nodes[static_cast<std::size_t>(n)]; }

  // -------------------------------------------------------------------------------------------- what is around --

  // The node in front that goes into a result alone, or -1.
  int before(ValueId v, int reader) const {
    const int n = edit_.producer(v);
    if (n < 0 || edit_.only_consumer(v) < 0 || node(n).region != node(reader).region || !match_.plain(n)) return -1;
    return n;
  }

  void from_quantize(int quantize) {
    Target t;
    t.node = quantize;
    if (!quantization_of(edit_, node(quantize), &t.y) || !t.y.single()) return;
    std::int32_t low = t.y.least(), high = t.y.most();
    int head = before(node(quantize).inputs[0], quantize);
    std::vector<int> bounds;
    for (float a = 0, b = 0; head >= 0 && bounds_of(head, &a, &b);) {
      if (!(a <= b)) return;
      // What is nearer to the QuantizeLinear comes later.
      low = std::clamp(t.y.step_of(a), low, high);
      high = std::clamp(t.y.step_of(b), low, high);
      bounds.push_back(head);
      head = before(node(head).inputs[0], head);
    }
    if (head < 0) return;
    const bool saturates = low == t.y.least() && high == t.y.most();
    if (!bounds.empty() && !saturates) {
      // The operator takes the place of the first bound, and a table that of the QuantizeLinear.
      t.node = bounds.back();
      bounds.pop_back();
    }
    t.spent = bounds;
    const ValueId bytes = edit_.node(t.node).outputs[0];  // also where other nodes are put in front of it
    if (!fuse(head, t) || saturates) return;
    edit_.value(bytes).dtype = t.y.dtype;
    become_table(edit_, context_, quantize, bytes, t.y.dtype, clamped(t.y, low, high));
  }

  bool bounds_of(int n, float* low, float* high) const {
    *low = 0;
    *high = std::numeric_limits<float>::infinity();
    return match_.is(n, "Relu") || clip_bounds(edit_.graph(), node(n), low, high);
  }

  bool fuse(int head, Target& t) {
    if (match_.is(head, "Conv")) return convolution(head, t);
    if (match_.is(head, "MatMul")) return matmul(head, t);
    if (match_.is(head, "Gemm")) return gemm(head, t);
    if (match_.is(head, "Mul")) return binary(head, t, "QLinearMul", false);
    if (match_.is(head, "Sub")) return binary(head, t, "QLinearAdd", true);
    if (match_.is(head, "Add")) return biased_matmul(head, t) || binary(head, t, "QLinearAdd", false);
    if (match_.is(head, "GlobalAveragePool")) return pool(head, t, "QLinearGlobalAveragePool", kMaxRank, {});
    if (match_.is(head, "AveragePool")) return pool(head, t, "QLinearAveragePool", 4, node(head).attributes);
    if (match_.is(head, "ReduceMean")) return spatial_mean(head, t);
    return match_.is(head, "Concat") && concat(head, t);
  }

  // The target becomes the operator, `head` and what lies between vanish into it. Its name is that of `head`.
  void become(int head, const Target& t, const char* op, const char* domain, int since, std::vector<Attribute> attributes,
              const std::vector<ValueId>& inputs) {
    EVN_CHECK(match_.set_op(t.node, op, since, std::move(attributes), domain));
    set_inputs(t.node, inputs);
    edit_.node(t.node).model_op = node(head).op_type;
    std::swap(edit_.node(t.node).name, edit_.node(head).name);
    for (const int n : t.spent) match_.absorb(t.node, n);
    match_.absorb(t.node, head);
  }

  // From the last on: what the node reads already must not be forgotten on the way to its new place.
  void set_inputs(int n, const std::vector<ValueId>& inputs) {
    for (std::size_t i = inputs.size(); i > 0; --i) edit_.set_input(n, static_cast<int>(i) - 1, inputs[i - 1]);
    edit_.shrink_inputs(n, static_cast<int>(inputs.size()));
  }

  ValueId y_zero(const Target& t) { return zero_point(edit_, context_, t.y); }

  // What operators of two operands read: each with its scale and zero point, and those of the result.
  std::vector<ValueId> operands(ValueId a, const Quantization& a_numbers, ValueId b, const Quantization& b_numbers,
                                const Target& t) {
    return {a,         a_numbers.scale, zero_point(edit_, context_, a_numbers),
            b,         b_numbers.scale, zero_point(edit_, context_, b_numbers),
            t.y.scale, y_zero(t)};
  }

  // ----------------------------------------------------------------------------------------------------- weights --

  // v as bytes that are known, one scale or one for each index of `axis`.
  bool weight_of(ValueId v, int axis, ByteWeight* w) const {
    const int n = dequantizer_of(edit_, v, &w->q);
    if (n < 0 || !w->q.is_byte()) return false;
    w->value = node(n).inputs[0];
    w->weight = edit_.value(w->value).constant;
    if (w->weight == nullptr) return false;
    const Shape& shape = w->weight->desc.shape;
    if (axis >= shape.rank()) return false;
    if (w->q.single()) return w->q.zeros.size() == 1;
    const int along = w->q.axis < 0 ? w->q.axis + shape.rank() : w->q.axis;
    return along == axis && static_cast<std::int64_t>(w->q.scales.size()) == shape[axis];
  }

  bool bias_of(ValueId v, std::int64_t columns, ByteBias* bias) const {
    Quantization q;
    const int n = dequantizer_of(edit_, v, &q);
    const Weight* w = edit_.value(n < 0 ? v : node(n).inputs[0]).constant.get();
    if (w == nullptr) return false;
    const Shape& shape = w->desc.shape;
    const std::int64_t count = shape.elements();
    if (shape.rank() > 0 && shape[shape.rank() - 1] != count) return false;
    if (count != columns && count != 1) return false;
    bias->one = count == 1;
    if (n < 0) return float_constant(edit_.graph(), v, &bias->numbers);
    if (q.dtype != DType::kInt32 || (!q.single() && static_cast<std::int64_t>(q.scales.size()) != count)) return false;
    if (std::any_of(q.zeros.begin(), q.zeros.end(), [](std::int32_t z) { return z != 0; })) return false;
    std::vector<std::uint64_t> copy;
    const auto* steps = static_cast<const std::int32_t*>(aligned_bytes(*w, copy));
    for (std::int64_t i = 0; i < count; ++i) {
      cancellation_point();
      const auto k = static_cast<std::size_t>(i);
      bias->whole.push_back(steps[i]);
      bias->scales.push_back(q.scales[q.single() ? 0 : k]);
      bias->numbers.push_back(static_cast<double>(static_cast<float>(steps[i] * static_cast<double>(bias->scales[k]))));
    }
    if (count == columns && shape.rank() == 1) bias->steps = node(n).inputs[0];
    return true;
  }

  // The bias, times `factor`, as int32 in steps of sums; false where too much would be lost. It is cut where sums could overflow
  // with it: weights that are next to nothing make steps so small that quantizers let their biases reach the ends of int32.
  bool whole_bias(const ByteBias& bias, double factor, const Quantization& x, const ByteWeight& w, int axis, const Quantization& y,
                  ValueId* v) {
    std::vector<std::int32_t> steps(static_cast<std::size_t>(w.weight->desc.shape[axis]));
    bool same = bias.steps != kNoValue && factor == 1, cut = false;
    std::vector<double> sums;
    const double any = any_sum(w, x, axis);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      cancellation_point();
      const double scale = sum_scale(x, w, i);
      // Scales of int32 biases are the product, rounded to float32.
      const bool fits = same && std::fabs(static_cast<double>(bias.scales[i]) - scale) <= 1e-6 * scale;
      double step = fits ? static_cast<double>(bias.whole[i]) : round_even(bias.at(i) * factor / scale);
      same &= fits;
      if (!(any + std::fabs(step) <= kMostSum)) {
        if (sums.empty()) sums = largest_sums(w, x, axis);
        const double most = kMostSum - sums[i], lost = std::fabs(step) - most;
        if (!(most >= 0) || !(lost * scale <= kUnseen * static_cast<double>(y.scales[0]))) return false;
        if (lost > 0) {
          step = std::copysign(std::floor(most), step);
          cut = true;
        }
      }
      steps[i] = static_cast<std::int32_t>(step);
    }
    if (!same && !is_fine(x, w, y)) return false;
    *v = same && !cut ? bias.steps : add_vector(edit_, context_, "bias", steps);
    return true;
  }

  // ------------------------------------------------------------------------------------------------ convolutions --

  bool convolution(int head, Target& t) {
    const std::vector<ValueId> in = node(head).inputs;
    Quantization x;
    ByteWeight w;
    const int dx = in.size() < 2 ? -1 : bytes_behind(edit_, in[0], &x);
    if (dx < 0 || !weight_of(in[1], 0, &w) || value_rank(edit_.value(in[0])) < 3) return false;
    if (!sums_fit(w, x, 0)) return false;
    ValueId steps = kNoValue;
    if (in.size() > 2 && in[2] != kNoValue) {
      ByteBias bias;
      if (!bias_of(in[2], w.weight->desc.shape[0], &bias) || bias.one != (w.weight->desc.shape[0] == 1)) return false;
      if (!whole_bias(bias, 1, x, w, 0, t.y, &steps)) return false;
    }
    std::vector<ValueId> inputs = operands(node(dx).inputs[0], x, w.value, w.q, t);
    if (steps != kNoValue) inputs.push_back(steps);
    become(head, t, "QLinearConv", "", 10, node(head).attributes, inputs);
    return true;
  }

  // ---------------------------------------------------------------------------------------------------- products --

  struct Product {
    int dequantize = -1;
    Quantization a;
    ByteWeight b;
    int axis = 1;  // of B that has the columns
    ValueId bias = kNoValue;
    double beta = 1;
    bool transposed = false;
  };

  bool product_of(int head, Product* p) const {
    const std::vector<ValueId>& in = node(head).inputs;
    if (in.size() < 2 || in[0] == kNoValue || in[1] == kNoValue) return false;
    if (match_.is(head, "Gemm")) {
      const Node& g = node(head);
      if (attr_float(g, GemmAttr::kAlpha) != 1 || attr_int(g, GemmAttr::kTransA) != 0) return false;
      p->transposed = attr_int(g, GemmAttr::kTransB) != 0;
      p->beta = static_cast<double>(attr_float(g, GemmAttr::kBeta));
      if (in.size() > 2) p->bias = in[2];
    }
    p->axis = p->transposed ? 0 : 1;
    p->dequantize = bytes_behind(edit_, in[0], &p->a);
    if (p->dequantize < 0 || value_rank(edit_.value(in[0])) < 1 || !weight_of(in[1], p->axis, &p->b)) return false;
    const Shape& shape = p->b.weight->desc.shape;
    return shape.rank() == 2 && shape.elements() > 0 && sums_fit(p->b, p->a, p->axis);
  }

  // Fills in the product of two activations, or of constants that are several matrices; b.weight is null.
  bool activations_of(int head, Product* p) const {
    const std::vector<ValueId>& in = node(head).inputs;
    if (!match_.is(head, "MatMul") || in[0] == kNoValue || in[1] == kNoValue) return false;
    *p = Product{};
    const int b = operand(in[1], &p->b.q);
    p->dequantize = operand(in[0], &p->a);
    if (b < 0 || p->dequantize < 0 || value_rank(edit_.value(in[0])) < 1 || value_rank(edit_.value(in[1])) < 2) return false;
    p->b.value = node(b).inputs[0];
    const Shape& left = edit_.value(in[0]).shape;
    const Shape& right = edit_.value(in[1]).shape;
    const std::int64_t depth = std::max(left[left.rank() - 1], right[right.rank() - 2]);
    const bool fits =
        is_softmax(node(p->dequantize).inputs[0]) ? softmax_sums_fit(depth, p->a, p->b.q) : sums_fit(depth, p->a, p->b.q);
    return fits && (edit_.value(node(p->dequantize).inputs[0]).constant == nullptr || edit_.value(p->b.value).constant == nullptr);
  }

  // Returns true for the bytes of a Softmax along the last axis, as attention weights are.
  bool is_softmax(ValueId bytes) const {
    const int quantize = edit_.producer(bytes);
    if (quantize < 0 || !match_.is(quantize, "QuantizeLinear")) return false;
    const ValueId y = node(quantize).inputs[0];
    const int softmax = edit_.producer(y);
    if (softmax < 0 || !match_.is(softmax, "Softmax") || node(softmax).since_version < 13) return false;
    const std::int64_t axis = attr_int(node(softmax), SoftmaxAttr::kAxis);
    return axis == -1 || axis + 1 == value_rank(edit_.value(y));
  }

  bool matmul(int head, Target& t) {
    Product p;
    if (!product_of(head, &p) && !activations_of(head, &p)) return false;
    become(head, t, "QLinearMatMul", "", 10, {}, operands(node(p.dequantize).inputs[0], p.a, p.b.value, p.b.q, t));
    return true;
  }

  bool gemm(int head, Target& t) {
    Product p;
    return product_of(head, &p) && quantized_gemm(head, t, p);
  }

  bool quantized_gemm(int head, Target& t, const Product& p) {
    ValueId steps = kNoValue;
    if (p.bias != kNoValue) {
      ByteBias bias;
      if (!bias_of(p.bias, p.b.weight->desc.shape[p.axis], &bias)) return false;
      if (!whole_bias(bias, p.beta, p.a, p.b, p.axis, t.y, &steps)) return false;
    }
    std::vector<ValueId> inputs = operands(node(p.dequantize).inputs[0], p.a, p.b.value, p.b.q, t);
    inputs.insert(inputs.begin() + 6, steps);
    become(head, t, "QGemm", kContrib, 1, {{"transB", std::int64_t{p.transposed}}}, inputs);
    return true;
  }

  // Add of a product of two matrices and a bias of no more axes.
  bool biased_matmul(int head, Target& t) {
    for (std::size_t side = 0; side < 2 && node(head).inputs.size() == 2; ++side) {
      cancellation_point();
      const int m = before(node(head).inputs[side], head);
      Product p;
      if (!match_.is(m, "MatMul") || value_rank(edit_.value(node(m).inputs[0])) != 2 || !product_of(m, &p)) continue;
      p.bias = node(head).inputs[1 - side];
      if (p.bias == kNoValue || value_rank(edit_.value(p.bias)) > 2) continue;
      Target with = t;
      with.spent.push_back(head);
      if (quantized_gemm(m, with, p)) return true;
    }
    return false;
  }

  // Without a QuantizeLinear behind; a bias stays float32.
  void product_to_float(int head) {
    Product p;
    if (!match_.plain(head) || (!product_of(head, &p) && !activations_of(head, &p))) return;
    const bool is_constant = p.b.weight != nullptr;
    const std::int64_t columns = is_constant ? p.b.weight->desc.shape[p.axis] : 0;
    int last = head;
    ByteBias bias;
    if (!is_constant) {
      // no bias
    } else if (p.bias != kNoValue) {
      if (!bias_of(p.bias, columns, &bias)) return;
    } else if (const int add = match_.next(head); add >= 0 && match_.is(add, "Add") && match_.plain(add)) {
      const ValueId other = match_.beside(add, match_.out(head));
      const bool flat = other != kNoValue && value_rank(edit_.value(other)) <= 1;
      if (flat && node(add).region == node(head).region && bias_of(other, columns, &bias)) last = add;
    }
    std::vector<ValueId> inputs = {
        node(p.dequantize).inputs[0],     p.transposed ? transposed(p.b) : p.b.value, p.a.scale, p.b.q.scale,
        zero_point(edit_, context_, p.a), zero_point(edit_, context_, p.b.q)};
    if (!bias.numbers.empty()) {
      std::vector<float> numbers(static_cast<std::size_t>(columns));
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        cancellation_point();
        numbers[i] = static_cast<float>(bias.at(i) * p.beta);
      }
      inputs.push_back(add_vector(edit_, context_, "bias", numbers));
    }
    Target t;
    t.node = last;
    if (last == head) {
      edit_.node(head).model_op = node(head).op_type;
      EVN_CHECK(match_.set_op(head, "MatMulIntegerToFloat", 1, {}, kContrib));
      set_inputs(head, inputs);
      return;
    }
    become(head, t, "MatMulIntegerToFloat", kContrib, 1, {}, inputs);
  }

  ValueId transposed(const ByteWeight& w) {
    return edit_.add_constant(edit_.value(w.value).name + "/transposed", transposed_bytes(*w.weight, context_.ledger));
  }

  // ------------------------------------------------------------------------------------------------------ others --

  // Bytes behind an operand, of which one may be constant.
  int operand(ValueId v, Quantization* q) const {
    const int n = dequantizer_of(edit_, v, q);
    return n >= 0 && q->single() && q->is_byte() ? n : -1;
  }

  bool binary(int head, Target& t, const char* op, bool negate) {
    const std::vector<ValueId> in = node(head).inputs;
    Quantization a, b;
    const int da = operand(in[0], &a), db = operand(in[1], &b);
    if (da < 0 || db < 0 || a.dtype != t.y.dtype || b.dtype != t.y.dtype) return false;
    if (negate) b.scale = add_vector<float>(edit_, context_, "negative_scale", {-b.scales[0]});
    become(head, t, op, kContrib, 1, {}, operands(node(da).inputs[0], a, node(db).inputs[0], b, t));
    return true;
  }

  bool pool(int head, Target& t, const char* op, int most_rank, std::vector<Attribute> attributes) {
    Quantization x;
    const int dx = bytes_behind(edit_, node(head).inputs[0], &x), rank = value_rank(edit_.value(node(head).inputs[0]));
    if (dx < 0 || x.dtype != t.y.dtype || rank < 3 || rank > most_rank) return false;
    become(head, t, op, kContrib, 1, std::move(attributes),
           {node(dx).inputs[0], x.scale, zero_point(edit_, context_, x), t.y.scale, y_zero(t)});
    return true;
  }

  bool spatial_mean(int head, Target& t) {
    const Node& mean = node(head);
    const int rank = value_rank(edit_.value(mean.inputs[0]));
    std::vector<std::int64_t> axes;
    const bool has_axes = reduce_axes_is_input(mean) && mean.inputs.size() > 1 && mean.inputs[1] != kNoValue;
    if (rank < 3 || (has_axes && !int_constant(edit_.graph(), mean.inputs[1], &axes))) return false;
    if (reduce_axes(mean, rank, axes) != (1u << rank) - 4u) return false;
    const bool keeps = attr_int(mean, ReduceAttr::kKeepDims) != 0;
    if (!keeps && t.node == head) return false;
    if (!pool(head, t, "QLinearGlobalAveragePool", kMaxRank, {})) return false;
    if (!keeps) flatten(t.node);
    return true;
  }

  // A Flatten behind node n, of whose result only the first two axes are wanted, takes its output.
  void flatten(int n) {
    const ValueId y = node(n).outputs[0];
    Node flat = Matcher::made("Flatten", "", 13, node(n).name + "/flattened", node(n).region, {{"axis", std::int64_t{1}}});
    flat.inputs = {edit_.add_value(node(n).name + "/mean", edit_.value(y).dtype)};
    flat.outputs = {y};
    edit_.set_output(n, 0, flat.inputs[0]);
    edit_.insert_node(n + 1, std::move(flat));
  }

  void from_qlinear_concat(int n) {
    const std::vector<ValueId> in = node(n).inputs;
    Quantization y;
    const DType dtype = edit_.value(node(n).outputs[0]).dtype;
    if (in.size() < 5 || !numbers_of(edit_, in[0], in[1], dtype, &y) || !y.single()) return;
    std::vector<ValueId> inputs;
    std::vector<ByteValues> tables;
    for (std::size_t i = 2; i + 2 < in.size(); i += 3) {
      cancellation_point();
      Quantization x;
      if (in[i] == kNoValue || edit_.value(in[i]).constant != nullptr) return;
      if (!numbers_of(edit_, in[i + 1], in[i + 2], dtype, &x) || !x.single()) return;
      inputs.push_back(in[i]);
      tables.push_back(requantized_wide(x, y));
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      cancellation_point();
      if (!is_identity(tables[i])) inputs[i] = table_before(n, inputs[i], dtype, tables[i], node(n).name + "/" + std::to_string(i));
    }
    edit_.node(n).model_op = node(n).op_type;
    EVN_CHECK(match_.set_op(n, "Concat", 13, node(n).attributes));
    set_inputs(n, inputs);
  }

  bool concat(int head, Target& t) {
    std::vector<ValueId> inputs;
    std::vector<ByteValues> tables;
    std::vector<bool> same;
    for (const ValueId v : node(head).inputs) {
      Quantization x;
      const int dx = v == kNoValue ? -1 : operand(v, &x);
      if (dx < 0) return false;
      inputs.push_back(node(dx).inputs[0]);
      tables.push_back(requantized(x, t.y));
      same.push_back(x.dtype == t.y.dtype && is_identity(tables.back()));
    }
    const int since = node(head).op->since;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      cancellation_point();
      if (!same[i]) inputs[i] = table_before(t.node, inputs[i], t.y.dtype, tables[i], node(head).name + "/" + std::to_string(i));
    }
    become(head, t, "Concat", "", since, node(head).attributes, inputs);
    return true;
  }

  // A new ByteTable of x in front of node n.
  ValueId table_before(int n, ValueId x, DType dtype, const ByteValues& values, const std::string& name) {
    Node table = Matcher::made(kByteTable, kInternalDomain, 1, name, node(n).region);
    table.inputs = {x, byte_table(edit_, context_, dtype, values)};
    table.outputs = {edit_.add_value(name, dtype)};
    const ValueId y = table.outputs[0];
    edit_.insert_node(n, std::move(table));
    return y;
  }

  GraphEditor edit_;
  Matcher match_;
  const PassContext& context_;
};

}  // namespace

bool fuse_qdq(Graph& graph, const PassContext& context) { return Qdq(graph, context).run(); }

}  // namespace evn
