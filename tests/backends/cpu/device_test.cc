// The CPU device itself: kernel tables, choice of instruction sets, copies, cancellation.
#include <map>
#include <set>

#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

TEST(CpuDevice, NoTwoKernelsOfAnOperatorHaveTheSameRank) {
  std::map<std::pair<std::string, std::string>, std::set<int>> ranks;
  for (const KernelFamily* family : cpu_device(1)->kernels()) {
    for (const Kernel& k : family->kernels) {
      const bool first = ranks[{k.domain, k.op}].insert(k.rank).second;
      EXPECT_TRUE(first) << k.name << " ties at rank " << k.rank;
      EXPECT_GT(k.rank, 0) << k.name << ": rank 0 is the reference's";
    }
  }
  EXPECT_GT(ranks.size(), 30u);
}

TEST(CpuDevice, KernelNamesAreUnique) {
  std::set<std::string> names = {"reference"};
  for (const KernelFamily* family : cpu_device(1)->kernels()) {
    for (const Kernel& k : family->kernels) EXPECT_TRUE(names.insert(k.name).second) << k.name;
  }
}

TEST(CpuDevice, EveryKernelIsOfAKnownOperator) {
  for (const KernelFamily* family : cpu_device(1)->kernels()) {
    for (const Kernel& k : family->kernels) EXPECT_TRUE(op_known(k.domain, k.op)) << k.name;
  }
}

TEST(CpuDevice, BaselineIsAlwaysAvailable) {
  EXPECT_TRUE(isa_available(Isa::k_baseline));
  EXPECT_TRUE(isa_available(cpu_isa()));
  EXPECT_STREQ(isa_name(Isa::k_avx512), "avx512");
}

std::string refusal_of_isa(const std::string& name) {
  try {
    choose_isa(name);
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_INVALID_ARGUMENT);
    return e.message;
  }
  return "";
}

TEST(CpuDevice, AnInstructionSetThatIsNamedIsTakenOrRefusedWithAListOfThoseThereAre) {
  const auto is_listed = [](const std::string& message, const char* name) {
    return ("," + message.substr(message.rfind(':') + 1) + ",").find(std::string(", ") + name + ",") != std::string::npos;
  };
  for (const char* unknown : {"avx_vnni", "AVX2", "avx2 ", "avx", "avx5120", "none"}) {
    const std::string message = refusal_of_isa(unknown);
    EXPECT_NE(message.find("EVN_CPU_ISA: there is no instruction set \"" + std::string(unknown) + "\""), std::string::npos)
        << message;
    for (const Isa isa : kIsas) {
      if (isa == Isa::k_avx512_amx) continue;  // the system may withhold its tiles
      EXPECT_EQ(is_listed(message, isa_name(isa)), isa_available(isa)) << message;
    }
  }
  for (const Isa isa : kIsas) {
    const std::string message = refusal_of_isa(isa_name(isa));
    if (message.empty()) {
      EXPECT_TRUE(isa_available(isa));
      EXPECT_EQ(choose_isa(isa_name(isa)), isa);
    } else {
      EXPECT_TRUE(!isa_available(isa) || isa == Isa::k_avx512_amx) << message;
      EXPECT_EQ(message.find(std::string("EVN_CPU_ISA: this CPU has no ") + isa_name(isa) + " "), 0u) << message;
      EXPECT_FALSE(is_listed(message, isa_name(isa))) << message;
    }
  }
  EXPECT_TRUE(isa_available(choose_isa("")));
}

TEST(CpuDevice, CopiesBytes) {
  const auto device = cpu_device(2);
  char from[100], to[100] = {};
  for (int i = 0; i < 100; ++i) from[i] = static_cast<char>(i);
  device->wait(device->copy({nullptr, {from, 10, 50}}, {device.get(), {to, 20, 50}}, {}));
  EXPECT_EQ(std::memcmp(to + 20, from + 10, 50), 0);
  EXPECT_EQ(to[19], 0);
  EXPECT_EQ(to[70], 0);
}

TEST(CpuDevice, TraitsSayHowManyThreads) {
  EXPECT_EQ(cpu_device(3)->traits().compute_units, 3u);
  EXPECT_TRUE(cpu_device(1)->traits().host_addressable);
  EXPECT_GE(cpu_device(0)->traits().compute_units, 1u);
}

TEST(CpuDevice, MemoryIsAlignedAndCapped) {
  DeviceRequest request;
  request.name = "small";
  request.settings.set_number("threads", 1);
  request.memory_limit = 1 << 20;
  const auto device = cpu_backend.open(request);
  const PooledMemory block = device->allocate(1000, MemoryClass::kTensors);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.memory()) % 64, 0u);
  try {
    device->allocate(2 << 20, MemoryClass::kTensors);
    FAIL() << "over the cap";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY);
    EXPECT_STREQ(e.device, "small");
  }
}

TEST(CpuDevice, ASecondOneIsUnavailable) {
  DeviceRequest request;
  request.name = "cpu:1";
  request.index = 1;
  try {
    cpu_backend.open(request);
    FAIL() << "a second CPU";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_DEVICE_UNAVAILABLE);
    EXPECT_STREQ(e.device, "cpu:1");
  }
}

struct Counted {
  static inline std::atomic<int> tiles{0};
  static inline CancelToken token;
  static Refusal supports(const OpDesc&) { return nullptr; }
  static void plan(const OpDesc&, KernelPlan* p) { p->tiles = 1000; }
  static void run(const KernelArgs&, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
    for (std::int64_t i = begin; i < end && !cancel.stop(); ++i) {
      if (++tiles == 5) token.requested = true;
    }
  }
  static void run_throws(const KernelArgs&, std::int64_t begin, std::int64_t, const Cancel&) {
    if (begin == 0) fail(EVN_ERROR_LIMIT, "tile 0");
  }
};

TEST(CpuDevice, CancelStopsBetweenTiles) {
  const auto device = cpu_device(1);
  const Kernel kernel = {
      .name = "counted", .op = "X", .rank = 1, .supports = Counted::supports, .plan = Counted::plan, .run = Counted::run};
  KernelPlan plan;
  kernel.plan({}, &plan);
  Cancel cancel;
  cancel.requested = &Counted::token.requested;
  KernelCall call;
  call.kernel = &kernel;
  call.args.plan = &plan;
  call.cancel = &cancel;
  device->enqueue(call, {});
  EXPECT_EQ(Counted::tiles, 5);
}

TEST(CpuDevice, AnErrorOfAKernelComesOutOfEnqueue) {
  for (int threads : {1, 3}) {
    const auto device = cpu_device(threads);
    const Kernel kernel = {
        .name = "throws", .op = "X", .rank = 1, .supports = Counted::supports, .plan = Counted::plan, .run = Counted::run_throws};
    KernelPlan plan;
    kernel.plan({}, &plan);
    KernelCall call;
    call.kernel = &kernel;
    call.args.plan = &plan;
    try {
      device->enqueue(call, {});
      FAIL() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_STREQ(e.message, "tile 0");
    }
  }
}

}  // namespace
}  // namespace evn::test
