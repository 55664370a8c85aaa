// Requests that the batcher may join have the bits of requests that run alone. For cases of each operator, and each way in which
// its inputs can have rows, runs of up to 40 rows give each row what a run of the row alone gives. With EVN_TEST_FULL=1 all cases
// and all numbers of rows, else some, and few where code is instrumented.
#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "runtime/rows/rows.h"
#include "tests/conformance/check.h"
#include "tests/support/sanitized.h"

namespace evn::conformance {
namespace {

using test::Bytes;
using test::KernelRun;
using test::KernelSubject;

constexpr std::size_t kMostRows = 40;
constexpr std::size_t kDistinct = 3;                            // rows of their own values; they take turns
constexpr std::size_t kMostCases = test::kIsSanitized ? 1 : 6;  // of an operator, spread evenly

bool takes_all() {
  const char* full = std::getenv("EVN_TEST_FULL");
  return full != nullptr && full[0] == '1';
}

// Which inputs have rows, and at which axis.
struct Rows {
  std::vector<int> axes;  // per input; -1: none
  std::int64_t unit = 1;  // elements of the axis in one row
};

// Elements [first, first + count) of an axis.
Bytes part_of(const Bytes& from, const TensorDesc& desc, int axis, std::int64_t first, std::int64_t count) {
  const auto outer = static_cast<std::size_t>(desc.shape.elements(0, axis));
  const std::size_t block = outer == 0 ? 0 : from.size() / outer, step = block / static_cast<std::size_t>(desc.shape[axis]);
  Bytes to;
  for (std::size_t i = 0; i < outer; ++i) {
    const char* const at = from.data() + i * block + static_cast<std::size_t>(first) * step;
    to.insert(to.end(), at, at + static_cast<std::size_t>(count) * step);
  }
  return to;
}

// Values one after the other along an axis, in which each of them has `one`.
Bytes joined(const std::vector<const Bytes*>& values, const TensorDesc& one, int axis) {
  const auto outer = static_cast<std::size_t>(one.shape.elements(0, axis));
  Bytes to;
  for (std::size_t i = 0; i < outer; ++i) {
    for (const Bytes* v : values) {
      const std::size_t block = v->size() / outer;
      to.insert(to.end(), v->data() + i * block, v->data() + (i + 1) * block);
    }
  }
  return to;
}

KernelSubject finished(const Case& c, const KernelSubject& like, std::vector<TensorDesc> descs, std::vector<Bytes> values) {
  KernelSubject s;
  for (std::size_t i = 0; i < descs.size(); ++i)
    test::add_operand(&s, descs[i], std::move(values[i]), like.constants[i] != nullptr);
  test::finish_subject(&s, c.op, c.opset, c.attributes, c.output_count, like.node.epilogue);
  return s;
}

// The subjects of kDistinct rows, each alone. Throws Error where the operator does not take such inputs.
std::vector<KernelSubject> rows_alone(const Case& c, const Rows& rows, const Epilogue& epilogue) {
  std::vector<KernelSubject> all;
  KernelSubject first;
  for (std::size_t r = 0; r < kDistinct; ++r) {
    const KernelSubject s = make_subject(c, 100 + r, epilogue);
    if (r == 0) first = s;
    std::vector<TensorDesc> descs = s.inputs;
    std::vector<Bytes> values = first.values;
    for (std::size_t i = 0; i < descs.size(); ++i) {
      if (rows.axes[i] < 0) continue;
      values[i] = part_of(s.values[i], descs[i], rows.axes[i], 0, rows.unit);
      descs[i].shape[rows.axes[i]] = rows.unit;
    }
    all.push_back(finished(c, s, std::move(descs), std::move(values)));
  }
  return all;
}

KernelSubject rows_joined(const Case& c, const Rows& rows, const std::vector<KernelSubject>& alone, std::size_t count) {
  std::vector<TensorDesc> descs = alone[0].inputs;
  std::vector<Bytes> values = alone[0].values;
  for (std::size_t i = 0; i < descs.size(); ++i) {
    if (rows.axes[i] < 0) continue;
    std::vector<const Bytes*> parts;
    for (std::size_t r = 0; r < count; ++r) parts.push_back(&alone[r % kDistinct].values[i]);
    values[i] = joined(parts, descs[i], rows.axes[i]);
    descs[i].shape[rows.axes[i]] *= static_cast<std::int64_t>(count);
  }
  return finished(c, alone[0], std::move(descs), std::move(values));
}

// The axes of the outputs that have rows, -1 where one is alike. Throws Error where the batcher does not join such requests.
std::vector<int> proven(const KernelSubject& one, const KernelSubject& many, const Rows& rows, std::size_t count) {
  const auto values_of = [&](const KernelSubject& s) {
    std::vector<ConstTensor> values;
    for (std::size_t i = 0; i < s.inputs.size(); ++i) {
      const bool by_value = s.node.op->reads_value(i);
      const bool is_known = rows.axes[i] < 0 && (s.constants[i] != nullptr || by_value);
      values.push_back({s.inputs[i], is_known ? s.values[i].data() : nullptr});
    }
    return values;
  };
  const std::vector<ConstTensor> of_one = values_of(one), of_many = values_of(many);
  std::vector<RowPlace> in(one.inputs.size()), out(one.outputs.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (rows.axes[i] >= 0) in[i] = {RowPlace::Kind::kRows, rows.axes[i]};
  }
  NodeRows node{one.node, static_cast<std::int64_t>(count), of_one, of_many, one.outputs, many.outputs, in, out};
  follow_rows(node);
  std::vector<int> axes;
  for (const RowPlace& p : out) {
    if (p.kind != RowPlace::Kind::kRows && p.kind != RowPlace::Kind::kAlike) node.refuse("gives no rows");
    axes.push_back(p.kind == RowPlace::Kind::kRows ? p.axis : -1);
  }
  return axes;
}

// Ways in which the inputs of a case can have rows.
std::vector<Rows> ways_of(const Case& c, const KernelSubject& s) {
  std::vector<Rows> ways;
  const auto add = [&](Rows rows) {
    for (const Rows& known : ways) {
      if (known.axes == rows.axes && known.unit == rows.unit) return;
    }
    ways.push_back(std::move(rows));
  };
  const std::size_t inputs = s.inputs.size();
  std::size_t leads = 0;  // the first two inputs that are computed
  for (std::size_t lead = 0; lead < inputs && leads < 2; ++lead) {
    if (s.inputs[lead].dtype == DType::kUndefined || c.operands[lead].constant) continue;
    ++leads;
    const Shape& shape = s.inputs[lead].shape;
    for (int axis = 0; axis < std::min(shape.rank(), 3); ++axis) {
      if (shape[axis] == 0) continue;
      for (const std::int64_t unit : {std::int64_t{1}, shape[axis]}) {
        Rows only{std::vector<int>(inputs, -1), unit}, first_axes = only, same_axis = only, from_end = only;
        only.axes[lead] = axis;
        for (std::size_t i = 0; i < inputs; ++i) {
          const Shape& other = s.inputs[i].shape;
          if (c.operands[i].constant || s.inputs[i].dtype == DType::kUndefined) continue;
          const int aligned = axis + other.rank() - shape.rank();
          if (other.rank() > 0 && other[0] == shape[axis]) first_axes.axes[i] = 0;
          if (other.rank() > axis && other[axis] == shape[axis]) same_axis.axes[i] = axis;
          if (aligned >= 0 && aligned < other.rank() && other[aligned] == shape[axis]) from_end.axes[i] = aligned;
        }
        first_axes.axes[lead] = axis;
        for (const Rows& rows : {only, first_axes, same_axis, from_end}) add(rows);
      }
    }
  }
  return ways;
}

// True for products and operators that work with samples, whose kernels cut their work by the number of rows.
bool works_with_samples(const KernelSubject& s) {
  const std::span<const RowRuleOf> rules = row_rules_of_products();
  return std::any_of(rules.begin(), rules.end(), [&](const RowRuleOf& r) { return s.node.op_type == r.op; });
}

// The kernel that the device takes for a subject; null if it takes none.
const Kernel* taken_by(const Device& device, const KernelSubject& s) {
  const Kernel* const kernel = device.find_kernel(s.desc(), nullptr);
  return kernel != nullptr ? kernel : device.reference_kernel(s.desc());
}

// Returns the number of kernels whose rows were compared: with the same kernel, or with the one that the device takes for many rows
// in its place.
std::size_t check_target(const Target& target, const Case& c, const Rows& rows, const std::vector<KernelSubject>& alone,
                         const std::vector<int>& axes, const std::vector<std::size_t>& counts) {
  std::vector<KernelSubject> given;
  for (const KernelSubject& s : alone) given.push_back(target.subject(s));
  std::vector<const Kernel*> kernels = test::supporting_kernels(*target.device, given[0].desc());
  if (kernels.empty() && target.precision == Precision::kFloat32 && target.products == Products::kAuto) {
    if (const Kernel* reference = target.device->reference_kernel(given[0].desc())) kernels.push_back(reference);
  }
  const Kernel* const taken = taken_by(*target.device, given[0]);
  std::size_t compared = 0;
  for (const Kernel* kernel : kernels) {
    std::vector<std::vector<Bytes>> want;
    for (const KernelSubject& s : given) want.push_back(KernelRun(*target.device, *kernel, s).run());
    bool ran = false;
    for (const std::size_t count : counts) {
      KernelSubject many = target.subject(rows_joined(c, rows, alone, count));
      std::vector<const Kernel*> of_many;
      if (kernel->supports(many.desc()) == nullptr) of_many.push_back(kernel);
      const Kernel* const other = kernel == taken ? taken_by(*target.device, many) : kernel;
      if (other != nullptr && other != kernel) of_many.push_back(other);
      for (const Kernel* k : of_many) {
        ran = true;
        const std::vector<Bytes> got = KernelRun(*target.device, *k, many).run();
        for (std::size_t i = 0; i < got.size(); ++i) {
          std::vector<const Bytes*> parts;
          for (std::size_t r = 0; axes[i] >= 0 && r < count; ++r) parts.push_back(&want[r % kDistinct][i]);
          const Bytes expected = axes[i] < 0 ? want[0][i] : joined(parts, given[0].outputs[i], axes[i]);
          EXPECT_TRUE(got[i] == expected) << label(target, *k) << ": output " << i << " of " << count
                                          << " rows has other bits than rows alone by kernel " << kernel->name;
          if (got[i] != expected) return compared + 1;
        }
      }
    }
    compared += ran ? 1 : 0;
  }
  return compared;
}

// Numbers of rows in a run. Products cut their work by them.
std::vector<std::size_t> counts_for(const KernelSubject& s, bool is_large) {
  const bool is_product = is_large && (s.node.op_type.starts_with("MatMul") || s.node.op_type == "Gemm");
  if (test::kIsSanitized && !takes_all()) return {3};
  if (!is_product && !takes_all()) return works_with_samples(s) ? std::vector<std::size_t>{3, 8, 40} : std::vector<std::size_t>{40};
  std::vector<std::size_t> all;
  for (std::size_t count = 2; count <= kMostRows; ++count) all.push_back(count);
  return all;
}

// Returns the number of ways, targets and kernels that were compared.
std::size_t check_case(const Case& c, std::size_t number, bool is_large) {
  const KernelSubject s = make_subject(c, 100, {});
  const bool small = std::any_of(s.inputs.begin(), s.inputs.end(), [](const TensorDesc& d) { return is_sub_byte(d.dtype); });
  if (small || needs_no_kernel(s) || s.node.op == nullptr) return 0;
  const Epilogue epilogue = s.outputs[0].dtype == DType::kFloat32 ? chain(number) : Epilogue{};
  const std::vector<std::size_t> counts = counts_for(s, is_large);
  std::vector<std::vector<int>> done;
  std::size_t compared = 0;
  for (const Rows& rows : ways_of(c, s)) {
    if (std::find(done.begin(), done.end(), rows.axes) != done.end()) continue;  // with rows of one element
    std::vector<KernelSubject> alone;
    std::vector<int> axes;
    try {
      alone = rows_alone(c, rows, epilogue);
      axes = proven(alone[0], rows_joined(c, rows, alone, kMostRows), rows, kMostRows);
    } catch (const Error&) {
      continue;  // no such inputs, or such requests are not joined
    }
    done.push_back(rows.axes);
    if (std::any_of(alone[0].outputs.begin(), alone[0].outputs.end(), [](const TensorDesc& d) { return is_sub_byte(d.dtype); }))
      return compared;
    SCOPED_TRACE(c.describe() + ", rows of " + alone[0].inputs[0].shape.to_string());
    for (const Target& target : targets()) {
      if (!target.isa || !target.differs(s)) continue;
      const test::ForcedIsa forced(target.isa);
      compared += check_target(target, c, rows, alone, axes, counts);
    }
  }
  return compared;
}

std::string param_name(const testing::TestParamInfo<std::string>& info) {
  std::string name;
  for (const char ch : info.param) name += ch == '.' || ch == ':' ? '_' : ch;
  return name;
}

class JoinedRows : public testing::TestWithParam<std::string> {};

// Cases of operators that cannot be joined in the tables, because indices, lengths or masks are constant there, or the numbers of
// rows differ.
const Cases& joinable_cases() {
  static const Cases all = [] {
    Cases some;
    some.push_back(Case("Einsum", 12).x({2, 3, 4}).x({4, 5}).word("equation", "bij,jk->bik"));
    some.push_back(Case("GatherElements", 13).x({3, 40}).in(kI64, {3, 20}, -40, 39).integer("axis", 1));
    some.push_back(Case("GatherND", 13).x({4, 3}).literal({kI64, {2, 2}}, {0, 1, 3, 2}).variable());
    some.push_back(
        Case("Scatter", 9).x({3, 4}).literal({kI64, {3, 2}}, {0, 2, 1, 3, 3, 0}).variable().x({3, 2}).integer("axis", 1));
    some.push_back(
        Case("ScatterElements", 18).x({3, 40}).in(kI64, {3, 20}, -40, 39).x({3, 20}).integer("axis", 1).word("reduction", "add"));
    some.push_back(Case("ReverseSequence", 10).x({4, 3, 2}).list({1, 3, 4}).variable());
    some.push_back(Case("com.microsoft::RotaryEmbedding", 1)
                       .x({2, 3, 16})
                       .literal({kI64, {2, 3}}, {0, 4, 2, 0, 4, 2})
                       .variable()
                       .x({5, 2})
                       .x({5, 2}));
    some.push_back(Case("com.microsoft::EmbedLayerNormalization", 1)
                       .literal({kI32, {2, 3}}, {3, 0, 4, 1, 2, 2})
                       .variable()
                       .literal({kI32, {2, 3}}, {0, 0, 1, 1, 1, 0})
                       .variable()
                       .w({5, 8})
                       .w({4, 8})
                       .w({2, 8})
                       .w({8})
                       .w({8})
                       .literal({kI32, {2, 3}}, {1, 1, 0, 1, 1, 1})
                       .variable()
                       .outputs(3));
    some.push_back(Case("com.microsoft::QAttention", 1)
                       .in(DType::kUint8, {2, 5, 7}, 0, 90)
                       .constant(DType::kInt8, {7, 72}, -90, 90)
                       .w({72})
                       .literal({kF32, {}}, {0.02})
                       .w({72}, 0.005, 0.01)
                       .absent()
                       .scalar(DType::kUint8, 3)
                       .scalar(DType::kInt8, 1)
                       .integer("num_heads", 3));
    some.push_back(Case("com.microsoft::GroupQueryAttention", 1)
                       .x({2, 1, 64})
                       .x({2, 1, 16})
                       .x({2, 1, 16})
                       .x({2, 1, 70, 16})
                       .x({2, 1, 70, 16})
                       .literal({kI32, {2}}, {70, 70})
                       .variable()
                       .scalar(kI32, 71)
                       .integer("num_heads", 4)
                       .integer("kv_num_heads", 1)
                       .outputs(3));
    return some;
  }();
  return all;
}

// Operators with a rule that refuses, or with outputs that cannot have rows.
bool is_never_joined(const std::string& op) {
  static constexpr const char* kScaleOfAllRows[] = {"DynamicQuantizeLinear", "com.microsoft::DynamicQuantizeMatMul",
                                                    "com.microsoft::DynamicQuantizeLSTM"};
  static constexpr const char* kShapes[] = {"Shape", "Size"};  // depend on the number of rows
  const auto is_op = [&](const char* name) { return op == name; };
  return std::any_of(std::begin(kScaleOfAllRows), std::end(kScaleOfAllRows), is_op) ||
         std::any_of(std::begin(kShapes), std::end(kShapes), is_op);
}

// True if the batcher knows what the operator of a case makes of rows.
bool is_followed(const Case& c) {
  const auto [domain, name] = test::split_domain(c.op);
  for (const std::span<const RowRuleOf> rules : {row_rules_of_moves(), row_rules_of_products()}) {
    for (const RowRuleOf& r : rules) {
      if (name == r.op && (r.domain == nullptr || domain == r.domain)) return true;
    }
  }
  const OpDef* const op = find_op(domain, name, c.opset);
  return op != nullptr && (op->flags & kOpElementwise) != 0 && (op->flags & kOpRandom) == 0 && c.output_count == 1;
}

TEST_P(JoinedRows, HaveTheBitsOfRowsAlone) {
  std::size_t compared = 0;
  const auto check = [&](const Case& c, std::size_t number) {
    try {
      compared += check_case(c, number, false);
    } catch (const Error& e) {
      ADD_FAILURE() << c.describe() << " threw: " << e.message;
    }
  };
  for (const Case& c : joinable_cases()) {
    if (c.op == GetParam()) check(c, 0);
  }
  std::vector<const Case*> all;
  for (const Case& c : cases()) {
    if (c.op == GetParam()) all.push_back(&c);
  }
  const std::size_t count = takes_all() ? all.size() : std::min(all.size(), kMostCases);
  for (std::size_t i = 0; i < count; ++i) check(*all[i * all.size() / count], chain_of(*all[i * all.size() / count]));
  const bool is_joined =
      !is_never_joined(GetParam()) && std::any_of(all.begin(), all.end(), [](const Case* c) { return is_followed(*c); });
  for (std::size_t i = 0; is_joined && compared == 0 && i < all.size(); ++i) check(*all[i], chain_of(*all[i]));
  EXPECT_EQ(compared > 0, is_joined) << (is_joined ? "no case was joined, so that nothing was compared"
                                                   : "a case was joined, though no operator like this is known to be");
}

INSTANTIATE_TEST_SUITE_P(Of, JoinedRows, testing::ValuesIn(case_ops()), param_name);

// Sizes at which kernels cut their work otherwise than at those of the tables: several blocks along the summed axis, several panels
// of columns.
Cases large_cases() {
  Cases all;
  std::size_t number = 0;
  for (const std::int64_t bits : {2, 4, 8}) {
    for (const int level : {0, 4}) {
      for (const bool zeros : {false, true}) {
        constexpr std::int64_t kBlocks[] = {16, 32, 256};
        const std::int64_t block = kBlocks[number++ % 3], k = 576, n = 70, blocks = (k + block - 1) / block;
        Case c("com.microsoft::MatMulNBits", 1);
        c.x({3, k}).constant(DType::kUint8, {n, blocks, block * bits / 8}, 0, 256).w({n, blocks}, 0.01, 0.1);
        if (zeros) c.constant(DType::kUint8, {n, (blocks * bits + 7) / 8}, 0, 256).absent().w({n});
        c.integer("bits", bits).integer("block_size", block).integer("K", k).integer("N", n);
        all.push_back(level == 0 ? c : c.integer("accuracy_level", level));
      }
    }
  }
  for (const std::int64_t n : {1, 9, 100}) {
    all.push_back(Case("MatMul", 13).x({3, 1100}).w({1100, n}));
    all.push_back(Case("MatMul", 13).x({3, 1100}).x({1100, n}));
    all.push_back(Case("Gemm", 13).x({3, 1100}).w({n, 1100}).w({n}).integer("transB", 1));
  }
  all.push_back(Case("MatMul", 13).x({3, 2, 70}).w({70, 40}));
  all.push_back(Case("MatMulInteger", 10).in(DType::kUint8, {3, 1100}, 0, 256).constant(DType::kInt8, {1100, 100}, -128, 128));
  all.push_back(Case("Conv", 11).x({2, 24, 13, 17}).w({40, 24, 3, 3}).ints("pads", {1, 1, 1, 1}));
  all.push_back(Case("Conv", 11).x({2, 40, 9, 11}).w({70, 40, 1, 1}));
  all.push_back(Case("Conv", 11).x({2, 32, 9, 11}).w({32, 1, 3, 3}).integer("group", 32));
  all.push_back(Case("Conv", 11).x({2, 600, 1, 1}).w({70, 600, 1, 1}));
  all.push_back(Case("LSTM", 14).x({5, 2, 30}).w({1, 160, 30}, -1, 1).w({1, 160, 40}, -1, 1).outputs(3).integer("hidden_size", 40));
  all.push_back(Case("GRU", 14).x({5, 2, 30}).w({1, 120, 30}, -1, 1).w({1, 120, 40}, -1, 1).outputs(2).integer("hidden_size", 40));
  all.push_back(Case("LSTM", 14)
                    .x({2, 2, 30})
                    .w({1, 1200, 30}, -0.1, 0.1)
                    .w({1, 1200, 300}, -0.1, 0.1)
                    .outputs(3)
                    .integer("hidden_size", 300));
  all.push_back(Case("Attention", 23).x({2, 4, 70, 40}).x({2, 4, 130, 40}).x({2, 4, 130, 40}));
  all.push_back(Case("Attention", 23).x({2, 8, 1, 40}).x({2, 1, 130, 40}).x({2, 1, 130, 40}));
  all.push_back(Case("Softmax", 13).x({3, 2100}));
  all.push_back(Case("ReduceMean", 18).x({3, 2100}).list({1}));
  all.push_back(Case("LayerNormalization", 17).x({3, 2100}).w({2100}).w({2100}));
  return all;
}

TEST(JoinedRowsOfBlocks, HaveTheBitsOfRowsAlone) {
  static const Cases all = large_cases();
  for (const Case& c : all) {
    try {
      EXPECT_GT(check_case(c, static_cast<std::size_t>(&c - all.data()), true), 0u) << c.describe();
    } catch (const Error& e) {
      ADD_FAILURE() << c.describe() << " threw: " << e.message;
    }
  }
}

}  // namespace
}  // namespace evn::conformance
