// Hostile configurations as a runtime meets them: rows C13, C14, C17, C19 and C20 of the list of hostile cases. The rows before
// them are the business of tests/config.
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/api/support.h"

namespace evn::test {
namespace {

namespace fs = std::filesystem;

struct ConfigRows : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  fs::path folder;

  void SetUp() override {
    char pattern[] = "/tmp/evener-rows-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder = pattern;
  }
  void TearDown() override { fs::remove_all(folder); }

  evn_status create(const evn_runtime_options& options) {
    evn_runtime r = nullptr;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_runtime_create(&options, &r, &error);
    EXPECT_EQ(status == EVN_OK, r != nullptr);
    EXPECT_EQ(evn_runtime_release(r), EVN_OK);
    return status;
  }
  evn_status create_from_text(const std::string& text) {
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.config_text = text.c_str();
    options.config_size = text.size();
    if (options.config_size == 0) options.config_text = nullptr;
    return create(options);
  }
  evn_status create_from_file(const std::string& path) {
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.config_path = path.c_str();
    return create(options);
  }
};

TEST_F(ConfigRows, APathThatIsNoRegularFileIsRefused) {
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  fs::create_directory(folder / "folder");
  for (const std::string& path : {std::string("/proc/version"), std::string("/dev/null"), (folder / "fifo").string(),
                                  (folder / "folder").string(), std::string()}) {
    EXPECT_EQ(create_from_file(path), EVN_ERROR_IO) << path;
    EXPECT_STRNE(error.message, "") << path;
  }
}

// There is no key that names a library, so no file can be made to run: whatever looks like one is an unknown key or type.
TEST_F(ConfigRows, C13_NothingInAConfigurationNamesALibrary) {
  const std::string file = (folder / "plugin.so").string();
  std::ofstream(file) << "not a library";
  for (const std::string& path : {file, std::string("plugin.so"), std::string("../plugin.so"), folder.string()}) {
    for (const char* key : {"plugin", "library", "path", "plugins"}) {
      EXPECT_EQ(create_from_text("devices: {d: {type: cpu, " + std::string(key) + ": " + path + "}}"), EVN_ERROR_CONFIG);
      EXPECT_EQ(create_from_text(std::string(key) + ": [" + path + "]"), EVN_ERROR_CONFIG);
    }
    EXPECT_EQ(create_from_text("devices: {d: {type: " + path + "}}"), EVN_ERROR_CONFIG);
    EXPECT_EQ(create_from_text("devices: {d: {type: plugin}}"), EVN_ERROR_CONFIG);
  }
}

TEST_F(ConfigRows, C14_APathThatIsNoFileIsAnIoErrorAtOnce) {
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  for (const std::string& path : {folder.string(), (folder / "fifo").string(), std::string("/dev/zero"),
                                  std::string("/dev/stdin/x"), (folder / "absent").string(), std::string()}) {
    EXPECT_EQ(create_from_file(path), EVN_ERROR_IO) << path;
  }
}

TEST_F(ConfigRows, C17_ADeviceThatNothingMatchesIsUnavailableAndPatternsAreNoRegularExpressions) {
  for (const char* pattern : {"nobody makes this", "(a+)+$", "[", "***************************************b", "^.*$", "\\\\"}) {
    const std::string text = "devices: {g: {type: opencl, match: {vendor: '" + std::string(pattern) + "'}";
    EXPECT_EQ(create_from_text(text + "}}"), EVN_ERROR_DEVICE_UNAVAILABLE) << pattern;
    EXPECT_STREQ(error.device, "g");
    EXPECT_NE(std::string(error.message).find("<text>:1"), std::string::npos) << error.message;
    EXPECT_EQ(create_from_text(text + ", optional: true}}"), EVN_OK) << pattern << error.message;
  }
}

// The log goes to the host's callback: the configuration cannot name a file for it, and nothing about it can fail a run.
TEST_F(ConfigRows, C19_TheLogHasNoPath) {
  EXPECT_EQ(create_from_text("log: {path: /nonexistent/log}"), EVN_ERROR_CONFIG);
  EXPECT_EQ(create_from_text("log: /nonexistent/log"), EVN_ERROR_CONFIG);
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(ConfigRows, C20_AFileReplacedWhileItIsReadIsOneOfTheTwo) {
  const std::string path = (folder / "c.yaml").string();
  const std::string good = "limits: {nodes: 1000}\n# " + std::string(20000, 'x') + "\n";
  const std::string bad = "# " + std::string(10000, 'y') + "\nlimits: {node: 5}\n";
  std::ofstream(path) << good;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (bool odd = true; !stop; odd = !odd) {
      std::ofstream(path + ".new") << (odd ? bad : good);
      fs::rename(path + ".new", path);
    }
  });
  for (int i = 0; i < 1000; ++i) {
    const evn_status status = create_from_file(path);
    ASSERT_TRUE(status == EVN_OK || status == EVN_ERROR_CONFIG) << error.message;
    if (status == EVN_ERROR_CONFIG) {
      EXPECT_NE(std::string(error.message).find(":2:10: unknown key \"node\""), std::string::npos) << error.message;
    }
  }
  stop = true;
  writer.join();
}

// A configuration is read when the runtime is made and never again; a second runtime has its own.
TEST_F(ConfigRows, C20_AConfigurationIsAppliedOnceToEachRuntime) {
  const std::string path = (folder / "c.yaml").string();
  std::ofstream(path) << "limits: {tensor_bytes: 1KiB}\n";
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.config_path = path.c_str();
  options.cache_dir = "";
  evn_runtime first = nullptr;
  ASSERT_OK(evn_runtime_create(&options, &first, &error));
  std::ofstream(path) << "limits: {tensor_bytes: 1MiB}\n";
  evn_runtime second = nullptr;
  ASSERT_OK(evn_runtime_create(&options, &second, &error));
  const int64_t dims[1] = {1000};
  for (const evn_runtime r : {first, second}) {
    evn_device cpu = nullptr;
    evn_tensor t = nullptr;
    ASSERT_OK(evn_runtime_device_at(r, 0, &cpu, &error));
    EXPECT_EQ(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 1, 0, &t, &error), r == first ? EVN_ERROR_LIMIT : EVN_OK);
    EXPECT_EQ(evn_tensor_release(t), EVN_OK);
    EXPECT_EQ(evn_device_release(cpu), EVN_OK);
    EXPECT_EQ(evn_runtime_release(r), EVN_OK);
  }
}

}  // namespace
}  // namespace evn::test
