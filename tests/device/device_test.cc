// Parts of a device that no backend implements: choosing kernels by rank, claiming nodes one by one, letting go of what a run held,
// and looking for a quarantine while it is waited for.
#include "device/device.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "base/error.h"

namespace evn {
namespace {

Refusal takes(const OpDesc&) { return nullptr; }
Refusal refuses(const OpDesc&) { return "not on Tuesdays"; }
Refusal refuses_too(const OpDesc&) { return "nor on Wednesdays"; }

void plan_nothing(const OpDesc&, KernelPlan*) {}
void run_nothing(const KernelArgs&, std::int64_t, std::int64_t, const Cancel&) {}

constexpr Kernel kernel(const char* name, const char* op, int rank, Refusal (*supports)(const OpDesc&)) {
  return {.name = name, .op = op, .rank = rank, .supports = supports, .plan = plan_nothing, .run = run_nothing};
}

constexpr Kernel rounding(Kernel k) {
  k.operands = Precision::kBfloat16;
  return k;
}

constexpr Kernel foreign(Kernel k) {
  k.domain = "com.example";
  return k;
}

constexpr Kernel kKernels[] = {
    kernel("slow", "Relu", 1, takes),    kernel("fast", "Relu", 5, takes),         rounding(kernel("rounding", "Relu", 9, takes)),
    kernel("first", "Conv", 3, refuses), kernel("second", "Conv", 2, refuses_too), foreign(kernel("foreign", "Sum", 1, takes)),
};
const KernelFamily kFamily = {kKernels};
const KernelFamily* const kFamilies[] = {&kFamily};

class PlainDevice final : public Device {
 public:
  PlainDevice() : Device("plain", UINT64_MAX) {}
  ~PlainDevice() override { close_pool(); }
  void* obtain(std::size_t bytes, bool) override { return ::operator new(bytes, std::nothrow); }
  void give_back(void* memory, std::size_t, bool) noexcept override { ::operator delete(memory); }
  Event copy(const Location&, const Location&, std::span<const Event>) override { return {}; }
  Event enqueue(const KernelCall&, std::span<const Event>) override { return {}; }
  void wait(const Event&) override {
    ++waits;
    if (fails) fail(EVN_ERROR_DEVICE_LOST, "it is gone");
  }
  bool settle(const Cancel& cancel) override { return settles == nullptr || settles(cancel); }
  std::span<const KernelFamily* const> kernels() const override { return kFamilies; }

  int waits = 0;
  bool fails = false;
  std::function<bool(const Cancel&)> settles;
};

Node node_of(const char* op, const char* domain = "") {
  Node node;
  node.op_type = op;
  node.domain = domain;
  return node;
}

const Kernel* found(const Node& node, Precision precision, std::string* reason) {
  PlainDevice device;
  OpDesc desc;
  desc.node = &node;
  desc.precision = precision;
  return device.find_kernel(desc, reason);
}

TEST(Device, TheKernelOfHighestRankRunsANode) {
  std::string reason;
  const Kernel* kernel = found(node_of("Relu"), Precision::kFloat32, &reason);
  ASSERT_NE(kernel, nullptr);
  EXPECT_STREQ(kernel->name, "fast");
  kernel = found(node_of("Relu"), Precision::kBfloat16, &reason);
  ASSERT_NE(kernel, nullptr);
  EXPECT_STREQ(kernel->name, "rounding");
}

TEST(Device, EveryRefusalIsTold) {
  std::string reason;
  EXPECT_EQ(found(node_of("Conv"), Precision::kFloat32, &reason), nullptr);
  EXPECT_EQ(reason, "first: not on Tuesdays; second: nor on Wednesdays");
  reason.clear();
  EXPECT_EQ(found(node_of("Sum"), Precision::kFloat32, &reason), nullptr);
  EXPECT_EQ(reason, "no kernel for Sum");
  EXPECT_NE(found(node_of("Sum", "com.example"), Precision::kFloat32, nullptr), nullptr);
}

TEST(Device, NodesAreClaimedOneByOne) {
  PlainDevice device;
  const Node nodes[] = {node_of("Relu"), node_of("Conv"), node_of("Relu")};
  OpDesc descs[3];
  for (int i = 0; i < 3; ++i) descs[i].node = &nodes[i];
  const Claim claim = device.claim(descs);
  ASSERT_EQ(claim.segments.size(), 2u);
  EXPECT_EQ(claim.segments[0].nodes, std::vector<int>{0});
  EXPECT_EQ(claim.segments[1].nodes, std::vector<int>{2});
  EXPECT_EQ(claim.refusals[1], "first: not on Tuesdays; second: nor on Wednesdays");
}

TEST(Device, WhatARunHeldIsLetGoOfAlsoWhenTheDeviceFails) {
  PlainDevice device;
  for (const bool fails : {false, true}) {
    device.fails = fails;
    device.waits = 0;
    auto held = std::make_shared<int>(1);
    const std::weak_ptr<int> watch = held;
    device.hold_until({&device, 1}, std::move(held));
    EXPECT_TRUE(watch.expired());
    EXPECT_EQ(device.waits, 1);
  }
  const Cancel never{};
  EXPECT_TRUE(device.settle(never));
}

// Another thread leaves work to the device after the first look at its quarantine.
TEST(Device, AQuarantineThatBeginsDuringTheWaitEndsIt) {
  PlainDevice device;
  device.begin_quarantines({}, 1);
  int calls = 0;
  device.settles = [&](const Cancel& cancel) {
    if (++calls == 2) device.quarantine().note_left();
    for (int i = 0; i < 2000; ++i) {
      if (cancel.stop()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  };
  try {
    device.require_ready({});
    ADD_FAILURE() << "the wait has no end while the device hangs";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_DEVICE_LOST);
    device.quarantine().note_ended();
  }
  EXPECT_EQ(calls, 2);
}

TEST(Device, FloatsAreItsLowestPrecisionUnlessItSaysOtherwise) {
  PlainDevice device;
  std::string why;
  EXPECT_EQ(device.lowest_precision(Precision::kBfloat16, &why), Precision::kFloat32);
  EXPECT_NE(why, "");
}

}  // namespace
}  // namespace evn
