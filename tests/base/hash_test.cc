#include "base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace evn {
namespace {

std::vector<unsigned char> pattern(std::size_t size) {
  std::vector<unsigned char> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(i * 73 + 11);
  return bytes;
}

std::uint64_t hash_of(const std::vector<unsigned char>& bytes) {
  Hasher hash;
  hash.add(bytes.data(), bytes.size());
  return hash.value();
}

// Of both hashes.
template <typename F>
void expect_distinct(F&& visit) {
  for (const auto of : {+[](const std::vector<unsigned char>& b) { return checksum_of(b.data(), b.size()); }, +hash_of}) {
    std::set<std::uint64_t> seen;
    std::size_t count = 0;
    visit([&](const std::vector<unsigned char>& bytes) {
      seen.insert(of(bytes));
      ++count;
    });
    EXPECT_EQ(seen.size(), count);
  }
}

TEST(Hash, EveryChangedBitChangesIt) {
  for (const std::size_t size : {1, 7, 8, 64, 100, 192, 257}) {
    expect_distinct([&](const auto& visit) {
      std::vector<unsigned char> bytes = pattern(size);
      visit(bytes);
      for (std::size_t i = 0; i < 8 * size; ++i) {
        bytes[i / 8] = static_cast<unsigned char>(bytes[i / 8] ^ (1 << i % 8));
        visit(bytes);
        bytes[i / 8] = static_cast<unsigned char>(bytes[i / 8] ^ (1 << i % 8));
      }
    });
  }
}

TEST(Hash, OrderAndLengthCount) {
  expect_distinct([](const auto& visit) {
    std::vector<unsigned char> bytes(256, 0);
    visit({});
    visit(bytes);
    bytes.push_back(0);
    visit(bytes);
    for (const std::size_t at : {0, 8, 16, 64, 72, 128, 250}) {
      bytes[at] = 5;
      visit(bytes);
      bytes[at] = 0;
    }
  });
}

TEST(Hash, PartsOfABlockAddUpToItsChecksumInAnyOrder) {
  const std::vector<unsigned char> bytes = pattern(1000);
  const std::size_t cuts[] = {0, 64, 128, 512, 960, 1000};
  Checksum parts, other;
  for (const std::size_t i : {4, 1, 0, 3, 2}) (i % 2 == 0 ? parts : other).add(&bytes[cuts[i]], cuts[i + 1] - cuts[i], cuts[i]);
  parts.add(other);
  EXPECT_EQ(parts.value(), checksum_of(bytes.data(), bytes.size()));
  Checksum misplaced;
  const std::size_t places[] = {64, 0, 128, 512, 960};
  for (const std::size_t i : {0, 1, 2, 3, 4}) misplaced.add(&bytes[cuts[i]], cuts[i + 1] - cuts[i], places[i]);
  EXPECT_NE(misplaced.value(), parts.value());
}

// What is even in number must not add up to nothing.
TEST(Hash, SignsOfManyNumbersChangeTheChecksum) {
  expect_distinct([](const auto& visit) {
    for (const std::size_t step : {4, 8, 64, 128, 192, 256, 4096}) {
      std::vector<unsigned char> bytes = pattern(16384);
      for (std::size_t i = 3; i < bytes.size(); i += step) bytes[i] = static_cast<unsigned char>(bytes[i] ^ 0x80);
      visit(bytes);
    }
    visit(pattern(16384));
  });
}

TEST(Hash, PiecesAreToldApart) {
  Hasher a, b;
  a.add(std::string_view("ab"));
  a.add(std::string_view("c"));
  b.add(std::string_view("a"));
  b.add(std::string_view("bc"));
  EXPECT_NE(a.value(), b.value());
}

}  // namespace
}  // namespace evn
