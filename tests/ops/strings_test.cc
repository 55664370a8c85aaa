// Operators on strings, and regular expressions.
#include <cmath>
#include <iterator>

#include "base/cancel.h"
#include "ops/infra/regex.h"
#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

using Strings = std::vector<std::string>;

// Returns `count` letters a, followed by `last`.
std::string many_and(std::size_t count, char last) {
  std::string text(count + 1, 'a');
  text.back() = last;
  return text;
}

// Keeps the texts of the inputs.
TextPool& pool() {
  static TextPool p(nullptr);
  return p;
}

Tensor strings(const Shape& shape, const Strings& values) {
  Tensor t = blank(DType::kString, shape);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const TextElement e = pool().add(values[i]);
    std::memcpy(&t.bytes[i], &e, sizeof e);
  }
  return t;
}

Strings texts(const Tensor& t) {
  Strings out;
  for (std::int64_t i = 0; i < t.desc.shape.elements(); ++i) {
    TextElement e = nullptr;
    std::memcpy(&e, &t.bytes[static_cast<std::size_t>(i)], sizeof e);
    out.emplace_back(text_of(e));
  }
  return out;
}

TEST(TextPool, KeepsWhatItIsGiven) {
  TextPool p(nullptr);
  EXPECT_EQ(p.add(""), nullptr);
  EXPECT_EQ(text_of(nullptr), "");
  const TextElement small = p.add(std::string("a\0b", 3));
  const TextElement large = p.add(std::string(100'000, 'x'));
  const TextElement last = p.add("last");
  EXPECT_EQ(text_of(small), std::string_view("a\0b", 3));
  EXPECT_EQ(text_of(large).size(), 100'000u);
  EXPECT_EQ(text_of(last), "last");
}

TEST(StringConcat, BroadcastsItsInputs) {
  const Tensor y = Op("StringConcat", 20).run({strings({2, 1}, {"a", ""}), strings({2}, {"x", "yz"})})[0];
  EXPECT_EQ(y.desc.shape, (Shape{2, 2}));
  EXPECT_EQ(texts(y), (Strings{"ax", "ayz", "x", "yz"}));
}

TEST(StringSplit, CutsAtDelimiters) {
  const auto y = Op("StringSplit", 20).with("delimiter", "--").outputs(2).run({strings({2}, {"a--b----c", "x"})});
  EXPECT_EQ(y[0].desc.shape, (Shape{2, 4}));
  EXPECT_EQ(texts(y[0]), (Strings{"a", "b", "", "c", "x", "", "", ""}));
  EXPECT_EQ(y[1].ints(), (Ints{4, 1}));
}

TEST(StringSplit, WithoutDelimiterCutsAtRunsOfSpace) {
  const auto y = Op("StringSplit", 20).outputs(2).run({strings({2}, {"  one \t two  ", ""})});
  EXPECT_EQ(texts(y[0]), (Strings{"one", "two", "", ""}));
  EXPECT_EQ(y[1].ints(), (Ints{2, 0}));
  EXPECT_EQ(texts(Op("StringSplit", 20).with("maxsplit", 1).outputs(2).run({strings({1}, {" a b  c "})})[0]),
            (Strings{"a", "b  c"}));
  EXPECT_EQ(Op("StringSplit", 20).with("maxsplit", -1).outputs(2).status({strings({1}, {"a"})}), EVN_ERROR_INVALID_MODEL);
}

// All texts of `length` letters that are a or b.
Strings texts_of_two_letters(int length) {
  Strings all = {""};
  for (int i = 0; i < length; ++i) {
    Strings longer;
    for (const std::string& text : all) longer.insert(longer.end(), {text + "a", text + "b"});
    all = longer;
  }
  return all;
}

TEST(StringSplit, FindsDelimitersThatContainTheirOwnBeginning) {
  const Strings given = texts_of_two_letters(9);
  const Tensor x = strings({static_cast<std::int64_t>(given.size())}, given);
  for (int length = 1; length <= 5; ++length) {
    for (const std::string& delimiter : texts_of_two_letters(length)) {
      const auto y = Op("StringSplit", 20).with("delimiter", delimiter.c_str()).outputs(2).run({x});
      const Strings parts = texts(y[0]);
      const Ints counts = y[1].ints();
      const std::size_t width = parts.size() / given.size();
      for (std::size_t i = 0; i < given.size(); ++i) {
        Strings want;
        std::size_t begin = 0;
        for (std::size_t at; (at = given[i].find(delimiter, begin)) != std::string::npos; begin = at + delimiter.size())
          want.push_back(given[i].substr(begin, at - begin));
        want.push_back(given[i].substr(begin));
        const auto first = parts.begin() + static_cast<std::ptrdiff_t>(i * width);
        ASSERT_EQ(Strings(first, first + counts[i]), want) << given[i] << " at " << delimiter;
      }
    }
  }
}

// Work of a run, and the most of it between two looks at the stop condition.
struct Work {
  std::int64_t all, longest;
};
template <typename F>
Work work_of(F&& run) {
  const Cancel cancel;
  const CancelScope scope(cancel);
  run();
  return {scope.work(), scope.longest()};
}

// Every part of the text matches the delimiter up to the last byte of the delimiter.
TEST(StringSplit, CountsEachByteOnceForDelimitersOfAnyLength) {
  const auto work = [](std::size_t size) {
    const std::string delimiter = many_and(size, 'b');
    Op op("StringSplit", 20);
    op.with("delimiter", delimiter.c_str()).outputs(2);
    const Tensor x = strings({1}, {std::string(2 * size, 'a')});
    return work_of([&] { op.run({x}); }).all;
  };
  EXPECT_GT(work(50'000), 100'000);
  EXPECT_LT(work(100'000), 21 * work(50'000) / 10);
}

TEST(StringNormalizer, LeavesOutStopWordsAndChangesCase) {
  Op op("StringNormalizer", 10);
  op.with("stopwords", AttributeValue(Strings{"The"})).with("case_change_action", "UPPER");
  EXPECT_EQ(texts(op.run({strings({3}, {"the", "Straße", "\xc3\xa9t\xc3\xa9"})})[0]), (Strings{"STRAßE", "\xc3\x89T\xc3\x89"}));
  EXPECT_EQ(texts(op.run({strings({1, 1}, {"THE"})})[0]), (Strings{""}));
  EXPECT_EQ(op.status({strings({2, 1}, {"a", "b"})}), EVN_ERROR_INVALID_MODEL);
}

TEST(StringNormalizer, LettersOfManyAlphabetsChangeBothWays) {
  constexpr const char* kCapital[] = {"ŁÓDŹ ĄĆĘŃŚŻ",     "ŽLUŤOUČKÝ ĎĚŇŘŠŮ", "ŐŰ",        "ĀĢĶĻŅĪŪ",  "ĐĦĲŁĿŊŒŸ",       "ȘȚ",
                                      "ΆΈΉΊΌΎΏ ΑΡΣΩ ΪΫ", "ЀІЇЏ АЯ",          "ҐӘҢҒҮҰҚӨҺ", "ӀӁӃӅӇӉӋӍ", "ѠҀҊҾӐӠԮ", "ԱՖ"};
  constexpr const char* kSmall[] = {"łódź ąćęńśż",     "žluťoučký ďěňřšů", "őű",        "āģķļņīū",  "đħĳłŀŋœÿ",       "șț",
                                    "άέήίόύώ αρσω ϊϋ", "ѐіїџ ая",          "ґәңғүұқөһ", "ӏӂӄӆӈӊӌӎ", "ѡҁҋҿӑӡԯ", "աֆ"};
  const auto changed = [](const char* change, const char* word) {
    Op op("StringNormalizer", 10);
    return texts(op.with("case_change_action", change).run({strings({1}, {word})})[0])[0];
  };
  for (std::size_t i = 0; i < std::size(kCapital); ++i) {
    EXPECT_EQ(changed("LOWER", kCapital[i]), kSmall[i]);
    EXPECT_EQ(changed("LOWER", kSmall[i]), kSmall[i]);
    EXPECT_EQ(changed("UPPER", kSmall[i]), kCapital[i]);
    EXPECT_EQ(changed("UPPER", kCapital[i]), kCapital[i]);
  }
  EXPECT_EQ(changed("UPPER", "ς"), "Σ");
  EXPECT_EQ(changed("LOWER", "ς"), "ς");
  for (const char* change : {"LOWER", "UPPER"}) EXPECT_EQ(changed(change, "İıĸŉſ×÷ΐ"), "İıĸŉſ×÷ΐ");
}

TEST(StringNormalizer, StopWordsHaveLettersOfManyAlphabets) {
  Op op("StringNormalizer", 10);
  op.with("stopwords", AttributeValue(Strings{"łódź"})).with("is_case_sensitive", 0);
  EXPECT_EQ(texts(op.run({strings({2}, {"ŁÓDŹ", "Łódka"})})[0]), (Strings{"Łódka"}));
}

TEST(StringNormalizer, FindsEachOfManyStopWords) {
  constexpr int kWords = 300;
  Strings stop, given, want;
  for (int i = 0; i < kWords; ++i) {
    stop.push_back("Word" + std::to_string((i * 7) % kWords));
    given.push_back("wORD" + std::to_string(i));
    given.push_back("wORD" + std::to_string(i) + "x");
    want.push_back(given.back());
  }
  stop.push_back(stop.front());
  Op op("StringNormalizer", 10);
  op.with("stopwords", AttributeValue(stop));
  EXPECT_EQ(texts(op.run({strings({2 * kWords}, given)})[0]), want);
  op.with("is_case_sensitive", 1);
  EXPECT_EQ(texts(op.run({strings({2 * kWords}, given)})[0]), given);
}

// The comparisons of words with stop words are counted as work, and their number is near-linear.
TEST(StringNormalizer, CountsTheWorkOfLookups) {
  const auto work = [](int words) {
    Strings stop;
    for (int i = 0; i < words; ++i) stop.push_back(std::string(200, 'a') + std::to_string(i));
    Op op("StringNormalizer", 10);
    op.with("stopwords", AttributeValue(stop)).with("is_case_sensitive", 1);
    const Tensor x = strings({words}, Strings(static_cast<std::size_t>(words), std::string(201, 'a')));
    return work_of([&] { op.run({x}); }).all;
  };
  EXPECT_LT(work(4000), 3 * work(2000));
  EXPECT_GT(work(4000), 4000 * 10);
}

TEST(StringNormalizer, RefusesLocalesWithRulesOfCaseOfTheirOwn) {
  const auto status = [](const char* locale, const char* change, const Strings& stop = {}, int sensitive = 0) {
    Op op("StringNormalizer", 10);
    op.with("locale", locale).with("case_change_action", change).with("is_case_sensitive", sensitive);
    if (!stop.empty()) op.with("stopwords", AttributeValue(stop));
    return op.status({strings({1}, {"i"})});
  };
  for (const char* common : {"", "C", "POSIX", "C.UTF-8", "en_US", "en-US", "de_DE.UTF-8", "sr_RS@latin", "fil_PH"}) {
    EXPECT_EQ(status(common, "UPPER"), EVN_OK) << common;
  }
  for (const char* own : {"tr_TR", "tr", "TR-tr", "az_AZ.UTF-8", "lt", "crh_UA", "tt_RU@iqtelif", "English_United States.1252", "e",
                          "12", "_US", "en US"}) {
    EXPECT_EQ(status(own, "UPPER"), EVN_ERROR_UNSUPPORTED) << own;
    EXPECT_EQ(status(own, "LOWER"), EVN_ERROR_UNSUPPORTED) << own;
    EXPECT_EQ(status(own, "NONE", {"I"}), EVN_ERROR_UNSUPPORTED) << own;  // stop words are compared without case
    EXPECT_EQ(status(own, "NONE", {"I"}, 1), EVN_OK) << own;
    EXPECT_EQ(status(own, "NONE"), EVN_OK) << own;
  }
}

// Two long texts that differ in their last bytes are compared.
TEST(Texts, ComparisonsCountTheBytesThatAreCompared) {
  constexpr std::size_t kSize = 1 << 20;
  const std::string one = many_and(kSize, '1'), two = many_and(kSize, '2');
  const Tensor x = strings({1}, {two});
  const auto with = [&](const char* op, const char* list) {
    Op made(op, 18);
    made.with(list, AttributeValue(Strings{one, two}));
    return made;
  };
  Op encoder = with("ai.onnx.ml::LabelEncoder", "keys_strings"), one_hot = with("ai.onnx.ml::OneHotEncoder", "cats_strings");
  Op zip = with("ai.onnx.ml::ZipMap", "classlabels_strings"), normalizer = with("StringNormalizer", "stopwords");
  Op grams = with("TfIdfVectorizer", "pool_strings");
  encoder.with("values_int64s", Ints{1, 2});
  normalizer.with("is_case_sensitive", 1);
  grams.with("min_gram_length", 1).with("max_gram_length", 1).with("max_skip_count", 0).with("mode", "TF");
  grams.with("ngram_counts", Ints{0}).with("ngram_indexes", Ints{0, 1});

  EXPECT_EQ(encoder.run({x})[0].ints(), (Ints{2}));
  EXPECT_EQ(one_hot.run({x})[0].floats(), (Floats{0, 1}));
  EXPECT_EQ(texts(normalizer.run({x})[0]), (Strings{""}));
  EXPECT_EQ(grams.run({x})[0].floats(), (Floats{0, 1}));
  const std::pair<const char*, Work> counted[] = {
      {"LabelEncoder", work_of([&] { encoder.run({x}); })},
      {"OneHotEncoder", work_of([&] { one_hot.run({x}); })},
      {"ZipMap", work_of([&] {
         zip.infer({desc({1, 2})});
       })},
      {"StringNormalizer", work_of([&] { normalizer.run({x}); })},
      {"TfIdfVectorizer", work_of([&] { grams.run({x}); })},
      {"Equal", work_of([&] {
         Op("Equal", 19).run({x, strings({1}, {one})});
       })},
      {"Unique", work_of([&] {
         Op("Unique", 11).run({strings({2}, {two, one})});
       })},
  };
  for (const auto& [op, work] : counted) {
    EXPECT_GE(work.all, static_cast<std::int64_t>(kSize) / kBytesPerWork) << op;
    EXPECT_LE(work.longest, 2 * kWorkPerLook) << op;
  }
}

TEST(Equal, ComparesTexts) {
  EXPECT_EQ(bool_values(Op("Equal", 19).run({strings({3}, {"a", "", "ab"}), strings({3}, {"a", "b", "ab"})})[0]),
            (std::vector<std::uint8_t>{1, 0, 1}));
}

TEST(Cast, ReadsAndWritesNumbersAsText) {
  const auto to = [](evn_dtype dtype) { return Op("Cast", 13).with("to", dtype); };
  EXPECT_EQ(to(EVN_DTYPE_FLOAT32).run({strings({4}, {"1.5", "-1e-2", "+INF", "7"})})[0].floats(),
            (Floats{1.5f, -0.01f, INFINITY, 7}));
  EXPECT_EQ(to(EVN_DTYPE_INT64).run({strings({2}, {"9223372036854775807", "-3"})})[0].ints(), (Ints{INT64_MAX, -3}));
  EXPECT_EQ(texts(to(EVN_DTYPE_STRING).run({f32({3}, {1.5f, -3, 0.1f})})[0]), (Strings{"1.5", "-3", "0.1"}));
  for (const char* wrong : {"", "x", "1.5x", "--1", "+-1"})
    EXPECT_EQ(to(EVN_DTYPE_FLOAT32).status({strings({1}, {wrong})}), EVN_ERROR_INVALID_ARGUMENT) << wrong;
}

TEST(Unique, OrdersTextsByTheirBytes) {
  EXPECT_EQ(texts(Op("Unique", 11).run({strings({4}, {"b", "a", "b", ""})})[0]), (Strings{"", "a", "b"}));
}

bool matches(std::string_view pattern, std::string_view text) { return Regex(pattern).matches_all(text); }

TEST(Regex, MatchesTheWholeText) {
  EXPECT_TRUE(matches("www\\.[a-z.-]+\\.com", "www.a-b.com"));
  EXPECT_TRUE(matches("a|bc*", "bccc"));
  EXPECT_FALSE(matches("a|bc*", "abc"));
  EXPECT_TRUE(matches("(ab){2,3}", "ababab"));
  EXPECT_FALSE(matches("(ab){2,3}", "ab"));
  EXPECT_TRUE(matches("x{2,}", "xxxx"));
  EXPECT_TRUE(matches("[^0-9]+", "\xc3\xa9t\xc3\xa9"));
  EXPECT_TRUE(matches(".", "\xe2\x82\xac"));
  EXPECT_FALSE(matches(".", "\n"));
  EXPECT_TRUE(matches("^a$", "a"));
  EXPECT_FALSE(matches("a^b", "ab"));
  EXPECT_TRUE(matches("\\w+\\b[ .]\\bcom\\b", "a.com"));
  EXPECT_FALSE(matches("a\\bb", "ab"));
  EXPECT_TRUE(matches("\\x41[\\x62c]\\a", "Ac\a"));
  EXPECT_TRUE(matches("a\\Bb", "ab"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_TRUE(matches("[[:alpha:]_-]+\\d\\D\\s", "ab-_1x "));
  EXPECT_TRUE(matches("(?:a*)*b", many_and(2000, 'b')));
}

TEST(Regex, RepetitionsOfGroupsMultiply) {
  for (const char* six : {"(a{2}){3}", "(?:a{3}){2}", "(a{6}?)"}) {
    EXPECT_TRUE(matches(six, "aaaaaa")) << six;
    EXPECT_FALSE(matches(six, "aaa")) << six;
    EXPECT_FALSE(matches(six, "aa")) << six;
  }
  EXPECT_TRUE(matches("(a*){2}", "aaa"));
  EXPECT_TRUE(matches("(a{2})+", "aaaa"));
  EXPECT_FALSE(matches("(a{2})+", "aaa"));
}

TEST(Regex, BracesThatHoldNoCountAreLiterals) {
  for (const char* text :
       {"{", "a{", "a{1", "a{1x}", "a{,2}", "a{01}", "a{1,02}", "a{1,2", "a{1,2x}", "a{1,2,}", "a{1001x}", "{x}", "{}"})
    EXPECT_TRUE(matches(text, text)) << text;
  EXPECT_TRUE(matches("a{2}{", "aa{"));
  EXPECT_TRUE(matches("a{1{2}", "a{11"));
  EXPECT_TRUE(matches("a{0}b", "b"));
}

TEST(Regex, QuantifierBindsToAWholeCharacter) {
  for (const char* letter : {"é", "\\é"}) {
    const std::string e = letter;
    EXPECT_TRUE(matches(e + "+", "éé"));
    EXPECT_TRUE(matches(e + "?", ""));
    EXPECT_TRUE(matches(e + "*x", "ééx"));
    EXPECT_TRUE(matches(e + "{2}", "éé"));
    EXPECT_FALSE(matches(e + "{2}", "\xc3\xa9\xa9"));
    EXPECT_FALSE(matches(e + "?", "\xc3"));
  }
  EXPECT_TRUE(matches("a€+é|x", "a€€é"));
  EXPECT_TRUE(matches("(?:\xf0\x9f\x98\x80){2}\xf0\x9f\x98\x80*", "\xf0\x9f\x98\x80\xf0\x9f\x98\x80"));
}

TEST(Regex, FindsTheLongestOfTheLeftmostMatches) {
  const auto found = [](std::string_view pattern, std::string_view text, std::size_t from) {
    const Regex::Match m = Regex(pattern).find(text, from);
    return m.found ? std::string(text.substr(m.begin, m.end - m.begin)) + "@" + std::to_string(m.begin) : "none";
  };
  EXPECT_EQ(found("a|ab", "xabab", 0), "ab@1");
  EXPECT_EQ(found("a|ab", "xabab", 2), "ab@3");
  EXPECT_EQ(found("b|abc|cdefg", "xabcdefg", 0), "abc@1");
  EXPECT_EQ(found("bc|abcx|b", "abcd", 0), "bc@1");
  EXPECT_EQ(found("a*", "xaa", 0), "@0");
  EXPECT_EQ(found("^a", "aa", 1), "none");
  EXPECT_EQ(found("a$", "aba", 0), "a@2");
  EXPECT_EQ(found("\\bab\\b", "cab ab", 0), "ab@4");
  EXPECT_EQ(found("z", "aaa", 0), "none");
}

TEST(Regex, TimeGrowsWithTheTextAlone) {
  std::string nested;
  for (int i = 0; i < 25; ++i) nested += "a?";
  EXPECT_TRUE(matches(nested + std::string(25, 'a'), std::string(25, 'a')));
  EXPECT_FALSE(matches("(a+)+$", many_and(5000, '!')));
}

evn_status status_of(std::string_view pattern) {
  try {
    Regex r(pattern);
    return EVN_OK;
  } catch (const Error& e) {
    return e.status;
  }
}

TEST(Regex, RefusesWhatIsNoPattern) {
  for (const char* wrong : {"(", ")", "[", "[a", "*a", "a\\", "[b-a]", "a{3,1}", "{2}", "(*a)", "a|{1,2}"})
    EXPECT_EQ(status_of(wrong), EVN_ERROR_INVALID_MODEL) << wrong;
  for (const char* unknown : {"(?=a)", "\\1", "\\pL", "[[:foo:]]", "[\\t-a]", "\\x4", "\\xe9"})
    EXPECT_EQ(status_of(unknown), EVN_ERROR_UNSUPPORTED) << unknown;
  for (const char* twice : {"a**", "a+*", "a?+", "a*??", "a*{2}", "a{2}{3}", "a{2}+", "a{2}?*", "(a)?{1,}"})
    EXPECT_EQ(status_of(twice), EVN_ERROR_INVALID_MODEL) << twice;
  for (const char* large : {"a{1001}", "a{2,1001}", "a{1001,}", "a{99999999}"})
    EXPECT_EQ(status_of(large), EVN_ERROR_LIMIT) << large;
  EXPECT_EQ(status_of("((((a{1000}){1000}){1000}){1000})"), EVN_ERROR_LIMIT);
  EXPECT_EQ(status_of(std::string(1000, '(')), EVN_ERROR_LIMIT);
}

}  // namespace
}  // namespace evn::test
