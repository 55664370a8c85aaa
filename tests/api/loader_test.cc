// evn_loader_*: which samples come in which batch, and how loaders end.
#include "tests/api/loader_fixture.h"

namespace evn::test::loader_test {
namespace {

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
