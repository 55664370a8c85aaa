// The fixture of the tests of states: a decoder with a cache of keys and values, stepped with a state and by a caller who carries
// the tensors along.
#pragma once

#include <cstring>
#include <random>

#include "base/fault.h"
#include "evener/state.h"
#include "tests/api/support.h"

namespace evn::test::state_test {

inline constexpr int64_t kHeads = 3, kDepth = 32;  // 384 bytes for each position: some 128 of them to a page
inline constexpr int64_t kCapacity = 700;

// One step of attention over a cache of keys and values, with a sum over the cache, which no kernel reads in pages, and the state
// of a recurrent layer beside it.
inline std::string decoder(bool with_slice = false) {
  OnnxWriter w(17);
  w.add_input("q", kF32, {"B", kHeads, "S", kDepth}).add_input("k", kF32, {"B", kHeads, "S", kDepth});
  w.add_input("past_k", kF32, {"B", kHeads, "P", kDepth}).add_input("past_v", kF32, {"B", kHeads, "P", kDepth});
  w.add_input("h", kF32, {"B", 4});
  w.add_output("y", kF32).add_output("present_k", kF32, {"B", kHeads, "T", kDepth});
  w.add_output("present_v", kF32, {"B", kHeads, "T", kDepth}).add_output("h_next", kF32, {"B", 4}).add_output("sum", kF32);
  w.add_node("Concat", {"past_k", "k"}, {"present_k"}, {{"axis", 2}}, "append_k");
  w.add_node("Neg", {"k"}, {"v"});
  w.add_node("Concat", {"past_v", "v"}, {with_slice ? "all_v" : "present_v"}, {{"axis", -2}}, "append_v");
  if (with_slice) w.add_node("Identity", {"all_v"}, {"same_v"}).add_node("Abs", {"same_v"}, {"present_v"});
  w.add_node("Transpose", {"present_k"}, {"kt"}, {Attr("perm", std::vector<int64_t>{0, 1, 3, 2})});
  w.add_node("MatMul", {"q", "kt"}, {"scores"}).add_initializer("scale", {}, std::vector<float>{0.125f});
  w.add_node("Mul", {"scores", "scale"}, {"scaled"}).add_node("Softmax", {"scaled"}, {"weights"}, {{"axis", -1}});
  w.add_node("MatMul", {"weights", with_slice ? "all_v" : "present_v"}, {"y"});
  w.add_initializer("axes", {1}, std::vector<int64_t>{2});
  w.add_node("ReduceSum", {"present_v", "axes"}, {"sum"}, {{"keepdims", 0}});
  w.add_initializer("half", {}, std::vector<float>{0.5f});
  w.add_node("Mul", {"h", "half"}, {"hh"}).add_node("Add", {"hh", "half"}, {"h_next"});
  return w.serialize();
}

struct StateTest : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_model model = nullptr;
  evn_session session = nullptr;
  evn_device cpu = nullptr;
  evn_state state = nullptr;
  std::mt19937 random{7};

  void SetUp() override { make(decoder()); }
  void make(const std::string& bytes, const char* config = "", const char* device = nullptr, const char* disabled = nullptr) {
    TearDown();
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 2;
    if (*config != '\0') {
      options.config_text = config;
      options.config_size = std::strlen(config);
    }
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
    ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
    evn_session_options so = EVN_SESSION_OPTIONS_INIT;
    so.device = device;
    so.disabled_passes = &disabled;
    so.disabled_pass_count = disabled != nullptr ? 1 : 0;
    ASSERT_OK(evn_session_create(runtime, model, &so, &session, &error));
  }
  void TearDown() override {
    fault_arm(Seam::kAlloc, 0, false);
    EXPECT_EQ(evn_state_release(state), EVN_OK);
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    EXPECT_EQ(evn_device_release(cpu), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
    state = nullptr;
    session = nullptr;
    model = nullptr;
    cpu = nullptr;
    runtime = nullptr;
  }

  static const evn_state_pair* pairs() {
    static const evn_state_pair all[] = {
        {"present_k", "past_k", kCapacity}, {"present_v", "past_v", kCapacity}, {"h_next", "h", 0}};
    return all;
  }
  evn_state create(int64_t batch = 1, uint32_t flags = 0) {
    const int64_t h[] = {batch, 4};
    const evn_input_shape dims[] = {{"h", h, 2, 0}};
    evn_state_options o = EVN_STATE_OPTIONS_INIT;
    o.dims = dims;
    o.dim_count = 1;
    o.flags = flags;
    evn_state made = nullptr;
    EXPECT_OK(evn_state_create(session, pairs(), 3, &o, &made, &error));
    return made;
  }
  evn_tensor tensor(const std::vector<int64_t>& dims, const std::vector<float>& values) {
    evn_tensor t = nullptr;
    void* data = nullptr;
    EXPECT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims.data(), static_cast<uint32_t>(dims.size()), 0, &t, &error));
    EXPECT_OK(evn_tensor_map(t, EVN_MAP_WRITE, &data, nullptr, &error));
    if (!values.empty()) std::memcpy(data, values.data(), values.size() * 4);
    EXPECT_OK(evn_tensor_unmap(t, &error));
    return t;
  }
  std::vector<float> values_of(evn_tensor t) {
    void* data = nullptr;
    std::size_t size = 0;
    EXPECT_OK(evn_tensor_map(t, EVN_MAP_READ, &data, &size, &error));
    std::vector<float> v(size / 4);
    if (size > 0) std::memcpy(v.data(), data, size);
    EXPECT_OK(evn_tensor_unmap(t, &error));
    return v;
  }
  std::vector<float> noise(std::size_t n) {
    std::vector<float> v(n);
    for (float& x : v) x = std::uniform_real_distribution<float>(-1, 1)(random);
    return v;
  }

  // What a caller without states carries along.
  struct Carried {
    std::vector<float> k, v, h;
    int64_t past = 0, batch = 1;
    explicit Carried(int64_t b = 1) : h(static_cast<std::size_t>(b) * 4, 0.0f), batch(b) {}
  };
  struct Step {
    std::vector<float> q, k;
    int64_t rows;
  };
  Step step(int64_t rows, int64_t batch = 1) {
    const auto n = static_cast<std::size_t>(batch * kHeads * rows * kDepth);
    return {noise(n), noise(n), rows};
  }
  // y and the sum.
  std::pair<std::vector<float>, std::vector<float>> by_hand(Carried& c, const Step& s) {
    evn_tensor in[5], out[5] = {};
    in[0] = tensor({c.batch, kHeads, s.rows, kDepth}, s.q);
    in[1] = tensor({c.batch, kHeads, s.rows, kDepth}, s.k);
    in[2] = tensor({c.batch, kHeads, c.past, kDepth}, c.k);
    in[3] = tensor({c.batch, kHeads, c.past, kDepth}, c.v);
    in[4] = tensor({c.batch, 4}, c.h);
    EXPECT_OK(evn_session_run(session, in, 5, out, 5, nullptr, &error));
    c.k = values_of(out[1]);
    c.v = values_of(out[2]);
    c.h = values_of(out[3]);
    c.past += s.rows;
    const auto result = std::make_pair(values_of(out[0]), values_of(out[4]));
    for (const evn_tensor t : in) evn_tensor_release(t);
    for (const evn_tensor t : out) evn_tensor_release(t);
    return result;
  }
  evn_status run(evn_state with, const Step& s, std::pair<std::vector<float>, std::vector<float>>* result = nullptr,
                 int64_t batch = 1, evn_cancel cancel = nullptr) {
    evn_tensor in[5] = {tensor({batch, kHeads, s.rows, kDepth}, s.q), tensor({batch, kHeads, s.rows, kDepth}, s.k)};
    evn_tensor out[5] = {};
    evn_run_options o = EVN_RUN_OPTIONS_INIT;
    o.state = with;
    o.cancel = cancel;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_session_run(session, in, 5, out, 5, &o, &error);
    if (status == EVN_OK) {
      for (const int j : {1, 2, 3}) EXPECT_EQ(out[j], nullptr);
      if (result != nullptr) *result = {values_of(out[0]), values_of(out[4])};
    }
    for (const evn_tensor t : in) evn_tensor_release(t);
    for (const evn_tensor t : out) evn_tensor_release(t);
    return status;
  }
  void expect_same(evn_state with, Carried& c, const Step& s) {
    std::pair<std::vector<float>, std::vector<float>> got;
    const auto expected = by_hand(c, s);
    EXPECT_EQ(run(with, s, &got, c.batch), EVN_OK) << error.message;
    EXPECT_TRUE(got == expected) << "at " << c.past;
    int64_t length = 0;
    EXPECT_OK(evn_state_length(with, 0, &length, &error));
    EXPECT_EQ(length, c.past);
  }
  std::string describe(evn_state s) {
    std::size_t size = 0;
    EXPECT_OK(evn_state_describe(s, EVN_FORMAT_TEXT, nullptr, 0, &size, &error));
    std::string text(size, ' ');
    EXPECT_OK(evn_state_describe(s, EVN_FORMAT_TEXT, text.data(), size, &size, &error));
    return text;
  }
  std::vector<unsigned char> save(evn_state s) {
    std::size_t size = 0;
    EXPECT_OK(evn_state_save(s, nullptr, 0, &size, &error));
    std::vector<unsigned char> bytes(size);
    EXPECT_OK(evn_state_save(s, bytes.data(), size, &size, &error));
    return bytes;
  }
  uint64_t state_bytes() {
    evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
    EXPECT_OK(evn_device_get_memory_stats(cpu, &stats, &error));
    return stats.by_class[EVN_MEMORY_STATES];
  }
};

}  // namespace evn::test::state_test
