// What a model says of itself without a session, and texts that are longer than the fields of an info.
#include "tests/api/support.h"

namespace evn::test {
namespace {

template <typename F>
std::string text_of(F f) {
  evn_error error = EVN_ERROR_INIT;
  size_t size = 0;
  EXPECT_OK(f(static_cast<char*>(nullptr), size_t{0}, &size, &error));
  std::string text(size, '?');
  EXPECT_EQ(f(text.data(), size - 1, &size, &error), EVN_ERROR_BUFFER_TOO_SMALL);
  EXPECT_OK(f(text.data(), text.size(), &size, &error));
  EXPECT_EQ(size, text.size());
  EXPECT_EQ(text.back(), '\0');
  text.pop_back();
  return text;
}

struct Getters : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_model model = nullptr;
  evn_session session = nullptr;
  std::string long_name = "in_" + std::string(300, 'n'), long_out = std::string(400, 'o'),
              long_symbol = std::string(62, 's').append("\xc3\xa9").append(40, 's');

  void SetUp() override {
    OnnxWriter w(17);
    w.add_input(long_name, kF32, {Dim(long_symbol.c_str()), 3, "m", -1})
        .add_input("b", kI64, {})
        .add_initializer<float>("w", {1}, {2.0f});
    w.add_output(long_out, kF32, {Dim(long_symbol.c_str()), 3, "m", -1}).add_output("c", kI64);
    w.add_node("Mul", {long_name, "w"}, {long_out}).add_node("Add", {"b", "b"}, {"c"});
    w.model().message(14, Proto().bytes(1, "author").bytes(2, "nobody")).message(14, Proto().bytes(1, "").bytes(2, "empty key"));
    w.model().message(14, Proto().bytes(1, std::string(5000, 'k')).bytes(2, "v"));
    const std::string bytes = w.serialize();
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 1;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
  }
  void TearDown() override {
    evn_session_release(session);
    evn_model_release(model);
    evn_runtime_release(runtime);
  }
};

TEST_F(Getters, AModelTellsItsInputsAndOutputsWithoutASession) {
  uint32_t count = 0;
  ASSERT_OK(evn_model_input_count(model, &count, &error));
  EXPECT_EQ(count, 2u);
  ASSERT_OK(evn_model_output_count(model, &count, &error));
  EXPECT_EQ(count, 2u);
  evn_value_info info = EVN_VALUE_INFO_INIT;
  ASSERT_OK(evn_model_get_input_info(model, 0, &info, &error));
  EXPECT_EQ(info.dtype, EVN_DTYPE_FLOAT32);
  ASSERT_EQ(info.rank, 4u);
  EXPECT_EQ(info.dims[0], -1);
  EXPECT_EQ(info.dims[1], 3);
  EXPECT_EQ(info.dims[3], -1);
  EXPECT_EQ(std::string(info.name), long_name.substr(0, 255));
  // A cut within the character behind byte 62 leaves it out.
  EXPECT_EQ(std::string(info.symbols[0]), long_symbol.substr(0, 62));
  EXPECT_STREQ(info.symbols[2], "m");
  EXPECT_STREQ(info.type, "tensor(float32)");
  ASSERT_OK(evn_model_get_output_info(model, 1, &info, &error));
  EXPECT_EQ(info.dtype, EVN_DTYPE_INT64);
  EXPECT_EQ(info.rank, 0u);
  EXPECT_STREQ(info.name, "c");
}

TEST_F(Getters, WholeNamesComeByIndex) {
  ASSERT_OK(evn_session_create(runtime, model, nullptr, &session, &error));
  EXPECT_EQ(text_of([&](auto... a) { return evn_model_input_name(model, 0, a...); }), long_name);
  EXPECT_EQ(text_of([&](auto... a) { return evn_model_output_name(model, 0, a...); }), long_out);
  EXPECT_EQ(text_of([&](auto... a) { return evn_session_input_name(session, 0, a...); }), long_name);
  EXPECT_EQ(text_of([&](auto... a) { return evn_session_output_name(session, 0, a...); }), long_out);
  EXPECT_EQ(text_of([&](auto... a) { return evn_session_input_name(session, 1, a...); }), "b");
  EXPECT_EQ(text_of([&](auto... a) { return evn_model_input_symbol(model, 0, 0, a...); }), long_symbol);
  EXPECT_EQ(text_of([&](auto... a) { return evn_model_output_symbol(model, 0, 0, a...); }), long_symbol);
  EXPECT_EQ(text_of([&](auto... a) { return evn_model_input_symbol(model, 0, 2, a...); }), "m");
  uint32_t index = 7;
  EXPECT_OK(evn_session_find_input(session, long_name.c_str(), &index, &error));
  EXPECT_EQ(index, 0u);
}

TEST_F(Getters, ADimThatIsKnownOrNamelessHasAnEmptySymbol) {
  for (const uint32_t axis : {1u, 3u}) {
    char text[4] = "???";
    size_t size = 0;
    EXPECT_OK(evn_model_input_symbol(model, 0, axis, text, sizeof text, &size, &error));
    EXPECT_EQ(size, 1u);
    EXPECT_STREQ(text, "");
  }
}

TEST_F(Getters, MetadataIsCountedAndItsKeysAreGiven) {
  uint32_t count = 0;
  ASSERT_OK(evn_model_metadata_count(model, &count, &error));
  ASSERT_EQ(count, 3u);
  EXPECT_EQ(text_of([&](auto... a) { return evn_model_metadata_key(model, 0, a...); }), "author");
  EXPECT_EQ(text_of([&](auto... a) { return evn_model_metadata_key(model, 2, a...); }), std::string(5000, 'k'));
  size_t size = 0;
  EXPECT_OK(evn_model_metadata_key(model, 1, nullptr, 0, &size, &error));
  EXPECT_EQ(size, 1u);
}

TEST_F(Getters, ADeviceTellsItsWholeTexts) {
  evn_device cpu = nullptr;
  evn_device_info info = EVN_DEVICE_INFO_INIT;
  ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
  ASSERT_OK(evn_device_get_info(cpu, &info, &error));
  EXPECT_EQ(text_of([&](auto... a) { return evn_device_description(cpu, a...); }).substr(0, 127), info.description);
  EXPECT_EQ(text_of([&](auto... a) { return evn_device_driver(cpu, a...); }).substr(0, 127), info.driver);
  evn_device_release(cpu);
}

TEST_F(Getters, ADeviceTellsWhatItHasAndWhatTellsItApart) {
  evn_device cpu = nullptr;
  evn_device_info info = EVN_DEVICE_INFO_INIT;
  ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
  ASSERT_OK(evn_device_get_info(cpu, &info, &error));
  EXPECT_EQ(info.device_class, EVN_DEVICE_CLASS_CPU);
  EXPECT_NE(info.features & EVN_DEVICE_UNIFIED_MEMORY, 0u);
  EXPECT_EQ(info.features & EVN_DEVICE_SUBGROUPS, 0u);
  EXPECT_EQ(info.largest_allocation, info.memory_bytes);
  EXPECT_EQ(std::string(info.identity).substr(0, 6), "host, ");
  const std::string listed = text_of([&](auto... a) { return evn_runtime_describe_devices(runtime, EVN_FORMAT_JSON, a...); });
  EXPECT_NE(listed.find(std::string("\"identity\":\"") + info.identity), std::string::npos) << listed;
  evn_device_release(cpu);
}

TEST_F(Getters, WrongArgumentsAreAStatusAndChangeNothing) {
  const evn_status bad = EVN_ERROR_INVALID_ARGUMENT, stale = EVN_ERROR_INVALID_HANDLE;
  ASSERT_OK(evn_session_create(runtime, model, nullptr, &session, &error));
  uint32_t count = 77;
  char text[600] = "as it was";
  size_t size = 77;
  evn_value_info info = EVN_VALUE_INFO_INIT;
  for (const auto f : {evn_model_input_count, evn_model_output_count, evn_model_metadata_count}) {
    EXPECT_EQ(f(model, nullptr, &error), bad);
    EXPECT_EQ(f(nullptr, &count, &error), stale);
  }
  for (const auto f : {evn_model_get_input_info, evn_model_get_output_info}) {
    EXPECT_EQ(f(model, 2, &info, &error), bad);
    EXPECT_EQ(f(model, UINT32_MAX, &info, &error), bad);
    EXPECT_EQ(f(model, 0, nullptr, &error), bad);
    EXPECT_EQ(f(reinterpret_cast<evn_model>(session), 0, &info, &error), stale);
  }
  for (const auto f : {evn_model_input_name, evn_model_output_name, evn_model_metadata_key}) {
    EXPECT_EQ(f(model, 3, text, sizeof text, &size, &error), bad);
    EXPECT_EQ(f(model, 0, nullptr, 0, nullptr, &error), bad);
    EXPECT_EQ(f(model, 0, nullptr, 5, &size, &error), bad);
    EXPECT_EQ(f(nullptr, 0, text, sizeof text, &size, &error), stale);
  }
  for (const auto f : {evn_model_input_symbol, evn_model_output_symbol}) {
    EXPECT_EQ(f(model, 2, 0, text, sizeof text, &size, &error), bad);
    EXPECT_EQ(f(model, 0, 4, text, sizeof text, &size, &error), bad);
    EXPECT_EQ(f(model, 0, UINT32_MAX, text, sizeof text, &size, &error), bad);
    EXPECT_EQ(f(nullptr, 0, 0, text, sizeof text, &size, &error), stale);
  }
  for (const auto f : {evn_session_input_name, evn_session_output_name}) {
    EXPECT_EQ(f(session, 2, text, sizeof text, &size, &error), bad);
    EXPECT_EQ(f(session, 0, nullptr, 0, nullptr, &error), bad);
    EXPECT_EQ(f(nullptr, 0, text, sizeof text, &size, &error), stale);
  }
  for (const auto f : {evn_device_description, evn_device_driver}) EXPECT_EQ(f(nullptr, text, sizeof text, &size, &error), stale);
  EXPECT_EQ(count, 77u);
  EXPECT_EQ(size, 77u);
  EXPECT_STREQ(text, "as it was");
  EXPECT_EQ(info.rank, 0u);
}

}  // namespace
}  // namespace evn::test
