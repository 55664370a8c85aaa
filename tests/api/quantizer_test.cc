// Misuse of evn_quantizer_*: each wrong argument is a status, and changes nothing.
#include "evener/quantize.h"

#include "tests/api/support.h"

namespace evn::test {
namespace {

struct QuantizerMisuse : testing::Test {
  evn_runtime runtime = nullptr, other_runtime = nullptr;
  evn_device cpu = nullptr, other_cpu = nullptr;
  evn_tensor input = nullptr, foreign = nullptr;
  evn_quantizer quantizer = nullptr;
  std::string bytes = small_network().serialize();
  evn_error error = EVN_ERROR_INIT;
  evn_quantizer_options options = EVN_QUANTIZER_OPTIONS_INIT;

  void SetUp() override {
    const int64_t dims[4] = {1, 3, 8, 8};
    evn_runtime_options o = EVN_RUNTIME_OPTIONS_INIT;
    o.thread_count = 1;
    for (auto [r, c, t] : {std::tuple{&runtime, &cpu, &input}, std::tuple{&other_runtime, &other_cpu, &foreign}}) {
      ASSERT_EQ(evn_runtime_create(&o, r, &error), EVN_OK) << error.message;
      ASSERT_EQ(evn_runtime_device_find(*r, "cpu", c, &error), EVN_OK);
      ASSERT_EQ(evn_tensor_create(*c, EVN_DTYPE_FLOAT32, dims, 4, 0, t, &error), EVN_OK);
    }
    options.data = bytes.data();
    options.size = bytes.size();
    ASSERT_EQ(create(options), EVN_OK) << error.message;
  }
  void TearDown() override {
    evn_quantizer_release(quantizer);
    for (evn_tensor t : {input, foreign}) evn_tensor_release(t);
    for (evn_device d : {cpu, other_cpu}) evn_device_release(d);
    for (evn_runtime r : {runtime, other_runtime}) evn_runtime_release(r);
  }

  evn_status create(const evn_quantizer_options& o, const char* path = nullptr) {
    evn_quantizer made = nullptr;
    const evn_status status = evn_quantizer_create(runtime, path, &o, &made, &error);
    if (status != EVN_OK) {
      EXPECT_EQ(made, nullptr);
      return status;
    }
    evn_quantizer_release(quantizer);
    quantizer = made;
    return status;
  }
};

TEST_F(QuantizerMisuse, HandlesOfNobodyAreRefused) {
  const auto stale = quantizer;
  ASSERT_EQ(create(options), EVN_OK);  // releases the one before
  evn_model model = nullptr;
  uint32_t number = 0;
  size_t size = 0;
  for (evn_quantizer q : {evn_quantizer{}, stale, reinterpret_cast<evn_quantizer>(input)}) {
    EXPECT_EQ(evn_quantizer_input_count(q, &number, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_quantizer_find_input(q, "x", &number, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_quantizer_add_batch(q, &input, 1, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_quantizer_guard(q, &input, 1, nullptr, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_quantizer_finish(q, &model, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_quantizer_save(q, "x.onnx", &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_quantizer_verify(q, &input, 1, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_quantizer_report(q, EVN_FORMAT_TEXT, nullptr, 0, &size, &error), EVN_ERROR_INVALID_HANDLE);
  }
  EXPECT_EQ(evn_quantizer_release(nullptr), EVN_OK);
  EXPECT_EQ(evn_quantizer_release(stale), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(model, nullptr);
}

TEST_F(QuantizerMisuse, OptionsThatMeanNothingAreRefused) {
  const auto refused = [&](auto&& change, evn_status status = EVN_ERROR_INVALID_ARGUMENT) {
    evn_quantizer_options o = options;
    change(o);
    EXPECT_EQ(create(o), status) << error.message;
  };
  refused([](auto& o) { o.mode = 7; });
  refused([](auto& o) { o.calibration = -1; });
  refused([](auto& o) { o.calibration = 4; });
  refused([](auto& o) { o.activation = EVN_DTYPE_FLOAT32; });
  refused([](auto& o) { o.percentile = 101; });
  refused([](auto& o) { o.percentile = __builtin_nan(""); });
  refused([](auto& o) { o.flags = 8; });
  refused([](auto& o) { o.mode = EVN_QUANTIZE_DYNAMIC, o.flags = EVN_QUANTIZE_SMOOTH; });
  refused([](auto& o) { o.keep_count = 1; });
  refused([](auto& o) { o.data = nullptr; });
  refused([](auto& o) { o.struct_size = 12; });
  refused([](auto& o) { o.size = 5; }, EVN_ERROR_INVALID_MODEL);
  static const char* const kNone[] = {nullptr};
  refused([](auto& o) { o.keep = kNone, o.keep_count = 1; });
  static const char* const kAll[] = {"*"};
  refused([](auto& o) { o.keep = kAll, o.keep_count = 1; });  // then nothing is left to quantize
  EXPECT_EQ(create(options, "there is both"), EVN_ERROR_INVALID_ARGUMENT);
  evn_quantizer_options none = EVN_QUANTIZER_OPTIONS_INIT;
  EXPECT_EQ(create(none, "/no/such/file.onnx"), EVN_ERROR_IO);
  EXPECT_EQ(create(none, ""), EVN_ERROR_IO);
  EXPECT_EQ(evn_quantizer_create(runtime, nullptr, &options, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
}

TEST_F(QuantizerMisuse, OptionsOfAnotherModeAreRefusedByName) {
  const auto refused = [&](evn_quantize_mode mode, const char* field, auto&& change) {
    evn_quantizer_options o = options;
    o.mode = mode;
    change(o);
    EXPECT_EQ(create(o), EVN_ERROR_INVALID_ARGUMENT) << field;
    EXPECT_NE(std::string(error.message).find(field), std::string::npos) << error.message;
  };
  refused(5, "mode", [](auto&) {});
  for (const uint32_t bits : {1u, 3u, 5u, 16u})
    refused(EVN_QUANTIZE_WEIGHTS, "weight_bits", [=](auto& o) { o.weight_bits = bits; });
  for (const uint32_t block : {1u, 7u, 8u, 48u, 131072u})
    refused(EVN_QUANTIZE_WEIGHTS, "block_size", [=](auto& o) { o.block_size = block; });
  refused(EVN_QUANTIZE_DYNAMIC, "flags", [](auto& o) { o.flags = EVN_QUANTIZE_QOPERATOR; });
  for (const evn_quantize_mode mode : {EVN_QUANTIZE_STATIC, EVN_QUANTIZE_DYNAMIC, EVN_QUANTIZE_FLOAT16, EVN_QUANTIZE_BFLOAT16}) {
    refused(mode, "weight_bits", [](auto& o) { o.weight_bits = 8; });
    refused(mode, "block_size", [](auto& o) { o.block_size = 32; });
    if (mode != EVN_QUANTIZE_DYNAMIC) refused(mode, "flags", [](auto& o) { o.flags = EVN_QUANTIZE_CONTRIB; });
  }
  for (const evn_quantize_mode mode : {EVN_QUANTIZE_WEIGHTS, EVN_QUANTIZE_FLOAT16, EVN_QUANTIZE_BFLOAT16}) {
    refused(mode, "flags", [](auto& o) { o.flags = EVN_QUANTIZE_PER_TENSOR; });
    refused(mode, "flags", [](auto& o) { o.flags = EVN_QUANTIZE_QOPERATOR; });
    refused(mode, "calibration", [](auto& o) { o.calibration = EVN_CALIBRATION_MSE; });
    refused(mode, "activation", [](auto& o) { o.activation = EVN_DTYPE_INT8; });
    refused(mode, "percentile", [](auto& o) { o.percentile = 99; });
  }
}

TEST_F(QuantizerMisuse, ModesWithoutCalibrationTakeNoBatchAndHaveNoGuard) {
  for (const evn_quantize_mode mode : {EVN_QUANTIZE_WEIGHTS, EVN_QUANTIZE_FLOAT16, EVN_QUANTIZE_BFLOAT16}) {
    evn_quantizer_options o = options;
    o.mode = mode;
    ASSERT_EQ(create(o), EVN_OK) << error.message;
    EXPECT_EQ(evn_quantizer_add_batch(quantizer, &input, 1, &error), EVN_ERROR_WRONG_STATE);
    EXPECT_EQ(evn_quantizer_guard(quantizer, &input, 1, nullptr, &error), EVN_ERROR_WRONG_STATE);
    EXPECT_EQ(evn_quantizer_verify(quantizer, &input, 1, &error), EVN_OK) << error.message;
  }
}

// A client of the time before weight_bits.
TEST_F(QuantizerMisuse, OptionsOfTheFirstSizeAreTaken) {
  options.struct_size = offsetof(evn_quantizer_options, weight_bits);
  options.weight_bits = 3;  // not the client's
  EXPECT_EQ(create(options), EVN_OK) << error.message;
}

TEST_F(QuantizerMisuse, BatchesThatDoNotFitAreRefused) {
  evn_tensor two[2] = {input, input};
  EXPECT_EQ(evn_quantizer_add_batch(quantizer, two, 2, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_quantizer_add_batch(quantizer, nullptr, 1, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_quantizer_add_batch(quantizer, nullptr, 0, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_quantizer_add_batch(quantizer, &foreign, 1, &error), EVN_ERROR_INVALID_ARGUMENT);
  evn_tensor nobody = nullptr;
  EXPECT_EQ(evn_quantizer_add_batch(quantizer, &nobody, 1, &error), EVN_ERROR_INVALID_HANDLE);
  evn_model model = nullptr;
  EXPECT_EQ(evn_quantizer_finish(quantizer, &model, &error), EVN_ERROR_WRONG_STATE);  // none of them counted
  EXPECT_EQ(evn_quantizer_verify(quantizer, &input, 1, &error), EVN_ERROR_WRONG_STATE);
  uint32_t index = 7;
  EXPECT_EQ(evn_quantizer_find_input(quantizer, "nothing", &index, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(index, 7u);
}

TEST_F(QuantizerMisuse, TheGuardNeedsABatchASensibleBudgetAndAModelThatIsNotMade) {
  EXPECT_EQ(evn_quantizer_guard(quantizer, &input, 1, nullptr, &error), EVN_ERROR_WRONG_STATE);
  ASSERT_EQ(evn_quantizer_add_batch(quantizer, &input, 1, &error), EVN_OK) << error.message;
  const auto status = [&](auto&& change) {
    evn_guard_options o = EVN_GUARD_OPTIONS_INIT;
    o.flags = EVN_GUARD_ERROR;
    change(o);
    return evn_quantizer_guard(quantizer, &input, 1, &o, &error);
  };
  EXPECT_EQ(status([](auto& o) { o.flags = 4; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status([](auto& o) { o.min_cosine = 1.5; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status([](auto& o) { o.min_cosine = __builtin_nan(""); }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status([](auto& o) { o.min_layer_sqnr_db = -1; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status([](auto& o) { o.struct_size = 4; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_quantizer_guard(quantizer, &foreign, 1, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status([](auto&) {}), EVN_OK) << error.message;
  evn_model model = nullptr;
  ASSERT_EQ(evn_quantizer_finish(quantizer, &model, &error), EVN_OK) << error.message;
  EXPECT_EQ(status([](auto&) {}), EVN_ERROR_WRONG_STATE);
  evn_model_release(model);
}

TEST_F(QuantizerMisuse, AModelOutlivesItsQuantizerAndItsRuntime) {
  ASSERT_EQ(evn_quantizer_add_batch(quantizer, &input, 1, &error), EVN_OK) << error.message;
  evn_model model = nullptr, again = nullptr;
  ASSERT_EQ(evn_quantizer_finish(quantizer, &model, &error), EVN_OK) << error.message;
  ASSERT_EQ(evn_quantizer_finish(quantizer, &again, &error), EVN_OK) << error.message;
  EXPECT_EQ(evn_quantizer_release(quantizer), EVN_OK);
  quantizer = nullptr;
  evn_session session = nullptr;
  evn_tensor output = nullptr;
  ASSERT_EQ(evn_session_create(runtime, model, nullptr, &session, &error), EVN_OK) << error.message;
  EXPECT_EQ(evn_session_run(session, &input, 1, &output, 1, nullptr, &error), EVN_OK) << error.message;
  evn_tensor_release(output);
  evn_session_release(session);
  evn_model_release(model);
  evn_model_release(again);
}

TEST_F(QuantizerMisuse, TheReportIsThereBeforeAnythingWasDone) {
  size_t size = 0;
  ASSERT_EQ(evn_quantizer_report(quantizer, EVN_FORMAT_JSON, nullptr, 0, &size, &error), EVN_OK);
  std::string text(size, '\0');
  ASSERT_EQ(evn_quantizer_report(quantizer, EVN_FORMAT_JSON, text.data(), text.size(), &size, &error), EVN_OK);
  EXPECT_NE(text.find("\"quantized_bytes\":null"), std::string::npos) << text;
  EXPECT_EQ(evn_quantizer_report(quantizer, EVN_FORMAT_DOT, nullptr, 0, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace evn::test
