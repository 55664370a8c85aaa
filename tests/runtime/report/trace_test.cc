#include "runtime/run/trace.h"

#include <thread>

#include "base/fault.h"
#include "tests/runtime/support.h"

namespace evn::test::trace_test {
namespace {

using TraceTest = RuntimeTest;

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t n = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

std::size_t kernels_of(const Session& session) {
  std::size_t n = 0;
  for (const CompiledNode& node : session.compiled().nodes) n += node.mode == NodeMode::kKernel;
  return n;
}

const std::vector<HostTensor>& input() {
  static const auto* const kInput = new std::vector<HostTensor>{random_tensor({1, 3, 8, 8}, 1)};
  return *kInput;
}

TEST_F(TraceTest, RecordsEachKernelOfEachRunOnce) {
  TestSession session(load(make_runtime({}, 0, 1), small_network()), "");
  run(session, input());
  session.start_trace(10000);
  for (int i = 0; i < 3; ++i) run(session, input());
  session.stop_trace();
  run(session, input());
  const std::string json = session.trace(EVN_FORMAT_JSON);
  EXPECT_EQ(count(json, "\"cat\":\"kernel\""), 3 * kernels_of(session));
  EXPECT_EQ(count(json, "\"cat\":\"run\""), 3u);
  EXPECT_EQ(count(json, "\"cat\":\"prepare\""), 3u);
  EXPECT_EQ(count(json, "\"ph\":\"C\""), 6u);  // before and after the memory of each run is taken
  EXPECT_NE(json.find("\"dropped_events\":0"), std::string::npos);
  EXPECT_NE(json.find("float32[1,3,8,8]"), std::string::npos);
}

TEST_F(TraceTest, RecordsCopiesAndWaitsOfADeviceWithAQueue) {
  TestSession session(load(make_runtime(two_mocks()), small_network()), "m");
  session.start_trace(10000);
  run(session, input());
  const std::string json = session.trace(EVN_FORMAT_JSON);
  EXPECT_EQ(count(json, "\"cat\":\"copy\""), 2u);
  EXPECT_GE(count(json, "\"cat\":\"wait\""), 1u);
  EXPECT_EQ(count(json, "\"clock\":\"host\""), 2 + kernels_of(session));  // the mock does not measure
  EXPECT_NE(json.find("\"from\":\"m\",\"to\":\"cpu\""), std::string::npos);
}

TEST_F(TraceTest, CountsWhatDoesNotFit) {
  TestSession session(load(make_runtime(two_mocks()), small_network()), "m");
  session.start_trace(3);
  const std::vector<HostTensor> want = run(session, input());
  const std::string json = session.trace(EVN_FORMAT_JSON);
  EXPECT_EQ(json.find("\"dropped_events\":0"), std::string::npos);
  EXPECT_EQ(session.trace(EVN_FORMAT_TEXT).find(" 0 dropped"), std::string::npos);
  session.stop_trace();
  expect_close(run(session, input()), want, 0, 0);
}

TEST_F(TraceTest, TheTableHasARowForEachNodeWithItsCount) {
  TestSession session(load(make_runtime({}, 0, 1), small_network()), "");
  session.start_trace(10000);
  for (int i = 0; i < 7; ++i) run(session, input());
  const std::string table = session.trace(EVN_FORMAT_TEXT);
  EXPECT_EQ(table.rfind("7 runs, median ", 0), 0u) << table;
  for (std::size_t i = 0; i < session.graph().nodes.size(); ++i) {
    if (session.compiled().nodes[i].mode == NodeMode::kKernel) {
      EXPECT_NE(table.find("\n" + session.graph().nodes[i].name + " "), std::string::npos) << table;
    }
  }
  EXPECT_NE(table.find("  7  "), std::string::npos) << table;
}

TEST_F(TraceTest, StartStopAndReadWantTheRightState) {
  TestSession session(load(make_runtime(), small_network()), "");
  const auto status = [](auto&& call) -> evn_status {
    try {
      call();
      return EVN_OK;
    } catch (const Error& e) {
      return e.status;
    }
  };
  EXPECT_EQ(status([&] { session.trace(EVN_FORMAT_TEXT); }), EVN_ERROR_WRONG_STATE);
  EXPECT_EQ(status([&] { session.stop_trace(); }), EVN_ERROR_WRONG_STATE);
  session.start_trace(10);
  EXPECT_EQ(status([&] { session.start_trace(10); }), EVN_ERROR_WRONG_STATE);
  session.stop_trace();
  session.start_trace(10);  // a new one
  EXPECT_EQ(count(session.trace(EVN_FORMAT_JSON), "\"ph\":\"X\""), 0u);
}

TEST_F(TraceTest, ItsMemoryCountsUnderTheCap) {
  TestSession session(load(make_runtime({}, 1 << 20), small_network()), "");
  try {
    session.start_trace(1 << 20);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY);
  }
  session.start_trace(16);
}

TEST_F(TraceTest, EachFailingAllocationIsAnErrorAndTheNextCallSucceeds) {
  TestSession session(load(make_runtime(), small_network()), "");
  input();
  int refused = 0;
  for (int k = 1; k < 10000; ++k) {
    fault_arm(Seam::kAlloc, k, false);
    bool failed = false;
    try {
      session.start_trace(100);
      run(session, input());
      session.trace(EVN_FORMAT_JSON);
      session.trace(EVN_FORMAT_TEXT);
    } catch (const Error& e) {
      failed = true;
      EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    const std::int64_t calls = fault_count(Seam::kAlloc);
    fault_arm(Seam::kAlloc, 0, false);
    try {
      session.stop_trace();
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_WRONG_STATE);
    }
    if (calls < k) break;  // all have had their turn; sorting goes on without the memory that it may ask for
    refused += failed ? 1 : 0;
  }
  EXPECT_GT(refused, 20);
}

TEST_F(TraceTest, AFailedRunLeavesAReadableTrace) {
  const auto runtime = make_runtime(two_mocks());
  TestSession session(load(runtime, small_network()), "m");
  const std::vector<HostTensor> want = run(session, input());
  session.start_trace(10000);
  mock_settings().fail_call = 2;
  EXPECT_THROW(run(session, input()), Error);
  mock_settings().fail_call = 0;
  expect_close(run(session, input()), want, 0, 0);
  EXPECT_EQ(count(session.trace(EVN_FORMAT_JSON), "\"cat\":\"run\""), 2u);
}

TEST_F(TraceTest, ThreadsThatRunOneSessionHaveTracksOfTheirOwn) {
  TestSession session(load(make_runtime(), small_network()), "");
  run(session, input());
  session.start_trace(100000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) run(session, input());
    });
  }
  for (std::thread& t : threads) t.join();
  session.stop_trace();
  const std::string json = session.trace(EVN_FORMAT_JSON);
  EXPECT_EQ(count(json, "\"cat\":\"run\""), 60u);
  EXPECT_EQ(count(json, "\"name\":\"caller "), 3u);
}

}  // namespace
}  // namespace evn::test::trace_test
