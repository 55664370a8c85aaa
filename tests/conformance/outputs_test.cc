// Outputs that a node leaves out by the empty name: whatever it leaves out, the outputs that remain are those of the node that has
// all.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "tests/conformance/check.h"

namespace evn::conformance {
namespace {

using test::Bytes;
using test::KernelSubject;

// Outputs that a model may leave out: the optional ones, and all of an operator that makes any number of them.
int first_optional(const OpDef& op) { return op.max_outputs >= kVariadic ? 0 : op.min_outputs; }

// Before version 14 the further outputs of BatchNormalization decide whether it trains.
bool decides_by_outputs(const OpDef& op) { return std::string_view(op.name) == "BatchNormalization" && op.since < 14; }

std::vector<std::string> ops_with_several_outputs() {
  std::set<std::string> names;
  for (const Case& c : cases()) {
    if (c.output_count > 1) names.insert(c.op);
  }
  return {names.begin(), names.end()};
}

// The subject without the outputs of the mask, as graph/validate leaves the node.
KernelSubject without(const KernelSubject& whole, std::uint32_t left_out) {
  KernelSubject s = whole;
  for (std::size_t k = 0; k < s.outputs.size(); ++k) {
    if ((left_out >> k & 1u) == 0) continue;
    s.node.outputs[k] = kNoValue;
    s.outputs[k] = {};
  }
  while (s.node.op->max_outputs < kVariadic && s.node.outputs.back() == kNoValue) {
    s.node.outputs.pop_back();
    s.outputs.pop_back();
  }
  return s;
}

void check_without(const KernelSubject& whole, std::uint32_t left_out, const std::vector<Bytes>& expected) {
  const KernelSubject s = without(whole, left_out);
  std::vector<Bytes> remaining;
  for (std::size_t k = 0; k < s.outputs.size(); ++k) remaining.push_back((left_out >> k & 1u) != 0 ? Bytes{} : expected[k]);
  KernelSubject inferred = s;
  test::infer_outputs(&inferred);
  for (std::size_t k = 0; k < s.outputs.size(); ++k) {
    if (s.node.outputs[k] == kNoValue) continue;
    EXPECT_EQ(inferred.outputs[k].dtype, s.outputs[k].dtype) << "output " << k;
    EXPECT_EQ(inferred.outputs[k].shape, s.outputs[k].shape) << "output " << k;
  }
  EXPECT_TRUE(test::reference_result(s) == remaining) << "of the reference";
  if (needs_no_kernel(s)) return;
  for (const Target& target : targets()) {
    if (target.precision != Precision::kFloat32 || !target.differs(s)) continue;
    const test::ForcedIsa forced(target.isa);
    for (const Kernel* kernel : test::supporting_kernels(*target.device, s.desc())) check_kernel(target, *kernel, s, remaining);
  }
}

class OutputsLeftOut : public testing::TestWithParam<std::string> {};

TEST_P(OutputsLeftOut, ChangeNothingOfTheOthers) {
  for (const Case& c : cases()) {
    if (c.op != GetParam() || c.output_count < 2) continue;
    SCOPED_TRACE(c.describe());
    const KernelSubject whole = make_subject(c, 1, {});
    const OpDef& op = *whole.node.op;
    const std::vector<Bytes> expected = test::reference_result(whole);
    const auto count = static_cast<std::uint32_t>(whole.outputs.size());
    const std::uint32_t all = (1u << count) - 1, required = (1u << first_optional(op)) - 1;
    for (std::uint32_t left_out = 1; left_out < all; ++left_out) {
      if ((left_out & required) != 0 || (decides_by_outputs(op) && (left_out | 1u) == all)) continue;
      SCOPED_TRACE("left out (a bit each): " + std::to_string(left_out));
      try {
        check_without(whole, left_out, expected);
      } catch (const Error& e) {
        ADD_FAILURE() << "threw: " << e.message;
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  std::string name;
  for (const char c : info.param) name += c == '.' || c == ':' ? '_' : c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Of, OutputsLeftOut, testing::ValuesIn(ops_with_several_outputs()), name_of);

// So that an operator that is added is tested here as well.
TEST(OutputsLeftOutCoverage, EveryOperatorWithSeveralHasACase) {
  std::map<std::string, int> most;
  for (const Case& c : cases()) most[c.op] = std::max(most[c.op], c.output_count);
  for (const OpFamily* family : op_families()) {
    for (const OpDef& op : family->ops) {
      const bool makes_strings = op.dtypes == kString;
      if (op.max_outputs < 2 || op.reference == nullptr || makes_strings) continue;
      const std::string name = *op.domain == '\0' ? std::string(op.name) : std::string(op.domain) + "::" + op.name;
      EXPECT_GE(most[name], 2) << name;
    }
  }
}

}  // namespace
}  // namespace evn::conformance
