#include "base/text.h"

#include <algorithm>
#include <charconv>

#include "base/cancel.h"

namespace evn {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr Unit kByteUnits[] = {{"", 1}, {"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30}, {"TiB", 1ull << 40}};
constexpr Unit kTimeUnits[] = {
    {"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}, {"min", 60'000'000'000}, {"h", 3'600'000'000'000}};

std::optional<std::uint64_t> parse_with_unit(std::string_view text, std::span<const Unit> units) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::optional<std::uint64_t> number = parse_u64(text.substr(0, digits));
  if (!number) return std::nullopt;
  for (const Unit& unit : units) {
    if (unit.name != text.substr(digits)) continue;
    std::uint64_t product;
    if (__builtin_mul_overflow(*number, unit.factor, &product)) return std::nullopt;
    return product;
  }
  return std::nullopt;
}

// Bytes of the character that starts at text[i], at least 1.
std::size_t character_length(std::string_view text, std::size_t i) {
  std::size_t n = 1;
  while (i + n < text.size() && (static_cast<unsigned char>(text[i + n]) & 0xc0) == 0x80 && n < 4) ++n;
  return n;
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  // Only the last star needs to be retried: whatever an earlier one took more, the last one can take instead.
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (t < text.size()) {
    cancellation_point();
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && pattern[p] == '?') {
      ++p;
      t += character_length(text, t);
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      star_text += character_length(text, star_text);
      t = star_text;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

OperatorWord parse_operator(std::string_view text) {
  const std::size_t colons = text.rfind("::");
  if (colons == std::string_view::npos) return {std::nullopt, text};
  const std::string_view domain = text.substr(0, colons);
  return {domain == "ai.onnx" ? std::string_view() : domain, text.substr(colons + 2)};
}

bool names_operator(std::string_view text, std::string_view domain, std::string_view op) {
  const OperatorWord word = parse_operator(text);
  return word.name == op && (!word.domain || *word.domain == domain);
}

bool matches_node(std::string_view pattern, std::string_view name, std::string_view domain, std::string_view op) {
  if (!pattern.starts_with(kTypePattern)) return glob_match(pattern, name);
  return names_operator(pattern.substr(kTypePattern.size()), domain, op);
}

bool is_node_name(std::string_view pattern) {
  return !pattern.starts_with(kTypePattern) && pattern.find_first_of("*?") == std::string_view::npos;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  constexpr std::size_t kMax = 64;
  a = a.substr(0, kMax);
  b = b.substr(0, kMax);
  std::size_t rows[3][kMax + 1];
  std::size_t* before = rows[0];  // two rows up, for swaps
  std::size_t* last = rows[1];
  std::size_t* now = rows[2];
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::size_t* const free_row = before;
    before = last;
    last = now;
    now = free_row;
  }
  return last[b.size()];
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(1, std::min<std::size_t>(word.size(), 64) / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    // A suggestion that shares nothing with the word is none.
    if (distance < best_distance && distance < std::max(word.size(), candidate.size())) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::size_t utf8_character(std::string_view text) {
  if (text.empty()) return 0;
  const auto c = static_cast<unsigned char>(text[0]);
  if (c < 0x80) return 1;
  const std::size_t length = c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t k = 1; k < length; ++k) {
    if ((static_cast<unsigned char>(text[k]) & 0xc0) != 0x80) return 0;
  }
  const auto second = static_cast<unsigned char>(text[1]);
  const bool overlong = (c == 0xe0 && second < 0xa0) || (c == 0xf0 && second < 0x90);
  const bool surrogate = c == 0xed && second > 0x9f;
  const bool too_large = c == 0xf4 && second > 0x8f;
  return overlong || surrogate || too_large ? 0 : length;
}

std::size_t printable_character(std::string_view text) {
  const std::size_t length = utf8_character(text);
  if (length == 0) return 0;
  const auto c = static_cast<unsigned char>(text[0]);
  const bool c1 = c == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
  return c < 0x20 || c == 0x7f || c1 ? 0 : length;
}

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const std::size_t length = utf8_character(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

std::size_t utf8_prefix(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text.size();
  std::size_t n = max_bytes;
  while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xc0) == 0x80) --n;
  return n;
}

std::string shorten(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  return std::string(text.substr(0, utf8_prefix(text, max_bytes > 3 ? max_bytes - 3 : 0))) + "...";
}

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string_view name = text.substr(begin, end - begin);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    names.emplace_back(name);
    begin = end + 1;
  }
  return names;
}

std::optional<std::uint64_t> parse_u64(std::string_view text) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 10);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) { return parse_with_unit(text, kByteUnits); }

std::optional<std::uint64_t> parse_duration_ns(std::string_view text) { return parse_with_unit(text, kTimeUnits); }

}  // namespace evn
