// Products of bytes that are large enough to be cut: into rows, columns, lines of an image and parts of a line, on every
// instruction set and with several threads.
#include "backends/cpu/qconv/qdepthwise_loops.h"
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

template <typename T>
std::vector<T> draw(const Shape& shape, std::uint64_t seed) {
  Random random(seed);
  std::vector<T> values(static_cast<std::size_t>(shape.elements()));
  for (T& v : values) v = static_cast<T>(random.next() >> 24 & 0xfff);
  return values;
}

template <typename T>
void check_matrix(std::int64_t m, std::int64_t k, std::int64_t n) {
  const Shape a{m, k}, b{k, n};
  KernelCheck check("QLinearMatMul");
  check.input_of(a, draw<T>(a, 1)).input_of(Shape{}, std::vector{0.02f}, true).input_of(Shape{}, std::vector<T>{100}, true);
  check.input_of(b, draw<std::int8_t>(b, 2), true).input_of(Shape{}, std::vector{0.01f}, true);
  check.input_of(Shape{}, std::vector<std::int8_t>{3}, true).input_of(Shape{}, std::vector{2.0f}, true);
  check.input_of(Shape{}, std::vector<T>{90}, true).kernel("qlinear_matmul_packed").run();
}

template <typename T>
void check_conv(const Shape& x, const Shape& w, std::vector<std::int64_t> pads, std::int64_t group, const char* kernel) {
  KernelCheck check("QLinearConv");
  const Shape bias{w[0]};
  check.input_of(x, draw<T>(x, 1)).input_of(Shape{}, std::vector{0.02f}, true).input_of(Shape{}, std::vector<T>{100}, true);
  check.input_of(w, draw<std::int8_t>(w, 2), true).input_of(Shape{}, std::vector{0.01f}, true);
  check.input_of(Shape{}, std::vector<std::int8_t>{0}, true).input_of(Shape{}, std::vector{group > 2 ? 0.2f : 1.0f}, true);
  check.input_of(Shape{}, std::vector<T>{90}, true).input_of(bias, draw<std::int32_t>(bias, 3), true);
  check.ints("pads", std::move(pads)).integer("group", group).kernel(kernel).run();
}

TEST(QuantizedProduct, CutIntoColumnsIsTheReference) {
  check_matrix<std::uint8_t>(40, 1024, 1000);
  check_matrix<std::int8_t>(1, 1500, 1999);
}
TEST(QuantizedProduct, CutIntoRowsIsTheReference) {
  check_matrix<std::uint8_t>(1030, 256, 200);
  check_matrix<std::int8_t>(1030, 250, 200);
}

// A computed B, which tiles pack: several products, one that is cut into columns, and one of many rows.
template <typename T>
void check_computed(const Shape& a, const Shape& b) {
  KernelCheck check("QLinearMatMul");
  check.input_of(a, draw<T>(a, 1)).input_of(Shape{}, std::vector{0.02f}, true).input_of(Shape{}, std::vector<T>{100}, true);
  check.input_of(b, draw<T>(b, 2)).input_of(Shape{}, std::vector{0.01f}, true);
  check.input_of(Shape{}, std::vector<T>{3}, true).input_of(Shape{}, std::vector{2.0f}, true);
  check.input_of(Shape{}, std::vector<T>{90}, true).kernel("qlinear_matmul_packed").run();
}
TEST(QuantizedProduct, ByComputedMatricesIsTheReference) {
  check_computed<std::uint8_t>({6, 70, 64}, {6, 64, 75});
  check_computed<std::int8_t>({33, 300}, {300, 1000});
  check_computed<std::uint8_t>({2, 1500, 61}, {61, 100});
  check_computed<std::int8_t>({1, 700, 64}, {2, 64, 130});
}

constexpr const char* kDense = "qlinear_conv_nhwc";
TEST(QuantizedConv, CutIntoChannelsIsTheReference) {
  check_conv<std::uint8_t>({1, 64, 14, 14}, {330, 64, 3, 3}, {1, 1, 1, 1}, 1, kDense);
}
TEST(QuantizedConv, CutIntoLinesIsTheReference) {
  check_conv<std::int8_t>({1, 16, 41, 40}, {50, 16, 5, 5}, {2, 2, 2, 2}, 1, kDense);
}
TEST(QuantizedConv, CutIntoPartsOfALineIsTheReference) {
  check_conv<std::uint8_t>({1, 32, 3000}, {64, 32, 5}, {2, 2}, 1, kDense);
  check_conv<std::uint8_t>({1, 64, 50, 50}, {200, 64, 1, 1}, {0, 0, 0, 0}, 1, kDense);  // nothing is copied
  check_conv<std::int8_t>({1, 64, 50, 50}, {200, 64, 1, 1}, {0, 0, 0, 0}, 1, kDense);
}
TEST(QuantizedConv, GroupsOfSeveralImagesAreTheReference) {
  check_conv<std::uint8_t>({3, 24, 20, 20}, {80, 12, 3, 3}, {1, 1, 1, 1}, 2, kDense);
}

// By transforms, where bytes are widened: lines and columns that are no whole tiles, channels that are no whole vectors, odd ones,
// several images, edges further out than a window.
template <typename T>
void check_winograd(const Shape& x, const Shape& w, std::vector<std::int64_t> pads, const std::vector<T>& pixels,
                    const std::vector<std::int8_t>& weight) {
  KernelCheck check("QLinearConv");
  const Shape bias{w[0]};
  std::vector<float> scales(static_cast<std::size_t>(w[0]));
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.0005f + 0.0001f * static_cast<float>(i % 37);
  check.input_of(x, pixels).input_of(Shape{}, std::vector{0.02f}, true).input_of(Shape{}, std::vector<T>{100}, true);
  check.input_of(w, weight, true).input_of(bias, scales, true).input_of(bias, std::vector<std::int8_t>(scales.size()), true);
  check.input_of(Shape{}, std::vector{0.02f * static_cast<float>(w[1]) / 16}, true).input_of(Shape{}, std::vector<T>{90}, true);
  check.input_of(bias, draw<std::int32_t>(bias, 3), true).ints("pads", std::move(pads));
  check.only({Isa::k_avx2, Isa::k_avx512}).kernel("qlinear_conv_winograd").run();
}
template <typename T>
void check_winograd(const Shape& x, const Shape& w, std::vector<std::int64_t> pads) {
  check_winograd<T>(x, w, std::move(pads), draw<T>(x, 1), draw<std::int8_t>(w, 2));
}

TEST(QuantizedConv, WinogradIsTheReference) {
  check_winograd<std::uint8_t>({1, 64, 12, 12}, {64, 64, 3, 3}, {1, 1, 1, 1});
  check_winograd<std::int8_t>({2, 16, 13, 15}, {16, 16, 3, 3}, {1, 1, 1, 1});
  check_winograd<std::uint8_t>({1, 33, 30, 29}, {70, 33, 3, 3}, {0, 0, 0, 0});
  check_winograd<std::int8_t>({1, 47, 17, 14}, {130, 47, 3, 3}, {2, 2, 0, 1});
  check_winograd<std::uint8_t>({3, 96, 9, 12}, {100, 96, 3, 3}, {1, 1, 1, 1});
  check_winograd<std::uint8_t>({1, 17, 14, 14}, {24, 17, 3, 3}, {5, 6, 5, 7});
  check_winograd<std::uint8_t>({1, 32, 80, 80}, {144, 32, 3, 3}, {1, 1, 1, 1});
}

// The largest sums, which only parts of the channels hold: all weights 127, or -128, or of signs that do not end each other's sums.
TEST(QuantizedConv, WinogradOfTheLargestSumsIsTheReference) {
  for (const std::int64_t channels : {112, 113, 115, 116, 228, 300}) {
    const Shape x{1, channels, 12, 13}, w{18, channels, 3, 3};
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(x.elements()), 255);
    std::vector<std::int8_t> weight(static_cast<std::size_t>(w.elements()));
    const std::int64_t filter = channels * 9;
    for (std::int64_t i = 0; i < w.elements(); ++i) {
      const std::int64_t column = i / filter, at = i % filter;
      weight[static_cast<std::size_t>(i)] = column % 3 == 0 ? 127 : column % 3 == 1 ? -128 : at < filter / 2 ? 127 : -128;
    }
    check_winograd<std::uint8_t>(x, w, {1, 1, 1, 1}, pixels, weight);
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = i * 2654435761u >> 31 & 1u ? 255 : 0;
    check_winograd<std::uint8_t>(x, w, {1, 1, 1, 1}, pixels, weight);
  }
}

constexpr const char* kDepthwise = "qlinear_conv_depthwise";
TEST(QuantizedConv, CutDepthwiseIsTheReference) {
  check_conv<std::uint8_t>({2, 70, 60, 61}, {70, 1, 3, 3}, {1, 1, 1, 1}, 70, kDepthwise);
  check_conv<std::int8_t>({1, 130, 3000}, {130, 1, 5}, {2, 2}, 130, kDepthwise);
}

// Lines of fewer and of more positions than are summed at once, whole and not, of all kernels that have loops of their own, and
// such that have none; the largest sums.
TEST(QuantizedConv, DepthwiseOfEveryFormIsTheReference) {
  struct Form {
    std::int64_t kernel, stride, dilation;
  };
  for (const Form& f : {Form{3, 1, 1}, Form{3, 2, 1}, Form{5, 1, 1}, Form{5, 2, 1}, Form{3, 1, 2}, Form{3, 3, 1}, Form{7, 1, 1}}) {
    for (const std::int64_t channels : {21, 32, 47, 96}) {
      for (const std::int64_t width : {f.stride, 6 * f.stride, 7 * f.stride, 16 * f.stride - 1}) {
        const Shape x{1, channels, 5, width}, w{channels, 1, f.kernel, f.kernel}, bias{channels};
        const std::int64_t pad = f.kernel / 2 * f.dilation;
        for (const bool largest : {false, true}) {
          KernelCheck check("QLinearConv");
          const std::vector<std::uint8_t> pixels(static_cast<std::size_t>(x.elements()), 255);
          check.input_of(x, largest ? pixels : draw<std::uint8_t>(x, 1)).input_of(Shape{}, std::vector{0.02f}, true);
          check.input_of(Shape{}, std::vector<std::uint8_t>{100}, true);
          check.input_of(
              w, largest ? std::vector<std::int8_t>(static_cast<std::size_t>(w.elements()), -128) : draw<std::int8_t>(w, 2), true);
          check.input_of(Shape{}, std::vector{0.01f}, true)
              .input_of(Shape{}, std::vector<std::int8_t>{largest ? std::int8_t{127} : std::int8_t{3}}, true);
          check.input_of(Shape{}, std::vector{largest ? 20.0f : 0.5f}, true)
              .input_of(Shape{}, std::vector<std::uint8_t>{largest ? std::uint8_t{250} : std::uint8_t{90}}, true);
          check.input_of(bias, draw<std::int32_t>(bias, 3), true)
              .ints("pads", {pad, pad, pad, pad})
              .ints("strides", {f.stride, f.stride});
          check.ints("dilations", {f.dilation, f.dilation}).integer("group", channels).kernel("qlinear_conv_depthwise").run();
        }
      }
    }
  }
}

// Of kernels, strides and dilations, channels that are whole blocks, repeated or padded ones, parts of lines, images without edges.
template <typename T>
void check_planes(const Shape& x, const Shape& w, std::int64_t stride, std::vector<std::int64_t> dilations,
                  std::vector<std::int64_t> pads) {
  KernelCheck check("QLinearConv");
  const Shape bias{w[0]};
  std::vector<float> scales(static_cast<std::size_t>(w[0]));
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.002f + 0.0001f * static_cast<float>(i % 37);
  check.input_of(x, draw<T>(x, 1)).input_of(Shape{}, std::vector{0.02f}, true).input_of(Shape{}, std::vector<T>{100}, true);
  check.input_of(w, draw<std::int8_t>(w, 2), true).input_of(bias, scales, true);
  check.input_of(bias, std::vector<std::int8_t>(scales.size()), true).input_of(Shape{}, std::vector{0.05f}, true);
  check.input_of(Shape{}, std::vector<T>{90}, true).input_of(bias, draw<std::int32_t>(bias, 3), true);
  check.ints("pads", std::move(pads))
      .ints("strides", {stride, stride})
      .ints("dilations", std::move(dilations))
      .integer("group", w[0]);
  check.only({Isa::k_avx512_vnni, Isa::k_avx512_amx}).kernel("qlinear_conv_depthwise_planes").run();
}

TEST(QuantizedConv, DepthwiseByPlanesIsTheReference) {
  check_planes<std::uint8_t>({2, 32, 23, 61}, {32, 1, 3, 3}, 1, {1, 1}, {1, 1, 1, 1});
  check_planes<std::int8_t>({1, 144, 9, 200}, {144, 1, 3, 3}, 1, {1, 1}, {1, 1, 1, 1});
  check_planes<std::uint8_t>({1, 144, 14, 15}, {144, 1, 5, 5}, 1, {1, 1}, {2, 2, 2, 2});
  check_planes<std::int8_t>({1, 96, 30, 31}, {96, 1, 3, 3}, 2, {1, 1}, {0, 0, 1, 1});
  check_planes<std::uint8_t>({1, 240, 15, 17}, {240, 1, 5, 5}, 2, {1, 1}, {1, 2, 2, 1});
  check_planes<std::uint8_t>({1, 960, 7, 7}, {960, 1, 3, 3}, 1, {1, 1}, {1, 1, 1, 1});
  check_planes<std::int8_t>({1, 48, 19, 18}, {48, 1, 7, 3}, 1, {1, 2}, {3, 2, 3, 2});
  check_planes<std::uint8_t>({1, 64, 19, 18}, {64, 1, 3, 3}, 1, {3, 2}, {3, 2, 3, 2});
  check_planes<std::uint8_t>({1, 16, 2, 3}, {16, 1, 2, 2}, 1, {1, 1}, {0, 0, 0, 0});
}

// In a cascade the input of an output line beyond the last one may not exist yet. Here no memory is where that line would be.
TEST(QuantizedConv, DepthwiseByPlanesReadsTheLinesOfItsOutputsAlone) {
  if (!isa_available(Isa::k_avx512_vnni)) GTEST_SKIP() << "this machine has no avx512_vnni";
  constexpr std::int64_t kPositions = 3, kLine = kPositions * simd_qdepthwise::kBlock, kPlane = kLine + 192;
  alignas(64) std::uint8_t image[kLine] = {}, planes[4 * kPlane] = {}, out[kLine] = {};
  alignas(64) const std::int8_t weight[2 * 4 * simd_qdepthwise::kBlock] = {};
  alignas(64) const std::int32_t start[simd_qdepthwise::kBlock] = {};
  alignas(64) const float scale[simd_qdepthwise::kBlock] = {};
  simd_qdepthwise::PlaneTile t{};
  t.image = t.pad_line = image;
  t.height = 2;
  t.image_line = std::int64_t{1} << 46;
  t.kernel_lines = t.kernel_width = t.stride_y = t.dilation_y = 1;
  t.lines = 1;
  t.together = 2;
  t.inside = t.all = t.line_c = kLine;
  t.planes = planes;
  t.plane = kPlane;
  t.blocks = 1;
  t.positions = kPositions;
  t.valid = t.step_in = t.step_out = t.tap = simd_qdepthwise::kBlock;
  t.weight = weight;
  t.start = start;
  t.scale = scale;
  t.zero = 5;
  t.c = out;
  simd_qdepthwise::loops(Isa::k_avx512_vnni).run_planes(t);
  for (const std::uint8_t v : out) EXPECT_EQ(v, 5);
}

}  // namespace
}  // namespace evn::test
