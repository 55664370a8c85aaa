// Structs of clients that are older or newer than the library: evn_..._init, and how far an info is filled; the table of functions.
#include <cstring>

#include "api/structs.h"
#include "evener/api.h"
#include "tests/api/support.h"

namespace evn::test {
namespace {

struct Row {
  const char* name;
  const void* macro;
  std::size_t size;
  void (*init)(void* out, uint32_t size);
};

#define EVN_STRUCT(name, macro) static const name k_##name = macro;
EVN_STRUCTS(EVN_STRUCT)
#undef EVN_STRUCT
#define EVN_STRUCT(name, macro) \
  {#name, &k_##name, sizeof(name), [](void* out, uint32_t size) { name##_init(static_cast<name*>(out), size); }},
const Row kRows[] = {EVN_STRUCTS(EVN_STRUCT)};
#undef EVN_STRUCT

TEST(Structs, AnInitFunctionMakesTheBytesOfTheMacro) {
  for (const Row& row : kRows) {
    std::vector<unsigned char> made(row.size, 0xa5);
    row.init(made.data(), static_cast<uint32_t>(row.size));
    EXPECT_EQ(std::memcmp(made.data(), row.macro, row.size), 0) << row.name;
  }
}

TEST(Structs, AnInitFunctionWritesTheClientsSizeAndNoMore) {
  for (const Row& row : kRows) {
    const auto* const full = static_cast<const unsigned char*>(row.macro);
    for (const std::size_t size : {std::size_t{4}, std::size_t{8}, row.size - 8, row.size, row.size + 8, row.size + 64}) {
      std::vector<unsigned char> made(row.size + 128, 0xa5);
      row.init(made.data(), static_cast<uint32_t>(size));
      uint32_t said = 0;
      std::memcpy(&said, made.data(), sizeof said);
      EXPECT_EQ(said, size) << row.name;
      for (std::size_t i = 4; i < made.size(); ++i) {
        const int want = i >= size ? 0xa5 : (i < row.size ? full[i] : 0);
        ASSERT_EQ(made[i], want) << row.name << " of " << size << " bytes, byte " << i;
      }
    }
  }
}

TEST(Structs, AnInitFunctionLeavesWhatNoClientHas) {
  for (const Row& row : kRows) {
    std::vector<unsigned char> made(row.size, 0xa5);
    row.init(nullptr, static_cast<uint32_t>(row.size));
    for (const uint32_t size : {0u, 3u, 65537u, UINT32_MAX}) row.init(made.data(), size);
    EXPECT_EQ(made, std::vector<unsigned char>(row.size, 0xa5)) << row.name;
  }
}

using Infos = ApiTest;

// Calls a function that fills an info with clients of several sizes.
template <typename Info, typename Fill>
void check_info(const char* name, void (*init)(Info*, uint32_t), std::size_t older, Fill fill) {
  Info full;
  init(&full, sizeof full);
  ASSERT_EQ(fill(&full), EVN_OK) << name;
  EXPECT_EQ(full.struct_size, sizeof(Info)) << name;
  for (const std::size_t size : {older, sizeof(Info) - 8, sizeof(Info), sizeof(Info) + 24}) {
    alignas(Info) unsigned char bytes[sizeof(Info) + 64];
    std::memset(bytes, 0x5a, sizeof bytes);
    auto* info = reinterpret_cast<Info*>(bytes);
    init(info, static_cast<uint32_t>(size));
    ASSERT_EQ(fill(info), EVN_OK) << name;
    const std::size_t filled = std::min(size, sizeof(Info));
    EXPECT_EQ(info->struct_size, filled) << name << ": a client of " << size << " bytes";
    EXPECT_EQ(std::memcmp(bytes + 4, reinterpret_cast<unsigned char*>(&full) + 4, filled - 4), 0) << name;
    for (std::size_t i = filled; i < sizeof bytes; ++i) ASSERT_EQ(bytes[i], i < size ? 0 : 0x5a) << name << ", byte " << i;
    ASSERT_EQ(fill(info), EVN_OK) << name;  // as it came back
    EXPECT_EQ(info->struct_size, filled) << name;
  }
}

TEST_F(Infos, SayHowMuchOfThemWasFilled) {
  const evn_tensor t = input();
  check_info<evn_device_info>("device", evn_device_info_init, offsetof(evn_device_info, description),
                              [&](auto* i) { return evn_device_get_info(cpu, i, &error); });
  check_info<evn_device_info>("device of 0.1", evn_device_info_init, offsetof(evn_device_info, device_class),
                              [&](auto* i) { return evn_device_get_info(cpu, i, &error); });
  check_info<evn_tensor_info>("tensor", evn_tensor_info_init, offsetof(evn_tensor_info, size_bytes),
                              [&](auto* i) { return evn_tensor_get_info(t, i, &error); });
  check_info<evn_value_info>("session input", evn_value_info_init, offsetof(evn_value_info, symbols),
                             [&](auto* i) { return evn_session_get_input_info(session, 0, i, &error); });
  check_info<evn_value_info>("model output", evn_value_info_init, offsetof(evn_value_info, dims),
                             [&](auto* i) { return evn_model_get_output_info(model, 0, i, &error); });
  evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
  check_info<evn_memory_stats>("memory", evn_memory_stats_init, offsetof(evn_memory_stats, by_class),
                               [&](auto* i) { return evn_device_get_memory_stats(cpu, i, &error); });
  EXPECT_OK(evn_device_get_memory_stats(cpu, &stats, &error));
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST(ApiTable, IsThatOfAVersionThatTheLibraryHas) {
  const evn_api* api = nullptr;
  ASSERT_EQ(evn_get_api(EVN_VERSION_NUMBER, &api), EVN_OK);
  ASSERT_NE(api, nullptr);
  EXPECT_EQ(api->struct_size, sizeof(evn_api));
  EXPECT_EQ(api->api_version, evn_version_number());
  EXPECT_EQ(api->runtime_create, &evn_runtime_create);
  const evn_api* older = nullptr;
  ASSERT_EQ(evn_get_api(2u << 8, &older), EVN_OK);
  EXPECT_EQ(older, api);
  const evn_api* none = api;
  for (const uint32_t version :
       {EVN_VERSION_NUMBER + 1, EVN_VERSION_NUMBER + (1u << 8), 1u << 16, UINT32_MAX, (2u << 8) - 1, 1u << 8, 0u}) {
    EXPECT_EQ(evn_get_api(version, &none), EVN_ERROR_VERSION) << version;
  }
  EXPECT_EQ(none, api);
  EXPECT_EQ(evn_get_api(EVN_VERSION_NUMBER, nullptr), EVN_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace evn::test
