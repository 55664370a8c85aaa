// YAML text as a small tree, the subset that a configuration needs: maps with text keys, lists, scalars. Anchors, aliases, tags,
// merge keys, duplicate keys, several documents, tabs as indentation and anything but UTF-8 are refused with line and column.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace evn {

// What a text may hold at most; reading costs memory and time in proportion to it.
inline constexpr std::size_t kMaxYamlBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxYamlDepth = 32;          // nested maps and lists
inline constexpr std::size_t kMaxYamlIndicators = 65536;  // characters of YAML's own, quoted or not: [ { , : " ' & * ! ? | >
inline constexpr std::size_t kMaxYamlDirectives = 16;     // lines that begin with %
inline constexpr std::size_t kMaxYamlBlanks = std::size_t{1} << 28;  // the longest run of blanks and line breaks times the runs

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  bool quoted = false;          // of a scalar: quoted or block text, so never a number, boolean or null
  std::size_t offset = 0;       // of its first byte in the document's text
  int line = 0;                 // 1-based
  std::string text;             // of a scalar
  std::vector<YamlNode> items;  // elements of a list; keys and values of a map in turn
};

// The text that a tree came from, for messages. Both views must outlive it.
struct YamlSource {
  std::string_view name;  // of the file
  std::string_view text;  // without a byte-order mark

  // Throws EVN_ERROR_CONFIG "name:line:column: ..." (1-based, columns in characters). printf-style.
  [[noreturn, gnu::format(printf, 3, 4)]] void fail_at(std::size_t offset, const char* format, ...) const;
};

// Checks encoding and size and drops a byte-order mark. Throws EVN_ERROR_CONFIG and EVN_ERROR_LIMIT.
YamlSource check_yaml_text(std::string_view text, std::string_view name);

// Whether the quotation (in ' or ") that begins at `begin` ends.
bool yaml_quotation_ends(std::string_view text, std::size_t begin);

// The root of the only document; a null node for a text that is empty or only comments.
YamlNode parse_yaml(const YamlSource& source);

}  // namespace evn
