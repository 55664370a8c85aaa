// Resize and Upsample.
#include "tests/conformance/case.h"

namespace evn::conformance {
namespace {

Case by_scales(const Shape& x, const Floats& scales, const char* mode, const char* coordinates, int opset = 11) {
  Case c =
      Case("Resize", opset).x(x).absent().floats(scales).word("mode", mode).word("coordinate_transformation_mode", coordinates);
  if (x[0] > 1 && scales[0] == 1) c.batch();
  return c;
}

Case by_sizes(const Shape& x, const Ints& sizes, const char* mode, const char* coordinates, int opset = 13) {
  return Case("Resize", opset)
      .x(x)
      .absent()
      .absent()
      .list(sizes)
      .word("mode", mode)
      .word("coordinate_transformation_mode", coordinates);
}

constexpr const char* kCoordinates[] = {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"};

void add_resize_modes(Cases* all) {
  for (const char* coordinates : kCoordinates) {
    for (const char* mode : {"nearest", "linear", "cubic"}) {
      all->push_back(by_scales({2, 3, 5, 7}, {1, 1, 2, 2}, mode, coordinates));
      all->push_back(by_scales({1, 2, 9, 11}, {1, 1, 0.6f, 1.7f}, mode, coordinates));
      all->push_back(by_sizes({1, 2, 5, 7}, {1, 2, 9, 3}, mode, coordinates));
      all->push_back(by_sizes({1, 2, 4, 1}, {1, 2, 1, 6}, mode, coordinates));
    }
    for (const char* rule : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}) {
      all->push_back(by_scales({1, 2, 5, 7}, {1, 1, 2, 3}, "nearest", coordinates).word("nearest_mode", rule));
      all->push_back(by_scales({1, 2, 6, 8}, {1, 1, 1.5f, 0.5f}, "nearest", coordinates).word("nearest_mode", rule));
    }
  }
  all->push_back(
      by_scales({1, 2, 5, 7}, {1, 1, 2, 1.5f}, "cubic", "half_pixel").real("cubic_coeff_a", -0.5f).integer("exclude_outside", 1));
  all->push_back(by_sizes({1, 2, 5, 7}, {1, 2, 9, 3}, "linear", "half_pixel_symmetric", 19));
  // Places that a rounded scale would put on the other side of an element; the second with numbers above 2^24.
  for (const char* coordinates : {"half_pixel_symmetric", "asymmetric", "tf_half_pixel_for_nn", "align_corners"}) {
    for (const char* rule : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}) {
      all->push_back(by_sizes({1, 2, 14, 27}, {1, 2, 16, 38}, "nearest", coordinates, 19).word("nearest_mode", rule));
      all->push_back(by_sizes({1, 1, 2, 4999}, {1, 1, 3, 7001}, "nearest", coordinates, 19).word("nearest_mode", rule));
      all->push_back(by_sizes({2, 3, 14}, {3, 3, 16}, "nearest", coordinates, 19).word("nearest_mode", rule));
    }
    for (const char* mode : {"linear", "cubic"}) all->push_back(by_sizes({1, 2, 14, 4999}, {1, 2, 16, 701}, mode, coordinates, 19));
    all->push_back(by_scales({1, 2, 5, 7}, {1, 1, 2, 1.5f}, "nearest", coordinates, 19));
  }
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    all->push_back(Case("Resize", 11)
                       .x({1, 2, 6, 8})
                       .floats({0, 0, 0.2f, -0.1f, 1, 1, 0.7f, 1.3f})
                       .absent()
                       .list({1, 2, 5, 9})
                       .word("mode", mode)
                       .word("coordinate_transformation_mode", "tf_crop_and_resize")
                       .real("extrapolation_value", 7));
  }
}

void add_resize_shapes(Cases* all) {
  for (const char* mode : {"nearest", "linear"}) {
    all->push_back(by_scales({4, 5}, {2, 3}, mode, "half_pixel"));
    all->push_back(by_scales({9}, {2}, mode, "half_pixel"));
    all->push_back(by_scales({2, 3, 2, 4, 5}, {1, 1, 1, 2, 2}, mode, "asymmetric"));
    all->push_back(by_scales({2, 3, 4, 5}, {1, 2, 1, 2}, mode, "asymmetric"));
    all->push_back(by_scales({2, 4, 5, 3}, {1, 2, 2, 1}, mode, "half_pixel"));
    all->push_back(by_scales({1, 3, 60, 80}, {1, 1, 2, 2}, mode, "asymmetric").word("nearest_mode", "floor"));
    all->push_back(by_scales({0, 3, 4, 5}, {1, 1, 2, 2}, mode, "asymmetric"));
    all->push_back(by_scales({1, 3, 6, 7}, {1, 1, 2, 2}, mode, "half_pixel").variable());
    all->back().operands[2].constant = false;
    // Axes in another order, and one scale for all axes: more axes change than the last two.
    all->push_back(by_scales({2, 3, 4, 5}, {1, 1, 2, 3}, mode, "half_pixel", 18).ints("axes", {2, 3, 0, 1}).batch(0));
    all->push_back(by_scales({2, 3, 4, 5}, {2, 3}, mode, "half_pixel", 18).ints("axes", {2, 3}).batch());
    for (const char* policy : {"stretch", "not_larger", "not_smaller"}) {
      all->push_back(by_sizes({2, 4, 8, 8}, {2, 4, 4, 6}, mode, "half_pixel", 18).word("keep_aspect_ratio_policy", policy));
    }
  }
  for (const char* mode : {"linear", "cubic"}) {
    all->push_back(by_scales({1, 2, 12, 14}, {1, 1, 0.4f, 0.6f}, mode, "half_pixel", 18).integer("antialias", 1));
  }
  all->push_back(by_scales({2, 3, 5, 7}, {1, 1, 3, 4}, "nearest", "half_pixel", 19).word("nearest_mode", "round_prefer_ceil"));
}

// What the kernel that resizes axis after axis decides by sizes: how planes are cut, and which axis goes first.
void add_resize_axes(Cases* all) {
  for (const char* mode : {"linear", "cubic"}) {
    // Many small planes, growing and shrinking; three axes; the axes in the middle; channels behind them.
    all->push_back(by_scales({9, 2, 5, 7}, {1, 1, 2, 3}, mode, "half_pixel"));
    all->push_back(by_scales({5, 3, 6, 7, 9}, {1, 1, 2, 0.5f, 2}, mode, "align_corners"));
    all->push_back(by_scales({1, 2, 6, 40, 50}, {1, 1, 2, 2, 2}, mode, "half_pixel"));
    all->push_back(by_scales({2, 11, 13, 20}, {1, 1.5f, 0.6f, 1}, mode, "half_pixel"));
    // A plane that falls into several tiles, and one whose lines are long.
    all->push_back(by_scales({1, 1, 400, 300}, {1, 1, 0.4f, 0.5f}, mode, "half_pixel", 18).integer("antialias", 1));
    all->push_back(by_sizes({1, 2, 3, 5000}, {1, 2, 7, 9000}, mode, "half_pixel", 18).integer("antialias", 1));
    all->push_back(by_scales({1, 1, 12, 14}, {1, 1, 0.3f, 1.6f}, mode, "pytorch_half_pixel", 18)
                       .integer("antialias", 1)
                       .integer("exclude_outside", 1));
    // One axis shrinks to nothing where another one grows: what lies between must not be larger than both.
    all->push_back(by_sizes({1, 1, 4000}, {2, 2000, 2}, mode, "half_pixel"));
    // Scales that give the sizes of the input, but other elements.
    all->push_back(by_scales({2, 3, 4, 5}, {1, 1, 1.2f, 1.1f}, mode, "half_pixel"));
    all->push_back(by_scales({1, 3, 6, 7}, {1, 1.4f, 2, 2}, mode, "half_pixel").variable());
    all->back().operands[2].constant = false;
  }
  all->push_back(Case("Upsample", 7).x({2, 3, 5, 7}).attr("scales", Floats{1, 2, 2, 2}).word("mode", "linear"));
}

void add_old(Cases* all) {
  for (const char* mode : {"nearest", "linear"}) {
    all->push_back(Case("Upsample", 7).x({2, 3, 5, 7}).attr("scales", Floats{1, 1, 2, 2}).word("mode", mode).batch());
    all->push_back(Case("Upsample", 9).x({2, 3, 5, 7}).floats({1, 1, 2, 3}).word("mode", mode).batch());
    all->push_back(Case("Resize", 10).x({2, 3, 5, 7}).floats({1, 1, 2, 2}).word("mode", mode).batch());
    all->push_back(Case("Resize", 10).x({1, 3, 6, 8}).floats({1, 1, 0.5f, 0.7f}).word("mode", mode));
  }
  for_dtypes((kNumbers & ~dtype_bit(kF32)) | kComplex, [&](DType d) {
    all->push_back(Case("Upsample", 7).in(d, {1, 2, 3, 5}, 0, 90).attr("scales", Floats{1, 1, 2, 2}));
    all->push_back(Case("Resize", 13).in(d, {1, 2, 3, 5}, 0, 90).absent().floats({1, 1, 2, 2}).word("mode", "linear"));
  });
}

}  // namespace

void add_resize_cases(Cases* all) {
  add_resize_modes(all);
  add_resize_shapes(all);
  add_resize_axes(all);
  add_old(all);
}

}  // namespace evn::conformance
