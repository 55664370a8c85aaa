// Takes what follows a convolution or Gemm with constant weights, and is one multiplication and addition per output channel, into
// the weights and the bias: BatchNormalization, and Mul, Div, Add and Sub with a constant of one element or one per channel.
// The arithmetic is in double, rounded once. A node stays if a weight times its scale would leave the normal numbers of float32:
// the graph multiplies by the two one after the other.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "graph/edit.h"
#include "graph/passes/affine.h"
#include "graph/passes/match.h"
#include "graph/passes/rewrites.h"
#include "ops/batch_norm.h"
#include "ops/conv.h"
#include "ops/conv_transpose.h"
#include "ops/gemm.h"

namespace evn {

bool Affine::is_finite() const {
  const auto finite = [](double v) { return std::isfinite(static_cast<float>(v)); };
  return std::all_of(scale.begin(), scale.end(), finite) && std::all_of(shift.begin(), shift.end(), finite);
}

bool Affine::scales() const {
  return std::any_of(scale.begin(), scale.end(), [](double s) { return s != 1.0; });
}

namespace {

// Where a node's weight has the output channel: index = (i / inner) % size within block (i / (inner * size)) of the weight.
struct Layout {
  std::int64_t channels = 0;          // of the output
  std::int64_t inner = 1;             // elements between neighbours along the weight's channel axis
  std::int64_t size = 0;              // extent of that axis
  std::int64_t blocks_per_group = 0;  // ConvTranspose: input channels of a group; 0: one group
  int rank = 0;                       // of the output

  std::int64_t channel(std::int64_t i) const {
    const std::int64_t along = i / inner % size;
    return blocks_per_group == 0 ? along : i / (inner * size) / blocks_per_group * size + along;
  }
};

bool conv_transpose_layout(const Node& node, const Shape& w, Layout* out) {
  const std::int64_t group = attr_int(node, ConvTransposeAttr::kGroup);
  if (group < 1 || w[0] < group || w[0] % group != 0) return false;
  out->size = w[1];
  out->channels = w[1] * group;
  out->inner = w.elements(2, w.rank());
  out->blocks_per_group = w[0] / group;
  out->rank = w.rank();
  return true;
}

bool gemm_layout(const Node& node, const Shape& w, Layout* out) {
  if (w.rank() != 2 || attr_float(node, GemmAttr::kBeta) != 1.0f) return false;
  const bool transposed = attr_int(node, GemmAttr::kTransB) != 0;
  out->channels = transposed ? w[0] : w[1];
  out->size = out->channels;
  out->inner = transposed ? w[1] : 1;
  out->rank = 2;
  return true;
}

bool weight_layout(const Node& node, const Shape& w, Layout* out) {
  if (w.elements() == 0) return false;
  if (is_op(node, "Gemm")) return gemm_layout(node, w, out);
  if (w.rank() < 3) return false;
  if (is_op(node, "ConvTranspose")) return conv_transpose_layout(node, w, out);
  if (!is_op(node, "Conv")) return false;
  out->channels = w[0];
  out->size = w[0];
  out->inner = w.elements(1, w.rank());
  out->rank = w.rank();
  return true;
}

// A constant operand beside an output of `layout`, as one number per channel. In the plain broadcasting of ONNX the channel is axis
// 1 of rank `layout.rank`. False when it has another shape.
bool per_channel(const Graph& graph, ValueId v, const Layout& layout, std::vector<double>* out) {
  if (!float_constant(graph, v, out)) return false;
  const Shape& shape = graph.values[v].constant->desc.shape;
  if (shape.rank() > layout.rank) return false;
  const int channel_axis = shape.rank() - (layout.rank - 1);
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] != 1 && (i != channel_axis || shape[i] != layout.channels)) return false;
  }
  if (out->size() == 1) out->assign(static_cast<std::size_t>(layout.channels), out->front());
  return true;
}

}  // namespace

bool compose_batch_norm(const Graph& graph, const Node& node, std::int64_t channels, Affine* affine) {
  std::vector<double> scale, bias, mean, variance;
  if (node.inputs.size() != 5 || why_not_plain_batch_norm(node) != nullptr) return false;
  if (!float_constant(graph, node.inputs[BatchNormInput::kScale], &scale) ||
      !float_constant(graph, node.inputs[BatchNormInput::kBias], &bias) ||
      !float_constant(graph, node.inputs[BatchNormInput::kMean], &mean) ||
      !float_constant(graph, node.inputs[BatchNormInput::kVariance], &variance)) {
    return false;
  }
  const std::size_t n = static_cast<std::size_t>(channels);
  if (scale.size() != n || bias.size() != n || mean.size() != n || variance.size() != n) return false;
  const double epsilon = attr_float(node, BatchNormAttr::kEpsilon);
  for (std::size_t c = 0; c < n; ++c) {
    cancellation_point();
    const double factor = scale[c] / std::sqrt(variance[c] + epsilon);
    affine->scale[c] *= factor;
    affine->shift[c] = (affine->shift[c] - mean[c]) * factor + bias[c];
  }
  return true;
}

namespace {

bool compose_arithmetic(const Graph& graph, const Node& node, ValueId x, const Layout& layout, Affine* affine) {
  const bool mul = is_op(node, "Mul");
  const bool div = is_op(node, "Div");
  const bool add = is_op(node, "Add");
  const bool sub = is_op(node, "Sub");
  if ((!mul && !div && !add && !sub) || node.inputs.size() != 2 || node.inputs[0] == node.inputs[1]) return false;
  const int side = node.inputs[0] == x ? 0 : 1;
  std::vector<double> operand;
  if ((div && side != 0) || !per_channel(graph, node.inputs[1 - side], layout, &operand)) return false;
  for (std::size_t c = 0; c < operand.size(); ++c) {
    cancellation_point();
    double& scale = affine->scale[c];
    double& shift = affine->shift[c];
    if (mul) {
      scale *= operand[c];
      shift *= operand[c];
    } else if (div) {
      scale /= operand[c];
      shift /= operand[c];
    } else if (add) {
      shift += operand[c];
    } else if (side == 0) {
      shift -= operand[c];
    } else {
      scale = -scale;
      shift = operand[c] - shift;
    }
  }
  return true;
}

// Calls f(channel, v) for each weight, in their order.
template <typename F>
void for_each_weight(const Weight& w, const Layout& layout, F&& f) {
  const std::int64_t count = w.desc.shape.elements();
  const char* from = w.as<char>();
  for (std::int64_t i = 0; i < count; i += layout.inner) {
    cancellation_point();
    const auto channel = static_cast<std::size_t>(layout.channel(i));
    for (std::int64_t j = 0; j < layout.inner; ++j, from += sizeof(float)) {
      float v;
      std::memcpy(&v, from, sizeof v);
      f(channel, v);
    }
  }
}

// Smallest normal and largest finite magnitudes of the weights of each channel; 0: there is none. What one scale makes of these two
// shows what it makes of all.
class Magnitudes {
 public:
  Magnitudes(const Weight& w, const Layout& layout) : least_(static_cast<std::size_t>(layout.channels), 0.0f), most_(least_) {
    for_each_weight(w, layout, [&](std::size_t channel, float v) {
      const float magnitude = std::fabs(v);
      float& least = least_[channel];
      if (std::isnormal(magnitude) && (least == 0 || magnitude < least)) least = magnitude;
      if (std::isfinite(magnitude)) most_[channel] = std::max(most_[channel], magnitude);
    });
  }

  // Returns true if float32 has all products of the weights and the scales.
  bool take(const std::vector<double>& scales) const {
    for (std::size_t c = 0; c < scales.size(); ++c) {
      cancellation_point();
      for (const float v : {least_[c], most_[c]}) {
        if (scales[c] != 0 && is_lost(v, static_cast<float>(v * scales[c]))) return false;
      }
    }
    return true;
  }

 private:
  std::vector<float> least_, most_;
};

class BatchNormFolder {
 public:
  BatchNormFolder(Graph& graph, const PassContext& context) : edit_(graph), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (!edit_.removed(n)) fold(n);
    }
    return edit_.commit();
  }

 private:
  const Weight* weight(int n) {
    const Node& node = edit_.node(n);
    if (node.inputs.size() < 2 || node.inputs[1] == kNoValue || !node.epilogue.empty()) return nullptr;
    const Weight* w = edit_.value(node.inputs[1]).constant.get();
    return w != nullptr && w->desc.dtype == DType::kFloat32 ? w : nullptr;
  }

  // The node's own bias as the start of the chain.
  bool start(int n, const Layout& layout, Affine* affine) {
    affine->scale.assign(static_cast<std::size_t>(layout.channels), 1.0);
    const Node& node = edit_.node(n);
    if (node.inputs.size() < 3 || node.inputs[2] == kNoValue) {
      affine->shift.assign(static_cast<std::size_t>(layout.channels), 0.0);
      return true;
    }
    if (is_op(node, "Gemm")) return per_channel(edit_.graph(), node.inputs[2], layout, &affine->shift);
    return float_constant(edit_.graph(), node.inputs[2], &affine->shift) && affine->shift.size() == affine->scale.size();
  }

  void fold(int n) {
    const Weight* w = weight(n);
    Layout layout;
    Affine affine;
    if (w == nullptr || !weight_layout(edit_.node(n), w->desc.shape, &layout)) return;
    int follower = follower_of(n);
    if (follower < 0 || !start(n, layout, &affine)) return;
    bool any = false;
    std::optional<Magnitudes> magnitudes;
    for (; follower >= 0; follower = follower_of(n)) {
      check_deadline(context_);
      const ValueId y = edit_.node(n).outputs[0];
      const Node& node = edit_.node(follower);
      Affine longer = affine;
      const bool fits = is_op(node, "BatchNormalization")
                            ? y == node.inputs[0] && compose_batch_norm(edit_.graph(), node, layout.channels, &longer)
                            : compose_arithmetic(edit_.graph(), node, y, layout, &longer);
      if (!fits || !longer.is_finite()) break;
      if (longer.scales() && !magnitudes) magnitudes.emplace(*w, layout);
      if (longer.scales() && !magnitudes->take(longer.scale)) break;
      affine = std::move(longer);
      take(n, follower);
      any = true;
    }
    if (any) write(n, layout, affine);
  }

  // The node that alone reads node n, when n ends in no epilogue and only its first output is wanted.
  int follower_of(int n) {
    if (!edit_.node(n).epilogue.empty()) return -1;
    const int follower = edit_.only_consumer(edit_.node(n).outputs[0]);
    if (follower < 0) return -1;
    const std::vector<ValueId>& outputs = edit_.node(follower).outputs;
    const bool one = std::all_of(outputs.begin() + 1, outputs.end(), [&](ValueId v) { return v == kNoValue || edit_.is_dead(v); });
    return one && outputs[0] != kNoValue ? follower : -1;
  }

  void take(int n, int follower) {
    edit_.node(n).epilogue = edit_.node(follower).epilogue;
    const ValueId result = edit_.node(follower).outputs[0];
    Matcher(edit_).absorb(n, follower);
    edit_.set_output(n, 0, result);
  }

  void write(int n, const Layout& layout, const Affine& affine) {
    if (affine.scales()) write_weight(n, layout, affine);
    void* bytes = nullptr;
    std::shared_ptr<Weight> bias = make_weight({DType::kFloat32, Shape{layout.channels}}, context_.ledger, &bytes);
    std::transform(affine.shift.begin(), affine.shift.end(), static_cast<float*>(bytes),
                   [](double v) { return static_cast<float>(v); });
    edit_.set_input(n, 2, edit_.add_constant(edit_.node(n).name + "/bias", std::move(bias)));
  }

  void write_weight(int n, const Layout& layout, const Affine& affine) {
    const ValueId old = edit_.node(n).inputs[1];
    const WeightPtr w = edit_.value(old).constant;
    void* bytes = nullptr;
    std::shared_ptr<Weight> scaled = make_unfilled_weight(w->desc, context_.ledger, &bytes);
    float* out = static_cast<float*>(bytes);
    for_each_weight(*w, layout, [&](std::size_t channel, float v) { *out++ = static_cast<float>(v * affine.scale[channel]); });
    edit_.set_input(n, 1, edit_.add_constant(edit_.node(n).name + "/weight", std::move(scaled)));
  }

  GraphEditor edit_;
  const PassContext& context_;
};

}  // namespace

bool fold_batch_norm(Graph& graph, const PassContext& context) { return BatchNormFolder(graph, context).run(); }

}  // namespace evn
