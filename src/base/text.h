// Small text tools: globs, the nearest name to a mistyped one, UTF-8, and numbers with units. Nothing here looks at the locale,
// and nothing takes more than time proportional to the product of two lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evn {

// `*` stands for any bytes, `?` for one UTF-8 character; there is no escape and no class. The whole text must match.
// Has cancellation points.
bool glob_match(std::string_view pattern, std::string_view text);

// A name of an operator as configurations and options write it: "Softmax", which is of any domain, or "com.microsoft::Gelu".
struct OperatorWord {
  std::optional<std::string_view> domain;  // "" is ai.onnx; none: any
  std::string_view name;
};
OperatorWord parse_operator(std::string_view text);

// True if the text names the operator of this domain ("" is ai.onnx).
bool names_operator(std::string_view text, std::string_view domain, std::string_view op);

// What patterns for nodes by their operators begin with.
inline constexpr std::string_view kTypePattern = "type:";

// True if a pattern is for a node: "type:Softmax" for its operator, else a glob of its name.
bool matches_node(std::string_view pattern, std::string_view name, std::string_view domain, std::string_view op);

// True if a pattern for nodes fits those of one name alone, which is the pattern.
bool is_node_name(std::string_view pattern);

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`, in bytes. Texts are cut to 64 bytes first.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to a mistyped word, the first of equals; "" when none is near enough to be worth a suggestion.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

// Bytes of the well-formed UTF-8 character that `text` begins with; 0 when it begins with none.
std::size_t utf8_character(std::string_view text);

// Bytes of the character that `text` begins with, where it may stand in messages and on terminals; 0 when it begins with a control
// character (C0, DEL, C1) or with no well-formed character.
std::size_t printable_character(std::string_view text);

// The offset of the first byte that is not well-formed UTF-8 (overlong forms, surrogates and values above U+10FFFF are not);
// npos when all of it is.
std::size_t find_invalid_utf8(std::string_view text);

// Bytes of the longest prefix of at most max_bytes that does not end within a UTF-8 character.
std::size_t utf8_prefix(std::string_view text, std::size_t max_bytes);

// At most max_bytes of text, cut at a character and ended by "..." when it was longer. For messages.
std::string shorten(std::string_view text, std::size_t max_bytes);

// The parts of a text between its commas, without the spaces around them.
std::vector<std::string> split_names(std::string_view text);

// Decimal digits only: no sign, no blank, no leading zero, no wrap.
std::optional<std::uint64_t> parse_u64(std::string_view text);

// A whole number of bytes, or of KiB, MiB, GiB or TiB right after the number: "1048576", "512MiB".
std::optional<std::uint64_t> parse_bytes(std::string_view text);

// A whole number with a unit right after it, as nanoseconds: "100us", "5s". Units: ns, us, ms, s, min, h.
std::optional<std::uint64_t> parse_duration_ns(std::string_view text);

}  // namespace evn
