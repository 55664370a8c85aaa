// External data: the good cases, and the hostile ones by their ids.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "model/external_files.h"
#include "tests/model/load_helpers.h"

namespace evn {
namespace {

using namespace test;
namespace fs = std::filesystem;

using Entries = std::vector<std::pair<std::string, std::string>>;

constexpr char kSecret[] = "secret__";  // never to be read
constexpr char kGood[] = "good____";

class ExternalData : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "evn-external-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    fs::create_directories(root_ / "model" / "sub");
    write("model/data", kGood);
    write("model/sub/data", kGood);
    write("decoy", kSecret);
    folder_ = (root_ / "model").string();
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& name, std::string_view text) const { std::ofstream(root_ / name) << text; }

  // A model whose only tensor, uint8 [size], stands outside.
  static std::string model(const Entries& entries, std::int64_t size = 8, int dtype = kU8) {
    Proto tensor;
    tensor.varint(1, size).varint(2, dtype).bytes(8, "t").varint(14, 1);
    for (const auto& [key, value] : entries) tensor.message(13, Proto().bytes(1, key).bytes(2, value));
    return OnnxWriter().add_initializer(tensor).add_output("t", 0).serialize();
  }
  // Files are opened anew for each load.
  evn_status status_of(const std::string& bytes_of_model) const {
    ExternalFiles files(folder_, os::FileAccess{roots_, false});
    LoadOptions options = options_;
    options.external = &files;
    return read_status(bytes_of_model, options);
  }
  evn_status status(const Entries& entries, std::int64_t size = 8) const { return status_of(model(entries, size)); }
  evn_status location(const std::string& name) const { return status({{"location", name}}); }
  std::string bytes(const Entries& entries, std::int64_t size = 8) const { return bytes_of(model(entries, size)); }
  std::string bytes_of(const std::string& bytes_of_model) const {
    ExternalFiles files(folder_, os::FileAccess{roots_, false});
    LoadOptions options = options_;
    options.external = &files;
    const Model m = load_bytes(bytes_of_model, options);
    const Weight& w = *m.graph.values.at(0).constant;
    return std::string(w.as<char>(), w.size_bytes);
  }

  fs::path root_;
  std::string folder_;
  std::vector<std::string> roots_;
  LoadOptions options_;
};

TEST_F(ExternalData, ReadsTheRangeThatTheModelNames) {
  EXPECT_EQ(bytes({{"location", "data"}}), kGood);
  EXPECT_EQ(bytes({{"location", "sub/data"}, {"offset", "2"}, {"length", "3"}}, 3), "od_");
  EXPECT_EQ(bytes({{"location", "data"}, {"offset", "4"}}, 4), "____");
  EXPECT_EQ(bytes({{"location", "data"}, {"length", "8"}, {"checksum", "0"}}), kGood);
  EXPECT_EQ(bytes({{"location", "data"}, {"offset", "8"}}, 0), "");
}

TEST_F(ExternalData, UnalignedRangesAreCopiedToAlignedMemory) {
  std::string text = "abc";
  for (const float f : {1.5f, -2.0f}) text.append(reinterpret_cast<const char*>(&f), sizeof f);
  write("model/floats", text);
  ExternalFiles files(folder_);
  options_.external = &files;
  const Model m = load_bytes(model({{"location", "floats"}, {"offset", "3"}, {"length", "8"}}, 2, kF32), options_);
  const Weight& w = *m.graph.values.at(0).constant;
  EXPECT_TRUE(w.aligned);
  EXPECT_EQ(w.as<float>()[0], 1.5f);
  EXPECT_EQ(w.as<float>()[1], -2.0f);
}

// More files than stay open, and allowed roots, by relative paths. In the other folder the same names lead to other files.
TEST_F(ExternalData, FilesAreFoundAgainWhenTheProcessHasMovedToAnotherFolder) {
  constexpr std::size_t kFiles = ExternalFiles::kMostOpen + 6;
  fs::create_directories(root_ / "other" / "model");
  fs::create_directories(root_ / "allowed");
  write("allowed/data", kGood);
  fs::create_symlink("../allowed/data", root_ / "model" / "linked");
  for (std::size_t i = 0; i < kFiles; ++i) {
    write("model/" + std::to_string(i), kGood);
    write("other/model/" + std::to_string(i), kSecret);
  }
  const auto text = [](const ExternalFiles::Opened& opened) {
    std::string read(opened.file->size(), '\0');
    opened.file->read(0, read.data(), read.size());
    return read;
  };
  const fs::path before = fs::current_path();
  fs::current_path(root_);
  ExternalFiles files("model", os::FileAccess{{"allowed"}, false});
  for (std::size_t i = 0; i < kFiles; ++i) EXPECT_EQ(text(files.open(std::to_string(i))), kGood);
  for (const char* folder : {"other", "/"}) {
    fs::current_path(root_ / folder);
    EXPECT_EQ(text(files.open(std::to_string(kFiles - 1))), kGood) << folder;
    EXPECT_EQ(text(files.open("linked")), kGood) << folder;
  }
  fs::current_path(before);
}

TEST_F(ExternalData, BooleansAreNormalised) {
  write("model/bools", std::string_view("\x00\x02\xff", 3));
  EXPECT_EQ(bytes_of(model({{"location", "bools"}}, 3, kBool)), std::string_view("\x00\x01\x01", 3));
}

TEST_F(ExternalData, OffsetsMayLieBeyondFourGigabytes) {
  // A file with a hole takes no room on the disk.
  write("model/large", kGood);
  fs::resize_file(root_ / "model" / "large", 5ull << 30);
  std::fstream file(root_ / "model" / "large", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp((1ll << 32) + 5).write("far away", 8);
  file.seekp((5ll << 30) - 8).write("the  end", 8);
  file.close();
  const auto at = [&](std::uint64_t offset) {
    return bytes({{"location", "large"}, {"offset", std::to_string(offset)}, {"length", "8"}});
  };
  EXPECT_EQ(at((1ull << 32) + 5), "far away");
  EXPECT_EQ(at((5ull << 30) - 8), "the  end");
  EXPECT_EQ(at(0), kGood);
  EXPECT_EQ(at(1ull << 32), std::string(5, '\0') + "far");
  EXPECT_EQ(status({{"location", "large"}, {"offset", std::to_string((5ull << 30) - 7)}, {"length", "8"}}),
            EVN_ERROR_INVALID_MODEL);
}

TEST_F(ExternalData, ATensorMayBeLargerThanTheModelFileMayBe) {
  options_.limits.model_bytes = 1000;
  write("model/wide", std::string(4000, 'w'));
  EXPECT_EQ(status({{"location", "wide"}}, 4000), EVN_OK);
}

TEST_F(ExternalData, AMissingFileIsAnIoError) { EXPECT_EQ(location("nothing"), EVN_ERROR_IO); }

TEST_F(ExternalData, TensorLimitHoldsBeforeTheFileIsRead) {
  options_.limits.tensor_bytes = 7;
  EXPECT_EQ(location("data"), EVN_ERROR_LIMIT);
}

TEST_F(ExternalData, H24_LocationsStayInTheFolder) {
  EXPECT_EQ(location("./data"), EVN_OK);
  EXPECT_EQ(location("./sub/./data"), EVN_OK);
  for (const std::string bad :
       {"/etc/passwd", "../decoy", "sub/../../decoy", "sub/../data", "sub\\..\\..\\decoy", "", "..", "data/", "/"}) {
    EXPECT_EQ(location(bad), EVN_ERROR_INVALID_MODEL) << bad;
  }
  EXPECT_EQ(location((root_ / "model" / "data").string()), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status({{"offset", "0"}}), EVN_ERROR_INVALID_MODEL);
}

TEST_F(ExternalData, H25_LinksAreNotFollowed) {
  fs::create_symlink("data", root_ / "model" / "inside");
  fs::create_symlink("../decoy", root_ / "model" / "outside");
  fs::create_directory_symlink("sub", root_ / "model" / "linked");
  EXPECT_EQ(location("inside"), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(location("outside"), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(location("linked/data"), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(location("sub/data"), EVN_OK);
}

TEST_F(ExternalData, H26_HardLinksAreRefused) {
  fs::create_hard_link(root_ / "decoy", root_ / "model" / "hard");
  EXPECT_EQ(location("hard"), EVN_ERROR_INVALID_MODEL);
  fs::remove(root_ / "decoy");
  EXPECT_EQ(location("hard"), EVN_OK);  // now its only name
}

TEST_F(ExternalData, H27_OnlyRegularFilesAreRead) {
  ASSERT_EQ(::mkfifo((root_ / "model" / "fifo").c_str(), 0600), 0);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = (root_ / "model" / "socket").string();
  ASSERT_LT(path.size(), sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(location("fifo"), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(location("socket"), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(location("sub"), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(location("/proc/self/environ"), EVN_ERROR_INVALID_MODEL);
  ::close(socket);
  folder_ = "/dev";
  EXPECT_EQ(location("zero"), EVN_ERROR_INVALID_MODEL);
  folder_ = "/proc/self";
  EXPECT_EQ(location("environ"), EVN_ERROR_INVALID_MODEL);  // its size is told as 0
}

TEST_F(ExternalData, H28_LocationsHaveALimit) {
  EXPECT_EQ(location(std::string("da\0ta", 5)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(location(std::string(5000, 'x')), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(location(std::string(300, 'x')), EVN_ERROR_INVALID_MODEL);  // longer than a name may be
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += "./";
  EXPECT_EQ(location(deep + "data"), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(location(deep.substr(0, 2 * 63) + "data"), EVN_OK);
}

TEST_F(ExternalData, H29_OffsetsAndLengthsAreDecimalAndInside) {
  const auto place = [&](const std::string& offset, const std::string& length) {
    return status({{"location", "data"}, {"offset", offset}, {"length", length}});
  };
  EXPECT_EQ(place("0", "8"), EVN_OK);
  for (const std::string bad :
       {"-1", "12abc", "0x10", " 1", "+1", "", "1.0", "18446744073709551616", "18446744073709551608", "9", "1"}) {
    EXPECT_EQ(place(bad, "8"), EVN_ERROR_INVALID_MODEL) << bad;
    EXPECT_EQ(place("0", bad), EVN_ERROR_INVALID_MODEL) << bad;
  }
  EXPECT_EQ(place("18446744073709551608", "16"), EVN_ERROR_INVALID_MODEL);  // the sum wraps
  EXPECT_EQ(place("0", "7"), EVN_ERROR_INVALID_MODEL);                      // not the tensor's size
  EXPECT_EQ(status({{"location", "data"}}, 9), EVN_ERROR_INVALID_MODEL);
}

TEST_F(ExternalData, H30_WithoutAFolderThereIsNone) {
  folder_ = "";
  const fs::path before = fs::current_path();
  fs::current_path(root_ / "model");
  EXPECT_EQ(location("data"), EVN_ERROR_INVALID_MODEL);  // the working folder is no default
  fs::current_path(before);
}

TEST_F(ExternalData, H31_KeysAreKnownAndSingle) {
  EXPECT_EQ(status({{"location", "*/_ORT_MEM_ADDR_/*"}, {"offset", "140737488355328"}, {"length", "8"}}),
            EVN_ERROR_IO);  // just a name
  EXPECT_EQ(status({{"location", "data"}, {"basepath", "/"}}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status({{"location", "data"}, {"location", "data"}}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(Entries(1'000'000, {"k", "v"})), EVN_ERROR_INVALID_MODEL);
}

TEST_F(ExternalData, H31_ExternalAndInlineDataExcludeEachOther) {
  const auto entry = Proto().bytes(1, "location").bytes(2, "data");
  const auto tensor = [] { return Proto().varint(1, 8).varint(2, kU8).bytes(8, "t"); };
  const auto read = [&](const Proto& t) { return status_of(OnnxWriter().add_initializer(t).add_output("t", 0).serialize()); };
  EXPECT_EQ(read(tensor().varint(14, 1).message(13, entry)), EVN_OK);
  EXPECT_EQ(read(tensor().varint(14, 1).message(13, entry).bytes(9, kGood)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(read(tensor().message(13, entry).bytes(9, kGood)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(read(tensor().varint(14, 2).message(13, entry)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(read(tensor().varint(14, 1)), EVN_ERROR_INVALID_MODEL);
}

TEST_F(ExternalData, LinksLeadToFilesBeneathAllowedRoots) {
  fs::create_directories(root_ / "blobs");
  write("blobs/data", kGood);
  fs::create_symlink("../blobs/data", root_ / "model" / "link");
  fs::create_symlink("../decoy", root_ / "model" / "outside");
  fs::create_symlink("/dev/zero", root_ / "model" / "device");
  fs::create_directory_symlink("../blobs", root_ / "model" / "folder");
  fs::create_hard_link(root_ / "blobs" / "data", root_ / "model" / "hard");
  fs::create_directory_symlink("blobs", root_ / "alias");
  const auto readable = [&](std::vector<std::string> roots) {
    std::string found;
    for (std::string& root : roots) root.insert(0, root_.string() + "/");
    roots_ = std::move(roots);
    for (const char* name : {"data", "link", "outside", "device", "folder/data", "hard", "folder"}) {
      const evn_status got = location(name);
      EXPECT_TRUE(got == EVN_OK || got == EVN_ERROR_INVALID_MODEL) << name;
      if (got == EVN_OK) found += std::string(found.empty() ? "" : " ") + name;
    }
    return found;
  };
  EXPECT_EQ(readable({}), "data");
  EXPECT_EQ(readable({"blobs"}), "data link folder/data");
  EXPECT_EQ(readable({"alias"}), "data link folder/data");
  EXPECT_EQ(readable({"model"}), "data hard");
  EXPECT_EQ(readable({"blobs", "model"}), "data link folder/data hard");
  fs::create_directories(root_ / "blo");
  EXPECT_EQ(readable({"blo"}), "data");  // the beginning of a name
  roots_ = {(root_ / "nowhere").string()};
  EXPECT_EQ(location("data"), EVN_OK);
  EXPECT_EQ(location("link"), EVN_ERROR_INVALID_MODEL);
}

// Swaps a file and a link to the decoy under one name until told to stop.
struct Flipper {
  fs::path folder, decoy;
  std::atomic<bool> stop{false};
  std::atomic<long> flips{0};
};

void flip(void* p) {
  Flipper& f = *static_cast<Flipper*>(p);
  const std::string name = (f.folder / "flip").string();
  const std::string file = (f.folder / "file.tmp").string();
  const std::string link = (f.folder / "link.tmp").string();
  while (!f.stop) {
    std::ofstream(file) << kGood;
    ::rename(file.c_str(), name.c_str());
    if (::symlink(f.decoy.c_str(), link.c_str()) == 0) ::rename(link.c_str(), name.c_str());
    ++f.flips;
  }
}

TEST_F(ExternalData, H32_AFileThatTurnsIntoALinkIsNeverFollowed) {
  Flipper flipper{root_ / "model", root_ / "decoy"};
  int read = 0, refused = 0;
  {
    os::Thread thread(flip, &flipper);
    const std::string bytes_of_model = model({{"location", "flip"}});
    // On a busy machine one of the two may have the processor for long.
    const auto seen = [&] { return flipper.flips >= 100 && read > 0 && refused > 0; };
    for (int i = 0; i < 10'000 || (i < 10'000'000 && !seen()); ++i) {
      try {
        EXPECT_EQ(bytes_of(bytes_of_model), kGood);
        ++read;
      } catch (const Error& e) {
        // IO: the name was not there yet, or the file was still being written.
        EXPECT_TRUE(e.status == EVN_ERROR_INVALID_MODEL || e.status == EVN_ERROR_IO) << e.message;
        ++refused;
      }
    }
    flipper.stop = true;
  }
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace evn
