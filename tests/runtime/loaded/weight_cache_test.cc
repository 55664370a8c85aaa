// Packed constants that come from a cache file: the same bits as without, and no harm whatever the file holds.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/fault.h"
#include "base/hash.h"
#include "tests/runtime/support.h"

namespace evn::test::weight_cache_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kRows = 300, kInner = 96, kColumns = 80;
constexpr std::size_t kWeightBytes = kInner * kColumns * 4, kTableBytes = kRows * kInner * 4;
// Where the header has what (runtime/loaded/weight_cache.cc), and the rows of the table.
constexpr std::size_t kHeaderBytes = 128, kRowBytes = 64, kBuildAt = 32, kRowsAt = 40, kTableSumAt = 48, kHeaderSumAt = 120;
constexpr std::size_t kOffsetInRow = 40;

std::vector<float> numbers(std::int64_t count, int step) {
  std::vector<float> w(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < w.size(); ++i)
    w[i] = static_cast<float>(static_cast<int>(i * static_cast<std::size_t>(step) % 101) - 50) / 64;
  return w;
}

// y = Relu(Table[x] W) V: a table that is read as it is, and two products that pack.
OnnxWriter network(int step = 37) {
  OnnxWriter m(17);
  m.add_input("x", kI64, {"n"}).add_output("y");
  m.add_initializer("table", {kRows, kInner}, numbers(kRows * kInner, 29));
  m.add_initializer("w", {kInner, kColumns}, numbers(kInner * kColumns, step));
  m.add_initializer("v", {kColumns, kInner}, numbers(kInner * kColumns, 43));
  m.add_node("Gather", {"table", "x"}, {"e"}, {}, "embed").add_node("MatMul", {"e", "w"}, {"p"}, {}, "first");
  m.add_node("Relu", {"p"}, {"r"}).add_node("MatMul", {"r", "v"}, {"y"}, {}, "second");
  return m;
}

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_bytes(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::uint64_t word_at(const std::string& bytes, std::size_t at) {
  std::uint64_t word;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}
void set_word(std::string* bytes, std::size_t at, std::uint64_t word) { std::memcpy(bytes->data() + at, &word, sizeof word); }

// Makes table and header right again after somebody wrote to them.
void sum_up(std::string* bytes) {
  const std::size_t table =
      std::min(static_cast<std::size_t>(word_at(*bytes, kRowsAt)), (bytes->size() - kHeaderBytes) / kRowBytes) * kRowBytes;
  set_word(bytes, kTableSumAt, checksum_of(bytes->data() + kHeaderBytes, table));
  set_word(bytes, kHeaderSumAt, checksum_of(bytes->data(), kHeaderSumAt));
}

struct Draw {
  std::uint64_t state = 1;
  std::size_t operator()(std::size_t below) {
    return static_cast<std::size_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % below;
  }
};

struct WeightCacheTest : RuntimeTest {
  fs::path folder = fs::temp_directory_path() / ("evener_weight_cache_" + std::to_string(getpid()));
  std::string model_path = (folder / "model.onnx").string(), path = (folder / "model.evc").string();
  std::vector<std::string> events;  // of the cache, with the reason for which it is ignored
  bool listening = true;

  void SetUp() override {
    RuntimeTest::SetUp();
    fs::create_directory(folder);
    write_bytes(model_path, network().serialize());
  }
  void TearDown() override {
    fs::remove_all(folder);
    RuntimeTest::TearDown();
  }

  static void take(void* user, const evn_log_record* record) {
    if (!static_cast<WeightCacheTest*>(user)->listening || std::strncmp(record->event, "cache.", 6) != 0) return;
    std::string text = record->event;
    for (std::uint32_t i = 0; i < record->field_count; ++i) {
      if (std::strcmp(record->fields[i].key, "reason") == 0) text += ": " + std::string(record->fields[i].value);
    }
    static_cast<WeightCacheTest*>(user)->events.push_back(text);
  }
  std::shared_ptr<Runtime> open(std::uint64_t cpu_limit = 0, int threads = 2) {
    static constexpr const Backend* kBackends[] = {&cpu_backend};
    RuntimeOptions o;
    o.thread_count = threads;
    o.cpu_memory_limit = cpu_limit;
    o.backends = kBackends;
    o.log.sink = take;
    o.log.sink_user = this;
    o.log.level = EVN_LOG_INFO;
    events.clear();
    return std::make_shared<Runtime>(std::move(o));
  }
  CacheConfig cache(bool map = false, bool write = true) const { return {path, write, map}; }

  static std::vector<HostTensor> outputs(Session& session) {
    std::vector<std::int64_t> ids;
    for (int i = 0; i < 40; ++i) ids.push_back(i * 7 % kRows);
    return run(session, {int_tensor(ids)});
  }
  std::vector<HostTensor> of_file(const CacheConfig& config) {
    TestSession session(load_model_file(open(), model_path), "", config);
    return outputs(session);
  }
  std::vector<HostTensor> without(const std::string& bytes = network().serialize()) {
    const auto runtime = open();
    TestSession session(load_model_buffer(runtime, bytes.data(), bytes.size(), ""), "");
    return outputs(session);
  }
  void expect_same(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) { expect_close(a, b, 0, 0); }

  using Events = std::vector<std::string>;
  const Events used{"cache.opened"};
  // Changes a weight in the model's file, whose size and time of change stay.
  void change_a_weight() {
    const auto time = fs::last_write_time(model_path);
    std::string bytes = read_bytes(model_path);
    const std::string v(reinterpret_cast<const char*>(numbers(kInner * kColumns, 43).data()), kWeightBytes);
    bytes[bytes.find(v) + 3] = static_cast<char>(0x3f);  // -50/64 is so no more
    const int fd = ::open(model_path.c_str(), O_WRONLY);
    ASSERT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    ::close(fd);
    fs::last_write_time(model_path, time);
  }
  static std::size_t bytes_of(const std::shared_ptr<Runtime>& runtime, MemoryClass cls) {
    return runtime->cpu().pool().stats().by_class[static_cast<int>(cls)];
  }
  int files_in_folder() const { return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator())); }
};

template <typename F>
evn_status status_of(F&& body) {
  try {
    body();
    return EVN_OK;
  } catch (const Error& e) {
    return e.status;
  } catch (const std::bad_alloc&) {
    return EVN_ERROR_OUT_OF_MEMORY;
  }
}

TEST_F(WeightCacheTest, TheFirstSessionWritesAndTheNextReads) {
  const auto wanted = without();
  expect_same(of_file(cache()), wanted);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_NE(events[0].find("cache.ignored: cannot open"), std::string::npos) << events[0];
  EXPECT_EQ(events[1], "cache.written");
  const std::string written = read_bytes(path);
  EXPECT_GE(written.size(), 2 * kWeightBytes);
  expect_same(of_file(cache()), wanted);
  EXPECT_EQ(events, used);
  EXPECT_EQ(read_bytes(path), written);
}

TEST_F(WeightCacheTest, PlainWeightsAreNotReadWhereTheCacheHasPackedOnes) {
  const auto wanted = of_file(cache());
  change_a_weight();
  expect_same(of_file(cache()), wanted);  // the file's identity is what it was
  EXPECT_EQ(events, used);
  const auto runtime = open();
  TestSession session(load_model_file(runtime, model_path), "", cache());
  int in_file = 0;
  for (const Value& v : session.graph().values)
    in_file += v.constant != nullptr && v.constant->size_bytes == kWeightBytes && v.constant->data == nullptr;
  EXPECT_EQ(in_file, 2);
  EXPECT_GE(bytes_of(runtime, MemoryClass::kPacked), 2 * kWeightBytes);
}

TEST_F(WeightCacheTest, AMappedFileHasTablesThatAreReadAsTheyAreToo) {
  const auto wanted = without();
  of_file(cache());
  const std::size_t packed_only = read_bytes(path).size();
  expect_same(of_file(cache(true)), wanted);  // what was packed is there, the table is added
  EXPECT_EQ(events, (Events{"cache.opened", "cache.written"}));
  EXPECT_GE(read_bytes(path).size(), packed_only + kTableBytes);
  expect_same(of_file(cache(true)), wanted);
  EXPECT_EQ(events, used);
  const auto runtime = open();
  TestSession session(load_model_file(runtime, model_path), "", cache(true));
  EXPECT_GE(bytes_of(runtime, MemoryClass::kPacked), 2 * kWeightBytes);  // counted, though they are the system's pages
  EXPECT_GE(bytes_of(runtime, MemoryClass::kWeights), kTableBytes);
  expect_same(outputs(session), wanted);
  fs::remove(path);
  expect_same(outputs(session), wanted);
  expect_same(of_file(cache()), wanted);
}

TEST_F(WeightCacheTest, ChangedModelsAreToldApart) {
  of_file(cache());
  write_bytes(model_path, network(41).serialize());
  expect_same(of_file(cache()), without(network(41).serialize()));
  expect_same(of_file(cache()), without(network(41).serialize()));
  ASSERT_NE(without()[0].bytes, without(network(41).serialize())[0].bytes);
  write_bytes(model_path, network().serialize());
  const auto results = of_file(cache());
  EXPECT_EQ(events, (Events{"cache.ignored: it is of another model, or the model has changed", "cache.written"}));
  expect_same(results, without());
}

TEST_F(WeightCacheTest, BuffersAreKnownByTheirBytes) {
  const auto of_buffer = [&](const OnnxWriter& writer) {
    TestSession session(load(open(), writer), "", cache());
    return outputs(session);
  };
  expect_same(of_buffer(network()), without());
  expect_same(of_buffer(network()), without());
  of_buffer(network());
  EXPECT_EQ(events, used);
  expect_same(of_buffer(network(41)), without(network(41).serialize()));
  of_buffer(network());
  EXPECT_EQ(events, (Events{"cache.ignored: it is of another model, or the model has changed", "cache.written"}));
}

TEST_F(WeightCacheTest, AnotherBuildOrInstructionSetHasAFileOfItsOwn) {
  const auto wanted = of_file(cache());
  std::string bytes = read_bytes(path);
  set_word(&bytes, kBuildAt, word_at(bytes, kBuildAt) ^ 1);
  sum_up(&bytes);
  write_bytes(path, bytes);
  expect_same(of_file(cache()), wanted);
  EXPECT_EQ(events, (Events{"cache.ignored: another version of the library has written it, or for another instruction set",
                            "cache.written"}));
  of_file(cache());
  EXPECT_EQ(events, used);
}

TEST_F(WeightCacheTest, SeveralSessionsOfAModelShareWhatIsRead) {
  of_file(cache(true));
  const auto runtime = open();
  const ModelPtr model = load_model_file(runtime, model_path);
  TestSession first(model, "", cache(true));
  const std::size_t before = bytes_of(runtime, MemoryClass::kPacked);
  TestSession second(model, "", cache(true)), third(model, "");
  EXPECT_EQ(bytes_of(runtime, MemoryClass::kPacked), before);
  expect_same(outputs(second), outputs(first));
  expect_same(outputs(third), outputs(first));
}

TEST_F(WeightCacheTest, WhatASessionHasPackedBeforeIsWrittenByTheNext) {
  const auto runtime = open();
  const ModelPtr model = load_model_file(runtime, model_path);
  TestSession first(model, ""), second(model, "", cache());
  EXPECT_EQ(events.back(), "cache.written");
  expect_same(of_file(cache()), outputs(first));
  EXPECT_EQ(events, used);
}

TEST_F(WeightCacheTest, AReadOnlyOneIsNeverWritten) {
  of_file(cache(false, false));
  EXPECT_EQ(events.size(), 1u);
  EXPECT_FALSE(fs::exists(path));
  of_file(cache());
  write_bytes(path, "damaged");
  of_file(cache(false, false));
  EXPECT_EQ(events, Events{"cache.ignored: it is damaged"});
  EXPECT_EQ(read_bytes(path), "damaged");
}

TEST_F(WeightCacheTest, AFolderHasAFileForEachModel) {
  path = (folder / "below" / "").string();
  const auto wanted = of_file(cache());
  write_bytes(folder / "other.onnx", network(41).serialize());
  { TestSession other(load_model_file(open(), (folder / "other.onnx").string()), "", cache()); }
  EXPECT_EQ(events.back(), "cache.written");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "below"), fs::directory_iterator()), 2);
  expect_same(of_file(cache()), wanted);
  EXPECT_EQ(events, used);
}

TEST_F(WeightCacheTest, WhereNothingCanBeWrittenTheSessionIsMadeAllTheSame) {
  const auto wanted = without();
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  for (const fs::path& where : {folder / "no" / "such" / "folder.evc", folder, folder / "fifo", fs::path("/proc/evener.evc")}) {
    path = where.string();
    expect_same(of_file(cache()), wanted);
    ASSERT_EQ(events.size(), 2u) << where;
    EXPECT_NE(events[1].find("cache.not_written: "), std::string::npos) << events[1];
  }
  EXPECT_EQ(files_in_folder(), 2);
  EXPECT_TRUE(fs::is_fifo(folder / "fifo"));
}

TEST_F(WeightCacheTest, TheCapHoldsForMappedBytes) {
  of_file(cache(true));
  const auto runtime = open(kWeightBytes);
  const ModelPtr model = load_model_file(runtime, model_path);
  const std::size_t before = runtime->cpu().pool().stats().current;
  for (const bool map : {true, false})
    EXPECT_EQ(status_of([&] { TestSession session(model, "", cache(map)); }), EVN_ERROR_OUT_OF_MEMORY) << map;
  EXPECT_LE(runtime->cpu().pool().stats().current, before + kWeightBytes);
}

// One byte is changed: in all of the header and the table, and here and there in the constants.
TEST_F(WeightCacheTest, AChangedByteNeverChangesAResult) {
  const auto wanted = of_file(cache(true));
  const std::string good = read_bytes(path);
  const std::size_t structure = kHeaderBytes + kRowBytes * word_at(good, kRowsAt);
  Draw draw;
  int damaged = 0;
  for (std::size_t at = 0; at < good.size(); at += at < structure ? 1 : 1 + draw(4096)) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << draw(8)));
    write_bytes(path, bytes);
    expect_same(of_file(cache(false, false)), wanted);
    damaged += events != used;
    if (at < structure) {
      expect_same(of_file(cache(true, false)), wanted);
      EXPECT_NE(events, used) << at;
    }
  }
  EXPECT_GT(damaged, static_cast<int>(structure));  // of all that is read: paddings and the table are not
  std::string bytes = good;
  bytes[word_at(good, kHeaderBytes + kRowBytes + kOffsetInRow) + 5] ^= 16;
  write_bytes(path, bytes);
  expect_same(of_file(cache()), wanted);
  EXPECT_EQ(events, (Events{"cache.opened", "cache.ignored: damaged", "cache.written"}));
  EXPECT_EQ(read_bytes(path), good);  // all of it, the table of the mapped session included
}

TEST_F(WeightCacheTest, AShorterOrLongerFileIsIgnored) {
  const auto wanted = of_file(cache(true));
  const std::string good = read_bytes(path);
  Draw draw;
  for (std::size_t size = 0; size < good.size(); size += size < 512 ? 1 : 1 + draw(4096)) {
    write_bytes(path, good.substr(0, size));
    const bool map = size % 2 == 0;
    expect_same(of_file(cache(map, false)), wanted);
    EXPECT_NE(events, used) << size;
  }
  write_bytes(path, good + std::string(64, '\0'));
  expect_same(of_file(cache(true, false)), wanted);
  EXPECT_EQ(events, Events{"cache.ignored: it is damaged"});
}

// Wrong offsets, lengths and counts whose checksums are right: somebody means it.
TEST_F(WeightCacheTest, HostileTablesReadNothingOutsideTheFile) {
  const auto wanted = of_file(cache(true));
  const std::string good = read_bytes(path);
  const std::size_t rows = word_at(good, kRowsAt);
  const std::uint64_t words[] = {
      0,        1,     63,         64,         128,        good.size() - 64,          good.size(), good.size() + 64,
      1u << 31, ~0ull, ~0ull - 63, 1ull << 63, ~0ull / 64, good.size() - kWeightBytes};
  Draw draw;
  for (int i = 0; i < 1500; ++i) {
    std::string bytes = good;
    for (std::size_t n = 1 + draw(3); n > 0; --n) {
      const bool header = draw(4) == 0;
      const std::size_t at = header ? 8 * draw(kHeaderBytes / 8) : kHeaderBytes + 8 * draw(rows * kRowBytes / 8);
      set_word(&bytes, at, words[draw(std::size(words))]);
    }
    sum_up(&bytes);
    write_bytes(path, bytes);
    expect_same(of_file(cache(false, false)), wanted);
    // Mapped, a row may point to another's bytes, which are what the file says.
    ASSERT_EQ(of_file(cache(true, false))[0].bytes.size(), wanted[0].bytes.size());
  }
}

// Each allocation and each call of the system is refused once.
TEST_F(WeightCacheTest, RefusalsLeaveNoHarmBehind) {
  const auto wanted = of_file(cache(true));
  const std::string good = read_bytes(path);
  const auto runtime = open();
  const std::size_t before = runtime->cpu().pool().stats().current;
  for (const bool map : {false, true}) {
    for (const bool warm : {false, true}) {
      for (const Seam seam : {Seam::kAlloc, Seam::kIo}) {
        int refused = 0, steps = 0;
        for (std::int64_t k = 1;; ++k, ++steps) {
          if (warm) write_bytes(path, good);
          else fs::remove(path);
          std::vector<HostTensor> results;
          evn_status status = EVN_OK;
          bool hit = false;
          {
            const ModelPtr model = load_model_file(runtime, model_path);
            std::optional<TestSession> session;
            listening = false;
            fault_arm(seam, k, false);
            status = status_of([&] { session.emplace(model, "", cache(map)); });
            hit = fault_count(seam) >= k;
            fault_arm(seam, 0, false);
            listening = true;
            if (session) results = outputs(*session);
          }
          EXPECT_EQ(runtime->cpu().pool().stats().current, before) << k;
          EXPECT_LE(files_in_folder(), 2) << k;  // no temporary file
          if (status == EVN_OK) {
            expect_same(results, wanted);
          } else {
            ASSERT_EQ(status, seam == Seam::kAlloc ? EVN_ERROR_OUT_OF_MEMORY : EVN_ERROR_IO) << k;
            ++refused;
          }
          if (fs::exists(path)) {
            expect_same(of_file(cache(map, false)), wanted);
          }
          if (!hit) break;
        }
        EXPECT_GT(steps, seam == Seam::kAlloc ? 20 : 3);
        EXPECT_GT(refused, seam == Seam::kAlloc ? 3 : -1);
      }
    }
  }
}

TEST_F(WeightCacheTest, SeveralMayWriteAtOnce) {
  const auto wanted = without();
  const std::string from = model_path, to = path;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([from, to] {
      for (int i = 0; i < 8; ++i) {
        const auto runtime = make_runtime({}, 0, 1);
        TestSession session(load_model_file(runtime, from), "", CacheConfig{to, true, i % 2 == 0});
        if (i % 3 == 0) fs::remove(to);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  expect_same(of_file(cache(true)), wanted);
  expect_same(of_file(cache(true)), wanted);
  EXPECT_EQ(events, used);
  EXPECT_EQ(files_in_folder(), 2);
}

}  // namespace
}  // namespace evn::test::weight_cache_test
