// The k-th allocation fails, for every k, over load, session and runs of a model of sequences, bodies and strings: a status each
// time, nothing lost, and the same bits once the fault is gone.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/fault.h"
#include "tests/api/support.h"
#include "tests/support/turn.h"

namespace evn::test {
namespace {

constexpr int64_t kCount = 4;

Proto unary_body(const Proto& node, const std::string& in, const std::string& out) {
  OnnxWriter body;
  return body.add_input(in, kF32, {"K"}).add_node(node).add_output(out, kF32).graph();
}

Proto loop_body() {
  OnnxWriter body;
  body.add_input("i", kI64, {}).add_input("on", kBool, {}).add_input("state", kF32, {kCount});
  body.add_node("Identity", {"on"}, {"on_out"}).add_node("Add", {"state", "x"}, {"next"}).add_node("Neg", {"state"}, {"seen"});
  return body.add_output("on_out", kBool).add_output("next", kF32).add_output("seen", kF32).graph();
}

// Squares x by way of a sequence, adds x in each of three turns, and as many ones as texts of the sum match a pattern.
std::string model_of_values() {
  OnnxWriter w(21, 10);
  w.add_input("x", kF32, {kCount}).add_initializer("turns", {}, std::vector<std::int64_t>{3});
  w.add_node("SplitToSequence", {"x"}, {"parts"});
  w.add_node("SequenceMap", {"parts"}, {"squares"},
             {Attr::graph("body", unary_body(node_proto("Mul", {"e", "e"}, {"s"}), "e", "s"))});
  w.add_node("ConcatFromSequence", {"squares"}, {"joined"}, {{"axis", 0}});
  w.add_node("Loop", {"turns", "", "joined"}, {"sum", "seen"}, {Attr::graph("body", loop_body())});
  w.add_node("Cast", {"sum"}, {"words"}, {{"to", 8}}).add_node("StringConcat", {"words", "words"}, {"twice"});
  w.add_node("RegexFullMatch", {"twice"}, {"like"}, {{"pattern", "[-0-9.e]+"}})
      .add_node("Cast", {"like"}, {"ones"}, {{"to", kF32}});
  w.add_node("Add", {"sum", "ones"}, {"y"});
  return w.add_output("y", kF32).add_output("seen", kF32).serialize();
}

struct Results {
  float y[kCount] = {};
  float seen[3 * kCount] = {};
  bool operator==(const Results& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};

// Everything that a host does with the model; allocates nothing itself.
evn_status whole_use(const std::string& bytes, Results* results, evn_error* error) {
  evn_runtime runtime = nullptr;
  evn_model model = nullptr;
  evn_session session = nullptr;
  evn_tensor x = nullptr, outputs[2] = {nullptr, nullptr};
  float values[kCount] = {0.5f, -1.5f, 2, 3};
  const int64_t dims[1] = {kCount};
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.cache_dir = "";
  options.thread_count = 2;
  evn_status s = evn_runtime_create(&options, &runtime, error);
  if (s == EVN_OK) s = evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, error);
  if (s == EVN_OK) s = evn_session_create(runtime, model, nullptr, &session, error);
  if (s == EVN_OK) s = evn_tensor_wrap(runtime, values, sizeof values, EVN_DTYPE_FLOAT32, dims, 1, nullptr, nullptr, &x, error);
  for (int turn = 0; turn < 2 && s == EVN_OK; ++turn) s = evn_session_run(session, &x, 1, outputs, 2, nullptr, error);
  void* into[2] = {results->y, results->seen};
  const size_t sizes[2] = {sizeof results->y, sizeof results->seen};
  for (int k = 0; k < 2 && s == EVN_OK; ++k) {
    void* data = nullptr;
    size_t size = 0;
    s = evn_tensor_map(outputs[k], EVN_MAP_READ, &data, &size, error);
    if (s == EVN_OK && size != sizes[k]) s = EVN_ERROR_INTERNAL;
    if (s == EVN_OK) std::memcpy(into[k], data, size);
    if (s == EVN_OK) s = evn_tensor_unmap(outputs[k], error);
  }
  for (evn_tensor t : {outputs[0], outputs[1], x}) evn_tensor_release(t);
  evn_session_release(session);
  evn_model_release(model);
  evn_runtime_release(runtime);
  return s;
}

void fail_each_allocation(bool forever) {
  const std::string bytes = model_of_values();
  evn_error error = EVN_ERROR_INIT;
  Results want;
  ASSERT_EQ(whole_use(bytes, &want, &error), EVN_OK) << error.message << " " << error.node;
  EXPECT_FLOAT_EQ(want.y[0], 0.25f + 3 * 0.5f + 1);
  EXPECT_FLOAT_EQ(want.seen[kCount + 1], -(2.25f - 1.5f));
  int refused = 0;
  const InTurn allocations(3);
  for (int k = allocations.first;; k += allocations.step) {
    ASSERT_LT(k, 100000) << "no end";
    Results got;
    error = EVN_ERROR_INIT;
    fault_arm(Seam::kAlloc, k, forever);
    const evn_status status = whole_use(bytes, &got, &error);
    const bool reached = fault_count(Seam::kAlloc) >= k;
    fault_arm(Seam::kAlloc, 0, false);
    if (status == EVN_OK) {
      ASSERT_TRUE(got == want) << "call " << k;
      if (!reached) break;
      continue;
    }
    ++refused;
    ASSERT_TRUE(reached) << "call " << k;
    ASSERT_EQ(status, EVN_ERROR_OUT_OF_MEMORY) << "call " << k << ": " << error.message;
  }
  std::printf("%d allocations failed\n", refused);
  EXPECT_GT(refused, 500 / allocations.step);
}

TEST(FaultValues, EveryAllocationThatFailsOnceIsAStatus) { fail_each_allocation(false); }

TEST(FaultValues, AllAllocationsFromTheKthOnFailing) { fail_each_allocation(true); }

}  // namespace
}  // namespace evn::test
