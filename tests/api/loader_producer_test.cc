// Loaders whose samples a host produces: how producers fill, fail and end, and options that are refused.
#include "tests/api/loader_fixture.h"

namespace evn::test::loader_test {
namespace {

struct Producer {
  std::atomic<int> calls{0}, released{0};
  std::atomic<bool> waits{false}, is_waiting{false};
  evn_status status = EVN_OK;
  uint64_t fails_at = UINT64_MAX, ends_at = UINT64_MAX;
  uint32_t more = 0;
  evn_loader calls_with = nullptr;
  evn_status of_release = EVN_OK, of_start = EVN_OK, of_next = EVN_OK;
  std::thread::id thread;
  bool same_thread = true;

  static evn_status produce(void* context, const uint64_t* samples, uint32_t count, void* const* buffers, uint32_t* made,
                            evn_error* error) {
    auto& self = *static_cast<Producer*>(context);
    if (self.calls++ == 0) self.thread = std::this_thread::get_id();
    self.same_thread = self.same_thread && self.thread == std::this_thread::get_id();
    if (const evn_loader own = std::exchange(self.calls_with, nullptr); own != nullptr) {
      evn_tensor tensors[2] = {};
      uint32_t given = 0;
      self.of_start = evn_loader_start_epoch(own, 3, 0, nullptr);
      self.of_next = evn_loader_next(own, tensors, 2, &given, nullptr);
      self.of_release = evn_loader_release(own);
    }
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

TEST_F(Producers, ABatchWhoseViewsCannotBeMadeLeavesTheCallersTensorsAsTheyWere) {
  options.flags = EVN_LOADER_STREAM;
  options.sample_count = 0;
  data.arrays[1].data = nullptr;
  producer.ends_at = 3;
  make();
  std::vector<evn_cancel> all;  // handles, until there are no more
  for (evn_cancel cancel = nullptr; evn_cancel_create(&cancel, nullptr) == EVN_OK;) all.push_back(cancel);
  evn_tensor tensors[2] = {};
  uint32_t samples = 77;
  EXPECT_EQ(next(&samples, tensors), EVN_ERROR_LIMIT);
  EXPECT_EQ(tensors[0], nullptr);
  EXPECT_EQ(tensors[1], nullptr);
  EXPECT_EQ(samples, 77u);
  for (const evn_cancel cancel : all) EXPECT_EQ(evn_cancel_release(cancel), EVN_OK);
  EXPECT_EQ(flat(read_epoch(1)), (Batch{0, 1, 2}));
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

// While another thread waits in evn_loader_next.
TEST_F(Producers, CannotReleaseTheirLoaderOrAskItForBatches) {
  producer.waits = true;  // until the loader's handle is known
  make();
  ASSERT_OK(evn_loader_start_epoch(loader, 0, 0, &error));
  while (!producer.is_waiting) std::this_thread::yield();
  producer.waits = false;
  read();
  read();
  ASSERT_EQ(evn_loader_release(std::exchange(loader, nullptr)), EVN_OK);
  make();
  producer.calls_with = loader;
  EXPECT_EQ(read_epoch(0).size(), 5u);
  EXPECT_EQ(producer.of_release, EVN_ERROR_WRONG_STATE);
  EXPECT_EQ(producer.of_start, EVN_ERROR_WRONG_STATE);
  EXPECT_EQ(producer.of_next, EVN_ERROR_WRONG_STATE);
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

}  // namespace
}  // namespace evn::test::loader_test
