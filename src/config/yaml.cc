// yaml-cpp's events built into YamlNodes. The builder refuses depth, aliases and tags while the events come, so neither yaml-cpp
// nor a later walk can recurse deeper than kMaxYamlDepth. yaml-cpp's interface takes a stream: this file has the only one.
#include "config/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <istream>
#include <streambuf>
#include <utility>

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

// Reads a text in place.
class TextBuffer : public std::streambuf {
 public:
  explicit TextBuffer(std::string_view text) {
    char* const begin = const_cast<char*>(text.data());  // a get area is never written through
    setg(begin, begin, begin + text.size());
  }
};

void refuse_duplicate_keys(const YamlSource& source, const YamlNode& map) {
  std::vector<const YamlNode*> keys;
  for (std::size_t i = 0; i < map.items.size(); i += 2) keys.push_back(&map.items[i]);
  std::sort(keys.begin(), keys.end(), [](const YamlNode* a, const YamlNode* b) {
    const int order = a->text.compare(b->text);
    return order != 0 ? order < 0 : a->offset < b->offset;
  });
  for (std::size_t i = 1; i < keys.size(); ++i) {
    if (keys[i]->text != keys[i - 1]->text) continue;
    source.fail_at(keys[i]->offset, "duplicate key \"%s\": it is set at line %d and again at line %d",
                   shorten(keys[i]->text, 60).c_str(), keys[i - 1]->line, keys[i]->line);
  }
}

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const YamlSource& source) : source_(source) {}

  YamlNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    // yaml-cpp would come here for ever when text follows the document that it cannot read.
    if (documents_++ != 0) source_.fail_at(offset_of(mark), "the document ends before this: a configuration is one YAML document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { add(make(YamlNode::Kind::kNull, mark)); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    source_.fail_at(offset_of(mark), "aliases (*name) are not allowed");
  }
  void OnAnchor(const YAML::Mark& mark, const std::string&) override {
    source_.fail_at(offset_of(mark), "anchors (&name) are not allowed");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& value) override {
    refuse_tag(mark, tag);
    YamlNode node = make(YamlNode::Kind::kScalar, mark);
    node.quoted = tag == "!";
    node.text = value;
    add(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::kList, mark, tag);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::kMap, mark, tag);
  }
  void OnMapEnd() override {
    refuse_duplicate_keys(source_, open_.back());
    close();
  }

 private:
  std::size_t offset_of(const YAML::Mark& mark) const {
    return mark.pos < 0 ? 0 : std::min(static_cast<std::size_t>(mark.pos), source_.text.size());
  }

  YamlNode make(YamlNode::Kind kind, const YAML::Mark& mark) const {
    YamlNode node;
    node.kind = kind;
    node.offset = offset_of(mark);
    node.line = mark.line + 1;
    return node;
  }

  // yaml-cpp gives "?" to plain and "!" to quoted scalars; a written tag stands at the node's own offset.
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    const std::size_t offset = offset_of(mark);
    const bool written = offset < source_.text.size() && source_.text[offset] == '!';
    if (written || (!tag.empty() && tag != "?" && tag != "!")) source_.fail_at(offset, "tags (!name) are not allowed");
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag) {
    refuse_tag(mark, tag);
    if (open_.size() == kMaxYamlDepth) {
      source_.fail_at(offset_of(mark), "nested deeper than %zu levels", kMaxYamlDepth);
    }
    YamlNode node = make(kind, mark);
    refuse_as_key(node);
    open_.push_back(std::move(node));
  }

  void close() {
    YamlNode node = std::move(open_.back());
    open_.pop_back();
    add(std::move(node));
  }

  bool key_is_next() const {
    return !open_.empty() && open_.back().kind == YamlNode::Kind::kMap && open_.back().items.size() % 2 == 0;
  }

  void refuse_as_key(const YamlNode& node) const {
    if (!key_is_next()) return;
    if (node.kind != YamlNode::Kind::kScalar) source_.fail_at(node.offset, "a key must be text");
    if (!node.quoted && node.text == "<<") source_.fail_at(node.offset, "merge keys (<<) are not allowed");
  }

  void add(YamlNode node) {
    refuse_as_key(node);
    if (open_.empty()) {
      root_ = std::move(node);
    } else {
      open_.back().items.push_back(std::move(node));
    }
  }

  const YamlSource& source_;
  int documents_ = 0;
  std::vector<YamlNode> open_;
  YamlNode root_;
};

[[noreturn]] void fail_on_syntax(const YamlSource& source, const YAML::Exception& e) {
  const std::string_view text = source.text;
  std::size_t offset = e.mark.pos < 0 ? 0 : std::min(static_cast<std::size_t>(e.mark.pos), text.size());
  if (offset > 0 && offset <= text.size() && text[offset - 1] == '*') --offset;
  if (offset < text.size() && text[offset] == '*') {
    source.fail_at(offset, "aliases (*name) are not allowed; a pattern that begins with * needs quotes");
  }
  source.fail_at(offset, "not valid YAML: %s", e.msg.c_str());
}

// Offset just after the quoted text that begins at i; the end of the text when it never ends.
std::size_t skip_quoted(std::string_view text, std::size_t i) {
  const char quote = text[i++];
  for (; i < text.size(); ++i) {
    const bool pair = i + 1 < text.size() && (quote == '"' ? text[i] == '\\' : text[i] == '\'' && text[i + 1] == '\'');
    if (pair) {
      ++i;  // an escape, or a quote written twice
    } else if (text[i] == quote) {
      return i + 1;
    }
  }
  return text.size();
}

// yaml-cpp reads the whole of a text of open brackets before its first event, so their depth is looked at first. Brackets in
// plain text count too: no configuration has 32 of those open.
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
    if ((c == '"' || c == '\'') && starts) i = skip_quoted(text, i) - 1;
    if (c == ']' || c == '}') depth -= depth > 0 ? 1 : 0;
    if ((c == '[' || c == '{') && ++depth > kMaxYamlDepth) source.fail_at(i, "nested deeper than %zu levels", kMaxYamlDepth);
    if (c != ' ' && c != '\t' && c != '\r') before = c;
  }
}

void refuse_bytes(const YamlSource& source) {
  const std::string_view text = source.text;
  bool indentation = true;
  std::size_t indicators = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 && c != '\t' && c != '\n' && c != '\r') source.fail_at(i, "the control character 0x%02x is not allowed", c);
    if (c == '\t' && indentation) source.fail_at(i, "a tab is no indentation: use spaces");
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
  refuse_open_brackets(source);
}

}  // namespace

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

YamlNode parse_yaml(const YamlSource& source) {
  TreeBuilder builder(source);
  try {
    TextBuffer buffer(source.text);
    std::istream stream(&buffer);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    fail_on_syntax(source, e);
  }
  return builder.take_root();
}

}  // namespace evn
