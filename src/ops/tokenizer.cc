// com.microsoft's Tokenizer: the tokens of each element along a further last axis, which is as long as the most tokens, pad_value
// behind an element's own. Tokens are what is left between the matches of `separators` (patterns, one after the other), the
// characters of UTF-8 where the only separator is "", or the matches of `tokenexp`, the longest from the leftmost place on. Those
// of fewer than mincharnum characters and empty ones are left out; with `mark` U+0002 stands before an element's tokens and U+0003
// behind them, unless no element has any: then the axis has no elements.
//   attributes  mark; mincharnum; pad_value; one of separators and tokenexp
// dtypes: strings, of rank 1 or 2. Patterns: ops/infra/regex.h; matches of nothing separate nothing. Exact.
#include <algorithm>
#include <string>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/regex.h"

namespace evn {
namespace {

enum : int { kMark, kMinCharacters, kPadValue, kSeparators, kTokenPattern };

using Tokens = std::vector<std::string_view>;

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

std::int64_t characters_of(std::string_view text) {
  std::int64_t count = 0;
  for (const char c : text) {
    cancellation_point();
    count += continues_character(c) ? 0 : 1;
  }
  return count;
}

Tokens characters_in(std::string_view text) {
  Tokens found;
  while (!text.empty()) {
    cancellation_point();
    std::size_t size = 1;
    while (size < text.size() && continues_character(text[size])) {
      cancellation_point();
      ++size;
    }
    found.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return found;
}

// Calls matched(begin, end) for the matches that are not empty, from left to right.
template <typename F>
void for_each_match(const Regex& pattern, std::string_view text, F&& matched) {
  for (std::size_t from = 0; from < text.size();) {
    cancellation_point();
    const Regex::Match m = pattern.find(text, from);
    if (!m.found) return;
    if (m.end > m.begin) matched(m.begin, m.end);
    from = std::max(m.end, m.begin + 1);
  }
}

// What a node does, its patterns read.
class Tokenizer {
 public:
  explicit Tokenizer(const Node& node) : least_(attr_int(node, kMinCharacters)) {
    if (least_ < 1) fail(EVN_ERROR_INVALID_MODEL, "mincharnum is %lld", static_cast<long long>(least_));
    if (attr_given(node, kSeparators) == attr_given(node, kTokenPattern))
      fail(EVN_ERROR_INVALID_MODEL, "needs one of separators and tokenexp");
    if (attr_given(node, kTokenPattern)) {
      patterns_.emplace_back(attr_string(node, kTokenPattern));
      matches_are_tokens_ = true;
      return;
    }
    const std::span<const std::string> separators = attr_strings(node, kSeparators);
    if (separators.empty()) fail(EVN_ERROR_INVALID_MODEL, "separators is empty");
    by_character_ = separators.size() == 1 && separators[0].empty();
    if (by_character_ && least_ > 1)
      fail(EVN_ERROR_INVALID_MODEL, "mincharnum is %lld, of single characters", static_cast<long long>(least_));
    for (const std::string& s : separators) {
      cancellation_point();
      if (!by_character_) patterns_.emplace_back(s);
    }
  }

  Tokens tokens_of(std::string_view text) const {
    Tokens tokens = by_character_ ? characters_in(text) : matches_are_tokens_ ? matches_in(text) : separated(text);
    std::erase_if(tokens, [&](std::string_view t) { return t.empty() || characters_of(t) < least_; });
    return tokens;
  }

 private:
  Tokens matches_in(std::string_view text) const {
    Tokens found;
    for_each_match(patterns_[0], text,
                   [&](std::size_t begin, std::size_t end) { found.push_back(text.substr(begin, end - begin)); });
    return found;
  }

  Tokens separated(std::string_view text) const {
    Tokens parts = {text};
    for (const Regex& separator : patterns_) {
      cancellation_point();
      Tokens smaller;
      for (const std::string_view part : parts) {
        cancellation_point();
        std::size_t from = 0;
        for_each_match(separator, part, [&](std::size_t begin, std::size_t end) {
          smaller.push_back(part.substr(from, begin - from));
          from = end;
        });
        smaller.push_back(part.substr(from));
      }
      std::erase_if(smaller, [](std::string_view t) { return t.empty(); });
      parts = std::move(smaller);
    }
    return parts;
  }

  std::int64_t least_;
  std::vector<Regex> patterns_;
  bool matches_are_tokens_ = false;
  bool by_character_ = false;
};

void infer_tokenizer(InferContext& c) {
  require_rank(c, 0, 1, 2);
  if (!attr_given(c.node, kPadValue)) fail(EVN_ERROR_INVALID_MODEL, "attribute 'pad_value' is missing");
  const Tokenizer tokenizer(c.node);
  const ConstTensor x = known_input(c, 0);
  const bool empty = c.shape(0).is_known() && c.shape(0).elements() == 0;
  std::int64_t most = x.data != nullptr || empty ? 0 : -1;
  for (std::int64_t i = 0; x.data != nullptr && i < x.desc.shape.elements(); ++i) {
    cancellation_point();
    most = std::max(most, static_cast<std::int64_t>(tokenizer.tokens_of(text_of(x.as<TextElement>()[i])).size()));
  }
  c.outputs[0].shape = c.shape(0);
  c.outputs[0].shape.push_back(most > 0 && attr_int(c.node, kMark) != 0 ? most + 2 : most);
}

void reference_tokenizer(const ReferenceContext& c) {
  const Tokenizer tokenizer(c.node);
  const bool mark = attr_int(c.node, kMark) != 0;
  const Shape& out = c.output().desc.shape;
  const std::int64_t width = out[out.rank() - 1];
  if (width == 0) return;
  for (std::int64_t i = 0; i < c.input(0).desc.shape.elements(); ++i) {
    cancellation_point();
    Tokens tokens = tokenizer.tokens_of(text_of(c.input(0).as<TextElement>()[i]));
    if (mark) {
      tokens.insert(tokens.begin(), "\x02");
      tokens.push_back("\x03");
    }
    tokens.resize(static_cast<std::size_t>(width), attr_string(c.node, kPadValue));
    for (std::int64_t k = 0; k < width; ++k) {
      cancellation_point();
      c.output().as<TextElement>()[i * width + k] = c.add_text(tokens[static_cast<std::size_t>(k)]);
    }
  }
}

constexpr std::uint32_t kString = dtype_bit(DType::kString);
constexpr AttributeSpec kAttributes[] = {
    int_attribute("mark", 0), int_attribute("mincharnum", 1), optional_attribute("pad_value", AttributeType::kString),
    optional_attribute("separators", AttributeType::kStrings), optional_attribute("tokenexp", AttributeType::kString)};
constexpr OpDef kOps[] = {
    {.name = "Tokenizer",
     .domain = "com.microsoft",
     .since = 1,
     .attributes = kAttributes,
     .dtypes = kString,
     .value_inputs = 1,
     .infer = infer_tokenizer,
     .reference = reference_tokenizer},
};

}  // namespace

extern const OpFamily tokenizer_family;
const OpFamily tokenizer_family = {kOps};

}  // namespace evn
