// A run for several requests, step by step: who ends when, and where the outputs lie.
#include "runtime/batch/batch_run.h"

#include "tests/runtime/support.h"

namespace evn::test::batch_run_test {
namespace {

class TestRequest final : public Request {
 public:
  using Request::Request;
  int told = 0;

 private:
  void tell(const RequestPtr&) noexcept override { ++told; }
  bool calls_host() const noexcept override { return true; }
};
using TestRequestPtr = std::shared_ptr<TestRequest>;

struct BatchRunTest : RuntimeTest {
  std::shared_ptr<Session> session;
  std::vector<TestRequestPtr> requests;
  std::vector<std::shared_ptr<CancelToken>> tokens;

  void SetUp() override {
    RuntimeTest::SetUp();
    OnnxWriter w(17);
    w.add_input("x", kF32, {"N", 4}).add_output("y").add_output("t").add_node("Neg", {"x"}, {"y"});
    w.add_node("Transpose", {"y"}, {"t"});
    SessionRequest request("");
    request.batching.max_batch = 8;
    session = make_session(load(make_runtime({}, 0, 1), w), request);
  }
  // The outcome of a request that has ended.
  static evn_status status_of(TestRequest& request, std::vector<RunValue>* outputs = nullptr) {
    try {
      request.take([&](std::span<const RunValue> out) {
        if (outputs != nullptr) outputs->assign(out.begin(), out.end());
      });
      return EVN_OK;
    } catch (const Error& e) {
      return e.status;
    }
  }
  // Elements: first, first + step, ...
  RunValue sequence(const Shape& shape, float first, float step) {
    HostTensor t({DType::kFloat32, shape});
    for (std::size_t i = 0; i < t.as<float>().size(); ++i) t.as<float>()[i] = first + step * static_cast<float>(i);
    return {to_tensor(session->runtime(), t), nullptr};
  }
  void add(bool with_token) { add({sequence({1, 4}, 10 * static_cast<float>(requests.size()), 1)}, with_token); }
  void add(std::vector<RunValue> inputs, bool with_token) {
    auto token = with_token ? std::make_shared<CancelToken>() : nullptr;
    RunRequest run;
    if (token != nullptr) run.stop.requested = &token->requested;
    std::vector<RunValue> outputs(session->graph().outputs.size());
    requests.push_back(std::make_shared<TestRequest>(session, std::move(inputs), std::move(outputs), run, token));
    requests.back()->set_joinable_rows(session->batcher()->rows_of(*requests.back()));
    tokens.push_back(std::move(token));
    session->identity()->requests.enter();
  }
  void end_stopped(BatchRun& batch) {
    std::vector<RequestPtr> ended;
    ended.reserve(batch.member_count());
    batch.take_stopped(&ended);
    for (const RequestPtr& r : ended) Request::end_stopped(r);
  }
  std::shared_ptr<BatchRun> make() {
    return BatchRun::make(*session->batcher(), std::vector<RequestPtr>(requests.begin(), requests.end()));
  }
};

TEST_F(BatchRunTest, OutputsAreViewsWhereTheirRowsStandTogether) {
  for (int i = 0; i < 3; ++i) add(false);
  const auto batch = make();
  ASSERT_TRUE(batch->prepare());
  EXPECT_FALSE(batch->has_stops());
  ASSERT_TRUE(batch->run());
  EXPECT_FALSE(requests[0]->has_ended());
  batch->finish(true);
  std::vector<std::vector<RunValue>> outputs(3);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(requests[i]->told, 1);
    ASSERT_EQ(status_of(*requests[i], &outputs[i]), EVN_OK);
    const auto* y = static_cast<const float*>(outputs[i][0].tensor->buffer().address());
    const auto* t = static_cast<const float*>(outputs[i][1].tensor->buffer().address());
    EXPECT_EQ(outputs[i][0].tensor->desc().shape, (Shape{1, 4}));
    EXPECT_EQ(outputs[i][1].tensor->desc().shape, (Shape{4, 1}));
    for (int k = 0; k < 4; ++k) {
      EXPECT_EQ(y[k], -10 * static_cast<float>(i) - static_cast<float>(k));
      EXPECT_EQ(t[k], y[k]);
    }
    EXPECT_EQ(y, static_cast<const float*>(outputs[0][0].tensor->buffer().address()) + 4 * i);
  }
}

// An output of two lines for each row, as Flatten makes it: of x, and of -x.
TEST_F(BatchRunTest, EachLineOfARowIsCutToItsLength) {
  OnnxWriter w(17);
  w.add_input("x", kF32, {"N", "S"}).add_input("mask", kF32, {"N", "S"}).add_output("y");
  w.add_initializer("ax", {1}, std::vector<std::int64_t>{1});
  w.add_node("Mul", {"x", "mask"}, {"m"}).add_node("Unsqueeze", {"m", "ax"}, {"u"}).add_node("Neg", {"u"}, {"n"});
  w.add_node("Concat", {"u", "n"}, {"c"}, {{"axis", 1}}).add_node("Flatten", {"c"}, {"y"}, {{"axis", 2}});
  SessionRequest request("");
  request.batching.max_batch = 8;
  request.batching.mask = "mask";
  request.batching.buckets = {8};
  session = make_session(load(make_runtime({}, 0, 1), w), request);
  const std::vector<Shape> shapes = {{1, 3}, {2, 5}, {1, 8}};
  for (const Shape& shape : shapes) add({sequence(shape, 1, 1), sequence(shape, 1, 0)}, false);
  const auto batch = make();
  ASSERT_TRUE(batch->prepare());
  ASSERT_TRUE(batch->run());
  batch->finish(true);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    std::vector<RunValue> outputs;
    ASSERT_EQ(status_of(*requests[i], &outputs), EVN_OK);
    const std::int64_t length = shapes[i][1];
    EXPECT_EQ(outputs[0].tensor->desc().shape, (Shape{2 * shapes[i][0], length}));
    const auto* y = static_cast<const float*>(outputs[0].tensor->buffer().address());
    for (std::int64_t k = 0; k < 2 * shapes[i].elements(); ++k) {
      const std::int64_t line = k / length, x = line / 2 * length + k % length + 1;
      EXPECT_EQ(y[k], static_cast<float>(line % 2 == 0 ? x : -x)) << "request " << i << " element " << k;
    }
  }
}

// Memory of the copies of rows is free when the run ends, and goes back to the system where the pool is trimmed then.
TEST_F(BatchRunTest, CopiesOfRowsGoWithTheRun) {
  const std::shared_ptr<Runtime> runtime = session->runtime();
  const Pool& pool = runtime->cpu().pool();
  const auto tensors = [&] { return pool.stats().by_class[EVN_MEMORY_TENSORS]; };
  runtime->set_cache_policy(runtime->cpu(), {UINT64_MAX, TrimWhen::kIdle});
  const std::uint64_t before = tensors();
  for (int i = 0; i < 3; ++i) add(false);
  auto batch = make();
  ASSERT_TRUE(batch->prepare());
  EXPECT_EQ(tensors(), before + 2 * 48);  // the rows of the requests, and their copies
  ASSERT_TRUE(batch->run());
  EXPECT_EQ(tensors(), before + 3 * 48);  // the rows of the requests, and two outputs
  EXPECT_EQ(pool.stats().cached, 0u);
  batch->finish(true);
  batch.reset();
  requests.clear();
  EXPECT_EQ(tensors(), before);
}

TEST_F(BatchRunTest, OneThatIsCancelledEndsWhileTheOthersRun) {
  for (int i = 0; i < 3; ++i) add(true);
  const auto batch = make();
  ASSERT_TRUE(batch->prepare());
  EXPECT_TRUE(batch->has_stops());
  tokens[1]->requested = true;
  end_stopped(*batch);
  EXPECT_EQ(requests[1]->told, 1);
  EXPECT_EQ(status_of(*requests[1]), EVN_ERROR_CANCELLED);
  EXPECT_FALSE(requests[0]->has_ended());
  ASSERT_TRUE(batch->run());
  batch->finish(true);
  for (const std::size_t i : {0u, 2u}) EXPECT_EQ(status_of(*requests[i]), EVN_OK);
  for (const TestRequestPtr& r : requests) EXPECT_EQ(r->told, 1);
}

TEST_F(BatchRunTest, TheRunStopsWhenNobodyWantsItAnyMore) {
  for (int i = 0; i < 2; ++i) add(true);
  const auto batch = make();
  ASSERT_TRUE(batch->prepare());
  for (const auto& t : tokens) t->requested = true;
  end_stopped(*batch);
  EXPECT_FALSE(batch->run());
  batch->finish(false);
  for (const TestRequestPtr& r : requests) {
    EXPECT_EQ(r->told, 1);
    EXPECT_EQ(status_of(*r), EVN_ERROR_CANCELLED);
  }
}

TEST_F(BatchRunTest, OneWithoutATokenKeepsTheRunGoing) {
  add(true);
  add(false);
  const auto batch = make();
  ASSERT_TRUE(batch->prepare());
  tokens[0]->requested = true;
  EXPECT_TRUE(batch->run());
  batch->finish(true);
  EXPECT_EQ(status_of(*requests[0]), EVN_ERROR_CANCELLED);
  EXPECT_EQ(status_of(*requests[1]), EVN_OK);
}

// Members that run alone may be stopped too, so that whoever watches batches has to know.
TEST_F(BatchRunTest, ItHasStopsAlsoWhenItsMembersRunAlone) {
  add(false);
  add(true);
  tokens[1]->requested = true;
  const auto batch = make();
  EXPECT_TRUE(batch->has_stops());
  EXPECT_FALSE(batch->prepare());
  EXPECT_TRUE(batch->has_stops());
  batch->finish(false);
  EXPECT_EQ(status_of(*requests[0]), EVN_OK);
  EXPECT_EQ(status_of(*requests[1]), EVN_ERROR_CANCELLED);
}

TEST_F(BatchRunTest, OneThatIsStoppedBeforeItBeginsIsLeftOut) {
  for (int i = 0; i < 2; ++i) add(true);
  tokens[0]->requested = true;
  const auto batch = make();
  EXPECT_FALSE(batch->prepare());  // the other runs alone
  EXPECT_EQ(requests[0]->told, 1);
  batch->finish(false);
  EXPECT_EQ(status_of(*requests[0]), EVN_ERROR_CANCELLED);
  EXPECT_EQ(status_of(*requests[1]), EVN_OK);
  const auto batches = session->identity()->statistics.read().batches;
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].rows, 1u);
  EXPECT_EQ(batches[0].count, 1u);
}

}  // namespace
}  // namespace evn::test::batch_run_test
