// evn_tensor_get_strings: all elements at once.
#include "base/fault.h"
#include "tests/api/support.h"

namespace evn::test::strings_test {
namespace {

struct Strings : ApiTest {
  evn_tensor make(std::vector<int64_t> shape, const std::vector<std::string>& elements) {
    evn_tensor t = nullptr;
    EXPECT_OK(evn_tensor_create(cpu, EVN_DTYPE_STRING, shape.data(), static_cast<uint32_t>(shape.size()), 0, &t, &error));
    std::vector<const char*> data;
    std::vector<std::size_t> sizes;
    for (const std::string& s : elements) {
      data.push_back(s.data());
      sizes.push_back(s.size());
    }
    EXPECT_OK(evn_tensor_set_strings(t, data.data(), sizes.data(), data.size(), &error));
    return t;
  }
};

TEST_F(Strings, AllAtOnce) {
  const std::vector<std::string> want = {"one", "", std::string("t\0wo", 4), std::string(1000, 'x'), "\xff\xfe"};
  const evn_tensor t = make({5}, want);
  std::size_t size = 0, offsets[6] = {};
  ASSERT_OK(evn_tensor_get_strings(t, nullptr, 0, nullptr, 5, &size, &error));
  EXPECT_EQ(size, 3u + 4 + 1000 + 2 + 5);
  ASSERT_OK(evn_tensor_get_strings(t, nullptr, 0, offsets, 5, &size, &error));
  EXPECT_EQ(offsets[5], size);
  std::string buffer(size + 3, '~');
  std::fill(std::begin(offsets), std::end(offsets), 0);
  ASSERT_OK(evn_tensor_get_strings(t, buffer.data(), size, offsets, 5, nullptr, &error));
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(buffer.substr(offsets[i], offsets[i + 1] - offsets[i] - 1), want[i]);
    EXPECT_EQ(buffer[offsets[i + 1] - 1], '\0');
  }
  EXPECT_EQ(buffer.substr(size), "~~~");
  ASSERT_OK(evn_tensor_get_strings(t, buffer.data(), buffer.size(), nullptr, 5, &size, &error));
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(Strings, OfNoneAndOfAScalar) {
  const evn_tensor none = make({0, 3}, {}), one = make({}, {"a"});
  std::size_t size = 9, offsets[2] = {7, 7};
  ASSERT_OK(evn_tensor_get_strings(none, nullptr, 0, offsets, 0, &size, &error));
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(offsets[0], 0u);
  EXPECT_EQ(offsets[1], 7u);
  char buffer[2] = {'x', 'x'};
  ASSERT_OK(evn_tensor_get_strings(none, buffer, 0, nullptr, 0, &size, &error));
  EXPECT_EQ(buffer[0], 'x');
  ASSERT_OK(evn_tensor_get_strings(one, buffer, 2, offsets, 1, &size, &error));
  EXPECT_STREQ(buffer, "a");
  EXPECT_EQ(offsets[1], 2u);
  for (evn_tensor t : {none, one}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(Strings, Misuse) {
  const evn_tensor t = make({2}, {"abc", "de"});
  const evn_tensor floats = input();
  char buffer[16];
  std::memset(buffer, 'x', sizeof buffer);
  std::size_t size = 99, offsets[3] = {99, 99, 99};
  EXPECT_EQ(evn_tensor_get_strings(t, buffer, 6, offsets, 2, &size, &error), EVN_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(error.bytes_requested, 7u);
  EXPECT_EQ(evn_tensor_get_strings(t, buffer, 0, offsets, 2, &size, &error), EVN_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(evn_tensor_get_strings(t, buffer, 16, offsets, 1, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_get_strings(t, buffer, 16, offsets, 3, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_get_strings(t, buffer, 16, offsets, SIZE_MAX, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_get_strings(t, nullptr, 16, offsets, 2, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_get_strings(t, nullptr, 0, offsets, 2, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_get_strings(floats, buffer, 16, offsets, 384, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_get_strings(nullptr, buffer, 16, offsets, 2, &size, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_tensor_get_strings(reinterpret_cast<evn_tensor>(runtime), buffer, 16, offsets, 2, &size, nullptr),
            EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(size, 99u);
  for (const std::size_t offset : offsets) EXPECT_EQ(offset, 99u);
  for (const char c : buffer) EXPECT_EQ(c, 'x');
  for (evn_tensor each : {t, floats}) EXPECT_EQ(evn_tensor_release(each), EVN_OK);
  EXPECT_EQ(evn_tensor_get_strings(t, buffer, 16, offsets, 2, &size, &error), EVN_ERROR_INVALID_HANDLE);
}

// It allocates nothing.
TEST_F(Strings, NeedNoMemory) {
  const evn_tensor t = make({2}, {"abc", "de"});
  char buffer[16];
  std::size_t size = 0;
  fault_arm(Seam::kAlloc, 1, true);
  const evn_status status = evn_tensor_get_strings(t, buffer, 16, nullptr, 2, &size, nullptr);
  fault_arm(Seam::kAlloc, 0, false);
  EXPECT_EQ(status, EVN_OK);
  EXPECT_EQ(size, 7u);
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

}  // namespace
}  // namespace evn::test::strings_test
