// Calls of a quantizer end at the next look after their deadline, and their work grows with the size of the model and not with its
// square.
#include "runtime/quantize/quantizer.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/runtime/support.h"
#include "tests/support/test_clock.h"

namespace evn::test {
namespace {

// Products with matrices of so many rows and columns, and a Tanh behind each, which keeps values from growing and vanishing.
std::string chain_of_products(int products, std::int64_t size) {
  OnnxWriter w(21, 10);
  w.add_input("x", kF32, {"n", Dim(size)}).add_output("y", kF32);
  std::string from = "x";
  for (int i = 0; i < products; ++i) {
    const std::string k = std::to_string(i), to = i + 1 == products ? "y" : "t" + k;
    std::vector<float> weight;
    for (std::int64_t e = 0; e < size * size; ++e) weight.push_back(0.1f * static_cast<float>(e * 7919 % 13 - 6));
    w.add_initializer("w" + k, {size, size}, weight);
    w.add_node("MatMul", {from, "w" + k}, {"p" + k}, {}, "product" + k).add_node("Tanh", {"p" + k}, {to}, {}, "tanh" + k);
    from = to;
  }
  return w.serialize();
}

// A quantizer, and a batch of so many rows for it.
struct Subject {
  std::shared_ptr<Runtime> runtime = make_runtime({}, 0, 1);
  std::string bytes;
  QuantizerRequest request;
  std::unique_ptr<Quantizer> quantizer;
  std::vector<RunValue> batch;

  Subject(std::string model, QuantMode mode, std::int64_t rows, std::int64_t columns) : bytes(std::move(model)) {
    request.source.data = bytes.data();
    request.source.size = bytes.size();
    request.mode = mode;
    if (mode == QuantMode::kWeights) request.weight_bits = 4;
    if (mode == QuantMode::kStatic) request.calibration = Calibration::kEntropy;
    auto tensor = std::make_shared<Tensor>(runtime, &runtime->cpu(), TensorDesc{DType::kFloat32, {rows, columns}}, false);
    auto* const to = static_cast<float*>(tensor->buffer().address());
    for (std::int64_t i = 0; i < rows * columns; ++i) to[i] = 0.1f * static_cast<float>(i * 7919 % 17 - 8);
    batch.push_back({std::move(tensor), nullptr});
  }

  void create() { quantizer = std::make_unique<Quantizer>(runtime, request); }
  void calibrate() {
    if (request.mode == QuantMode::kStatic) quantizer->add_batch(batch);
  }
  void finish() { quantizer->finish(); }
};

// Calls the stage with a deadline that passes after a part of its looks, for several parts; each time it ends soon.
void expect_stops(const std::function<void()>& prepare, const std::function<void()>& stage, std::int64_t least_looks) {
  constexpr int kParts = 8;
  TestClock clock;
  Cancel cancel;
  cancel.deadline_ns = UINT64_MAX / 2;
  prepare();
  clock.restart();
  {
    const CancelScope scope(cancel);
    stage();
  }
  const std::int64_t looks = clock.looks();
  EXPECT_GE(looks, least_looks);
  for (int part = 0; part < kParts; ++part) {
    clock.restart();
    prepare();
    clock.restart(looks * part / kParts);
    const CancelScope scope(cancel);
    EXPECT_THROW(stage(), Error) << part;
    EXPECT_LE(clock.looks(), looks * part / kParts + 4) << part;
  }
}

TEST(QuantizerStopTest, WeightsOfBlocks) {
  constexpr std::int64_t kSize = 512;
  Subject s(chain_of_products(1, kSize), QuantMode::kWeights, 1, kSize);
  expect_stops([&] { s.create(); }, [&] { s.finish(); }, 10 * kSize * kSize / kWorkPerLook);
}

TEST(QuantizerStopTest, CalibrationAndRanges) {
  constexpr std::int64_t kRows = 4096, kSize = 16;
  constexpr int kProducts = 8;
  Subject s(chain_of_products(kProducts, kSize), QuantMode::kStatic, kRows, kSize);
  expect_stops([&] { s.create(); }, [&] { s.calibrate(); }, kProducts * kRows * kSize / kWorkPerLook);
  const auto calibrate = [&] {
    s.create();
    s.calibrate();
  };
  expect_stops(
      calibrate, [&] { s.finish(); }, kProducts * 40 * 2 * Observer::kHalf / kWorkPerLook);
}

TEST(QuantizerGrowthTest, CallsGrowWithTheModel) {
  constexpr int kSize = 300;
  constexpr std::int64_t kRows = 4, kColumns = 32;
  constexpr double kMostGrowth = 2.7;
  constexpr const char* kCalls[] = {"create", "add a batch", "finish"};
  for (const QuantMode mode : {QuantMode::kStatic, QuantMode::kDynamic, QuantMode::kWeights, QuantMode::kFloat16}) {
    const auto units_of_calls = [&](int products) {
      Subject s(chain_of_products(products, kColumns), mode, kRows, kColumns);
      std::vector<std::int64_t> units;
      for (const std::function<void()>& call :
           {std::function<void()>([&] { s.create(); }), std::function<void()>([&] { s.calibrate(); }),
            std::function<void()>([&] { s.finish(); })}) {
        const Cancel never;
        const CancelScope scope(never);
        call();
        EXPECT_LE(scope.longest(), 2 * kWorkPerLook);
        units.push_back(scope.work());
      }
      return units;
    };
    const std::vector<std::int64_t> small = units_of_calls(kSize), large = units_of_calls(2 * kSize);
    for (std::size_t i = 0; i < small.size(); ++i) {
      EXPECT_LE(static_cast<double>(large[i]), kMostGrowth * static_cast<double>(small[i]) + 4 * kWorkPerLook)
          << kCalls[i] << ", mode " << static_cast<int>(mode);
    }
  }
}

}  // namespace
}  // namespace evn::test
