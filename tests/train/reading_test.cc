// Reading and analysis of a trainer's model: how soon they end when their work must stop.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/error.h"
#include "train/buffers.h"
#include "train/onnx.h"
#include "train/ways.h"

namespace evn_train {
namespace {

// A chain of products, each with a weight of its own.
struct Chain {
  explicit Chain(std::size_t length) {
    for (std::size_t i = 0; i < length; ++i) {
      const std::string n = std::to_string(i);
      OnnxNode& node = model.nodes.emplace_back();
      node.op_type = "Mul";
      node.name = "mul" + n;
      node.inputs = {i == 0 ? "x" : "v" + std::to_string(i - 1), "w" + n};
      node.outputs = {"v" + n};
      model.initializers.push_back(constant("w" + n, kFloat, {2}, {bytes, sizeof bytes}));
    }
    model.inputs.push_back(tensor_value("x", kFloat, {2}));
    model.outputs.push_back(tensor_value("v" + std::to_string(length - 1), kFloat, {2}));
  }
  char bytes[8] = {};
  OnnxModel model;
};

// Runs `work` to its end, and then with a request that is there from the beginning.
template <typename F>
void expect_stoppable(const char* what, F&& work) {
  const evn::Cancel never;
  {
    const evn::CancelScope scope(never);
    work();
    EXPECT_GT(scope.work(), 4 * evn::kWorkPerLook) << what;
    EXPECT_LE(scope.longest(), 2 * evn::kWorkPerLook) << what;
  }
  const std::atomic<bool> requested{true};
  evn::Cancel cancel;
  cancel.requested = &requested;
  const evn::CancelScope scope(cancel);
  evn_status status = EVN_OK;
  try {
    work();
  } catch (const evn::Error& e) {
    status = e.status;
  }
  EXPECT_EQ(status, EVN_ERROR_CANCELLED) << what;
}

TEST(Reading, EndsWhenItMustStop) {
  const Chain chain(4000);
  const std::string bytes = write_onnx(chain.model);
  expect_stoppable("read_onnx", [&] { read_onnx(bytes); });
  const std::string& loss = chain.model.outputs[0].name;
  expect_stoppable("Ways", [&] { EXPECT_TRUE(Ways(chain.model, loss).of("w0").is_smooth); });
  expect_stoppable("BufferFinder", [&] { BufferFinder(chain.model); });
}

TEST(Reading, ALookAtATableEndsWhenItMustStop) {
  const std::vector<float> ramp = [] {
    std::vector<float> values(200'000);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    return values;
  }();
  const std::string_view data(reinterpret_cast<const char*>(ramp.data()), ramp.size() * sizeof(float));
  const OnnxTensor table = constant("table", kFloat, {static_cast<std::int64_t>(ramp.size())}, data);
  const OnnxModel none;
  const BufferFinder finder(none);
  expect_stoppable("look_at", [&] { EXPECT_EQ(finder.look_at(table).why, "its elements count up"); });
}

Suspicion look_at(const std::vector<float>& values) {
  std::string unaligned = "x";
  unaligned.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  const OnnxModel none;
  return BufferFinder(none).look_at(
      constant("w", kFloat, {static_cast<std::int64_t>(values.size())}, std::string_view(unaligned).substr(1)));
}

TEST(Reading, ElementsTellWhatATensorIs) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(look_at({0, 1, 1, 0}).why, "its elements are 0 and 1");
  EXPECT_EQ(look_at({1, 1, 1, 1}).why, "");
  EXPECT_EQ(look_at({0, 0, 0, 0}).why, "");
  EXPECT_EQ(look_at({3, 4, 5, 6}).why, "its elements count up");
  EXPECT_EQ(look_at({3, 4, 5, 7}).why, "");
  EXPECT_TRUE(look_at({0, -kInfinity}).is_certain);
  EXPECT_FALSE(look_at({0, -kInfinity}).is_finite);
  EXPECT_TRUE(look_at({0, -1e4f}).is_finite);
  EXPECT_FALSE(look_at({0.5f, -1e4f}).is_certain);
  EXPECT_FALSE(look_at({0.5f, std::numeric_limits<float>::quiet_NaN(), 1}).is_finite);
}

}  // namespace
}  // namespace evn_train
