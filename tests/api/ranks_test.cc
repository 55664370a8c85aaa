// Trainers of one process that are ranks of each other by the host's evn_reduce: equal bits, and what happens where a call of it,
// or a rank, fails.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "evener/train.h"
#include "tests/api/support.h"
#include "tests/support/opencl_driver.h"

namespace evn::test {
namespace {

constexpr uint32_t kRanks = 3;

// All-reduce among threads. The call `fails_at` fails in all ranks, as where one is lost. `action` is called within the call
// `acts_at`, when all ranks are there.
class Meeting {
 public:
  evn_status reduce(uint32_t rank, void* data, uint64_t count, evn_dtype dtype) {
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t round = round_;
    parts_[rank] = data;
    if (++here_ == kRanks) {
      ++calls;
      if (calls != fails_at) {
        if (dtype == EVN_DTYPE_FLOAT32) sum<float>(count);
        else sum<double>(count);
      }
      failed_ = calls == fails_at;
      if (calls == acts_at) action();
      here_ = 0;
      ++round_;
      all_.notify_all();
    } else {
      const auto is_over = [&] { return round_ != round; };
      if (!all_.wait_for(lock, std::chrono::seconds(60), is_over)) return EVN_ERROR_TIMEOUT;
    }
    return failed_ ? EVN_ERROR_DEVICE_LOST : EVN_OK;
  }
  uint64_t calls = 0, fails_at = 0, acts_at = 0;
  std::function<void()> action;

 private:
  template <typename T>
  void sum(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      T total = 0;
      for (void* part : parts_) total += static_cast<T*>(part)[i];
      for (void* part : parts_) static_cast<T*>(part)[i] = total;
    }
  }

  std::mutex mutex_;
  std::condition_variable all_;
  void* parts_[kRanks] = {};
  uint32_t here_ = 0;
  uint64_t round_ = 0;
  bool failed_ = false;
};

struct Member {
  Meeting* meeting = nullptr;
  uint32_t rank = 0;
  evn_tensor input = nullptr, labels = nullptr;
  evn_trainer trainer = nullptr;
  const char* device = nullptr;
  evn_cancel cancel = nullptr;
  evn_error error = EVN_ERROR_INIT;
  evn_step_info info = EVN_STEP_INFO_INIT;
  std::vector<std::string> seen;  // parameters before the first step, and after each
};

evn_status reduce(void* context, void* data, uint64_t count, evn_dtype dtype, evn_error* error) {
  auto* const m = static_cast<Member*>(context);
  const evn_status status = m->meeting->reduce(m->rank, data, count, dtype);
  if (status != EVN_OK && error != nullptr) {
    error->status = status;
    std::strcpy(error->message, "a rank is lost");
  }
  return status;
}

void add_weight(OnnxWriter& w, const std::string& name, const std::vector<std::int64_t>& dims, float first) {
  std::size_t count = 1;
  for (const std::int64_t d : dims) count *= static_cast<std::size_t>(d);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = first + 0.03f * static_cast<float>(i % 11);
  w.add_initializer(name, dims, values);
}

// With two normalizations, neither of which depends on the other.
std::string network_of_two_branches() {
  OnnxWriter w(13);
  for (const char* const op : {"Relu", "Neg"}) {
    const std::string branch = op;
    w.add_node(op, {"x"}, {branch + "/x"}, {}, branch);
    w.add_node("BatchNormalization", {branch + "/x", branch + "/scale", branch + "/bias", branch + "/mean", branch + "/var"},
               {branch + "/n"}, {}, branch + "/norm");
    add_weight(w, branch + "/scale", {3}, 0.9f);
    add_weight(w, branch + "/bias", {3}, -0.1f);
    add_weight(w, branch + "/mean", {3}, 0);
    add_weight(w, branch + "/var", {3}, 1);
  }
  w.add_node("Add", {"Relu/n", "Neg/n"}, {"n"}, {}, "add");
  w.add_node("GlobalAveragePool", {"n"}, {"p"}, {}, "pool");
  w.add_node("Flatten", {"p"}, {"f"}, {{"axis", 1}}, "flatten");
  w.add_node("MatMul", {"f", "w"}, {"y"}, {}, "product");
  w.add_input("x", kF32, {"N", 3, 8, 8}).add_output("y", kF32, {"N", 10});
  add_weight(w, "w", {3, 10}, -0.15f);
  return w.serialize();
}

// With a normalization by the batch, and a product by the sum of two parameters: their gradients are one value, which goes on into
// another node.
std::string normalized_network() {
  OnnxWriter w(13);
  const auto add = [&](const char* name, const std::vector<std::int64_t>& dims, float first) { add_weight(w, name, dims, first); };
  w.add_node("BatchNormalization", {"x", "scale", "bias", "mean", "var"}, {"n"}, {}, "norm");
  w.add_node("GlobalAveragePool", {"n"}, {"p"}, {}, "pool");
  w.add_node("Flatten", {"p"}, {"f"}, {{"axis", 1}}, "flatten");
  w.add_node("MatMul", {"a", "b"}, {"ab"}, {}, "adapter");
  w.add_node("Add", {"w", "ab"}, {"sum"}, {}, "add");
  w.add_node("Add", {"sum", "u"}, {"both"}, {}, "add again");
  w.add_node("MatMul", {"f", "both"}, {"y"}, {}, "product");
  w.add_input("x", kF32, {"N", 3, 8, 8}).add_output("y", kF32, {"N", 10});
  add("scale", {3}, 0.9f);
  add("bias", {3}, -0.1f);
  add("mean", {3}, 0);
  add("var", {3}, 1);
  add("w", {3, 10}, -0.15f);
  add("u", {3, 10}, 0.1f);
  add("a", {3, 2}, 0.2f);
  add("b", {2, 10}, -0.2f);
  return w.serialize();
}

struct RanksTest : testing::Test {
  evn_runtime runtime = nullptr;
  evn_device cpu = nullptr;
  evn_error error = EVN_ERROR_INIT;
  std::string bytes = small_network().serialize();
  Meeting meeting;
  Member members[kRanks];
  evn_trainer_options options = EVN_TRAINER_OPTIONS_INIT;

  void SetUp() override {
    evn_runtime_options o = EVN_RUNTIME_OPTIONS_INIT;
    o.thread_count = 1;
    o.cache_dir = "";
    const int64_t dims[4] = {2, 3, 8, 8}, classes[1] = {2};
    ASSERT_EQ(evn_runtime_create(&o, &runtime, &error), EVN_OK) << error.message;
    ASSERT_EQ(evn_runtime_device_find(runtime, "cpu", &cpu, &error), EVN_OK);
    for (uint32_t r = 0; r < kRanks; ++r) {
      Member& m = members[r];
      m.meeting = &meeting;
      m.rank = r;
      ASSERT_EQ(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 4, 0, &m.input, &error), EVN_OK);
      ASSERT_EQ(evn_tensor_create(cpu, EVN_DTYPE_INT64, classes, 1, 0, &m.labels, &error), EVN_OK);
      void* data = nullptr;
      ASSERT_EQ(evn_tensor_map(m.input, EVN_MAP_WRITE, &data, nullptr, &error), EVN_OK);
      for (uint32_t i = 0; i < 384; ++i) static_cast<float*>(data)[i] = 0.02f * static_cast<float>((i * (r + 1)) % 31) - 0.3f;
      ASSERT_EQ(evn_tensor_unmap(m.input, &error), EVN_OK);
    }
    options.data = bytes.data();
    options.size = bytes.size();
    options.optimizer = EVN_OPTIMIZER_ADAM;
    options.flags = EVN_TRAIN_CHECK_RANKS;
    options.bucket_bytes = 64;
  }
  void TearDown() override {
    for (Member& m : members) {
      evn_trainer_release(m.trainer);
      for (evn_tensor t : {m.input, m.labels}) evn_tensor_release(t);
    }
    evn_device_release(cpu);
    evn_runtime_release(runtime);
  }

  // body(member) in a thread for each rank; the statuses.
  template <typename F>
  std::vector<evn_status> all(F&& body) {
    std::vector<evn_status> statuses(kRanks);
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < kRanks; ++r) threads.emplace_back([&, r] { statuses[r] = body(members[r]); });
    for (std::thread& t : threads) t.join();
    return statuses;
  }
  std::vector<evn_status> create() {
    return all([&](Member& m) {
      evn_trainer_options o = options;
      o.rank = m.rank;
      o.rank_count = kRanks;
      o.reduce = reduce;
      o.reduce_context = &m;
      o.device = m.device;
      o.cancel = m.cancel;
      return evn_trainer_create(runtime, nullptr, &o, &m.trainer, &m.error);
    });
  }
  std::vector<evn_status> step() {
    return all([&](Member& m) { return evn_trainer_step(m.trainer, &m.input, 1, m.labels, &m.info, &m.error); });
  }
  std::string parameters(Member& m) {
    std::string everything;
    uint32_t count = 0;
    EXPECT_EQ(evn_trainer_parameter_count(m.trainer, &count, &error), EVN_OK);
    for (uint32_t i = 0; i < count; ++i) {
      evn_tensor tensor = nullptr;
      void* data = nullptr;
      size_t size = 0;
      EXPECT_EQ(evn_trainer_get_parameter(m.trainer, i, EVN_PARAMETER_VALUE, &tensor, &error), EVN_OK) << error.message;
      EXPECT_EQ(evn_tensor_map(tensor, EVN_MAP_READ, &data, &size, &error), EVN_OK);
      everything.append(static_cast<const char*>(data), size);
      evn_tensor_unmap(tensor, &error);
      evn_tensor_release(tensor);
    }
    return everything;
  }
  void expect_equal_parameters() {
    for (uint32_t r = 1; r < kRanks; ++r) EXPECT_EQ(parameters(members[r]), parameters(members[0])) << r;
  }
};

const std::vector<evn_status> kFine(kRanks, EVN_OK);

TEST_F(RanksTest, HoldTheSameBitsAndTheMeanOfAllLosses) {
  ASSERT_EQ(create(), kFine) << members[0].error.message;
  const std::string before = parameters(members[0]);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(step(), kFine) << members[0].error.message;
    for (Member& m : members) {
      EXPECT_EQ(m.info.loss, members[0].info.loss);
      EXPECT_EQ(m.info.gradient_norm, members[0].info.gradient_norm);
    }
    expect_equal_parameters();
  }
  EXPECT_NE(parameters(members[0]), before);
}

TEST_F(RanksTest, EveryCallThatFailsIsAStatusAndLeavesTheParametersOfTheLastGoodStep) {
  ASSERT_EQ(create(), kFine);
  const uint64_t of_creation = meeting.calls;
  std::vector<std::string> want = {parameters(members[0])};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(step(), kFine);
    want.push_back(parameters(members[0]));
  }
  const uint64_t all_calls = meeting.calls;
  ASSERT_GT(all_calls, of_creation + 8);
  for (uint64_t k = 1; k <= all_calls; ++k) {
    for (Member& m : members) {
      evn_trainer_release(m.trainer);
      m.trainer = nullptr;
    }
    meeting.calls = 0;
    meeting.fails_at = k;
    const std::vector<evn_status> lost(kRanks, EVN_ERROR_DEVICE_LOST);
    const std::vector<evn_status> created = create();
    EXPECT_EQ(created, k <= of_creation ? lost : kFine) << k;
    if (k <= of_creation) continue;
    std::size_t steps = 0;
    while (steps < 2 && step() == kFine) ++steps;
    EXPECT_STREQ(members[1].error.message, "rank 1 of 3: a rank is lost") << k;
    for (Member& m : members) {
      const std::string have = parameters(m);
      // The comparison of parameters stands behind the move.
      EXPECT_TRUE(have == want[steps] || (steps < 2 && have == want[steps + 1])) << k << " after " << steps;
      EXPECT_EQ(have, parameters(members[0])) << k;
    }
    EXPECT_EQ(step(), lost) << k;  // once it has failed
    if (HasFailure()) return;
  }
}

TEST_F(RanksTest, WhatOneRankCannotDoNoneDoes) {
  ASSERT_EQ(create(), kFine);
  ASSERT_EQ(step(), kFine);
  const std::string before = parameters(members[0]);
  const evn_tensor labels = members[1].labels;
  members[1].labels = nullptr;
  const std::vector<evn_status> mixed = {EVN_ERROR_WRONG_STATE, EVN_ERROR_INVALID_ARGUMENT, EVN_ERROR_WRONG_STATE};
  EXPECT_EQ(step(), mixed);
  EXPECT_NE(std::strstr(members[2].error.message, "rank 1"), nullptr) << members[2].error.message;
  members[1].labels = labels;
  for (Member& m : members) EXPECT_EQ(parameters(m), before);
  EXPECT_EQ(step(), kFine) << members[0].error.message;
  expect_equal_parameters();
}

// Gradients that a later step of the backward pass reads are not summed over the ranks before that: two of the four buckets would
// be sums of sums.
TEST_F(RanksTest, GradientsThatOthersAreMadeOfAreSummedOnce) {
  bytes = normalized_network();
  options.data = bytes.data();
  options.size = bytes.size();
  options.optimizer = EVN_OPTIMIZER_SGD;
  options.learning_rate = 0.1f;
  const auto values = [&](uint64_t bucket_bytes) {
    options.bucket_bytes = bucket_bytes;
    for (Member& m : members) {
      evn_trainer_release(m.trainer);
      m.trainer = nullptr;
    }
    EXPECT_EQ(create(), kFine) << members[0].error.message;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(step(), kFine) << members[0].error.message;
    expect_equal_parameters();
    return parameters(members[1]);
  };
  const std::string at_once = values(uint64_t{1} << 20);
  for (int turn = 0; turn < 5; ++turn) EXPECT_EQ(values(4), at_once);
}

// Three trainers of one runtime, which has the operator that sums over ranks once.
TEST_F(RanksTest, NormalizeByTheBatchesOfAllRanksInOneRuntime) {
  bytes = normalized_network();
  options.data = bytes.data();
  options.size = bytes.size();
  ASSERT_EQ(create(), kFine) << members[0].error.message;
  ASSERT_EQ(step(), kFine) << members[0].error.message;
  const float apart = members[0].info.loss;
  for (int turn = 0; turn < 2; ++turn) {
    for (Member& m : members) {
      evn_trainer_release(m.trainer);
      m.trainer = nullptr;
    }
    options.flags = EVN_TRAIN_CHECK_RANKS | EVN_TRAIN_SYNC_NORM;
    ASSERT_EQ(create(), kFine) << members[0].error.message;
    ASSERT_EQ(step(), kFine) << members[0].error.message;
    EXPECT_NE(members[0].info.loss, apart);
    ASSERT_EQ(step(), kFine) << members[0].error.message;
    expect_equal_parameters();
  }
}

// A device with a queue is given the work of both branches before the host sums; the CPU ends one branch before the other.
TEST_F(RanksTest, RanksWhoseDevicesNormalizeInDifferentOrdersFail) {
  EVN_NEEDS_OPENCL();
  bytes = network_of_two_branches();
  options.data = bytes.data();
  options.size = bytes.size();
  options.flags = EVN_TRAIN_SYNC_NORM;
  members[1].device = "opencl,cpu";
  ASSERT_EQ(create(), kFine) << members[0].error.message << members[1].error.message;
  const std::string before = parameters(members[0]);
  EXPECT_EQ(step(), std::vector<evn_status>(kRanks, EVN_ERROR_WRONG_STATE));
  for (Member& m : members) {
    EXPECT_NE(std::strstr(m.error.message, "different nodes"), nullptr) << m.error.message;
    EXPECT_NE(std::strstr(m.error.node, "AllReduce"), nullptr) << m.error.node;
    EXPECT_EQ(parameters(m), before);
  }
}

// With so small an epsilon no bound of a step is known: what it makes is written beside the parameters, and a token still ends
// that.
TEST_F(RanksTest, ARankThatCannotMoveItsParametersTakesPartInTheComparison) {
  evn_cancel cancel = nullptr;
  ASSERT_EQ(evn_cancel_create(&cancel, &error), EVN_OK);
  members[1].cancel = cancel;
  options.epsilon = 1e-29;
  ASSERT_EQ(create(), kFine) << members[0].error.message;
  ASSERT_EQ(step(), kFine) << members[0].error.message;
  const uint64_t before = meeting.calls;
  ASSERT_EQ(step(), kFine) << members[0].error.message;
  meeting.acts_at = 2 * meeting.calls - before - 1;  // of the next step, the last call but the comparison
  meeting.action = [&] { EXPECT_EQ(evn_cancel_request(cancel), EVN_OK); };
  const std::vector<evn_status> mixed = {EVN_ERROR_WRONG_STATE, EVN_ERROR_CANCELLED, EVN_ERROR_WRONG_STATE};
  ASSERT_EQ(step(), mixed) << members[0].error.message;
  for (const uint32_t r : {0u, 2u})
    EXPECT_NE(std::strstr(members[r].error.message, "other bits"), nullptr) << members[r].error.message;
  EXPECT_EQ(step(), mixed) << members[0].error.message;
  evn_cancel_release(cancel);
}

TEST_F(RanksTest, WrongOptionsAreRefused) {
  const auto refused = [&](evn_trainer_options o, const char* says) {
    evn_trainer trainer = nullptr;
    EXPECT_EQ(evn_trainer_create(runtime, nullptr, &o, &trainer, &error), EVN_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(error.message, says), nullptr) << error.message;
  };
  evn_trainer_options o = options;
  o.rank = 3;
  o.rank_count = 3;
  refused(o, "rank is 3 of 3");
  o.rank = 0;
  refused(o, "neither reduce nor collective");
  o.reduce = reduce;
  o.rank_count = 0;
  refused(o, "without rank_count");
  o.collective = "mpi";
  refused(o, "both given");
  o.reduce = nullptr;
  o.collective = "carrier pigeons";
  refused(o, "expected mpi or gloo");
}

}  // namespace
}  // namespace evn::test
