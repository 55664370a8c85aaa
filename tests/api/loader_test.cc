// evn_loader_*: which samples come in which batch, producers and how they end, and what is refused.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "evener/train.h"
#include "tests/api/opencl_support.h"
#include "tests/api/support.h"

namespace evn::test::loader_test {
namespace {

constexpr int64_t kSampleDims[2] = {3, 2};

// A data set of which sample i has the floats 10 i .. 10 i + 5 and the label i.
struct Data {
  explicit Data(std::size_t count) : x(count * 6), labels(count) {
    for (std::size_t i = 0; i < count * 6; ++i) x[i] = static_cast<float>(10 * (i / 6) + i % 6);
    std::iota(labels.begin(), labels.end(), 0);
    arrays[0] = {"x", kSampleDims, x.data(), EVN_DTYPE_FLOAT32, 2};
    arrays[1] = {"labels", nullptr, labels.data(), EVN_DTYPE_INT64, 0};
  }
  std::vector<float> x;
  std::vector<int64_t> labels;
  evn_loader_array arrays[2];
};

using Batch = std::vector<int64_t>;  // the numbers of its samples

struct Loaders : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_loader loader = nullptr;
  Data data{23};
  evn_loader_options options = EVN_LOADER_OPTIONS_INIT;

  void SetUp() override {
    evn_runtime_options o = EVN_RUNTIME_OPTIONS_INIT;
    o.thread_count = 1;
    ASSERT_OK(evn_runtime_create(&o, &runtime, &error));
    use(data);
    options.batch = 5;
  }
  void TearDown() override {
    EXPECT_EQ(evn_loader_release(loader), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  }
  void use(const Data& d) {
    options.arrays = d.arrays;
    options.array_count = 2;
    options.sample_count = d.labels.size();
  }
  void make() {
    ASSERT_EQ(evn_loader_release(std::exchange(loader, nullptr)), EVN_OK);
    ASSERT_OK(evn_loader_create(runtime, &options, &loader, &error));
  }
  evn_status next(uint32_t* samples, evn_tensor* tensors) {
    error = EVN_ERROR_INIT;
    return evn_loader_next(loader, tensors, 2, samples, &error);
  }
  // The numbers of the samples of the next batch, whose values are looked at; nothing at the end.
  Batch read() {
    evn_tensor tensors[2] = {};
    uint32_t samples = 0;
    EXPECT_EQ(next(&samples, tensors), EVN_OK) << error.message;
    if (samples == 0) return {};
    evn_tensor_info info = EVN_TENSOR_INFO_INIT;
    EXPECT_OK(evn_tensor_get_info(tensors[0], &info, &error));
    EXPECT_EQ(std::vector<int64_t>(info.dims, info.dims + info.rank), (std::vector<int64_t>{samples, 3, 2}));
    void *x = nullptr, *labels = nullptr;
    EXPECT_OK(evn_tensor_map(tensors[0], EVN_MAP_READ, &x, nullptr, &error));
    EXPECT_OK(evn_tensor_map(tensors[1], EVN_MAP_READ, &labels, nullptr, &error));
    const auto* numbers = static_cast<const int64_t*>(labels);
    for (uint32_t i = 0; i < samples * 6; ++i)
      EXPECT_EQ(static_cast<const float*>(x)[i], static_cast<float>(10 * numbers[i / 6] + i % 6));
    Batch batch(numbers, numbers + samples);
    for (evn_tensor t : tensors) EXPECT_OK(evn_tensor_unmap(t, &error));
    return batch;
  }
  std::vector<Batch> read_epoch(uint64_t epoch, uint64_t first = 0) {
    EXPECT_OK(evn_loader_start_epoch(loader, epoch, first, &error));
    std::vector<Batch> batches;
    for (Batch b = read(); !b.empty(); b = read()) batches.push_back(b);
    EXPECT_TRUE(read().empty());  // it stays at its end
    return batches;
  }
  uint64_t batch_count() {
    uint64_t count = 0;
    EXPECT_OK(evn_loader_batch_count(loader, &count, &error));
    return count;
  }
};

Batch flat(const std::vector<Batch>& batches) {
  Batch all;
  for (const Batch& b : batches) all.insert(all.end(), b.begin(), b.end());
  return all;
}

Batch sorted(Batch b) {
  std::sort(b.begin(), b.end());
  return b;
}

TEST_F(Loaders, GiveSamplesInOrderAndALastBatchThatIsNotFull) {
  for (const uint32_t prefetch : {0u, 1u, 7u}) {
    options.prefetch = prefetch;
    make();
    EXPECT_EQ(batch_count(), 5u);
    std::vector<Batch> batches;  // without a call of evn_loader_start_epoch
    for (Batch b = read(); !b.empty(); b = read()) batches.push_back(b);
    EXPECT_EQ(flat(batches), data.labels);
    ASSERT_EQ(batches.size(), 5u);
    EXPECT_EQ(batches[3], (Batch{15, 16, 17, 18, 19}));
    EXPECT_EQ(batches[4], (Batch{20, 21, 22}));
    EXPECT_EQ(read_epoch(1), batches);
  }
  options.flags = EVN_LOADER_DROP_LAST;
  make();
  EXPECT_EQ(batch_count(), 4u);
  EXPECT_EQ(read_epoch(0).size(), 4u);
  options.batch = 24;
  make();
  EXPECT_EQ(batch_count(), 0u);
  EXPECT_TRUE(read_epoch(0).empty());
}

TEST_F(Loaders, TheOrderIsAFunctionOfSeedAndEpoch) {
  options.flags = EVN_LOADER_SHUFFLE;
  options.seed = 7;
  make();
  const std::vector<Batch> zero = read_epoch(0), one = read_epoch(1);
  EXPECT_EQ(sorted(flat(zero)), data.labels);
  EXPECT_EQ(sorted(flat(one)), data.labels);
  EXPECT_NE(flat(zero), data.labels);
  EXPECT_NE(flat(zero), flat(one));
  EXPECT_EQ(read_epoch(0), zero);
  options.prefetch = 5;
  make();
  EXPECT_EQ(read_epoch(1), one);
  options.seed = 8;
  make();
  EXPECT_NE(read_epoch(1), one);
}

TEST_F(Loaders, AnEpochMayBeginAtAnyBatchAndBeLeftAtAny) {
  options.flags = EVN_LOADER_SHUFFLE;
  make();
  const std::vector<Batch> whole = read_epoch(4);
  for (std::size_t first = 0; first <= whole.size(); ++first) {
    ASSERT_OK(evn_loader_start_epoch(loader, first, 0, &error));
    if (first % 2 == 1) {
      EXPECT_FALSE(read().empty());
    }
    EXPECT_EQ(read_epoch(4, first), std::vector<Batch>(whole.begin() + static_cast<std::ptrdiff_t>(first), whole.end()));
  }
  EXPECT_EQ(evn_loader_start_epoch(loader, 4, 6, &error), EVN_ERROR_INVALID_ARGUMENT);
}

TEST_F(Loaders, RanksDivideEachBatch) {
  options.flags = EVN_LOADER_SHUFFLE;
  for (const uint32_t batch : {5u, 8u, 23u}) {
    options.batch = batch;
    options.rank_count = 0;
    options.rank = 0;
    make();
    const std::vector<Batch> whole = read_epoch(3);
    for (uint32_t ranks = 1; ranks <= 5; ++ranks) {
      std::vector<Batch> joined(whole.size());
      options.rank_count = ranks;
      for (options.rank = 0; options.rank < ranks; ++options.rank) {
        make();
        const std::vector<Batch> part = read_epoch(3);
        ASSERT_EQ(part.size(), batch_count());
        const bool is_left_out = data.labels.size() % batch != 0 && data.labels.size() % batch < ranks;
        EXPECT_EQ(part.size(), whole.size() - (is_left_out ? 1 : 0));
        for (std::size_t b = 0; b < part.size(); ++b) {
          EXPECT_LE(part[b].size(), whole[b].size() / ranks + 1);
          joined[b].insert(joined[b].end(), part[b].begin(), part[b].end());
        }
      }
      for (std::size_t b = 0; b < batch_count(); ++b) EXPECT_EQ(joined[b], whole[b]) << ranks << " ranks, batch " << b;
    }
  }
}

TEST_F(Loaders, TheTensorsAreReused) {
  options.batch = 1;
  options.prefetch = 2;
  make();
  std::vector<evn_tensor> seen;
  uint32_t samples = 0;
  for (int i = 0; i < 23; ++i) {
    evn_tensor tensors[2] = {};
    ASSERT_EQ(next(&samples, tensors), EVN_OK) << error.message;
    if (std::find(seen.begin(), seen.end(), tensors[0]) == seen.end()) seen.push_back(tensors[0]);
  }
  EXPECT_EQ(seen.size(), 3u);
}

TEST_F(Loaders, ABatchThatIsStillMappedEndsTheNextOnes) {
  options.batch = 1;
  options.prefetch = 1;
  make();
  evn_tensor tensors[2] = {}, later[2] = {};
  uint32_t samples = 0;
  void* bytes = nullptr;
  ASSERT_EQ(next(&samples, tensors), EVN_OK);
  ASSERT_OK(evn_tensor_map(tensors[0], EVN_MAP_READ, &bytes, nullptr, &error));
  evn_status status = EVN_OK;
  for (int i = 0; i < 3 && status == EVN_OK; ++i) status = next(&samples, later);
  EXPECT_EQ(status, EVN_ERROR_WRONG_STATE);
  EXPECT_EQ(next(&samples, later), EVN_ERROR_WRONG_STATE);
  ASSERT_OK(evn_tensor_unmap(tensors[0], &error));
  EXPECT_EQ(read_epoch(0).size(), 23u);
}

// ------------------------------------------------------------------------------------------------------ producers --

struct Producer {
  std::atomic<int> calls{0}, released{0};
  std::atomic<bool> waits{false}, is_waiting{false};
  evn_status status = EVN_OK;
  uint64_t fails_at = UINT64_MAX, ends_at = UINT64_MAX;
  uint32_t more = 0;
  evn_loader releases = nullptr;
  evn_status of_release = EVN_OK;
  std::thread::id thread;
  bool same_thread = true;

  static evn_status produce(void* context, const uint64_t* samples, uint32_t count, void* const* buffers, uint32_t* made,
                            evn_error* error) {
    auto& self = *static_cast<Producer*>(context);
    if (self.calls++ == 0) self.thread = std::this_thread::get_id();
    self.same_thread = self.same_thread && self.thread == std::this_thread::get_id();
    if (self.releases != nullptr) self.of_release = evn_loader_release(std::exchange(self.releases, nullptr));
    while (self.waits) {
      self.is_waiting = true;
      std::this_thread::yield();
    }
    uint32_t i = 0;
    for (; i < count && samples[i] < self.ends_at; ++i) {
      if (samples[i] >= self.fails_at) {
        std::snprintf(error->message, sizeof error->message, "sample %d is broken", static_cast<int>(samples[i]));
        return self.status;
      }
      for (int k = 0; k < 6; ++k)
        static_cast<float*>(buffers[0])[6 * i + static_cast<uint32_t>(k)] =
            static_cast<float>(10 * samples[i] + static_cast<uint64_t>(k));
      if (buffers[1] != nullptr) static_cast<int64_t*>(buffers[1])[i] = static_cast<int64_t>(samples[i]);
    }
    EXPECT_EQ(*made, count);
    *made = i + self.more;
    return EVN_OK;
  }
  static void release(void* context) { ++static_cast<Producer*>(context)->released; }
};

struct Producers : Loaders {
  Producer producer;
  void SetUp() override {
    Loaders::SetUp();
    options.produce = Producer::produce;
    options.produce_context = &producer;
    options.produce_release = Producer::release;
    data.arrays[0].data = nullptr;
  }
};

TEST_F(Producers, FillWhatHasNoData) {
  make();  // the labels are copied
  EXPECT_EQ(flat(read_epoch(0)), data.labels);
  data.arrays[1].data = nullptr;
  options.flags = EVN_LOADER_SHUFFLE;
  make();
  EXPECT_EQ(sorted(flat(read_epoch(0))), data.labels);
  EXPECT_EQ(producer.released, 1);
  ASSERT_EQ(evn_loader_release(std::exchange(loader, nullptr)), EVN_OK);
  EXPECT_EQ(producer.released, 2);
}

TEST_F(Producers, AreCalledOnOneThreadThatIsTheLoaders) {
  make();
  read_epoch(0);
  read_epoch(1);
  EXPECT_EQ(producer.calls, 10);
  EXPECT_TRUE(producer.same_thread);
  EXPECT_NE(producer.thread, std::this_thread::get_id());
}

TEST_F(Producers, ThatFailEndNextWithTheirStatus) {
  producer.status = EVN_ERROR_IO;
  producer.fails_at = 12;
  make();
  EXPECT_EQ(read(), (Batch{0, 1, 2, 3, 4}));
  EXPECT_EQ(read(), (Batch{5, 6, 7, 8, 9}));
  evn_tensor tensors[2] = {};
  uint32_t samples = 77;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(next(&samples, tensors), EVN_ERROR_IO);
    EXPECT_STREQ(error.message, "sample 12 is broken");
    EXPECT_EQ(samples, 77u);
    EXPECT_EQ(tensors[0], nullptr);
  }
  producer.fails_at = UINT64_MAX;
  EXPECT_EQ(flat(read_epoch(0, 2)).front(), 10);
}

TEST_F(Producers, ThatMakeAnotherNumberOfSamplesAreRefused) {
  evn_tensor tensors[2] = {};
  uint32_t samples = 0;
  producer.more = 1;
  make();
  EXPECT_EQ(next(&samples, tensors), EVN_ERROR_INVALID_ARGUMENT);
  producer.more = 0;
  producer.ends_at = 3;
  ASSERT_OK(evn_loader_start_epoch(loader, 0, 0, &error));
  EXPECT_EQ(next(&samples, tensors), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "the producer has made 3 samples, 5 were asked for");
}

TEST_F(Producers, AStreamEndsWithABatchThatIsNotFull) {
  options.flags = EVN_LOADER_STREAM;
  options.sample_count = 0;
  data.arrays[1].data = nullptr;
  for (const uint64_t length : {0u, 3u, 5u, 13u, 15u}) {
    producer.ends_at = length;
    options.flags = EVN_LOADER_STREAM;
    make();
    EXPECT_EQ(batch_count(), 0u);
    EXPECT_EQ(flat(read_epoch(0)), Batch(data.labels.begin(), data.labels.begin() + static_cast<std::ptrdiff_t>(length)));
    EXPECT_EQ(read_epoch(1).size(), (length + 4) / 5);
    options.flags = EVN_LOADER_STREAM | EVN_LOADER_DROP_LAST;
    make();
    EXPECT_EQ(read_epoch(0).size(), length / 5);
  }
}

TEST_F(Producers, MayTakeTheirTimeWhileOthersEndTheLoader) {
  producer.waits = true;
  make();
  evn_status status = EVN_OK;
  std::thread reader([&] {
    evn_tensor tensors[2] = {};
    uint32_t samples = 0;
    evn_error own = EVN_ERROR_INIT;
    status = evn_loader_next(loader, tensors, 2, &samples, &own);
  });
  while (!producer.is_waiting) std::this_thread::yield();
  std::thread releaser([&] { EXPECT_EQ(evn_loader_release(loader), EVN_OK); });
  reader.join();  // before the producer has come back
  EXPECT_EQ(status, EVN_ERROR_CANCELLED);
  producer.waits = false;
  releaser.join();
  EXPECT_EQ(producer.released, 1);
  EXPECT_EQ(evn_loader_release(loader), EVN_ERROR_INVALID_HANDLE);
  loader = nullptr;
}

TEST_F(Producers, MayTakeTheirTimeWhileOthersAskForTheNumberOfBatches) {
  producer.waits = true;
  make();
  uint32_t samples = 0;
  std::thread reader([&] {
    evn_tensor tensors[2] = {};
    evn_error own = EVN_ERROR_INIT;
    EXPECT_EQ(evn_loader_next(loader, tensors, 2, &samples, &own), EVN_OK) << own.message;
  });
  while (!producer.is_waiting) std::this_thread::yield();
  EXPECT_EQ(batch_count(), 5u);  // while evn_loader_next waits
  producer.waits = false;
  reader.join();
  EXPECT_EQ(samples, 5u);
}

TEST_F(Producers, MayTakeTheirTimeWhileAnotherEpochIsBegun) {
  producer.waits = true;
  make();
  uint32_t samples = 0;
  std::thread reader([&] {
    evn_tensor tensors[2] = {};
    evn_error own = EVN_ERROR_INIT;
    EXPECT_EQ(evn_loader_next(loader, tensors, 2, &samples, &own), EVN_OK) << own.message;
  });
  while (!producer.is_waiting) std::this_thread::yield();
  std::thread starter([&] { EXPECT_EQ(evn_loader_start_epoch(loader, 1, 4, nullptr), EVN_OK); });
  // The reader gets batch 0 if the producer ends before the epoch is begun, else the last batch of the new epoch.
  producer.waits = false;
  starter.join();
  reader.join();
  EXPECT_TRUE(samples == 5 || samples == 3) << samples;
  EXPECT_EQ(read_epoch(0).size(), 5u);
}

TEST_F(Loaders, TheOrderCountsAgainstTheCapOfMemory) {
  ASSERT_EQ(evn_runtime_release(std::exchange(runtime, nullptr)), EVN_OK);
  evn_runtime_options o = EVN_RUNTIME_OPTIONS_INIT;
  o.thread_count = 1;
  o.cpu_memory_limit_bytes = 16u << 20;
  ASSERT_OK(evn_runtime_create(&o, &runtime, &error));
  static const unsigned char sample = 0;
  const evn_loader_array array = {"x", nullptr, &sample, EVN_DTYPE_UINT8, 0};  // refused before a sample is read
  options.arrays = &array;
  options.array_count = 1;
  options.sample_count = 8u << 20;
  options.flags = EVN_LOADER_SHUFFLE;
  EXPECT_EQ(evn_loader_create(runtime, &options, &loader, &error), EVN_ERROR_OUT_OF_MEMORY);
  options.flags = 0;
  EXPECT_OK(evn_loader_create(runtime, &options, &loader, &error));
}

TEST_F(Producers, CannotReleaseTheirLoader) {
  producer.waits = true;  // until the loader's handle is known
  make();
  ASSERT_OK(evn_loader_start_epoch(loader, 0, 0, &error));
  while (!producer.is_waiting) std::this_thread::yield();
  producer.waits = false;
  read();
  read();
  ASSERT_EQ(evn_loader_release(std::exchange(loader, nullptr)), EVN_OK);
  make();
  producer.releases = loader;
  EXPECT_EQ(read_epoch(0).size(), 5u);
  EXPECT_EQ(producer.of_release, EVN_ERROR_WRONG_STATE);
}

TEST_F(Producers, ARequestOfTheTokenEndsNext) {
  ASSERT_OK(evn_cancel_create(&options.cancel, &error));
  const evn_cancel cancel = options.cancel;
  producer.waits = true;
  make();
  std::thread asker([&] {
    while (!producer.is_waiting) std::this_thread::yield();
    EXPECT_EQ(evn_cancel_request(cancel), EVN_OK);
  });
  evn_tensor tensors[2] = {};
  uint32_t samples = 0;
  EXPECT_EQ(next(&samples, tensors), EVN_ERROR_CANCELLED);
  asker.join();
  EXPECT_EQ(evn_cancel_release(cancel), EVN_OK);
  EXPECT_EQ(next(&samples, tensors), EVN_ERROR_CANCELLED);  // the loader has a hold of its own
  producer.waits = false;
}

// --------------------------------------------------------------------------------------------------------- misuse --

TEST_F(Producers, WrongOptionsAreRefused) {
  const evn_loader_options right = options;
  const auto refused = [&](evn_status want, auto change) {
    options = right;
    data = Data(23);
    data.arrays[0].data = nullptr;
    use(data);
    change(options, data.arrays);
    error = EVN_ERROR_INIT;
    EXPECT_EQ(evn_loader_create(runtime, &options, &loader, &error), want) << error.message;
    EXPECT_NE(error.message[0], '\0');
    EXPECT_EQ(loader, nullptr);
  };
  constexpr evn_status kWrong = EVN_ERROR_INVALID_ARGUMENT;
  static const int64_t kZero[1] = {0}, kHuge[3] = {INT64_MAX, INT64_MAX, 8}, kLong[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  refused(kWrong, [](auto& o, auto*) { o.array_count = 0; });
  refused(kWrong, [](auto& o, auto*) { o.arrays = nullptr; });
  refused(kWrong, [](auto& o, auto*) { o.batch = 0; });
  refused(kWrong, [](auto& o, auto*) { o.batch = UINT32_MAX; });
  refused(kWrong, [](auto& o, auto*) { o.sample_count = 0; });
  refused(kWrong, [](auto& o, auto*) { o.flags = 64; });
  refused(kWrong, [](auto& o, auto*) { o.flags = EVN_LOADER_STREAM; });
  refused(kWrong, [](auto& o, auto*) {
    o.flags = EVN_LOADER_STREAM | EVN_LOADER_SHUFFLE;
    o.sample_count = 0;
  });
  refused(kWrong, [](auto& o, auto*) {  // the labels have data
    o.flags = EVN_LOADER_STREAM;
    o.sample_count = 0;
  });
  refused(kWrong, [](auto& o, auto*) { o.reserved = 1; });
  refused(kWrong, [](auto& o, auto*) { o.prefetch = 1025; });
  refused(kWrong, [](auto& o, auto*) { o.rank = 1; });
  refused(kWrong, [](auto& o, auto*) { o.rank_count = 6; });  // of a batch of 5
  refused(kWrong, [](auto& o, auto*) { o.produce = nullptr; });
  refused(kWrong, [](auto& o, auto*) { o.struct_size = 12; });
  refused(kWrong, [](auto&, auto* a) { a[0].dims = nullptr; });
  refused(kWrong, [](auto&, auto* a) {
    a[0].dims = kZero;
    a[0].rank = 1;
  });
  refused(EVN_ERROR_LIMIT, [](auto&, auto* a) {
    a[0].dims = kHuge;
    a[0].rank = 3;
  });
  refused(EVN_ERROR_LIMIT, [](auto&, auto* a) {
    a[0].dims = kLong;
    a[0].rank = 8;
  });
  refused(EVN_ERROR_LIMIT, [](auto& o, auto*) {
    o.flags = EVN_LOADER_SHUFFLE;
    o.sample_count = uint64_t{1} << 32;
  });
  refused(EVN_ERROR_LIMIT, [](auto& o, auto*) { o.sample_count = UINT64_MAX; });
  for (const evn_dtype dtype : std::initializer_list<evn_dtype>{EVN_DTYPE_UNDEFINED, EVN_DTYPE_STRING, EVN_DTYPE_INT4, -1, 1000})
    refused(EVN_ERROR_UNSUPPORTED, [&](auto&, auto* a) { a[0].dtype = dtype; });
  options = right;
  options.device = "no such device";
  EXPECT_NE(evn_loader_create(runtime, &options, &loader, &error), EVN_OK);
  EXPECT_EQ(producer.released, 0);  // what was refused stays the host's
  EXPECT_EQ(producer.calls, 0);
}

TEST_F(Loaders, WrongArgumentsAreRefused) {
  make();
  const evn_loader stale = loader;
  evn_tensor tensors[2] = {};
  uint32_t samples = 0;
  uint64_t count = 0;
  EXPECT_EQ(evn_loader_create(nullptr, &options, &loader, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_loader_create(runtime, nullptr, &loader, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_loader_create(runtime, &options, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_loader_next(loader, nullptr, 2, &samples, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_loader_next(loader, tensors, 2, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_loader_next(loader, tensors, 1, &samples, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_loader_batch_count(loader, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(read(), (Batch{0, 1, 2, 3, 4}));
  ASSERT_EQ(evn_loader_release(std::exchange(loader, nullptr)), EVN_OK);
  for (evn_loader l : {evn_loader{}, stale, reinterpret_cast<evn_loader>(runtime)}) {
    EXPECT_EQ(evn_loader_next(l, tensors, 2, &samples, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_loader_start_epoch(l, 0, 0, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_loader_batch_count(l, &count, &error), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_loader_release(l), l == nullptr ? EVN_OK : EVN_ERROR_INVALID_HANDLE);
  }
}

TEST_F(Loaders, KeepTheirRuntime) {
  make();
  ASSERT_EQ(evn_runtime_release(std::exchange(runtime, nullptr)), EVN_OK);
  EXPECT_EQ(flat(read_epoch(0)), data.labels);
}

// A tensor that the caller releases is missed, and nothing else is.
TEST_F(Loaders, ATensorThatTheCallerReleasesIsAStatus) {
  options.prefetch = 1;
  make();
  evn_tensor tensors[2] = {};
  uint32_t samples = 0;
  ASSERT_EQ(next(&samples, tensors), EVN_OK);
  ASSERT_EQ(evn_tensor_release(tensors[0]), EVN_OK);
  evn_status status = EVN_OK;
  for (int i = 0; i < 3 && status == EVN_OK; ++i) status = next(&samples, tensors);
  EXPECT_EQ(status, EVN_ERROR_INVALID_HANDLE);
}

TEST(LoaderThreads, MayReadAndStartEpochsAndReleaseAtOnce) {
  evn_runtime runtime = nullptr;
  ASSERT_EQ(evn_runtime_create(nullptr, &runtime, nullptr), EVN_OK);
  Data data(64);
  evn_loader_options options = EVN_LOADER_OPTIONS_INIT;
  options.arrays = data.arrays;
  options.array_count = 2;
  options.sample_count = 64;
  options.batch = 4;
  options.flags = EVN_LOADER_SHUFFLE;
  for (int round = 0; round < 20; ++round) {
    evn_loader loader = nullptr;
    ASSERT_EQ(evn_loader_create(runtime, &options, &loader, nullptr), EVN_OK);
    std::atomic<int> given{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        evn_status status = EVN_OK;
        for (uint64_t i = 0; status == EVN_OK; ++i) {
          evn_tensor tensors[2];
          uint32_t samples = 0;
          status =
              t == 0 ? evn_loader_start_epoch(loader, i, i % 17, nullptr) : evn_loader_next(loader, tensors, 2, &samples, nullptr);
          if (samples > 0) ++given;
        }
        EXPECT_TRUE(status == EVN_ERROR_CANCELLED || status == EVN_ERROR_INVALID_HANDLE) << status;
      });
    }
    while (given < 40) std::this_thread::yield();
    EXPECT_EQ(evn_loader_release(loader), EVN_OK);
    for (std::thread& t : threads) t.join();
  }
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
}

// --------------------------------------------------------------------------------------------------------- device --

using OpenClLoaders = OpenClApiTest;

TEST_F(OpenClLoaders, BatchesAreCopiedToTheDeviceAhead) {
  make_runtime();
  Data data(11);
  evn_loader_options options = EVN_LOADER_OPTIONS_INIT;
  options.arrays = data.arrays;
  options.array_count = 2;
  options.sample_count = 11;
  options.batch = 4;
  options.device = "opencl:0";
  evn_loader loader = nullptr;
  ASSERT_OK(evn_loader_create(runtime, &options, &loader, &error));
  for (int epoch = 0; epoch < 2; ++epoch) {
    ASSERT_OK(evn_loader_start_epoch(loader, 0, 0, &error));
    for (uint32_t first = 0;; first += 4) {
      const uint32_t want = first < 8 ? 4 : first == 8 ? 3 : 0;
      evn_tensor tensors[2] = {};
      uint32_t samples = 0;
      ASSERT_OK(evn_loader_next(loader, tensors, 2, &samples, &error));
      ASSERT_EQ(samples, want);
      if (want == 0) break;
      evn_tensor_info info = EVN_TENSOR_INFO_INIT;
      ASSERT_OK(evn_tensor_get_info(tensors[0], &info, &error));
      EXPECT_STREQ(info.device, "opencl:0");
      const std::vector<float> values = read(tensors[0]);
      ASSERT_EQ(values.size(), want * 6u);
      EXPECT_EQ(values, std::vector<float>(data.x.begin() + 6 * first, data.x.begin() + 6 * (first + want)));
    }
  }
  EXPECT_EQ(evn_loader_release(loader), EVN_OK);
}

}  // namespace
}  // namespace evn::test::loader_test
