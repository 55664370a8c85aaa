// Strings in an archive of recorded inputs, where each is as long as the longest one.
#include "runtime/replay/npz_file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "core/text.h"

namespace evn {
namespace {

ConstTensor tensor_of(const std::vector<TextElement>& texts) {
  return {{DType::kString, {static_cast<std::int64_t>(texts.size())}}, texts.data()};
}

TEST(NpzFile, ShortStringsBesideALongOneAreRefusedBeforeTheyAreMadeAsLong) {
  constexpr std::size_t kCount = 2048, kLongest = std::size_t{1} << 18;
  TextPool pool(nullptr);
  std::vector<TextElement> texts(kCount, pool.add("short"));
  NpzFile file;
  file.add("short", tensor_of(texts));
  texts.back() = pool.add(std::string(kLongest, 'x'));
  try {
    file.add("long", tensor_of(texts));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_LIMIT);
    EXPECT_EQ(e.bytes_requested, 4 * kCount * kLongest);
    EXPECT_LT(e.bytes_available, e.bytes_requested);
    EXPECT_GT(e.bytes_available, e.bytes_requested / 2);
  }
}

}  // namespace
}  // namespace evn
