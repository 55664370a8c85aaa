// A data set and a loader of it, for tests.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "evener/train.h"
#include "tests/api/opencl_support.h"
#include "tests/api/support.h"

namespace evn::test::loader_test {

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

inline Batch flat(const std::vector<Batch>& batches) {
  Batch all;
  for (const Batch& b : batches) all.insert(all.end(), b.begin(), b.end());
  return all;
}

inline Batch sorted(Batch b) {
  std::sort(b.begin(), b.end());
  return b;
}

}  // namespace evn::test::loader_test
