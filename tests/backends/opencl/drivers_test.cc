// Which drivers the loader would load, told without loading them.
#include "backends/opencl/drivers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

namespace evn::test::drivers_test {
namespace {

class OpenClDrivers : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "evn-drivers-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    for (const char* file : {"b.icd", "a.icd", "c.icd.off", ".icd", "README"}) std::ofstream(folder_ / file) << "lib.so\n";
    for (const char* variable : kVariables) {
      const char* const value = std::getenv(variable);
      before_.push_back(value != nullptr ? std::optional<std::string>(value) : std::nullopt);
      unsetenv(variable);
    }
  }
  void TearDown() override {
    for (std::size_t i = 0; i < before_.size(); ++i) {
      if (before_[i]) setenv(kVariables[i], before_[i]->c_str(), 1);
      else unsetenv(kVariables[i]);
    }
    std::filesystem::remove_all(folder_);
  }
  static std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const DriverSet& d : opencl_drivers()) names.push_back(d.name);
    return names;
  }
  static std::string variable(const DriverSet& driver, const std::string& name) {
    for (const auto& [key, value] : driver.variables) {
      if (key == name) return value;
    }
    return "not set";
  }

  static constexpr const char* kVariables[] = {"OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"};
  std::filesystem::path folder_;
  std::vector<std::optional<std::string>> before_;
};

TEST_F(OpenClDrivers, AreTheFilesOfTheFolder) {
  setenv("OCL_ICD_VENDORS", folder_.c_str(), 1);
  const std::string a = folder_ / "a.icd", b = folder_ / "b.icd";
  EXPECT_EQ(names(), (std::vector<std::string>{a, b}));
  const std::vector<DriverSet> drivers = opencl_drivers();
  EXPECT_EQ(variable(drivers[1], "OCL_ICD_VENDORS"), b);
  EXPECT_EQ(variable(drivers[1], "OCL_ICD_FILENAMES"), "");
}

TEST_F(OpenClDrivers, OrTheOneFileThatIsNamed) {
  const std::string a = folder_ / "a.icd";
  setenv("OCL_ICD_VENDORS", a.c_str(), 1);
  EXPECT_EQ(names(), std::vector<std::string>{a});
}

TEST_F(OpenClDrivers, AndTheLibrariesThatAreNamed) {
  setenv("OCL_ICD_VENDORS", "/no-such-folder", 1);
  setenv("OCL_ICD_FILENAMES", ":/x/one.so::two.so:", 1);
  EXPECT_EQ(names(), (std::vector<std::string>{"/x/one.so", "two.so"}));
  const std::vector<DriverSet> drivers = opencl_drivers();
  EXPECT_EQ(variable(drivers[1], "OCL_ICD_FILENAMES"), "two.so");
  EXPECT_NE(variable(drivers[1], "OCL_ICD_VENDORS"), "/no-such-folder");
  unsetenv("OCL_ICD_FILENAMES");
  EXPECT_TRUE(names().empty());
}

}  // namespace
}  // namespace evn::test::drivers_test
