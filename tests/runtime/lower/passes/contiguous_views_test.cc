// Split, Slice and Gather of the outermost axis that copy nothing: that they are found, that near misses are not, and that graphs
// drawn of them give what the reference gives, for dims and positions that come and go.
#include "runtime/report/inspect.h"
#include "tests/runtime/support.h"

namespace evn::test::contiguous_views_test {
namespace {

using ContiguousViewsTest = RuntimeTest;

// A graph of values [rows, columns, width], or with fewer dims.
class Network {
 public:
  explicit Network(const std::vector<Dim>& dims) : writer_(13) { writer_.add_input("x", kF32, dims); }

  std::string unary(const std::string& x, const char* op) { return node(op, {x}); }
  std::string add(const std::string& a, const std::string& b) { return node("Add", {a, b}); }
  std::string slice(const std::string& x, std::int64_t begin, std::int64_t end, std::int64_t axis = 0, std::int64_t step = 1) {
    return node("Slice", {x, list({begin}), list({end}), list({axis}), list({step})});
  }
  std::string gather(const std::string& x, std::int64_t row, std::int64_t axis = 0) {
    const std::string index = "i" + std::to_string(count_++);
    writer_.add_initializer(index, {}, std::vector<std::int64_t>{row});
    return node("Gather", {x, index}, {{"axis", axis}});
  }
  std::string gather_rows(const std::string& x, const std::vector<std::int64_t>& rows) {
    return node("Gather", {x, list(rows)}, {{"axis", 0}});
  }
  std::string reshape(const std::string& x, const std::vector<std::int64_t>& dims) { return node("Reshape", {x, list(dims)}); }
  std::string transpose(const std::string& x, const std::vector<std::int64_t>& perm) {
    return node("Transpose", {x}, {{"perm", perm}});
  }
  std::vector<std::string> split(const std::string& x, std::size_t parts, std::int64_t axis = 0) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < parts; ++i) names.push_back("v" + std::to_string(count_++));
    writer_.add_node("Split", {x}, names, {{"axis", axis}});
    return names;
  }
  std::string node(const char* op, const std::vector<std::string>& inputs, const std::vector<Attr>& attributes = {}) {
    const std::string y = "v" + std::to_string(count_++);
    writer_.add_node(op, inputs, {y}, attributes, "node_" + y);
    return y;
  }
  void output(const std::string& x) { writer_.add_output(node("Neg", {x}), kF32); }

  OnnxWriter& writer() { return writer_; }

 private:
  std::string list(const std::vector<std::int64_t>& values) {
    const std::string name = "l" + std::to_string(count_++);
    writer_.add_initializer(name, {static_cast<std::int64_t>(values.size())}, values);
    return name;
  }

  OnnxWriter writer_;
  int count_ = 0;
};

int count_views(const Session& session) {
  const std::string json = explain(session, EVN_FORMAT_JSON);
  int count = 0;
  for (std::size_t at = 0; (at = json.find("\"contiguous_views\"", at)) != std::string::npos; ++at) ++count;
  return count;
}

// Sessions of one model with the pass and without it.
struct Both {
  explicit Both(Network& network, const std::string& device = "", int threads = 2)
      : model(load(make_runtime(two_mocks(), 0, threads), network.writer())),
        with(model, device),
        without(model, disabled(device)) {}

  static SessionRequest disabled(const std::string& device) {
    SessionRequest request(device);
    request.disabled_passes = {"contiguous_views"};
    return request;
  }

  // Runs both, and the reference.
  void check(const std::vector<HostTensor>& in) {
    const std::vector<HostTensor> got = run(with, in), want = run(without, in);
    ASSERT_NO_FATAL_FAILURE(expect_close(got, GraphRunner(model->graph()).run(in)));
    for (std::size_t k = 0; k < got.size(); ++k) {
      ASSERT_EQ(got[k].desc, want[k].desc);
      EXPECT_EQ(got[k].bytes, want[k].bytes) << "output " << k;
    }
    EXPECT_EQ(count_views(without), 0);
  }

  ModelPtr model;
  TestSession with, without;
};

int run_and_count(Network& network, const Shape& x) {
  Both both(network);
  both.check({random_tensor(x, 3, -1, 1)});
  return count_views(both.with);
}

// Queries, keys and values of a joint projection, as exporters cut them.
TEST_F(ContiguousViewsTest, HeadsOfAJointProjectionStayWhereTheyLie) {
  for (const char* op : {"Gather", "Slice", "Split"}) {
    Network n({1, "S", 48});
    const std::string heads = n.transpose(n.reshape(n.unary("x", "Relu"), {0, -1, 3, 2, 8}), {2, 0, 3, 1, 4});
    std::vector<std::string> parts = n.split(heads, *op == 'S' && op[1] == 'p' ? 3 : 1);
    for (std::int64_t i = 0; parts.size() < 3 || i < 3; ++i) {
      if (i == 0 && parts.size() == 1) parts.clear();
      if (*op == 'G') parts.push_back(n.gather(heads, i));
      else if (parts.size() < 3) parts.push_back(n.slice(heads, i, i + 1));
    }
    for (std::string& part : parts) part = n.reshape(part, {2, -1, 8});
    const std::string scores = n.node("MatMul", {parts[0], n.transpose(parts[1], {0, 2, 1})});
    n.output(n.node("MatMul", {n.node("Softmax", {scores}, {{"axis", -1}}), parts[2]}));
    Both both(n);
    for (const std::int64_t length : {12, 4, 1, 40, 13}) both.check({random_tensor({1, length, 48}, 5, -1, 1)});
    EXPECT_GE(count_views(both.with), op[1] == 'p' ? 1 : 3) << op;
  }
}

TEST_F(ContiguousViewsTest, AxesBehindOthersOfOnePositionAreOutermost) {
  Network n({1, 8, 16});
  const std::string a = n.unary("x", "Relu");
  n.output(n.slice(a, 2, 6, 1));
  n.output(n.gather(a, 3, 1));
  n.output(n.split(a, 2, 1)[1]);
  EXPECT_EQ(run_and_count(n, {1, 8, 16}), 3);
}

TEST_F(ContiguousViewsTest, ViewsOfViewsLieInOneBuffer) {
  Network n({12, 4, 16});
  const std::string a = n.unary("x", "Relu"), b = n.slice(a, 2, 11), c = n.gather_rows(b, {3, 4, 5}), d = n.reshape(c, {12, 16});
  n.output(n.add(n.gather(d, 7), n.gather(a, 0)));
  n.output(n.slice(d, 4, 8));
  EXPECT_EQ(run_and_count(n, {12, 4, 16}), 5);
}

TEST_F(ContiguousViewsTest, NearMissesAreCopied) {
  Network n({12, 4, 16});
  const std::string a = n.unary("x", "Relu"), odd = n.unary(n.slice(a, 0, 15, 2, 5), "Exp");
  n.output(n.slice(a, 10, 1, 0, -1));             // backwards
  n.output(n.slice(a, 0, 12, 0, 2));              // every other row
  n.output(n.slice(a, 1, 3, 1));                  // an inner axis
  n.output(n.gather(a, 2, 1));                    // the same
  n.output(n.gather_rows(a, {1, 3}));             // rows apart
  n.output(n.gather_rows(a, {3, 2}));             // the other way round
  n.output(n.slice(odd, 1, 3));                   // 48 bytes from the begin
  n.output(n.slice("x", 2, 4));                   // memory that the caller gives
  n.writer().add_output(n.slice(a, 2, 4), kF32);  // to memory that the caller gives
  EXPECT_EQ(run_and_count(n, {12, 4, 16}), 0);
}

TEST_F(ContiguousViewsTest, AnIndexThatIsNoRowIsTheRunsErrorAndNotThePlans) {
  for (const std::int64_t row : {4, -5}) {
    Network n({4, 16});
    n.output(n.gather(n.unary("x", "Relu"), row));
    const auto runtime = make_runtime();
    const ModelPtr model = load(runtime, n.writer());
    EXPECT_TRUE(estimate_run(model->graph(), *runtime, {}).complete);
    TestSession session(model, "");
    try {
      run(session, {random_tensor({4, 16}, 1)});
      ADD_FAILURE() << row;
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_INVALID_ARGUMENT);
      EXPECT_NE(std::string(e.node).find("node_"), std::string::npos) << e.node;
    }
  }
}

// A value is not written over while a part of it is read, through a Reshape either, and a part never.
TEST_F(ContiguousViewsTest, WhatIsStillReadIsNotWrittenOver) {
  Network n({8, 4, 16});
  const std::string a = n.unary("x", "Relu"), part = n.slice(a, 2, 4), late = n.reshape(n.gather(a, 5), {2, 2, 16});
  const std::string b = n.unary(a, "Exp"), c = n.unary(n.unary(b, "Sigmoid"), "Tanh");
  n.output(n.add(n.gather(c, 1), n.gather(part, 0)));
  n.output(n.unary(part, "Sigmoid"));
  n.output(n.add(n.slice(a, 3, 4), n.gather(part, 1)));
  n.output(n.add(late, n.unary(late, "Exp")));
  EXPECT_EQ(run_and_count(n, {8, 4, 16}), 6);
}

// An output may lie in the memory of an operand, but not if another operand is a part of that.
TEST_F(ContiguousViewsTest, AnOperandIsNotWrittenOverWhileAPartOfItIsRead) {
  for (const char* op : {"Sub", "Div", "Mul", "Max"}) {
    for (const std::int64_t width : {16, 20'000}) {
      Network n({4, width}), columns({1, 8, width}), reversed({4, width}), reshaped({4, width});
      const std::string a = n.unary("x", "Exp"), b = columns.unary("x", "Exp"), c = reversed.unary("x", "Exp"),
                        d = reshaped.unary("x", "Exp");
      n.output(n.node(op, {a, n.gather(a, 0)}));
      EXPECT_EQ(run_and_count(n, {4, width}), 1) << op;
      columns.output(columns.node(op, {b, columns.slice(b, 2, 3, 1)}));
      EXPECT_EQ(run_and_count(columns, {1, 8, width}), 1) << op;
      reversed.output(reversed.node(op, {reversed.gather(c, 1), c}));
      EXPECT_EQ(run_and_count(reversed, {4, width}), 1) << op;
      reshaped.output(reshaped.node(op, {reshaped.reshape(d, {2, 2, -1}), reshaped.gather(reshaped.reshape(d, {2, 2, -1}), 0)}));
      EXPECT_EQ(run_and_count(reshaped, {4, width}), 1) << op;
    }
  }
}

// Only the position changes from run to run; what is cut out of the part moves with it.
TEST_F(ContiguousViewsTest, PositionsThatTheRunGives) {
  Network n({16, 16});
  n.writer().add_input("begin", kI64, {1}).add_initializer("three", {1}, std::vector<std::int64_t>{3});
  n.writer().add_initializer("zero", {1}, std::vector<std::int64_t>{0});
  const std::string a = n.unary("x", "Relu"), part = n.node("Slice", {a, "begin", n.node("Add", {"begin", "three"}), "zero"});
  n.output(n.gather(part, 1));
  n.output(n.unary(n.slice(n.reshape(part, {3, 1, 16}), 1, 3), "Exp"));
  Both both(n);
  for (const std::int64_t begin : {0, 5, 13, 2, 5, 0, 12}) both.check({random_tensor({16, 16}, 9, -1, 1), int_tensor({begin})});
  EXPECT_EQ(count_views(both.with), 3);
}

Network draw(Random& random) {
  const std::int64_t width = random.next() % 4 == 0 ? 5 : 16;
  Network n({"N", 4, width});
  n.writer().add_initializer("scale", {width}, std::vector<float>(static_cast<std::size_t>(width), 0.5f));
  std::vector<std::string> values = {n.unary("x", "Relu"), n.node("Mul", {"x", "scale"})};  // of three dims; at least 6 rows
  std::vector<std::string> parts;                                                           // of two rows, four columns
  const auto pick = [&](const std::vector<std::string>& from) {
    return from[from.size() - 1 - random.next() % std::min<std::size_t>(from.size(), 4)];
  };
  const auto index = [&](int end) { return static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(end)); };
  for (int i = 0; i < 16; ++i) {
    const std::string x = pick(values);
    switch (random.next() % 9) {
      case 0: values.push_back(n.unary(x, random.next() % 2 == 0 ? "Sigmoid" : "Tanh")); break;
      case 1: values.push_back(n.add(values[0], n.node("Mul", {values[1], "scale"}))); break;
      case 2: values.push_back(n.node("Concat", {n.slice(x, 0, 3), pick(values)}, {{"axis", 0}})); break;
      case 3:
        parts.push_back(n.reshape(n.gather_rows(x, {2, 3}), {2, 2, -1})), parts.back() = n.reshape(parts.back(), {2, 4, -1});
        break;
      case 4: parts.push_back(n.add(n.split(x, 3)[1], n.slice(x, 1, 2))), parts.back() = n.slice(parts.back(), 0, 2); break;
      case 5: {
        const std::int64_t row = index(5);
        parts.push_back(n.slice(x, row, row + 2));
        break;
      }
      case 6: {
        const std::int64_t row = index(5);
        values.push_back(n.unary(n.node(random.next() % 2 == 0 ? "Sub" : "Mul", {x, n.slice(x, row, row + 1)}), "Tanh"));
        break;
      }
      default:
        if (parts.empty()) break;
        parts.push_back(random.next() % 2 == 0 ? n.add(pick(parts), pick(parts)) : n.unary(pick(parts), "Exp"));
        parts.back() = n.unary(parts.back(), "Tanh");
    }
  }
  parts.push_back(n.slice(values.back(), 1, 3));
  for (std::size_t i = 0; i < 3; ++i) n.output(parts[index(static_cast<int>(parts.size()))]);
  n.output(values[1 + static_cast<std::size_t>(index(static_cast<int>(values.size()) - 1))]);
  n.writer().add_output(values.back(), kF32);
  return n;
}

TEST_F(ContiguousViewsTest, DrawnGraphsGiveWhatTheyGiveWithCopies) {
  Random random(17);
  int views = 0;
  for (int round = 0; round < 40; ++round) {
    Network n = draw(random);
    Both both(n, round % 4 == 3 ? "m" : "", 1 + round % 3);
    for (const std::int64_t rows : {6, 9, 12, 6, 30, 9}) {
      const std::int64_t width = both.model->graph().values[both.model->graph().inputs[0]].shape[2];
      ASSERT_NO_FATAL_FAILURE(both.check({random_tensor({rows, 4, width}, random.next(), -1, 1)})) << "round " << round;
    }
    views += count_views(both.with);
  }
  EXPECT_GT(views, 60);
}

}  // namespace
}  // namespace evn::test::contiguous_views_test
