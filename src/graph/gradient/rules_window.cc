// Convolutions and pools.
#include "graph/gradient/rules.h"
#include "ops/gradient.h"
#include "ops/merge.h"

namespace evn {
namespace {

Tape::Attributes conv_attributes(const Backward& b) {
  return b.copied({"auto_pad", "kernel_shape", "pads", "strides", "dilations", "group"});
}

// The gradient of a bias per channel (axis 1) of dy, which has as many axes as inputs 0 and 1.
ValueId channel_sums(Backward& b) {
  const int rank = std::max({b.tape.rank(b.x(0)), b.tape.rank(b.x(1)), b.tape.rank(b.dy())});
  if (rank < 2) b.refuse("the rank of its input is not known");
  Tape::Ints axes = {0};
  for (int i = 2; i < rank; ++i) axes.push_back(i);
  return b.tape.op("ReduceSum", {b.dy(), b.tape.ints(axes)}, {{"keepdims", std::int64_t{0}, {}}});
}

void conv(Backward& b) {
  Tape& t = b.tape;
  if (b.wants(0)) b.give(0, t.own(kConvInputGradient, {b.x(0), b.x(1), b.dy()}, conv_attributes(b)));
  if (b.wants(1)) b.give(1, t.own(kConvWeightGradient, {b.x(1), b.x(0), b.dy()}, conv_attributes(b)));
  if (b.wants(2)) b.give(2, channel_sums(b));
}

// Its input is to its result what the result of a Conv with the same weights is to that one's input.
void conv_transpose(Backward& b) {
  Tape& t = b.tape;
  const std::string* auto_pad = b.text("auto_pad");
  if ((auto_pad != nullptr && *auto_pad != "NOTSET") || b.list("output_shape") != nullptr) b.refuse("its pads depend on shapes");
  const std::vector<std::int64_t>*padding = b.list("output_padding"), *strides = b.list("strides");
  for (std::size_t i = 0; padding != nullptr && i < padding->size(); ++i) {
    if ((*padding)[i] >= (strides == nullptr || i >= strides->size() ? 1 : (*strides)[i]) && (*padding)[i] != 0) {
      b.refuse("its output_padding is not below its strides");
    }
  }
  if (b.wants(0)) b.give(0, t.op("Conv", {b.dy(), b.x(1)}, conv_attributes(b)));
  if (b.wants(1)) b.give(1, t.own(kConvWeightGradient, {b.x(1), b.dy(), b.x(0)}, conv_attributes(b)));
  if (b.wants(2)) b.give(2, channel_sums(b));
}

// The rule of ConvInputGradient, whose inputs are x (its shape), w, g: linear in w and g.
void conv_input_gradient(Backward& b) {
  Tape& t = b.tape;
  if (b.wants(1)) b.give(1, t.own(kConvWeightGradient, {b.x(1), b.dy(), b.x(2)}, conv_attributes(b)));
  if (b.wants(2)) b.give(2, t.op("Conv", {b.dy(), b.x(1)}, conv_attributes(b)));
}

// The rule of ConvWeightGradient, whose inputs are w (its shape), x, g.
void conv_weight_gradient(Backward& b) {
  Tape& t = b.tape;
  if (b.wants(1)) b.give(1, t.own(kConvInputGradient, {b.x(1), b.dy(), b.x(2)}, conv_attributes(b)));
  if (b.wants(2)) b.give(2, t.op("Conv", {b.x(1), b.dy()}, conv_attributes(b)));
}

Tape::Attributes pool_attributes(const Backward& b) {
  return b.copied({"auto_pad", "kernel_shape", "pads", "strides", "ceil_mode", "dilations", "count_include_pad"});
}

void max_pool(Backward& b) { b.give(0, b.tape.own(kMaxPoolGradient, {b.x(), b.dy()}, pool_attributes(b))); }
void average_pool(Backward& b) { b.give(0, b.tape.own(kAveragePoolGradient, {b.x(), b.dy()}, pool_attributes(b))); }

// Each window takes what stands where its maximum was.
void max_pool_gradient(Backward& b) {
  if (!b.wants(1)) return;
  Tape& t = b.tape;
  const ValueId places = t.ops("MaxPool", {b.x()}, pool_attributes(b), 2)[1];
  const ValueId taken = t.op("Gather", {t.op("Reshape", {b.dy(), t.ints({-1})}), places});
  const ValueId somewhere = t.op("GreaterOrEqual", {places, t.ints({0})});
  b.give(1, t.where_else_0(somewhere, taken));
}

void average_pool_gradient(Backward& b) {
  if (b.wants(1)) b.give(1, b.tape.op("AveragePool", {b.dy()}, pool_attributes(b)));
}

// dy has one element for each plane.
void global_average_pool(Backward& b) {
  Tape& t = b.tape;
  std::int64_t plane = t.rank(b.x()) > 2 ? 1 : -1;
  for (int i = 2; i < t.rank(b.x()); ++i) plane = dim_product(plane, t.shape(b.x())[i]);
  if (plane > 0) return b.give(0, t.repeat_to(b.x(), t.mul(b.dy(), 1.0 / static_cast<double>(plane))));
  const ValueId ones = t.filled(1, b.x());
  b.give(0, t.repeat_to(b.x(), t.div(b.dy(), t.sum_to(b.y(), ones))));
}

// The first of several maxima of a plane takes dy, as with MaxPool.
void global_max_pool(Backward& b) {
  Tape& t = b.tape;
  const Tape::Attributes planes = {{"axis", std::int64_t{2}, {}}}, along = {{"axis", std::int64_t{1}, {}}};
  const ValueId x = t.op("Flatten", {b.x()}, planes), dy = t.op("Flatten", {b.dy()}, planes);
  const ValueId place = t.op("ArgMax", {x}, along);
  b.give(0, t.reshape_to(b.x(), t.op("ScatterElements", {t.filled(0, x), place, dy}, along)));
}

// The attributes of Resize, for one that adds nothing where it has nothing to sample.
Tape::Attributes resize_attributes(const Backward& b) {
  return b.copied({"mode", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "nearest_mode", "antialias",
                   "axes", "keep_aspect_ratio_policy"});
}

void resize(Backward& b) {
  if (b.node.op->since < 11) b.refuse("before version 11 it has no rule");
  for (std::size_t i = 1; i < 4; ++i) {
    if (b.wants(i)) b.refuse("by its roi and scales it has no rule");
  }
  b.give(0, b.tape.own(kResizeGradient, {b.x(), b.x(1), b.x(2), b.x(3), b.dy()}, resize_attributes(b)));
}

// The rule of ResizeGradient, whose inputs are x (its shape), roi, scales, sizes, g: linear in g.
void resize_gradient(Backward& b) {
  if (b.wants(4)) b.give(4, b.tape.op("Resize", {b.dy(), b.x(1), b.x(2), b.x(3)}, resize_attributes(b)));
}

constexpr GradientRule kRows[] = {
    {"Conv", conv},
    {"ConvTranspose", conv_transpose},
    {"MaxPool", max_pool},
    {"AveragePool", average_pool},
    {"GlobalAveragePool", global_average_pool},
    {"GlobalMaxPool", global_max_pool},
    {"Resize", resize},
    {kConvInputGradient, conv_input_gradient, 1, kInternalDomain},
    {kConvWeightGradient, conv_weight_gradient, 1, kInternalDomain},
    {kMaxPoolGradient, max_pool_gradient, 1, kInternalDomain},
    {kAveragePoolGradient, average_pool_gradient, 1, kInternalDomain},
    {kResizeGradient, resize_gradient, 1, kInternalDomain},
};

}  // namespace

extern const GradientRules kWindowGradients = kRows;

}  // namespace evn
