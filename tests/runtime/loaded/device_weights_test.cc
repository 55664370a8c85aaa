// Packed copies on devices whose memory the host cannot write: one is packed while the one before is copied, and they are all that
// the device has of a constant.
#include "tests/runtime/support.h"

namespace evn::test::device_weights_test {
namespace {

constexpr int kNodes = 5;

// kNodes convolutions, one after the other, whose filters are of unlike sizes.
OnnxWriter chain() {
  OnnxWriter m(17);
  m.add_input("x", kF32, {1, 2, 6, 6}).add_output("v" + std::to_string(kNodes));
  std::int64_t channels = 2;
  std::string from = "x";
  for (int i = 1; i <= kNodes; ++i) {
    const std::int64_t made = 2 + i % 3;
    std::vector<float> w(static_cast<std::size_t>(made * channels * 9));
    for (std::size_t k = 0; k < w.size(); ++k) w[k] = static_cast<float>(static_cast<int>(k * 7 % 11) - 5) / 16;
    const std::string number = std::to_string(i);
    m.add_initializer("w" + number, {made, channels, 3, 3}, w);
    m.add_node("Conv", {from, "w" + number}, {"v" + number}, {Attr("pads", std::vector<std::int64_t>{1, 1, 1, 1})},
               "conv" + number);
    from = "v" + number;
    channels = made;
  }
  return m;
}

HostTensor picture() {
  HostTensor x({DType::kFloat32, {1, 2, 6, 6}});
  for (std::size_t i = 0; i < x.as<float>().size(); ++i) x.as<float>()[i] = static_cast<float>(static_cast<int>(i % 13) - 6);
  return x;
}

std::size_t weights_of(const LoadedModel& model) {
  std::size_t bytes = 0;
  for (const Value& v : model.graph().values) bytes += v.constant != nullptr ? v.constant->size_bytes : 0;
  return bytes;
}

using DeviceWeightsTest = RuntimeTest;

TEST_F(DeviceWeightsTest, ADeviceHasNoPlainBytesBesideItsPackedCopies) {
  const auto runtime = make_runtime(two_mocks());
  const ModelPtr model = load(runtime, chain());
  TestSession session(model, "m");
  Device& device = *runtime->find_device("m");
  EXPECT_EQ(mock_counters().uploads, kNodes);
  const std::vector<HostTensor> y = run(session, {picture()});
  EXPECT_EQ(mock_counters().uploads, kNodes + 1);  // and the input
  EXPECT_EQ(mock_counters().packed_reads, kNodes);
  EXPECT_EQ(device.pool().stats().by_class[static_cast<int>(MemoryClass::kPacked)], weights_of(*model));
  EXPECT_EQ(device.pool().stats().by_class[static_cast<int>(MemoryClass::kWeights)], 0U);
  TestSession on_cpu(model, "cpu");
  expect_close(y, run(on_cpu, {picture()}));
  TestSession again(model, "m");  // of the copies that are there
  EXPECT_EQ(mock_counters().uploads, kNodes + 1);
  expect_close(run(again, {picture()}), y, 0, 0);
}

// The error comes when the copy is waited for, which is when a later node is packed.
TEST_F(DeviceWeightsTest, AFailedUploadNamesItsNodeAndLeavesNothing) {
  for (int k = 1; k <= kNodes; ++k) {
    const auto runtime = make_runtime(two_mocks());
    const ModelPtr model = load(runtime, chain());
    mock_settings().fail_call = k;
    std::string node;
    try {
      TestSession session(model, "m");
      ADD_FAILURE() << k;
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_DEVICE_LOST) << e.message;
      node = e.node;
    }
    EXPECT_EQ(node, "conv" + std::to_string(k));
    mock_settings().fail_call = 0;
    EXPECT_EQ(runtime->find_device("m")->pool().stats().current, 0U) << k;
    TestSession session(model, "m");
    TestSession on_cpu(model, "cpu");
    expect_close(run(session, {picture()}), run(on_cpu, {picture()}));
  }
}

}  // namespace
}  // namespace evn::test::device_weights_test
