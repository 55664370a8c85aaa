// No row of the operator tables escapes the clock: each has a case that is long enough to be looked at several times, and ends in
// the middle of it when it must; what is run again then gives what it gives undisturbed. While a model loads (constants that are
// folded) as in a run.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/error.h"
#include "tests/cancellation/enlarge.h"
#include "tests/cancellation/host_cases.h"
#include "tests/cancellation/more_cases.h"
#include "tests/support/pass_check.h"
#include "tests/support/test_clock.h"

namespace evn::test {
namespace {

using conformance::Case;

constexpr std::int64_t kLooks = 3;  // at least
constexpr std::int64_t kLeastWork = (kLooks + 1) * kWorkPerLook;

// Rows without a long case, and why there is none.
struct Exemption {
  const char* row;
  const char* reason;
};
constexpr Exemption kExempt[] = {
    {"Shape 1", "as many elements as the input has axes"},
    {"Shape 15", "as many elements as the input has axes"},
    {"Size 1", "one element, of as many dims as the input has axes"},
    {"SequenceEmpty 11", "makes nothing"},
    {"SequenceAt 11", "hands on an element as it is"},
    {"SequenceLength 11", "one element"},
    {"SequenceInsert 11", "copies the nodes of one path of a tree: tests/ops/part_list_test.cc"},
    {"SequenceErase 11", "copies the nodes of one path of a tree: tests/ops/part_list_test.cc"},
    {"Optional 15", "puts a value into a box"},
    {"OptionalHasElement 15", "one element"},
    {"OptionalHasElement 18", "one element"},
    {"OptionalGetElement 15", "takes a value out of a box"},
    {"OptionalGetElement 18", "takes a value out of a box"},
    {"evener::Merge 1", "hands on one of its inputs; what copies it has points: base/cancel_test.cc"},
    {"ImageDecoder 20", "the decoders of a module, which ask HostServices::check_stop: tests/ops/image_decoder_test.cc"},
};

std::string name_of(const OpDef& op) {
  return (op.domain[0] == '\0' ? std::string() : std::string(op.domain) + "::") + op.name + " " + std::to_string(op.since);
}

bool is_exempt(const OpDef& op) {
  return std::any_of(std::begin(kExempt), std::end(kExempt), [&](const Exemption& e) { return name_of(op) == e.row; });
}

std::vector<const OpDef*> rows() {
  std::vector<const OpDef*> all;
  for (const OpFamily* family : op_families()) {
    for (const OpDef& op : family->ops) all.push_back(&op);
  }
  return all;
}

// A long case of each row, found once.
const std::map<const OpDef*, KernelSubject>& long_cases() {
  static const std::map<const OpDef*, KernelSubject> all = [] {
    std::map<const OpDef*, KernelSubject> found;
    std::vector<Case> candidates = more_cases();
    candidates.insert(candidates.end(), conformance::cases().begin(), conformance::cases().end());
    std::map<const OpDef*, int> tried;
    for (const Case& c : candidates) {
      const auto [domain, name] = split_domain(c.op);
      const OpDef* op = find_op(domain, name, c.opset);
      if (op == nullptr || op->reference == nullptr || found.count(op) != 0 || is_exempt(*op) || tried[op]++ > 6) continue;
      if (std::optional<KernelSubject> s = enlarged(c, kLeastWork)) found.emplace(op, std::move(*s));
    }
    return found;
  }();
  return all;
}

// Runs `body` to its end with a clock that stands still, then with one that ends in the middle, then again to its end.
void check_row(const std::string& name, const std::function<std::vector<std::string>()>& body) {
  SCOPED_TRACE(name);
  TestClock clock;
  Cancel cancel;
  cancel.deadline_ns = UINT64_MAX / 2;
  std::vector<std::string> expected;
  {
    const CancelScope scope(cancel);
    expected = body();
    EXPECT_LE(scope.longest(), 2 * kWorkPerLook) << "a loop does more than kWorkPerLook between two points";
  }
  const std::int64_t looks = clock.looks();
  EXPECT_GE(looks, kLooks);
  clock.restart(looks / 2);
  try {
    const CancelScope scope(cancel);
    body();
    ADD_FAILURE() << "went on after its time was over";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_TIMEOUT) << e.message;
  }
  EXPECT_EQ(clock.looks(), looks / 2 + 1) << "did not end with the look that said so";
  clock.restart();
  const CancelScope scope(cancel);
  EXPECT_EQ(body(), expected) << "gives something else after it was stopped";
}

TEST(EveryRow, HasALongCaseOrAReason) {
  const std::map<std::string, HostCase> on_host = host_cases();
  std::set<std::string> names;
  for (const OpDef* op : rows()) {
    names.insert(name_of(*op));
    const bool has = on_host.count(name_of(*op)) != 0 || long_cases().count(op) != 0;
    EXPECT_NE(has, is_exempt(*op)) << name_of(*op) << (has ? " has a long case and is exempt" : " has no long case");
  }
  EXPECT_LE(std::size(kExempt), 40u);
  for (const Exemption& e : kExempt) EXPECT_EQ(names.count(e.row), 1u) << e.row << " is no row";
}

TEST(EveryRow, IsLookedAtInARun) {
  for (const auto& c : long_cases()) check_row(name_of(*c.first), [&] { return results_of(c.second); });
}

TEST(EveryRow, IsLookedAtOnTheHost) {
  for (const auto& c : host_cases()) check_row(c.first, [&] { return results_of(c.second); });
}

// The node over constants, and something that reads what it gives.
Graph over_constants(const KernelSubject& s) {
  GraphBuilder b(s.node.since_version);
  std::vector<ValueId> in;
  for (std::size_t i = 0; i < s.inputs.size(); ++i) {
    in.push_back(s.inputs[i].dtype == DType::kUndefined ? kNoValue
                                                        : b.input("c" + std::to_string(i), s.inputs[i].shape, s.inputs[i].dtype));
    if (in.back() == kNoValue) continue;
    b.graph().values[static_cast<std::size_t>(in.back())].constant = copy_of(s.inputs[i], s.values[i]);
  }
  b.graph().inputs.clear();
  Node node = s.node;
  node.inputs = in;
  const std::size_t outputs = node.outputs.size();
  node.outputs.clear();
  for (std::size_t k = 0; k < outputs; ++k) {
    Value v;
    v.name = "y" + std::to_string(k);
    b.graph().values.push_back(v);
    node.outputs.push_back(static_cast<ValueId>(b.graph().values.size() - 1));
  }
  b.graph().nodes.push_back(node);
  b.output(b.node("Identity", {node.outputs[0]}, {}, "reader"));
  return b.build();
}

TEST(EveryRow, IsLookedAtWhileAModelLoads) {
  int folded = 0;
  for (const auto& c : long_cases()) {
    const auto& subject = c.second;  // clang 14 captures no structured binding
    SCOPED_TRACE(name_of(*c.first));
    const auto fold = [&](TestClock& clock, std::int64_t late_after, std::vector<std::string>* made) {
      Graph graph = over_constants(subject);
      infer_graph(graph);
      PassContext context;
      context.deadline_ns = UINT64_MAX / 2;
      clock.restart(late_after);
      for (const Pass& pass : passes()) {
        if (std::string(pass.name) == "fold_constants") pass.run(graph, context);
      }
      const WeightPtr y = graph.values[static_cast<std::size_t>(over_constants(subject).nodes[0].outputs[0])].constant;
      if (y == nullptr || y->desc.dtype == DType::kString) return y != nullptr;
      made->assign(1, std::string(static_cast<const char*>(y->bytes()), y->size_bytes));
      return true;
    };
    TestClock clock;
    std::vector<std::string> made, again;
    if (!fold(clock, INT64_MAX, &made)) continue;  // random, larger than the model, or for later passes
    ++folded;
    const std::int64_t looks = clock.looks();
    EXPECT_GE(looks, kLooks);
    EXPECT_TRUE(made.empty() || made[0] == results_of(subject)[0]) << "not what a run gives";
    try {
      fold(clock, looks / 2, &again);
      ADD_FAILURE() << "went on after the load's time was over";
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_TIMEOUT) << e.message;
      EXPECT_STREQ(e.node, "node");
    }
    EXPECT_EQ(clock.looks(), looks / 2 + 1);
    EXPECT_TRUE(fold(clock, INT64_MAX, &again));
    EXPECT_EQ(again, made);
  }
  EXPECT_GE(folded, 200);
}

}  // namespace
}  // namespace evn::test
