// Tiles of products and convolutions for GPUs (kernels/tiled.cl): all sizes give the same bits, and the tuner keeps the fastest.
#include <filesystem>

#include "backends/opencl/kernels/tiled.h"
#include "backends/opencl/tuning.h"
#include "tests/backends/opencl/opencl_test.h"

namespace evn::test {

template <>
struct Access<OpenClTuning> {
  static void choose(OpenClTuning& tuning, const OpenClTuning::Shape& shape, std::uint32_t tile) {
    tuning.known_[OpenClTuning::key_of(shape)] = tile;
  }
};

namespace {

std::shared_ptr<OpenClDevice> open_gpu_kernels(const char* tuning = "cached", const std::string& folder = "") {
  DeviceRequest request;
  request.settings.set_text("kernels", "gpu");
  request.settings.set_text("clblast", "never");
  request.settings.set_text("tuning", tuning);
  request.cache_dir = folder;
  return open_opencl(request);
}

// Runs the node with each size of tiles, and compares with the reference.
void expect_same_bits(const Graph& graph, const OpenClTuning::Shape& shape, const char* kernel) {
  NodeRun run(graph, 3);
  const std::vector<float> want = run.reference();
  std::vector<float> first;
  const auto device = open_gpu_kernels();
  for (std::uint32_t tile = 0; tile < kTiles; ++tile) {
    Access<OpenClTuning>::choose(const_cast<OpenClTuning&>(device->tuning()), shape, tile);
    const std::vector<float> y = run.on(*device, kernel);
    if (first.empty()) first = y;
    ASSERT_EQ(y.size(), first.size());
    EXPECT_EQ(std::memcmp(y.data(), first.data(), y.size() * sizeof(float)), 0) << "tile " << tile;
    expect_near(y, want, {1e-5, 1e-5});
  }
}

TEST(OpenClTiles, AllSizesGiveTheSameBitsOfAProduct) {
  EVN_NEEDS_OPENCL();
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{70, 133, 301}, {9, 40, 1000}, {130, 36, 64}, {33, 65, 255}, {128, 128, 256}}) {
    GraphBuilder b;
    b.output(b.node("MatMul", {b.input("x", {m, k}), b.random("w", {k, n})}));
    expect_same_bits(b.build(), {"tiled product", m, n, k, 1}, "matmul");
  }
}

TEST(OpenClTiles, AllSizesGiveTheSameBitsOfAConvolution) {
  EVN_NEEDS_OPENCL();
  for (const std::int64_t channels : {7, 40}) {
    GraphBuilder b;
    const std::vector<std::int64_t> pads{1, 1, 1, 1};
    b.output(b.node("Conv", {b.input("x", {2, channels, 11, 13}), b.random("w", {37, channels, 3, 3})}, {{"pads", pads}}));
    expect_same_bits(b.build(), {"tiled conv", 37, 143, channels * 9, 2}, "conv_direct");
    GraphBuilder points;
    points.output(
        points.node("Conv", {points.input("x", {1, channels * 10, 9, 12}), points.random("w", {66, channels * 10, 1, 1})}));
    expect_same_bits(points.build(), {"tiled points", 66, 108, channels * 10, 1}, "conv_1x1");
  }
}

TEST(OpenClTiles, TilesFitTheLocalMemoryOfTheDevice) {
  constexpr TiledFunctions kMatrices = EVN_TILES("tiled", "product", kCostOfMatrices);
  constexpr std::uint64_t kGuaranteed = 32768, kPlenty = 1 << 20;
  bool differs = false;
  for (const std::int64_t rows : {32, 64, 320, 1024, 4096}) {
    for (const std::int64_t columns : {64, 512, 1024}) {
      for (const std::int64_t depth : {64, 256, 1024}) {
        const int tile = choose_tile(kMatrices, rows, columns, depth, 1, 40, kGuaranteed);
        EXPECT_LE(kMatrices.tiles[tile].local_bytes, kGuaranteed) << rows << " x " << columns << " x " << depth;
        differs |= tile != choose_tile(kMatrices, rows, columns, depth, 1, 40, kPlenty);
      }
    }
  }
  EXPECT_TRUE(differs) << "a larger tile is never the best";
  for (const Tile& tile : kMatrices.tiles) {
    EXPECT_TRUE(can_take(tile, 1024, kPlenty));
    EXPECT_EQ(can_take(tile, 1024, kGuaranteed), tile.local_bytes <= kGuaranteed);
  }
}

TEST(OpenClTiles, ARowHasTheSameBitsAloneAndAmongMany) {
  EVN_NEEDS_OPENCL();
  constexpr std::int64_t kDepth = 333, kColumns = 50;
  const auto device = open_gpu_kernels();
  const auto product = [](std::int64_t rows) {
    GraphBuilder b;
    b.output(b.node("MatMul", {b.input("x", {rows, kDepth}), b.random("w", {kDepth, kColumns})}));
    return NodeRun(b.build(), 5);
  };
  NodeRun all = product(140);
  const std::vector<float> many = all.on(*device);
  for (const std::int64_t rows : {1, 4, 5, 31, 70}) {
    NodeRun few = product(rows);
    std::copy_n(all.input(0).data.begin(), rows * kDepth, few.input(0).data.begin());
    const std::vector<float> y = few.on(*device);
    EXPECT_EQ(std::memcmp(y.data(), many.data(), y.size() * sizeof(float)), 0) << rows << " rows";
  }
}

TEST(OpenClTiles, HalvesNeedNoExtension) {
  EVN_NEEDS_OPENCL();
  const auto device = open_gpu_kernels();
  std::string why;
  EXPECT_EQ(device->lowest_precision(Precision::kFloat16, &why), Precision::kFloat16) << why;
  for (const std::int64_t rows : {1, 33}) {
    GraphBuilder b;
    b.output(b.node("MatMul", {b.input("x", {rows, 300}), b.constant<float>("w", {300, 45}, random_halves({300, 45}, 9))}));
    check_halves(b.build(), "matmul_half", *device);
  }
  for (const std::int64_t side : {1, 3}) {
    const Shape shape{21, 40, side, side};
    GraphBuilder b;
    b.output(b.node("Conv", {b.input("x", {1, 40, 6, 9}), b.constant<float>("w", shape, random_halves(shape, 9))}));
    check_halves(b.build(), side == 1 ? "conv_1x1_half" : "conv_direct_half", *device);
  }
}

TEST(OpenClTiles, ConvolutionsOfFewPixelsHaveAKernelOfTheirOwn) {
  EVN_NEEDS_OPENCL();
  const auto device = open_gpu_kernels();
  for (const std::int64_t pixels : {1, 3, 4, 5}) {
    for (const std::int64_t groups : {1, 2}) {
      GraphBuilder b;
      const ValueId w = b.random("w", {26, 70 / groups, 1, 1}), bias = b.random("b", {26});
      b.output(b.node("Conv", {b.input("x", {2, 70, 1, pixels}), w, bias}, {{"group", groups}}));
      NodeRun run(b.build(), 3);
      expect_near(run.on(*device, "conv_1x1"), run.reference(), {1e-5, 1e-5});
    }
  }
}

TEST(OpenClTiles, ArraysAreJoinedEightAtATime) {
  EVN_NEEDS_OPENCL();
  const auto device = open_gpu_kernels();
  for (const std::int64_t axis : {0, 1, 2}) {
    for (const int parts : {2, 8, 11, 17}) {
      GraphBuilder b;
      std::vector<ValueId> values;
      for (int i = 0; i < parts; ++i) {
        Shape shape{3, 5, 7};
        shape[static_cast<int>(axis)] = 1 + i % 4;
        values.push_back(b.input("x" + std::to_string(i), shape));
      }
      b.output(b.node("Concat", values, {{"axis", axis}}));
      NodeRun run(b.build(), 3);
      EXPECT_EQ(run.on(*device, "concat"), run.reference()) << parts << " along " << axis;
    }
  }
}

TEST(OpenClTiles, TheTunerMeasuresOnceAndKeepsWhatItFound) {
  EVN_NEEDS_OPENCL();
  std::string folder = (std::filesystem::temp_directory_path() / "evn-tuning-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  GraphBuilder b;
  b.output(b.node("MatMul", {b.input("x", {20, 64}), b.random("w", {64, 40})}));
  NodeRun run(b.build(), 3);
  std::vector<float> plain, tuned;
  {
    const auto device = open_gpu_kernels("cached", folder);
    plain = run.on(*device);
    EXPECT_EQ(device->tuning().known(), 0u) << "nothing is measured unasked";
  }
  {
    const auto device = open_gpu_kernels("measure", folder);
    tuned = run.on(*device);
    EXPECT_EQ(device->tuning().known(), 1u);
    EXPECT_EQ(run.on(*device), tuned);
    EXPECT_EQ(device->tuning().known(), 1u);
  }
  EXPECT_EQ(plain, tuned);
  const auto device = open_gpu_kernels("cached", folder);
  EXPECT_EQ(device->tuning().known(), 1u);
  EXPECT_EQ(open_gpu_kernels("off", folder)->tuning().known(), 0u);
  const int found = device->tuning().find({"tiled product", 20, 40, 64, 1});
  EXPECT_GE(found, 0);
  EXPECT_LT(found, kTiles);
  EXPECT_EQ(run.on(*device), plain);
  std::filesystem::remove_all(folder);
}

// A device with a tuner, whose queue of kernels hangs behind a copy.
struct OpenClTuner : testing::Test {
  std::unique_ptr<OpenClDriver> driver;
  std::shared_ptr<OpenClDevice> device;
  PooledMemory memory;
  std::unique_ptr<NodeRun> product;

  void SetUp() override {
    EVN_NEEDS_OPENCL();
    driver = std::make_unique<OpenClDriver>();
    device = open_gpu_kernels("measure");
    device->begin_quarantines({}, 1);
    memory = device->allocate(128, MemoryClass::kTensors);
    GraphBuilder b;
    b.output(b.node("MatMul", {b.input("x", {20, 64}), b.random("w", {64, 40})}));
    product = std::make_unique<NodeRun>(b.build(), 3);
  }
  void TearDown() override {
    if (driver != nullptr) driver->let_go();
    memory = PooledMemory();
    device.reset();
  }
  Event copy() {
    const Location first{device.get(), {memory.memory(), 0, 64}}, second{device.get(), {memory.memory(), 64, 64}};
    return device->copy(first, second, {});
  }
  Event hang() {
    driver->count_anew();
    driver->hold();
    const Event hangs = copy();
    EXPECT_TRUE(driver->holds());
    return hangs;
  }
};

TEST_F(OpenClTuner, MeasuringEndsWithItsTimeAndWithTheQuarantine) {
  for (const bool is_left : {false, true}) {
    const Event hangs = hang();
    if (is_left) device->leave_until(hangs, std::make_shared<int>(1));
    EXPECT_EQ(status_within(*driver, is_left ? 0 : 20'000'000, [&] { product->on(*device); }),
              is_left ? EVN_ERROR_DEVICE_LOST : EVN_ERROR_TIMEOUT);
    EXPECT_EQ(device->tuning().known(), 0u);
    driver->let_go();
    EXPECT_TRUE(eventually([&] { return !device->is_out(); }));
  }
  expect_near(product->on(*device), product->reference(), {1e-5, 1e-5});
  EXPECT_EQ(device->tuning().known(), 1u);
}

// The thread that measures has the device's lock.
TEST_F(OpenClTuner, OthersWaitForAMeasurementNoLongerThanTheirTime) {
  hang();
  std::thread measures([&] { product->on(*device); });
  EXPECT_TRUE(eventually([&] { return driver->calls(OpenClDriver::kKernel) > 0; }));
  EXPECT_EQ(status_within(*driver, 20'000'000, [&] { copy(); }), EVN_ERROR_TIMEOUT);
  driver->let_go();
  measures.join();
  EXPECT_EQ(device->tuning().known(), 1u);
}

}  // namespace
}  // namespace evn::test
