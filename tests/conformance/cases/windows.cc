// Operators that slide a window: Conv, ConvTranspose, the pools.
#include "tests/conformance/case.h"

namespace evn::conformance {
namespace {

// ------------------------------------------------------------------------------------------------------- Conv --

Case conv(const Shape& x, const Shape& w, bool bias = true) {
  Case c = Case("Conv", 11).x(x).w(w);
  if (bias) c.w({w[0]});
  if (x[0] > 1) c.batch();
  return c;
}

void add_plain_conv(Cases* all) {
  all->push_back(conv({1, 1, 1, 1}, {1, 1, 1, 1}));
  all->push_back(conv({1, 3, 5, 7}, {8, 3, 3, 3}));
  all->push_back(conv({2, 3, 9, 11}, {5, 3, 3, 3}, false).ints("pads", {1, 1, 1, 1}));
  all->push_back(conv({2, 4, 7, 17}, {9, 4, 3, 5}).ints("pads", {1, 2, 1, 2}));
  all->push_back(conv({1, 3, 13, 15}, {17, 3, 3, 3}).ints("pads", {0, 1, 2, 3}).ints("strides", {2, 3}));
  all->push_back(conv({1, 3, 13, 15}, {4, 3, 3, 2}).ints("dilations", {2, 3}).ints("pads", {2, 0, 1, 3}));
  all->push_back(conv({1, 2, 9, 9}, {3, 2, 1, 7}).ints("pads", {0, 3, 0, 3}).ints("strides", {1, 2}));
  all->push_back(conv({1, 2, 9, 9}, {3, 2, 7, 1}).ints("pads", {3, 0, 3, 0}).ints("dilations", {1, 1}));
  all->push_back(conv({1, 3, 4, 4}, {2, 3, 7, 7}).ints("pads", {3, 3, 3, 3}));
  all->push_back(conv({1, 40, 9, 10}, {33, 40, 3, 3}).ints("pads", {1, 1, 1, 1}));
  // Weights as large as trained ones are for so many products: sums of order 1, whose rounding fused steps like Sigmoid do not
  // enlarge beyond a share of their largest result.
  all->push_back(Case("Conv", 11).x({1, 256, 7, 9}).w({257, 256, 3, 3}, -0.04, 0.04).w({257}).ints("pads", {1, 1, 1, 1}));
  all->push_back(conv({2, 3, 40, 67}, {24, 3, 3, 3}).ints("pads", {1, 1, 1, 1}).ints("strides", {2, 2}));
  // Groups of 8 to 64 filters: lines of several tiles, strides and dilations, one axis, lines as short as windows.
  all->push_back(conv({2, 32, 30, 33}, {64, 16, 3, 3}).integer("group", 2).ints("pads", {1, 1, 1, 1}));
  all->push_back(conv({1, 36, 9, 14}, {48, 9, 3, 3}).integer("group", 4).ints("pads", {1, 2, 0, 1}).ints("strides", {2, 1}));
  all->push_back(
      conv({1, 24, 12, 11}, {24, 8, 3, 5}, false).integer("group", 3).ints("dilations", {2, 3}).ints("pads", {2, 6, 2, 6}));
  all->push_back(conv({2, 48, 19}, {32, 24, 16}).integer("group", 2).ints("pads", {8, 8}).ints("strides", {3}));
  all->push_back(conv({1, 128, 3, 2}, {128, 64, 7, 3}).integer("group", 2).ints("pads", {3, 1, 3, 1}));
  for (const char* mode : {"SAME_UPPER", "SAME_LOWER", "VALID"}) {
    all->push_back(conv({1, 2, 8, 9}, {4, 2, 4, 3}).word("auto_pad", mode).ints("strides", {2, 2}));
  }
  all->push_back(conv({1, 3, 6, 13}, {6, 3, 3, 3}).ints("pads", {1, 1, 1, 1}).variable());
  // The weight itself is an input.
  all->push_back(Case("Conv", 11).x({2, 3, 6, 7}).x({4, 3, 3, 3}).x({4}).batch());
  // Weights that are computed: with groups, several tiles of rows, depthwise.
  all->push_back(Case("Conv", 11).x({2, 6, 6, 7}).x({4, 3, 3, 3}).integer("group", 2).batch());
  all->push_back(Case("Conv", 11).x({1, 33, 40, 17}).x({100, 33, 1, 1}));
  all->push_back(Case("Conv", 11).x({2, 5, 9, 8}).x({20, 5, 3, 2}).x({20}).ints("pads", {1, 0, 1, 1}).batch());
  all->push_back(Case("Conv", 11).x({2, 7, 30}).x({7, 1, 3}).integer("group", 7).batch());
}

void add_pointwise_conv(Cases* all) {
  all->push_back(conv({2, 5, 7, 9}, {11, 5, 1, 1}));
  all->push_back(conv({1, 37, 3, 3}, {19, 37, 1, 1}));
  all->push_back(conv({2, 24, 1, 1}, {10, 24, 1, 1}));
  all->push_back(conv({1, 8, 20, 33}, {16, 8, 1, 1}, false));
  all->push_back(conv({1, 16, 60, 61}, {40, 16, 1, 1}));
  all->push_back(conv({1, 5, 7, 9}, {4, 5, 1, 1}).ints("strides", {2, 2}));
  all->push_back(conv({1, 5, 7, 9}, {4, 5, 1, 1}).ints("pads", {1, 1, 1, 1}));
  all->push_back(conv({1, 5, 7, 9}, {4, 5, 1, 1}).ints("pads", {0, 0, 1, 1}));
  all->push_back(conv({2, 6, 7, 9}, {4, 3, 1, 1}).integer("group", 2));
}

void add_group_conv(Cases* all) {
  all->push_back(conv({2, 6, 7, 9}, {4, 3, 3, 3}).integer("group", 2).ints("pads", {1, 1, 1, 1}));
  all->push_back(conv({1, 12, 5, 6}, {30, 4, 3, 3}).integer("group", 3));
  all->push_back(conv({2, 48, 9, 17}, {48, 16, 3, 3}).integer("group", 3).ints("pads", {1, 1, 1, 1}));
  all->push_back(conv({1, 32, 8, 31}, {40, 16, 3, 5}).integer("group", 2).ints("pads", {0, 2, 2, 1}).ints("strides", {2, 1}));
  all->push_back(conv({2, 32, 11, 7}, {64, 8, 3, 3}).integer("group", 4).ints("pads", {2, 2, 2, 2}).ints("dilations", {2, 2}));
  all->push_back(conv({1, 39, 6, 30}, {39, 13, 2, 2}).integer("group", 3));
  // Vectors of the channels of several groups.
  all->push_back(conv({2, 32, 9, 17}, {32, 4, 3, 3}).integer("group", 8).ints("pads", {1, 1, 1, 1}));
  all->push_back(conv({1, 48, 6, 11}, {48, 8, 3, 3}).integer("group", 6).ints("pads", {1, 1, 0, 2}).ints("strides", {2, 2}));
  all->push_back(conv({1, 32, 8, 5}, {32, 16, 2, 3}).integer("group", 2).ints("dilations", {2, 1}));
  for (const std::int64_t k : {1, 2, 3, 5, 7}) {
    const std::int64_t p = k / 2;
    all->push_back(conv({2, 5, 11, 19}, {5, 1, k, k}).integer("group", 5).ints("pads", {p, p, p, p}));
    all->push_back(conv({1, 3, 12, 21}, {3, 1, k, k}).integer("group", 3).ints("pads", {p, p, p, p}).ints("strides", {2, 2}));
  }
  all->push_back(conv({2, 8, 40, 70}, {8, 1, 3, 3}).integer("group", 8).ints("pads", {1, 1, 1, 1}));
  all->push_back(conv({1, 4, 9, 13}, {4, 1, 3, 3}, false).integer("group", 4).ints("dilations", {2, 3}).ints("pads", {2, 3, 1, 4}));
  all->push_back(conv({1, 4, 9, 13}, {4, 1, 3, 5}).integer("group", 4).ints("strides", {3, 1}).ints("pads", {0, 2, 1, 3}));
  all->push_back(conv({1, 4, 2, 2}, {4, 1, 5, 5}).integer("group", 4).ints("pads", {2, 2, 2, 2}));
  // Several filters for each channel.
  all->push_back(conv({2, 4, 7, 9}, {8, 1, 3, 3}).integer("group", 4).ints("pads", {1, 1, 1, 1}));
  all->push_back(conv({1, 1, 7, 9}, {1, 1, 3, 3}));
}

void add_other_conv(Cases* all) {
  all->push_back(conv({2, 3, 19}, {5, 3, 3}).ints("pads", {1, 1}));
  all->push_back(conv({1, 3, 40}, {5, 3, 4}).ints("strides", {3}).ints("dilations", {2}).ints("pads", {2, 3}));
  all->push_back(conv({2, 7, 19}, {5, 7, 1}));
  all->push_back(conv({2, 6, 33}, {6, 1, 5}).integer("group", 6).ints("pads", {2, 2}));
  all->push_back(conv({2, 2, 4, 5, 6}, {3, 2, 2, 3, 3}).ints("pads", {0, 1, 1, 1, 1, 1}));
  all->push_back(conv({0, 3, 5, 7}, {8, 3, 3, 3}));
  all->push_back(Case("Conv", 1).in(kF64, {1, 2, 5, 7}).in(kF64, {3, 2, 3, 3}).in(kF64, {3}));
  all->push_back(Case("Conv", 11).x({1, 2, 9, 9}).specials().w({3, 2, 1, 1}).flat());
}

// ---------------------------------------------------------------------------------------------- ConvTranspose --

Case up(const Shape& x, const Shape& w, bool bias = true, std::int64_t group = 1) {
  Case c = Case("ConvTranspose", 11).x(x).w(w).integer("group", group);
  if (bias) c.w({w[1] * group});
  if (x[0] > 1) c.batch();
  return c;
}

void add_conv_transpose(Cases* all) {
  all->push_back(up({1, 1, 1, 1}, {1, 1, 2, 2}).ints("strides", {2, 2}));
  all->push_back(up({2, 3, 5, 7}, {3, 4, 2, 2}).ints("strides", {2, 2}));
  all->push_back(up({1, 24, 9, 33}, {24, 10, 2, 2}, false).ints("strides", {2, 2}));
  all->push_back(up({2, 5, 4, 19}, {5, 3, 3, 2}).ints("strides", {3, 2}));
  all->push_back(up({1, 6, 4, 5}, {6, 2, 2, 2}, true, 2).ints("strides", {2, 2}));
  all->push_back(up({2, 3, 5, 7}, {3, 4, 1, 1}));
  all->push_back(up({2, 3, 17}, {3, 4, 2}).ints("strides", {2}));
  all->push_back(up({1, 3, 5, 7}, {3, 4, 3, 3}).ints("strides", {2, 2}).ints("pads", {1, 1, 1, 1}).ints("output_padding", {1, 1}));
  all->push_back(up({1, 3, 5, 7}, {3, 4, 3, 2}).ints("strides", {1, 3}).ints("pads", {0, 1, 2, 0}));
  all->push_back(up({2, 3, 5, 7}, {3, 4, 3, 3}).ints("dilations", {2, 2}));
  all->push_back(up({1, 3, 5, 7}, {3, 4, 3, 3}).ints("strides", {2, 2}).ints("output_shape", {10, 14}));
  for (const char* mode : {"SAME_UPPER", "SAME_LOWER", "VALID"}) {
    all->push_back(up({1, 3, 5, 7}, {3, 4, 3, 3}).ints("strides", {2, 2}).word("auto_pad", mode));
    all->push_back(up({1, 3, 5, 7}, {3, 4, 2, 2}).ints("strides", {2, 2}).word("auto_pad", mode));
  }
  all->push_back(up({1, 6, 5, 7}, {6, 2, 3, 3}, true, 3).ints("strides", {2, 2}).ints("pads", {1, 1, 1, 1}));
  all->push_back(up({2, 3, 17}, {3, 4, 5}).ints("strides", {2}).ints("pads", {2, 1}));
  all->push_back(up({1, 2, 3, 4, 5}, {2, 3, 2, 2, 2}).ints("strides", {2, 1, 2}));
  all->push_back(up({1, 16, 30, 41}, {16, 12, 4, 4}).ints("strides", {2, 2}).ints("pads", {1, 1, 1, 1}));
  all->push_back(Case("ConvTranspose", 11).x({2, 3, 5, 7}).x({3, 4, 2, 2}).ints("strides", {2, 2}).batch());
  all->push_back(Case("ConvTranspose", 1).in(kF64, {1, 2, 5, 7}).in(kF64, {2, 3, 3, 3}).in(kF64, {3}));
  all->push_back(up({0, 3, 5, 7}, {3, 4, 2, 2}).ints("strides", {2, 2}));
}

// ------------------------------------------------------------------------------------------------------ pools --

void add_pool(const char* op, int opset, Cases* all) {
  const auto pool = [&](const Shape& x, const Ints& kernel) {
    Case c = Case(op, opset).x(x).ints("kernel_shape", kernel);
    if (x[0] > 1) c.batch();
    return c;
  };
  all->push_back(pool({2, 3, 7, 9}, {1, 1}));
  all->push_back(pool({2, 3, 7, 9}, {2, 2}).ints("strides", {2, 2}));
  all->push_back(pool({2, 3, 12, 19}, {3, 3}).ints("strides", {2, 2}).ints("pads", {1, 1, 1, 1}));
  all->push_back(pool({1, 3, 12, 19}, {3, 3}).ints("strides", {2, 2}).ints("pads", {1, 1, 1, 1}).integer("ceil_mode", 1));
  all->push_back(pool({1, 2, 8, 8}, {3, 3}).ints("strides", {3, 3}).integer("ceil_mode", 1));
  all->push_back(pool({1, 2, 5, 6}, {2, 2}).ints("strides", {3, 3}).integer("ceil_mode", 1));
  all->push_back(pool({1, 2, 9, 11}, {2, 5}).ints("pads", {1, 0, 0, 4}).ints("strides", {1, 2}));
  all->push_back(pool({1, 2, 9, 40}, {7, 7}).ints("pads", {3, 3, 3, 3}));
  all->push_back(pool({2, 40, 33, 35}, {3, 3}).ints("pads", {1, 1, 1, 1}));
  all->push_back(pool({1, 1, 90, 31}, {25, 26}));
  all->push_back(pool({2, 3, 33}, {4}).ints("strides", {3}).ints("pads", {1, 2}));
  all->push_back(pool({2, 2, 4, 5, 6}, {2, 2, 3}).ints("strides", {1, 2, 2}));
  for (const char* mode : {"SAME_UPPER", "SAME_LOWER", "VALID"}) {
    all->push_back(pool({1, 2, 8, 9}, {4, 3}).word("auto_pad", mode).ints("strides", {2, 2}));
  }
  all->push_back(pool({1, 2, 9, 13}, {3, 3}));  // specials in the same columns: some windows have none
  all->back().operands[0].specials = true;
  all->push_back(pool({0, 2, 9, 9}, {3, 3}));
  all->push_back(Case(op, opset).in(kF64, {1, 2, 7, 9}).ints("kernel_shape", {3, 2}));
}

void add_plain_pools(Cases* all) {
  add_pool("MaxPool", 12, all);
  add_pool("AveragePool", 11, all);
  add_pool("AveragePool", 19, all);
  for (const int ceil : {0, 1}) {
    const auto average = [&](const Shape& x, const Ints& kernel) {
      return Case("AveragePool", 19).x(x).ints("kernel_shape", kernel).integer("count_include_pad", 1).integer("ceil_mode", ceil);
    };
    all->push_back(average({1, 2, 12, 19}, {3, 3}).ints("strides", {2, 2}).ints("pads", {1, 1, 1, 1}));
    all->push_back(average({1, 2, 8, 10}, {3, 4}).ints("strides", {3, 3}).ints("pads", {0, 2, 1, 3}));
    all->push_back(average({1, 2, 19}, {4}).ints("strides", {3}).ints("pads", {3, 2}));
  }
  for (const char* op : {"MaxPool", "AveragePool"}) {
    all->push_back(
        Case(op, 19).x({2, 2, 11, 13}).ints("kernel_shape", {3, 3}).ints("dilations", {2, 3}).ints("pads", {2, 1, 1, 2}).batch());
    all->push_back(Case(op, 19)
                       .x({1, 2, 11, 13})
                       .ints("kernel_shape", {2, 3})
                       .ints("dilations", {3, 2})
                       .ints("strides", {2, 2})
                       .integer("ceil_mode", 1));
  }
  all->push_back(Case("AveragePool", 7).x({1, 2, 7, 9}).ints("kernel_shape", {3, 2}).ints("pads", {1, 1, 1, 1}));
  all->push_back(
      Case("AveragePool", 7).x({1, 1, 4, 3}).ints("kernel_shape", {3, 1}).ints("pads", {1, 1, 1, 1}));  // some only of padding
  for (const int opset : {1, 8, 10}) all->push_back(Case("MaxPool", opset).x({1, 2, 7, 9}).ints("kernel_shape", {3, 2}));
  for (const int order : {0, 1}) {
    all->push_back(Case("MaxPool", 12).x({2, 2, 7, 9}).ints("kernel_shape", {3, 2}).integer("storage_order", order).outputs(2));
  }
  for (const DType d : {DType::kUint8, DType::kInt8}) {
    all->push_back(Case("MaxPool", 12).in(d, {1, 2, 7, 9}, -90, 90).ints("kernel_shape", {3, 2}));
  }
  for (const char* op : {"GlobalAveragePool", "GlobalMaxPool"}) {
    for (const Shape& x :
         {Shape{1, 1, 1, 1}, Shape{3, 5, 7, 9}, Shape{2, 3, 33}, Shape{2, 3, 4, 5, 2}, Shape{2, 70, 30, 31}, Shape{2, 7, 1, 1}}) {
      Case c = Case(op, 1).x(x);
      if (x[0] > 1) c.batch();
      all->push_back(c);
    }
    all->push_back(Case(op, 1).x({4, 3, 2, 3}).specials());
    all->push_back(Case(op, 1).x({0, 3, 5, 5}));
    all->push_back(Case(op, 1).in(kF64, {2, 3, 5, 7}));
  }
}

}  // namespace

void add_window_cases(Cases* all) {
  add_plain_conv(all);
  add_pointwise_conv(all);
  add_group_conv(all);
  add_other_conv(all);
  add_conv_transpose(all);
  add_plain_pools(all);
}

}  // namespace evn::conformance
