// No row of the operator tables takes memory that the memory limit does not count: each runs on megabytes, in a session, and the
// resident memory of the process grows by no more than the ledger's peak, a tenth of it and 8 MiB. Under a limit of half of that
// peak the run ends with EVN_ERROR_OUT_OF_MEMORY or fits, and the resident memory stays within the limit and 8 MiB.
// Operators without a reference, which run on the host, are measured by tests/models/test_memory_of_values.py.
// By default the newest version of each sixth operator; EVN_TEST_FULL=1: all versions of all, on four times as many bytes.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "backends/cpu/isa.h"
#include "runtime/stages/make_session.h"
#include "tests/cancellation/enlarge.h"
#include "tests/cancellation/more_cases.h"
#include "tests/support/sanitized.h"

namespace evn {
extern const Backend cpu_backend;
}

namespace evn::test {
namespace {

using conformance::Case;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kSlack = 8 * kMiB;

bool is_full() { return std::getenv("EVN_TEST_FULL") != nullptr; }

std::string name_of(const OpDef& op) {
  return (op.domain[0] == '\0' ? std::string() : std::string(op.domain) + "::") + op.name + " " + std::to_string(op.since);
}

// A field of /proc/self/status, in bytes.
std::uint64_t status_bytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoull(line.substr(field.size() + 1)) << 10;
  }
  return 0;
}

// The most resident memory from now on, beyond what there is now.
class MemoryGrowth {
 public:
  MemoryGrowth() {
    ::malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << "5";
    before_ = status_bytes("VmRSS");
  }
  std::uint64_t bytes() const {
    const std::uint64_t most = status_bytes("VmHWM");
    return most - std::min(most, before_);
  }

 private:
  std::uint64_t before_ = 0;
};

std::shared_ptr<Runtime> make_runtime(std::uint64_t limit) {
  static constexpr const Backend* kBackends[] = {&cpu_backend};
  RuntimeOptions o;
  o.thread_count = 2;
  o.cpu_memory_limit = limit;
  o.backends = kBackends;
  return std::make_shared<Runtime>(std::move(o));
}

// The subject's node as a model: constants are initializers, everything else is an input.
Model model_of(const KernelSubject& s) {
  Model model;
  model.ir_version = 10;
  model.opsets.push_back({s.node.domain, s.node.since_version});
  if (!s.node.domain.empty()) model.opsets.push_back({"", 17});
  Graph& graph = model.graph;
  Node node = s.node;
  node.op = nullptr;
  node.since_version = 0;
  node.resolved.clear();
  node.inputs.clear();
  node.outputs.clear();
  const auto add = [&](const std::string& name, const TensorDesc& d) {
    Value v;
    v.name = name;
    v.dtype = d.dtype;
    v.has_shape = true;
    v.shape = d.shape;
    graph.values.push_back(std::move(v));
    return static_cast<ValueId>(graph.values.size() - 1);
  };
  for (std::size_t i = 0; i < s.inputs.size(); ++i) {
    if (s.inputs[i].dtype == DType::kUndefined) {
      node.inputs.push_back(kNoValue);
      continue;
    }
    const ValueId v = add("x" + std::to_string(i), s.inputs[i]);
    node.inputs.push_back(v);
    if (s.constants[i] != nullptr) {
      graph.values.back().constant = s.constants[i];
    } else {
      graph.inputs.push_back(v);
    }
  }
  for (std::size_t k = 0; k < s.outputs.size(); ++k) {
    if (s.outputs[k].dtype == DType::kUndefined) {
      node.outputs.push_back(kNoValue);
      continue;
    }
    node.outputs.push_back(add("y" + std::to_string(k), s.outputs[k]));
    graph.values.back().has_shape = false;
    graph.outputs.push_back(node.outputs.back());
  }
  graph.nodes.push_back(std::move(node));
  return model;
}

struct Measured {
  std::uint64_t resident = 0;
  std::uint64_t counted = 0;
  evn_status status = EVN_OK;
  Error error;
};

Measured measure(const KernelSubject& s, const Model& model, std::uint64_t limit) {
  const std::shared_ptr<Runtime> runtime = make_runtime(limit);
  std::vector<RunValue> inputs;
  for (std::size_t i = 0; i < s.inputs.size(); ++i) {
    if (s.inputs[i].dtype == DType::kUndefined || s.constants[i] != nullptr) continue;
    inputs.push_back({std::make_shared<Tensor>(runtime, const_cast<char*>(s.values[i].data()), s.inputs[i]), nullptr});
  }
  Measured m;
  Pool& pool = runtime->cpu().pool();
  pool.reset_peak();
  const std::uint64_t before = pool.stats().current;
  const MemoryGrowth growth;
  try {
    const HeapScope counted(&pool);
    const auto session = make_session(take_model(runtime, model, true), "");
    std::vector<RunValue> outputs(session->graph().outputs.size());
    session->run(inputs, outputs, {});
    m.resident = growth.bytes();
  } catch (const Error& e) {
    m.error = e;
    m.status = e.status;
    m.resident = growth.bytes();
  } catch (const HeapRefused& refused) {
    m.error = refused.error;
    m.status = EVN_ERROR_OUT_OF_MEMORY;
    m.resident = growth.bytes();
  }
  m.counted = pool.stats().peak - before;
  return m;
}

std::vector<const OpDef*> rows() {
  std::map<std::string, const OpDef*> newest;
  std::vector<const OpDef*> all;
  for (const OpFamily* family : op_families()) {
    for (const OpDef& op : family->ops) {
      if (op.reference == nullptr) continue;
      all.push_back(&op);
      const OpDef*& known = newest[std::string(op.domain) + "::" + op.name];
      if (known == nullptr || known->since < op.since) known = &op;
    }
  }
  if (is_full()) return all;
  all.clear();
  std::size_t number = 0;  // finding a case for each takes a minute and a half
  for (const auto& [name, op] : newest) {
    if (number++ % 6 == 0) all.push_back(op);
  }
  return all;
}

// A case of many bytes for each row that has one.
std::map<const OpDef*, KernelSubject> large_cases() {
  const std::uint64_t least = is_full() ? 12 * kMiB : 3 * kMiB;
  const std::int64_t most_work = is_full() ? 400'000'000 : 16'000'000;
  const std::vector<const OpDef*> wanted = rows();
  const std::set<const OpDef*> is_wanted(wanted.begin(), wanted.end());
  std::vector<Case> candidates = more_cases();
  candidates.insert(candidates.end(), conformance::cases().begin(), conformance::cases().end());
  std::map<const OpDef*, KernelSubject> found;
  for (const std::uint64_t size : {least, least / 4}) {
    std::map<const OpDef*, int> tried;
    for (const Case& c : candidates) {
      const auto [domain, name] = split_domain(c.op);
      const OpDef* op = find_op(domain, name, c.opset);
      if (is_wanted.count(op) == 0 || found.count(op) != 0 || tried[op]++ > 1) continue;
      if (std::optional<KernelSubject> s = enlarged_to_bytes(c, size, 3 * size, most_work)) found.emplace(op, std::move(*s));
    }
  }
  return found;
}

TEST(MemoryOfRows, IsCountedAndLimited) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer has memory of its own";
  if (status_bytes("VmHWM") == 0) GTEST_SKIP() << "the system does not say how much memory is resident";
  const std::map<const OpDef*, KernelSubject> cases = large_cases();
  int measured = 0, refused = 0;
  for (const auto& c : cases) {
    const KernelSubject& s = c.second;
    SCOPED_TRACE(name_of(*c.first) + (s.inputs.empty() ? "" : " " + s.inputs[0].shape.to_string()));
    Model model;
    try {
      model = model_of(s);
    } catch (const Error&) {
      continue;  // not as a file
    }
    const Measured free = measure(s, model, 0);
    if (free.status != EVN_OK) continue;
    ++measured;
    EXPECT_LE(free.resident, free.counted + free.counted / 10 + kSlack) << "is taken, " << free.counted << " bytes are counted";
    const std::uint64_t limit = std::max<std::uint64_t>(free.counted / 2, kMiB);
    const Measured held = measure(s, model, limit);
    EXPECT_LE(held.resident, limit + kSlack) << "is taken under a limit of " << limit;
    if (held.status == EVN_OK) continue;
    ++refused;
    EXPECT_EQ(held.status, EVN_ERROR_OUT_OF_MEMORY) << held.error.message;
    EXPECT_GT(held.error.bytes_requested, held.error.bytes_available) << held.error.message;
  }
  std::printf("%d of %zu rows measured, %d refused under half of their peak\n", measured, rows().size(), refused);
  EXPECT_GE(measured, is_full() ? 300 : 20);
  EXPECT_GE(refused, measured / 2);
}

}  // namespace
}  // namespace evn::test
