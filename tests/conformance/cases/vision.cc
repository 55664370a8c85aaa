// Operators of detectors and samplers, losses, Einsum, Det, and com.microsoft's fused ones.
#include "tests/conformance/case.h"

namespace evn::conformance {
namespace {

void add_samplers(Cases* all) {
  for (const DType d : {kF32, kF64}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (const char* mode : {"linear", "nearest", "cubic"}) {
        all->push_back(Case("GridSample", 20)
                           .in(d, {2, 3, 4, 5})
                           .in(d, {2, 3, 2, 2}, -1.5, 1.5)
                           .word("mode", mode)
                           .word("padding_mode", padding)
                           .integer("align_corners", *padding == 'b' ? 1 : 0)
                           .batch(3));
      }
    }
    all->push_back(Case("GridSample", 20)
                       .in(d, {2, 3, 4, 5})
                       .in(d, {2, 5, 2, 2}, -1.6, 1.6)
                       .word("mode", "cubic")
                       .word("padding_mode", "border")
                       .word("cubic_border", "taps")
                       .batch(3));
    all->push_back(Case("GridSample", 20)
                       .in(d, {1, 1, 3, 4})
                       .in(d, {1, 2, 3, 2}, -1e9, 1e9)
                       .word("mode", "cubic")
                       .word("padding_mode", "border")
                       .word("cubic_border", "taps"));
    all->push_back(Case("RoiAlign", 16)
                       .in(d, {2, 3, 6, 7})
                       .in(d, {4, 4}, -9, 12)
                       .list({1, 0, 1, 1})
                       .word("mode", "max")
                       .integer("output_height", 3)
                       .integer("output_width", 2)
                       .integer("sampling_ratio", 2));
    all->push_back(Case("RoiAlign", 16)
                       .in(d, {2, 3, 6, 7})
                       .in(d, {3, 4}, 0, 6)
                       .list({1, 0, 1})
                       .integer("output_height", 2)
                       .integer("output_width", 3)
                       .integer("sampling_ratio", 2));
  }
  for_dtypes(kFloats, [&](DType d) {
    all->push_back(Case("AffineGrid", 20).in(d, {2, 2, 3}).list({2, 3, 4, 5}));
    all->push_back(Case("AffineGrid", 20).in(d, {1, 3, 4}).list({1, 2, 3, 1, 4}).integer("align_corners", 1));
  });
  for_dtypes(kFloats, [&](DType d) {
    all->push_back(Case("DeformConv", 19)
                       .in(d, {2, 4, 5, 6})
                       .in(d, {6, 2, 3, 2})
                       .in(d, {2, 24, 3, 4})
                       .in(d, {6})
                       .in(d, {2, 12, 3, 4}, 0, 1)
                       .integer("group", 2)
                       .integer("offset_group", 2)
                       .ints("pads", {1, 0, 1, 0})
                       .ints("strides", {2, 1})
                       .ints("dilations", {1, 2}));
  });
  all->push_back(Case("DeformConv", 22).x({1, 3, 5, 5}).x({2, 3, 2, 2}).x({1, 8, 4, 4}, -3, 3));
  for_dtypes(kNumbers | kComplex, [&](DType d) {
    all->push_back(Case("Col2Im", 18).in(d, {2, 12, 6}, 1, 90).list({4, 5}).list({2, 3}).ints("strides", {1, 2}));
  });
  all->push_back(Case("Col2Im", 18).x({1, 6, 16}).list({5, 4}).list({2, 3}).ints("pads", {1, 0, 0, 2}).ints("dilations", {2, 1}));
  all->push_back(Case("GridSample", 16).x({1, 2, 4, 5}).x({1, 3, 2, 2}, -1, 1).word("mode", "bicubic"));
  for_dtypes(kComplex, [&](DType d) {
    all->push_back(Case("GridSample", 20).in(d, {1, 2, 4, 5}).in(complex_part(d), {1, 3, 2, 2}, -1, 1));
  });
  all->push_back(Case("GridSample", 20).x({1, 2, 4, 5}).in(kF64, {1, 3, 2, 2}, -1, 1));
  all->push_back(Case("GridSample", 20).in(kF64, {1, 2, 4, 5}).x({1, 3, 2, 2}, -1, 1));
  all->push_back(Case("GridSample", 20).x({1, 2, 3, 4, 5}).x({1, 2, 2, 3, 3}, -1, 1));
  all->push_back(Case("GridSample", 20).x({2, 7, 9, 11}).x({2, 20, 30, 2}, -1.2, 1.2));  // more places than are found together
  all->push_back(
      Case("MaxRoiPool", 22).in(kF64, {1, 2, 8, 8}, -3, 3).literal({kF64, {1, 5}}, {0, 1, 1, 6, 7}).ints("pooled_shape", {2, 3}));
  all->push_back(Case("MaxRoiPool", 22)
                     .x({2, 3, 6, 7}, -3, 3)
                     .literal({kF32, {3, 5}}, {1, 0, 0, 9, 9, 0, 4, 4, 4, 4, 1, 30, 2, 40, 9})
                     .ints("pooled_shape", {2, 2})
                     .real("spatial_scale", 0.5f));
  for (const DType d : {kF32, kF64}) all->push_back(Case("GlobalLpPool", 22).in(d, {2, 3, 5, 6}).integer("p", 3));
  all->push_back(
      Case("RoiAlign", 10).x({1, 2, 8, 8}).floats({1, 1, 6, 7}).list({0}).integer("output_height", 2).word("mode", "max"));
  all->back().operands[1].desc.shape = {1, 4};
  all->push_back(Case("NonMaxSuppression", 11).x({2, 9, 4}, 0, 1).x({2, 3, 9}, 0, 1).list({4}).scalar(kF32, 0.4).scalar(kF32, 0.2));
  for (const DType d : {kF32, kF64}) {
    all->push_back(Case("MaxUnpool", 11)
                       .in(d, {1, 2, 2, 2})
                       .literal({kI64, {1, 2, 2, 2}}, {1, 3, 4, 6, 16, 18, 24, 31})
                       .ints("kernel_shape", {2, 2})
                       .ints("strides", {2, 2}));
    all->push_back(Case("LpPool", 18)
                       .in(d, {2, 3, 6, 7})
                       .ints("kernel_shape", {3, 2})
                       .ints("strides", {2, 2})
                       .ints("pads", {1, 0, 1, 1})
                       .batch());
  }
  all->push_back(Case("LpPool", 2).x({1, 2, 9}).ints("kernel_shape", {3}).integer("p", 1));
}

void add_algebra(Cases* all) {
  for (const DType d : {kF32, kF64, kI32, kI64, DType::kUint32, DType::kUint64}) {
    all->push_back(Case("Einsum", 12).in(d, {2, 3, 4}, -9, 9).in(d, {4, 5}, -9, 9).word("equation", "...ij, jk -> ...ik"));
  }
  all->push_back(Case("Einsum", 12).x({3, 3}).word("equation", "ii->i"));
  all->push_back(Case("Einsum", 12).x({3, 4}).x({4}).x({3}).word("equation", "ab,b,a").flat());
  for (const DType d : {kF32, kF64}) {
    all->push_back(Case("Det", 11).in(d, {5, 4, 4}).batch());
    for (const char* op : {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}) {
      for (const char* reduction : {"none", "mean", "sum"}) {
        all->push_back(Case(op, 13)
                           .in(d, {3, 5, 2})
                           .literal({kI64, {3, 2}}, {0, 4, 1, 1, 2, 3})
                           .in(d, {5}, 0.1, 2)
                           .word("reduction", reduction)
                           .integer("ignore_index", 1));
      }
    }
  }
  all->push_back(Case("SoftmaxCrossEntropyLoss", 12).x({3, 5}).literal({kI32, {3}}, {0, 4, 1}).outputs(2));
  for (const DType d : {DType::kInt8, DType::kUint8}) {
    all->push_back(Case("MatMulInteger", 10)
                       .in(d, {3, 7}, -90, 90)
                       .in(DType::kInt8, {7, 5}, -90, 90)
                       .scalar(d, 3)
                       .in(DType::kInt8, {5}, -9, 9));
  }
}

void add_fused_vision(Cases* all) {
  for (const DType d : {kF32, kF64}) {
    all->push_back(Case("com.microsoft::FusedMatMul", 1)
                       .in(d, {2, 5, 3})
                       .in(d, {4, 5})
                       .integer("transA", 1)
                       .integer("transB", 1)
                       .real("alpha", 0.5f));
    all->push_back(Case("com.microsoft::SkipLayerNormalization", 1)
                       .in(d, {2, 3, 8})
                       .in(d, {1, 3, 8})
                       .in(d, {8})
                       .in(d, {8})
                       .in(d, {8})
                       .outputs(4));
    all->push_back(Case("com.microsoft::SkipLayerNormalization", 1).in(d, {4, 3, 37}).in(d, {4, 3, 37}).in(d, {37}).batch(3));
    all->push_back(
        Case("com.microsoft::SkipLayerNormalization", 1).in(d, {2, 3, 40}).in(d, {3, 40}).in(d, {40}).in(d, {40}).in(d, {40}));
    all->push_back(Case("com.microsoft::FastGelu", 1).in(d, {3, 8}).in(d, {8}).batch());
    all->push_back(Case("com.microsoft::BiasGelu", 1).in(d, {3, 8}).in(d, {8}).batch());
    all->push_back(Case("com.microsoft::Gelu", 1).in(d, {3, 8}).batch());
    all->push_back(Case("com.microsoft::QuickGelu", 1).in(d, {3, 8}).batch());
  }
}

}  // namespace

void add_vision_cases(Cases* all) {
  add_samplers(all);
  add_algebra(all);
  add_fused_vision(all);
}

}  // namespace evn::conformance
