// yaml-cpp's events built into YamlNodes. Depth, aliases and tags are refused while the events come, so neither yaml-cpp's
// recursive parser nor a later walk goes deeper than kMaxYamlDepth. yaml-cpp reads from a stream: this file has the only one. Its
// memory comes from operator new, and so from base/alloc; no exception of its own leaves this file.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <istream>
#include <streambuf>
#include <utility>

#include "base/text.h"
#include "config/yaml.h"

namespace evn {
namespace {

void refuse_duplicate_keys(const YamlSource& source, const YamlNode& map) {
  std::vector<const YamlNode*> keys;
  for (std::size_t i = 0; i < map.items.size(); i += 2) keys.push_back(&map.items[i]);
  std::ranges::sort(keys, [](const YamlNode* a, const YamlNode* b) {
    const int order = a->text.compare(b->text);
    return order != 0 ? order < 0 : a->offset < b->offset;
  });
  for (std::size_t i = 1; i < keys.size(); ++i) {
    if (keys[i]->text != keys[i - 1]->text) continue;
    source.fail_at(keys[i]->offset, "duplicate key \"%s\": it is set at line %d and again at line %d",
                   shorten(keys[i]->text, 60).c_str(), keys[i - 1]->line, keys[i]->line);
  }
}

// Stands for a question mark that is part of a word, which YAML allows and yaml-cpp refuses between brackets ("{name: det?}").
// check_yaml_text lets no such byte pass.
constexpr char kQuestionMark = '\x01';

// The text with the same places that yaml-cpp reads as YAML says: a carriage return alone is a line break, and a question mark
// beside a character of a word belongs to it.
std::string for_yaml_cpp(std::string_view text) {
  std::string copy(text);
  for (std::size_t i = 0; i < copy.size(); ++i) {
    if (copy[i] == '\r' && (i + 1 == copy.size() || copy[i + 1] != '\n')) copy[i] = '\n';
    const bool begins = i == 0 || std::string_view(" \t\r\n[]{},:?-").find(copy[i - 1]) != std::string_view::npos;
    const bool ends = i + 1 == copy.size() || std::string_view(" \t\r\n[]{},:?\"'").find(copy[i + 1]) != std::string_view::npos;
    if (copy[i] == '?' && !(begins && ends)) copy[i] = kQuestionMark;
  }
  return copy;
}

// Reads a text in place.
class TextBuffer : public std::streambuf {
 public:
  explicit TextBuffer(std::string& text) { setg(text.data(), text.data(), text.data() + text.size()); }
};

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const YamlSource& source) : source_(source) {}

  YamlNode read() {
    try {
      std::string text = for_yaml_cpp(source_.text);
      TextBuffer buffer(text);
      std::istream stream(&buffer);
      YAML::Parser parser(stream);
      while (parser.HandleNextDocument(*this)) {}
    } catch (const YAML::Exception& e) {
      fail_on_syntax(e);
    }
    return std::move(root_);
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    // yaml-cpp would come here for ever when text follows the document that it cannot read.
    if (documents_++ != 0) source_.fail_at(offset_of(mark), "the document ends before this: a configuration is one YAML document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse_tag(mark, "");
    // yaml-cpp takes a line without ":" for a key whose value is null, and gives both the place of the line.
    if (value_is_next() && open_.back().items.back().offset == offset_of(mark)) fail_without_colon(offset_of(mark));
    add(make(YamlNode::Kind::kNull, mark));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { fail_alias(offset_of(mark)); }
  void OnAnchor(const YAML::Mark& mark, const std::string&) override {
    source_.fail_at(offset_of(mark), "anchors (&name) are not allowed");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& value) override {
    refuse_tag(mark, tag);
    YamlNode node = make(YamlNode::Kind::kScalar, mark);
    node.quoted = tag == "!";
    const char first = at(node.offset);
    if (node.quoted && (first == '"' || first == '\'') && !yaml_quotation_ends(source_.text, node.offset)) {
      source_.fail_at(node.offset, "not valid YAML: this quotation does not end");  // yaml-cpp takes one that ends with a line feed
    }
    node.text = value;
    std::replace(node.text.begin(), node.text.end(), kQuestionMark, '?');
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
  // Marks count bytes, from 0.
  std::size_t offset_of(const YAML::Mark& mark) const {
    return mark.pos < 0 ? 0 : std::min(static_cast<std::size_t>(mark.pos), source_.text.size());
  }
  // NUL behind the end.
  char at(std::size_t offset) const { return offset < source_.text.size() ? source_.text[offset] : '\0'; }

  YamlNode make(YamlNode::Kind kind, const YAML::Mark& mark) const {
    YamlNode node;
    node.kind = kind;
    node.offset = offset_of(mark);
    node.line = mark.line + 1;
    return node;
  }

  [[noreturn]] void fail_alias(std::size_t offset) const {
    source_.fail_at(offset, "aliases (*name) are not allowed; a pattern that begins with * needs quotes");
  }

  // yaml-cpp gives "?" to plain and "!" to quoted scalars; a written tag stands at the node's own offset.
  void refuse_tag(const YAML::Mark& mark, std::string_view tag) const {
    const bool written = at(offset_of(mark)) == '!';
    if (written || (!tag.empty() && tag != "?" && tag != "!")) source_.fail_at(offset_of(mark), "tags (!name) are not allowed");
  }

  [[noreturn]] void fail_without_colon(std::size_t offset) const {
    const std::size_t end = source_.text.find_first_of(" \n:", offset);
    if (at(end) == ':' && (at(end + 1) == '[' || at(end + 1) == '{')) fail_without_blank(end);
    source_.fail_at(offset, "not valid YAML: a \":\" must follow this key, in its line");
  }

  [[noreturn]] void fail_without_blank(std::size_t colon) const {
    source_.fail_at(colon, "not valid YAML: a blank must follow this \":\"");
  }

  // Where the line begins, behind its indentation, that stands before the one of `offset`; npos: it is indented otherwise or has a
  // ":".
  std::size_t line_without_colon_before(std::size_t offset) const {
    const std::string_view text = source_.text;
    const std::size_t line = text.rfind('\n', offset) + 1;  // 0 where there is none
    if (line == 0 || offset < line) return std::string_view::npos;
    std::size_t end = line - 1;
    while (end > 0 && (text[end - 1] == '\n' || text[end - 1] == '\r' || text[end - 1] == ' ')) --end;
    const std::size_t before = end == 0 ? 0 : text.rfind('\n', end - 1) + 1;
    const std::size_t indentation = text.find_first_not_of(' ', line) - line;
    if (text.find_first_not_of(' ', before) != before + indentation) return std::string_view::npos;
    return text.substr(before, end - before).find(':') == std::string_view::npos ? before + indentation : std::string_view::npos;
  }

  // A text that yaml-cpp could not read.
  [[noreturn]] void fail_on_syntax(const YAML::Exception& e) const {
    std::size_t offset = e.mark.pos < 0 ? 0 : std::min(static_cast<std::size_t>(e.mark.pos), source_.text.size());
    if (offset > 0 && at(offset - 1) == '*') --offset;
    if (at(offset) == '*') fail_alias(offset);
    if (at(offset) == '\t') source_.fail_at(offset, "a tab cannot stand here: use spaces");
    if (offset > 0 && at(offset - 1) == ':' && (at(offset) == '[' || at(offset) == '{')) fail_without_blank(offset - 1);
    if (e.msg == YAML::ErrorMsg::MAP_VALUE) {
      const std::size_t key = line_without_colon_before(offset);
      if (key != std::string_view::npos) fail_without_colon(key);
    }
    if (open_.empty()) source_.fail_at(offset, "not valid YAML: %s", e.msg.c_str());
    const char* const what = open_.back().kind == YamlNode::Kind::kMap ? "map" : "list";
    source_.fail_at(offset, "not valid YAML: %s (in the %s that begins in line %d)", e.msg.c_str(), what, open_.back().line);
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag) {
    refuse_tag(mark, tag);
    if (open_.size() == kMaxYamlDepth) source_.fail_at(offset_of(mark), "nested deeper than %zu levels", kMaxYamlDepth);
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

  bool value_is_next() const {
    return !open_.empty() && open_.back().kind == YamlNode::Kind::kMap && open_.back().items.size() % 2 == 1;
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

}  // namespace

YamlNode parse_yaml(const YamlSource& source) { return TreeBuilder(source).read(); }

}  // namespace evn
