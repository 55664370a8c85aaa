// What graph/gradient puts into graphs (ops/gradient.h).
#include "tests/conformance/case.h"

namespace evn::conformance {
namespace {

void add_sums(Cases* all) {
  for (const DType d : {kF32, kF64}) {
    all->push_back(Case("evener::SumTo", 1).in(d, {3, 1}).in(d, {2, 3, 4}));
    all->push_back(Case("evener::RepeatTo", 1).in(d, {2, 3, 4}).in(d, {3, 1}));
  }
  all->push_back(Case("evener::SumTo", 1).x({}).x({2, 3}));
  all->push_back(Case("evener::SumTo", 1).x({2, 3}).x({2, 3}));
  all->push_back(Case("evener::SumTo", 1).x({2, 3}).x({1, 4, 9}));  // of a Tile
  all->push_back(Case("evener::SumTo", 1).x({2, 3}).x({0, 3}).flat());
  all->push_back(Case("evener::SumTo", 1).x({0, 3}).x({2, 0, 3}));
  all->push_back(Case("evener::RepeatTo", 1).x({2, 3}).x({}).flat());
  all->push_back(Case("evener::RepeatTo", 1).x({4, 9}).x({2, 3}));
  all->push_back(Case("evener::RepeatTo", 1).x({0, 3}).x({1, 3}));
}

void add_convolutions(Cases* all) {
  for (const DType d : {kF32, kF64}) {
    all->push_back(Case("evener::ConvInputGradient", 1).in(d, {2, 3, 5, 6}).in(d, {4, 3, 3, 2}).in(d, {2, 4, 3, 5}).batch(5));
    all->push_back(Case("evener::ConvWeightGradient", 1).in(d, {4, 3, 3, 2}).in(d, {2, 3, 5, 6}).in(d, {2, 4, 3, 5}));
  }
  for (const bool of_weight : {false, true}) {
    const Shape x = {1, 4, 7, 9}, w = {6, 2, 3, 2};
    all->push_back(Case(of_weight ? "evener::ConvWeightGradient" : "evener::ConvInputGradient", 1)
                       .x(of_weight ? w : x)
                       .x(of_weight ? x : w)
                       .x({1, 6, 4, 8})
                       .ints("pads", {1, 0, 1, 1})
                       .ints("strides", {2, 1})
                       .ints("dilations", {1, 2})
                       .integer("group", 2));
  }
}

// Wide enough for products of bfloat16.
void add_wide_convolutions(Cases* all) {
  const Ints pads = {1, 1, 1, 1};
  const Shape x = {1, 32, 6, 6}, w = {32, 32, 3, 3};
  all->push_back(Case("evener::ConvInputGradient", 1).x(x).x(w).x(x).ints("pads", pads));
  all->push_back(Case("evener::ConvWeightGradient", 1).x(w).x(x).x(x).ints("pads", pads));
  all->push_back(Case("ConvTranspose", 11).x(x).x(w).ints("pads", pads));
}

// For Winograd's F(4 x 4, 3 x 3); filters are small, as those of so many channels are.
void add_winograd_convolutions(Cases* all) {
  const Ints pads = {1, 1, 1, 1};
  const Shape x = {2, 48, 13, 14}, w = {64, 48, 3, 3}, y = {2, 64, 13, 14};
  all->push_back(Case("Conv", 11).x(x).x(w, -0.25, 0.25).ints("pads", pads));
  all->push_back(Case("evener::ConvInputGradient", 1).x(x).x(w, -0.25, 0.25).x(y).ints("pads", pads));
  all->push_back(Case("evener::ConvWeightGradient", 1).x(w).x(x, -0.25, 0.25).x(y).ints("pads", pads));
}

// 1 x 1, and with one filter for each channel.
void add_special_convolutions(Cases* all) {
  for (const bool of_weight : {false, true}) {
    const char* const op = of_weight ? "evener::ConvWeightGradient" : "evener::ConvInputGradient";
    const Shape x = {2, 4, 7, 9}, pointwise = {6, 4, 1, 1}, depthwise = {4, 1, 3, 3};
    all->push_back(Case(op, 1).x(of_weight ? pointwise : x).x(of_weight ? x : pointwise).x({2, 6, 7, 9}));
    all->push_back(Case(op, 1)
                       .x(of_weight ? depthwise : x)
                       .x(of_weight ? x : depthwise)
                       .x({2, 4, 4, 5})
                       .ints("pads", {1, 1, 1, 1})
                       .ints("strides", {2, 2})
                       .integer("group", 4));
  }
}

// One axis, strides that the kernel is smaller than, pads that it is, several filters for each channel, and groups of few.
void add_uneven_convolutions(Cases* all) {
  for (const bool of_weight : {false, true}) {
    const char* const op = of_weight ? "evener::ConvWeightGradient" : "evener::ConvInputGradient";
    const auto add = [&](const Shape& x, const Shape& w, const Shape& dy) -> Case& {
      return all->emplace_back(Case(op, 1).x(of_weight ? w : x).x(of_weight ? x : w).x(dy));
    };
    add({2, 3, 37}, {5, 3, 4}, {2, 5, 18}).ints("pads", {1, 0}).ints("strides", {2});
    add({3, 5, 9, 20}, {7, 5, 1, 1}, {3, 7, 5, 10}).ints("strides", {2, 2});
    add({2, 2, 6, 17}, {3, 2, 1, 2}, {2, 3, 8, 20}).ints("pads", {1, 2, 1, 2});
    add({2, 3, 8, 35}, {6, 1, 3, 2}, {2, 6, 4, 17}).ints("pads", {1, 0, 0, 0}).ints("strides", {2, 2}).integer("group", 3);
    add({5, 4, 9, 18}, {4, 2, 2, 3}, {5, 4, 8, 14}).ints("dilations", {1, 2}).integer("group", 2);
    add({2, 9, 5, 19}, {10, 9, 3, 3}, {2, 10, 5, 19}).ints("pads", {1, 1, 1, 1});
  }
}

void add_pools(Cases* all) {
  for (const DType d : {kF32, kF64}) {
    for (const char* op : {"evener::MaxPoolGradient", "evener::AveragePoolGradient"}) {
      all->push_back(
          Case(op, 1).in(d, {2, 3, 6, 7}).in(d, {2, 3, 3, 3}).ints("kernel_shape", {2, 3}).ints("strides", {2, 2}).batch(3));
    }
  }
  all->push_back(
      Case("evener::MaxPoolGradient", 1).x({2, 2, 5, 39}).x({2, 2, 2, 19}).ints("kernel_shape", {2, 2}).ints("strides", {2, 2}));
  for (const std::int64_t width : {9, 19}) {  // to 4 and 9 windows a row
    all->push_back(Case("evener::MaxPoolGradient", 1)
                       .x({2, 2, 5, width})
                       .specials()
                       .x({2, 2, 2, width / 2})
                       .ints("kernel_shape", {2, 2})
                       .ints("strides", {2, 2}));
  }
  for (const char* op : {"evener::MaxPoolGradient", "evener::AveragePoolGradient"}) {
    all->push_back(Case(op, 1)
                       .x({2, 3, 9, 10})
                       .x({2, 3, 5, 5})
                       .ints("kernel_shape", {3, 3})
                       .ints("strides", {2, 2})
                       .ints("pads", {1, 1, 1, 1}));
    // With these pads, dy has the shape of x whatever the dims and the kernel are.
    all->push_back(Case(op, 1).x({2, 3, 33}).x({2, 3, 33}).ints("kernel_shape", {2}).word("auto_pad", "SAME_UPPER"));
    all->push_back(Case(op, 1).x({2, 3, 6, 7}).x({2, 3, 6, 7}).ints("kernel_shape", {2, 3}).word("auto_pad", "SAME_LOWER"));
    all->push_back(Case(op, 1)
                       .x({1, 2, 4, 5, 6})
                       .x({1, 2, 2, 3, 3})
                       .ints("kernel_shape", {2, 3, 2})
                       .ints("strides", {2, 2, 3})
                       .ints("pads", {0, 1, 1, 0, 1, 1}));
  }
  all->push_back(Case("evener::MaxPoolGradient", 1)
                     .x({1, 2, 5})
                     .x({1, 2, 3})
                     .ints("kernel_shape", {3})
                     .ints("pads", {1, 1})
                     .ints("strides", {2}));
  all->push_back(Case("evener::AveragePoolGradient", 1)
                     .x({1, 2, 5})
                     .x({1, 2, 5})
                     .ints("kernel_shape", {3})
                     .ints("pads", {1, 1})
                     .integer("count_include_pad", 1));
}

void add_indices(Cases* all) {
  for (const DType d : {kF32, kF64}) {
    all->push_back(Case("evener::GatherGradient", 1).in(d, {4, 3}).list({1, -1, 1}).in(d, {3, 3}));
    all->push_back(
        Case("evener::SliceGradient", 1).in(d, {5, 4}).list({-1, 0}).list({-6, 3}).list({0, -1}).list({-2, 2}).in(d, {3, 2}));
  }
  all->push_back(Case("evener::GatherGradient", 1).x({2, 4, 3}).list({3, 0}, kI32).x({2, 2, 3}).integer("axis", -2).batch(5));
  all->push_back(Case("evener::SliceGradient", 1).x({5, 4}).list({1}).list({3}).absent().absent().x({2, 4}));
}

void add_losses(Cases* all) {
  for (const DType d : {kF32, kF64}) {
    for (const char* op : {"evener::LossGradient", "evener::CrossEntropyGradient"}) {
      all->push_back(Case(op, 1).in(d, {3, 4}).list({0, 3, 1}).in(d, {}));
      all->push_back(Case(op, 1)
                         .in(d, {3, 4})
                         .list({0, 3, 1})
                         .in(d, {3})
                         .in(d, {4}, 0.5, 2)
                         .word("reduction", "none")
                         .integer("ignore_index", 3));
    }
  }
  const TensorDesc places{kI32, {2, 5}};
  const std::vector<double> targets = {0, 1, 2, 2, 1, 0, 1, 1, 2, 0};
  for (const char* op : {"evener::LossGradient", "evener::CrossEntropyGradient"}) {
    all->push_back(Case(op, 1).x({2, 3, 5}).literal(places, targets).x({}).x({3}, 0.5, 2));
    all->push_back(Case(op, 1).x({2, 37}).list({36, 5}).x({}).word("reduction", "sum").integer("ignore_index", 5));
    all->push_back(Case(op, 1)
                       .x({1, 3, 4, 9})
                       .literal({DType::kInt64, {1, 4, 9}}, std::vector<double>(36, 2))
                       .x({1, 4, 9})
                       .word("reduction", "none"));
  }
}

void add_resizes(Cases* all) {
  for (const DType d : {kF32, kF64}) {
    for (const char* mode : {"nearest", "linear"}) {
      all->push_back(Case("evener::ResizeGradient", 1)
                         .in(d, {1, 2, 3, 4})
                         .absent()
                         .absent()
                         .list({1, 2, 5, 3})
                         .in(d, {1, 2, 5, 3})
                         .word("mode", mode));
    }
  }
  const auto resize = [](const Ints& sizes, const char* mode) {
    return Case("evener::ResizeGradient", 1)
        .x({2, 3, 7, 9})
        .absent()
        .absent()
        .list(sizes)
        .x({sizes[0], sizes[1], sizes[2], sizes[3]})
        .word("mode", mode);
  };
  for (const char* coordinates :
       {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn"}) {
    for (const char* mode : {"nearest", "linear", "cubic"}) {
      for (const Ints& sizes : {Ints{2, 3, 14, 18}, Ints{2, 3, 3, 40}, Ints{1, 4, 7, 1}}) {
        all->push_back(resize(sizes, mode).word("coordinate_transformation_mode", coordinates));
      }
    }
  }
  for (const char* nearest : {"round_prefer_ceil", "floor", "ceil"}) {
    all->push_back(resize({2, 3, 10, 5}, "nearest").word("nearest_mode", nearest));
    // Places that a rounded scale would put on the other side of an element.
    all->push_back(Case("evener::ResizeGradient", 1)
                       .x({1, 2, 14, 27})
                       .absent()
                       .absent()
                       .list({1, 2, 16, 38})
                       .x({1, 2, 16, 38})
                       .word("mode", "nearest")
                       .word("coordinate_transformation_mode", "asymmetric")
                       .word("nearest_mode", nearest));
  }
  for (const char* mode : {"linear", "cubic"}) {
    all->push_back(resize({2, 3, 3, 12}, mode).integer("antialias", 1));
    all->push_back(resize({2, 3, 3, 12}, mode).integer("antialias", 1).integer("exclude_outside", 1));
    all->push_back(resize({2, 3, 11, 4}, mode).integer("exclude_outside", 1).real("cubic_coeff_a", -0.5f));
  }
  for (const Floats& roi : {Floats{0, 0, 0.2f, -0.3f, 1, 1, 0.7f, 1.4f}, Floats{0, 0, 0.9f, 0, 1, 1, 0.1f, 1},
                            Floats{0, 0, 1.3f, 1.2f, 1, 1, -0.4f, 0.3f}}) {
    for (const char* mode : {"nearest", "linear", "cubic"}) {
      all->push_back(Case("evener::ResizeGradient", 1)
                         .x({1, 2, 6, 8})
                         .floats(roi)
                         .absent()
                         .list({1, 2, 9, 5})
                         .x({1, 2, 9, 5})
                         .word("mode", mode)
                         .word("coordinate_transformation_mode", "tf_crop_and_resize"));
    }
  }
}

void add_activations(Cases* all) {
  for (const DType d : {kF32, kF64}) {
    for (const char* op : {"ReluGradient", "SigmoidGradient", "TanhGradient", "HardSwishGradient", "ErfGradient", "GeluGradient"}) {
      all->push_back(Case(std::string("evener::") + op, 1).in(d, {3, 2, 37}, -4, 4).in(d, {3, 2, 37}).batch(3));
    }
    all->push_back(Case("evener::GeluGradient", 1).in(d, {3, 37}, -4, 4).in(d, {3, 37}).word("approximate", "tanh").batch(3));
  }
  all->push_back(Case("evener::ReluGradient", 1).x({3, 33}).specials().x({3, 33}));
}

void add_norms(Cases* all) {
  for (const DType d : {kF32, kF64}) {
    all->push_back(Case("evener::BatchNormalizationGradient", 1)
                       .in(d, {3, 5, 4, 7})
                       .in(d, {5})
                       .in(d, {3, 5, 4, 7})
                       .integer("training_mode", 1)
                       .real("epsilon", 0.01f)
                       .outputs(3));
    all->push_back(Case("evener::BatchNormalizationGradient", 1)
                       .in(d, {3, 5, 7})
                       .in(d, {5})
                       .in(d, {3, 5, 7})
                       .in(d, {5})
                       .in(d, {5}, 0.5, 2)
                       .outputs(3));
    all->push_back(Case("evener::LayerNormalizationGradient", 1)
                       .in(d, {3, 4, 37})
                       .in(d, {37})
                       .in(d, {3, 4, 37})
                       .real("epsilon", 0.01f)
                       .outputs(3));
  }
  all->push_back(
      Case("evener::BatchNormalizationGradient", 1).x({19, 37}).x({37}).x({19, 37}).integer("training_mode", 1).outputs(3));
  all->push_back(Case("evener::LayerNormalizationGradient", 1).x({70, 2, 9}).x({2, 9}).x({70, 2, 9}).integer("axis", 1).outputs(3));
}

// Two parameters and `kept` tensors for each.
Case optimizer_step(const char* kind, int kept, DType d = kF32) {
  Case c = Case("evener::OptimizerStep", 1).floats({0.1f, 0.01f, 0.5f, 0.9f, 3, 0, 0, 0}).scalar(DType::kBool, 1);
  for (int i = 0; i < 2 + kept; ++i) c.in(d, {5, 4}, i < 2 ? -2 : 0, 2).in(d, {19}, i < 2 ? -2 : 0, 2);
  return c.word("kind", kind).outputs(2 + 2 * kept);
}

void add_optimizers(Cases* all) {
  for (const DType d : {kF32, kF64}) {
    all->push_back(optimizer_step("sgd", 0, d));
    all->push_back(optimizer_step("sgd", 1, d).real("momentum", 0.9f).real("dampening", 0.2f));
    all->push_back(optimizer_step("sgd", 1, d).real("momentum", 0.9f).integer("nesterov", 1));
    all->push_back(optimizer_step("adam", 2, d).real("beta1", 0.8f).real("beta2", 0.99f).real("epsilon", 1e-6f));
    all->push_back(optimizer_step("adamw", 2, d));
    all->push_back(optimizer_step("adagrad", 1, d).real("lr_decay", 0.1f));
    all->push_back(optimizer_step("rmsprop", 1, d).real("alpha", 0.9f));
    all->push_back(optimizer_step("rmsprop", 2, d).real("momentum", 0.9f));
    all->push_back(Case("evener::GradientNorm", 1).x({}).in(d, {5, 4}).in(d, {19}).in(d, {}).outputs(2));
  }
  // The average of the gradient is small beside the root of that of its square.
  all->push_back(Case("evener::OptimizerStep", 1)
                     .floats({0.1f, 0, 1, 0, 3, 0, 0, 0})
                     .scalar(DType::kBool, 1)
                     .x({33})
                     .x({33})
                     .x({33}, 2, 3)
                     .x({33})
                     .x({33}, -0.5, 0.5)
                     .word("kind", "rmsprop")
                     .real("momentum", 0.9f)
                     .integer("centered", 1)
                     .outputs(4));
}

}  // namespace

void add_gradient_cases(Cases* all) {
  add_sums(all);
  add_convolutions(all);
  add_winograd_convolutions(all);
  add_wide_convolutions(all);
  add_special_convolutions(all);
  add_uneven_convolutions(all);
  add_pools(all);
  add_indices(all);
  add_losses(all);
  add_resizes(all);
  add_activations(all);
  add_norms(all);
  add_optimizers(all);
}

}  // namespace evn::conformance
