// evn_session_options::cache_file and the configuration's `cache`.
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/api/support.h"

namespace evn::test {
namespace {

namespace fs = std::filesystem;

struct CacheFile : ApiTest {
  fs::path folder = fs::temp_directory_path() / ("evener_cache_file_" + std::to_string(getpid()));
  std::string path = (folder / "model.evc").string();

  void SetUp() override {
    fs::create_directory(folder);
    ApiTest::SetUp();
  }
  void TearDown() override {
    ApiTest::TearDown();
    fs::remove_all(folder);
  }
  evn_status create(const evn_session_options* options) {
    evn_session made = nullptr;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_session_create(runtime, model, options, &made, &error);
    if (status == EVN_OK) evn_session_release(made);
    return status;
  }
  // The runtime of a configuration instead of the plain one.
  void configure(const std::string& text, const char* file) {
    ASSERT_EQ(evn_session_release(session), EVN_OK);
    ASSERT_EQ(evn_model_release(model), EVN_OK);
    ASSERT_EQ(evn_device_release(cpu), EVN_OK);
    ASSERT_EQ(evn_runtime_release(runtime), EVN_OK);
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    if (file != nullptr) std::ofstream(file) << text;
    options.config_path = file;
    options.config_text = file == nullptr ? text.c_str() : nullptr;
    options.config_size = file == nullptr ? text.size() : 0;
    if (options.config_size == 0) options.config_text = nullptr;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
    ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
    ASSERT_OK(evn_session_create(runtime, model, nullptr, &session, &error));
  }
};

TEST_F(CacheFile, IsWrittenUnlessItIsReadOnly) {
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  options.cache_file = path.c_str();
  options.cache_flags = EVN_CACHE_READ_ONLY | EVN_CACHE_MAP;
  EXPECT_EQ(create(&options), EVN_OK);
  EXPECT_FALSE(fs::exists(path));
  options.cache_flags = 0;
  EXPECT_EQ(create(&options), EVN_OK);
  EXPECT_TRUE(fs::exists(path));
  options.cache_flags = EVN_CACHE_MAP;
  EXPECT_EQ(create(&options), EVN_OK);
}

TEST_F(CacheFile, ClientsOfBeforeHaveNone) {
  evn_session_options options;
  std::memset(&options, 0xff, sizeof options);  // what is behind a smaller struct is not ours
  options.struct_size = offsetof(evn_session_options, cache_file);
  options.reserved = 0;
  options.device = nullptr;
  EXPECT_EQ(create(&options), EVN_OK) << error.message;
}

TEST_F(CacheFile, FlagsWithoutAFileAndUnknownOnesAreRefused) {
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  options.cache_flags = EVN_CACHE_MAP;
  EXPECT_EQ(create(&options), EVN_ERROR_INVALID_ARGUMENT);
  options.cache_file = path.c_str();
  options.cache_flags = 64;
  EXPECT_EQ(create(&options), EVN_ERROR_INVALID_ARGUMENT);
  options.cache_flags = 0;
  using Options = evn_session_options;
  for (const auto reserved : {&Options::reserved, &Options::reserved1, &Options::reserved2, &Options::reserved3,
                              &Options::reserved4, &Options::reserved5, &Options::reserved6}) {
    options.*reserved = 1;
    EXPECT_EQ(create(&options), EVN_ERROR_INVALID_ARGUMENT);
    options.*reserved = 0;
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(CacheFile, OfAConfigurationIsLookedForInItsFolder) {
  configure("cache: {file: here/}", (folder / "settings.yaml").string().c_str());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "here"), fs::directory_iterator()), 1);
  fs::remove_all(folder / "here");
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  options.cache_file = "";
  EXPECT_EQ(create(&options), EVN_OK);
  EXPECT_FALSE(fs::exists(folder / "here"));  // the option says none
  options.cache_file = path.c_str();
  EXPECT_EQ(create(&options), EVN_OK);
  EXPECT_TRUE(fs::exists(path));
  EXPECT_FALSE(fs::exists(folder / "here"));
  EXPECT_EQ(create(nullptr), EVN_OK);
  EXPECT_TRUE(fs::exists(folder / "here"));
}

TEST_F(CacheFile, OfAConfigurationMayBeReadOnly) {
  configure("cache: {file: \"" + path + "\", write: false, map: true}", nullptr);
  EXPECT_FALSE(fs::exists(path));
  configure("cache: {file: \"" + path + "\"}", nullptr);
  EXPECT_TRUE(fs::exists(path));
}

}  // namespace
}  // namespace evn::test
