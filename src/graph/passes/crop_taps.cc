// Conv whose window is wider than the image: taps that read nothing but padding, wherever the window stands, leave the weight. Of a
// 3 x 3 window with a dilation of 24 over 16 x 16 pixels (atrous spatial pyramid pooling) one tap of nine is left.
#include <cmath>

#include "graph/edit.h"
#include "graph/passes/match.h"
#include "graph/passes/rewrites.h"
#include "ops/conv.h"

namespace evn {
namespace {

// The taps [first, end) of an axis that are kept.
struct Kept {
  std::int64_t first = 0, end = 1;
};

// Whether tap k of the window sees an element of the input at some output position.
bool is_seen(const WindowAxis& a, std::int64_t k) {
  const IndexRange range = indices_inside(k * a.dilation - a.pad_begin, a.stride, a.output, a.input);
  return range.low < range.high;
}

Kept kept_taps(const WindowAxis& a) {
  Kept kept{0, a.kernel};
  // Pads cannot be negative, so that no more is taken from either side than it has of them.
  while (kept.first + 1 < kept.end && !is_seen(a, kept.first) && a.pad_begin >= (kept.first + 1) * a.dilation) ++kept.first;
  while (kept.first + 1 < kept.end && !is_seen(a, kept.end - 1) && a.pad_end >= (a.kernel - kept.end + 1) * a.dilation) --kept.end;
  return kept;
}

bool is_known(const Window& window) {
  for (int i = 0; i < window.rank; ++i) {
    if (window.axis[i].input < 1 || window.axis[i].output < 1 || window.axis[i].kernel < 1) return false;
  }
  return true;
}

// What is taken away is finite: times 0 it is 0.
struct Cropped {
  std::shared_ptr<Weight> weight;
  bool is_exact = true;
};

Cropped crop(const Weight& from, const Window& window, const Kept (&kept)[kMaxSpatial], const PassContext& context) {
  Shape shape = from.desc.shape;
  for (int i = 0; i < window.rank; ++i) shape[2 + i] = kept[i].end - kept[i].first;
  Cropped result;
  void* bytes = nullptr;
  result.weight = make_weight({DType::kFloat32, shape}, context.ledger, &bytes);
  auto* to = static_cast<float*>(bytes);
  const auto* w = static_cast<const float*>(from.bytes());
  const WindowAxis* const a = window.axis;
  const std::int64_t filters = from.desc.shape[0] * from.desc.shape[1];
  const auto is_kept = [&](int axis, std::int64_t k) { return k >= kept[axis].first && k < kept[axis].end; };
  for (std::int64_t f = 0; f < filters; ++f) {
    for (std::int64_t k0 = 0; k0 < a[0].kernel; ++k0) {
      cancellation_point(a[1].kernel * a[2].kernel);
      for (std::int64_t k1 = 0; k1 < a[1].kernel; ++k1) {
        for (std::int64_t k2 = 0; k2 < a[2].kernel; ++k2, ++w) {
          if (is_kept(0, k0) && is_kept(1, k1) && is_kept(2, k2)) {
            *to++ = *w;
          } else {
            result.is_exact &= std::isfinite(*w);
          }
        }
      }
    }
  }
  return result;
}

}  // namespace

bool crop_taps(Graph& graph, const PassContext& context) {
  GraphEditor edit(graph);
  const Matcher match(edit);
  for (int n = 0; n < edit.node_count(); ++n) {
    check_deadline(context, static_cast<std::size_t>(n));
    const Node& node = edit.node(n);
    if (!match.is(n, "Conv") || node.inputs.size() < 2 || node.inputs[0] == kNoValue || node.inputs[1] == kNoValue) continue;
    const Value& x = edit.value(node.inputs[0]);
    const WeightPtr weight = edit.value(node.inputs[1]).constant;
    if (!x.has_shape || x.shape.rank() < 3 || weight == nullptr || weight->desc.dtype != DType::kFloat32) continue;
    if (weight->desc.shape.rank() != x.shape.rank() || weight->desc.shape.elements() == 0) continue;
    const Window window = conv_window(node, x.shape, weight->desc.shape);
    if (!is_known(window)) continue;
    Kept kept[kMaxSpatial];
    bool crops = false;
    for (int i = 0; i < window.rank; ++i) {
      kept[i] = kept_taps(window.axis[i]);
      crops |= kept[i].end - kept[i].first < window.axis[i].kernel;
    }
    if (!crops) continue;
    Cropped cropped = crop(*weight, window, kept, context);
    if (!cropped.is_exact) continue;
    std::vector<std::int64_t> kernel, begins, ends, strides, dilations;
    for (int i = 0; i < window.rank; ++i) {
      const WindowAxis& a = window.axis[i];
      kernel.push_back(kept[i].end - kept[i].first);
      begins.push_back(a.pad_begin - kept[i].first * a.dilation);
      ends.push_back(a.pad_end - (a.kernel - kept[i].end) * a.dilation);
      strides.push_back(a.stride);
      dilations.push_back(kernel.back() == 1 ? 1 : a.dilation);
    }
    begins.insert(begins.end(), ends.begin(), ends.end());
    const std::int64_t group = attr_int(node, ConvAttr::kGroup);
    const ValueId value = edit.add_constant(graph.values[node.inputs[1]].name + "_cropped", std::move(cropped.weight));
    if (!match.set_op(
            n, "Conv", node.since_version,
            {{"kernel_shape", kernel}, {"pads", begins}, {"strides", strides}, {"dilations", dilations}, {"group", group}})) {
      return edit.commit();
    }
    edit.set_input(n, 1, value);
  }
  return edit.commit();
}

}  // namespace evn
