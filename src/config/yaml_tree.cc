// libyaml's events built into YamlNodes. Depth, aliases and tags are refused while the events come, so no later walk can recurse
// deeper than kMaxYamlDepth. The events are pulled: nothing is thrown through libyaml's frames.
#include <yaml.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/alloc.h"
#include "base/text.h"
#include "config/yaml.h"

// What libyaml has for memory: cmake/library.cmake renames malloc, realloc, free and strdup to these in a copy of its archive.
// They stand in this file so that the linker has them whenever it needs libyaml.
extern "C" {
void* evener_yaml_malloc(std::size_t size);
void* evener_yaml_realloc(void* p, std::size_t size);
void evener_yaml_free(void* p);
char* evener_yaml_strdup(const char* text);

// Before each block stands its size.
static constexpr std::size_t kHeader = alignof(std::max_align_t);

void* evener_yaml_malloc(std::size_t size) {
  if (size > SIZE_MAX - kHeader) return nullptr;
  auto* block = static_cast<unsigned char*>(evn::allocate_bytes(kHeader + size, kHeader));
  if (block == nullptr) return nullptr;
  std::memcpy(block, &size, sizeof size);
  return block + kHeader;
}

void evener_yaml_free(void* p) {
  if (p != nullptr) evn::free_bytes(static_cast<unsigned char*>(p) - kHeader);
}

void* evener_yaml_realloc(void* p, std::size_t size) {
  void* const larger = evener_yaml_malloc(size);
  if (larger == nullptr || p == nullptr) return larger;
  std::size_t before = 0;
  std::memcpy(&before, static_cast<unsigned char*>(p) - kHeader, sizeof before);
  std::memcpy(larger, p, std::min(before, size));
  evener_yaml_free(p);
  return larger;
}

char* evener_yaml_strdup(const char* text) {
  const std::size_t size = std::strlen(text) + 1;
  void* const copy = evener_yaml_malloc(size);
  return copy == nullptr ? nullptr : static_cast<char*>(std::memcpy(copy, text, size));
}
}

namespace evn {
namespace {

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

// Marks count characters; messages and nodes have bytes. Goes from mark to mark, so that all of a document's cost its length.
class Places {
 public:
  explicit Places(std::string_view text) : text_(text) {}

  std::size_t offset_of(const yaml_mark_t& mark) {
    while (index_ < mark.index && offset_ < text_.size()) {
      if (text_[offset_] == '\n') ++line_;
      do ++offset_;
      while (offset_ < text_.size() && continues(offset_));
      ++index_;
    }
    while (index_ > mark.index) {
      do --offset_;
      while (continues(offset_));
      if (text_[offset_] == '\n') --line_;
      --index_;
    }
    return offset_;
  }

  // 1-based, of the last mark.
  int line() const { return line_; }

 private:
  bool continues(std::size_t offset) const { return (static_cast<unsigned char>(text_[offset]) & 0xc0) == 0x80; }

  std::string_view text_;
  std::size_t index_ = 0;   // in characters
  std::size_t offset_ = 0;  // the same in bytes
  int line_ = 1;
};

class Event {
 public:
  ~Event() { yaml_event_delete(&event_); }
  Event(const Event&) = delete;
  explicit Event(yaml_parser_t* parser) : good_(yaml_parser_parse(parser, &event_) != 0) {}
  bool good() const { return good_; }
  const yaml_event_t* operator->() const { return &event_; }

 private:
  yaml_event_t event_;
  bool good_;
};

class TreeBuilder {
 public:
  explicit TreeBuilder(const YamlSource& source) : source_(source), places_(source.text) {
    if (yaml_parser_initialize(&parser_) == 0) throw std::bad_alloc();
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    const char* const text = source.text.empty() ? "" : source.text.data();  // libyaml takes no null pointer
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text), source.text.size());
  }
  ~TreeBuilder() { yaml_parser_delete(&parser_); }
  TreeBuilder(const TreeBuilder&) = delete;

  YamlNode read() {
    while (true) {
      const Event event(&parser_);
      if (!event.good()) fail_on_error();
      switch (event->type) {
        case YAML_DOCUMENT_START_EVENT:
          if (documents_++ != 0) fail_after_document(event->start_mark);
          break;
        case YAML_ALIAS_EVENT:
          fail_alias(places_.offset_of(event->start_mark));
        case YAML_SCALAR_EVENT:
          add(scalar(event));
          break;
        case YAML_SEQUENCE_START_EVENT:
          open(YamlNode::Kind::kList, event->start_mark, event->data.sequence_start.anchor, event->data.sequence_start.tag);
          break;
        case YAML_MAPPING_START_EVENT:
          open(YamlNode::Kind::kMap, event->start_mark, event->data.mapping_start.anchor, event->data.mapping_start.tag);
          break;
        case YAML_MAPPING_END_EVENT:
          refuse_duplicate_keys(source_, open_.back());
          [[fallthrough]];
        case YAML_SEQUENCE_END_EVENT:
          close();
          break;
        case YAML_STREAM_END_EVENT:
          return std::move(root_);
        default:
          break;
      }
    }
  }

 private:
  YamlNode make(YamlNode::Kind kind, const yaml_mark_t& mark) {
    YamlNode node;
    node.kind = kind;
    node.offset = places_.offset_of(mark);
    node.line = places_.line();
    return node;
  }

  YamlNode scalar(const Event& event) {
    const auto& data = event->data.scalar;
    refuse_properties(event->start_mark, data.anchor, data.tag);
    const std::string_view text(reinterpret_cast<const char*>(data.value), data.length);
    const bool plain = data.style == YAML_PLAIN_SCALAR_STYLE;
    const bool null = plain && (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL");
    YamlNode node = make(null ? YamlNode::Kind::kNull : YamlNode::Kind::kScalar, event->start_mark);
    if (null) return node;
    node.quoted = !plain;
    node.text = text;
    return node;
  }

  [[noreturn]] void fail_alias(std::size_t offset) const {
    source_.fail_at(offset, "aliases (*name) are not allowed; a pattern that begins with * needs quotes");
  }
  [[noreturn]] void fail_anchor(std::size_t offset) const { source_.fail_at(offset, "anchors (&name) are not allowed"); }
  [[noreturn]] void fail_tag(std::size_t offset) const { source_.fail_at(offset, "tags (!name) are not allowed"); }
  [[noreturn]] void fail_after_document(const yaml_mark_t& mark) {
    source_.fail_at(places_.offset_of(mark), "the document ends before this: a configuration is one YAML document");
  }

  void refuse_properties(const yaml_mark_t& mark, const yaml_char_t* anchor, const yaml_char_t* tag) {
    if (anchor != nullptr) fail_anchor(places_.offset_of(mark));
    if (tag != nullptr) fail_tag(places_.offset_of(mark));
  }

  // A text that libyaml could not read, or no memory for it.
  [[noreturn]] void fail_on_error() {
    if (parser_.error == YAML_MEMORY_ERROR) throw std::bad_alloc();
    if (parser_.error == YAML_READER_ERROR) {
      source_.fail_at(parser_.problem_offset, "the control character 0x%02x is not allowed", parser_.problem_value);
    }
    const std::string_view problem = parser_.problem;
    if (problem == "did not find expected <document start>") fail_after_document(parser_.problem_mark);
    const std::size_t offset = places_.offset_of(parser_.problem_mark);
    if (parser_.context == nullptr) source_.fail_at(offset, "not valid YAML: %s", parser_.problem);
    const std::size_t begin = places_.offset_of(parser_.context_mark);
    const char first = begin < source_.text.size() ? source_.text[begin] : '\0';
    if (first == '*') fail_alias(begin);
    if (first == '&') fail_anchor(begin);
    if (first == '!') fail_tag(begin);
    const char at = offset < source_.text.size() ? source_.text[offset] : '\0';
    if (at == '\t') source_.fail_at(offset, "a tab cannot stand here: use spaces");
    if (at == ':' && problem == "did not find expected key") source_.fail_at(offset, "a key must be text");
    if (problem == "could not find expected ':'") {
      source_.fail_at(begin, "not valid YAML: a \":\" must follow this key, in its line");
    }
    if (problem == "found unexpected ':'") source_.fail_at(offset, "not valid YAML: a blank must follow this \":\"");
    source_.fail_at(offset, "not valid YAML: %s %s (which begins in line %d)", parser_.problem, parser_.context, places_.line());
  }

  void open(YamlNode::Kind kind, const yaml_mark_t& mark, const yaml_char_t* anchor, const yaml_char_t* tag) {
    refuse_properties(mark, anchor, tag);
    YamlNode node = make(kind, mark);
    if (open_.size() == kMaxYamlDepth) source_.fail_at(node.offset, "nested deeper than %zu levels", kMaxYamlDepth);
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
  Places places_;
  yaml_parser_t parser_;
  int documents_ = 0;
  std::vector<YamlNode> open_;
  YamlNode root_;
};

}  // namespace

YamlNode parse_yaml(const YamlSource& source) { return TreeBuilder(source).read(); }

}  // namespace evn
