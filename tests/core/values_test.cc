// Texts, names as keys, epilogues and settings of devices.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>

#include "base/ledger.h"
#include "core/device_type.h"
#include "core/dtype.h"
#include "core/epilogue.h"
#include "core/name_map.h"
#include "core/text.h"

namespace evn {
namespace {

TEST(TextPool, KeepsAnyBytesUntilItIsCleared) {
  TextPool pool(nullptr);
  const std::string with_nul("a\0b", 3), large(100000, 'x');
  const TextElement elements[] = {pool.add(with_nul), pool.add(large), pool.add(""), nullptr};
  EXPECT_EQ(text_of(elements[0]), with_nul);
  EXPECT_EQ(text_of(elements[1]), large);
  EXPECT_EQ(text_of(elements[2]), "");
  EXPECT_EQ(text_of(elements[3]), "");
  TextPool other(nullptr);
  TextElement copies[4] = {};
  other.copy(elements, 4, copies);
  pool.clear();
  EXPECT_EQ(text_of(copies[0]), with_nul);
  EXPECT_EQ(text_of(copies[1]), large);
}

// What texts are charged.
struct CountedLedger : Ledger {
  std::size_t bytes = 0;
  void charge(std::size_t more, MemoryClass) override { bytes += more; }
  void discharge(std::size_t less, MemoryClass) noexcept override { bytes -= less; }
};

TEST(TextPool, TakesMemoryOfTheSizeOfItsTexts) {
  const auto ledger = std::make_shared<CountedLedger>();
  std::deque<TextPool> pools;  // as a loop has them that keeps a text of each iteration
  for (int i = 0; i < 100; ++i) pools.emplace_back(ledger).add("word");
  EXPECT_LE(ledger->bytes, 100u * 64);
  TextPool many(ledger);
  const std::size_t before = ledger->bytes;
  for (int i = 0; i < 100'000; ++i) many.add("word");
  EXPECT_LE(ledger->bytes - before, 100'000u * 20);
  pools.clear();
  many.clear();
  EXPECT_EQ(ledger->bytes, 0u);
}

TEST(NameMap, HashesOfOneNameDifferFromLoadToLoad) {
  const KeyedHash a, b;
  EXPECT_EQ(a("conv_1"), a(std::string("conv_1")));
  int same = 0;
  for (int i = 0; i < 64; ++i) same += a(std::to_string(i)) == b(std::to_string(i)) ? 1 : 0;
  EXPECT_LT(same, 4);
}

TEST(NameMap, FindsNamesThatDifferInTheLastByteOnly) {
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back(std::string(40, 'n') + std::to_string(i));
  NameMap map;
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_TRUE(map.emplace(names[i], static_cast<ValueId>(i)).second);
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(map.at(names[i]), static_cast<ValueId>(i));
}

TEST(Epilogue, TakesAsManyOperationsAsItHasRoomFor) {
  Epilogue e;
  EXPECT_TRUE(e.empty());
  for (int i = 0; i < kMaxEpilogueOps; ++i) EXPECT_TRUE(e.push({EpilogueOpKind::kScale, static_cast<float>(i), 0}));
  EXPECT_FALSE(e.push({EpilogueOpKind::kRelu, 0, 0}));
  EXPECT_EQ(e.count, kMaxEpilogueOps);
  EXPECT_EQ(e.ops[kMaxEpilogueOps - 1].a, static_cast<float>(kMaxEpilogueOps - 1));
}

TEST(DTypes, FloatsOf16Bits) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string name = dtype_name(dtype);
    EXPECT_EQ(is_16bit_float(dtype), name == "float16" || name == "bfloat16") << name;
  }
}

TEST(DeviceSettings, TheLastValueOfAnOptionCounts) {
  DeviceSettings s;
  EXPECT_EQ(s.number("threads", 7), 7u);
  EXPECT_EQ(s.text("blas", "auto"), "auto");
  EXPECT_EQ(s.find("threads"), nullptr);
  s.set_number("threads", 3);
  s.set_text("blas", "never");
  s.set_number("threads", 4);
  EXPECT_EQ(s.number("threads", 7), 4u);
  EXPECT_EQ(s.find("threads")->text, "4");
  EXPECT_EQ(s.text("blas", "auto"), "never");
  const DeviceSettings copy = s;
  s.set_number("threads", 1);
  EXPECT_EQ(copy.number("threads", 7), 4u);
}

}  // namespace
}  // namespace evn
