// The handle table at its ends: the last generation of a slot, and the last slot.
#include "api/handles.h"

#include "tests/api/support.h"

namespace evn::test {
namespace {

struct HandlesTest : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;

  void SetUp() override {
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 1;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
  }
  void TearDown() override { EXPECT_EQ(evn_runtime_release(runtime), EVN_OK); }

  evn_device device() {
    evn_device d = nullptr;
    EXPECT_OK(evn_runtime_device_at(runtime, 0, &d, &error));
    return d;
  }
  bool is_valid(evn_device d) {
    evn_device_info info = EVN_DEVICE_INFO_INIT;
    const evn_status status = evn_device_get_info(d, &info, nullptr);
    EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_INVALID_HANDLE) << status;
    return status == EVN_OK;
  }
};

std::uint32_t slot_of(evn_device d) { return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(d)); }
std::uint32_t generation_of(evn_device d) { return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(d) >> 32); }

TEST_F(HandlesTest, ASlotIsRetiredAfterItsLastGeneration) {
  age_next_handle(0);
  const evn_device first = device();
  ASSERT_EQ(generation_of(first), 0u);
  ASSERT_EQ(evn_device_release(first), EVN_OK);
  age_next_handle(UINT32_MAX - 1);
  for (const std::uint32_t generation : {UINT32_MAX - 1, UINT32_MAX}) {
    const evn_device d = device();
    EXPECT_EQ(slot_of(d), slot_of(first));
    EXPECT_EQ(generation_of(d), generation);
    EXPECT_TRUE(is_valid(d));
    EXPECT_EQ(evn_device_release(d), EVN_OK);
    EXPECT_FALSE(is_valid(d));
  }
  const evn_device next = device();
  EXPECT_NE(slot_of(next), slot_of(first));
  EXPECT_TRUE(is_valid(next));
  EXPECT_FALSE(is_valid(first)) << "a handle that was released 2^32 generations ago is valid again";
  EXPECT_EQ(evn_device_release(first), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_device_release(next), EVN_OK);
}

// As the header says: 262,144 in a process. Other tests of this program have released theirs; their runtimes and retired slots are
// few.
TEST_F(HandlesTest, OneMoreThanThereAreSlotsIsALimit) {
  std::vector<evn_device> devices;
  evn_status status = EVN_OK;
  while (devices.size() <= 262144) {
    evn_device d = nullptr;
    error = EVN_ERROR_INIT;
    status = evn_runtime_device_at(runtime, 0, &d, &error);
    if (status != EVN_OK) break;
    devices.push_back(d);
  }
  EXPECT_EQ(status, EVN_ERROR_LIMIT);
  EXPECT_LT(devices.size(), 262144u);
  EXPECT_GT(devices.size(), 262144u - 100);
  EXPECT_NE(std::string(error.message).find("262144"), std::string::npos) << error.message;
  for (const evn_device d : devices) ASSERT_EQ(evn_device_release(d), EVN_OK);
  const evn_device again = device();
  EXPECT_TRUE(is_valid(again));
  EXPECT_EQ(evn_device_release(again), EVN_OK);
}

}  // namespace
}  // namespace evn::test
