// Every optimized kernel against the reference over cases drawn from the rows of the tables: other dims, attributes and values,
// with a fixed seed. EVN_DRAWN_CASES=n: so many of each operator; 50 otherwise, and 10,000 with EVN_TEST_FULL=1.
// EVN_DRAWN_OPS=Add,Conv: of these operators only.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "tests/conformance/check.h"
#include "tests/conformance/redraw.h"

namespace evn::conformance {
namespace {

using test::Bytes;
using test::KernelSubject;

constexpr int kShards = 4;                      // tests that share the operators, so that they run side by side
constexpr std::int64_t kMaxElements = 1 << 13;  // of a tensor, so that the reference takes little time
constexpr int kAttempts = 60;                   // draws for each case that counts

int wanted() {
  if (const char* text = std::getenv("EVN_DRAWN_CASES")) return std::max(1, std::atoi(text));
  const char* full = std::getenv("EVN_TEST_FULL");
  return full != nullptr && std::string(full) == "1" ? 10000 : 50;
}

bool is_wanted(const std::string& op) {
  const char* names = std::getenv("EVN_DRAWN_OPS");
  return names == nullptr || (',' + std::string(names) + ',').find(',' + op + ',') != std::string::npos;
}

// The operators for which some device has a kernel besides the reference.
std::vector<std::string> ops_with_kernels() {
  std::set<std::pair<std::string, std::string>> known;
  for (const Target& target : targets()) {
    for (const KernelFamily* family : target.device->kernels()) {
      for (const Kernel& k : family->kernels) known.insert({k.domain, k.op});
    }
  }
  std::vector<std::string> all;
  for (const std::string& op : case_ops()) {
    if (known.count(test::split_domain(op)) != 0 && is_wanted(op)) all.push_back(op);
  }
  return all;
}

bool is_small(const Case& c) {
  return std::all_of(c.operands.begin(), c.operands.end(),
                     [](const Operand& o) { return o.desc.dtype == DType::kUndefined || o.desc.shape.elements() <= kMaxElements; });
}

// Runs what takes the node; returns whether anything did.
bool check_optimized(const KernelSubject& s, const std::vector<Bytes>& expected) {
  bool any = false;
  for (const Target& target : targets()) {
    if (!target.differs(s) || target.precision != Precision::kFloat32) continue;
    const test::ForcedIsa forced(target.isa);
    for (const Kernel* kernel : test::supporting_kernels(*target.device, s.desc())) {
      check_kernel(target, *kernel, s, expected);
      any = true;
    }
  }
  return any;
}

constexpr std::int64_t kTiny = 16;  // elements of an output, of which all may be sums that cancel out

// Whether rounding alone does not make the result: a product may have passed below the smallest float on its way, the deviation of
// a few elements (whose inverse is a further output) may be no more than their last bits, and a few sums of numbers around 1 what
// is left of a difference.
bool is_conditioned(const KernelSubject& s, const std::vector<Bytes>& expected) {
  const float smallest = s.node.op->name == std::string_view("ReduceProd") ? 1e-30f : 0;
  for (std::size_t k = 0; k < expected.size(); ++k) {
    if (s.outputs[k].dtype != DType::kFloat32) continue;
    const float* values = reinterpret_cast<const float*>(expected[k].data());
    const float* end = values + expected[k].size() / sizeof(float);
    const auto is_left_over = [](float v) { return v != 0 && std::fabs(v) < 1e-2f; };
    if (end - values < kTiny && std::any_of(values, end, is_left_over)) return false;
    const auto fits = [&](float v) { return !std::isfinite(v) || (std::fabs(v) >= smallest && (k == 0 || std::fabs(v) <= 1e3f)); };
    if (!std::all_of(values, end, fits)) return false;
  }
  return true;
}

// The node with its operands, or false where the draw is no legal node, too large, ill-conditioned, or none of a kernel's business.
bool make(const Case& c, std::uint64_t seed, KernelSubject* s, std::vector<Bytes>* expected) {
  if (!is_small(c)) return false;
  try {
    *s = make_subject(c, seed, {});
    const auto fits = [](const TensorDesc& d) { return d.shape.elements() <= 4 * kMaxElements; };
    if (needs_no_kernel(*s) || !std::all_of(s->outputs.begin(), s->outputs.end(), fits)) return false;
    *expected = test::reference_result(*s);
  } catch (const Error&) {
    return false;
  }
  return is_conditioned(*s, *expected);
}

// Sums of positive numbers do not cancel out. Gates would be all but closed.
void make_positive(Case* c) {
  if (c->op == "LSTM" || c->op == "GRU") return;
  for (Operand& o : c->operands) o.low = std::max(o.low, o.high / 8);
}

// Returns true if the rows that are normalized are so short that all their elements may lie within a few roundings of each other.
// The derivative of two elements is the difference of two terms that are nearly equal.
bool has_short_rows(const Case& c) {
  const Shape& x = c.operands[0].desc.shape;
  if (c.op.ends_with("BatchNormalizationGradient")) return x.rank() > 1 && x[1] > 0 && x.elements() / x[1] < 4;
  return c.op.find("LayerNormalization") != std::string::npos && x.rank() > 0 && x[x.rank() - 1] < 4;
}

void bound(Operand* o, double most) {
  o->high = std::min(o->high, most);
  o->low = std::max(o->low, -o->high);
}

// With a recurrence matrix that amplifies, rounding grows from step to step. The derivatives by weights of attention are sums over
// the depth of values, of which only the differences count.
void make_stable(Case* c) {
  const std::string_view op = std::string_view(c->op).substr(c->op.starts_with("evener::") ? 8 : 0);
  if (op == "AttentionGradient") {
    const Shape& values = c->operands[2].desc.shape;
    return bound(&c->operands[2], 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, values[values.rank() - 1]))));
  }
  const std::string_view layer = op.ends_with("Gradient") ? op.substr(0, op.size() - 8) : op;
  if (layer != "RNN" && layer != "LSTM" && layer != "GRU") return;
  Operand& recurrence = c->operands[2];
  const double hidden = static_cast<double>(std::max<std::int64_t>(1, recurrence.desc.shape[2]));
  bound(&recurrence, 1 / std::sqrt(hidden));
}

// One draw; returns whether it counts.
bool check_draw(const Case& base, test::Random& random, std::uint64_t seed) {
  Case c = redraw(base, random);
  if (has_short_rows(c)) return false;
  make_stable(&c);
  KernelSubject s;
  std::vector<Bytes> expected;
  if (!make(c, seed, &s, &expected)) return false;
  const bool is_tiny = s.outputs[0].shape.elements() < kTiny;
  if (is_tiny) {
    make_positive(&c);
    if (!make(c, seed, &s, &expected)) return false;
  }
  SCOPED_TRACE(c.describe() + ", seed " + std::to_string(seed));
  if (s.outputs[0].dtype == DType::kFloat32 && seed % 3 == 0 && !is_tiny) {
    s.node.epilogue = chain(seed);
    expected[0] = fused(s.node.epilogue, expected[0]);
    SCOPED_TRACE("with fused steps");
  }
  return check_optimized(s, expected);
}

int failures() { return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count(); }

void check_operator(const std::string& op) {
  std::vector<const Case*> rows;
  for (const Case& c : cases()) {
    if (c.op == op) rows.push_back(&c);
  }
  std::uint64_t seed = 0;
  for (const char letter : op) seed = seed * 31 + static_cast<unsigned char>(letter);
  test::Random random(seed);
  const int goal = wanted();
  int counted = 0;
  const int before = failures();
  for (int attempt = 0; counted < goal && attempt < goal * kAttempts; ++attempt) {
    const Case& base = *rows[random.next() % rows.size()];
    counted += check_draw(base, random, static_cast<std::uint64_t>(attempt) + 3) ? 1 : 0;
    if (failures() != before) return;
  }
  EXPECT_GE(counted, goal) << op << ": too few of the draws are nodes that a kernel takes";
}

class Drawn : public testing::TestWithParam<int> {};

TEST_P(Drawn, EveryKernelGivesWhatTheReferenceGives) {
  if (const char* isa = std::getenv("EVN_CPU_ISA"); isa != nullptr && isa[0] != '\0') GTEST_SKIP() << "runs once, on every cluster";
  const std::vector<std::string> ops = ops_with_kernels();
  for (std::size_t i = static_cast<std::size_t>(GetParam()); i < ops.size(); i += kShards) check_operator(ops[i]);
}

INSTANTIATE_TEST_SUITE_P(Of, Drawn, testing::Range(0, kShards));

}  // namespace
}  // namespace evn::conformance
