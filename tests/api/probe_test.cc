// Drivers that would end or hold up this process when they are asked for their devices, and the program that asks them first. What
// passes is loaded by the process: tests/cli/test_probe.py has that.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/api/support.h"

#ifdef EVN_COMMAND
namespace evn::test::probe_test {
namespace {

struct Probes : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  std::filesystem::path folder;

  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "evn-icds-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
    setenv("OCL_ICD_VENDORS", folder.c_str(), 1);
    unsetenv("OCL_ICD_FILENAMES");
  }
  void TearDown() override {
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
    unsetenv("OCL_ICD_VENDORS");
    unsetenv("OCL_ICD_FILENAMES");
    std::filesystem::remove_all(folder);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
    EXPECT_EQ(errno, ECHILD);
  }
  static std::string library(const std::string& icd) { return EVN_BINARY_DIR "/libevn_icd_" + icd + ".so"; }
  void install(const std::string& icd) {
    ASSERT_TRUE(std::filesystem::exists(library(icd))) << library(icd);
    std::ofstream(folder / (icd + ".icd")) << library(icd) << "\n";
  }
  evn_status make(const char* program = EVN_COMMAND, const std::string& config = "", std::uint64_t timeout_ns = 60'000'000'000) {
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 1;
    options.probe_program = program;
    options.probe_timeout_ns = timeout_ns;
    options.config_text = config.c_str();
    options.config_size = config.size();
    if (options.config_size == 0) options.config_text = nullptr;
    return evn_runtime_create(&options, &runtime, &error);
  }
  std::string devices() {
    std::size_t size = 0;
    EXPECT_OK(evn_runtime_describe_devices(runtime, EVN_FORMAT_TEXT, nullptr, 0, &size, &error));
    std::string text(size, '\0');
    EXPECT_OK(evn_runtime_describe_devices(runtime, EVN_FORMAT_TEXT, text.data(), size, &size, &error));
    text.resize(size - 1);
    return text;
  }
  void expect_in(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in\n" << text;
  }
};

TEST_F(Probes, ADriverThatCrashesIsNamedAndTheHostLives) {
  install("crashes");
  install("noise");
  ASSERT_OK(make());
  const std::string text = devices();
  expect_in(text, "cpu");
  expect_in(text, "opencl: the driver crashed (signal 11) while it was listed [" + (folder / "crashes.icd").string() + ": ");
  EXPECT_EQ(text.find("noise.icd"), std::string::npos) << text;
  evn_device device = nullptr;
  EXPECT_EQ(evn_runtime_device_find(runtime, "opencl:0", &device, &error), EVN_ERROR_DEVICE_UNAVAILABLE);
  expect_in(error.message, "the driver crashed (signal 11)");
  ASSERT_OK(evn_runtime_device_find(runtime, "cpu", &device, &error));
  EXPECT_EQ(evn_device_release(device), EVN_OK);
}

TEST_F(Probes, ADriverThatCrashesWhenItIsLoadedIsNamedToo) {
  install("constructor");
  install("noise");
  ASSERT_OK(make());
  const std::string text = devices();
  expect_in(text, "opencl: the driver crashed (signal 11)");
  expect_in(text, "constructor.icd: ");
  EXPECT_EQ(text.find("noise.icd"), std::string::npos) << text;
}

TEST_F(Probes, ADriverThatHangsIsKilled) {
  install("spins");
  ASSERT_OK(make(EVN_COMMAND, "", 500'000'000));
  expect_in(devices(), "opencl: it was not done after 0.500 s [" + (folder / "spins.icd").string() + ": it was not done");
}

TEST_F(Probes, ADriverThatEndsTheProcessIsNoGoodAnswer) {
  install("exits");
  ASSERT_OK(make());
  expect_in(devices(), "opencl: the process ended with status 0 before the drivers were listed");
}

TEST_F(Probes, ADriverThatCrashesAtTheEndIsRefused) {
  install("late");
  ASSERT_OK(make());
  expect_in(devices(), "opencl: the driver crashed (signal 11) when its process ended");
}

TEST_F(Probes, WithoutTheProgramTheDriversAreNotAsked) {
#if defined(EVN_EMULATOR)
  GTEST_SKIP() << "the emulator's vfork is a fork, whose parent is not told that exec failed";
#endif
  install("crashes");
  ASSERT_OK(make("/no-such-program"));
  expect_in(devices(), "opencl: the program cannot be started: No such file or directory");
}

TEST_F(Probes, OtherProgramsGiveNoAnswer) {
  ASSERT_OK(make("/bin/true"));
  expect_in(devices(), "opencl: the process ended with status 0 before the drivers were listed");
}

TEST_F(Probes, TheConfigurationAsksForItToo) {
  install("crashes");
  const std::string config = "probe: {program: '" EVN_COMMAND "', timeout: 60s}\ndevices: {gpu: {type: opencl, optional: true}}\n";
  ASSERT_OK(make(nullptr, config, 0));
  evn_device device = nullptr;
  EXPECT_EQ(evn_runtime_device_find(runtime, "gpu", &device, &error), EVN_ERROR_DEVICE_UNAVAILABLE);
  expect_in(error.message, "device gpu is not there: the driver crashed (signal 11)");
}

TEST_F(Probes, ADeviceThatIsNotOptionalIsAnError) {
  install("crashes");
  EXPECT_EQ(make(EVN_COMMAND, "devices: {gpu: {type: opencl}}"), EVN_ERROR_DEVICE_UNAVAILABLE);
  expect_in(error.message, "device gpu is not there: the driver crashed (signal 11)");
}

TEST_F(Probes, AHostThatIgnoresItsChildrenIsServedToo) {
  install("crashes");
  struct sigaction ignored {
  }, before{};
  ignored.sa_handler = SIG_IGN;
  ASSERT_EQ(sigaction(SIGCHLD, &ignored, &before), 0);
  ASSERT_OK(make());
  expect_in(devices(), "opencl: the process ended before the drivers were listed");
  sigaction(SIGCHLD, &before, nullptr);
}

}  // namespace
}  // namespace evn::test::probe_test
#endif
