// Every kernel of every device that takes a case gives what the operator's reference gives; and on the CPU, the same bits for any
// number of threads. A batch element has the same bits alone as with neighbours, an output the same over its input as beside it.
#include <algorithm>
#include <set>

#include "backends/cpu/kernel_table.h"
#include "base/error.h"
#include "tests/conformance/check.h"

namespace evn {}

namespace evn::conformance {
namespace {

using test::Bytes;
using test::KernelRun;
using test::KernelSubject;

// All kernels of the device that may be given this node.
std::vector<const Kernel*> kernels_for(const Device& device, const KernelSubject& s) {
  std::vector<const Kernel*> all;
  if (!needs_no_kernel(s)) all = test::supporting_kernels(device, s.desc());
  if (s.precision != Precision::kFloat32) return all;
  if (const Kernel* reference = device.reference_kernel(s.desc())) all.push_back(reference);
  return all;
}

bool varies(const TensorDesc& desc, const Bytes& bytes) {
  const std::size_t size = dtype_alignment(desc.dtype);
  if (bytes.size() < 2 * size) return true;
  return std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) != 0;
}

// A kernel that writes one value throughout would pass.
void expect_variety(const KernelSubject& s, const std::vector<Bytes>& expected) {
  for (std::size_t k = 0; k < expected.size(); ++k) {
    EXPECT_TRUE(varies(s.outputs[k], expected[k])) << "the expected output " << k << " is constant";
  }
}

void check_on_all(const KernelSubject& s, const std::vector<Bytes>& expected) {
  for (const Target& target : targets()) {
    if (!target.differs(s)) continue;
    const test::ForcedIsa forced(target.isa);
    if (target.precision == Precision::kFloat32) {
      for (const Kernel* kernel : kernels_for(*target.device, s)) check_kernel(target, *kernel, s, expected);
      continue;
    }
    const KernelSubject r = target.subject(s);
    const std::vector<const Kernel*> kernels = kernels_for(*target.device, r);
    if (kernels.empty()) continue;
    const std::vector<Bytes> of_rounded = test::reference_result(r);
    for (const Kernel* kernel : kernels) check_kernel(target, *kernel, r, of_rounded);
  }
}

// With the case's own chain of fused steps, or, where that clamps everything to one value, the next.
void check_fused(const Case& c, KernelSubject s, const std::vector<Bytes>& plain) {
  std::vector<Bytes> expected = plain;
  for (std::size_t n = 0; n < kChains; ++n) {
    s.node.epilogue = chain(chain_of(c) + n);
    expected[0] = fused(s.node.epilogue, plain[0]);
    if (varies(s.outputs[0], expected[0])) break;
  }
  SCOPED_TRACE("fused steps: " + std::to_string(s.node.epilogue.count));
  if (!c.may_be_flat) expect_variety(s, expected);
  check_on_all(s, expected);
}

void check_case(const Case& c, std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const KernelSubject s = make_subject(c, seed, {});
  const std::vector<Bytes> expected = test::reference_result(s);
  if (!c.may_be_flat) expect_variety(s, expected);
  check_on_all(s, expected);
  if (s.outputs[0].dtype == DType::kFloat32) check_fused(c, s, expected);
}

// Calls f(case) for each case of an operator; errors name it.
template <typename F>
void for_each_case(const std::string& op, F&& f) {
  for (const Case& c : cases()) {
    if (c.op != op) continue;
    SCOPED_TRACE(c.describe());
    try {
      f(c);
    } catch (const Error& e) {
      ADD_FAILURE() << "threw: " << e.message;
    }
  }
}

// The node of a float32 output with the case's chain of fused steps.
KernelSubject fused_subject(const Case& c, std::uint64_t seed) {
  KernelSubject s = make_subject(c, seed, {});
  if (s.outputs[0].dtype == DType::kFloat32) s.node.epilogue = chain(chain_of(c));
  return s;
}

std::string param_name(const testing::TestParamInfo<std::string>& info) {
  std::string name;
  for (const char c : info.param) name += c == '.' || c == ':' ? '_' : c;
  return name;
}

class Conformance : public testing::TestWithParam<std::string> {};

TEST_P(Conformance, EveryKernelGivesWhatTheReferenceGives) {
  for_each_case(GetParam(), [](const Case& c) {
    check_case(c, 1);
    if (is_random(c)) check_case(c, 1789);
  });
}

TEST_P(Conformance, PartsOfTheReferenceTogetherGiveTheWhole) {
  for_each_case(GetParam(), [](const Case& c) {
    const KernelSubject s = make_subject(c, 3, {});
    // Elements of less than a byte are unpacked as a whole, and so never cut into parts.
    const bool is_small = std::any_of(s.outputs.begin(), s.outputs.end(), [](const TensorDesc& d) { return is_sub_byte(d.dtype); });
    if (s.node.op->parts == nullptr || is_small) return;
    for (const int shares : {2, 3, 7})
      EXPECT_TRUE(test::reference_result(s, shares) == test::reference_result(s)) << shares << " shares";
  });
}

INSTANTIATE_TEST_SUITE_P(Of, Conformance, testing::ValuesIn(case_ops()), param_name);

// ------------------------------------------------------------------------------------------------ determinism --

// The operators for which the CPU has a kernel besides the reference.
std::vector<std::string> ops_with_cpu_kernels() {
  std::set<std::string> names;
  for (const KernelFamily* family : cpu_kernel_families()) {  // asked while tests are registered: no device is opened then
    for (const Kernel& k : family->kernels) names.insert(k.op);
  }
  std::vector<std::string> all;
  for (const std::string& op : case_ops()) {
    if (names.count(op) != 0) all.push_back(op);
  }
  return all;
}

class Determinism : public testing::TestWithParam<std::string> {};

TEST_P(Determinism, AnyNumberOfThreadsGivesTheSameBits) {
  const std::shared_ptr<Device> devices[] = {open_cpu(1), open_cpu(2), open_cpu(3)};
  for_each_case(GetParam(), [&](const Case& c) {
    const KernelSubject plain = fused_subject(c, 5);
    if (needs_no_kernel(plain)) return;
    for (const Target& target : targets()) {
      if (!target.isa || !target.differs(plain)) continue;
      const Isa isa = *target.isa;
      const test::ForcedIsa forced(isa);
      const KernelSubject s = target.subject(plain);
      for (const Kernel* kernel : test::supporting_kernels(*devices[0], s.desc())) {
        const std::vector<Bytes> one = KernelRun(*devices[0], *kernel, s).run();
        for (const int threads : {2, 3}) {
          const std::vector<Bytes> more = KernelRun(*devices[threads - 1], *kernel, s).run();
          EXPECT_TRUE(more == one) << isa_name(isa) << ", kernel " << kernel->name << ": " << threads << " threads differ from one";
        }
      }
    }
  });
}

// Element n of the batch by itself.
KernelSubject alone(const KernelSubject& s, const Case& c, std::size_t n) {
  KernelSubject one;
  one.precision = s.precision;
  for (std::size_t i = 0; i < s.inputs.size(); ++i) {
    TensorDesc desc = s.inputs[i];
    Bytes value = s.values[i];
    if ((c.batch_inputs >> i & 1u) != 0) {
      const std::size_t size = value.size() / static_cast<std::size_t>(desc.shape[0]);
      desc.shape[0] = 1;
      value.assign(s.values[i].data() + n * size, s.values[i].data() + (n + 1) * size);
    }
    test::add_operand(&one, desc, std::move(value), s.constants[i] != nullptr);
  }
  test::finish_subject(&one, c.op, c.opset, c.attributes, c.output_count, s.node.epilogue);
  return one;
}

void check_neighbours(const Target& target, const Kernel& kernel, const KernelSubject& s, const Case& c) {
  const std::vector<Bytes> together = KernelRun(*target.device, kernel, s).run();
  const auto elements = static_cast<std::size_t>(s.outputs[0].shape[0]);
  for (std::size_t n = 0; n < elements; ++n) {
    const KernelSubject one = alone(s, c, n);
    if (&kernel != target.device->reference_kernel(one.desc()) && kernel.supports(one.desc()) != nullptr) continue;
    const std::vector<Bytes> single = KernelRun(*target.device, kernel, one).run();
    for (std::size_t k = 0; k < single.size(); ++k) {
      ASSERT_EQ(single[k].size() * elements, together[k].size());
      EXPECT_EQ(std::memcmp(single[k].data(), together[k].data() + n * single[k].size(), single[k].size()), 0)
          << label(target, kernel) << ": output " << k << " of batch element " << n << " differs from that of the element alone";
    }
  }
}

// Kernels read beside what they have written there: such bytes are multiplied by zeros, and counted nowhere.
TEST_P(Determinism, WhatLiesInScratchMemoryDoesNotCount) {
  for_each_case(GetParam(), [](const Case& c) {
    const KernelSubject plain = fused_subject(c, 9);
    if (needs_no_kernel(plain)) return;
    for (const Target& target : targets()) {
      if (!target.isa || !target.differs(plain)) continue;
      const test::ForcedIsa forced(target.isa);
      const KernelSubject s = target.subject(plain);
      for (const Kernel* kernel : test::supporting_kernels(*target.device, s.desc())) {
        KernelRun run(*target.device, *kernel, s);
        if (run.plan().scratch_bytes + run.plan().thread_scratch_bytes == 0) continue;
        const std::vector<Bytes> expected = run.run();
        for (const std::uint8_t value : {std::uint8_t{0x00}, std::uint8_t{0x81}}) {
          run.set_scratch(value);
          EXPECT_TRUE(run.run() == expected) << label(target, *kernel) << ": scratch of bytes " << int{value};
        }
      }
    }
  });
}

TEST_P(Determinism, NeighboursInTheBatchDoNotCount) {
  for_each_case(GetParam(), [](const Case& c) {
    if (c.batch_inputs == 0) return;
    const KernelSubject s = fused_subject(c, 7);
    for (const Target& target : targets()) {
      if (!target.differs(s)) continue;
      const test::ForcedIsa forced(target.isa);
      const KernelSubject t = target.subject(s);
      for (const Kernel* kernel : test::supporting_kernels(*target.device, t.desc())) check_neighbours(target, *kernel, t, c);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Of, Determinism, testing::ValuesIn(ops_with_cpu_kernels()), param_name);

}  // namespace
}  // namespace evn::conformance
