// States: what goes from an output of one run to an input of the next. Every sequence of steps is compared, bit by bit, with runs
// whose caller carries the tensors along.
#include <atomic>
#include <thread>

#include "evener/request.h"
#include "tests/api/state_fixture.h"
#include "tests/support/opencl_driver.h"

namespace evn::test::state_test {
namespace {

TEST_F(StateTest, StepsHaveTheBitsOfRunsThatCarryCachesAlong) {
  for (const int64_t batch : {1, 2}) {
    for (const uint32_t flags : {0u, uint32_t{EVN_STATE_ON_DEMAND}}) {
      const evn_state s = create(batch, flags);
      Carried c(batch);
      for (const int64_t rows : {1, 1, 5, 120, 1, 1, 1, 200, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}) expect_same(s, c, step(rows, batch));
      EXPECT_EQ(evn_state_release(s), EVN_OK);
    }
  }
}

TEST_F(StateTest, SaysHowItHoldsPairs) {
  state = create();
  Carried c;
  expect_same(state, c, step(9));
  const std::string text = describe(state);
  EXPECT_NE(text.find("present_k -> past_k: float32[1,3,9,32], 9 of 700 positions"), std::string::npos) << text;
  EXPECT_NE(text.find("pages ("), std::string::npos) << text;
  EXPECT_NE(text.find("h_next -> h: float32[1,4], 32 bytes, double_buffered"), std::string::npos) << text;
  std::size_t size = 0;
  EXPECT_EQ(evn_state_describe(state, EVN_FORMAT_SVG, nullptr, 0, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
}

TEST_F(StateTest, CachesThatAreNotAppendedToAreTensors) {
  make(decoder(true));
  state = create();
  Carried c;
  for (const int64_t rows : {1, 4, 90, 1, 1, 1}) expect_same(state, c, step(rows));
  EXPECT_NE(describe(state).find("tensor: the output is not made by a Concat"), std::string::npos) << describe(state);
  EXPECT_EQ(run(state, step(kCapacity)), EVN_ERROR_LIMIT);
  EXPECT_OK(evn_state_truncate(state, 40, &error));
  expect_same(
      state,
      c =
          [&] {
            Carried cut = c;
            cut.past = 40;
            for (std::vector<float>* all : {&cut.k, &cut.v}) {
              std::vector<float> kept;
              const auto row = static_cast<std::size_t>(kDepth);
              const auto had = static_cast<std::size_t>(c.past) * row;
              for (std::size_t h = 0; h < kHeads; ++h)
                kept.insert(kept.end(), all->begin() + static_cast<std::ptrdiff_t>(h * had),
                            all->begin() + static_cast<std::ptrdiff_t>(h * had + 40 * row));
              *all = kept;
            }
            return cut;
          }(),
      step(2));
}

// Rows of an odd number of elements of 4 or 2 bits begin within a byte.
TEST_F(StateTest, TruncatesElementsOfLessThanAByte) {
  for (const int dtype : {EVN_DTYPE_UINT4, EVN_DTYPE_UINT2}) {
    OnnxWriter w(25, 10);
    w.add_input("x", kF32, {2, "S", 1}).add_input("past", dtype, {2, "P", 1});
    w.add_output("present", dtype, {2, "T", 1}).add_output("all", kF32);
    w.add_node("Cast", {"past"}, {"had"}, {{"to", kF32}}).add_node("Concat", {"had", "x"}, {"all"}, {{"axis", 1}});
    w.add_node("Cast", {"all"}, {"present"}, {{"to", dtype}});
    make(w.serialize());
    const evn_state_pair pair[] = {{"present", "past", 8}};
    ASSERT_OK(evn_state_create(session, pair, 1, nullptr, &state, &error));
    const auto run_with = [&](int64_t positions, const std::vector<float>& values) {
      const evn_tensor in[] = {tensor({2, positions, 1}, values), nullptr};
      evn_tensor out[2] = {};
      evn_run_options o = EVN_RUN_OPTIONS_INIT;
      o.state = state;
      EXPECT_OK(evn_session_run(session, in, 2, out, 2, &o, &error));
      const std::vector<float> all = out[1] != nullptr ? values_of(out[1]) : std::vector<float>();
      evn_tensor_release(in[0]);
      evn_tensor_release(out[1]);
      return all;
    };
    const std::vector<float> want[] = {{2, 0}, {1, 2, 3, 0}, {1, 2, 2, 3, 2, 0}};
    for (const int64_t kept : {0, 1, 2}) {
      EXPECT_OK(evn_state_reset(state, &error));
      run_with(3, {1, 2, 3, 3, 2, 1});
      EXPECT_OK(evn_state_truncate(state, kept, &error));
      EXPECT_EQ(run_with(1, {2, 0}), want[kept]) << dtype;
    }
  }
}

TEST_F(StateTest, WithoutThePassCachesAreHandedOn) {
  make(decoder(), "", nullptr, "cache_append");
  state = create();
  Carried c;
  for (const int64_t rows : {1, 4, 90, 1}) expect_same(state, c, step(rows));
  EXPECT_NE(describe(state).find("the pass cache_append is switched off"), std::string::npos);
}

// Positions are counted all the same.
TEST_F(StateTest, MayHaveADimOfNoElements) {
  const auto length = [&](evn_state s) {
    int64_t positions = -1;
    EXPECT_OK(evn_state_length(s, 0, &positions, &error));
    return positions;
  };
  for (const uint32_t flags : {0u, uint32_t{EVN_STATE_ON_DEMAND}, uint32_t{EVN_STATE_INT8}}) {
    const evn_state s = create(/*batch=*/0, flags);
    EXPECT_NE(describe(s).find("0 of 700 positions"), std::string::npos) << describe(s);
    std::size_t size = 0;
    EXPECT_OK(evn_state_describe(s, EVN_FORMAT_JSON, nullptr, 0, &size, &error));
    int64_t positions = 0;
    for (const int64_t rows : {3, 0, 2, 120}) {
      EXPECT_EQ(run(s, step(rows, 0), nullptr, 0), EVN_OK) << error.message;
      EXPECT_EQ(length(s), positions += rows);
    }
    EXPECT_EQ(run(s, step(kCapacity, 0), nullptr, 0), EVN_ERROR_LIMIT);
    EXPECT_EQ(length(s), 125);
    EXPECT_EQ(state_bytes(), 0u);
    const std::vector<unsigned char> saved = save(s);
    evn_state copy = nullptr;
    ASSERT_OK(evn_state_fork(s, &copy, &error));
    EXPECT_NE(describe(copy).find("125 of 700 positions"), std::string::npos) << describe(copy);
    EXPECT_OK(evn_state_reset(copy, &error));
    EXPECT_EQ(length(copy), 0);
    EXPECT_OK(evn_state_restore(copy, saved.data(), saved.size(), &error));
    EXPECT_EQ(length(copy), 125);
    EXPECT_OK(evn_state_truncate(copy, 1, &error));
    EXPECT_EQ(run(copy, step(4, 0), nullptr, 0), EVN_OK) << error.message;
    EXPECT_EQ(length(copy), 5);
    EXPECT_EQ(length(s), 125);
    EXPECT_EQ(evn_state_release(copy), EVN_OK);
    EXPECT_EQ(evn_state_release(s), EVN_OK);
  }
}

TEST_F(StateTest, ForksGoTheirOwnWaysAndShareFullPages) {
  state = create(1, EVN_STATE_ON_DEMAND);
  Carried c;
  expect_same(state, c, step(300));
  const uint64_t before = state_bytes();
  std::vector<evn_state> forks(4);
  std::vector<Carried> carried(4, c);
  for (evn_state& f : forks) EXPECT_OK(evn_state_fork(state, &f, &error));
  const std::uint64_t page = 128 * kHeads * kDepth * 4;
  EXPECT_EQ(state_bytes() - before, 4 * (2 * page + 2 * 16));  // and both tensors of h
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < forks.size(); ++i) expect_same(forks[i], carried[i], step(round == 1 ? 130 : 1));
    expect_same(state, c, step(2));
  }
  EXPECT_OK(evn_state_truncate(forks[0], 100, &error));  // into pages that others have
  EXPECT_EQ(run(forks[0], step(60)), EVN_OK);
  for (std::size_t i = 1; i < forks.size(); ++i) expect_same(forks[i], carried[i], step(1));
  for (const evn_state f : forks) EXPECT_EQ(evn_state_release(f), EVN_OK);
  expect_same(state, c, step(3));
}

TEST_F(StateTest, ResetAndTruncateGoBack) {
  state = create();
  Carried c;
  expect_same(state, c, step(10));
  expect_same(state, c, step(140));
  EXPECT_OK(evn_state_reset(state, &error));
  Carried fresh;
  const Step first = step(150), second = step(1);
  expect_same(state, fresh, first);
  const Carried at_150 = fresh;
  const std::vector<unsigned char> saved = save(state);
  expect_same(state, fresh, second);
  EXPECT_OK(evn_state_truncate(state, 150, &error));
  EXPECT_OK(evn_state_truncate(state, 1000, &error));
  Carried again = at_150;
  again.h = fresh.h;  // has no positions, and stays
  expect_same(state, again, second);
  EXPECT_EQ(evn_state_truncate(state, -1, &error), EVN_ERROR_INVALID_ARGUMENT);
}

TEST_F(StateTest, SavedBytesGoOnWithTheSameBits) {
  state = create();
  Carried c;
  for (const int64_t rows : {200, 1, 1}) expect_same(state, c, step(rows));
  const std::vector<unsigned char> bytes = save(state);
  const evn_state other = create(1, EVN_STATE_ON_DEMAND);
  Carried unrelated;
  expect_same(other, unrelated, step(7));
  EXPECT_OK(evn_state_restore(other, bytes.data(), bytes.size(), &error));
  EXPECT_EQ(save(other), bytes);
  Carried copy = c;
  for (const int64_t rows : {1, 60, 1}) expect_same(other, copy, step(rows));
  expect_same(state, c, step(1));
  EXPECT_EQ(evn_state_release(other), EVN_OK);
}

TEST_F(StateTest, DamagedBytesAreRefusedAndChangeNothing) {
  state = create();
  Carried c;
  expect_same(state, c, step(3));
  const std::vector<unsigned char> bytes = save(state);
  expect_same(state, c, step(2));
  const std::vector<unsigned char> now = save(state);
  for (std::size_t at = 0; at < bytes.size(); at += at < 200 ? 1 : 97) {
    std::vector<unsigned char> damaged = bytes;
    damaged[at] ^= 0x41;
    EXPECT_EQ(evn_state_restore(state, damaged.data(), damaged.size(), &error), EVN_ERROR_INVALID_ARGUMENT) << at;
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{31}, bytes.size() - 1}) {
    EXPECT_EQ(evn_state_restore(state, bytes.data(), size, &error), EVN_ERROR_INVALID_ARGUMENT) << size;
  }
  EXPECT_EQ(evn_state_restore(state, nullptr, 0, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(save(state), now);
  char small[8];
  std::size_t size = 0;
  EXPECT_EQ(evn_state_save(state, small, sizeof small, &size, &error), EVN_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(error.bytes_requested, now.size());
  const evn_state two = create(2);
  EXPECT_EQ(evn_state_restore(two, bytes.data(), bytes.size(), &error), EVN_ERROR_INVALID_ARGUMENT);  // another batch
  EXPECT_EQ(evn_state_release(two), EVN_OK);
}

TEST_F(StateTest, MoreThanTheCapacityIsAnErrorAndChangesNothing) {
  for (const uint32_t flags : {0u, uint32_t{EVN_STATE_ON_DEMAND}}) {
    const evn_state s = create(1, flags);
    Carried c;
    expect_same(s, c, step(690));
    EXPECT_EQ(run(s, step(11)), EVN_ERROR_LIMIT);
    EXPECT_NE(std::string(error.message).find("700"), std::string::npos) << error.message;
    expect_same(s, c, step(10));
    EXPECT_EQ(run(s, step(1)), EVN_ERROR_LIMIT);
    EXPECT_EQ(evn_state_release(s), EVN_OK);
  }
}

TEST_F(StateTest, ARunThatFailsLeavesTheStateAsItWas) {
  state = create();
  Carried c;
  expect_same(state, c, step(130));
  const std::vector<unsigned char> bytes = save(state);
  evn_cancel cancel = nullptr;
  EXPECT_OK(evn_cancel_create(&cancel, &error));
  EXPECT_EQ(evn_cancel_request(cancel), EVN_OK);
  EXPECT_EQ(run(state, step(4), nullptr, 1, cancel), EVN_ERROR_CANCELLED);
  EXPECT_EQ(evn_cancel_release(cancel), EVN_OK);
  EXPECT_EQ(run(state, step(4, 2), nullptr, 2), EVN_ERROR_INVALID_ARGUMENT);  // another batch
  EXPECT_EQ(save(state), bytes);
  int refused = 0;
  for (int k = 1; k < 200; ++k) {
    const Step s = step(1);
    evn_tensor in[5] = {tensor({1, kHeads, 1, kDepth}, s.q), tensor({1, kHeads, 1, kDepth}, s.k)};
    evn_tensor out[5] = {};
    evn_run_options o = EVN_RUN_OPTIONS_INIT;
    o.state = state;
    error = EVN_ERROR_INIT;
    fault_arm(Seam::kAlloc, k, false);
    const evn_status status = evn_session_run(session, in, 5, out, 5, &o, &error);
    fault_arm(Seam::kAlloc, 0, false);
    EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_OUT_OF_MEMORY) << status;
    int64_t length = 0;
    EXPECT_OK(evn_state_length(state, 0, &length, &error));
    // The outputs' handles may fail when the run has ended well.
    EXPECT_TRUE(length == c.past || length == c.past + 1);
    if (status != EVN_OK) {
      ++refused;
      if (length == c.past) {
        EXPECT_EQ(save(state), bytes) << k;
      }
    }
    EXPECT_OK(evn_state_restore(state, bytes.data(), bytes.size(), &error));
    for (const evn_tensor t : in) evn_tensor_release(t);
    for (const evn_tensor t : out) evn_tensor_release(t);
  }
  EXPECT_GT(refused, 3);
  EXPECT_EQ(save(state), bytes);
}

TEST_F(StateTest, EveryFailedAllocationIsAStatus) {
  int refused = 0;
  const auto try_all = [&](auto&& call) {
    for (int k = 1; k < 100; ++k) {
      fault_arm(Seam::kAlloc, k, false);
      const evn_status status = call();
      fault_arm(Seam::kAlloc, 0, false);
      if (status == EVN_OK) continue;
      EXPECT_EQ(status, EVN_ERROR_OUT_OF_MEMORY);
      ++refused;
    }
  };
  try_all([&] {
    evn_state made = nullptr;
    const evn_status status = evn_state_create(session, pairs(), 3, nullptr, &made, nullptr);
    EXPECT_EQ(made != nullptr, status == EVN_OK);
    evn_state_release(made);
    return status;
  });
  state = create(1, EVN_STATE_ON_DEMAND);
  Carried c;
  expect_same(state, c, step(130));
  const std::vector<unsigned char> bytes = save(state);
  try_all([&] {
    evn_state made = nullptr;
    const evn_status status = evn_state_fork(state, &made, nullptr);
    evn_state_release(made);
    return status;
  });
  try_all([&] { return evn_state_restore(state, bytes.data(), bytes.size(), nullptr); });
  EXPECT_EQ(save(state), bytes);
  std::vector<unsigned char> to(bytes.size());
  try_all([&] {
    std::size_t size = 0;
    return evn_state_save(state, to.data(), to.size(), &size, nullptr);
  });
  EXPECT_GT(refused, 20);
  expect_same(state, c, step(1));
}

// The state takes no memory while it grows. Attention's scores are scratch in the session's arenas, which grow with the length of a
// stream and are kept, so that the next stream of that length takes nothing at all.
TEST_F(StateTest, StepsOfASecondStreamAllocateNothingOnTheDevice) {
  state = create();
  const evn_tensor y = tensor({1, kHeads, 1, kDepth}, {});
  const uint8_t skipped[5] = {0, 0, 0, 0, 1};  // the sum, which no kernel reads in pages
  const Step s = step(1);
  const evn_tensor in[5] = {tensor({1, kHeads, 1, kDepth}, s.q), tensor({1, kHeads, 1, kDepth}, s.k)};
  evn_run_options o = EVN_RUN_OPTIONS_INIT;
  o.state = state;
  o.skipped_outputs = skipped;
  const auto step_once = [&] {
    evn_tensor out[5] = {y};
    EXPECT_OK(evn_session_run(session, in, 5, out, 5, &o, &error));
  };
  const uint64_t had = state_bytes();
  for (int i = 0; i < 140; ++i) step_once();
  EXPECT_EQ(state_bytes(), had);
  EXPECT_OK(evn_state_reset(state, &error));
  evn_memory_stats before = EVN_MEMORY_STATS_INIT, after = EVN_MEMORY_STATS_INIT;
  EXPECT_OK(evn_device_get_memory_stats(cpu, &before, &error));
  for (int i = 0; i < 140; ++i) step_once();
  EXPECT_OK(evn_device_get_memory_stats(cpu, &after, &error));
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(state_bytes(), had);
  for (const evn_tensor t : {in[0], in[1], y}) evn_tensor_release(t);
}

TEST_F(StateTest, OneRunUsesItAtATime) {
  state = create();
  std::atomic<int> ok{0}, busy{0};
  std::vector<std::thread> threads;
  const Step s = step(1);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 40; ++i) {
        evn_error e = EVN_ERROR_INIT;
        evn_tensor in[5] = {}, out[5] = {};
        const int64_t dims[] = {1, kHeads, 1, kDepth};
        for (int k = 0; k < 2; ++k) {
          EXPECT_EQ(evn_tensor_wrap(runtime, const_cast<float*>(s.q.data()), s.q.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, nullptr,
                                    nullptr, &in[k], &e),
                    EVN_OK);
        }
        evn_run_options o = EVN_RUN_OPTIONS_INIT;
        o.state = state;
        const evn_status status = evn_session_run(session, in, 5, out, 5, &o, &e);
        ++(status == EVN_OK ? ok : busy);
        EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_BUSY) << e.message;
        for (const evn_tensor tensor : in) evn_tensor_release(tensor);
        for (const evn_tensor tensor : out) evn_tensor_release(tensor);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  int64_t length = 0;
  EXPECT_OK(evn_state_length(state, 0, &length, &error));
  EXPECT_EQ(length, ok.load());
  EXPECT_EQ(ok + busy, 320);
}

TEST_F(StateTest, ManyStreamsOfOneSession) {
  constexpr int kStreams = 6;
  std::vector<std::vector<Step>> steps(kStreams);
  std::vector<std::vector<std::pair<std::vector<float>, std::vector<float>>>> expected(kStreams);
  std::vector<evn_state> states;
  for (int t = 0; t < kStreams; ++t) {
    Carried c;
    for (int i = 0; i < 12; ++i) {
      steps[t].push_back(step(1 + (t * 7 + i * 13) % 50));
      expected[t].push_back(by_hand(c, steps[t].back()));
    }
    states.push_back(create(1, EVN_STATE_ON_DEMAND));
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kStreams; ++t) {
    threads.emplace_back([&, t] {
      evn_error e = EVN_ERROR_INIT;
      for (int i = 0; i < 12; ++i) {
        const Step& s = steps[t][i];
        const int64_t dims[] = {1, kHeads, s.rows, kDepth};
        evn_tensor in[5] = {}, out[5] = {};
        evn_tensor_wrap(runtime, const_cast<float*>(s.q.data()), s.q.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr,
                        &in[0], &e);
        evn_tensor_wrap(runtime, const_cast<float*>(s.k.data()), s.k.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr,
                        &in[1], &e);
        evn_run_options o = EVN_RUN_OPTIONS_INIT;
        o.state = states[t];
        evn_request r = nullptr;
        bool done = false;
        EXPECT_EQ(evn_session_submit(session, in, 5, nullptr, 5, &o, nullptr, &r, &e), EVN_OK) << e.message;
        EXPECT_EQ(evn_request_wait(r, UINT64_MAX, &done, &e), EVN_OK);
        EXPECT_EQ(evn_request_take(r, out, 5, &e), EVN_OK) << e.message;
        EXPECT_EQ(out[1], nullptr);
        void* data = nullptr;
        std::size_t size = 0;
        EXPECT_EQ(evn_tensor_map(out[0], EVN_MAP_READ, &data, &size, &e), EVN_OK);
        EXPECT_EQ(size, expected[t][i].first.size() * 4);
        EXPECT_EQ(std::memcmp(data, expected[t][i].first.data(), size), 0);
        for (const evn_tensor tensor : in) evn_tensor_release(tensor);
        for (const evn_tensor tensor : out) evn_tensor_release(tensor);
        evn_request_release(r);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const evn_state s : states) EXPECT_EQ(evn_state_release(s), EVN_OK);
}

// A stream whose callback submits the next step.
TEST_F(StateTest, ACallbackMaySubmitTheNextStep) {
  state = create();
  struct Chain {
    StateTest* test;
    evn_tensor in[5] = {};
    std::atomic<int> left{20};
    static void done(void* user, evn_request) {
      auto& c = *static_cast<Chain*>(user);
      if (c.left.fetch_sub(1) > 1) c.submit();
    }
    void submit() {
      evn_run_options o = EVN_RUN_OPTIONS_INIT;
      o.state = test->state;
      evn_submit_options so = EVN_SUBMIT_OPTIONS_INIT;
      so.done = &done;
      so.user = this;
      evn_error e = EVN_ERROR_INIT;
      EXPECT_EQ(evn_session_submit(test->session, in, 5, nullptr, 5, &o, &so, nullptr, &e), EVN_OK) << e.message;
    }
  } chain{this};
  const Step s = step(1);
  chain.in[0] = tensor({1, kHeads, 1, kDepth}, s.q);
  chain.in[1] = tensor({1, kHeads, 1, kDepth}, s.k);
  chain.submit();
  while (chain.left.load() > 0) std::this_thread::yield();
  EXPECT_OK(evn_session_finish(session, UINT64_MAX, &error));
  session = nullptr;
  int64_t length = 0;
  EXPECT_OK(evn_state_length(state, 1, &length, &error));
  EXPECT_EQ(length, 20);
  for (const evn_tensor t : chain.in) evn_tensor_release(t);
}

TEST_F(StateTest, MisuseIsAStatus) {
  evn_state made = nullptr;
  const auto refused = [&](const evn_state_pair& pair, const char* text) {
    error = EVN_ERROR_INIT;
    EXPECT_EQ(evn_state_create(session, &pair, 1, nullptr, &made, &error), EVN_ERROR_INVALID_ARGUMENT) << text;
    EXPECT_NE(std::string(error.message).find(text), std::string::npos) << error.message;
    EXPECT_EQ(made, nullptr);
  };
  refused({"nothing", "past_k", 1}, "no output \"nothing\"");
  refused({"present_k", "nothing", 1}, "no input \"nothing\"");
  refused({"present_k", "past_k", -1}, "capacity");
  refused({"h_next", "past_k", 0}, "rank");
  refused({"h_next", "h", 5}, "cannot be told");
  refused({nullptr, "h", 5}, "output of a pair");
  const evn_state_pair twice[] = {{"h_next", "h", 0}, {"h_next", "past_k", 0}};
  EXPECT_EQ(evn_state_create(session, twice, 2, nullptr, &made, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_state_create(session, pairs(), 0, nullptr, &made, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_state_create(session, nullptr, 1, nullptr, &made, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_state_create(session, pairs(), 1, nullptr, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_state_create(nullptr, pairs(), 1, nullptr, &made, &error), EVN_ERROR_INVALID_HANDLE);
  evn_state_pair huge[] = {{"present_k", "past_k", INT64_MAX}};
  EXPECT_NE(evn_state_create(session, huge, 1, nullptr, &made, &error), EVN_OK);
  const int64_t negative[] = {-3, 4};
  const evn_input_shape dims[] = {{"h", negative, 2, 0}};
  evn_state_options o = EVN_STATE_OPTIONS_INIT;
  o.dims = dims;
  o.dim_count = 1;
  EXPECT_EQ(evn_state_create(session, pairs(), 3, &o, &made, &error), EVN_ERROR_INVALID_ARGUMENT);
  o.dim_count = 0;
  o.flags = 8;
  EXPECT_EQ(evn_state_create(session, pairs(), 3, &o, &made, &error), EVN_ERROR_INVALID_ARGUMENT);
  state = create();
  int64_t length = 0;
  EXPECT_EQ(evn_state_length(state, 3, &length, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_state_length(reinterpret_cast<evn_state>(session), 0, &length, &error), EVN_ERROR_INVALID_HANDLE);
  // A tensor where the state has one.
  const Step s = step(1);
  evn_tensor in[5] = {tensor({1, kHeads, 1, kDepth}, s.q), tensor({1, kHeads, 1, kDepth}, s.k), nullptr, nullptr,
                      tensor({1, 4}, {0, 0, 0, 0})};
  evn_tensor out[5] = {};
  evn_run_options run_options = EVN_RUN_OPTIONS_INIT;
  run_options.state = state;
  EXPECT_EQ(evn_session_run(session, in, 5, out, 5, &run_options, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("input 4 \"h\" is the state's"), std::string::npos) << error.message;
  std::swap(in[4], out[3]);
  EXPECT_EQ(evn_session_run(session, in, 5, out, 5, &run_options, &error), EVN_ERROR_INVALID_ARGUMENT);
  std::swap(in[4], out[3]);
  evn_session other = nullptr;
  EXPECT_OK(evn_session_create(runtime, model, nullptr, &other, &error));
  EXPECT_EQ(evn_session_run(other, in, 5, out, 5, &run_options, &error), EVN_ERROR_INVALID_HANDLE);  // NULL inputs
  EXPECT_EQ(evn_session_release(other), EVN_OK);
  EXPECT_EQ(evn_session_run(session, in, 5, out, 5, nullptr, &error), EVN_ERROR_INVALID_HANDLE);
  for (const evn_tensor t : in) evn_tensor_release(t);
  // It outlives the handles of what it is made of.
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  session = nullptr;
  EXPECT_OK(evn_state_reset(state, &error));
  EXPECT_EQ(evn_state_release(state), EVN_OK);
  EXPECT_EQ(evn_state_release(state), EVN_ERROR_INVALID_HANDLE);
  state = nullptr;
}

// Opening the first of the two inputs moves the second one, which is the state's, to another position.
TEST_F(StateTest, FollowsAnInputWithADefaultToAnotherPosition) {
  OnnxWriter w(17);
  w.add_input("x", kF32, {1}).add_input("gain", kF32, {1}).add_input("past", kF32, {1});
  w.add_output("y", kF32).add_output("next", kF32, {1});
  w.add_initializer("gain", {1}, std::vector<float>{2}).add_initializer("past", {1}, std::vector<float>{7});
  w.add_node("Mul", {"x", "gain"}, {"scaled"}).add_node("Add", {"scaled", "past"}, {"next"}).add_node("Neg", {"next"}, {"y"});
  make(w.serialize());
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  const char* const open[] = {"past"};
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  options.overridable = open;
  options.overridable_count = 1;
  ASSERT_OK(evn_session_create(runtime, model, &options, &session, &error));
  const evn_state_pair pair[] = {{"next", "past", 0}};
  ASSERT_OK(evn_state_create(session, pair, 1, nullptr, &state, &error));
  const evn_tensor x = tensor({1}, {1}), gain = tensor({1}, {10});
  const auto step_with = [&](evn_tensor given) {
    const evn_tensor in[] = {x, given};
    evn_tensor out[2] = {};
    evn_run_options o = EVN_RUN_OPTIONS_INIT;
    o.state = state;
    EXPECT_OK(evn_session_run(session, in, given != nullptr ? 2 : 1, out, 2, &o, &error));
    const float y = out[0] != nullptr ? values_of(out[0])[0] : 0;
    evn_tensor_release(out[0]);
    return y;
  };
  EXPECT_EQ(step_with(nullptr), -2);  // a state begins with zeros
  EXPECT_EQ(step_with(gain), -12);
  EXPECT_EQ(step_with(gain), -22);
  EXPECT_EQ(step_with(nullptr), -24);
  evn_tensor_release(x);
  evn_tensor_release(gain);
}

TEST_F(StateTest, LiesOnAnOpenClDevice) {
  EVN_NEEDS_OPENCL();
  make(decoder(), "{devices: {gpu: {type: opencl}}}", "gpu");
  state = create();
  EXPECT_NE(describe(state).find("the Concat does not run on the CPU"), std::string::npos) << describe(state);
  Carried c;
  for (const int64_t rows : {1, 4, 1}) expect_same(state, c, step(rows));
  evn_state fork = nullptr;
  EXPECT_OK(evn_state_fork(state, &fork, &error));
  Carried other = c;
  expect_same(fork, other, step(2));
  const std::vector<unsigned char> bytes = save(state);
  expect_same(state, c, step(1));
  EXPECT_OK(evn_state_restore(state, bytes.data(), bytes.size(), &error));
  EXPECT_EQ(save(state), bytes);
  EXPECT_OK(evn_state_truncate(state, 2, &error));
  EXPECT_EQ(run(state, step(1)), EVN_OK);
  EXPECT_OK(evn_state_reset(state, &error));
  Carried fresh;
  expect_same(state, fresh, step(3));
  EXPECT_EQ(evn_state_release(fork), EVN_OK);
}

}  // namespace
}  // namespace evn::test::state_test
