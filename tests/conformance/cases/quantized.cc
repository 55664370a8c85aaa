// Rows for products of bytes by constants, which kernels take; the others stand in signal.cc, vision.cc and contrib.cc.
#include "tests/conformance/case.h"

namespace evn::conformance {
namespace {

constexpr DType kBytes[] = {DType::kInt8, DType::kUint8};

double low_of(DType d) { return d == DType::kInt8 ? -128 : 0; }
double high_of(DType d) { return d == DType::kInt8 ? 127.9 : 255.9; }
Case& bytes(Case* c, DType d, Shape shape) { return c->in(d, shape, low_of(d), high_of(d)); }
Case& weight(Case* c, DType d, Shape shape) { return c->constant(d, shape, low_of(d), high_of(d)); }

void add_matrices(Cases* all, DType a, DType b) {
  for (const bool many : {false, true}) {
    Case linear("QLinearMatMul", 21);
    bytes(&linear, a, {2, 7, 37}).scalar(kF32, 0.02).scalar(a, 17);
    weight(&linear, b, {37, 19});
    if (many) linear.constant(kF32, {19}, 0.001, 0.01).constant(b, {19}, 0, 90);
    else linear.scalar(kF32, 0.004).scalar(b, b == DType::kUint8 ? 128 : 0);
    all->push_back(linear.scalar(kF32, 0.9).scalar(a, 7));

    Case integer("MatMulInteger", 10);
    bytes(&integer, a, {3, 5, 33});
    weight(&integer, b, {33, 21}).scalar(a, 11);
    all->push_back(many ? integer.constant(b, {21}, 0, 90) : integer);

    for (const bool to_float : {false, true}) {
      Case gemm("com.microsoft::QGemm", 1);
      bytes(&gemm, a, {9, 35}).scalar(kF32, 0.02).scalar(a, 3);
      weight(&gemm, b, many ? Shape{35, 22} : Shape{22, 35});
      if (many) gemm.constant(kF32, {22}, 0.001, 0.01).constant(b, {22}, 0, 90).constant(kI32, {22}, -900, 900);
      else gemm.scalar(kF32, 0.004).scalar(b, 5).absent().integer("transB", 1).real("alpha", 0.5f);
      all->push_back(to_float ? gemm : gemm.scalar(kF32, 0.9).scalar(a, 9));
    }

    Case floats("com.microsoft::MatMulIntegerToFloat", 1);
    bytes(&floats, a, {4, 3, 39});
    weight(&floats, b, {39, 23}).scalar(kF32, 0.02);
    if (many) floats.constant(kF32, {23}, 0.001, 0.01).scalar(a, 3).constant(b, {23}, 0, 90).w({23});
    else floats.scalar(kF32, 0.004);
    all->push_back(floats);
  }
}

void add_convolutions(Cases* all, DType x, DType w) {
  struct Geometry {
    Shape image, filter;
    Ints strides, pads, dilations;
    std::int64_t group;
  };
  const Geometry kinds[] = {
      {{2, 24, 5, 7}, {20, 24, 1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},   // a matrix
      {{1, 64, 6, 5}, {33, 64, 1, 1}, {2, 2}, {0, 0, 0, 0}, {1, 1}, 1},   // read in place
      {{2, 13, 9, 8}, {18, 13, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1},
      {{1, 3, 12, 11}, {17, 3, 7, 7}, {2, 2}, {3, 3, 3, 3}, {1, 1}, 1},   // a first layer
      {{1, 10, 9, 11}, {12, 10, 3, 3}, {1, 2}, {2, 1, 0, 3}, {2, 2}, 1},
      {{2, 12, 7, 6}, {8, 6, 3, 2}, {1, 1}, {1, 0, 1, 1}, {1, 1}, 2},     // groups
      {{2, 21, 9, 8}, {21, 1, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 21},   // depthwise
      {{1, 35, 11, 10}, {35, 1, 5, 5}, {2, 2}, {2, 2, 2, 2}, {1, 1}, 35},
      {{1, 18, 8, 9}, {18, 1, 3, 3}, {1, 1}, {2, 2, 2, 2}, {2, 2}, 18},
  };
  for (const Geometry& g : kinds) {
    for (const bool many : {false, true}) {
      const std::int64_t m = g.filter[0];
      Case linear("QLinearConv", 10);
      bytes(&linear, x, g.image).scalar(kF32, 0.02).scalar(x, 17);
      weight(&linear, w, g.filter);
      if (many) linear.constant(kF32, {m}, 0.001, 0.01).constant(w, {m}, 0, 40);
      else linear.scalar(kF32, 0.004).scalar(w, w == DType::kUint8 ? 128 : 0);
      linear.scalar(kF32, 0.4).scalar(x, 6);
      if (many) linear.constant(kI32, {m}, -9000, 9000);
      linear.ints("strides", g.strides).ints("pads", g.pads).ints("dilations", g.dilations).integer("group", g.group);
      all->push_back(linear);

      Case integer("ConvInteger", 10);
      bytes(&integer, x, g.image);
      weight(&integer, w, g.filter);
      if (many) integer.scalar(x, 5).constant(w, {m}, 0, 40);
      integer.ints("strides", g.strides).ints("pads", g.pads).ints("dilations", g.dilations).integer("group", g.group);
      all->push_back(integer);
    }
  }
  Case line("QLinearConv", 10);
  bytes(&line, x, {2, 9, 40}).scalar(kF32, 0.02).scalar(x, 17);
  weight(&line, w, {11, 9, 5}).scalar(kF32, 0.004).scalar(w, 3).scalar(kF32, 0.4).scalar(x, 6);
  all->push_back(line.ints("pads", {2, 2}));
}

}  // namespace

void add_quantized_cases(Cases* all) {
  for (const DType a : kBytes) {
    for (const DType b : kBytes) {
      add_matrices(all, a, b);
      add_convolutions(all, a, b);
    }
    Case dynamic("com.microsoft::DynamicQuantizeMatMul", 1);
    weight(&dynamic.x({2, 5, 37}), a, {37, 19});
    all->push_back(dynamic.constant(kF32, {19}, 0.001, 0.01).constant(a, {19}, 0, 90).w({19}));
    Case bare("com.microsoft::DynamicQuantizeMatMul", 1);
    weight(&bare.x({9, 64}), a, {64, 20});
    all->push_back(bare.scalar(kF32, 0.004));
  }
}

}  // namespace evn::conformance
