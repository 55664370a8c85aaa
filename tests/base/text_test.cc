// Globs, suggestions, UTF-8, numbers with units.
#include "base/text.h"

#include <gtest/gtest.h>

#include <string>

#include "base/cancel.h"
#include "base/error.h"

namespace evn {
namespace {

TEST(Operators, AreNamedWithAndWithoutTheirDomain) {
  EXPECT_TRUE(names_operator("Conv", "", "Conv"));
  EXPECT_TRUE(names_operator("Conv", "my.domain", "Conv"));
  EXPECT_TRUE(names_operator("ai.onnx::Conv", "", "Conv"));
  EXPECT_TRUE(names_operator("my.domain::Conv", "my.domain", "Conv"));
  EXPECT_FALSE(names_operator("my.domain::Conv", "", "Conv"));
  EXPECT_FALSE(names_operator("ai.onnx::Conv", "my.domain", "Conv"));
  EXPECT_FALSE(names_operator("conv", "", "Conv"));
  EXPECT_FALSE(names_operator("::Conv", "my.domain", "Conv"));
  EXPECT_TRUE(matches_node("type:my.domain::Conv", "a", "my.domain", "Conv"));
  EXPECT_FALSE(matches_node("type:my.domain::Conv", "a", "", "Conv"));
  EXPECT_TRUE(matches_node("a*", "abc", "", "Conv"));
  EXPECT_FALSE(matches_node("Conv", "abc", "", "Conv"));
}

TEST(Names, APatternForNodesIsANameWithoutSigns) {
  EXPECT_TRUE(is_node_name("conv_1"));
  EXPECT_TRUE(is_node_name("a type:Conv"));
  EXPECT_FALSE(is_node_name("conv_?"));
  EXPECT_FALSE(is_node_name("*"));
  EXPECT_FALSE(is_node_name("type:Conv"));
}

TEST(Glob, StarStandsForAnyText) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("decoder/*", "decoder/"));
  EXPECT_TRUE(glob_match("decoder/*", "decoder/a/b"));
  EXPECT_TRUE(glob_match("*det*", "ch_PP-OCRv4_det_infer.onnx"));
  EXPECT_FALSE(glob_match("*det*", "ch_PP-OCRv4_rec_infer.onnx"));
  EXPECT_FALSE(glob_match("decoder/*", "encoder/a"));
  EXPECT_TRUE(glob_match("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(glob_match("a*b*c", "a-b-b-"));
}

TEST(Glob, LongTextsHaveCancellationPoints) {
  const std::string pattern = "*" + std::string(400, 'a') + "b", text(1000, 'a');
  const Cancel cancel;
  const CancelScope scope(cancel);
  EXPECT_FALSE(glob_match(pattern, text));
  EXPECT_GE(scope.work(), 200'000);  // comparisons
  EXPECT_LE(scope.longest(), 2 * kWorkPerLook);
  const CancelScope limited(cancel, 10'000);
  EXPECT_THROW(glob_match(pattern, text), Error);
}

TEST(Glob, WithoutSignsOnlyTheSameTextMatches) {
  EXPECT_TRUE(glob_match("conv_1", "conv_1"));
  EXPECT_FALSE(glob_match("conv_1", "conv_12"));
  EXPECT_FALSE(glob_match("conv_12", "conv_1"));
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_TRUE(glob_match("[a]", "[a]"));
  EXPECT_FALSE(glob_match("[a]", "a"));
}

TEST(Glob, QuestionMarkStandsForOneCharacter) {
  EXPECT_TRUE(glob_match("a?c", "abc"));
  EXPECT_TRUE(glob_match("a?c",
                         "a\xc3\xa9"
                         "c"));
  EXPECT_TRUE(glob_match("*?c",
                         "\xe6\x96\x87"
                         "c"));
  EXPECT_FALSE(glob_match("a?c", "ac"));
  EXPECT_FALSE(glob_match("?", ""));
}

TEST(Glob, ManyStarsOverALongTextEndInTime) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(glob_match(pattern + "b", std::string(20000, 'a')));
  EXPECT_TRUE(glob_match(pattern, std::string(20000, 'a')));
}

TEST(EditDistance, CountsChangesAndSwaps) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("thread", "threads"), 1u);
  EXPECT_EQ(edit_distance("polciy", "policy"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("same", "same"), 0u);
}

TEST(EditDistance, LongTextsAreCut) {
  std::string longer(100001, 'a');
  longer.back() = 'b';
  EXPECT_EQ(edit_distance(std::string(100000, 'a'), longer), 0u);
  EXPECT_EQ(edit_distance(std::string(100000, 'a'), ""), 64u);
}

TEST(Nearest, SuggestsOnlyWhatIsNear) {
  const std::string_view names[] = {"threads", "type", "match", "optional"};
  EXPECT_EQ(nearest("thread", names), "threads");
  EXPECT_EQ(nearest("tpye", names), "type");
  EXPECT_EQ(nearest("batching", names), "");
  EXPECT_EQ(nearest("x", names), "");
  const std::string_view letters[] = {"a", "b"};
  EXPECT_EQ(nearest("c", letters), "");
}

TEST(Utf8, GoodTextHasNoInvalidByte) {
  EXPECT_EQ(find_invalid_utf8("abc \xc3\xa9 \xe6\x96\x87 \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8(""), std::string_view::npos);
}

TEST(Utf8, FirstBadByteIsFound) {
  EXPECT_EQ(find_invalid_utf8("ab\xff"), 2u);
  EXPECT_EQ(find_invalid_utf8("a\x80"), 1u);
  EXPECT_EQ(find_invalid_utf8("a\xc3"), 1u);             // cut off
  EXPECT_EQ(find_invalid_utf8("\xc0\xaf"), 0u);          // overlong
  EXPECT_EQ(find_invalid_utf8("\xe0\x80\xaf"), 0u);      // overlong
  EXPECT_EQ(find_invalid_utf8("\xf0\x80\x80\xaf"), 0u);  // overlong
  EXPECT_EQ(find_invalid_utf8("\xed\xa0\x80"), 0u);      // a surrogate
  EXPECT_EQ(find_invalid_utf8("\xf4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("\xc3\xa9\xc3("), 2u);
}

TEST(ErrorText, HoldsWholeCharactersAndEscapesTheRest) {
  const Error e = make_error(EVN_ERROR_IO, "%s", "\xc3\xa9 \xff \x1b[31m \xc2\x9b \xe6\x96");
  EXPECT_STREQ(e.message, "\xc3\xa9 \\xff \\x1b[31m \\xc2\\x9b \\xe6\\x96");
  std::string name;
  for (int i = 0; i < 100; ++i) name += "\xe6\x96\x87";
  for (std::size_t lead = 0; lead < 3; ++lead) {
    const Error cut = Error(e).with_node((std::string(lead, 'x') + name).c_str());
    EXPECT_EQ(find_invalid_utf8(cut.node), std::string_view::npos);
    EXPECT_GT(std::string_view(cut.node).size(), sizeof cut.node - 5);
  }
}

TEST(Utf8, APrefixEndsAtACharacter) {
  const std::string text = "a\xc3\xa9\xe6\x96\x87";
  const std::size_t right[] = {0, 1, 1, 3, 3, 3, 6, 6};
  for (std::size_t most = 0; most < std::size(right); ++most) EXPECT_EQ(utf8_prefix(text, most), right[most]) << most;
}

TEST(Shorten, CutsAtACharacter) {
  EXPECT_EQ(shorten("short", 10), "short");
  EXPECT_EQ(shorten("0123456789abc", 10), "0123456...");
  EXPECT_EQ(shorten("012345\xc3\xa9"
                    "789",
                    10),
            "012345...");
}

TEST(ParseU64, TakesDecimalDigitsOnly) {
  EXPECT_EQ(parse_u64("0"), 0u);
  EXPECT_EQ(parse_u64("18446744073709551615"), UINT64_MAX);
  for (const char* text : {"", "-1", "+1", " 1", "1 ", "0x10", "010", "1_000", "4.5", "1e3", "18446744073709551616", "\xd9\xa1"}) {
    EXPECT_EQ(parse_u64(text), std::nullopt) << text;
  }
}

TEST(ParseBytes, TakesUnitsOf1024) {
  EXPECT_EQ(parse_bytes("1048576"), 1048576u);
  EXPECT_EQ(parse_bytes("64KiB"), 65536u);
  EXPECT_EQ(parse_bytes("512MiB"), 512u << 20);
  EXPECT_EQ(parse_bytes("2GiB"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_bytes("3TiB"), std::uint64_t{3} << 40);
  for (const char* text : {"10 gb", "16E", "1GB", "1 MiB", "1mib", "MiB", "1.5GiB", "-1MiB", "18446744073709551615KiB", "1MiBx"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
}

TEST(ParseDuration, TakesUnitsOfTime) {
  EXPECT_EQ(parse_duration_ns("7ns"), 7u);
  EXPECT_EQ(parse_duration_ns("100us"), 100'000u);
  EXPECT_EQ(parse_duration_ns("2ms"), 2'000'000u);
  EXPECT_EQ(parse_duration_ns("5s"), 5'000'000'000u);
  EXPECT_EQ(parse_duration_ns("1min"), 60'000'000'000u);
  EXPECT_EQ(parse_duration_ns("2h"), 7'200'000'000'000u);
  for (const char* text : {"5", "5 s", "s", "0.5s", "-1s", "5S", "5sec", "99999999999h"}) {
    EXPECT_EQ(parse_duration_ns(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace evn
