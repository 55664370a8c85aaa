// Rows for quantized tensors, which kernels take: products of bytes by constants, sums, pools, tables, float32 to bytes and back.
// Others stand in signal.cc, vision.cc and contrib.cc.
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

// A computed B, and several of them, which broadcast.
void add_computed_matrices(Cases* all, DType a, DType b) {
  struct Sides {
    Shape a, b;
  };
  const Sides sides[] = {{{2, 7, 37}, {37, 19}}, {{3, 5, 64}, {3, 64, 48}},   {{2, 1, 9, 33}, {3, 33, 70}},
                         {{40}, {2, 40, 17}},    {{4, 1, 130}, {1, 130, 16}}, {{1, 150, 20}, {2, 20, 5}}};
  for (const Sides& s : sides) {
    const std::int64_t n = s.b[s.b.rank() - 1];
    for (const bool many : {false, true}) {
      Case linear("QLinearMatMul", 21);
      bytes(&linear, a, s.a).scalar(kF32, 0.02).scalar(a, 17);
      bytes(&linear, b, s.b);
      if (many) linear.constant(kF32, {n}, 0.001, 0.01).constant(b, {n}, 0, 90);
      else linear.scalar(kF32, 0.004).scalar(b, b == DType::kUint8 ? 128 : 0);
      all->push_back(linear.scalar(kF32, 0.9).scalar(a, 7));
    }
    Case integer("MatMulInteger", 10);
    bytes(&integer, a, s.a);
    all->push_back(bytes(&integer, b, s.b).scalar(a, 11));
    Case floats("com.microsoft::MatMulIntegerToFloat", 1);
    bytes(&floats, a, s.a);
    all->push_back(
        bytes(&floats, b, s.b).scalar(kF32, 0.02).constant(kF32, {n}, 0.001, 0.01).scalar(a, 3).constant(b, {n}, 0, 90).w({n}));
  }
  // Several constant matrices, and a sum of 150 rows of -128.
  Case constant("MatMulInteger", 10);
  all->push_back(bytes(&constant, a, {2, 3, 150}).constant(b, {2, 150, 32}, low_of(b), low_of(b) + 2.9).scalar(a, 17));
  Case gemm("com.microsoft::QGemm", 1);
  bytes(&gemm, a, {9, 35}).scalar(kF32, 0.02).scalar(a, 3);
  bytes(&gemm, b, {22, 35}).scalar(kF32, 0.004).scalar(b, 5).in(kI32, {22}, -900, 900);
  all->push_back(gemm.scalar(kF32, 0.9).scalar(a, 9).integer("transB", 1));
}

void add_convolutions(Cases* all, DType x, DType w) {
  struct Geometry {
    Shape image, filter;
    Ints strides, pads, dilations;
    std::int64_t group;
  };
  const Geometry kinds[] = {
      {{2, 24, 5, 7}, {20, 24, 1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},  // a matrix
      {{1, 64, 6, 5}, {33, 64, 1, 1}, {2, 2}, {0, 0, 0, 0}, {1, 1}, 1},  // read in place
      {{2, 13, 9, 8}, {18, 13, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1},
      {{2, 17, 11, 10}, {18, 17, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1},  // 3 x 3 of many channels
      {{1, 3, 12, 11}, {17, 3, 7, 7}, {2, 2}, {3, 3, 3, 3}, {1, 1}, 1},    // a first layer
      {{1, 10, 9, 11}, {12, 10, 3, 3}, {1, 2}, {2, 1, 0, 3}, {2, 2}, 1},
      {{2, 12, 7, 6}, {8, 6, 3, 2}, {1, 1}, {1, 0, 1, 1}, {1, 1}, 2},    // groups
      {{2, 21, 9, 8}, {21, 1, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 21},  // depthwise
      {{1, 32, 9, 8}, {32, 1, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 32},  // whole sixteens of channels
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

      Case floats("evener::ConvIntegerToFloat", 1);
      weight(&bytes(&floats, x, g.image), w, g.filter).scalar(kF32, 0.02);
      if (many) floats.constant(kF32, {m}, 0.001, 0.01).scalar(x, 5).constant(w, {m}, 0, 40).w({m});
      else floats.scalar(kF32, 0.004);
      floats.ints("strides", g.strides).ints("pads", g.pads).ints("dilations", g.dilations).integer("group", g.group);
      all->push_back(floats);
    }
  }
  Case line("QLinearConv", 10);
  bytes(&line, x, {2, 9, 40}).scalar(kF32, 0.02).scalar(x, 17);
  weight(&line, w, {11, 9, 5}).scalar(kF32, 0.004).scalar(w, 3).scalar(kF32, 0.4).scalar(x, 6);
  all->push_back(line.ints("pads", {2, 2}));
  // More taps than segments, in one line: a Fourier transform of short windows, as convolutions do it.
  Case windows("QLinearConv", 10);
  bytes(&windows, x, {2, 1, 700}).scalar(kF32, 0.02).scalar(x, 17);
  weight(&windows, w, {19, 1, 130}).scalar(kF32, 0.004).scalar(w, w == DType::kUint8 ? 128 : 0).scalar(kF32, 0.4).scalar(x, 60);
  all->push_back(windows.ints("strides", {64}));
}

void add_conversions(Cases* all, DType d) {
  const double zero = d == DType::kInt8 ? -9 : 100;
  all->push_back(Case("QuantizeLinear", 13).x({2, 37, 5, 3}, -9, 9).specials().scalar(kF32, 0.05).scalar(d, zero));
  all->push_back(Case("QuantizeLinear", 13).x({3, 70000}, -9, 9).scalar(kF32, 0.05).scalar(d, zero));
  Case bytes_in("DequantizeLinear", 13);
  all->push_back(bytes(&bytes_in, d, {2, 37, 5, 3}).scalar(kF32, 0.05).scalar(d, zero));
  for (const std::int64_t axis : {1, 3, -4}) {
    const Shape shape = {3, 37, 5, 19};
    const Shape one = {shape[static_cast<int>(axis < 0 ? axis + 4 : axis)]};
    all->push_back(
        Case("QuantizeLinear", 13).x(shape, -9, 9).specials().w(one, 0.02, 0.2).constant(d, one, 0, 90).integer("axis", axis));
    Case back("DequantizeLinear", 13);
    all->push_back(bytes(&back, d, shape).w(one, 0.02, 0.2).constant(d, one, 0, 90).integer("axis", axis));
  }
  Case unshifted("DequantizeLinear", 21);
  all->push_back(bytes(&unshifted, d, {5, 40}).w({40}, 0.02, 0.2));
}

void add_sums(Cases* all, DType d) {
  const double zero = d == DType::kInt8 ? -9 : 100;
  const Shape shapes[][2] = {{{2, 37, 4, 5}, {2, 37, 4, 5}},
                             {{2, 37, 4, 5}, {2, 37, 1, 1}},
                             {{1, 16, 4, 5}, {}},
                             {{3, 1, 7}, {2, 1}},
                             {{2, 35000}, {1, 35000}}};
  for (const char* op : {"com.microsoft::QLinearAdd", "com.microsoft::QLinearMul"}) {
    for (const auto& s : shapes) {
      Case sum(op, 1);
      bytes(&sum, d, s[0]).scalar(kF32, 0.021).scalar(d, zero);
      bytes(&sum, d, s[1]).scalar(kF32, 0.013).scalar(d, zero + 5).scalar(kF32, 0.017);
      all->push_back(sum.scalar(d, zero - 3));
    }
    Case special(op, 1);
    bytes(&special, d, {3, 40}).scalar(kF32, 0).absent();
    all->push_back(bytes(&special, d, {3, 40}).scalar(kF32, 0.013).absent().scalar(kF32, 0).flat());  // 0 / 0
  }
}

void add_moves(Cases* all, DType d) {
  for (const Shape& shape : {Shape{3, 300}, Shape{2, 17, 5, 3}, Shape{1, 64, 40, 31}, Shape{}}) {
    Case table("evener::ByteTable", 1);
    bytes(&table, d, shape);
    all->push_back(weight(&table, DType::kUint8, {256}).flat());
  }
  const auto pool = [&](Shape x, Ints kernel, Ints strides, Ints pads, Ints dilations) {
    Case max("MaxPool", 12);
    bytes(&max, d, x);
    all->push_back(max.ints("kernel_shape", kernel).ints("strides", strides).ints("pads", pads).ints("dilations", dilations));
  };
  pool({2, 37, 9, 8}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1});
  pool({1, 5, 9, 8}, {2, 3}, {1, 2}, {0, 2, 1, 0}, {2, 1});
  pool({2, 33, 17}, {3}, {2}, {1, 1}, {1});
  pool({1, 64, 6, 6}, {5, 5}, {1, 1}, {2, 2, 2, 2}, {1, 1});
  for (const Shape& shape : {Shape{2, 70, 7, 7}, Shape{1, 5, 30}, Shape{2, 3, 2, 3, 4}}) {
    Case mean("com.microsoft::QLinearGlobalAveragePool", 1);
    bytes(&mean, d, shape).scalar(kF32, 0.05).scalar(d, 7);
    all->push_back(mean.scalar(kF32, 0.06).scalar(d, 11));
  }
  for (const Floats& scales : {Floats{1, 1, 2, 2}, Floats{1, 1, 0.6f, 1.7f}, Floats{1, 2, 2, 1}}) {
    Case nearest("Resize", 13);
    all->push_back(bytes(&nearest, d, {2, 19, 5, 6}).absent().floats(scales).word("mode", "nearest"));
  }
}

}  // namespace

void add_quantized_cases(Cases* all) {
  // Sums far beyond 2^24, of few rows and of many.
  for (const std::int64_t rows : {3, 11}) {
    Case large("MatMulInteger", 10);
    large.in(DType::kUint8, {rows, 1501}, 245, 255.9).constant(DType::kInt8, {1501, 37}, -128, -110).scalar(DType::kUint8, 1);
    all->push_back(large);
  }
  Case large("ConvInteger", 10);
  all->push_back(large.in(DType::kUint8, {1, 150, 6, 19}, 245, 255.9).constant(DType::kInt8, {11, 150, 3, 3}, -128, -110));
  for (const DType a : kBytes) {
    for (const DType b : kBytes) {
      add_matrices(all, a, b);
      add_computed_matrices(all, a, b);
      add_convolutions(all, a, b);
    }
    add_conversions(all, a);
    add_sums(all, a);
    add_moves(all, a);
    Case dynamic("com.microsoft::DynamicQuantizeMatMul", 1);
    weight(&dynamic.x({2, 5, 37}), a, {37, 19});
    all->push_back(dynamic.constant(kF32, {19}, 0.001, 0.01).constant(a, {19}, 0, 90).w({19}));
    Case bare("com.microsoft::DynamicQuantizeMatMul", 1);
    weight(&bare.x({9, 64}), a, {64, 20});
    all->push_back(bare.scalar(kF32, 0.004));
  }
  all->push_back(Case("DynamicQuantizeLinear", 11).x({3, 37, 5}).specials().outputs(3).flat());
  all->push_back(Case("DynamicQuantizeLinear", 11).x({3, 37, 5}).outputs(3));
  all->push_back(Case("DynamicQuantizeLinear", 11).x({7, 70000}, -3, 9).outputs(3));
  all->push_back(Case("DynamicQuantizeLinear", 11).x({3, 5}, 0, 0).outputs(3).flat());
}

}  // namespace evn::conformance
