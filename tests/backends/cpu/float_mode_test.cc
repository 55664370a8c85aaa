// What floats below the smallest normal one become in kernels, and that what the host has set for its thread changes nothing and
// stays.
#if defined(__x86_64__)
#include <fenv.h>
#include <xmmintrin.h>

#include <cmath>
#include <thread>

#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

constexpr int kTiles = 64;

struct Answers {
  float product;   // 1e-20 * 1e-20, below the smallest normal float
  float input;     // 1e-40 * 1e10
  float rounded;   // 1 + 2^-24 + 2^-26, which is 1 to nearest and downwards, and more than 1 upwards
  float quotient;  // 1 / 0
};

struct Arithmetic {
  static Refusal supports(const OpDesc&) { return nullptr; }
  static std::size_t packs(const OpDesc&, int) { return 0; }
  static void plan(const OpDesc&, KernelPlan* p) {
    p->tiles = kTiles;
    p->flops = 1e9;  // worth all threads
  }
  static void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel&) {
    volatile float small = 1e-20f, smaller = 1e-40f, large = 1e10f, one = 1, little = 0x1p-24f, zero = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      static_cast<Answers*>(args.scratch.memory)[i] = {small * small, smaller * large, one + little * 0.75f, one / zero};
    }
  }
  static void run_throws(const KernelArgs&, std::int64_t, std::int64_t, const Cancel&) { fail(EVN_ERROR_LIMIT, "a tile"); }
};

std::vector<Answers> run_on(Device& device, const Kernel& kernel, bool strict = false) {
  std::vector<Answers> answers(kTiles);
  KernelPlan plan;
  kernel.plan({}, &plan);
  KernelCall call;
  call.kernel = &kernel;
  OpDesc desc;
  desc.strict = strict;
  call.args.desc = &desc;
  call.args.plan = &plan;
  call.args.scratch = {answers.data(), 0, answers.size() * sizeof(Answers)};
  device.wait(device.enqueue(call, {}));
  return answers;
}

constexpr Kernel kPlain = {
    .name = "plain", .op = "X", .rank = 1, .supports = Arithmetic::supports, .plan = Arithmetic::plan, .run = Arithmetic::run};
constexpr Kernel kPacking = {.name = "packing",
                             .op = "X",
                             .rank = 1,
                             .supports = Arithmetic::supports,
                             .prepack_bytes = Arithmetic::packs,
                             .plan = Arithmetic::plan,
                             .run = Arithmetic::run};

void expect_answers(const std::vector<Answers>& answers, float input) {
  for (const Answers& a : answers) {
    EXPECT_EQ(a.product, 0);
    EXPECT_EQ(a.input, input);
    EXPECT_EQ(a.rounded, 1);
    EXPECT_TRUE(std::isinf(a.quotient));
  }
}

TEST(FloatMode, ResultsThatAreTooSmallAreZeroAndInputsStay) {
  for (int threads : {1, 3}) expect_answers(run_on(*cpu_device(threads), kPlain), 1e-40f * 1e10f);
}

TEST(FloatMode, WithPackedConstantsInputsThatAreTooSmallAreZeroToo) {
  for (int threads : {1, 3}) expect_answers(run_on(*cpu_device(threads), kPacking), 0);
}

TEST(FloatMode, StrictStepsKeepAll) {
  for (int threads : {1, 3}) {
    const auto device = cpu_device(threads);
    for (const Kernel* kernel : {&kPlain, &kPacking}) {
      for (const Answers& a : run_on(*device, *kernel, true)) {
        EXPECT_EQ(a.product, 1e-20f * 1e-20f);
        EXPECT_EQ(a.input, 1e-40f * 1e10f);
        EXPECT_EQ(a.rounded, 1);
      }
      for (const Answers& a : run_on(*device, *kernel)) EXPECT_EQ(a.product, 0);
    }
  }
}

// The device is opened and used by a thread that rounds upwards, flushes inputs and traps divisions by zero: its pool would inherit
// that.
TEST(FloatMode, WhatTheHostHasSetChangesNothingAndStays) {
  for (int threads : {1, 3}) {
    std::thread([threads] {
      feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
      _MM_SET_ROUNDING_MODE(_MM_ROUND_UP);
      _mm_setcsr(_mm_getcsr() | 0x0040);
      const unsigned int before = _mm_getcsr() & ~0x3fu;
      const auto device = cpu_device(threads);
      const std::vector<Answers> answers = run_on(*device, kPlain);
      EXPECT_EQ(_mm_getcsr() & ~0x3fu, before);
      Kernel throws = kPlain;
      throws.run = Arithmetic::run_throws;
      EXPECT_THROW(run_on(*device, throws), Error);
      EXPECT_EQ(_mm_getcsr() & ~0x3fu, before);
      _mm_setcsr(0x1f80);
      expect_answers(answers, 1e-40f * 1e10f);
    }).join();
  }
}

TEST(FloatMode, ReferenceKernelsKeepWhatIsSmall) {
  const auto device = cpu_device(1);
  Node node;
  node.op = find_op("", "Mul", 14);
  ASSERT_NE(node.op, nullptr);
  const float x = 1e-20f;
  float product = -1;
  const TensorDesc one{DType::kFloat32, Shape{1}};
  const TensorDesc inputs[] = {one, one}, outputs[] = {one};
  const WeightPtr constants[2];
  const OpDesc desc{&node, inputs, outputs, constants};
  const Kernel* const kernel = device->reference_kernel(desc);
  ASSERT_NE(kernel, nullptr);
  KernelPlan plan;
  kernel->plan(desc, &plan);
  Buffer from[] = {{const_cast<float*>(&x), 0, 4}, {const_cast<float*>(&x), 0, 4}}, to[] = {{&product, 0, 4}};
  KernelCall call;
  call.kernel = kernel;
  call.args.desc = &desc;
  call.args.plan = &plan;
  call.args.inputs = from;
  call.args.outputs = to;
  device->wait(device->enqueue(call, {}));
  EXPECT_GT(product, 0);
}

}  // namespace
}  // namespace evn::test
#endif
