// The cache of compiled programs: used when it is whole, and harmless when it is not.
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "backends/opencl/program_text.h"
#include "backends/opencl/source.h"
#include "base/heap.h"
#include "base/inflate.h"
#include "tests/backends/opencl/opencl_test.h"
#include "tests/support/sanitized.h"

namespace evn::test {
namespace {

namespace fs = std::filesystem;

class OpenClProgramCache : public ::testing::Test {
 protected:
  void SetUp() override {
    EVN_NEEDS_OPENCL();
    std::string name = (fs::temp_directory_path() / "evn-opencl-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  struct Counts {
    int compiled;
    int restored;
    bool operator==(const Counts&) const = default;
  };
  static constexpr Counts kCompiled{1, 0};
  static constexpr Counts kRestored{0, 1};

  // Runs one node on a fresh device and looks at its result.
  static Counts run(const std::string& cache_dir, const char* op = "Relu") {
    DeviceRequest request;
    request.cache_dir = cache_dir;
    const std::shared_ptr<OpenClDevice> device = open_opencl(request);
    GraphBuilder b;
    b.output(b.node(op, {b.input("x", {1, 2, 10, 10})}));
    NodeRun node(b.build(), 1);
    expect_near(node.on(*device), node.reference(), {1e-5, 1e-6});
    return {device->programs().compiled(), device->programs().restored()};
  }

  fs::path only_file() const {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? fs::path() : files[0];
  }
  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

  fs::path folder_;
};

// What a driver says tells whose fault it is; the library's it is not.
TEST_F(OpenClProgramCache, ProgramThatIsNotBuiltIsAnErrorByItsCause) {
  const struct {
    cl_int code;
    const char* log;
    evn_status status;
  } rows[] = {{CL_OUT_OF_HOST_MEMORY, "", EVN_ERROR_OUT_OF_MEMORY},
              {CL_OUT_OF_RESOURCES, "", EVN_ERROR_OUT_OF_MEMORY},
              {CL_MEM_OBJECT_ALLOCATION_FAILURE, "", EVN_ERROR_OUT_OF_MEMORY},
              {CL_BUILD_PROGRAM_FAILURE, "LLVM ERROR: out of memory\n", EVN_ERROR_OUT_OF_MEMORY},
              {CL_BUILD_PROGRAM_FAILURE, "error: cannot fork: Cannot allocate memory\n", EVN_ERROR_OUT_OF_MEMORY},
              {CL_BUILD_PROGRAM_FAILURE, "<source>:3:1: error: unknown type name\n", EVN_ERROR_UNSUPPORTED},
              {CL_COMPILER_NOT_AVAILABLE, "", EVN_ERROR_UNSUPPORTED},
              {CL_BUILD_PROGRAM_FAILURE, "", EVN_ERROR_DEVICE_LOST}};
  OpenClDriver driver;
  for (const auto& row : rows) {
    driver.fail_builds(row.code, row.log);
    try {
      run(folder_);
      ADD_FAILURE() << "it ran without a program";
    } catch (const Error& error) {
      EXPECT_EQ(error.status, row.status) << error.message;
      EXPECT_STREQ(error.device, "test");
      EXPECT_NE(std::string(error.message).find("elementwise/unary"), std::string::npos) << error.message;
    }
  }
  driver.fail_builds(CL_SUCCESS);
  EXPECT_EQ(run(folder_), kCompiled);
}

TEST_F(OpenClProgramCache, CompilerThatFailsWithoutAReasonWhileMemoryIsShortIsOutOfMemory) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers need address space";
  EXPECT_EQ(status_of_build(CL_BUILD_PROGRAM_FAILURE, ""), EVN_ERROR_DEVICE_LOST);
  const auto without_memory = [] {
    const rlimit none = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_AS, &none);
    _exit(status_of_build(CL_BUILD_PROGRAM_FAILURE, ""));
  };
  EXPECT_EXIT(without_memory(), ::testing::ExitedWithCode(EVN_ERROR_OUT_OF_MEMORY), "");
}

class FullHeap final : public Heap {
 public:
  FullHeap() { hold(); }
  bool admit(std::int64_t, bool, Error* why) noexcept override {
    *why = make_error(EVN_ERROR_OUT_OF_MEMORY, "full");
    return false;
  }
  void end() noexcept override {}
};

TEST_F(OpenClProgramCache, MemoryLimitOfTheRuntimeIsNoWantOfMemoryOfTheCompiler) {
  FullHeap heap;
  evn_status of_source = EVN_OK, without_reason = EVN_OK;
  {
    const HeapScope scope(&heap);
    of_source = status_of_build(CL_BUILD_PROGRAM_FAILURE, "<source>:3:1: error: unknown type name\n");
    without_reason = status_of_build(CL_BUILD_PROGRAM_FAILURE, "");
  }
  EXPECT_EQ(of_source, EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(without_reason, EVN_ERROR_DEVICE_LOST);
}

TEST_F(OpenClProgramCache, SecondDeviceCompilesNothing) {
  EXPECT_EQ(run(folder_), kCompiled);
  EXPECT_EQ(run(folder_), kRestored);
}

TEST_F(OpenClProgramCache, FolderIsMadeWhenItIsMissing) {
  const std::string deep = (folder_ / "a" / "b").string();
  EXPECT_EQ(run(deep), kCompiled);
  EXPECT_EQ(run(deep), kRestored);
}

TEST_F(OpenClProgramCache, ProgramsHaveFilesOfTheirOwn) {
  EXPECT_EQ(run(folder_, "Relu"), kCompiled);
  EXPECT_EQ(run(folder_, "GlobalAveragePool"), kCompiled);
  EXPECT_EQ(run(folder_, "Relu"), kRestored);
}

TEST_F(OpenClProgramCache, WithoutAFolderNothingIsKept) {
  EXPECT_EQ(run(""), kCompiled);
  EXPECT_EQ(run(""), kCompiled);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(OpenClProgramCache, TruncatedFileIsMadeAnew) {
  run(folder_);
  const fs::path file = only_file();
  const std::string whole = read(file);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, std::size_t{31}, std::size_t{32}, whole.size() / 2, whole.size() - 1}) {
    write(file, whole.substr(0, size));
    EXPECT_EQ(run(folder_), kCompiled) << size;
    EXPECT_EQ(run(folder_), kRestored) << size;
  }
}

TEST_F(OpenClProgramCache, FlippedBitIsNoticed) {
  run(folder_);
  const fs::path file = only_file();
  const std::string whole = read(file);
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{9}, std::size_t{17}, std::size_t{25}, std::size_t{40}, whole.size() / 2, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    write(file, damaged);
    EXPECT_EQ(run(folder_), kCompiled) << at;
  }
  EXPECT_EQ(run(folder_), kRestored);
}

TEST_F(OpenClProgramCache, LongerAndForeignFilesAreMadeAnew) {
  run(folder_);
  const fs::path file = only_file();
  const std::string whole = read(file);
  for (const std::string& bytes : {whole + "x", std::string(5000, 'E'),
                                   std::string("\x7f"
                                               "ELF")}) {
    write(file, bytes);
    EXPECT_EQ(run(folder_), kCompiled);
  }
}

TEST_F(OpenClProgramCache, BinaryThatTheDriverRefusesIsMadeAnew) {
  run(folder_);
  const fs::path file = only_file();
  std::string bytes = read(file).substr(0, 16);  // the right magic and identity, then a whole but senseless binary
  const std::string binary = "this is no program";
  std::uint64_t checksum = 0xcbf29ce484222325ull;
  for (const char c : binary) checksum = (checksum ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  const std::uint64_t size = binary.size();
  bytes.append(reinterpret_cast<const char*>(&size), 8);
  bytes.append(reinterpret_cast<const char*>(&checksum), 8);
  write(file, bytes + binary);
  EXPECT_EQ(run(folder_), kCompiled);
  EXPECT_EQ(run(folder_), kRestored);
}

TEST_F(OpenClProgramCache, FolderThatCannotBeWrittenDoesNoHarm) {
  write(folder_ / "file", "x");
  EXPECT_EQ(run((folder_ / "file" / "under").string()), kCompiled);
  EXPECT_EQ(run("/proc/no-such-folder"), kCompiled);
  fs::create_directory(folder_ / "read-only");
  fs::permissions(folder_ / "read-only", fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(run((folder_ / "read-only").string()), kCompiled);
}

TEST_F(OpenClProgramCache, ProgramsAreSavedWhenTheDeviceGoes) {
  OpenClDriver driver;
  DeviceRequest request;
  request.cache_dir = folder_;
  std::shared_ptr<OpenClDevice> device = open_opencl(request);
  GraphBuilder b;
  b.output(b.node("Relu", {b.input("x", {1, 2, 10, 10})}));
  NodeRun node(b.build(), 1);
  node.on(*device);
  node.on(*device);
  EXPECT_EQ(driver.calls(OpenClDriver::kGetBinary), 0);
  EXPECT_TRUE(fs::is_empty(folder_));
  device.reset();
  EXPECT_EQ(driver.calls(OpenClDriver::kGetBinary), 1);
  EXPECT_EQ(run(folder_), kRestored);
  EXPECT_EQ(driver.calls(OpenClDriver::kGetBinary), 1) << "what came out of the cache is saved again";
}

TEST_F(OpenClProgramCache, FolderInPlaceOfTheFileDoesNoHarm) {
  run(folder_);
  const fs::path file = only_file();
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_EQ(run(folder_), kCompiled);
}

// ---- devices without a compiler ----

class OpenClStoredPrograms : public OpenClProgramCache {
 protected:
  // Runs Relu on a device with a folder of programs, and looks at its result.
  Counts run_stored(const fs::path& programs, const std::string& cache_dir = "") {
    DeviceRequest request;
    request.name = "display";
    request.settings.set_text("programs", programs.string());
    request.cache_dir = cache_dir;
    const std::shared_ptr<OpenClDevice> device = open_opencl(request);
    GraphBuilder b;
    b.output(b.node("Relu", {b.input("x", {1, 2, 10, 10})}));
    NodeRun node(b.build(), 1);
    expect_near(node.on(*device), node.reference(), {1e-5, 1e-6});
    return {device->programs().compiled(), device->programs().restored()};
  }
};

TEST_F(OpenClStoredPrograms, ADeviceWithoutACompilerTakesBinariesFromItsFolderOrTheCache) {
  EXPECT_EQ(run(folder_), kCompiled);
  OpenClDriver driver;
  driver.have_no_compiler();
  EXPECT_EQ(run_stored(folder_), kRestored);
  EXPECT_EQ(run_stored(folder_ / "none", folder_), kRestored);
  EXPECT_EQ(driver.calls(OpenClDriver::kSource), 0);
}

TEST_F(OpenClStoredPrograms, TheErrorNamesProgramDeviceAndFolders) {
  const fs::path programs = folder_ / "programs", cache = folder_ / "cache";
  EXPECT_EQ(run(programs.string()), kCompiled);
  OpenClDriver driver;
  driver.have_no_compiler();
  const auto expect_refused = [&] {
    try {
      run_stored(programs, cache.string());
      FAIL() << "it ran without a program";
    } catch (const Error& error) {
      EXPECT_EQ(error.status, EVN_ERROR_UNSUPPORTED) << error.message;
      EXPECT_STREQ(error.device, "display");
      for (const std::string& part : {std::string("elementwise/unary"), programs.string(), cache.string()})
        EXPECT_NE(std::string(error.message).find(part), std::string::npos) << error.message;
    }
  };
  for (const fs::directory_entry& entry : fs::directory_iterator(programs)) write(entry.path(), "damaged");
  expect_refused();
  fs::remove_all(programs);
  expect_refused();
  EXPECT_EQ(driver.calls(OpenClDriver::kSource), 0);
}

// As scripts/make_il.py does it, but for the compiler.
void make_il(const fs::path& text, const std::string& content) {
  std::ifstream in(text);
  std::string comment, name, identity;
  in >> comment >> name >> identity;
  ASSERT_EQ(comment, "//");
  std::uint64_t head[3] = {std::stoull(identity, nullptr, 16), content.size(), 0xcbf29ce484222325ull};
  for (const char c : content) head[2] = (head[2] ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  std::ofstream out(text.parent_path() / name, std::ios::binary);
  out << "EVNCLB01" << std::string(reinterpret_cast<const char*>(head), sizeof head) << content;
}

// Whether the device has kernels for CPUs.
bool is_for_cpus() {
  std::string why;
  return find_opencl_devices(&why).at(0).has_kernels_of_cpus();
}

// scripts/test --full=intel gives a folder of real ones (EVN_IL_PROGRAMS).
TEST_F(OpenClStoredPrograms, SpirvIsTakenWhereThereIsNoCompiler) {
  OpenClDriver driver;
  const char* const given = std::getenv("EVN_IL_PROGRAMS");
  const fs::path programs = given != nullptr ? fs::path(given) : folder_;
  const std::shared_ptr<OpenClDevice> device = open_opencl();
  const fs::path text = programs / "elementwise-unary.cl";
  if (given == nullptr) {
    driver.take_text_as_il();
    const NativeSharing::Programs texts = device->store_programs(folder_, true);
    EXPECT_GT(texts.stored, 90u);
    EXPECT_EQ(texts.refused, 0u);
    std::string content = read(text);
    const std::string lanes = std::to_string(device->programs().lanes());
    content.insert(0, std::string("#define EVN_LOCAL ") + (is_for_cpus() ? "1" : "64") + "\n#define EVN_LANES " + lanes + "\n");
    make_il(text, content);
  }
  driver.have_no_compiler();
  EXPECT_EQ(run_stored(programs), kCompiled);
  EXPECT_EQ(driver.calls(OpenClDriver::kIl), 1);
  EXPECT_EQ(driver.calls(OpenClDriver::kSource), 0);
}

TEST_F(OpenClStoredPrograms, SpirvThatIsDamagedOrRefusedIsAnError) {
  OpenClDriver driver;
  driver.take_text_as_il();
  open_opencl()->store_programs(folder_, true);
  driver.have_no_compiler();
  const auto expect_error = [&](evn_status status, const char* part) {
    try {
      run_stored(folder_);
      FAIL() << "it ran without a program";
    } catch (const Error& error) {
      EXPECT_EQ(error.status, status) << error.message;
      EXPECT_NE(std::string(error.message).find("elementwise/unary"), std::string::npos) << error.message;
      EXPECT_NE(std::string(error.message).find(part), std::string::npos) << error.message;
    }
  };
  expect_error(EVN_ERROR_UNSUPPORTED, "no SPIR-V");
  make_il(folder_ / "elementwise-unary.cl", "this is no program");
  expect_error(EVN_ERROR_UNSUPPORTED, "cannot be built");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    if (entry.path().extension() == ".bin") fs::resize_file(entry.path(), 40);
  }
  expect_error(EVN_ERROR_UNSUPPORTED, "no SPIR-V");
}

TEST_F(OpenClStoredPrograms, StoringWithoutACompilerIsRefused) {
  OpenClDriver driver;
  driver.have_no_compiler();
  const std::shared_ptr<OpenClDevice> device = open_opencl();
  try {
    device->store_programs(folder_, false);
    FAIL() << "programs were stored";
  } catch (const Error& error) {
    EXPECT_EQ(error.status, EVN_ERROR_UNSUPPORTED) << error.message;
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(OpenClStoredPrograms, AFolderThatCannotBeWrittenIsAnError) {
  write(folder_ / "file", "x");
  const std::shared_ptr<OpenClDevice> device = open_opencl();
  try {
    device->store_programs((folder_ / "file" / "under").string(), false);
    FAIL() << "programs were stored";
  } catch (const Error& error) {
    EXPECT_EQ(error.status, EVN_ERROR_IO) << error.message;
    EXPECT_NE(std::string(error.message).find("file/under"), std::string::npos) << error.message;
  }
}

// Without the time that a driver takes for some hundred binaries.
TEST_F(OpenClStoredPrograms, EachKernelOfEachSourceIsBuiltAndADriverMayGiveNoBinary) {
  OpenClDriver driver;
  driver.give_no_binaries();
  const std::shared_ptr<OpenClDevice> device = open_opencl();
  std::uint32_t kernels = 0;
  std::string why;
  const NativeSharing::Programs programs = device->store_programs(folder_, false);
  for (const OpenClSource& source : opencl_sources()) {
    const std::string name(source.name);
    if (is_for_cpus() && (name == "tiled" || name == "grouped")) continue;  // of GPUs
    const std::string text = inflate(source.deflated, source.size);
    const bool twice =
        device->lowest_precision(Precision::kFloat16, &why) == Precision::kFloat16 && text.find("EVN_HALF") != std::string::npos;
    kernels += static_cast<std::uint32_t>(kernels_of(text).size()) * (twice ? 2 : 1);
  }
  EXPECT_EQ(programs.stored, 0u);
  EXPECT_EQ(programs.refused, kernels);
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace evn::test
