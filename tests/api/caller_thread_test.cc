// EVN_OPERATOR_CALLER_THREAD: callbacks come on the thread of the host's call, and nowhere else.
#include <mutex>
#include <set>
#include <thread>

#include "base/library_work.h"
#include "evener/request.h"
#include "tests/api/operator_fixture.h"
#include "tests/support/eventually.h"

namespace evn::test {
namespace {

struct CallerThreadTest : OperatorTest {
  std::mutex mutex;
  std::set<std::thread::id> threads;  // on which callbacks have come
  int registered = 1;

  void SetUp() override {
    OperatorTest::SetUp();
    behaviour.infer = [this](evn_operator_node, const evn_tensor_view* in, uint32_t, evn_tensor_view* out, uint32_t, evn_error*) {
      note_thread();
      out[0] = in[0];
      out[0].data = nullptr;
      return EVN_OK;
    };
    behaviour.run = [this](evn_operator_node, const evn_tensor_view* in, uint32_t, const evn_tensor_view* out, uint32_t,
                           evn_error*) {
      note_thread();
      for (uint64_t i = 0; i < in[0].size_bytes / 4; ++i)
        static_cast<float*>(out[0].data)[i] = 2 * static_cast<const float*>(in[0].data)[i];
      return EVN_OK;
    };
    evn_operator op = make_operator(&behaviour);
    op.flags = EVN_OPERATOR_CALLER_THREAD;
    ASSERT_OK(add(op));
    ASSERT_OK(load(double_model()));
  }
  // The last hold of the runtime may be that of a thread which has executed a request, and `behaviour` must outlive it.
  void TearDown() override {
    OperatorTest::TearDown();
    EXPECT_TRUE(eventually([&] { return behaviour.released == registered; }));
  }
  void note_thread() {
    const std::lock_guard<std::mutex> lock(mutex);
    threads.insert(std::this_thread::get_id());
  }
  evn_status submit(evn_session to, evn_request_done done, void* user) {
    float x[3] = {1, 2, 3};
    const int64_t dims[2] = {1, 3};
    evn_tensor in = nullptr;
    EXPECT_OK(evn_tensor_wrap(runtime, x, sizeof x, EVN_DTYPE_FLOAT32, dims, 2, nullptr, nullptr, &in, &error));
    evn_submit_options options = EVN_SUBMIT_OPTIONS_INIT;
    options.done = done;
    options.user = user;
    evn_request request = nullptr;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_session_submit(to, &in, 1, nullptr, 1, nullptr, &options, &request, &error);
    if (status == EVN_OK) {
      bool ended = false;
      EXPECT_EQ(evn_request_wait(request, UINT64_MAX, &ended, nullptr), EVN_OK);  // the callback may use `error` meanwhile
      evn_request_release(request);
    }
    evn_tensor_release(in);
    return status;
  }
};

TEST_F(CallerThreadTest, CallbacksComeOnTheThreadOfTheCall) {
  for (int64_t rows = 1; rows < 40; ++rows) ASSERT_OK(run(std::vector<float>(static_cast<std::size_t>(rows) * 3, 1.f), {rows, 3}));
  EXPECT_EQ(threads, (std::set<std::thread::id>{std::this_thread::get_id()}));
  threads.clear();
  std::thread::id other;
  std::thread thread([&] {
    other = std::this_thread::get_id();
    EXPECT_OK(run({1, 2, 3}, {1, 3}));
  });
  thread.join();
  EXPECT_EQ(threads, (std::set<std::thread::id>{other})) << "the runtime belongs to no thread";
  EXPECT_EQ(result, (std::vector<float>{2, 4, 6}));
}

TEST_F(CallerThreadTest, ASubmissionIsRefusedWithTheNodeAndTheOperator) {
  EXPECT_EQ(submit(session, nullptr, nullptr), EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(error.node, "double_1");
  EXPECT_TRUE(says("mine::Double") && says("asynchronously")) << error.message;
}

TEST_F(CallerThreadTest, ANodeInABranchIsFoundToo) {
  OnnxWriter then_branch(17), else_branch(17);
  then_branch.add_node("Double", {"x"}, {"then"}, {}, "inner", "mine").add_output("then", kF32, {"n", 3});
  else_branch.add_node("Relu", {"x"}, {"else"}).add_output("else", kF32, {"n", 3});
  OnnxWriter w(17);
  w.import("mine", 2);
  w.add_input("x", kF32, {"n", 3}).add_input("c", kBool, {}).add_output("y", kF32);
  w.add_node("If", {"c"}, {"y"},
             {Attr::graph("then_branch", then_branch.graph()), Attr::graph("else_branch", else_branch.graph())});
  ASSERT_OK(load(w.serialize()));
  evn_request request = nullptr;
  error = EVN_ERROR_INIT;
  const evn_tensor none[2] = {nullptr, nullptr};
  EXPECT_EQ(evn_session_submit(session, none, 2, nullptr, 1, nullptr, nullptr, &request, &error), EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(error.node, "If_0/then/inner");
}

TEST_F(CallerThreadTest, ACallbackOfARequestIsTheHosts) {
  OnnxWriter w(17);
  w.add_input("x", kF32, {"n", 3}).add_output("y", kF32).add_node("Relu", {"x"}, {"y"});
  const std::string bytes = w.serialize();
  evn_model model = nullptr;
  ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
  evn_session plain = nullptr;
  ASSERT_OK(evn_session_create(runtime, model, nullptr, &plain, &error));
  evn_model_release(model);
  threads.clear();
  ASSERT_OK(submit(
      plain,
      [](void* user, evn_request) {
        auto& test = *static_cast<CallerThreadTest*>(user);
        EXPECT_EQ(test.run({1, 2, 3}, {1, 3}), EVN_OK);
      },
      this));
  ASSERT_EQ(evn_session_finish(plain, UINT64_MAX, nullptr), EVN_OK);  // `error` is the callback's
  EXPECT_EQ(threads.size(), 1u);
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0u) << "the callback ran on a thread of the library's";
  EXPECT_EQ(result, (std::vector<float>{2, 4, 6}));
}

TEST_F(CallerThreadTest, TheLibrarysOwnWorkNeverEntersACallback) {
  const int runs = behaviour.runs;
  {
    const LibraryWork own(true);
    EXPECT_EQ(run({1, 2, 3}, {1, 3}), EVN_ERROR_UNSUPPORTED);
    EXPECT_STREQ(error.node, "double_1");
    EXPECT_TRUE(says("mine::Double") && says("caller's thread")) << error.message;
  }
  EXPECT_EQ(behaviour.runs, runs);
  EXPECT_OK(run({1, 2, 3}, {1, 3}));
}

TEST_F(CallerThreadTest, FlagsThatThereAreNoneOfAreRefused) {
  evn_operator op = make_operator(&behaviour);
  op.name = "Other";
  op.flags = 2;
  EXPECT_EQ(add(op), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(says("flags is 2")) << error.message;
  // A client of 0.2.0 has no flags.
  op.flags = 0x1234'5678;
  op.struct_size = offsetof(evn_operator, flags);
  EXPECT_OK(add(op));
  ++registered;
}

}  // namespace
}  // namespace evn::test
