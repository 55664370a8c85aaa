// The sum or difference of two convolutions of one value with the same steps becomes one convolution, whose weight is the sum of
// theirs: the smaller window lies within the larger one. A BatchNormalization of that value is a convolution of one tap, and so is
// the value itself beside a depthwise convolution. Networks that are exported with the branches of their training (RepVGG,
// MobileOne, RepViT, FastViT, GhostNet v3) have many of them. Convolutions stay two if float32 does not have the sum of two
// weights.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "graph/edit.h"
#include "graph/passes/affine.h"
#include "graph/passes/match.h"
#include "graph/passes/rewrites.h"
#include "ops/conv.h"

namespace evn {
namespace {

class Merger {
 public:
  Merger(Graph& graph, const PassContext& context) : edit_(graph), match_(edit_), context_(context) {}

  bool run() {
    for (int n = 0; n < edit_.node_count(); ++n) {
      check_deadline(context_, static_cast<std::size_t>(n));
      if (edit_.removed(n) || !(match_.is(n, "Add") || match_.is(n, "Sub")) || edit_.node(n).inputs.size() != 2) continue;
      if (edit_.node(n).outputs.size() == 1 && !merge(n, 0)) merge(n, 1);
    }
    return edit_.commit();
  }

 private:
  // A convolution that may be merged: float32, a constant weight, explicit pads.
  struct Conv {
    int node = -1;
    WeightPtr weight;
    Window window;
    std::int64_t groups = 0;
    std::vector<double> bias;
  };

  // The operand `side` of node n is the convolution that stays.
  bool merge(int n, int side) {
    const Node& sum = edit_.node(n);
    const ValueId other = sum.inputs[static_cast<std::size_t>(1 - side)];
    Conv a, b;
    if (!conv_of(sum.inputs[static_cast<std::size_t>(side)], sum.region, &a)) return false;
    const double a_sign = match_.is(n, "Sub") && side == 1 ? -1 : 1, b_sign = match_.is(n, "Sub") && side == 0 ? -1 : 1;
    if (conv_of(other, sum.region, &b)) {
      std::int64_t at[kMaxSpatial];
      if (edit_.node(a.node).inputs[0] != edit_.node(b.node).inputs[0] || !lies_within(a, b, at)) return false;
      if (!write(n, &a, a_sign, b.bias, b_sign, [&](float* sums) { add_weight(a, *b.weight, b.window, at, b_sign, sums); }))
        return false;
      match_.absorb(a.node, b.node);
    } else {
      Affine affine;
      const int norm = match_.maker(other, "BatchNormalization", 1);
      if (!affine_of(a, other, norm, sum.region, &affine)) return false;
      if (!write(n, &a, a_sign, affine.shift, b_sign, [&](float* sums) { add_diagonal(a, affine.scale, b_sign, sums); }))
        return false;
      if (norm >= 0) match_.absorb(a.node, norm);
    }
    edit_.node(a.node).epilogue = edit_.node(n).epilogue;
    const ValueId result = edit_.node(n).outputs[0];
    match_.absorb(a.node, n);
    edit_.set_output(a.node, 0, result);
    return true;
  }

  bool conv_of(ValueId v, std::int32_t region, Conv* out) {
    out->node = match_.maker(v, "Conv", 1);
    if (out->node < 0) return false;
    const Node& node = edit_.node(out->node);
    if (node.region != region || node.inputs.size() < 2 || attr_string(node, ConvAttr::kAutoPad) != "NOTSET") return false;
    if (node.inputs[0] == kNoValue || node.inputs[1] == kNoValue) return false;
    out->weight = edit_.value(node.inputs[1]).constant;
    if (out->weight == nullptr || out->weight->desc.dtype != DType::kFloat32) return false;
    const Shape& w = out->weight->desc.shape;
    if (w.rank() < 3 || w.rank() > 2 + kMaxSpatial || w.elements() == 0) return false;
    Shape x = w;
    for (int i = 2; i < x.rank(); ++i) x[i] = -1;
    out->window = conv_window(node, x, w);
    out->groups = attr_int(node, ConvAttr::kGroup);
    out->bias.assign(static_cast<std::size_t>(w[0]), 0.0);
    const ValueId bias = node.inputs.size() > 2 ? node.inputs[2] : kNoValue;
    return bias == kNoValue ||
           (float_constant(edit_.graph(), bias, &out->bias) && static_cast<std::int64_t>(out->bias.size()) == w[0]);
  }

  // Whether b's taps are some of a's, and which is the first.
  static bool lies_within(const Conv& a, const Conv& b, std::int64_t (&at)[kMaxSpatial]) {
    const Shape& w = a.weight->desc.shape;
    const Shape& v = b.weight->desc.shape;
    if (w.rank() != v.rank() || w[0] != v[0] || w[1] != v[1] || a.groups != b.groups) return false;
    for (int i = 0; i < a.window.rank; ++i) {
      const WindowAxis& p = a.window.axis[i];
      const WindowAxis& q = b.window.axis[i];
      if (p.stride != q.stride || (p.dilation != q.dilation && q.kernel > 1)) return false;
      if (!place(p, q.kernel, q.pad_begin, q.pad_end, &at[i])) return false;
    }
    return true;
  }

  // Where a window of `kernel` taps with these pads begins in a larger one.
  static bool place(const WindowAxis& p, std::int64_t kernel, std::int64_t pad_begin, std::int64_t pad_end, std::int64_t* at) {
    const std::int64_t before = p.pad_begin - pad_begin;
    *at = before / p.dilation;
    return before >= 0 && before % p.dilation == 0 && kernel <= p.kernel - *at &&
           p.pad_end - pad_end == (p.kernel - kernel - *at) * p.dilation;
  }

  // Whether the operand beside a is its input, or that after a BatchNormalization, and adds to one tap of each channel.
  bool affine_of(const Conv& a, ValueId other, int norm, std::int32_t region, Affine* out) {
    const ValueId x = edit_.node(a.node).inputs[0];
    const Shape& w = a.weight->desc.shape;
    if (w[0] != w[1] * a.groups) return false;
    for (int i = 0; i < a.window.rank; ++i) {
      std::int64_t at;
      if (a.window.axis[i].stride != 1 || !place(a.window.axis[i], 1, 0, 0, &at)) return false;
    }
    out->scale.assign(static_cast<std::size_t>(w[0]), 1.0);
    out->shift.assign(static_cast<std::size_t>(w[0]), 0.0);
    if (norm < 0) return other == x && w[1] == 1;  // a sum with the input of another convolution is made where that stores
    const Node& node = edit_.node(norm);
    if (node.inputs[0] != x || node.region != region || !compose_batch_norm(edit_.graph(), node, w[0], out)) return false;
    const auto lost = [](double scale) { return scale != 0 && is_lost(1, static_cast<float>(scale)); };
    return out->is_finite() && std::none_of(out->scale.begin(), out->scale.end(), lost);
  }

  static void add_weight(const Conv& a, const Weight& weight, const Window& window, const std::int64_t (&at)[kMaxSpatial],
                         double sign, float* sums) {
    const WindowAxis* p = a.window.axis;
    const std::int64_t channels = weight.desc.shape[0] * weight.desc.shape[1];
    const char* from = weight.as<char>();
    for (std::int64_t c = 0; c < channels; ++c, sums += a.window.kernel_elements()) {
      for (std::int64_t i = 0; i < window.kernel_elements(); ++i, from += sizeof(float)) {
        cancellation_point();
        std::int64_t tap = 0, rest = i, step = 1, places[kMaxSpatial];
        for (int axis = window.rank - 1; axis >= 0; --axis) {
          places[axis] = rest % window.axis[axis].kernel + at[axis];
          rest /= window.axis[axis].kernel;
          tap += places[axis] * step;
          step *= p[axis].kernel;
        }
        float v;
        std::memcpy(&v, from, sizeof v);
        sums[tap] += static_cast<float>(sign) * v;
      }
    }
  }

  static void add_diagonal(const Conv& a, const std::vector<double>& scale, double sign, float* sums) {
    const Shape& w = a.weight->desc.shape;
    std::int64_t tap = 0;
    for (int i = 0; i < a.window.rank; ++i) {
      const WindowAxis& axis = a.window.axis[i];
      tap = tap * axis.kernel + axis.pad_begin / axis.dilation;
    }
    for (std::int64_t c = 0; c < w[0]; ++c) {
      cancellation_point();
      float& sum = sums[(c * w[1] + c % w[1]) * a.window.kernel_elements() + tap];
      sum = static_cast<float>(sum + sign * scale[static_cast<std::size_t>(c)]);
    }
  }

  // Gives a convolution the sum of its weight and bias with others, for node n. False, with nothing changed, if a sum is infinite
  // or subnormal.
  template <typename F>
  bool write(int n, const Conv* a, double sign, const std::vector<double>& bias, double bias_sign, F add) {
    void* bytes = nullptr;
    std::shared_ptr<Weight> weight = make_unfilled_weight(a->weight->desc, context_.ledger, &bytes);
    auto* const sums = static_cast<float*>(bytes);
    const std::int64_t count = a->weight->desc.shape.elements();
    std::memcpy(sums, a->weight->bytes(), static_cast<std::size_t>(count) * sizeof(float));
    for (std::int64_t i = 0; sign < 0 && i < count; ++i) {
      cancellation_point();
      sums[i] = -sums[i];
    }
    add(sums);
    const char* from = a->weight->as<char>();
    for (std::int64_t i = 0; i < count; ++i, from += sizeof(float)) {
      cancellation_point();
      float v;
      std::memcpy(&v, from, sizeof v);
      if (sums[i] != static_cast<float>(sign) * v && sums[i] != 0 && !std::isnormal(sums[i])) return false;
    }
    std::shared_ptr<Weight> bias_weight =
        make_weight({DType::kFloat32, Shape{static_cast<std::int64_t>(bias.size())}}, context_.ledger, &bytes);
    for (std::size_t i = 0; i < bias.size(); ++i) {
      cancellation_point();
      const auto sum = static_cast<float>(sign * a->bias[i] + bias_sign * bias[i]);
      if (!std::isfinite(sum)) return false;
      static_cast<float*>(bytes)[i] = sum;
    }
    set_constant(n, a->node, 1, "/weight", std::move(weight));
    set_constant(n, a->node, 2, "/bias", std::move(bias_weight));
    return true;
  }

  void set_constant(int n, int conv, int input, const char* name, std::shared_ptr<Weight> made) {
    edit_.set_input(conv, input, edit_.add_constant(edit_.node(n).name + name, std::move(made)));
  }

  GraphEditor edit_;
  Matcher match_;
  const PassContext& context_;
};

}  // namespace

bool merge_convolutions(Graph& graph, const PassContext& context) { return Merger(graph, context).run(); }

}  // namespace evn
