// placement.split: the rows of a batch on several devices.
#include "runtime/split/row_split.h"

#include "base/fault.h"
#include "tests/runtime/support.h"

namespace evn::test {
namespace {

class RowSplitTest : public RuntimeTest {
 protected:
  static OnnxWriter rows_model() {
    OnnxWriter w;
    w.add_input("x", kF32, {Dim("n"), 4, 8, 8});
    w.add_initializer("w", {4, 4, 3, 3}, std::vector<float>(144, 0.125f));
    w.add_node("Conv", {"x", "w"}, {"c"}, {Attr("pads", std::vector<std::int64_t>{1, 1, 1, 1})}, "conv");
    w.add_node("Softmax", {"c"}, {"s"}, {}, "softmax");
    w.add_node("Transpose", {"s"}, {"t"}, {Attr("perm", std::vector<std::int64_t>{1, 0, 2, 3})}, "transpose");
    w.add_node("Shape", {"w"}, {"d"}, {}, "shape");
    return w.add_output("s").add_output("t").add_output("d", kI64);
  }

  static Config config(std::vector<std::string> devices = {"m", "n"}) {
    Config c = two_mocks();
    c.split_devices = std::move(devices);
    c.split_line = 4;
    return c;
  }

  static HostTensor input(std::int64_t rows) {
    HostTensor x({DType::kFloat32, {rows, 4, 8, 8}});
    for (std::size_t i = 0; i < x.as<float>().size(); ++i) x.as<float>()[i] = static_cast<float>(i * 7 % 23) - 11.0f;
    return x;
  }

  // y = x, or 2 x where the batch has two rows.
  static OnnxWriter model_that_doubles_two_rows() {
    OnnxWriter w;
    w.add_input("x", kF32, {Dim("n"), 4}).add_output("y");
    w.add_initializer("zero", {}, std::vector<std::int64_t>{0}).add_initializer("two_rows", {}, std::vector<std::int64_t>{2});
    w.add_initializer("one", {}, std::vector<float>{1}).add_initializer("two", {}, std::vector<float>{2});
    w.add_node("Shape", {"x"}, {"dims"}).add_node("Gather", {"dims", "zero"}, {"rows"});
    w.add_node("Equal", {"rows", "two_rows"}, {"are_two"}).add_node("Where", {"are_two", "two", "one"}, {"factor"});
    return w.add_node("Mul", {"x", "factor"}, {"y"}, {}, "mul");
  }

  static OnnxWriter softmax_model() {
    OnnxWriter w;
    w.add_input("x", kF32, {Dim("n"), 4});
    return w.add_node("Softmax", {"x"}, {"y"}, {}, "softmax").add_output("y");
  }

  static HostTensor counted(std::int64_t rows) {
    HostTensor x({DType::kFloat32, {rows, 4}});
    for (std::size_t i = 0; i < x.as<float>().size(); ++i) x.as<float>()[i] = static_cast<float>(i + 1);
    return x;
  }

  static std::string explained(const Session& session) { return explain(session, EVN_FORMAT_JSON); }
};

TEST(ShareRows, GivesTheFasterDeviceMore) {
  const double equal[] = {5, 5};
  EXPECT_EQ(share_rows(8, equal), (std::vector<std::int64_t>{4, 4}));
  const double unequal[] = {1, 3};
  EXPECT_EQ(share_rows(8, unequal), (std::vector<std::int64_t>{6, 2}));
  const double slow[] = {1, 100};
  EXPECT_EQ(share_rows(3, slow), (std::vector<std::int64_t>{3, 0}));
  const double three[] = {2, 2, 4};
  EXPECT_EQ(share_rows(10, three), (std::vector<std::int64_t>{4, 4, 2}));
}

TEST_F(RowSplitTest, PartsOfABatchAreTheRowsOfTheWhole) {
  const ModelPtr split = load(make_runtime(config()), rows_model());
  const ModelPtr whole = load(make_runtime(two_mocks()), rows_model());
  TestSession a(split, "m"), b(whole, "m");
  for (const std::int64_t rows : {2, 3, 8, 3, 1, 17}) {
    const std::vector<HostTensor> got = run(a, {input(rows)}), want = run(b, {input(rows)});
    ASSERT_EQ(got.size(), 3u);
    for (std::size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(got[j].desc, want[j].desc) << rows;
      EXPECT_EQ(got[j].bytes, want[j].bytes) << rows;  // of one backend: the same bits
    }
  }
  const std::string json = explained(a);
  EXPECT_NE(json.find(R"("split":[{"device":"m","rows":)"), std::string::npos) << json;
  EXPECT_NE(explained(b).find(R"("split":[])"), std::string::npos);
}

TEST_F(RowSplitTest, TheCpuMayTakeRowsToo) {
  const ModelPtr split = load(make_runtime(config({"cpu", "m"})), rows_model());
  TestSession a(split, ""), b(load(make_runtime(), rows_model()), "");
  mock_counters() = {};
  const std::vector<HostTensor> got = run(a, {input(6)}), want = run(b, {input(6)});
  expect_close(got, want);
  EXPECT_GT(mock_counters().kernels, 0);
}

TEST_F(RowSplitTest, GivenOutputsAreWrittenInPlace) {
  const ModelPtr model = load(make_runtime(config()), rows_model());
  TestSession session(model, "");
  std::vector<TensorPtr> out(3);
  const std::vector<TensorPtr> in{to_tensor(model->runtime, input(6))};
  out[0] = to_tensor(model->runtime, HostTensor({DType::kFloat32, {6, 4, 8, 8}}));
  out[1] = to_tensor(model->runtime, HostTensor({DType::kFloat32, {4, 6, 8, 8}}));
  const TensorPtr first = out[0], second = out[1];
  run_tensors(session, in, out);
  EXPECT_EQ(out[0], first);
  EXPECT_EQ(out[1], second);
  const std::vector<HostTensor> want = run(session, {input(6)});
  EXPECT_EQ(std::memcmp(first->buffer().address(), want[0].bytes.data(), first->size_bytes()), 0);
  EXPECT_EQ(std::memcmp(second->buffer().address(), want[1].bytes.data(), second->size_bytes()), 0);
  out[0] = to_tensor(model->runtime, HostTensor({DType::kFloat32, {5, 4, 8, 8}}));
  EXPECT_THROW(run_tensors(session, in, out), Error);
}

TEST_F(RowSplitTest, GivenOutputsThatOverlapAreRefused) {
  const ModelPtr model = load(make_runtime(config()), rows_model());
  TestSession session(model, "");
  std::vector<TensorPtr> out(3);
  out[0] = to_tensor(model->runtime, HostTensor({DType::kFloat32, {6, 4, 8, 8}}));
  out[1] = Tensor::part(out[0], 0, {DType::kFloat32, {4, 6, 8, 8}});  // whose rows are copied
  try {
    run_tensors(session, {to_tensor(model->runtime, input(6))}, out);
    ADD_FAILURE() << "not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_INVALID_ARGUMENT);
    EXPECT_STREQ(e.message, "output 1 overlaps output 0");
  }
}

TEST_F(RowSplitTest, OneRowIsNotSplit) {
  const ModelPtr model = load(make_runtime(config()), rows_model());
  TestSession session(model, "cpu");
  mock_counters() = {};
  run(session, {input(1)});
  EXPECT_EQ(mock_counters().kernels, 0);
  run(session, {input(2)});
  EXPECT_GT(mock_counters().kernels, 0);
}

TEST_F(RowSplitTest, EachShareIsProvenToo) {
  const ModelPtr model = load(make_runtime(config()), model_that_doubles_two_rows());
  TestSession session(model, "cpu");
  for (const std::int64_t rows : {2, 3, 4, 5, 6}) {  // shares of 2 and 2, and of 3 and 2, are not as the whole
    mock_counters() = {};
    HostTensor want = counted(rows);
    for (float& x : want.as<float>()) x *= rows == 2 ? 2.0f : 1.0f;
    EXPECT_EQ(run(session, {counted(rows)})[0].bytes, want.bytes) << rows;
    EXPECT_EQ(mock_counters().kernels > 0, rows == 6) << rows;
  }
}

TEST_F(RowSplitTest, DevicesAreMeasuredAfterAnyNumberOfSizes) {
  TestSession session(load(make_runtime(config()), softmax_model()), "");
  const auto rows_of_devices = [&] { return session.shared()->divided_work().rows.value(); };
  for (std::int64_t rows = 2; rows <= 2 * 70; rows += 2) run(session, {counted(rows)});
  for (const DividedWork::Rows& s : rows_of_devices()) EXPECT_EQ(s.row_ns, 0) << s.device;  // no size has come twice
  run(session, {counted(2 * 70)});
  for (const DividedWork::Rows& s : rows_of_devices()) {
    EXPECT_EQ(s.rows, 70) << s.device;
    EXPECT_GT(s.row_ns, 0) << s.device;
  }
}

TEST_F(RowSplitTest, SessionsWithBatchingAreRefused) {
  SessionRequest request("");
  request.batching.max_batch = 4;
  try {
    const TestSession session(load(make_runtime(config()), softmax_model()), request);
    ADD_FAILURE() << "not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
    EXPECT_NE(std::string(e.message).find("test.yaml:4: placement.split: a session with batching"), std::string::npos) << e.message;
  }
}

TEST_F(RowSplitTest, RowsThatDependOnEachOtherAreAnErrorWithPlaceAndNode) {
  OnnxWriter w;
  w.add_input("x", kF32, {Dim("n"), 4});
  w.add_node("Softmax", {"x"}, {"y"}, {Attr("axis", 0)}, "over_rows").add_output("y");
  try {
    const TestSession session(load(make_runtime(config()), w), "");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
    EXPECT_STREQ(e.node, "over_rows");
    EXPECT_NE(std::string(e.message).find("test.yaml:4: placement.split"), std::string::npos) << e.message;
  }
}

TEST_F(RowSplitTest, AFailingDeviceIsAnErrorAndTheNextRunIsRight) {
  const ModelPtr model = load(make_runtime(config()), rows_model());
  TestSession session(model, "");
  const std::vector<HostTensor> want = run(session, {input(6)});
  for (std::int64_t k = 1; k <= 6; ++k) {
    mock_settings().fail_call = k;
    EXPECT_THROW(run(session, {input(6)}), Error) << k;
    mock_settings().fail_call = 0;
    EXPECT_EQ(run(session, {input(6)})[0].bytes, want[0].bytes) << k;
  }
}

TEST_F(RowSplitTest, WithoutThreadsThePartsFollowEachOther) {
  const ModelPtr model = load(make_runtime(config()), rows_model());
  TestSession session(model, "");
  const std::vector<HostTensor> want = run(session, {input(6)});
  fault_arm(Seam::kThread, 1, true);
  const std::vector<HostTensor> got = run(session, {input(6)});
  fault_arm(Seam::kThread, 0, false);
  EXPECT_EQ(got[0].bytes, want[0].bytes);
}

TEST_F(RowSplitTest, WithAnExecutorOfTheHostNoThreadStarts) {
  TestSession own(load(make_runtime(config()), rows_model()), "");
  TestSession hosts(load(make_runtime(config(), 0, 2, callers_thread()), rows_model()), "");
  const std::vector<HostTensor> want = run(own, {input(6)});
  fault_count_reset(Seam::kThread);
  mock_counters() = {};
  const std::vector<HostTensor> got = run(hosts, {input(6)});
  const std::int64_t started = fault_count(Seam::kThread);
  fault_arm(Seam::kThread, 0, false);
  EXPECT_EQ(started, 0);
  EXPECT_GT(mock_counters().kernels, 0);
  EXPECT_EQ(got[0].bytes, want[0].bytes);
}

TEST_F(RowSplitTest, EachFailingAllocationIsAnErrorAndLeaksNothing) {
  const ModelPtr model = load(make_runtime(config()), rows_model());
  TestSession session(model, "");
  const TensorPtr x = to_tensor(model->runtime, input(6));
  std::vector<TensorPtr> warm(3);
  for (int i = 0; i < 3; ++i) {
    warm.assign(3, nullptr);
    run_tensors(session, {x}, warm);
  }
  warm.clear();
  const std::uint64_t before = model->runtime->cpu().pool().stats().by_class[EVN_MEMORY_TENSORS];
  int failed = 0;
  for (std::int64_t k = 1; k < 10'000; ++k) {
    std::vector<TensorPtr> out(3);
    fault_arm(Seam::kAlloc, k, false);
    bool threw = false;
    try {
      run_tensors(session, {x}, out);
    } catch (const std::bad_alloc&) {
      threw = true;
    } catch (const Error& e) {
      threw = true;
      EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY) << e.message;
    }
    fault_arm(Seam::kAlloc, 0, false);
    out.clear();
    EXPECT_EQ(model->runtime->cpu().pool().stats().by_class[EVN_MEMORY_TENSORS], before) << k;
    if (!threw) break;
    ++failed;
  }
  EXPECT_GT(failed, 5);
}

}  // namespace
}  // namespace evn::test
