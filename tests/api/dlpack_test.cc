// DLPack: tensors out and in, ownership, and hostile structs.
#include <cstdlib>
#include <functional>

#include "api/dlpack.h"
#include "tests/api/support.h"

namespace evn::test {
namespace {

using dlpack::Managed;
using dlpack::ManagedVersioned;

// A producer of its own: memory, arrays, and a count of deletions. M is one of the two structs.
template <typename M>
struct Producer {
  std::vector<float> data = {0, 1, 2, 3, 4, 5};
  int64_t shape[9] = {2, 3, 1, 1, 1, 1, 1, 1, 1};
  int64_t strides[9] = {3, 1, 1, 1, 1, 1, 1, 1, 1};
  int deleted = 0;
  M managed{};

  Producer() {
    managed.view = {data.data(), dlpack::kCpu, 0, 2, {dlpack::kFloat, 32, 1}, shape, strides, 0};
    managed.context = this;
    managed.deleter = [](M* m) { ++static_cast<Producer*>(m->context)->deleted; };
    if constexpr (std::is_same_v<M, ManagedVersioned>) managed.major = 1;
  }
};

struct DlpackTest : ApiTest {
  template <typename M>
  evn_tensor import(Producer<M>& p) {
    evn_tensor t = nullptr;
    EXPECT_OK(evn_tensor_from_dlpack(runtime, &p.managed, std::is_same_v<M, Managed> ? EVN_DLPACK_LEGACY : 0, &t, &error));
    return t;
  }
  evn_status refuse(const std::function<void(Producer<ManagedVersioned>&)>& change) {
    Producer<ManagedVersioned> p;
    change(p);
    evn_tensor t = nullptr;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_tensor_from_dlpack(runtime, &p.managed, 0, &t, &error);
    EXPECT_EQ(t, nullptr);
    EXPECT_EQ(p.deleted, 0) << "the memory stays the caller's";
    return status;
  }
  evn_tensor_info info_of(evn_tensor t) {
    evn_tensor_info info = EVN_TENSOR_INFO_INIT;
    EXPECT_OK(evn_tensor_get_info(t, &info, &error));
    return info;
  }
  void* address(evn_tensor t) {
    void* data = nullptr;
    EXPECT_OK(evn_tensor_map(t, EVN_MAP_READ, &data, nullptr, &error));
    EXPECT_OK(evn_tensor_unmap(t, &error));
    return data;
  }
};

TEST_F(DlpackTest, ExportsAViewOfTheSameMemory) {
  evn_tensor t = input();
  void* out = nullptr;
  ASSERT_OK(evn_tensor_to_dlpack(t, 0, &out, &error));
  auto* m = static_cast<ManagedVersioned*>(out);
  EXPECT_EQ(m->major, 1u);
  EXPECT_EQ(m->flags, 0u);
  EXPECT_EQ(m->view.data, values.data());
  EXPECT_EQ(m->view.device_type, dlpack::kCpu);
  EXPECT_EQ(m->view.byte_offset, 0u);
  ASSERT_EQ(m->view.ndim, 4);
  EXPECT_EQ(std::vector<int64_t>(m->view.shape, m->view.shape + 4), (std::vector<int64_t>{2, 3, 8, 8}));
  EXPECT_EQ(std::vector<int64_t>(m->view.strides, m->view.strides + 4), (std::vector<int64_t>{192, 64, 8, 1}));
  EXPECT_EQ(m->view.dtype.code, dlpack::kFloat);
  EXPECT_EQ(m->view.dtype.bits, 32);
  EXPECT_EQ(m->view.dtype.lanes, 1);
  m->deleter(m);
  evn_tensor_release(t);
}

TEST_F(DlpackTest, AnExportKeepsTheMemoryWhenTensorAndRuntimeHaveGone) {
  evn_error e = EVN_ERROR_INIT;
  evn_runtime other = nullptr;
  evn_device device = nullptr;
  evn_tensor t = nullptr;
  void* out = nullptr;
  const int64_t shape[] = {1000};
  ASSERT_EQ(evn_runtime_create(nullptr, &other, &e), EVN_OK);
  ASSERT_EQ(evn_runtime_device_at(other, 0, &device, &e), EVN_OK);
  ASSERT_EQ(evn_tensor_create(device, EVN_DTYPE_INT32, shape, 1, 0, &t, &e), EVN_OK);
  ASSERT_EQ(evn_tensor_to_dlpack(t, EVN_DLPACK_LEGACY, &out, &e), EVN_OK);
  evn_tensor_release(t);
  evn_device_release(device);
  evn_runtime_release(other);
  auto* m = static_cast<Managed*>(out);
  auto* data = static_cast<int32_t*>(m->view.data);
  for (int i = 0; i < 1000; ++i) data[i] += i;
  EXPECT_EQ(data[999], 999);
  m->deleter(m);
}

TEST_F(DlpackTest, ImportsBothFormsAndDeletesOnce) {
  Producer<ManagedVersioned> now;
  Producer<Managed> legacy;
  evn_tensor a = import(now);
  evn_tensor b = import(legacy);
  EXPECT_EQ(address(a), now.data.data());
  EXPECT_EQ(address(b), legacy.data.data());
  const evn_tensor_info info = info_of(a);
  EXPECT_EQ(info.rank, 2u);
  EXPECT_EQ(info.dims[1], 3);
  EXPECT_EQ(info.size_bytes, 24u);
  EXPECT_EQ(now.deleted, 0);
  evn_tensor_release(a);
  evn_tensor_release(b);
  EXPECT_EQ(now.deleted, 1);
  EXPECT_EQ(legacy.deleted, 1);
}

TEST_F(DlpackTest, ARoundTripIsTheSameMemoryAndHoldsTheProducer) {
  Producer<ManagedVersioned> p;
  evn_tensor t = import(p);
  void* out = nullptr;
  ASSERT_OK(evn_tensor_to_dlpack(t, 0, &out, &error));
  evn_tensor_release(t);
  EXPECT_EQ(p.deleted, 0);
  evn_tensor back = nullptr;
  ASSERT_OK(evn_tensor_from_dlpack(runtime, out, 0, &back, &error));
  EXPECT_EQ(address(back), p.data.data());
  evn_tensor_release(back);
  EXPECT_EQ(p.deleted, 1);
}

TEST_F(DlpackTest, ByteOffsetNullStridesAndStridesOfSingleAxesAreUnderstood) {
  Producer<ManagedVersioned> p;
  p.managed.view.byte_offset = 4;
  p.managed.view.strides = nullptr;
  p.shape[0] = 1;
  evn_tensor t = import(p);
  EXPECT_EQ(address(t), p.data.data() + 1);
  evn_tensor_release(t);
  p.managed.view.strides = p.strides;
  p.strides[0] = 777;  // an axis of one element
  t = import(p);
  evn_tensor_release(t);
  p.managed.deleter = nullptr;
  p.managed.view.ndim = 0;
  p.managed.view.shape = nullptr;
  t = import(p);
  EXPECT_EQ(info_of(t).size_bytes, 4u);
  evn_tensor_release(t);
  EXPECT_EQ(p.deleted, 2);
}

TEST_F(DlpackTest, TensorsWithoutElementsNeedNoMemory) {
  Producer<ManagedVersioned> p;
  p.shape[0] = 0;
  p.managed.view.data = nullptr;
  evn_tensor t = import(p);
  void* out = nullptr;
  ASSERT_OK(evn_tensor_to_dlpack(t, 0, &out, &error));
  EXPECT_EQ(static_cast<ManagedVersioned*>(out)->view.data, nullptr);
  static_cast<ManagedVersioned*>(out)->deleter(static_cast<ManagedVersioned*>(out));
  evn_tensor_release(t);
}

TEST_F(DlpackTest, ReadOnlyMemoryIsNeverWritten) {
  Producer<ManagedVersioned> p;
  p.managed.flags = dlpack::kReadOnly;
  p.shape[1] = 10;
  p.strides[0] = 10;
  p.data.resize(20);
  p.managed.view.data = p.data.data();
  evn_tensor t = import(p);
  EXPECT_EQ(info_of(t).flags, static_cast<uint32_t>(EVN_TENSOR_READ_ONLY));
  void* data = nullptr;
  EXPECT_EQ(evn_tensor_map(t, EVN_MAP_READ | EVN_MAP_WRITE, &data, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(address(t), p.data.data());
  evn_tensor x = input();
  evn_tensor out = t;
  EXPECT_EQ(evn_session_run(session, &x, 1, &out, 1, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("read-only"), std::string::npos);
  evn_tensor copy = nullptr;
  ASSERT_OK(evn_tensor_copy_to(t, cpu, &copy, &error));
  EXPECT_EQ(evn_tensor_copy(copy, t, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(info_of(copy).flags, 0u);
  void* managed = nullptr;
  EXPECT_EQ(evn_tensor_to_dlpack(t, EVN_DLPACK_LEGACY, &managed, &error), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(managed, nullptr);
  ASSERT_OK(evn_tensor_to_dlpack(t, 0, &managed, &error));
  EXPECT_EQ(static_cast<ManagedVersioned*>(managed)->flags, dlpack::kReadOnly);
  static_cast<ManagedVersioned*>(managed)->deleter(static_cast<ManagedVersioned*>(managed));
  for (evn_tensor h : {t, x, copy}) evn_tensor_release(h);
  EXPECT_EQ(p.deleted, 1);
}

TEST_F(DlpackTest, HostileFieldsAreRefusedAndNothingIsTakenOver) {
  using P = Producer<ManagedVersioned>;
  EXPECT_EQ(refuse([](P& p) { p.managed.major = 0; }), EVN_ERROR_VERSION);
  EXPECT_EQ(refuse([](P& p) { p.managed.major = 2; }), EVN_ERROR_VERSION);
  EXPECT_EQ(refuse([](P& p) { p.managed.view.ndim = -1; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refuse([](P& p) { p.managed.view.ndim = 9; }), EVN_ERROR_LIMIT);
  EXPECT_EQ(refuse([](P& p) { p.managed.view.ndim = INT32_MAX; }), EVN_ERROR_LIMIT);
  EXPECT_EQ(refuse([](P& p) { p.managed.view.shape = nullptr; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refuse([](P& p) { p.managed.view.data = nullptr; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refuse([](P& p) { p.shape[0] = -2; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(refuse([](P& p) { p.shape[0] = p.shape[1] = INT64_MAX; }), EVN_OK);
  EXPECT_EQ(refuse([](P& p) { p.managed.view.byte_offset = UINT64_MAX; }), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refuse([](P& p) { p.managed.view.byte_offset = UINT64_MAX - reinterpret_cast<uintptr_t>(p.data.data()) - 3; }),
            EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refuse([](P& p) { p.managed.view.dtype.lanes = 4; }), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(refuse([](P& p) { p.managed.view.dtype.lanes = 0; }), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(refuse([](P& p) { p.managed.view.dtype.bits = 4; }), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(refuse([](P& p) { p.managed.view.dtype.code = 200; }), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(refuse([](P& p) { p.managed.view.dtype = {dlpack::kComplex, 32, 1}; }), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(refuse([](P& p) { p.managed.view.device_type = 2; }), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(refuse([](P& p) { p.managed.view.device_type = 0; }), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(refuse([](P& p) { p.strides[0] = 1, p.strides[1] = 2; }), EVN_ERROR_UNSUPPORTED);
  EXPECT_NE(std::string(error.message).find("strides[1] is 2"), std::string::npos) << error.message;
  EXPECT_EQ(refuse([](P& p) { p.strides[1] = -1; }), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(refuse([](P& p) { p.strides[1] = 0; }), EVN_ERROR_UNSUPPORTED);
}

TEST_F(DlpackTest, WrongArgumentsAreRefused) {
  Producer<ManagedVersioned> p;
  evn_tensor t = nullptr;
  void* managed = nullptr;
  EXPECT_EQ(evn_tensor_from_dlpack(nullptr, &p.managed, 0, &t, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_tensor_from_dlpack(runtime, nullptr, 0, &t, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_from_dlpack(runtime, &p.managed, 0, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_from_dlpack(runtime, &p.managed, 2, &t, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_to_dlpack(nullptr, 0, &managed, &error), EVN_ERROR_INVALID_HANDLE);
  evn_tensor x = input();
  EXPECT_EQ(evn_tensor_to_dlpack(x, 0, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_to_dlpack(x, 6, &managed, &error), EVN_ERROR_INVALID_ARGUMENT);
  evn_tensor_release(x);
  EXPECT_EQ(p.deleted, 0);
}

TEST_F(DlpackTest, ATensorOnAnotherDeviceIsRefusedByTheDevicesName) {
  evn_device device = nullptr;
  if (evn_runtime_device_find(runtime, "opencl:0", &device, &error) != EVN_OK) {
    const char* required = std::getenv("EVN_REQUIRE_OPENCL");
    ASSERT_FALSE(required != nullptr && std::string(required) == "1") << error.message;
    GTEST_SKIP() << error.message;
  }
  evn_tensor t = nullptr;
  void* managed = nullptr;
  ASSERT_OK(evn_tensor_create(device, EVN_DTYPE_FLOAT32, dims, 4, 0, &t, &error));
  EXPECT_EQ(evn_tensor_to_dlpack(t, 0, &managed, &error), EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(error.device, "opencl:0");
  EXPECT_EQ(managed, nullptr);
  evn_tensor host = nullptr;
  ASSERT_OK(evn_tensor_copy_to(t, cpu, &host, &error));
  ASSERT_OK(evn_tensor_to_dlpack(host, 0, &managed, &error));
  static_cast<ManagedVersioned*>(managed)->deleter(static_cast<ManagedVersioned*>(managed));
  evn_tensor_release(t);
  evn_tensor_release(host);
  evn_device_release(device);
}

}  // namespace
}  // namespace evn::test
