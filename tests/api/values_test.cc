// String tensors, and values that are more than tensors: what they keep, what they refuse, runs with them.
#include "tests/api/support.h"

namespace evn::test {
namespace {

struct Values : ApiTest {
  evn_tensor words(const std::vector<const char*>& texts) {
    const int64_t count = static_cast<int64_t>(texts.size());
    evn_tensor t = nullptr;
    EXPECT_OK(evn_tensor_create(cpu, EVN_DTYPE_STRING, &count, 1, 0, &t, &error));
    EXPECT_OK(evn_tensor_set_strings(t, texts.data(), nullptr, texts.size(), &error));
    return t;
  }
  std::string word(evn_tensor t, size_t index) {
    char buffer[64];
    size_t size = 0;
    EXPECT_OK(evn_tensor_get_string(t, index, buffer, sizeof buffer, &size, &error));
    return std::string(buffer, size - 1);
  }
  evn_value value_of(evn_tensor t) {
    evn_value v = nullptr;
    EXPECT_OK(evn_value_from_tensor(t, &v, &error));
    return v;
  }
  std::string type(evn_value v) {
    char buffer[128] = "";
    size_t size = 0;
    EXPECT_OK(evn_value_get_type(v, buffer, sizeof buffer, &size, &error));
    return buffer;
  }
};

TEST_F(Values, StringsAreCopiedInAndOut) {
  evn_tensor t = nullptr;
  const int64_t sides[] = {1, 2};
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_STRING, sides, 2, 0, &t, &error));
  EXPECT_EQ(word(t, 1), "");
  const char* texts[] = {"one", "t\0o"};
  const size_t sizes[] = {3, 3};
  ASSERT_OK(evn_tensor_set_strings(t, texts, sizes, 2, &error));
  EXPECT_EQ(word(t, 0), "one");
  EXPECT_EQ(word(t, 1), std::string("t\0o", 3));
  char small[3];
  size_t size = 0;
  EXPECT_EQ(evn_tensor_get_string(t, 0, small, sizeof small, &size, &error), EVN_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(error.bytes_requested, 4u);
  evn_tensor copy = nullptr;
  ASSERT_OK(evn_tensor_copy_to(t, cpu, &copy, &error));
  ASSERT_OK(evn_tensor_release(t));
  EXPECT_EQ(word(copy, 0), "one");
  ASSERT_OK(evn_tensor_release(copy));
}

TEST_F(Values, StringsAreNoMemory) {
  evn_tensor t = words({"a"});
  void* data = nullptr;
  EXPECT_EQ(evn_tensor_map(t, EVN_MAP_READ, &data, nullptr, &error), EVN_ERROR_UNSUPPORTED);
  void* managed = nullptr;
  EXPECT_EQ(evn_tensor_to_dlpack(t, 0, &managed, &error), EVN_ERROR_UNSUPPORTED);
  const int64_t one = 1;
  uint64_t address = 0xdeadbeef;
  evn_tensor wrapped = nullptr;
  EXPECT_EQ(evn_tensor_wrap(runtime, &address, 8, EVN_DTYPE_STRING, &one, 1, nullptr, nullptr, &wrapped, &error),
            EVN_ERROR_UNSUPPORTED);
  ASSERT_OK(evn_tensor_release(t));
}

TEST_F(Values, StringCallsCheckTheirArguments) {
  evn_tensor t = words({"a", "b"});
  const char* texts[] = {"x", nullptr};
  size_t size = 0;
  EXPECT_EQ(evn_tensor_set_strings(t, texts, nullptr, 1, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_set_strings(t, texts, nullptr, 2, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_set_strings(t, nullptr, nullptr, 2, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_set_strings(nullptr, texts, nullptr, 1, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_tensor_get_string(t, 2, nullptr, 0, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_get_string(t, 0, nullptr, 0, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_get_string(nullptr, 0, nullptr, 0, &size, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(word(t, 0), "a");  // nothing was changed
  evn_tensor number = nullptr;
  const int64_t one = 1;
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, &one, 1, 0, &number, &error));
  EXPECT_EQ(evn_tensor_set_strings(number, texts, nullptr, 1, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_get_string(number, 0, nullptr, 0, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
  for (evn_tensor r : {t, number}) ASSERT_OK(evn_tensor_release(r));
}

TEST_F(Values, SequencesOptionalsAndMapsKeepTheirParts) {
  evn_tensor t = words({"a", "b"});
  const evn_value tensor = value_of(t);
  EXPECT_EQ(type(tensor), "tensor(string)");
  evn_value list = nullptr;
  const evn_value both[] = {tensor, tensor};
  ASSERT_OK(evn_value_create(runtime, "seq(tensor(string))", both, 2, &list, &error));
  evn_value maybe = nullptr;
  ASSERT_OK(evn_value_create(runtime, "optional(seq(tensor(string)))", &list, 1, &maybe, &error));
  EXPECT_EQ(type(maybe), "optional(seq(tensor(string)))");
  const char* changed[] = {"x", "y"};
  ASSERT_OK(evn_tensor_set_strings(t, changed, nullptr, 2, &error));
  ASSERT_OK(evn_tensor_release(t));
  ASSERT_OK(evn_value_release(list));
  evn_value inner = nullptr;
  ASSERT_OK(evn_value_part_at(maybe, 0, &inner, &error));
  uint32_t count = 0;
  ASSERT_OK(evn_value_part_count(inner, &count, &error));
  EXPECT_EQ(count, 2u);
  evn_value first = nullptr;
  ASSERT_OK(evn_value_part_at(inner, 1, &first, &error));
  evn_tensor back = nullptr;
  ASSERT_OK(evn_value_get_tensor(first, &back, &error));
  EXPECT_EQ(word(back, 1), "b");  // a sequence has the strings of its time
  ASSERT_OK(evn_tensor_release(back));
  for (evn_value v : {tensor, maybe, inner, first}) ASSERT_OK(evn_value_release(v));
}

TEST_F(Values, CreateChecksTypesAndParts) {
  evn_tensor t = words({"a", "b"});
  const evn_value v = value_of(t);
  evn_value made = nullptr;
  const evn_value pair[] = {v, v};
  for (const char* wrong : {"", "seq", "seq(", "seq(tensor(string)", "tensor(string)", "seq(tensor(strings))",
                            "map(float,tensor(string))", "seq(tensor(string)))"}) {
    EXPECT_EQ(evn_value_create(runtime, wrong, &v, 1, &made, &error), EVN_ERROR_INVALID_ARGUMENT) << wrong;
  }
  EXPECT_EQ(evn_value_create(runtime, "seq(tensor(float6e2m3))", nullptr, 0, &made, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_value_create(runtime, "seq(seq(seq(seq(seq(seq(tensor(string)))))))", nullptr, 0, &made, &error), EVN_ERROR_LIMIT);
  EXPECT_EQ(evn_value_create(runtime, "seq(tensor(float32))", &v, 1, &made, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_value_create(runtime, "optional(tensor(string))", pair, 2, &made, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_value_create(runtime, "map(string,tensor(float32))", pair, 2, &made, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_value_create(runtime, "map(string,tensor(string))", pair, 1, &made, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_value_create(runtime, nullptr, pair, 2, &made, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_value_create(runtime, "seq(tensor(string))", nullptr, 2, &made, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_value_create(runtime, "seq(tensor(string))", pair, 2, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_value_create(nullptr, "seq(tensor(string))", pair, 2, &made, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_value_from_tensor(nullptr, &made, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_value_from_tensor(t, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_value_part_at(v, 0, &made, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_value_part_count(v, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  uint32_t count = 7;
  EXPECT_EQ(evn_value_part_count(nullptr, &count, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(made, nullptr);
  evn_value empty = nullptr;
  ASSERT_OK(evn_value_create(runtime, "optional(tensor(string))", nullptr, 0, &empty, &error));
  evn_tensor none = nullptr;
  EXPECT_EQ(evn_value_get_tensor(empty, &none, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_value_get_tensor(empty, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  ASSERT_OK(evn_value_release(nullptr));
  ASSERT_OK(evn_value_release(empty));
  EXPECT_EQ(evn_value_release(empty), EVN_ERROR_INVALID_HANDLE);
  ASSERT_OK(evn_value_release(v));
  ASSERT_OK(evn_tensor_release(t));
}

}  // namespace
}  // namespace evn::test
