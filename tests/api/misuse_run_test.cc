// Misuse of the C API: rows M06 to M11 of the list of hostile cases: releases that race with runs, objects that never came to be,
// tensors and names that do not fit. A status, never a crash; what was not to be written is as it was.
#include <atomic>
#include <cstring>
#include <limits>
#include <thread>

#include "tests/api/support.h"

namespace evn::test {
namespace {

constexpr evn_status kBad = EVN_ERROR_INVALID_ARGUMENT;

struct MisuseRun : ApiTest {
  std::vector<float> result(evn_tensor t) {
    void* data = nullptr;
    size_t size = 0;
    EXPECT_OK(evn_tensor_map(t, EVN_MAP_READ, &data, &size, &error));
    std::vector<float> all(size / sizeof(float));
    if (size > 0) std::memcpy(all.data(), data, size);
    EXPECT_OK(evn_tensor_unmap(t, &error));
    return all;
  }
  std::vector<float> run_once() {
    evn_tensor t = input();
    evn_tensor out = nullptr;
    EXPECT_OK(evn_session_run(session, &t, 1, &out, 1, nullptr, &error));
    std::vector<float> all = result(out);
    EXPECT_EQ(evn_tensor_release(out), EVN_OK);
    EXPECT_EQ(evn_tensor_release(t), EVN_OK);
    return all;
  }
  evn_tensor wrap(void* data, size_t size, evn_dtype dtype, std::vector<int64_t> shape) {
    evn_tensor t = nullptr;
    EXPECT_OK(evn_tensor_wrap(runtime, data, size, dtype, shape.data(), static_cast<uint32_t>(shape.size()), nullptr, nullptr, &t,
                              &error));
    return t;
  }
};

TEST_F(MisuseRun, M06_RunsOfEightThreadsEndWellWhenTheSessionIsReleased) {
  const std::vector<float> want = run_once();
  for (int round = 0; round < 10; ++round) {
    evn_session s = nullptr;
    ASSERT_OK(evn_session_create(runtime, model, nullptr, &s, &error));
    evn_tensor t = input();
    std::atomic<int> good{0};
    std::atomic<int> wrong{0};
    const auto body = [&] {
      std::vector<float> y(want.size());
      const int64_t shape[2] = {2, 10};
      evn_tensor out = nullptr;
      evn_tensor_wrap(runtime, y.data(), y.size() * sizeof(float), EVN_DTYPE_FLOAT32, shape, 2, nullptr, nullptr, &out, nullptr);
      evn_status status = EVN_OK;
      while (status == EVN_OK) {
        status = evn_session_run(s, &t, 1, &out, 1, nullptr, nullptr);
        if (status == EVN_OK) ++good;
        if (status == EVN_OK ? y != want : status != EVN_ERROR_INVALID_HANDLE) ++wrong;
      }
      evn_tensor_release(out);
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back(body);
    while (good < 16) std::this_thread::yield();
    EXPECT_EQ(evn_session_release(s), EVN_OK);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  }
}

TEST_F(MisuseRun, M07_OfTwoThreadsThatReleaseTheSameHandlesOneSucceedsForEach) {
  constexpr int kRounds = 100;
  constexpr std::size_t kHandles = 1000;
  float x = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<evn_tensor> handles(kHandles);
    for (evn_tensor& t : handles)
      ASSERT_EQ(evn_tensor_wrap(runtime, &x, 4, EVN_DTYPE_FLOAT32, nullptr, 0, nullptr, nullptr, &t, nullptr), EVN_OK);
    std::atomic<int> ready{0};
    std::atomic<std::size_t> released{0};
    std::atomic<std::size_t> refused{0};
    const auto body = [&] {
      ++ready;
      while (ready < 2) std::this_thread::yield();
      for (evn_tensor t : handles) {
        const evn_status status = evn_tensor_release(t);
        released += status == EVN_OK;
        refused += status == EVN_ERROR_INVALID_HANDLE;
      }
    };
    std::thread other(body);
    body();
    other.join();
    ASSERT_EQ(released, kHandles);
    ASSERT_EQ(refused, kHandles);
  }
}

// A load that fails gives no handle, so there is none in a wrong state: what the caller has is NULL or garbage.
TEST_F(MisuseRun, M08_ALoadThatFailedLeavesNothingToRun) {
  evn_model broken = nullptr;
  EXPECT_EQ(evn_model_load_buffer(runtime, bytes.data(), bytes.size() / 2, nullptr, &broken, &error), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(broken, nullptr);
  evn_session s = nullptr;
  EXPECT_EQ(evn_session_create(runtime, broken, nullptr, &s, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(s, nullptr);
  evn_tensor t = input();
  evn_tensor out = nullptr;
  EXPECT_EQ(evn_session_run(s, &t, 1, &out, 1, nullptr, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(out, nullptr);
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  options.device = "nowhere";
  EXPECT_NE(evn_session_create(runtime, model, &options, &s, &error), EVN_OK);
  EXPECT_EQ(s, nullptr);
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(MisuseRun, M08_MemoryPlansThatThereAreNotAreRefused) {
  evn_session s = nullptr;
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  for (const evn_memory_plan wrong : {-1, EVN_MEMORY_PLAN_SMALL + 1}) {
    options.memory = wrong;
    EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), kBad) << wrong;
    EXPECT_NE(std::string(error.message).find("memory is "), std::string::npos) << error.message;
  }
  options.memory = EVN_MEMORY_PLAN_SMALL;
  EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), EVN_OK) << error.message;
  EXPECT_EQ(evn_session_release(s), EVN_OK);
  options.memory = -1;
  options.struct_size = offsetof(evn_session_options, memory);  // of a host that was built before there were plans
  EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), EVN_OK) << error.message;
  EXPECT_EQ(evn_session_release(s), EVN_OK);
}

TEST_F(MisuseRun, M08_RootsAndFlagsOfModelsThatThereAreNotAreRefused) {
  evn_model m = nullptr;
  evn_model_options options = EVN_MODEL_OPTIONS_INIT;
  const auto load = [&] { return evn_model_load_file(runtime, "/nowhere.onnx", &options, &m, &error); };
  options.flags = EVN_MODEL_MAP << 1;
  EXPECT_EQ(load(), kBad);
  EXPECT_EQ(std::string(error.message), "flags is 2");
  options.struct_size = offsetof(evn_model_options, allowed_roots);  // of a host that was built before there were flags
  EXPECT_EQ(load(), EVN_ERROR_IO);
  options = EVN_MODEL_OPTIONS_INIT;
  options.allowed_root_count = 2;
  EXPECT_EQ(load(), kBad);
  const char* roots[] = {"/", nullptr};
  options.allowed_roots = roots;
  EXPECT_EQ(load(), kBad);
  roots[1] = "";
  EXPECT_EQ(load(), kBad);
  roots[1] = "/tmp";
  EXPECT_EQ(load(), EVN_ERROR_IO);
}

TEST_F(MisuseRun, M08_InputsWithoutADefaultAreNotOverridable) {
  evn_session s = nullptr;
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  options.overridable_count = 1;
  EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), kBad);
  const char* names[] = {nullptr};
  options.overridable = names;
  EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), kBad);
  names[0] = "nosuch";
  EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), kBad);
  EXPECT_NE(std::string(error.message).find("no input \"nosuch\" with a default; there are: none"), std::string::npos)
      << error.message;
  uint32_t count = 1;
  EXPECT_EQ(evn_model_default_count(model, &count, &error), EVN_OK);
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(evn_model_default_count(model, nullptr, &error), kBad);
  EXPECT_EQ(evn_session_default_count(nullptr, &count, &error), EVN_ERROR_INVALID_HANDLE);
}

TEST_F(MisuseRun, M08_ProductsThatThereAreNotAreRefused) {
  evn_session s = nullptr;
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  for (const evn_products wrong : {-1, EVN_PRODUCTS_MEASURED + 1}) {
    options.products = wrong;
    EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), kBad) << wrong;
    EXPECT_NE(std::string(error.message).find("products is "), std::string::npos) << error.message;
  }
  options.products = EVN_PRODUCTS_MEASURED;
  options.struct_size = offsetof(evn_session_options, products);  // of a host that was built before there were products
  EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), EVN_OK) << error.message;
  EXPECT_EQ(evn_session_release(s), EVN_OK);
}

TEST_F(MisuseRun, M08_PrecisionsThatThereAreNotAreRefused) {
  evn_session s = nullptr;
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  for (const evn_precision wrong : {-1, EVN_PRECISION_AUTO + 1}) {
    options.precision = wrong;
    EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), kBad) << wrong;
  }
  options.precision = EVN_PRECISION_BF16;
  options.keep_fp32_count = 1;
  EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), kBad);
  const char* const patterns[] = {"*", nullptr};
  options.keep_fp32 = patterns;
  options.keep_fp32_count = 2;
  EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), kBad);
  EXPECT_EQ(s, nullptr);
  options.keep_fp32_count = 1;
  EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), EVN_OK);
  EXPECT_EQ(evn_session_release(s), EVN_OK);
}

TEST_F(MisuseRun, M08_NumericsThatThereAreNotAreRefused) {
  evn_session s = nullptr;
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  for (const evn_numerics wrong : {-1, EVN_NUMERICS_STRICT + 1}) {
    options.numerics = wrong;
    EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), kBad) << wrong;
  }
  options.numerics = EVN_NUMERICS_STRICT;
  options.disabled_pass_count = 1;
  EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), kBad) << "no names";
  const char* none = nullptr;
  options.disabled_passes = &none;
  EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), kBad) << "no name";
  const char* unknown = "no_pass";
  options.disabled_passes = &unknown;
  EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), kBad);
  EXPECT_NE(std::string(error.message).find("cascade"), std::string::npos) << error.message;
  const char* known = "cascade";
  options.disabled_passes = &known;
  EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), EVN_OK);
  EXPECT_EQ(evn_session_release(s), EVN_OK);
  options.disabled_pass_count = 0;
  EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), EVN_OK);
  EXPECT_EQ(evn_session_release(s), EVN_OK);
  // A client that was built before there was such a choice.
  options.struct_size = offsetof(evn_session_options, numerics);
  options.numerics = -1;
  EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), EVN_OK);
  EXPECT_EQ(evn_session_release(s), EVN_OK);
}

TEST_F(MisuseRun, M09_SizesThatDtypeAndDimsDoNotGiveAreRefused) {
  int deleted = 0;
  const evn_deleter deleter = [](void* user, void*) { ++*static_cast<int*>(user); };
  evn_tensor t = nullptr;
  const std::size_t size = values.size() * sizeof(float);
  for (const std::size_t wrong : {size - 1, size + 1, std::size_t{0}, std::numeric_limits<std::size_t>::max()}) {
    EXPECT_EQ(evn_tensor_wrap(runtime, values.data(), wrong, EVN_DTYPE_FLOAT32, dims, 4, deleter, &deleted, &t, &error), kBad)
        << wrong;
  }
  EXPECT_EQ(evn_tensor_wrap(runtime, values.data(), size, EVN_DTYPE_FLOAT64, dims, 4, deleter, &deleted, &t, &error), kBad);
  EXPECT_EQ(evn_tensor_wrap(runtime, values.data(), size, EVN_DTYPE_FLOAT32, dims, 3, deleter, &deleted, &t, &error), kBad);
  EXPECT_EQ(evn_tensor_wrap(runtime, values.data(), size, EVN_DTYPE_FLOAT32, dims, UINT32_MAX, deleter, &deleted, &t, &error),
            EVN_ERROR_LIMIT);
  EXPECT_EQ(t, nullptr);
  EXPECT_EQ(deleted, 0);  // the memory stays the caller's
}

TEST_F(MisuseRun, M09_InputsOfWrongDtypeRankOrShapeAreRefusedAndOutputsUntouched) {
  struct Wrong {
    evn_dtype dtype;
    std::vector<int64_t> dims;
  };
  const std::vector<Wrong> all = {{EVN_DTYPE_INT32, {2, 3, 8, 8}},      {EVN_DTYPE_FLOAT32, {2, 3, 64}},
                                  {EVN_DTYPE_FLOAT32, {2, 3, 8, 8, 1}}, {EVN_DTYPE_FLOAT32, {2, 4, 6, 8}},
                                  {EVN_DTYPE_FLOAT32, {3, 2, 8, 8}},    {EVN_DTYPE_FLOAT32, {384}}};
  std::vector<float> y(20, 7.0f);
  evn_tensor out = wrap(y.data(), y.size() * sizeof(float), EVN_DTYPE_FLOAT32, {2, 10});
  const evn_tensor given = out;
  for (const Wrong& w : all) {
    evn_tensor t = wrap(values.data(), values.size() * sizeof(float), w.dtype, w.dims);
    EXPECT_EQ(evn_session_run(session, &t, 1, &out, 1, nullptr, &error), kBad);
    EXPECT_NE(std::string(error.message).find("\"x\""), std::string::npos) << error.message;
    EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  }
  evn_tensor t = input();
  for (const uint32_t count : {0u, 2u, 0x80000000u, UINT32_MAX}) {
    EXPECT_EQ(evn_session_run(session, &t, count, &out, 1, nullptr, &error), kBad) << count;
    EXPECT_EQ(evn_session_run(session, &t, 1, &out, count, nullptr, &error), kBad) << count;
  }
  EXPECT_EQ(out, given);
  EXPECT_EQ(y, std::vector<float>(20, 7.0f));
  EXPECT_EQ(values, std::vector<float>(2 * 3 * 8 * 8, 0.5f));
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  EXPECT_EQ(evn_tensor_release(out), EVN_OK);
}

TEST_F(MisuseRun, M10_NamesThatAreNoInputsAreRefused) {
  uint32_t index = 77;
  const std::string huge(1u << 20, 'x');
  const std::string odd = "x\x1b[31m\n\xff";
  for (const std::string& name :
       {std::string("unknown"), std::string(), std::string("x "), std::string("X"), std::string("y"), huge, odd}) {
    EXPECT_EQ(evn_session_find_input(session, name.c_str(), &index, &error), kBad);
    EXPECT_LT(std::strlen(error.message), sizeof error.message);
    EXPECT_EQ(std::string(error.message).find_first_of("\x1b\n\xff"), std::string::npos);
  }
  EXPECT_EQ(evn_session_find_output(session, "x", &index, &error), kBad);
  EXPECT_EQ(evn_session_find_output(session, huge.c_str(), &index, &error), kBad);
  EXPECT_EQ(index, 77u);
  size_t size = 5;
  EXPECT_EQ(evn_model_get_metadata(model, huge.c_str(), nullptr, 0, &size, &error), kBad);
  EXPECT_EQ(evn_model_get_metadata(model, "", nullptr, 0, &size, &error), kBad);
  EXPECT_EQ(size, 5u);
}

TEST_F(MisuseRun, M10_AMissingInputIsAnInvalidHandleAndADoubleOneIsRead) {
  OnnxWriter w(13);
  w.add_node("Add", {"a", "b"}, {"c"});
  w.add_input("a", kF32, {4}).add_input("b", kF32, {4}).add_output("c", kF32, {4});
  const std::string both = w.serialize();
  evn_model m = nullptr;
  evn_session s = nullptr;
  ASSERT_OK(evn_model_load_buffer(runtime, both.data(), both.size(), nullptr, &m, &error));
  ASSERT_OK(evn_session_create(runtime, m, nullptr, &s, &error));
  float x[4] = {1, 2, 3, 4};
  evn_tensor t = wrap(x, sizeof x, EVN_DTYPE_FLOAT32, {4});
  evn_tensor in[2] = {t, nullptr};
  evn_tensor out = nullptr;
  EXPECT_EQ(evn_session_run(s, in, 2, &out, 1, nullptr, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_session_run(s, in, 1, &out, 1, nullptr, &error), kBad);
  EXPECT_EQ(out, nullptr);
  in[1] = t;
  ASSERT_OK(evn_session_run(s, in, 2, &out, 1, nullptr, &error));
  EXPECT_EQ(result(out), (std::vector<float>{2, 4, 6, 8}));
  for (evn_tensor end : {t, out}) EXPECT_EQ(evn_tensor_release(end), EVN_OK);
  EXPECT_EQ(evn_session_release(s), EVN_OK);
  EXPECT_EQ(evn_model_release(m), EVN_OK);
}

TEST_F(MisuseRun, M11_TextBuffersThatAreTooSmallStayAsTheyAre) {
  size_t size = 0;
  ASSERT_OK(evn_session_explain(session, EVN_FORMAT_JSON, nullptr, 0, &size, &error));
  ASSERT_GT(size, 2u);
  std::vector<char> text(size, '#');
  for (const size_t capacity : {size_t{1}, size / 2, size - 1}) {
    size_t got = 3;
    EXPECT_EQ(evn_session_explain(session, EVN_FORMAT_JSON, text.data(), capacity, &got, &error), EVN_ERROR_BUFFER_TOO_SMALL);
    EXPECT_EQ(error.bytes_requested, size);
    EXPECT_EQ(got, 3u);
  }
  EXPECT_EQ(text, std::vector<char>(size, '#'));
}

TEST_F(MisuseRun, M11_OutputsThatAreTooSmallOrOverlapAreRefused) {
  std::vector<float> memory(384 + 20, 0.25f);
  const std::vector<float> before = memory;
  evn_tensor t = wrap(memory.data(), 384 * sizeof(float), EVN_DTYPE_FLOAT32, {2, 3, 8, 8});
  struct Place {
    std::size_t at;
    std::vector<int64_t> dims;
  };
  for (const Place& p : {Place{384, {2, 9}}, Place{384, {1, 10}}, Place{384, {20}}, Place{0, {2, 10}}, Place{383, {2, 10}}}) {
    int64_t count = 1;
    for (const int64_t d : p.dims) count *= d;
    evn_tensor out = wrap(memory.data() + p.at, static_cast<size_t>(count) * sizeof(float), EVN_DTYPE_FLOAT32, p.dims);
    EXPECT_EQ(evn_session_run(session, &t, 1, &out, 1, nullptr, &error), kBad) << p.at;
    EXPECT_EQ(evn_tensor_release(out), EVN_OK);
  }
  EXPECT_EQ(memory, before);
  evn_tensor out = wrap(memory.data() + 384, 20 * sizeof(float), EVN_DTYPE_FLOAT32, {2, 10});  // touching is no overlap
  EXPECT_OK(evn_session_run(session, &t, 1, &out, 1, nullptr, &error));
  EXPECT_EQ(evn_tensor_release(out), EVN_OK);
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(MisuseRun, M11_InputsAndOutputsOffByOneByteGiveTheSameBits) {
  const std::vector<float> want = run_once();
  std::vector<unsigned char> in(values.size() * sizeof(float) + 1);
  std::memcpy(in.data() + 1, values.data(), values.size() * sizeof(float));
  std::vector<unsigned char> y(20 * sizeof(float) + 2, 0xa5);
  evn_tensor t = wrap(in.data() + 1, in.size() - 1, EVN_DTYPE_FLOAT32, {2, 3, 8, 8});
  evn_tensor out = wrap(y.data() + 1, y.size() - 2, EVN_DTYPE_FLOAT32, {2, 10});
  EXPECT_OK(evn_session_run(session, &t, 1, &out, 1, nullptr, &error));
  EXPECT_EQ(std::memcmp(y.data() + 1, want.data(), 20 * sizeof(float)), 0);
  EXPECT_EQ(y.front(), 0xa5);
  EXPECT_EQ(y.back(), 0xa5);
  EXPECT_EQ(evn_tensor_release(out), EVN_OK);
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

}  // namespace
}  // namespace evn::test
