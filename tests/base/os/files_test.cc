#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/cancel.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/os/beneath.h"
#include "base/os/files_linux.h"
#include "base/os/os.h"

namespace evn::os {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "evn-files-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override {
    fault_arm(Seam::kIo, 0, false);
    fs::remove_all(root_);
  }

  std::string path(const std::string& name) const { return (root_ / name).string(); }
  void write(const std::string& name, std::string_view text) const { std::ofstream(root_ / name, std::ios::binary) << text; }
  std::string content(const std::string& name) const {
    std::ifstream in(root_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::size_t file_count() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(root_), {})); }

  fs::path root_;
};

std::string text_of(const FileBytes& file) { return {static_cast<const char*>(file.data.get()), file.size}; }

template <typename Call>
Error error_of(Call call) {
  try {
    call();
  } catch (const Error& e) {
    return e;
  }
  Error none;
  none.status = EVN_OK;
  return none;
}

Error read_error(const std::string& path, std::uint64_t limit = 1000) {
  return error_of([&] { read_file(path, limit, nullptr, MemoryClass::kLoading); });
}

// The files of /proc say that they are regular and empty.
TEST_F(Files, AFileWithoutASizeThatGivesBytesIsNoRegularFile) {
  for (const char* path : {"/proc/version", "/proc/self/status"}) {
    EXPECT_EQ(read_error(path).status, EVN_ERROR_IO) << path;
    EXPECT_NE(std::string(read_error(path).message).find("is not a regular file"), std::string::npos) << read_error(path).message;
    EXPECT_EQ(error_of([&] { open_for_reading(path, 1000); }).status, EVN_ERROR_IO) << path;
  }
  write("empty", "");
  EXPECT_EQ(read_file(path("empty"), 10, nullptr, MemoryClass::kLoading).size, 0u);
  EXPECT_EQ(open_for_reading(path("empty"), 10)->size(), 0u);
}

TEST_F(Files, ReadFileGivesAllBytesAligned) {
  const std::string text("a\0b\nc", 5);
  write("f", text);
  const FileBytes file = read_file(path("f"), 1000, nullptr, MemoryClass::kLoading);
  EXPECT_EQ(text_of(file), text);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.data.get()) % 64, 0u);
}

TEST_F(Files, ReadFileTakesEmptyFilesAndLinks) {
  write("empty", "");
  EXPECT_EQ(read_file(path("empty"), 0, nullptr, MemoryClass::kLoading).size, 0u);
  write("f", "text");
  fs::create_symlink("f", root_ / "link");
  EXPECT_EQ(text_of(read_file(path("link"), 1000, nullptr, MemoryClass::kLoading)), "text");
}

// Bytes are read in pieces, so that a limit of time holds while a large file is read.
TEST_F(Files, ReadsHaveCancellationPoints) {
  constexpr std::size_t kSize = (std::size_t{3} << 20) + 5;
  std::string text(kSize, 'x');
  text.back() = 'y';
  write("f", text);
  const auto file = open_for_reading(path("f"), kSize);
  std::string found(kSize, '\0');
  const auto read_open = [&] { file->read(0, found.data(), kSize); };
  const auto read_whole = [&] { found = text_of(read_file(path("f"), kSize, nullptr, MemoryClass::kLoading)); };
  const auto expect_points = [&](auto&& read) {
    found.assign(kSize, '\0');
    {
      const Cancel never;
      const CancelScope scope(never);
      read();
      EXPECT_GE(scope.work(), static_cast<std::int64_t>(kSize) / kBytesPerWork);
      EXPECT_LE(scope.longest(), 2 * kWorkPerLook);
    }
    EXPECT_TRUE(found == text);
    const std::atomic<bool> requested{true};
    Cancel cancel;
    cancel.requested = &requested;
    const CancelScope scope(cancel);
    EXPECT_EQ(error_of(read).status, EVN_ERROR_CANCELLED);
  };
  expect_points(read_open);
  expect_points(read_whole);
}

TEST_F(Files, ReadFileObeysItsLimit) {
  write("f", "12345");
  EXPECT_EQ(read_error(path("f"), 5).status, EVN_OK);
  const Error e = read_error(path("f"), 4);
  EXPECT_EQ(e.status, EVN_ERROR_LIMIT);
  EXPECT_EQ(e.bytes_requested, 5u);
  EXPECT_EQ(e.bytes_available, 4u);
}

TEST_F(Files, ReadFileRefusesWhatIsNoRegularFileWithoutWaiting) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_error(path("fifo")).status, EVN_ERROR_IO);
  EXPECT_EQ(read_error(root_.string()).status, EVN_ERROR_IO);
  EXPECT_EQ(read_error("/dev/zero").status, EVN_ERROR_IO);
  EXPECT_EQ(read_error(path("missing")).status, EVN_ERROR_IO);
  EXPECT_EQ(read_error(std::string("/etc/passwd\0", 12)).status, EVN_ERROR_IO);
  EXPECT_NE(std::string(read_error(path("missing")).message).find("missing"), std::string::npos);
}

TEST_F(Files, WriteReplacesAFileAndLeavesNothingElse) {
  write("f", "old");
  write_file_atomically(path("f"), "new text", 8);
  EXPECT_EQ(content("f"), "new text");
  EXPECT_EQ(file_count(), 1u);
  write_file_atomically(path("empty"), nullptr, 0);
  EXPECT_EQ(content("empty"), "");
}

// Who is killed while it writes leaves a temporary file, which is locked as long as the process lives.
TEST_F(Files, WriteRemovesWhatKilledProcessesHaveLeft) {
  const std::string left = path(".evn-1-2.tmp");
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t writer = ::fork();
  if (writer == 0) {
    const int fd = ::open(left.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ::flock(fd, LOCK_EX) != 0 || ::write(ready[1], "x", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const char* const others[] = {".evn-1-2", ".evn-a-2.tmp", ".evn-1.tmp", "evn-1-2.tmp", ".evn-1-2.tmp.old"};
  for (const char* name : others) write(name, "");
  ASSERT_EQ(::mkdir(path(".evn-3-4.tmp").c_str(), 0700), 0);
  write(".evn-5-6.tmp", "of a process that has ended");
  write_file_atomically(path("f"), "text", 4);
  EXPECT_TRUE(fs::exists(left));
  EXPECT_FALSE(fs::exists(path(".evn-5-6.tmp")));
  ::kill(writer, SIGKILL);
  ASSERT_EQ(::waitpid(writer, nullptr, 0), writer);
  write_file_atomically(path("f"), "text", 4);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ(file_count(), std::size(others) + 2);
  EXPECT_EQ(content("f"), "text");
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(Files, WriteIntoAMissingFolderIsAnIoError) {
  EXPECT_EQ(error_of([&] { write_file_atomically(path("no/f"), "x", 1); }).status, EVN_ERROR_IO);
}

TEST_F(Files, E04_EveryRefusedCallIsAnIoErrorAndLeavesOldOrNewFile) {
  bool wrote = false;
  for (int k = 1; !wrote; ++k) {
    ASSERT_LT(k, 50);
    write("f", "old");
    fault_arm(Seam::kIo, k, false);
    const Error e = error_of([&] { write_file_atomically(path("f"), "newer", 5); });
    fault_arm(Seam::kIo, 0, false);
    wrote = e.status == EVN_OK;
    EXPECT_TRUE(wrote || e.status == EVN_ERROR_IO) << k;
    EXPECT_TRUE(content("f") == "newer" || (!wrote && content("f") == "old")) << k;
    EXPECT_EQ(file_count(), 1u) << k;
  }
  bool read = false;
  for (int k = 1; !read; ++k) {
    ASSERT_LT(k, 50);
    fault_arm(Seam::kIo, k, false);
    const Error e = read_error(path("f"));
    fault_arm(Seam::kIo, 0, false);
    read = e.status == EVN_OK;
    EXPECT_TRUE(read || e.status == EVN_ERROR_IO) << k;
  }
}

TEST_F(Files, NoDescriptorIsLeftOpen) {
  const auto open_files = [] { return std::distance(fs::directory_iterator("/proc/self/fd"), {}); };
  write("f", "text");
  const auto before = open_files();
  for (int i = 0; i < 10; ++i) {
    read_file(path("f"), 1000, nullptr, MemoryClass::kLoading);
    open_external(root_.string(), "f", {});
    write_file_atomically(path("g"), "x", 1);
    read_error(root_.string());
    EXPECT_EQ(error_of([&] { open_external(root_.string(), "../f", {}); }).status, EVN_ERROR_INVALID_MODEL);
  }
  EXPECT_EQ(open_files(), before);
}

TEST_F(Files, OpenNeverTakesTheStandardDescriptors) {
  write("f", "text");
  const int kept = ::dup(0);
  ASSERT_GE(kept, 0);
  ::close(0);
  {
    const Fd fd = open_file(AT_FDCWD, path("f").c_str(), O_RDONLY);
    EXPECT_GT(fd.get(), 2);
    EXPECT_EQ(::fcntl(0, F_GETFD), -1);  // still closed
  }
  ::dup2(kept, 0);
  ::close(kept);
}

TEST_F(Files, MakeFoldersMakesParentsOnce) {
  EXPECT_TRUE(make_folders(path("a/b/c")));
  EXPECT_TRUE(fs::is_directory(root_ / "a" / "b" / "c"));
  EXPECT_TRUE(make_folders(path("a/b/c/")));
  write("file", "");
  EXPECT_FALSE(make_folders(path("file")));
  EXPECT_FALSE(make_folders(path("file/below")));
  EXPECT_FALSE(make_folders(""));
}

// Both ways to open below a folder must agree: openat2, and the walk for kernels without it.
struct Way {
  const char* name;
  Fd (*open)(int, const std::string&) noexcept;
};
void PrintTo(const Way& way, std::ostream* to) { *to << way.name; }

class Beneath : public Files, public testing::WithParamInterface<Way> {
 protected:
  void SetUp() override {
    Files::SetUp();
    fs::create_directories(root_ / "in" / "sub");
    write("in/f", "inside");
    write("in/sub/f", "deeper");
    write("secret", "secret");
    fs::create_symlink("f", root_ / "in" / "link");
    fs::create_symlink("/etc/passwd", root_ / "in" / "far");
    fs::create_directory_symlink("sub", root_ / "in" / "linked");
    folder_ = ::open((root_ / "in").c_str(), O_PATH | O_DIRECTORY);
  }
  void TearDown() override {
    ::close(folder_);
    Files::TearDown();
  }
  std::string text_at(const std::string& location) const {
    const Fd fd = GetParam().open(folder_, location);
    if (!fd.ok()) return "refused";
    char buffer[64];
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    return {buffer, static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
  }

  int folder_ = -1;
};

TEST_P(Beneath, OpensFilesBelowTheFolderOnly) {
  EXPECT_EQ(text_at("f"), "inside");
  EXPECT_EQ(text_at("./f"), "inside");
  EXPECT_EQ(text_at("sub/f"), "deeper");
  EXPECT_EQ(text_at("sub/./f"), "deeper");
  EXPECT_EQ(text_at("link"), "refused");
  EXPECT_EQ(text_at("far"), "refused");
  EXPECT_EQ(text_at("linked/f"), "refused");
  EXPECT_EQ(text_at("f/f"), "refused");
  EXPECT_EQ(text_at("missing"), "refused");
}

INSTANTIATE_TEST_SUITE_P(Ways, Beneath, testing::Values(Way{"openat2", &open_beneath}, Way{"walk", &open_beneath_by_walk}),
                         [](const auto& i) { return std::string(i.param.name); });

TEST_F(Files, OnlyRegularFilesAreReplaced) {
  const std::string fifo = (root_ / "fifo").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { write_file_atomically(fifo, "x", 1); }).status, EVN_ERROR_IO);
  EXPECT_EQ(error_of([&] { write_file_atomically(root_.string(), "x", 1); }).status, EVN_ERROR_IO);
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
}

TEST_F(Files, AFileIsWrittenOfPiecesAndMapped) {
  const std::string path = (root_ / "f").string();
  const Piece pieces[] = {{"one ", 4}, {nullptr, 0}, {"two", 3}};
  write_file_atomically(path, pieces);
  std::shared_ptr<const void> bytes;
  {
    const auto file = open_for_reading(path, 100);
    EXPECT_EQ(file->identity().size, 7u);
    EXPECT_EQ(file->identity().inode, open_for_reading(path, 100)->identity().inode);
    bytes = file->map();
    fault_arm(Seam::kIo, 1, false);
    EXPECT_EQ(file->map(), nullptr);
    fault_arm(Seam::kIo, 0, false);
  }
  write_file_atomically(path, "other", 5);
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(std::string(static_cast<const char*>(bytes.get()), 7), "one two");  // of the file that was opened
}

TEST(Build, HasAnId) {
  EXPECT_GE(own_build_id().size(), 8u);
  EXPECT_EQ(own_build_id(), own_build_id());
}

TEST_F(Files, RefusedCallsBeneathAreIoErrors) {
  write("f", "text");
  bool read = false;
  for (int k = 1; !read; ++k) {
    ASSERT_LT(k, 50);
    fault_arm(Seam::kIo, k, false);
    const Error e = error_of([&] { open_external(root_.string(), "f", {}); });
    fault_arm(Seam::kIo, 0, false);
    read = e.status == EVN_OK;
    EXPECT_TRUE(read || e.status == EVN_ERROR_IO) << k;
  }
}

class Quota : public Files {
 protected:
  int cores(const std::string& membership) {
    write("membership", membership);
    return quota_cores(path("membership").c_str(), root_.c_str());
  }
  void set(const std::string& folder, const std::string& file, const std::string& text) {
    fs::create_directories(root_ / folder);
    write(folder + "/" + file, text);
  }
};

TEST_F(Quota, E09_Version2TakesTheSmallestOnTheWayUp) {
  set(".", "cpu.max", "max 100000\n");
  set("a", "cpu.max", "400000 100000\n");
  set("a/b", "cpu.max", "max 100000\n");
  EXPECT_EQ(cores("0::/a/b\n"), 4);
  set("a/b", "cpu.max", "150000 100000\n");
  EXPECT_EQ(cores("0::/a/b\n"), 2);  // 1.5 is rounded up
  set("a/b", "cpu.max", "50000 100000\n");
  EXPECT_EQ(cores("0::/a/b\n"), 1);
  EXPECT_EQ(cores("0::/\n"), 0);
}

TEST_F(Quota, AGroupThatIsNotVisibleLeavesTheMountsOwn) {
  set(".", "cpu.max", "300000 100000\n");
  EXPECT_EQ(cores("0::/docker/0123\n"), 3);
  EXPECT_EQ(cores("0::/../outside\n"), 3);
}

TEST_F(Quota, E09_Version1ReadsItsOwnFiles) {
  set("cpu,cpuacct/g", "cpu.cfs_quota_us", "200000\n");
  set("cpu,cpuacct/g", "cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores("4:memory:/g\n3:cpu,cpuacct:/g\n"), 2);
  EXPECT_EQ(cores("4:cpuset:/g\n"), 0);
  set("cpu,cpuacct/g", "cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cores("3:cpu,cpuacct:/g\n"), 0);
}

TEST_F(Quota, NonsenseIsNoQuota) {
  for (const char* text : {"", "max", "0 100000", "-5 100000", "100000 0", "x y", "99999999999999999999 1"}) {
    set(".", "cpu.max", text);
    EXPECT_EQ(cores("0::/\n"), 0) << text;
  }
  EXPECT_EQ(cores("garbage"), 0);
  EXPECT_EQ(quota_cores(path("missing").c_str(), root_.c_str()), 0);
}

}  // namespace
}  // namespace evn::os
