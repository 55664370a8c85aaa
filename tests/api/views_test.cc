// evn_tensor_create_view, and maps of several readers: what a view is and keeps, what it shares with its tensor, and what callers
// do wrong.
#include <atomic>
#include <thread>

#include "api/dlpack.h"
#include "base/fault.h"
#include "tests/api/opencl_support.h"

namespace evn::test::views_test {
namespace {

struct Views : ApiTest {
  evn_tensor make(evn_dtype dtype, std::vector<int64_t> shape) {
    evn_tensor t = nullptr;
    EXPECT_OK(evn_tensor_create(cpu, dtype, shape.data(), static_cast<uint32_t>(shape.size()), 0, &t, &error));
    return t;
  }
  evn_tensor view(evn_tensor of, uint64_t first, std::vector<int64_t> shape) {
    evn_tensor t = nullptr;
    EXPECT_OK(evn_tensor_create_view(of, first, shape.data(), static_cast<uint32_t>(shape.size()), &t, &error));
    return t;
  }
  evn_status status_of(evn_tensor of, uint64_t first, std::vector<int64_t> shape) {
    evn_tensor t = nullptr;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_tensor_create_view(of, first, shape.data(), static_cast<uint32_t>(shape.size()), &t, &error);
    EXPECT_EQ(t != nullptr, status == EVN_OK);
    EXPECT_EQ(evn_tensor_release(t), EVN_OK);
    return status;
  }
  float* address(evn_tensor t) {
    void* data = nullptr;
    EXPECT_OK(evn_tensor_map(t, EVN_MAP_READ, &data, nullptr, &error));
    EXPECT_OK(evn_tensor_unmap(t, &error));
    return static_cast<float*>(data);
  }
  void release(std::initializer_list<evn_tensor> tensors) {
    for (evn_tensor t : tensors) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  }
};

TEST_F(Views, ArePartsOfTheMemory) {
  const evn_tensor whole = make(EVN_DTYPE_FLOAT32, {4, 3, 2});
  const evn_tensor row = view(whole, 6, {3, 2}), flat = view(whole, 0, {24}), scalar = view(whole, 23, {});
  const evn_tensor inner = view(row, 2, {2, 1});
  EXPECT_EQ(address(row), address(whole) + 6);
  EXPECT_EQ(address(flat), address(whole));
  EXPECT_EQ(address(scalar), address(whole) + 23);
  EXPECT_EQ(address(inner), address(whole) + 8);
  evn_tensor_info info = EVN_TENSOR_INFO_INIT;
  ASSERT_OK(evn_tensor_get_info(row, &info, &error));
  EXPECT_EQ(info.rank, 2u);
  EXPECT_EQ(info.dims[0], 3);
  EXPECT_EQ(info.dims[1], 2);
  EXPECT_EQ(info.size_bytes, 24u);
  EXPECT_EQ(info.dtype, EVN_DTYPE_FLOAT32);
  EXPECT_STREQ(info.device, "cpu");
  address(whole)[9] = 5;
  EXPECT_EQ(address(inner)[1], 5.0f);
  // The memory stays as long as any of them does.
  release({whole, row, flat, scalar});
  EXPECT_EQ(address(inner)[1], 5.0f);
  release({inner});
}

TEST_F(Views, OfNoElements) {
  const evn_tensor whole = make(EVN_DTYPE_FLOAT32, {3}), none = make(EVN_DTYPE_FLOAT32, {0, 5});
  for (evn_tensor t :
       {view(whole, 3, {0}), view(whole, 1, {2, 0}), view(none, 0, {0}), view(whole, 0, {INT64_MAX, INT64_MAX, 0})}) {
    EXPECT_EQ(address(t), nullptr);
    release({t});
  }
  EXPECT_EQ(status_of(whole, 4, {0}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(none, 0, {}), EVN_ERROR_INVALID_ARGUMENT);
  release({whole, none});
}

TEST_F(Views, HostileNumbers) {
  const evn_tensor whole = make(EVN_DTYPE_FLOAT32, {4, 3});
  EXPECT_EQ(status_of(whole, 0, {4, 3}), EVN_OK);
  EXPECT_EQ(status_of(whole, 0, {13}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("12 elements"), std::string::npos) << error.message;
  EXPECT_EQ(status_of(whole, 1, {12}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(whole, 12, {}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(whole, UINT64_MAX, {1}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(whole, UINT64_MAX - 1, {4}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(whole, UINT64_MAX / 4 + 2, {1}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(whole, 0, {INT64_MAX}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(whole, 0, {INT64_MAX, INT64_MAX, 4}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(whole, 0, {int64_t{1} << 32, int64_t{1} << 32}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(whole, 0, {-1}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(whole, 0, {INT64_MIN, 0}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(whole, 0, {1, 1, 1, 1, 1, 1, 1, 12}), EVN_OK);
  EXPECT_EQ(status_of(whole, 0, {1, 1, 1, 1, 1, 1, 1, 1, 12}), EVN_ERROR_LIMIT);
  evn_tensor out = nullptr;
  const int64_t one[] = {1};
  EXPECT_EQ(evn_tensor_create_view(whole, 0, nullptr, 1, &out, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_create_view(whole, 0, one, 1, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_create_view(nullptr, 0, one, 1, &out, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_tensor_create_view(whole, 0, nullptr, 0, &out, nullptr), EVN_OK);
  release({whole, out});
  EXPECT_EQ(evn_tensor_create_view(whole, 0, one, 1, &out, &error), EVN_ERROR_INVALID_HANDLE);
  const evn_tensor strings = make(EVN_DTYPE_STRING, {3});
  EXPECT_EQ(status_of(strings, 0, {3}), EVN_ERROR_UNSUPPORTED);
  release({strings});
}

TEST_F(Views, OfElementsOfLessThanAByte) {
  const evn_tensor fours = make(EVN_DTYPE_UINT4, {7}), twos = make(EVN_DTYPE_INT2, {9});
  EXPECT_EQ(status_of(fours, 2, {4}), EVN_OK);
  EXPECT_EQ(status_of(fours, 2, {5}), EVN_OK);  // to the tensor's own end
  EXPECT_EQ(status_of(fours, 1, {2}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(fours, 2, {3}), EVN_ERROR_INVALID_ARGUMENT);  // the rest of its last byte would be another's
  EXPECT_EQ(status_of(fours, 0, {8}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(twos, 4, {5}), EVN_OK);
  EXPECT_EQ(status_of(twos, 8, {}), EVN_OK);
  EXPECT_EQ(status_of(twos, 2, {4}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(twos, 4, {2}), EVN_ERROR_INVALID_ARGUMENT);
  const evn_tensor part = view(fours, 2, {4});
  evn_tensor_info info = EVN_TENSOR_INFO_INIT;
  ASSERT_OK(evn_tensor_get_info(part, &info, &error));
  EXPECT_EQ(info.size_bytes, 2u);
  release({fours, twos, part});
}

// Wrapped memory goes when the last of tensor and views goes.
TEST_F(Views, KeepTheDeleterFromRunning) {
  static std::atomic<int> deleted;
  deleted = 0;
  const int64_t count[] = {static_cast<int64_t>(values.size())};
  evn_tensor whole = nullptr;
  ASSERT_OK(evn_tensor_wrap(
      runtime, values.data(), values.size() * 4, EVN_DTYPE_FLOAT32, count, 1, [](void*, void*) { ++deleted; }, nullptr, &whole,
      &error));
  const evn_tensor a = view(whole, 1, {2}), b = view(a, 1, {1});
  release({whole, a});
  EXPECT_EQ(deleted, 0);
  EXPECT_EQ(address(b), values.data() + 2);
  release({b});
  EXPECT_EQ(deleted, 1);
}

TEST_F(Views, GoToOtherLibraries) {
  const evn_tensor whole = make(EVN_DTYPE_FLOAT32, {4, 3});
  const evn_tensor row = view(whole, 3, {1, 3});
  void* managed = nullptr;
  ASSERT_OK(evn_tensor_to_dlpack(row, 0, &managed, &error));
  float* const begin = address(whole);
  release({whole, row});
  auto* m = static_cast<dlpack::ManagedVersioned*>(managed);
  EXPECT_EQ(static_cast<char*>(m->view.data) + m->view.byte_offset, reinterpret_cast<char*>(begin + 3));
  static_cast<float*>(m->view.data)[2] = 1;  // there yet
  // And back, as a read-only one, whose views are read-only.
  m->flags |= dlpack::kReadOnly;
  evn_tensor read_only = nullptr;
  ASSERT_OK(evn_tensor_from_dlpack(runtime, managed, 0, &read_only, &error));
  const evn_tensor part = view(read_only, 2, {1});
  evn_tensor_info info = EVN_TENSOR_INFO_INIT;
  ASSERT_OK(evn_tensor_get_info(part, &info, &error));
  EXPECT_EQ(info.flags, static_cast<uint32_t>(EVN_TENSOR_READ_ONLY));
  void* data = nullptr;
  EXPECT_EQ(evn_tensor_map(part, EVN_MAP_WRITE, &data, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(*address(part), 1.0f);
  const evn_tensor source = make(EVN_DTYPE_FLOAT32, {1});
  EXPECT_EQ(evn_tensor_copy(source, part, &error), EVN_ERROR_INVALID_ARGUMENT);
  release({read_only, part, source});
}

TEST_F(Views, ServeRunsAsInputsAndOutputs) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * static_cast<float>(i % 50);
  const evn_tensor x = input();
  evn_tensor want = nullptr;
  ASSERT_OK(evn_session_run(session, &x, 1, &want, 1, nullptr, &error));
  const evn_tensor all = make(EVN_DTYPE_FLOAT32, {1 + 2 * 3 * 8 * 8 + 2 * 10 + 1});
  const evn_tensor in = view(all, 1, {2, 3, 8, 8});
  evn_tensor out = view(all, 1 + 384, {2, 10});
  std::copy(values.begin(), values.end(), address(in));
  address(all)[0] = address(all)[405] = 7;
  ASSERT_OK(evn_session_run(session, &in, 1, &out, 1, nullptr, &error));
  EXPECT_EQ(std::memcmp(address(out), address(want), 20 * 4), 0);
  EXPECT_EQ(std::memcmp(address(in), values.data(), values.size() * 4), 0);
  EXPECT_EQ(address(all)[0], 7.0f);
  EXPECT_EQ(address(all)[405], 7.0f);
  // A view and its tensor, and two views, overlap.
  evn_tensor over = view(all, 380, {2, 10});
  EXPECT_EQ(evn_session_run(session, &in, 1, &over, 1, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("output 0 overlaps input 0"), std::string::npos) << error.message;
  release({x, want, all, in, out, over});
}

// One row of a batch after the other, each in its place: no copies are needed to split or join.
TEST_F(Views, OfRowsOfABatch) {
  const evn_tensor x = input();
  const evn_tensor joined = make(EVN_DTYPE_FLOAT32, {2, 10});
  for (uint64_t row = 0; row < 2; ++row) {
    const evn_tensor in = view(x, row * 192, {1, 3, 8, 8});
    evn_tensor out = view(joined, row * 10, {1, 10});
    ASSERT_OK(evn_session_run(session, &in, 1, &out, 1, nullptr, &error));
    release({in, out});
  }
  evn_tensor want = nullptr;
  ASSERT_OK(evn_session_run(session, &x, 1, &want, 1, nullptr, &error));
  EXPECT_EQ(std::memcmp(address(joined), address(want), 20 * 4), 0);
  release({x, joined, want});
}

TEST_F(Views, MayBeCopiedIntoEachOther) {
  const evn_tensor whole = make(EVN_DTYPE_FLOAT32, {8});
  for (int i = 0; i < 8; ++i) address(whole)[i] = static_cast<float>(i);
  const evn_tensor low = view(whole, 0, {5}), high = view(whole, 3, {5});
  ASSERT_OK(evn_tensor_copy(low, high, &error));
  EXPECT_EQ(std::vector<float>(address(whole), address(whole) + 8), (std::vector<float>{0, 1, 2, 0, 1, 2, 3, 4}));
  ASSERT_OK(evn_tensor_copy(whole, whole, &error));
  EXPECT_EQ(address(whole)[7], 4.0f);
  release({whole, low, high});
}

TEST_F(Views, AreFreeOfLeaksWhateverAllocationFails) {
  const evn_tensor whole = make(EVN_DTYPE_FLOAT32, {8});
  const int64_t two[] = {2};
  for (int k = 1;; ++k) {
    evn_tensor part = nullptr;
    fault_arm(Seam::kAlloc, k, false);
    const evn_status status = evn_tensor_create_view(whole, 2, two, 1, &part, &error);
    const bool reached = fault_count(Seam::kAlloc) >= k;
    fault_arm(Seam::kAlloc, 0, false);
    EXPECT_EQ(status, reached ? EVN_ERROR_OUT_OF_MEMORY : EVN_OK);
    EXPECT_EQ(part != nullptr, status == EVN_OK);
    release({part});
    if (!reached) break;
    ASSERT_LT(k, 100);
  }
  release({whole});
}

// ----------------------------------------------------------------------------------------------------------------- maps --

TEST_F(Views, SeveralReadersMapAtOnce) {
  const evn_tensor whole = make(EVN_DTYPE_FLOAT32, {4}), part = view(whole, 2, {2});
  void *a = nullptr, *b = nullptr, *c = nullptr;
  ASSERT_OK(evn_tensor_map(whole, EVN_MAP_READ, &a, nullptr, &error));
  ASSERT_OK(evn_tensor_map(whole, EVN_MAP_READ, &b, nullptr, &error));
  ASSERT_OK(evn_tensor_map(part, EVN_MAP_READ, &c, nullptr, &error));
  EXPECT_EQ(a, b);
  EXPECT_EQ(static_cast<float*>(a) + 2, c);
  for (const evn_tensor t : {whole, part}) {
    for (const uint32_t flags : {uint32_t{EVN_MAP_WRITE}, uint32_t{EVN_MAP_READ | EVN_MAP_WRITE}})
      EXPECT_EQ(evn_tensor_map(t, flags, &c, nullptr, &error), EVN_ERROR_WRONG_STATE);
  }
  EXPECT_OK(evn_tensor_unmap(whole, &error));
  EXPECT_OK(evn_tensor_unmap(whole, &error));
  EXPECT_EQ(evn_tensor_unmap(whole, &error), EVN_ERROR_WRONG_STATE);  // the view is mapped, it is not
  EXPECT_EQ(evn_tensor_map(whole, EVN_MAP_WRITE, &a, nullptr, &error), EVN_ERROR_WRONG_STATE);
  EXPECT_OK(evn_tensor_unmap(part, &error));
  // Who writes is alone.
  ASSERT_OK(evn_tensor_map(part, EVN_MAP_WRITE, &a, nullptr, &error));
  for (const evn_tensor t : {whole, part}) {
    EXPECT_EQ(evn_tensor_map(t, EVN_MAP_READ, &c, nullptr, &error), EVN_ERROR_WRONG_STATE);
    EXPECT_EQ(evn_tensor_map(t, EVN_MAP_WRITE, &c, nullptr, &error), EVN_ERROR_WRONG_STATE);
  }
  EXPECT_OK(evn_tensor_unmap(part, &error));
  EXPECT_EQ(evn_tensor_unmap(part, &error), EVN_ERROR_WRONG_STATE);
  // A view that is released while it is mapped leaves its tensor free.
  ASSERT_OK(evn_tensor_map(part, EVN_MAP_READ, &a, nullptr, &error));
  ASSERT_OK(evn_tensor_map(part, EVN_MAP_READ, &a, nullptr, &error));
  release({part});
  ASSERT_OK(evn_tensor_map(whole, EVN_MAP_WRITE, &a, nullptr, &error));
  EXPECT_OK(evn_tensor_unmap(whole, &error));
  // So does a tensor whose view stays, unless another handle of the tensor is left to end the map.
  const evn_tensor rest = view(whole, 0, {2});
  ASSERT_OK(evn_tensor_map(whole, EVN_MAP_WRITE, &a, nullptr, &error));
  evn_value value = nullptr;
  evn_tensor same = nullptr;
  ASSERT_OK(evn_value_from_tensor(whole, &value, &error));
  ASSERT_OK(evn_value_get_tensor(value, &same, &error));
  ASSERT_EQ(evn_value_release(value), EVN_OK);
  release({whole});
  EXPECT_EQ(evn_tensor_map(rest, EVN_MAP_READ, &a, nullptr, &error), EVN_ERROR_WRONG_STATE);
  release({same});
  ASSERT_OK(evn_tensor_map(rest, EVN_MAP_WRITE, &a, nullptr, &error));
  EXPECT_OK(evn_tensor_unmap(rest, &error));
  release({rest});
}

// Threads that read at once, with one that writes when it finds nobody reading: each map sees whole writes.
TEST_F(Views, MapsOfManyThreads) {
  constexpr int kThreads = 8, kRounds = 2000;
  const evn_tensor whole = make(EVN_DTYPE_INT32, {64});
  const evn_tensor parts[] = {view(whole, 0, {32}), view(whole, 32, {32})};
  std::atomic<int> wrong{0}, read{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const evn_tensor mine = t % 3 == 2 ? whole : parts[t % 3];
      for (int round = 0; round < kRounds; ++round) {
        void* data = nullptr;
        std::size_t size = 0;
        const bool writes = t == 0;
        const evn_tensor target = writes ? whole : mine;
        const evn_status status = evn_tensor_map(target, writes ? EVN_MAP_WRITE : EVN_MAP_READ, &data, &size, nullptr);
        if (status == EVN_ERROR_WRONG_STATE) continue;
        if (status != EVN_OK) {
          ++wrong;
          continue;
        }
        auto* const elements = static_cast<int32_t*>(data);
        for (std::size_t i = 0; i < size / 4; ++i) {
          if (writes) elements[i] = round;
          else if (elements[i] != elements[0]) ++wrong;
        }
        if (!writes) ++read;
        if (evn_tensor_unmap(target, nullptr) != EVN_OK) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  void* data = nullptr;
  ASSERT_OK(evn_tensor_map(whole, EVN_MAP_WRITE, &data, nullptr, &error));  // nothing is left behind
  ASSERT_OK(evn_tensor_unmap(whole, &error));
  release({whole, parts[0], parts[1]});
}

// -------------------------------------------------------------------------------------------------------------- OpenCL --

struct OpenClViews : OpenClApiTest {
  evn_tensor view(evn_tensor of, uint64_t first, std::vector<int64_t> shape) {
    evn_tensor t = nullptr;
    EXPECT_OK(evn_tensor_create_view(of, first, shape.data(), static_cast<uint32_t>(shape.size()), &t, &error));
    return t;
  }
};

TEST_F(OpenClViews, BeginAtTheDevicesAlignment) {
  make_runtime();
  const evn_tensor whole = create(gpu, {4, 32});
  write(whole, ramp(128));
  evn_tensor none = nullptr;
  const int64_t two[] = {2};
  EXPECT_EQ(evn_tensor_create_view(whole, 1, two, 1, &none, &error), EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(error.device, "opencl:0");
  EXPECT_EQ(none, nullptr);
  const evn_tensor row = view(whole, 32, {32}), inner = view(row, 0, {3}), last = view(whole, 128, {0});
  EXPECT_EQ(read(row), ramp(32, 32));
  EXPECT_EQ(read(inner), ramp(3, 32));
  EXPECT_EQ(read(last), std::vector<float>());
  write(inner, {7, 8, 9});
  std::vector<float> all = ramp(128);
  std::copy_n(ramp(3, 7).begin(), 3, all.begin() + 32);
  EXPECT_EQ(read(whole), all);
  for (evn_tensor t : {whole, inner, last}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  EXPECT_EQ(read(row)[0], 7.0f);
  EXPECT_EQ(evn_tensor_release(row), EVN_OK);
}

TEST_F(OpenClViews, ServeRuns) {
  make_runtime();
  evn_model model = nullptr;
  evn_session session = nullptr;
  load_relu(&model, &session);
  const evn_tensor whole = create(gpu, {3, 32});
  write(whole, ramp(96, -48));
  const evn_tensor in = view(whole, 32, {1, 1, 1, 32});
  evn_tensor out = view(whole, 64, {1, 1, 1, 32});
  ASSERT_OK(evn_session_run(session, &in, 1, &out, 1, nullptr, &error));
  std::vector<float> want = ramp(96, -48);
  for (int i = 0; i < 32; ++i) want[64 + i] = std::max(0.0f, want[32 + i]);
  EXPECT_EQ(read(whole), want);
  ASSERT_OK(evn_tensor_copy(in, out, &error));
  EXPECT_EQ(read(out), ramp(32, -16));
  // Within one memory, also where both have bytes in common.
  const evn_tensor low = view(whole, 0, {64}), high = view(whole, 32, {64});
  ASSERT_OK(evn_tensor_copy(low, high, &error));
  EXPECT_EQ(read(high), ramp(64, -48));
  // A run or a copy of a view uses the tensor, and the other way round.
  void* data = nullptr;
  ASSERT_OK(evn_tensor_map(whole, EVN_MAP_READ, &data, nullptr, &error));
  EXPECT_EQ(evn_session_run(session, &in, 1, &out, 1, nullptr, &error), EVN_ERROR_WRONG_STATE);
  ASSERT_OK(evn_tensor_unmap(whole, &error));
  ASSERT_OK(evn_tensor_map(low, EVN_MAP_READ, &data, nullptr, &error));
  EXPECT_EQ(evn_tensor_copy(high, low, &error), EVN_ERROR_WRONG_STATE);
  ASSERT_OK(evn_tensor_unmap(low, &error));
  for (evn_tensor t : {whole, in, out, low, high}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
}

TEST_F(OpenClViews, ReadersShareOneTransfer) {
  driver->have_own_memory();
  make_runtime();
  const evn_tensor whole = create(gpu, {64});
  write(whole, ramp(64));
  const int reads = driver->calls(OpenClDriver::kRead);
  void *a = nullptr, *b = nullptr;
  ASSERT_OK(evn_tensor_map(whole, EVN_MAP_READ, &a, nullptr, &error));
  ASSERT_OK(evn_tensor_map(whole, EVN_MAP_READ, &b, nullptr, &error));
  EXPECT_EQ(a, b);
  EXPECT_EQ(driver->calls(OpenClDriver::kRead) - reads, 1);
  const evn_tensor part = view(whole, 32, {8});  // of its own bytes alone
  EXPECT_EQ(read(part), ramp(8, 32));
  EXPECT_EQ(driver->calls(OpenClDriver::kRead) - reads, 2);
  EXPECT_OK(evn_tensor_unmap(whole, &error));
  EXPECT_EQ(static_cast<float*>(b)[63], 63.0f);
  EXPECT_EQ(evn_tensor_map(part, EVN_MAP_WRITE, &a, nullptr, &error), EVN_ERROR_WRONG_STATE);
  EXPECT_OK(evn_tensor_unmap(whole, &error));
  EXPECT_EQ(evn_tensor_unmap(whole, &error), EVN_ERROR_WRONG_STATE);
  write(part, ramp(8, 1));
  EXPECT_EQ(read(whole)[32], 1.0f);
  EXPECT_EQ(read(whole)[31], 31.0f);
  for (evn_tensor t : {whole, part}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

// A device that uses the memory of the host has it mapped, pinned or not.
TEST_F(OpenClViews, SharedMemoryIsMappedAndNotCopied) {
  make_runtime();
  evn_device_info info = EVN_DEVICE_INFO_INIT;
  ASSERT_OK(evn_device_get_info(gpu, &info, &error));
  if ((info.features & EVN_DEVICE_UNIFIED_MEMORY) == 0) GTEST_SKIP() << "the device has memory of its own";
  const evn_tensor whole = create(gpu, {64});
  const evn_tensor part = view(whole, 32, {8});
  const int transfers = driver->transfers(), maps = driver->calls(OpenClDriver::kMap), unmaps = driver->calls(OpenClDriver::kUnmap);
  write(whole, ramp(64));
  EXPECT_EQ(read(part), ramp(8, 32));
  void* data = nullptr;
  ASSERT_OK(evn_tensor_map(part, EVN_MAP_READ | EVN_MAP_WRITE, &data, nullptr, &error));
  EXPECT_EQ(static_cast<float*>(data)[1], 33.0f);
  static_cast<float*>(data)[1] = 1;
  ASSERT_OK(evn_tensor_unmap(part, &error));
  EXPECT_EQ(read(whole)[33], 1.0f);
  EXPECT_EQ(read(whole)[34], 34.0f);
  EXPECT_EQ(driver->transfers(), transfers);
  EXPECT_EQ(driver->calls(OpenClDriver::kMap) - maps, 5);
  EXPECT_EQ(driver->calls(OpenClDriver::kUnmap) - unmaps, 5);
  // Every call fails once: an error comes out, and the next attempt works.
  for (int k = 1; k < 8; ++k) {
    fault_arm(Seam::kDevice, k, false);
    const evn_status status = evn_tensor_map(whole, EVN_MAP_READ, &data, nullptr, &error);
    const bool left = status == EVN_OK && evn_tensor_unmap(whole, &error) != EVN_OK;
    fault_arm(Seam::kDevice, 0, false);
    if (left) {
      EXPECT_OK(evn_tensor_unmap(whole, &error));
    }
    write(whole, ramp(64, static_cast<float>(k)));
    EXPECT_EQ(read(part), ramp(8, static_cast<float>(k) + 32));
  }
  for (evn_tensor t : {whole, part}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(OpenClViews, ReadersOfPinnedMemoryShareOneMap) {
  make_runtime();
  const evn_tensor whole = create(gpu, {64}, EVN_TENSOR_PINNED);
  write(whole, ramp(64));
  const evn_tensor part = view(whole, 32, {8});
  const int maps = driver->calls(OpenClDriver::kMap), unmaps = driver->calls(OpenClDriver::kUnmap);
  void *a = nullptr, *b = nullptr, *c = nullptr;
  ASSERT_OK(evn_tensor_map(part, EVN_MAP_READ, &a, nullptr, &error));
  ASSERT_OK(evn_tensor_map(whole, EVN_MAP_READ, &b, nullptr, &error));
  ASSERT_OK(evn_tensor_map(part, EVN_MAP_READ, &c, nullptr, &error));
  EXPECT_EQ(a, c);
  EXPECT_EQ(static_cast<float*>(b) + 32, a);
  EXPECT_EQ(static_cast<float*>(a)[0], 32.0f);
  EXPECT_OK(evn_tensor_unmap(part, &error));
  EXPECT_OK(evn_tensor_unmap(whole, &error));
  EXPECT_EQ(static_cast<float*>(a)[1], 33.0f);
  EXPECT_OK(evn_tensor_unmap(part, &error));
  EXPECT_EQ(driver->calls(OpenClDriver::kMap) - maps, 1);
  EXPECT_EQ(driver->calls(OpenClDriver::kUnmap) - unmaps, 1);
  write(part, ramp(8, 1));  // leaves the rest as it was
  std::vector<float> want = ramp(64);
  std::copy_n(ramp(8, 1).begin(), 8, want.begin() + 32);
  EXPECT_EQ(read(whole), want);
  // Released while it is mapped.
  ASSERT_OK(evn_tensor_map(part, EVN_MAP_READ, &a, nullptr, &error));
  EXPECT_EQ(evn_tensor_release(part), EVN_OK);
  write(whole, ramp(64, 5));
  EXPECT_EQ(read(whole), ramp(64, 5));
  EXPECT_EQ(evn_tensor_release(whole), EVN_OK);
}

TEST_F(OpenClViews, TransfersThatFailLeaveNoMap) {
  driver->have_own_memory();
  make_runtime();
  for (const uint32_t flags : {0u, uint32_t{EVN_TENSOR_PINNED}}) {
    const evn_tensor whole = create(gpu, {64}, flags);
    write(whole, ramp(64));
    const evn_tensor part = view(whole, 32, {8});
    void* data = nullptr;
    for (const Seam seam : {Seam::kDevice, Seam::kAlloc}) {
      fault_arm(seam, 1, true);
      const evn_status status = evn_tensor_map(part, EVN_MAP_READ, &data, nullptr, &error);
      fault_arm(seam, 0, false);
      if (status == EVN_OK) {
        EXPECT_OK(evn_tensor_unmap(part, &error));
      }
      EXPECT_EQ(evn_tensor_unmap(part, &error), EVN_ERROR_WRONG_STATE);
    }
    write(whole, ramp(64, 2));
    EXPECT_EQ(read(part), ramp(8, 34));
    for (evn_tensor t : {whole, part}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  }
}

}  // namespace
}  // namespace evn::test::views_test
