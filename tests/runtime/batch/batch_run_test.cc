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
  void add(bool with_token) {
    const auto number = static_cast<float>(requests.size());
    auto x = std::make_shared<Tensor>(session->runtime(), &session->runtime()->cpu(), TensorDesc{DType::kFloat32, {1, 4}}, false);
    for (int i = 0; i < 4; ++i) static_cast<float*>(x->buffer().address())[i] = 10 * number + static_cast<float>(i);
    auto token = with_token ? std::make_shared<CancelToken>() : nullptr;
    RunRequest run;
    if (token != nullptr) run.stop.requested = &token->requested;
    requests.push_back(
        std::make_shared<TestRequest>(session, std::vector<RunValue>{{x, nullptr}}, std::vector<RunValue>(2), run, token));
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
