// Pointers with a number beside them: a NULL with a number above 0, and a text or a model without its size, are refused.
// tests/python/test_counted.py holds the names of the table against the public headers.
#include <functional>

#include "evener/event.h"
#include "evener/quantize.h"
#include "evener/request.h"
#include "evener/state.h"
#include "evener/train.h"
#include "tests/api/support.h"

namespace evn::test {
namespace {

struct CountedPointers : ApiTest {
  const char yaml[12] = "version: 1\n";

  template <typename Options>
  static Options made(Options options, const std::function<void(Options&)>& change) {
    change(options);
    return options;
  }
  evn_status open(const std::function<void(evn_runtime_options&)>& change) {
    const evn_runtime_options o = made<evn_runtime_options>(EVN_RUNTIME_OPTIONS_INIT, change);
    evn_runtime r = nullptr;
    const evn_status status = evn_runtime_create(&o, &r, &error);
    evn_runtime_release(r);
    return status;
  }
  evn_status reconfigure(const std::function<void(evn_reconfigure_options&)>& change) {
    const evn_reconfigure_options o = made<evn_reconfigure_options>(EVN_RECONFIGURE_OPTIONS_INIT, change);
    return evn_runtime_reconfigure(runtime, &o, &error);
  }
  evn_status inspect(const std::function<void(evn_inspect_options&)>& change) {
    evn_inspect_options o = EVN_INSPECT_OPTIONS_INIT;
    o.data = bytes.data();
    o.size = bytes.size();
    change(o);
    size_t size = 0;
    return evn_model_inspect(runtime, nullptr, &o, EVN_FORMAT_TEXT, nullptr, 0, &size, &error);
  }
  evn_status load(const std::function<void(evn_model_options&)>& change) {
    const evn_model_options o = made<evn_model_options>(EVN_MODEL_OPTIONS_INIT, change);
    evn_model m = nullptr;
    const evn_status status = evn_model_load_buffer(runtime, bytes.data(), bytes.size(), &o, &m, &error);
    evn_model_release(m);
    return status;
  }
  evn_status create(const std::function<void(evn_session_options&)>& change) {
    const evn_session_options o = made<evn_session_options>(EVN_SESSION_OPTIONS_INIT, change);
    evn_session s = nullptr;
    const evn_status status = evn_session_create(runtime, model, &o, &s, &error);
    evn_session_release(s);
    return status;
  }
  evn_status quantizer(const std::function<void(evn_quantizer_options&)>& change, evn_quantizer* out = nullptr) {
    evn_quantizer_options o = EVN_QUANTIZER_OPTIONS_INIT;
    o.data = bytes.data();
    o.size = bytes.size();
    change(o);
    evn_quantizer q = nullptr;
    const evn_status status = evn_quantizer_create(runtime, nullptr, &o, &q, &error);
    if (out != nullptr) *out = q;
    else evn_quantizer_release(q);
    return status;
  }
  evn_status trainer(const std::function<void(evn_trainer_options&)>& change) {
    evn_trainer_options o = EVN_TRAINER_OPTIONS_INIT;
    o.data = bytes.data();
    o.size = bytes.size();
    change(o);
    evn_trainer t = nullptr;
    const evn_status status = evn_trainer_create(runtime, nullptr, &o, &t, &error);
    evn_trainer_release(t);
    return status;
  }
  evn_status loader(const evn_loader_array* arrays, uint32_t count) {
    evn_loader_options o = EVN_LOADER_OPTIONS_INIT;
    o.arrays = arrays;
    o.array_count = count;
    o.sample_count = 2;
    o.batch = 1;
    evn_loader l = nullptr;
    const evn_status status = evn_loader_create(runtime, &o, &l, &error);
    evn_loader_release(l);
    return status;
  }
};

struct CountedRow {
  const char* what;  // the number, as Struct.field or function.parameter
  std::function<evn_status()> call;
};

TEST_F(CountedPointers, ANullWithANumberIsRefused) {
  const int64_t dim = 4;
  evn_tensor in = input(), out = nullptr, strings = nullptr;
  evn_value in_value = nullptr, made = nullptr;
  evn_request request = nullptr;
  evn_state state = nullptr;
  evn_event event = nullptr;
  evn_quantizer q = nullptr;
  size_t size = 0;
  ASSERT_OK(evn_value_from_tensor(in, &in_value, &error));
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_STRING, dims, 1, 0, &strings, &error));
  ASSERT_OK(evn_session_submit(session, &in, 1, nullptr, 1, nullptr, nullptr, &request, &error));
  bool done = false;
  ASSERT_OK(evn_request_wait(request, UINT64_MAX, &done, &error));
  ASSERT_EQ(quantizer([](evn_quantizer_options&) {}, &q), EVN_OK) << error.message;
  const evn_input_shape without_dims = {"x", nullptr, 2, 0};
  evn_batching_options batching = EVN_BATCHING_OPTIONS_INIT;
  batching.max_batch = 4;
  batching.bucket_count = 1;
  const evn_loader_array array_without_dims = {"x", nullptr, values.data(), EVN_DTYPE_FLOAT32, 1};
  const evn_parameter_group group = {nullptr, 1, 0, 1, 0};
  const CountedRow rows[] = {
      {"evn_runtime_options.config_size", [&] { return open([](auto& o) { o.config_size = 5; }); }},
      {"evn_reconfigure_options.config_size", [&] { return reconfigure([](auto& o) { o.config_size = 5; }); }},
      {"evn_inspect_options.size", [&] { return inspect([](auto& o) { o.data = nullptr; }); }},
      {"evn_inspect_options.shape_count", [&] { return inspect([](auto& o) { o.shape_count = 1; }); }},
      {"evn_input_shape.rank", [&] { return inspect([&](auto& o) { o.shapes = &without_dims, o.shape_count = 1; }); }},
      {"evn_batching_options.bucket_count", [&] { return create([&](auto& o) { o.batching = &batching; }); }},
      {"evn_session_options.keep_fp32_count", [&] { return create([](auto& o) { o.keep_fp32_count = 1; }); }},
      {"evn_model_options.allowed_root_count", [&] { return load([](auto& o) { o.allowed_root_count = 1; }); }},
      {"evn_session_options.overridable_count", [&] { return create([](auto& o) { o.overridable_count = 1; }); }},
      {"evn_session_options.disabled_pass_count", [&] { return create([](auto& o) { o.disabled_pass_count = 1; }); }},
      {"evn_quantizer_options.size", [&] { return quantizer([](auto& o) { o.data = nullptr; }); }},
      {"evn_quantizer_options.keep_count", [&] { return quantizer([](auto& o) { o.keep_count = 1; }); }},
      {"evn_trainer_options.size", [&] { return trainer([](auto& o) { o.data = nullptr; }); }},
      {"evn_trainer_options.trainable_count", [&] { return trainer([](auto& o) { o.trainable_count = 1; }); }},
      {"evn_trainer_options.frozen_count", [&] { return trainer([](auto& o) { o.frozen_count = 1; }); }},
      {"evn_trainer_options.group_count", [&] { return trainer([](auto& o) { o.group_count = 1; }); }},
      {"evn_trainer_options.replica_count", [&] { return trainer([](auto& o) { o.replica_count = 1; }); }},
      {"evn_parameter_group.name_count", [&] { return trainer([&](auto& o) { o.groups = &group, o.group_count = 1; }); }},
      {"evn_loader_options.array_count", [&] { return loader(nullptr, 1); }},
      {"evn_loader_array.rank", [&] { return loader(&array_without_dims, 1); }},
      {"evn_tensor_create.rank", [&] { return evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, nullptr, 1, 0, &out, &error); }},
      {"evn_tensor_wrap.size_bytes",
       [&] { return evn_tensor_wrap(runtime, nullptr, 16, EVN_DTYPE_FLOAT32, &dim, 1, nullptr, nullptr, &out, &error); }},
      {"evn_tensor_wrap.rank",
       [&] { return evn_tensor_wrap(runtime, values.data(), 16, EVN_DTYPE_FLOAT32, nullptr, 1, nullptr, nullptr, &out, &error); }},
      {"evn_tensor_create_view.rank", [&] { return evn_tensor_create_view(in, 0, nullptr, 1, &out, &error); }},
      {"evn_tensor_set_strings.count", [&] { return evn_tensor_set_strings(strings, nullptr, nullptr, 2, &error); }},
      {"evn_value_create.part_count", [&] { return evn_value_create(runtime, "seq(tensor(float32))", nullptr, 1, &made, &error); }},
      {"evn_model_load_buffer.size",
       [&] {
         evn_model m = nullptr;
         return evn_model_load_buffer(runtime, nullptr, 5, nullptr, &m, &error);
       }},
      {"evn_session_run.input_count", [&] { return evn_session_run(session, nullptr, 1, &out, 1, nullptr, &error); }},
      {"evn_session_run.output_count", [&] { return evn_session_run(session, &in, 1, nullptr, 1, nullptr, &error); }},
      {"evn_session_run_values.input_count",
       [&] { return evn_session_run_values(session, nullptr, 1, &made, 1, nullptr, &error); }},
      {"evn_session_run_values.output_count",
       [&] { return evn_session_run_values(session, &in_value, 1, nullptr, 1, nullptr, &error); }},
      {"evn_session_submit.input_count",
       [&] { return evn_session_submit(session, nullptr, 1, nullptr, 1, nullptr, nullptr, nullptr, &error); }},
      {"evn_session_submit_values.input_count",
       [&] { return evn_session_submit_values(session, nullptr, 1, nullptr, 1, nullptr, nullptr, nullptr, &error); }},
      {"evn_session_compare.input_count",
       [&] { return evn_session_compare(session, session, nullptr, 1, EVN_FORMAT_TEXT, nullptr, 0, &size, &error); }},
      {"evn_request_take.output_count", [&] { return evn_request_take(request, nullptr, 1, &error); }},
      {"evn_request_take_values.output_count", [&] { return evn_request_take_values(request, nullptr, 1, &error); }},
      {"evn_quantizer_add_batch.input_count", [&] { return evn_quantizer_add_batch(q, nullptr, 1, &error); }},
      {"evn_quantizer_guard.input_count", [&] { return evn_quantizer_guard(q, nullptr, 1, nullptr, &error); }},
      {"evn_quantizer_verify.input_count", [&] { return evn_quantizer_verify(q, nullptr, 1, &error); }},
      {"evn_state_create.pair_count", [&] { return evn_state_create(session, nullptr, 1, nullptr, &state, &error); }},
      {"evn_state_options.dim_count",
       [&] {
         const evn_state_pair pair = {"y", "x", 4};
         evn_state_options o = EVN_STATE_OPTIONS_INIT;
         o.dim_count = 1;
         return evn_state_create(session, &pair, 1, &o, &state, &error);
       }},
      {"evn_tensor_copy_async.wait_count", [&] { return evn_tensor_copy_async(in, in, nullptr, 1, &event, &error); }},
  };
  for (const CountedRow& row : rows) {
    error = EVN_ERROR_INIT;
    EXPECT_EQ(row.call(), EVN_ERROR_INVALID_ARGUMENT) << row.what << ": " << error.message;
    EXPECT_STRNE(error.message, "") << row.what;
  }
  for (evn_tensor t : {in, strings}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  EXPECT_EQ(out, nullptr);
  EXPECT_EQ(evn_value_release(in_value), EVN_OK);
  EXPECT_EQ(evn_request_release(request), EVN_OK);
  EXPECT_EQ(evn_quantizer_release(q), EVN_OK);
}

TEST_F(CountedPointers, ATextOrAModelWithoutItsSizeIsRefusedAndNotReadToANul) {
  const char* const dangling = reinterpret_cast<const char*>(1);  // as an empty slice of a language may have it
  const CountedRow rows[] = {
      {"evn_runtime_options.config_size", [&] { return open([&](auto& o) { o.config_text = yaml; }); }},
      {"evn_runtime_options.config_size", [&] { return open([&](auto& o) { o.config_text = dangling; }); }},
      {"evn_reconfigure_options.config_size", [&] { return reconfigure([&](auto& o) { o.config_text = yaml; }); }},
      {"evn_reconfigure_options.config_size", [&] { return reconfigure([&](auto& o) { o.config_text = dangling; }); }},
      {"evn_inspect_options.size", [&] { return inspect([](auto& o) { o.size = 0; }); }},
      {"evn_quantizer_options.size", [&] { return quantizer([](auto& o) { o.size = 0; }); }},
      {"evn_trainer_options.size", [&] { return trainer([](auto& o) { o.size = 0; }); }},
  };
  for (const CountedRow& row : rows) {
    error = EVN_ERROR_INIT;
    EXPECT_EQ(row.call(), EVN_ERROR_INVALID_ARGUMENT) << row.what << ": " << error.message;
    EXPECT_NE(std::string(error.message).find("size"), std::string::npos) << row.what << ": " << error.message;
  }
  evn_model m = nullptr;
  EXPECT_EQ(evn_model_load_buffer(runtime, bytes.data(), 0, nullptr, &m, &error), EVN_ERROR_INVALID_MODEL);
}

TEST_F(CountedPointers, AnEmptyArrayMayHaveAnyPointer) {
  const char* const* const names = reinterpret_cast<const char* const*>(alignof(void*));
  EXPECT_EQ(create([&](auto& o) { o.keep_fp32 = names, o.disabled_passes = names; }), EVN_OK) << error.message;
  EXPECT_EQ(quantizer([&](auto& o) { o.keep = names; }), EVN_OK) << error.message;
  evn_tensor scalar = nullptr;
  EXPECT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, reinterpret_cast<const int64_t*>(alignof(int64_t)), 0, 0, &scalar, &error));
  EXPECT_EQ(evn_tensor_release(scalar), EVN_OK);
}

}  // namespace
}  // namespace evn::test
