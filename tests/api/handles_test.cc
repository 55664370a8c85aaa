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

std::uint32_t slot_of(const void* handle) { return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(handle)); }
std::uint32_t generation_of(const void* handle) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(handle) >> 32);
}

struct Slots {
  HandleTable::Slot slots[2];
};

TEST(HandleTableTest, ASlotIsRetiredAfterItsLastGeneration) {
  Slots young, old;
  HandleTable before(young.slots), table(old.slots, UINT32_MAX - 1);
  const auto add = [](HandleTable& t) { return t.add(std::make_unique<HandleObject>(HandleKind::kDevice)); };
  const void* const first = add(before);  // a handle of long ago
  ASSERT_EQ(generation_of(first), 0u);
  for (const std::uint32_t generation : {UINT32_MAX - 1, UINT32_MAX}) {
    const void* const h = add(table);
    EXPECT_EQ(slot_of(h), slot_of(first));
    EXPECT_EQ(generation_of(h), generation);
    EXPECT_NE(table.pin(h, HandleKind::kDevice), nullptr);
    EXPECT_EQ(table.pin(h, HandleKind::kTensor), nullptr);
    EXPECT_TRUE(table.release(h, HandleKind::kDevice));
    EXPECT_EQ(table.pin(h, HandleKind::kDevice), nullptr);
    table.unpin(h);
  }
  const void* const next = add(table);
  EXPECT_NE(slot_of(next), slot_of(first));
  EXPECT_EQ(table.pin(first, HandleKind::kDevice), nullptr) << "a handle that was released 2^32 generations ago is valid again";
  EXPECT_FALSE(table.release(first, HandleKind::kDevice));
  EXPECT_TRUE(table.release(next, HandleKind::kDevice));
  EXPECT_TRUE(before.release(first, HandleKind::kDevice));
}

TEST(HandleTableTest, AFullTableIsALimit) {
  Slots few;
  HandleTable table(few.slots);
  const auto add = [&] { return table.add(std::make_unique<HandleObject>(HandleKind::kModel)); };
  const void* const a = add();
  const void* const b = add();
  try {
    add();
    ADD_FAILURE() << "there are two slots";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_LIMIT);
  }
  EXPECT_TRUE(table.release(a, HandleKind::kModel));
  const void* const c = add();
  EXPECT_EQ(slot_of(c), slot_of(a));
  EXPECT_NE(c, a);
  EXPECT_TRUE(table.release(b, HandleKind::kModel));
  EXPECT_TRUE(table.release(c, HandleKind::kModel));
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
