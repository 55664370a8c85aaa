// What the tables must reach: every operator, version and dtype of the registry, every kernel of every backend, every built-in
// backend; and no two kernels of a device that claim one case with the same rank.
#include <algorithm>
#include <map>
#include <set>

#include "backends/cpu/gemm/blas.h"
#include "tests/conformance/case.h"
#include "tests/conformance/targets.h"

namespace evn {
extern const KernelFamily openblas_kernels;
}

namespace evn::conformance {
namespace {

using test::KernelSubject;

// Operators that no kernel runs, and those that make strings, whose elements are addresses: tests/ops/strings_test.cc.
bool has_no_kernels(const OpDef& op) {
  const bool makes_strings = op.dtypes == kString || std::string_view(op.name) == "CategoryMapper";
  return (op.flags & kOpMerge) != 0 || op.reference == nullptr || makes_strings;
}

TEST(Coverage, EveryBuiltInBackendHasADevice) {
  for (const Absent& a : absent_backends()) EXPECT_FALSE(devices_are_required()) << a.backend << ": " << a.why;
  if (!absent_backends().empty()) GTEST_SKIP() << absent_backends()[0].backend << ": " << absent_backends()[0].why;
}

TEST(Coverage, EveryVersionOfEveryOperatorHasACase) {
  std::set<const OpDef*> reached;
  for (const Case& c : cases()) {
    const auto [domain, name] = test::split_domain(c.op);
    reached.insert(find_op(domain, name, c.opset));
  }
  for (const OpFamily* family : op_families()) {
    for (const OpDef& op : family->ops) {
      if (has_no_kernels(op)) continue;
      EXPECT_EQ(reached.count(&op), 1u) << op.name << " since " << op.since << " has no case";
    }
  }
}

TEST(Coverage, EveryDtypeOfEveryOperatorHasACase) {
  std::map<std::string, std::uint32_t> reached;
  for (const Case& c : cases()) {
    const DType dtype = c.operands.empty() ? make_subject(c, 1, {}).outputs.at(0).dtype : c.operands[0].desc.dtype;
    reached[test::split_domain(c.op).second] |= dtype_bit(dtype);
  }
  for (const OpFamily* family : op_families()) {
    for (const OpDef& op : family->ops) {
      if (has_no_kernels(op)) continue;
      const std::uint32_t missing = op.dtypes & ~reached[op.name];
      for_dtypes(missing, [&](DType d) { ADD_FAILURE() << op.name << " of " << dtype_name(d) << " has no case"; });
    }
  }
}

TEST(Coverage, EveryKernelRunsACase) {
  std::set<const Kernel*> reached;
  std::map<const Kernel*, std::set<std::string>> refused;
  for (const Case& c : cases()) {
    const KernelSubject s = make_subject(c, 1, {});
    for (const Target& target : targets()) {
      const test::ForcedIsa forced(target.isa);
      for (const Kernel* k : test::supporting_kernels(*target.device, target.subject(s).desc())) {
        if (s.outputs[0].shape.elements() > 0) reached.insert(k);
      }
      const test::KernelSubject given = target.subject(s);
      const OpDesc desc = given.desc();
      for (const KernelFamily* family : target.device->kernels()) {
        for (const Kernel& k : family->kernels) {
          if (desc.node->op_type != k.op || desc.node->domain != k.domain || k.operands != desc.precision) continue;
          if (const Refusal why = k.supports(desc)) refused[&k].insert(why);
        }
      }
    }
  }
  for (const Target& target : targets()) {
    for (const KernelFamily* family : target.device->kernels()) {
      if (family == &openblas_kernels && blas_module() == nullptr) continue;
      const auto untried = [](const Kernel& k) {  // a precision that no target here has; of fp16 see tests/backends
        return std::none_of(targets().begin(), targets().end(), [&](const Target& t) { return t.precision == k.operands; });
      };
      // Instructions that this CPU lacks, or EVN_CPU_ISA forbids: what refuses every case before it looks at it.
      const auto has_no_instructions = [&](const Kernel& k) {
        const std::set<std::string>& why = refused[&k];
        return why.size() == 1 && (why.count("no product of four bytes") == 1 || why.count("no AMX or AVX512-BF16") == 1 ||
                                   why.count("bytes are multiplied without widening them") == 1 ||
                                   why.count("no permutation of a vector by indices") == 1);
      };
      for (const Kernel& k : family->kernels) {
        EXPECT_TRUE(has_no_instructions(k) || untried(k) || reached.count(&k) == 1u)
            << target.name << ": no case reaches " << k.name;
      }
    }
  }
}

TEST(Ranks, TheHighestDecidesAndNoTwoAreEqual) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.describe());
    const KernelSubject plain = make_subject(c, 1, {});
    for (const Target& target : targets()) {
      const test::ForcedIsa forced(target.isa);
      const KernelSubject s = target.subject(plain);
      std::map<int, const Kernel*> by_rank;
      for (const Kernel* k : test::supporting_kernels(*target.device, s.desc())) {
        const auto [other, first] = by_rank.insert({k->rank, k});
        EXPECT_TRUE(first) << target.name << ": " << k->name << " and " << other->second->name << " tie at rank " << k->rank;
      }
      if (by_rank.empty()) continue;
      EXPECT_EQ(target.device->find_kernel(s.desc(), nullptr), by_rank.rbegin()->second) << target.name;
    }
  }
}

}  // namespace
}  // namespace evn::conformance
