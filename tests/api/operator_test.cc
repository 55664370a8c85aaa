// Custom operators: what they can do, and that nothing that their callbacks return is trusted.
#include <chrono>
#include <cmath>
#include <future>
#include <stdexcept>
#include <thread>

#include "base/fault.h"
#include "tests/api/operator_fixture.h"

namespace evn::test {
namespace {

TEST_F(OperatorTest, RunsAmongOthersAndIsReleasedLast) {
  ASSERT_OK(add(make_operator(&behaviour)));
  ASSERT_OK(load(double_model()));
  ASSERT_OK(run({1, -2, 3}, {1, 3}));
  EXPECT_EQ(result, (std::vector<float>{2, 0, 6}));
  ASSERT_OK(run({1, 2, 3, 4, 5, 6}, {2, 3}));
  EXPECT_EQ(result, (std::vector<float>{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(behaviour.runs, 2);
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  EXPECT_EQ(behaviour.released, 0) << "the session keeps the runtime";
  runtime = nullptr;
  close();
  EXPECT_EQ(behaviour.released, 1);
}

TEST_F(OperatorTest, ComesBeforeTheModel) {
  EXPECT_EQ(load(double_model()), EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(error.node, "double_1");
  ASSERT_OK(add(make_operator(&behaviour)));
  EXPECT_OK(load(double_model()));
}

TEST_F(OperatorTest, OtherDevicesRefuseItAndExplainSaysWhereItRuns) {
  ASSERT_OK(add(make_operator(&behaviour)));
  ASSERT_OK(load(double_model()));
  std::string text(65536, '\0');
  ASSERT_OK(evn_session_explain(session, EVN_FORMAT_JSON, text.data(), text.size(), nullptr, &error));
  EXPECT_NE(text.find("\"op\":\"Double\",\"device\":\"cpu\",\"kernel\":\"reference\""), std::string::npos) << text.c_str();
}

TEST_F(OperatorTest, WrongRegistrationsAreRefusedAndNotReleased) {
  const auto refused = [&](const std::function<void(evn_operator&)>& change, const char* part) {
    evn_operator op = make_operator(&behaviour);
    change(op);
    EXPECT_EQ(add(op), EVN_ERROR_INVALID_ARGUMENT) << part;
    EXPECT_TRUE(says(part)) << part << ": " << error.message;
  };
  const std::string long_name(300, 'n');
  refused([](evn_operator& o) { o.domain = nullptr; }, "domain");
  refused([](evn_operator& o) { o.domain = ""; }, "domain");
  refused([](evn_operator& o) { o.domain = "ai.onnx"; }, "may not be extended");
  refused([](evn_operator& o) { o.domain = "evener"; }, "may not be extended");
  refused([](evn_operator& o) { o.name = nullptr; }, "name");
  refused([&](evn_operator& o) { o.name = long_name.c_str(); }, "name");
  refused([](evn_operator& o) { o.infer = nullptr; }, "infer");
  refused([](evn_operator& o) { o.run = nullptr; }, "run");
  refused([](evn_operator& o) { o.since_version = 0; }, "since_version");
  refused([](evn_operator& o) { o.min_inputs = 2; }, "inputs");
  refused([](evn_operator& o) { o.min_inputs = EVN_VARIADIC; }, "min_inputs");
  refused([](evn_operator& o) { o.max_inputs = 1u << 20; }, "max_inputs");
  refused([](evn_operator& o) { o.min_outputs = o.max_outputs = 0; }, "outputs");
  refused([](evn_operator& o) { o.reserved = 1; }, "reserved");
  refused([](evn_operator& o) { o.struct_size = 16; }, "struct_size");
  refused([](evn_operator& o) { o.domain = "com.microsoft", o.name = "FusedMatMul"; }, "library's own");
  EXPECT_EQ(evn_runtime_register_operator(runtime, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_runtime_register_operator(nullptr, nullptr, &error), EVN_ERROR_INVALID_HANDLE);
  evn_operator op = make_operator(&behaviour);
  ASSERT_OK(add(op));
  EXPECT_EQ(add(op), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(says("already"));
  op.since_version = 2;
  EXPECT_OK(add(op));
  close();
  EXPECT_EQ(behaviour.released, 2) << "of those that were taken";
}

TEST_F(OperatorTest, WhatInferSaysIsChecked) {
  ASSERT_OK(add(make_operator(&behaviour)));
  const auto refused = [&](evn_status status, const char* part,
                           const std::function<evn_status(evn_tensor_view&, evn_error*)>& answer) {
    behaviour.infer = [&](evn_operator_node, const evn_tensor_view*, uint32_t, evn_tensor_view* out, uint32_t, evn_error* e) {
      out[0].dtype = EVN_DTYPE_FLOAT32;
      out[0].rank = 2;
      out[0].dims[0] = out[0].dims[1] = 3;
      return answer(out[0], e);
    };
    OnnxWriter w(17);
    w.import("mine", 1).add_input("x", kF32, {3, 3}).add_output("y");
    w.add_node("Double", {"x"}, {"y"}, {}, "double_1", "mine");
    EXPECT_EQ(load(w.serialize()), status) << part << ": " << error.message;
    EXPECT_TRUE(says(part)) << part << ": " << error.message;
    EXPECT_STREQ(error.node, "double_1");
  };
  const evn_status bad = EVN_ERROR_INTERNAL;
  for (const int dtype : {0, -1, 27, 1000, static_cast<int>(EVN_DTYPE_STRING), INT32_MAX, INT32_MIN}) {
    refused(bad, "the dtype", [&](evn_tensor_view& v, evn_error*) { return v.dtype = dtype, EVN_OK; });
  }
  for (const uint32_t rank : {9u, 1u << 31, UINT32_MAX - 1}) {
    refused(bad, "the rank", [&](evn_tensor_view& v, evn_error*) { return v.rank = rank, EVN_OK; });
  }
  refused(bad, "unknown", [](evn_tensor_view& v, evn_error*) { return v.rank = EVN_UNKNOWN_RANK, EVN_OK; });
  refused(bad, "unknown", [](evn_tensor_view& v, evn_error*) { return v.dims[1] = -1, EVN_OK; });
  refused(bad, "negative", [](evn_tensor_view& v, evn_error*) { return v.dims[1] = -2, EVN_OK; });
  refused(bad, "negative", [](evn_tensor_view& v, evn_error*) { return v.dims[1] = INT64_MIN, EVN_OK; });
  refused(EVN_ERROR_LIMIT, "", [](evn_tensor_view& v, evn_error*) { return v.dims[1] = INT64_MAX, EVN_OK; });
  refused(EVN_ERROR_LIMIT, "", [](evn_tensor_view& v, evn_error*) { return v.dims[0] = v.dims[1] = int64_t{1} << 31, EVN_OK; });
  refused(EVN_ERROR_INVALID_MODEL, "no reason", [](evn_tensor_view&, evn_error*) { return EVN_ERROR_INVALID_ARGUMENT; });
  refused(EVN_ERROR_UNSUPPORTED, "not on Sundays", [](evn_tensor_view&, evn_error* e) {
    snprintf(e->message, sizeof e->message, "not on Sundays");
    return EVN_ERROR_UNSUPPORTED;
  });
  refused(EVN_ERROR_UNSUPPORTED, "aaaa", [](evn_tensor_view&, evn_error* e) {
    memset(e, 'a', sizeof *e);  // no NUL anywhere
    return EVN_ERROR_UNSUPPORTED;
  });
  refused(bad, "no status", [](evn_tensor_view&, evn_error*) { return EVN_ERROR_FORKED + 1; });
  refused(bad, "no status", [](evn_tensor_view&, evn_error*) { return -1; });
  refused(bad, "threw an exception: thrown",
          [](evn_tensor_view&, evn_error*) -> evn_status { throw std::runtime_error("thrown"); });
  refused(bad, "threw an exception", [](evn_tensor_view&, evn_error*) -> evn_status { throw 7; });
}

TEST_F(OperatorTest, InferThatAnswersOtherwiseWhenARunIsPlannedIsRefused) {
  ASSERT_OK(add(make_operator(&behaviour)));
  ASSERT_OK(load(double_model()));
  ASSERT_OK(run({1, 2, 3}, {1, 3}));
  const auto refused = [&](const std::function<void(evn_tensor_view&)>& change, int64_t rows) {
    behaviour.infer = [&](evn_operator_node, const evn_tensor_view* in, uint32_t, evn_tensor_view* out, uint32_t, evn_error*) {
      out[0] = in[0];
      change(out[0]);
      return EVN_OK;
    };
    EXPECT_EQ(run(std::vector<float>(static_cast<std::size_t>(rows * 3)), {rows, 3}), EVN_ERROR_INTERNAL) << rows;
    EXPECT_TRUE(says("when the model was loaded")) << error.message;
    EXPECT_STREQ(error.node, "double_1");
  };
  refused([](evn_tensor_view& v) { v.dtype = EVN_DTYPE_INT32; }, 2);
  refused([](evn_tensor_view& v) { v.rank = 1; }, 3);
  refused([](evn_tensor_view& v) { v.rank = 3, v.dims[2] = 1; }, 4);
  refused([](evn_tensor_view& v) { v.dims[1] = 4; }, 5);
  behaviour.infer = nullptr;
  EXPECT_OK(run({1, 2, 3, 4, 5, 6}, {2, 3}));  // a failed plan is not kept
}

TEST_F(OperatorTest, WhatRunReturnsIsChecked) {
  ASSERT_OK(add(make_operator(&behaviour)));
  ASSERT_OK(load(double_model()));
  const auto refused = [&](evn_status status, const char* part, const std::function<evn_status(evn_error*)>& answer) {
    behaviour.run = [&](evn_operator_node, const evn_tensor_view*, uint32_t, const evn_tensor_view*, uint32_t, evn_error* e) {
      return answer(e);
    };
    EXPECT_EQ(run({1, 2, 3}, {1, 3}), status) << part << ": " << error.message;
    EXPECT_TRUE(says(part) && says("mine::Double")) << part << ": " << error.message;
    EXPECT_STREQ(error.node, "double_1");
  };
  refused(EVN_ERROR_INVALID_ARGUMENT, "no reason", [](evn_error*) { return EVN_ERROR_INVALID_ARGUMENT; });
  refused(EVN_ERROR_OUT_OF_MEMORY, "full", [](evn_error* e) {
    snprintf(e->message, sizeof e->message, "full");
    return EVN_ERROR_OUT_OF_MEMORY;
  });
  for (const evn_status status : {EVN_ERROR_BUFFER_TOO_SMALL, EVN_ERROR_INTERNAL, EVN_ERROR_BUSY, EVN_ERROR_FORKED}) {
    refused(status, "wait", [&](evn_error* e) {
      snprintf(e->message, sizeof e->message, "wait");
      return status;
    });
  }
  refused(EVN_ERROR_INTERNAL, "no status", [](evn_error*) { return 12345; });
  refused(EVN_ERROR_INTERNAL, "threw an exception: boom", [](evn_error*) -> evn_status { throw std::logic_error("boom"); });
  refused(EVN_ERROR_INTERNAL, "threw an exception", [](evn_error*) -> evn_status { throw "text"; });
  behaviour.run = nullptr;
  EXPECT_OK(run({1, 2, 3}, {1, 3}));
}

TEST_F(OperatorTest, NodesAnswerOnlyWhileTheirCallbackRuns) {
  evn_operator_node stale = nullptr;
  std::vector<std::string> wrong;
  behaviour.run = [&](evn_operator_node node, const evn_tensor_view*, uint32_t, const evn_tensor_view*, uint32_t, evn_error*) {
    stale = node;
    const auto expect = [&](bool ok, const char* what) {
      if (!ok) wrong.push_back(what);
    };
    char name[32] = "";
    expect(evn_operator_node_name(node, name, sizeof name, nullptr, nullptr) == EVN_OK && std::string(name) == "double_1", "name");
    evn_attribute_type type = 77;
    expect(evn_operator_attribute_type(node, "none", &type, nullptr) == EVN_OK && type == EVN_ATTRIBUTE_NONE, "none");
    expect(evn_operator_attribute_type(node, "ints", &type, nullptr) == EVN_OK && type == EVN_ATTRIBUTE_INTS, "type of ints");
    expect(evn_operator_attribute_type(node, "tensor", &type, nullptr) == EVN_OK && type == EVN_ATTRIBUTE_TENSOR, "type of tensor");
    int64_t i = 5;
    expect(evn_operator_attribute_int(node, "none", &i, nullptr) == EVN_ERROR_INVALID_ARGUMENT && i == 5, "default");
    expect(evn_operator_attribute_int(node, "float", &i, nullptr) == EVN_ERROR_INVALID_ARGUMENT && i == 5, "kind");
    expect(evn_operator_attribute_int(node, nullptr, &i, nullptr) == EVN_ERROR_INVALID_ARGUMENT, "no name");
    expect(evn_operator_attribute_int(node, "int", nullptr, nullptr) == EVN_ERROR_INVALID_ARGUMENT, "no value");
    expect(evn_operator_attribute_int(node, "int", &i, nullptr) == EVN_OK && i == -3, "int");
    float f = 0;
    expect(evn_operator_attribute_float(node, "float", &f, nullptr) == EVN_OK && f == 1.5f, "float");
    char text[32] = "";
    size_t size = 0;
    expect(evn_operator_attribute_string(node, "text", nullptr, 0, &size, nullptr) == EVN_OK && size == 6, "size of text");
    expect(evn_operator_attribute_string(node, "text", text, sizeof text, &size, nullptr) == EVN_OK && std::string(text) == "words",
           "text");
    const int64_t* ints = nullptr;
    size_t count = 0;
    expect(evn_operator_attribute_ints(node, "ints", &ints, &count, nullptr) == EVN_OK && count == 2 && ints[1] == 9, "ints");
    const float* floats = nullptr;
    expect(evn_operator_attribute_floats(node, "floats", &floats, &count, nullptr) == EVN_OK && count == 1 && floats[0] == 0.5f,
           "floats");
    uint32_t n = 7;
    expect(evn_operator_attribute_string_count(node, "text", &n, nullptr) == EVN_ERROR_INVALID_ARGUMENT && n == 7, "kind of text");
    expect(evn_operator_attribute_string_count(node, "texts", nullptr, nullptr) == EVN_ERROR_INVALID_ARGUMENT, "no count");
    expect(evn_operator_attribute_string_count(node, "texts", &n, nullptr) == EVN_OK && n == 3, "count of texts");
    expect(evn_operator_attribute_string_at(node, "texts", 1, nullptr, 0, &size, nullptr) == EVN_OK && size == 4, "size of a text");
    expect(evn_operator_attribute_string_at(node, "texts", 1, text, sizeof text, &size, nullptr) == EVN_OK &&
               memcmp(text, "a\0b", 4) == 0,
           "texts");
    expect(evn_operator_attribute_string_at(node, "texts", 2, text, sizeof text, &size, nullptr) == EVN_OK && size == 1,
           "an empty text");
    expect(evn_operator_attribute_string_at(node, "texts", 0, text, 2, nullptr, nullptr) == EVN_ERROR_BUFFER_TOO_SMALL,
           "room for a text");
    expect(evn_operator_attribute_string_at(node, "texts", 3, text, sizeof text, nullptr, nullptr) == EVN_ERROR_INVALID_ARGUMENT,
           "no such text");
    expect(evn_operator_attribute_string_at(node, "none", 0, text, sizeof text, nullptr, nullptr) == EVN_ERROR_INVALID_ARGUMENT,
           "no texts");
    evn_tensor_view view;
    expect(evn_operator_attribute_tensor(node, "tensor", &view, nullptr) == EVN_OK && view.rank == 1 && view.size_bytes == 16 &&
               reinterpret_cast<std::uintptr_t>(view.data) % 8 == 0 && static_cast<const int64_t*>(view.data)[1] == 4,
           "tensor");
    expect(evn_operator_attribute_tensor(node, "tensor", nullptr, nullptr) == EVN_ERROR_INVALID_ARGUMENT, "no view");
    return EVN_OK;
  };
  ASSERT_OK(add(make_operator(&behaviour)));
  const Attr texts(Proto().bytes(1, "texts").bytes(9, "one").bytes(9, std::string_view("a\0b", 3)).bytes(9, "").varint(20, 8));
  const Proto tensor = tensor_proto("t", kI64, {2}, bytes_of(std::vector<int64_t>{3, 4}));
  ASSERT_OK(load(double_model({{"int", -3},
                               {"float", 1.5f},
                               {"text", "words"},
                               {"ints", std::vector<int64_t>{8, 9}},
                               {"floats", std::vector<float>{0.5f}},
                               Attr::tensor("tensor", tensor),
                               texts})));
  ASSERT_OK(run({1, 2, 3}, {1, 3}));
  EXPECT_TRUE(wrong.empty()) << wrong[0];
  ASSERT_NE(stale, nullptr);
  int64_t i = 0;
  EXPECT_EQ(evn_operator_attribute_int(stale, "int", &i, &error), EVN_ERROR_INVALID_HANDLE);
  uint32_t n = 0;
  EXPECT_EQ(evn_operator_attribute_string_count(stale, "texts", &n, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_operator_attribute_string_at(stale, "texts", 0, nullptr, 0, nullptr, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_operator_node_name(nullptr, nullptr, 0, nullptr, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_operator_attribute_type(reinterpret_cast<evn_operator_node>(runtime), "int", nullptr, &error),
            EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(load(double_model({{"twice", 1}, {"twice", 2}})), EVN_ERROR_INVALID_MODEL);
}

TEST_F(OperatorTest, GetsTheTypesThatTheModelSaysAmongWidenedOnes) {
  std::vector<evn_dtype> seen;
  behaviour.run = [&](evn_operator_node, const evn_tensor_view* in, uint32_t, const evn_tensor_view* out, uint32_t, evn_error*) {
    seen = {in[0].dtype, out[0].dtype};
    memcpy(out[0].data, in[0].data, in[0].size_bytes);
    return EVN_OK;
  };
  ASSERT_OK(add(make_operator(&behaviour)));
  OnnxWriter w(17);
  w.import("mine", 1).add_input("x", kF32, {1, 3}).add_output("y", kF32);
  w.add_node("Cast", {"x"}, {"h"}, {{"to", static_cast<int>(kF16)}})
      .add_node("Erf", {"h"}, {"e"})
      .add_node("Double", {"e"}, {"d"}, {}, "d", "mine");
  w.add_node("Erf", {"d"}, {"f"}).add_node("Cast", {"f"}, {"y"}, {{"to", static_cast<int>(kF32)}});
  ASSERT_OK(load(w.serialize()));
  ASSERT_OK(run({0.5f, -1, 2}, {1, 3}));
  EXPECT_EQ(seen, (std::vector<evn_dtype>{EVN_DTYPE_FLOAT16, EVN_DTYPE_FLOAT16}));
  EXPECT_NEAR(result[0], std::erf(std::erf(0.5f)), 2e-3);
}

TEST_F(OperatorTest, TruthsOtherThanOneArePutRight) {
  behaviour.infer = [&](evn_operator_node, const evn_tensor_view* in, uint32_t, evn_tensor_view* out, uint32_t, evn_error*) {
    out[0] = in[0];
    out[0].dtype = EVN_DTYPE_BOOL;
    return EVN_OK;
  };
  behaviour.run = [&](evn_operator_node, const evn_tensor_view*, uint32_t, const evn_tensor_view* out, uint32_t, evn_error*) {
    memcpy(out[0].data, "\x07\x00\xff", 3);
    return EVN_OK;
  };
  ASSERT_OK(add(make_operator(&behaviour)));
  OnnxWriter w(17);
  w.import("mine", 1).add_input("x", kF32, {1, 3}).add_output("y", kF32);
  w.add_node("Double", {"x"}, {"b"}, {}, "", "mine").add_node("Cast", {"b"}, {"y"}, {{"to", static_cast<int>(kF32)}});
  ASSERT_OK(load(w.serialize()));
  ASSERT_OK(run({0, 0, 0}, {1, 3}));
  EXPECT_EQ(result, (std::vector<float>{1, 0, 1}));
}

TEST_F(OperatorTest, EmptyTensorsHaveNoData) {
  behaviour.run = [&](evn_operator_node, const evn_tensor_view* in, uint32_t, const evn_tensor_view*, uint32_t, evn_error*) {
    return in[0].data == nullptr ? EVN_OK : EVN_ERROR_INTERNAL;
  };
  ASSERT_OK(add(make_operator(&behaviour)));
  ASSERT_OK(load(double_model()));
  EXPECT_OK(run({}, {0, 3}));
  EXPECT_TRUE(result.empty());
}

TEST_F(OperatorTest, RegistrationsLoadsAndRunsMayMeet) {
  ASSERT_OK(add(make_operator(&behaviour)));
  ASSERT_OK(load(double_model()));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = "Other" + std::to_string(t);
      const std::string bytes = double_model();
      for (int i = 0; i < 25; ++i) {
        evn_operator op = make_operator(&behaviour);
        op.name = name.c_str();
        op.since_version = i + 1;
        wrong += evn_runtime_register_operator(runtime, &op, nullptr) != EVN_OK;
        evn_model model = nullptr;
        wrong += evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, nullptr) != EVN_OK;
        evn_model_release(model);
        float x[3] = {1, 2, 3};
        const int64_t dims[2] = {1, 3};
        evn_tensor in = nullptr;
        evn_tensor out = nullptr;
        wrong += evn_tensor_wrap(runtime, x, sizeof x, EVN_DTYPE_FLOAT32, dims, 2, nullptr, nullptr, &in, nullptr) != EVN_OK;
        wrong += evn_session_run(session, &in, 1, &out, 1, nullptr, nullptr) != EVN_OK;
        evn_tensor_release(in);
        evn_tensor_release(out);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  close();
  EXPECT_EQ(behaviour.released, 101);
}

TEST_F(OperatorTest, EachFailingAllocationIsAStatusAndReleasesOnce) {
  const std::string bytes = double_model({{"factor", 2}});
  close();
  int refused = 0;
  for (int k = 1; k < 100000; ++k) {
    Behaviour b;
    int taken = 0;
    evn_status status = EVN_OK;
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 1;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    fault_arm(Seam::kAlloc, k, false);
    status = add(make_operator(&b));
    taken = status == EVN_OK;
    if (status == EVN_OK) status = load(bytes);
    if (status == EVN_OK) {
      const int64_t dims[2] = {1, 3};
      float x[3] = {1, 2, 3};
      evn_tensor in = nullptr;
      evn_tensor out = nullptr;
      status = evn_tensor_wrap(runtime, x, sizeof x, EVN_DTYPE_FLOAT32, dims, 2, nullptr, nullptr, &in, &error);
      if (status == EVN_OK) status = evn_session_run(session, &in, 1, &out, 1, nullptr, &error);
      evn_tensor_release(in);
      evn_tensor_release(out);
    }
    fault_arm(Seam::kAlloc, 0, false);
    close();
    EXPECT_EQ(b.released, taken) << k;
    if (status == EVN_OK) break;
    ++refused;
    ASSERT_EQ(status, EVN_ERROR_OUT_OF_MEMORY) << k << ": " << error.message;
  }
  EXPECT_GT(refused, 20);
}

// As if a debugger held one thread in the middle of a run: no lock is held there that another run needs.
TEST_F(OperatorTest, ARunThatStandsStillHoldsUpNoOther) {
  std::promise<void> entered, others_done;
  std::shared_future<void> go_on = others_done.get_future().share();
  std::atomic<bool> waited{false};
  behaviour.run = [&](evn_operator_node, const evn_tensor_view* in, uint32_t, const evn_tensor_view* out, uint32_t, evn_error*) {
    memcpy(out[0].data, in[0].data, in[0].size_bytes);
    if (waited.exchange(true)) return EVN_OK;
    entered.set_value();
    return go_on.wait_for(std::chrono::minutes(2)) == std::future_status::ready ? EVN_OK : EVN_ERROR_INTERNAL;
  };
  ASSERT_OK(add(make_operator(&behaviour)));
  ASSERT_OK(load(double_model()));
  evn_session still = session;
  session = nullptr;
  std::vector<float> x(3, 1);
  const int64_t dims[] = {1, 3};
  evn_tensor in = nullptr, out = nullptr;
  ASSERT_OK(evn_tensor_wrap(runtime, x.data(), 12, EVN_DTYPE_FLOAT32, dims, 2, nullptr, nullptr, &in, &error));
  evn_status status = EVN_ERROR_INTERNAL;
  std::thread stopped([&] { status = evn_session_run(still, &in, 1, &out, 1, nullptr, nullptr); });
  entered.get_future().wait();

  ASSERT_OK(load(double_model()));  // another model and session of the runtime, for shapes that it has not met
  for (int64_t rows : {1, 40'000}) {
    ASSERT_OK(run(std::vector<float>(static_cast<size_t>(3 * rows), 2), {rows, 3}));
    EXPECT_EQ(result.back(), 2);
  }
  std::swap(session, still);  // and the session that stands still, for the same shape and another
  for (int64_t rows : {1, 5}) ASSERT_OK(run(std::vector<float>(static_cast<size_t>(3 * rows), 2), {rows, 3}));
  std::swap(session, still);
  EXPECT_EQ(go_on.wait_for(std::chrono::seconds(0)), std::future_status::timeout) << "it stood still all the while";
  others_done.set_value();
  stopped.join();
  EXPECT_EQ(status, EVN_OK);
  EXPECT_EQ(evn_session_release(still), EVN_OK);
  evn_tensor_release(in);
  evn_tensor_release(out);
}

}  // namespace
}  // namespace evn::test
