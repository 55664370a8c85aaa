// The checks that a text passes before yaml-cpp sees it, and the places of messages.
#include "config/yaml.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "base/error.h"
#include "base/text.h"

namespace evn {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool is_utf16(std::string_view text) {
  if (text.size() < 2) return false;
  const bool mark = text.substr(0, 2) == "\xff\xfe" || text.substr(0, 2) == "\xfe\xff";
  return mark || (text[0] == '\0') != (text[1] == '\0');
}

// Offset just after the quoted text that begins at i; npos when it never ends.
std::size_t quotation_end(std::string_view text, std::size_t i) {
  const char quote = text[i++];
  for (; i < text.size(); ++i) {
    const bool pair = i + 1 < text.size() && (quote == '"' ? text[i] == '\\' : text[i] == '\'' && text[i + 1] == '\'');
    if (pair) {
      ++i;  // an escape, or a quote written twice
    } else if (text[i] == quote) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

// yaml-cpp reads the whole of a text of open brackets before its first event, so their depth is looked at first. Brackets in plain
// text count too: no configuration has 32 of those open.
void refuse_open_brackets(const YamlSource& source) {
  const std::string_view text = source.text;
  std::size_t depth = 0;
  char before = '\n';  // the last character that is no blank
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool after_blank = i == 0 || text[i - 1] == ' ' || text[i - 1] == '\n' || text[i - 1] == '\t';
    if (c == '#' && after_blank) {
      i = std::min(text.find('\n', i), text.size()) - 1;
      continue;
    }
    const bool starts = std::string_view("\n[{,:-?").find(before) != std::string_view::npos;
    if ((c == '"' || c == '\'') && starts) i = std::min(quotation_end(text, i), text.size()) - 1;
    if (c == ']' || c == '}') depth -= depth > 0 ? 1 : 0;
    if ((c == '[' || c == '{') && ++depth > kMaxYamlDepth) source.fail_at(i, "nested deeper than %zu levels", kMaxYamlDepth);
    if (c != ' ' && c != '\t' && c != '\r') before = c;
  }
}

// Bytes of the blank or the line break (YAML 1.1's) that begins at i; 0: it is something else.
std::size_t blank_bytes(std::string_view text, std::size_t i) {
  const char c = text[i];
  if (c == ' ' || c == '\t' || c == '\n' || c == '\r') return 1;
  if (text.substr(i, 2) == "\xc2\x85") return 2;
  return text.substr(i, 3) == "\xe2\x80\xa8" || text.substr(i, 3) == "\xe2\x80\xa9" ? 3 : 0;
}

// A parser may look at a run of blanks once for each word beside it (libyaml did): such a text is refused, whatever reads it.
void refuse_blanks(const YamlSource& source) {
  const std::string_view text = source.text;
  std::size_t longest = 0;
  std::size_t runs = 0;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size()) {
      const std::size_t bytes = blank_bytes(text, end);
      if (bytes == 0) break;
      end += bytes;
    }
    longest = std::max(longest, end - i);
    runs += end > i ? 1 : 0;
    i = end + 1;
  }
  if (longest * runs > kMaxYamlBlanks) {
    throw make_error(EVN_ERROR_LIMIT, "%s: a run of %zu blanks and line breaks is too long for a text with %zu of them",
                     shorten(source.name, 200).c_str(), longest, runs)
        .with_bytes(longest * runs, kMaxYamlBlanks);
  }
}

void refuse_bytes(const YamlSource& source) {
  const std::string_view text = source.text;
  bool indentation = true;
  std::size_t indicators = 0;
  std::size_t directives = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool line_start = i == 0 || text[i - 1] == '\n' || text[i - 1] == '\r';
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f)
      source.fail_at(i, "the control character 0x%02x is not allowed", c);
    const unsigned next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
    if (c == 0xc2 && next >= 0x80 && next < 0xa0 && next != 0x85) {  // U+0080 to U+009F but for U+0085, a line break
      source.fail_at(i, "the control character 0x%02x is not allowed", next);
    }
    if (c == '\t' && indentation) source.fail_at(i, "a tab is no indentation: use spaces");
    if (c == '%' && line_start) {
      if (++directives > kMaxYamlDirectives)
        source.fail_at(i, "more than %zu directives (lines that begin with %%)", kMaxYamlDirectives);
      const std::string_view line = text.substr(i, 6);
      if (!line.starts_with("%YAML ") && !line.starts_with("%TAG ")) {
        source.fail_at(i, "not valid YAML: only the directives %%YAML and %%TAG begin with %%; text that does needs quotes");
      }
    }
    if (line_start && text.substr(i, kByteOrderMark.size()) == kByteOrderMark) {
      source.fail_at(i, "a byte-order mark can only begin the text, once");
    }
    indentation = c == '\n' || (indentation && c == ' ');
    if (std::string_view("[{,:\"'&*!?|>").find(text[i]) != std::string_view::npos) ++indicators;
  }
  const std::size_t bad = find_invalid_utf8(text);
  if (bad != std::string_view::npos) {
    source.fail_at(bad, "the byte 0x%02x is not valid UTF-8 here", static_cast<unsigned>(static_cast<unsigned char>(text[bad])));
  }
  if (indicators > kMaxYamlIndicators) {
    throw make_error(EVN_ERROR_LIMIT, "%s: a configuration may have at most %zu of the characters [ { , : \" ' & * ! ? | >",
                     shorten(source.name, 200).c_str(), kMaxYamlIndicators)
        .with_bytes(indicators, kMaxYamlIndicators);
  }
  refuse_blanks(source);
  refuse_open_brackets(source);
}

}  // namespace

bool yaml_quotation_ends(std::string_view text, std::size_t begin) { return quotation_end(text, begin) != std::string_view::npos; }

void YamlSource::fail_at(std::size_t offset, const char* format, ...) const {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  const std::size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto column = 1 + std::count_if(before.begin() + static_cast<std::ptrdiff_t>(line_start), before.end(),
                                        [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
  char message[400];
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(message, sizeof message, format, args);
  va_end(args);
  // The end of a long path says more than its beginning.
  constexpr std::size_t kMaxName = 100;
  const bool cut = name.size() > kMaxName;
  const std::string shown(cut ? name.substr(name.size() - kMaxName) : name);
  fail(EVN_ERROR_CONFIG, "%s%s:%td:%td: %s", cut ? "..." : "", shown.c_str(), line, column, message);
}

YamlSource check_yaml_text(std::string_view text, std::string_view name) {
  if (text.size() > kMaxYamlBytes) {
    throw make_error(EVN_ERROR_LIMIT, "%s: a configuration may have at most %zu bytes", shorten(name, 200).c_str(), kMaxYamlBytes)
        .with_bytes(text.size(), kMaxYamlBytes);
  }
  YamlSource source{name, text};
  if (is_utf16(text)) source.fail_at(0, "this is UTF-16: a configuration is UTF-8");
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) source.text.remove_prefix(kByteOrderMark.size());
  refuse_bytes(source);
  return source;
}

}  // namespace evn
