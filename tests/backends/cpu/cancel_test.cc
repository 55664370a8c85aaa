// That every kernel of the CPU device looks at its Cancel often enough, whatever the size of a tile is, and stops when it is told
// to: on each instruction set that this machine has, with a clock that counts how often it is asked. Nothing here depends on how
// fast the machine is.
#include "tests/backends/cpu/cancel_cases.h"

#include <algorithm>
#include <functional>
#include <set>

#include "backends/cpu/cascade.h"
#include "backends/cpu/gemm/blas.h"
#include "base/error.h"
#include "tests/backends/cpu/kernel_check.h"
#include "tests/support/sanitized.h"
#include "tests/support/test_clock.h"

namespace evn::test::cancel_test {
namespace {

using conformance::Case;
using conformance::Operand;

// ---------------------------------------------------------------------------------------------------------- nodes --

// As the conformance tables draw them, but repeated after so many: these operands have millions of elements.
constexpr std::size_t kPeriod = 65521;

template <typename T>
void fill(const Operand& o, Bytes* bytes, Random* random) {
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
  s.products = c.products;
  return s;
}

// --------------------------------------------------------------------------------------------------------- bounds --

// What a slow core with the instruction set does in a millisecond: one of 1.5 GHz that gets a third of its multiply-adds of float32
// done (a vector of four in a clock for the baseline), reads and writes 5 GB/s, and has the factor that vpdpbusd, vdpbf16ps or
// tiles bring.
double flops_of_millisecond(const CancelCase& c, const KernelSubject& s, Isa isa) {
  constexpr double kBaseline = 2 * 1.5e6 * 4 / 3;
  // OpenBLAS, which goes on until some rows are done, gets more of them done.
  const double of_type = s.inputs[0].dtype == DType::kFloat64 ? 1 : 2;
  if (of_type == 1 || c.products == Products::kOpenBlas)
    return of_type * (isa == Isa::k_baseline ? 1 : (isa == Isa::k_avx2 ? 4.5 : 6.5)) * kBaseline;
  const bool has_vnni =
      isa == Isa::k_avx2_vnni || isa == Isa::k_avx512_vnni || isa == Isa::k_avx512_bf16 || isa == Isa::k_avx512_fp16;
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
  double flops, bytes;   // as the kernel's plan says
  double flops_at_once;  // of a millisecond
  bool gradual;
  std::function<std::vector<Bytes>(const Cancel&)> run;
};

class Cancelled : public testing::Test {
 protected:
  void check(const Call& call) {
    const std::vector<Bytes> whole = run_until(call, INT64_MAX);
    const std::int64_t looks = clock_.looks() - 1;  // without that of the device
    const double wanted = std::max({call.flops / call.flops_at_once, call.bytes / kBytesOfMillisecond, 3.0});
    EXPECT_GE(static_cast<double>(looks), wanted) << call.flops << " flops, " << call.bytes << " bytes";
    if (looks < 3) return;

    // The first look is the device's own, the second one the kernel's.
    for (const std::int64_t look : {2, 3}) {
      EXPECT_FALSE(run_until(call, look) == whole) << "stopped at look " << look << " of " << looks;
      EXPECT_LE(clock_.looks(), look + 2) << "goes on after it is stopped";
    }
    double before = 0;
    for (const int quarter : {1, 2, 3}) {
      const std::vector<Bytes> got = run_until(call, 1 + looks * quarter / 4);
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
    check({c.all_flops ? run->plan().flops : 0, run->plan().bytes, flops_of_millisecond(c, s, isa), c.gradual,
           [run](const Cancel& cancel) { return run->run(-1, cancel); }});
  }

  void check_cascade(const CancelCase& first, const CancelCase& second, Isa isa);

 private:
  // The outputs of a run that is told at its `look`-th look that its time is over.
  std::vector<Bytes> run_until(const Call& call, std::int64_t look) {
    Cancel cancel;
    cancel.deadline_ns = TestClock::kNow + 1;
    clock_.restart(look - 1);
    return call.run(cancel);
  }

  TestClock clock_;
};

// Whether the forced instruction set, or the build, has no code for the kernel: then it refuses every node.
bool is_absent(const std::string& kernel) {
  if (kernel.ends_with("_bf16")) return bfloat16_isa() == Isa::k_baseline;
  if (kernel.ends_with("_fp16")) return float16_isa() == Isa::k_baseline;
  if (kernel.ends_with("_openblas")) return blas_module() == nullptr || blas_module()->row_groups[1] == 0;
  if (kernel == "conv_small_groups") return cluster_of(cpu_isa()) == Isa::k_baseline;
  const Isa isa = integer_isa();
  if (kernel == "qlinear_conv_winograd") return isa != Isa::k_avx2 && isa != Isa::k_avx512;
  if (kernel == "qlinear_conv_depthwise_planes") return isa != Isa::k_avx512_vnni && isa != Isa::k_avx512_amx;
  return false;
}

// Sanitizers make loops up to 20 times slower; what the other instruction sets read and write they see in other tests.
std::vector<Isa> tested_isas() { return kIsSanitized ? std::vector{integer_isa()} : available_isas(true); }

TEST_F(Cancelled, EveryKernelLooksAndStops) {
  std::set<std::string> named;
  const std::shared_ptr<Device> device = cpu_device(1);
  for (const CancelCase& c : cancel_cases()) {
    SCOPED_TRACE(c.kernel + ": " + c.node.op);
    named.insert(c.kernel);
    const KernelSubject s = subject_of(c);
    EXPECT_NE(s.node.op, nullptr);
    for (const Isa isa : tested_isas()) {
      // An extension of a cluster differs from it by these products alone.
      if (s.node.op == nullptr || (cluster_of(isa) != isa && !has_bytes(s) && c.precision == Precision::kFloat32)) continue;
      const ForcedIsa forced(isa);
      SCOPED_TRACE(isa_name(isa));
      const std::vector<const Kernel*> kernels = supporting_kernels(*device, s.desc());
      const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const Kernel* k) { return k->name == c.kernel; });
      if (found == kernels.end()) {
        EXPECT_TRUE(is_absent(c.kernel)) << "no such kernel takes it";
        continue;
      }
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
    }
  }
}

// What a kernel would have to finish before it could look again, the reference takes.
TEST_F(Cancelled, KernelsRefuseWhatTheyDoNotCut) {
  const std::shared_ptr<Device> device = cpu_device(1);
  const auto takes = [&](const CancelCase& c) {
    const KernelSubject s = subject_of(c);
    const std::vector<const Kernel*> kernels = supporting_kernels(*device, s.desc());
    return std::any_of(kernels.begin(), kernels.end(), [&](const Kernel* k) { return k->name == c.kernel; });
  };
  for (const auto& [largest, larger] : largest_cases()) {
    for (const Isa isa : available_isas(true)) {
      const ForcedIsa forced(isa);
      SCOPED_TRACE(largest.kernel + " on " + isa_name(isa));
      EXPECT_EQ(takes(largest), !is_absent(largest.kernel));
      EXPECT_FALSE(takes(larger));
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

// Two convolutions as one step, of which the second one reads what the first one writes.
void Cancelled::check_cascade(const CancelCase& first, const CancelCase& second, Isa isa) {
  const std::shared_ptr<Device> device = cpu_device(1);
  KernelSubject s[] = {subject_of(first), subject_of(second)};
  std::vector<TensorDesc> inputs;
  std::vector<WeightPtr> constants;
  std::vector<Buffer> buffers;
  for (KernelSubject& part : s) {
    inputs.insert(inputs.end(), part.inputs.begin(), part.inputs.end());
    constants.insert(constants.end(), part.constants.begin(), part.constants.end());
    for (Bytes& value : part.values) buffers.push_back(buffer_of(&value));
  }
  const std::size_t each = s[0].inputs.size();
  ASSERT_EQ(inputs.size(), 2 * each);
  buffers[each] = {};  // between the two: never whole in memory
  std::vector<Layout> layouts(inputs.size() + 1, Layout::kPlain);
  layouts[0] = layouts[each] = layouts.back() = Layout::kChannelsLast;
  std::vector<Layout> part_layouts(each + 1, Layout::kPlain);
  part_layouts[0] = part_layouts[each] = Layout::kChannelsLast;
  std::vector<OpDesc> parts;
  std::vector<Bytes> packed(inputs.size());
  for (std::size_t i = 0; i < 2; ++i) {
    parts.push_back({&s[i].node, std::span(inputs).subspan(each * i, each), s[i].outputs,
                     std::span(constants).subspan(each * i, each), part_layouts.data()});
    const std::string& name = i == 0 ? first.kernel : second.kernel;
    const std::vector<const Kernel*> kernels = supporting_kernels(*device, parts[i]);
    const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const Kernel* k) { return k->name == name; });
    ASSERT_NE(found, kernels.end()) << name;
    ASSERT_TRUE(device->cascades()->takes(**found, parts[i])) << name;
    for (std::size_t k = 1; k < each; ++k) {
      if ((*found)->prepack_bytes == nullptr) continue;
      Bytes& to = packed[each * i + k];
      to.resize((*found)->prepack_bytes(parts[i], static_cast<int>(k)));
      if (!to.empty()) (*found)->prepack(parts[i], static_cast<int>(k), to.data());
    }
  }
  OpDesc d = parts[1];
  d.inputs = inputs;
  d.constants = constants;
  d.layouts = layouts.data();
  d.nodes = parts;
  const Kernel& kernel = device->cascades()->kernel;
  KernelPlan plan;
  kernel.plan(d, &plan);
  std::vector<Buffer> weights;
  for (Bytes& p : packed) weights.push_back(p.empty() ? Buffer{} : buffer_of(&p));
  KernelArgs args;
  args.desc = &d;
  args.plan = &plan;
  args.inputs = buffers;
  args.packed = weights;
  const double at_once = flops_of_millisecond(second, s[1], isa);
  check({plan.flops, plan.bytes, at_once, true, [&](const Cancel& cancel) { return run_call(*device, kernel, args, cancel); }});
}

TEST_F(Cancelled, CascadesLookAndStop) {
  for (const auto& [first, second] : cancelled_cascades()) {
    SCOPED_TRACE(first.kernel + ", " + second.kernel);
    for (const Isa isa : available_isas(first.node.operands[0].desc.dtype != DType::kFloat32)) {
      const ForcedIsa forced(isa);
      SCOPED_TRACE(isa_name(isa));
      check_cascade(first, second, isa);
    }
  }
}

}  // namespace
}  // namespace evn::test::cancel_test
