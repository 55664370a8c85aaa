// Strings: StringConcat, StringSplit, StringNormalizer, RegexFullMatch.
//   StringConcat: each element of X and Y one behind the other, NumPy broadcasting.
//   StringSplit: the parts of each element between the delimiters (""  or none: runs of white space, none at the ends), at most
//   maxsplit
//     cuts; the further axis is as long as the most parts, "" behind an element's own; output 1 is how many there are.
//   StringNormalizer: without the stop words (a list, or a list in a batch of one), in lower or upper case or as they are; "" alone
//   where
//     nothing is left. Letters that change in UTF-8: Basic Latin, Latin-1, Latin Extended-A, U+0218 to U+021B, Greek,
//     Cyrillic and Armenian. Case is that of every locale but those whose languages have rules of their own (Turkish,
//     Azerbaijani, Lithuanian, ...): these are refused.
//   RegexFullMatch: whether the pattern matches all of the element. The syntax is RE2's without Unicode classes and flags; it is
//   matched by
//     simulating an automaton, so that time grows with pattern times text and with nothing else.
// dtypes: strings. Failures: shapes that do not broadcast; maxsplit below 0; more than a list to normalize; a pattern that is none.
// Exact.
#include <algorithm>
#include <string>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/key_less.h"
#include "ops/infra/regex.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

// ----------------------------------------------------------------------------------------------------------- concat --

void infer_concat(InferContext& c) {
  require_same_dtype(c, 0, 1);
  c.outputs[0].shape = broadcast_partial(c.shape(0), c.shape(1));
}

void reference_concat(const ReferenceContext& c) {
  const ConstTensor& a = c.input(0);
  const ConstTensor& b = c.input(1);
  const Shape& out = c.output().desc.shape;
  std::string both;
  walk<2>(out, {broadcast_strides(a.desc.shape, out), broadcast_strides(b.desc.shape, out)},
          [&](std::int64_t i, const std::int64_t* at) {
            both = text_of(a.as<TextElement>()[at[0]]);
            both += text_of(b.as<TextElement>()[at[1]]);
            c.output().as<TextElement>()[i] = c.add_text(both);
          });
}

// ------------------------------------------------------------------------------------------------------------ split --

enum : int { kDelimiter, kMaxSplit };

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Finds a delimiter in time that is linear in the text and the delimiter (D. E. Knuth, J. H. Morris, V. R. Pratt, "Fast pattern
// matching in strings", 1977).
class Delimiter {
 public:
  explicit Delimiter(const Node& node)
      : bytes_(attr_given(node, kDelimiter) ? std::string_view(attr_string(node, kDelimiter)) : std::string_view()),
        border_(bytes_.size()) {
    for (std::size_t i = 1; i < bytes_.size(); ++i) border_[i] = matched_with(border_[i - 1], bytes_[i]);
  }

  std::size_t size() const { return bytes_.size(); }

  // Returns the place of the first delimiter in the text, or npos. The delimiter must not be empty.
  std::size_t find_in(std::string_view text) const {
    std::size_t matched = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      matched = matched_with(matched, text[i]);
      if (matched == bytes_.size()) return i + 1 - matched;
    }
    return std::string_view::npos;
  }

 private:
  // Returns the length of the longest prefix of the delimiter that is a suffix of the text read so far, which ends in `next`.
  // `matched` is that length before `next` and less than size().
  std::size_t matched_with(std::size_t matched, char next) const {
    cancellation_point();
    for (; matched > 0 && bytes_[matched] != next; matched = border_[matched - 1]) cancellation_point();
    return bytes_[matched] == next ? matched + 1 : 0;
  }

  std::string_view bytes_;
  std::vector<std::size_t> border_;  // [i]: length of the longest proper prefix of the bytes up to i that is also their suffix
};

std::vector<std::string_view> parts_of(const Node& node, const Delimiter& delimiter, std::string_view text) {
  std::int64_t cuts = attr_int(node, kMaxSplit);
  std::vector<std::string_view> parts;
  if (delimiter.size() == 0) {
    const auto skip = [&] {
      while (!text.empty() && is_space(text.front())) {
        cancellation_point();
        text.remove_prefix(1);
      }
    };
    while (!text.empty() && is_space(text.back())) {
      cancellation_point();
      text.remove_suffix(1);
    }
    for (skip(); !text.empty(); skip()) {
      cancellation_point();
      std::size_t end = 0;
      while (end < text.size() && !is_space(text[end])) {
        cancellation_point();
        ++end;
      }
      if (cuts-- <= 0) end = text.size();
      parts.push_back(text.substr(0, end));
      text.remove_prefix(end);
    }
    return parts;
  }
  if (text.empty()) return parts;
  for (std::size_t at; cuts > 0 && (at = delimiter.find_in(text)) != std::string_view::npos; --cuts) {
    cancellation_point();
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + delimiter.size());
  }
  parts.push_back(text);
  return parts;
}

DType split_dtype(const Node&, std::span<const DType>, int output) { return output == 0 ? DType::kString : DType::kInt64; }

void infer_split(InferContext& c) {
  if (attr_int(c.node, kMaxSplit) < 0)
    fail(EVN_ERROR_INVALID_MODEL, "maxsplit is %lld", static_cast<long long>(attr_int(c.node, kMaxSplit)));
  const ConstTensor x = known_input(c, 0);
  std::int64_t most = -1;
  const bool empty = c.shape(0).is_known() && c.shape(0).elements() == 0;
  if (x.data != nullptr || empty) most = 0;
  const Delimiter delimiter(c.node);
  for (std::int64_t i = 0; x.data != nullptr && i < x.desc.shape.elements(); ++i) {
    cancellation_point();
    most = std::max(most, static_cast<std::int64_t>(parts_of(c.node, delimiter, text_of(x.as<TextElement>()[i])).size()));
  }
  c.outputs[0].shape = c.shape(0);
  c.outputs[0].shape.push_back(most);
  if (c.outputs.size() > 1) c.outputs[1].shape = c.shape(0);
}

void reference_split(const ReferenceContext& c) {
  const ConstTensor& x = c.input(0);
  const Shape& out = c.output().desc.shape;
  const std::int64_t width = out[out.rank() - 1];
  const Delimiter delimiter(c.node);
  for (std::int64_t i = 0; i < x.desc.shape.elements(); ++i) {
    cancellation_point();
    const std::vector<std::string_view> parts = parts_of(c.node, delimiter, text_of(x.as<TextElement>()[i]));
    for (std::int64_t k = 0; k < width && c.output().present(); ++k) {
      cancellation_point();
      const auto n = static_cast<std::size_t>(k);
      c.output().as<TextElement>()[i * width + k] = n < parts.size() ? c.add_text(parts[n]) : nullptr;
    }
    if (c.outputs.size() > 1 && c.output(1).present()) c.output(1).as<std::int64_t>()[i] = static_cast<std::int64_t>(parts.size());
  }
}

// -------------------------------------------------------------------------------------------------------- normalize --

enum : int { kCaseChange, kCaseSensitive, kLocale, kStopWords };

// Capital letters from `first` to `last` in steps of `step`. The small letter of each is `distance` further.
struct Letters {
  int first, last, distance, step;
};
constexpr Letters kLetters[] = {
    {'A', 'Z', 32, 1},       {0xC0, 0xD6, 32, 1},   {0xD8, 0xDE, 32, 1},                           // Latin-1
    {0x100, 0x12E, 1, 2},    {0x132, 0x136, 1, 2},  {0x139, 0x147, 1, 2},  {0x14A, 0x176, 1, 2},   // Latin
    {0x178, 0x178, -121, 1}, {0x179, 0x17D, 1, 2},  {0x218, 0x21A, 1, 2},                          // Latin
    {0x386, 0x386, 38, 1},   {0x388, 0x38A, 37, 1}, {0x38C, 0x38C, 64, 1}, {0x38E, 0x38F, 63, 1},  // Greek
    {0x391, 0x3A1, 32, 1},   {0x3A3, 0x3AB, 32, 1},                                                // Greek
    {0x400, 0x40F, 80, 1},   {0x410, 0x42F, 32, 1}, {0x460, 0x480, 1, 2},  {0x48A, 0x4BE, 1, 2},   // Cyrillic
    {0x4C0, 0x4C0, 15, 1},   {0x4C1, 0x4CD, 1, 2},  {0x4D0, 0x52E, 1, 2},                          // Cyrillic
    {0x531, 0x556, 48, 1},                                                                         // Armenian
};
constexpr int kFinalSigma = 0x3C2, kCapitalSigma = 0x3A3;

// The other case of a letter of kLetters; other characters as they are.
int changed(int c, bool lower) {
  if (c == kFinalSigma && !lower) return kCapitalSigma;
  for (const Letters& of : kLetters) {
    const int capital = lower ? c : c - of.distance;
    if (capital >= of.first && capital <= of.last && (capital - of.first) % of.step == 0) {
      return lower ? capital + of.distance : capital;
    }
  }
  return c;
}

// Characters of two bytes hold all letters that change; others are copied.
std::string with_case(std::string_view text, bool lower) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    cancellation_point();
    const auto a = static_cast<unsigned char>(text[i]);
    const auto b = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (a < 0x80) {
      out += static_cast<char>(changed(a, lower));
    } else if ((a & 0xE0) == 0xC0 && (b & 0xC0) == 0x80) {
      const int c = changed((a & 0x1F) << 6 | (b & 0x3F), lower);
      out += static_cast<char>(0xC0 | c >> 6);
      out += static_cast<char>(0x80 | (c & 0x3F));
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Whether case in that locale ("de_DE.UTF-8", "en-US", "C") is what changed() has.
bool has_common_case(const std::string& locale) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto end = static_cast<std::size_t>(std::find_if_not(locale.begin(), locale.end(), is_letter) - locale.begin());
  if (end < locale.size() && std::string_view("_-.@").find(locale[end]) == std::string_view::npos) return false;
  const std::string language = with_case(std::string_view(locale).substr(0, end), true);
  if (locale.empty() || language == "c" || language == "posix") return true;
  constexpr std::string_view kOwnRules[] = {"tr", "tur", "az", "aze", "lt", "lit", "crh", "ku", "kur", "tt", "tat"};
  return (end == 2 || end == 3) && std::find(std::begin(kOwnRules), std::end(kOwnRules), language) == std::end(kOwnRules);
}

void require_locale(const Node& node) {
  const bool no_case =
      attr_string(node, kCaseChange) == "NONE" && (attr_strings(node, kStopWords).empty() || attr_int(node, kCaseSensitive) != 0);
  if (no_case || !attr_given(node, kLocale) || has_common_case(attr_string(node, kLocale))) return;
  fail(EVN_ERROR_UNSUPPORTED, "attribute 'locale' is '%.64s': upper and lower case are those of en_US and of what agrees with it",
       attr_string(node, kLocale).c_str());
}

// Returns the elements that are no stop words. The stop words are sorted, because a model can choose words whose hashes collide.
std::vector<std::string_view> without_stop_words(const Node& node, const ConstTensor& x) {
  const bool sensitive = attr_int(node, kCaseSensitive) != 0;
  std::vector<std::string> lower;
  for (const std::string& word : attr_strings(node, kStopWords)) {
    cancellation_point();
    if (!sensitive) lower.push_back(with_case(word, true));
  }
  const std::span<const std::string> words = sensitive ? attr_strings(node, kStopWords) : std::span<const std::string>(lower);
  std::vector<std::string_view> stop(words.begin(), words.end());
  std::sort(stop.begin(), stop.end(), KeyLess());
  std::vector<std::string_view> stay;
  for (std::int64_t i = 0; i < x.desc.shape.elements(); ++i) {
    cancellation_point();
    const std::string_view text = text_of(x.as<TextElement>()[i]);
    const std::string lower_text = sensitive ? std::string() : with_case(text, true);
    const std::string_view word = sensitive ? text : lower_text;
    if (!std::binary_search(stop.begin(), stop.end(), word, KeyLess())) stay.push_back(text);
  }
  return stay;
}

DType normalize_dtype(const Node& node, std::span<const DType> inputs, int) {
  require_locale(node);
  return inputs[0];
}

void infer_normalize(InferContext& c) {
  require_rank(c, 0, 1, 2);
  const std::string& change = attr_string(c.node, kCaseChange);
  if (change != "NONE" && change != "LOWER" && change != "UPPER")
    fail(EVN_ERROR_INVALID_MODEL, "case_change_action is none of NONE, LOWER, UPPER");
  const Shape& x = c.shape(0);
  if (x.rank() == 2) require_dim(x[0], 1, 0);
  std::int64_t count = -1;
  const ConstTensor value = known_input(c, 0);
  if (value.data != nullptr) count = std::max<std::int64_t>(static_cast<std::int64_t>(without_stop_words(c.node, value).size()), 1);
  if (x.is_known() && x.elements() == 0) count = 1;
  c.outputs[0].shape = x.rank() == 2 ? Shape{1, count} : Shape{count};
}

void reference_normalize(const ReferenceContext& c) {
  const std::string& change = attr_string(c.node, kCaseChange);
  auto* to = c.output().as<TextElement>();
  to[0] = nullptr;
  for (const std::string_view text : without_stop_words(c.node, c.input(0))) {
    cancellation_point();
    *to++ = c.add_text(change == "NONE" ? std::string(text) : with_case(text, change == "LOWER"));
  }
}

// ------------------------------------------------------------------------------------------------------------ match --

DType bool_dtype(const Node&, std::span<const DType>, int) { return DType::kBool; }

void infer_match(InferContext& c) {
  if (!attr_given(c.node, 0)) fail(EVN_ERROR_INVALID_MODEL, "attribute 'pattern' is missing");
  const Regex pattern(attr_string(c.node, 0));  // throws
  infer_same_shape(c);
}

void reference_match(const ReferenceContext& c) {
  const Regex pattern(attr_string(c.node, 0));
  for (std::int64_t i = 0; i < c.output().desc.shape.elements(); ++i) {
    cancellation_point();
    c.output().as<std::uint8_t>()[i] = pattern.matches_all(text_of(c.input(0).as<TextElement>()[i])) ? 1 : 0;
  }
}

constexpr AttributeSpec kSplit[] = {optional_attribute("delimiter", AttributeType::kString), int_attribute("maxsplit", INT64_MAX)};
constexpr AttributeSpec kNormalizer[] = {string_attribute("case_change_action", "NONE"), int_attribute("is_case_sensitive", 0),
                                         optional_attribute("locale", AttributeType::kString),
                                         optional_attribute("stopwords", AttributeType::kStrings)};
constexpr AttributeSpec kMatch[] = {optional_attribute("pattern", AttributeType::kString)};

constexpr OpDef kOps[] = {
    {.name = "StringConcat",
     .since = 20,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kString,
     .infer = infer_concat,
     .reference = reference_concat},
    {.name = "StringSplit",
     .since = 20,
     .max_outputs = 2,
     .attributes = kSplit,
     .dtypes = kString,
     .value_inputs = 1,
     .output_dtype = split_dtype,
     .infer = infer_split,
     .reference = reference_split},
    {.name = "StringNormalizer",
     .since = 10,
     .attributes = kNormalizer,
     .dtypes = kString,
     .value_inputs = 1,
     .output_dtype = normalize_dtype,
     .infer = infer_normalize,
     .reference = reference_normalize},
    {.name = "RegexFullMatch",
     .since = 20,
     .attributes = kMatch,
     .dtypes = kString,
     .output_dtype = bool_dtype,
     .infer = infer_match,
     .reference = reference_match},
};

}  // namespace

extern const OpFamily strings_family;
const OpFamily strings_family = {kOps};

}  // namespace evn
