// That every kernel of the CPU device looks at its Cancel often enough, whatever the size of a tile is, and stops when it is told to: on
// each instruction set that this machine has, with a clock that counts how often it is asked. Nothing here depends on how fast the
// machine is.
#include "tests/backends/cpu/cancel_cases.h"

#include <algorithm>
#include <functional>
#include <set>

#include "backends/cpu/bands.h"
#include "base/cancel.h"
#include "base/error.h"
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test::cancel_test {
namespace {

using conformance::Case;
using conformance::Operand;

constexpr std::int64_t kMany = 1 << 19;

// ------------------------------------------------------------------------------------------------------- a clock --

// Counts the looks; says that the time is over from one of them on.
struct Clock {
  static constexpr std::uint64_t kDeadline = 2;
  static inline std::int64_t looks, last;

  static std::uint64_t now() { return ++looks < last ? 1 : kDeadline; }
  static void start(std::int64_t last_look) {
    looks = 0;
    last = last_look;
  }
};

constexpr std::int64_t kNever = INT64_MAX;

class Cancelled : public testing::Test {
 protected:
  void SetUp() override { set_deadline_clock(&Clock::now); }
  void TearDown() override { set_deadline_clock(nullptr); }
};

// ---------------------------------------------------------------------------------------------------------- nodes --

template <typename T>
void fill(const Operand& o, Bytes* bytes, Random* random) {
  constexpr std::size_t kPeriod = 65521;  // values, which are then repeated
  const auto count = static_cast<std::size_t>(o.desc.shape.elements());
  const double span = o.high - o.low;
  for (std::size_t i = 0; i < std::min(count, kPeriod); ++i) {
    const double unit = static_cast<double>(random->next() >> 40) / 16777216.0;
    const auto x = static_cast<T>(o.random ? o.low + span * unit : o.literal[i]);
    std::memcpy(bytes->data() + i * sizeof x, &x, sizeof x);
  }
  for (std::size_t i = kPeriod; i < count; i += kPeriod) {
    std::memcpy(bytes->data() + i * sizeof(T), bytes->data(), std::min(kPeriod, count - i) * sizeof(T));
  }
}

Bytes values_of(const Operand& o, Random* random) {
  if (o.desc.dtype == DType::kUndefined) return {};
  Bytes bytes(o.desc.size_bytes());
  switch (o.desc.dtype) {
    case DType::kFloat32: fill<float>(o, &bytes, random); break;
    case DType::kFloat64: fill<double>(o, &bytes, random); break;
    case DType::kInt64: fill<std::int64_t>(o, &bytes, random); break;
    case DType::kInt32: fill<std::int32_t>(o, &bytes, random); break;
    case DType::kInt8: fill<std::int8_t>(o, &bytes, random); break;
    default: fill<std::uint8_t>(o, &bytes, random); break;
  }
  return bytes;
}

KernelSubject subject_of(const CancelCase& c) {
  KernelSubject s;
  Random random(7);
  for (const Operand& o : c.node.operands) add_operand(&s, o.desc, values_of(o, &random), o.constant);
  try {
    finish_subject(&s, c.node.op, c.node.opset, c.node.attributes, c.node.output_count, {});
  } catch (const Error& e) {
    ADD_FAILURE() << e.message;
    s.node.op = nullptr;
  }
  s.precision = c.precision;
  return s;
}

// --------------------------------------------------------------------------------------------------------- bounds --

// What a slow core with the instruction set does in a millisecond: one of 1.5 GHz that gets a third of its multiply-adds of float32
// done (a vector of four in a clock for the baseline), reads and writes 5 GB/s, and has the factor that vpdpbusd, vdpbf16ps or tiles bring.
double flops_of_millisecond(const CancelCase& c, const KernelSubject& s, Isa isa) {
  constexpr double kBaseline = 2 * 1.5e6 * 4 / 3;
  // OpenBLAS, which goes on until some rows are done, gets more of them done.
  if (s.inputs[0].dtype == DType::kFloat64) return isa == Isa::k_baseline ? kBaseline : (isa == Isa::k_avx2 ? 4.5 : 6.5) * kBaseline;
  const bool has_vnni = isa == Isa::k_avx2_vnni || isa == Isa::k_avx512_vnni || isa == Isa::k_avx512_bf16 || isa == Isa::k_avx512_fp16;
  if (isa == Isa::k_avx512_amx && (has_bytes(s) || c.precision != Precision::kFloat32)) return 32 * kBaseline;
  if (has_bytes(s) && has_vnni) return (isa == Isa::k_avx2_vnni ? 4 : 8) * kBaseline;
  return c.precision != Precision::kFloat32 ? 4 * kBaseline : kBaseline;
}
constexpr double kBytesOfMillisecond = 5e6;

// ------------------------------------------------------------------------------------------------------------ runs --

// The part of the outputs' elements, of four bytes, that is as it should be.
double progress(std::span<const Bytes> got, std::span<const Bytes> whole) {
  constexpr std::size_t kElement = 4;
  std::size_t same = 0, all = 0;
  for (std::size_t k = 0; k < got.size(); ++k) {
    for (std::size_t i = 0; i + kElement <= got[k].size(); i += kElement) {
      same += std::memcmp(&got[k][i], &whole[k][i], kElement) == 0 ? 1 : 0;
      ++all;
    }
  }
  return all == 0 ? 0 : static_cast<double>(same) / static_cast<double>(all);
}

// A call that can be made again and again.
struct Call {
  double flops, bytes;     // as the kernel's plan says
  double flops_at_once;    // of a millisecond
  bool gradual;
  std::function<std::vector<Bytes>(const Cancel&)> run;

  std::vector<Bytes> run_until(std::int64_t look) const {
    Cancel cancel;
    cancel.deadline_ns = Clock::kDeadline;
    Clock::start(look);
    return run(cancel);
  }
};

void check(const Call& call) {
  const std::vector<Bytes> whole = call.run_until(kNever);
  const std::int64_t looks = Clock::looks - 1;  // without that of the device
  const double wanted = std::max({call.flops / call.flops_at_once, call.bytes / kBytesOfMillisecond, 3.0});
  EXPECT_GE(static_cast<double>(looks), wanted) << call.flops << " flops, " << call.bytes << " bytes";
  if (looks < 3) return;

  // The first look is the device's own, the second one the kernel's.
  for (const std::int64_t look : {2, 3}) {
    EXPECT_FALSE(call.run_until(look) == whole) << "stopped at look " << look << " of " << looks;
    EXPECT_LE(Clock::looks, look + 2) << "goes on after it is stopped";
  }
  double before = 0;
  for (const int quarter : {1, 2, 3}) {
    const std::vector<Bytes> got = call.run_until(1 + looks * quarter / 4);
    const std::size_t outputs = call.gradual ? got.size() : 1;
    const double done = progress(std::span(got).first(outputs), std::span(whole).first(outputs));
    EXPECT_LT(done, 0.25 * quarter + 0.24) << "looks come late";
    EXPECT_GE(done + 0.05, before);
    before = done;
  }
  if (call.gradual) {
    EXPECT_GT(before, 0.3) << "looks come early";
  }
  EXPECT_TRUE(call.run({}) == whole) << "after runs that were stopped";
}

void check(const CancelCase& c, const KernelSubject& s, Isa isa, KernelRun* run) {
  check({c.all_flops ? run->plan().flops : 0, run->plan().bytes, flops_of_millisecond(c, s, isa), c.gradual, [run](const Cancel& cancel) { return run->run(-1, cancel); }});
}

TEST_F(Cancelled, EveryKernelLooksAndStops) {
  std::set<std::string> ran, named;
  const std::shared_ptr<Device> device = cpu_device(1);
  for (const CancelCase& c : cancel_cases()) {
    SCOPED_TRACE(c.kernel + ": " + c.node.op);
    named.insert(c.kernel);
    const KernelSubject s = subject_of(c);
    EXPECT_NE(s.node.op, nullptr);
    for (const Isa isa : available_isas(true)) {
      // An extension of a cluster differs from it by these products alone.
      if (s.node.op == nullptr || (cluster_of(isa) != isa && !has_bytes(s) && c.precision == Precision::kFloat32)) continue;
      const ForcedIsa forced(isa);
      SCOPED_TRACE(isa_name(isa));
      const std::vector<const Kernel*> kernels = supporting_kernels(*device, s.desc());
      const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const Kernel* k) { return k->name == c.kernel; });
      if (found == kernels.end()) {
        EXPECT_TRUE(needs_instructions(c.kernel)) << "no such kernel takes it";
        continue;
      }
      ran.insert(c.kernel);
      KernelRun plain(*device, **found, s);
      check(c, s, isa, &plain);
      if ((*found)->layouts == nullptr || s.inputs[0].shape.rank() < 3) continue;
      KernelRun last(*device, **found, s, Layout::kChannelsLast);
      SCOPED_TRACE("channels last");
      if (last.layouts() != plain.layouts()) check(c, s, isa, &last);
    }
  }
  for (const KernelFamily* family : device->kernels()) {
    for (const Kernel& k : family->kernels) {
      EXPECT_TRUE(named.contains(k.name)) << k.name << " has no case";
      EXPECT_TRUE(ran.contains(k.name) || needs_instructions(k.name)) << k.name << " did not run";
    }
  }
}

// ------------------------------------------------------------------------------------- what no node has for itself --

Buffer buffer_of(Bytes* bytes) { return {bytes->data(), 0, bytes->size()}; }

std::vector<Bytes> run_call(Device& device, const Kernel& kernel, const KernelArgs& args, const Cancel& cancel) {
  Bytes y(args.desc->outputs[0].size_bytes(), '\xff'), scratch(args.plan->thread_scratch_bytes + 64);
  const auto at = reinterpret_cast<std::uintptr_t>(scratch.data());
  const Buffer out = buffer_of(&y);
  KernelArgs all = args;
  all.outputs = {&out, 1};
  all.scratch = {scratch.data() + (64 - at % 64) % 64, 0, args.plan->thread_scratch_bytes};
  device.wait(device.enqueue({&kernel, all, &cancel}, {}));
  return {y};
}

TEST_F(Cancelled, ARelayoutLooksAndStops) {
  for (const Isa isa : available_isas()) {
    const ForcedIsa forced(isa);
    SCOPED_TRACE(isa_name(isa));
    const std::shared_ptr<Device> device = cpu_device(1);
    const Kernel& kernel = *device->relayout_kernel();
    for (const Shape& shape : {Shape{1, 3, 1, kMany}, Shape{1, kMany, 3}}) {
      for (const Layout to : {Layout::kPlain, Layout::kChannelsLast}) {
        const TensorDesc desc{DType::kFloat32, shape};
        const Layout layouts[] = {to == Layout::kPlain ? Layout::kChannelsLast : Layout::kPlain, to};
        const OpDesc d{nullptr, {&desc, 1}, {&desc, 1}, {}, layouts};
        KernelPlan plan;
        kernel.plan(d, &plan);
        Random random(3);
        Operand floats{desc, false, false, false, -2, 2, true, {}};
        Bytes x = values_of(floats, &random);
        const Buffer in = buffer_of(&x);
        KernelArgs args;
        args.desc = &d;
        args.plan = &plan;
        args.inputs = {&in, 1};
        check({plan.flops, plan.bytes, 1e9, true, [&](const Cancel& cancel) { return run_call(*device, kernel, args, cancel); }});
      }
    }
  }
}

// A depthwise convolution and a product as one step.
TEST_F(Cancelled, BandsLookAndStop) {
  const Shape image{1, 16, 24, 2048};
  for (const Isa isa : available_isas()) {
    const ForcedIsa forced(isa);
    SCOPED_TRACE(isa_name(isa));
    const std::shared_ptr<Device> device = cpu_device(1);
    const CancelCase depthwise{"conv_depthwise_last", Case("Conv", 11).x(image).w({16, 1, 3, 3}).ints("pads", {1, 1, 1, 1}).integer("group", 16)};
    const CancelCase product{"conv_last", Case("Conv", 11).x(image).w({16, 16, 1, 1})};
    KernelSubject s[] = {subject_of(depthwise), subject_of(product)};
    std::vector<TensorDesc> inputs;
    std::vector<WeightPtr> constants;
    for (const KernelSubject& part : s) {
      inputs.insert(inputs.end(), part.inputs.begin(), part.inputs.end());
      constants.insert(constants.end(), part.constants.begin(), part.constants.end());
    }
    const Layout layouts[] = {Layout::kChannelsLast, Layout::kPlain, Layout::kChannelsLast};
    std::vector<OpDesc> parts;
    std::vector<Bytes> packed(4);
    for (std::size_t i = 0; i < 2; ++i) {
      parts.push_back({&s[i].node, std::span(inputs).subspan(2 * i, 2), s[i].outputs, std::span(constants).subspan(2 * i, 2), layouts});
      const std::vector<const Kernel*> kernels = supporting_kernels(*device, parts[i]);
      const std::string& name = i == 0 ? depthwise.kernel : product.kernel;
      const Kernel& kernel = **std::find_if(kernels.begin(), kernels.end(), [&](const Kernel* k) { return k->name == name; });
      ASSERT_TRUE(device->bands()->takes(kernel, parts[i]));
      packed[2 * i + 1].resize(kernel.prepack_bytes(parts[i], 1));
      kernel.prepack(parts[i], 1, packed[2 * i + 1].data());
    }
    OpDesc d = parts[1];
    d.inputs = inputs;
    d.constants = constants;
    d.parts = parts;
    const Kernel& kernel = device->bands()->kernel;
    KernelPlan plan;
    kernel.plan(d, &plan);
    std::vector<Buffer> in(4), weights;
    in[0] = buffer_of(&s[0].values[0]);
    for (Bytes& p : packed) weights.push_back(p.empty() ? Buffer{} : buffer_of(&p));
    KernelArgs args;
    args.desc = &d;
    args.plan = &plan;
    args.inputs = in;
    args.packed = weights;
    const double at_once = flops_of_millisecond(product, s[1], isa);
    check({plan.flops, plan.bytes, at_once, true, [&](const Cancel& cancel) { return run_call(*device, kernel, args, cancel); }});
  }
}

}  // namespace
}  // namespace evn::test::cancel_test
