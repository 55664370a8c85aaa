// See regex.h: a recursive descent over the pattern makes fragments of an automaton; matching keeps the set of states that are
// reached.
#include "ops/infra/regex.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/cancel.h"
#include "base/error.h"

namespace evn {

class RegexParser {
 public:
  RegexParser(std::string_view pattern, Regex& to) : text_(pattern), to_(to) {}

  void run() {
    const Piece all = alternatives(0);
    if (at_ < text_.size()) refuse("a ')' without its '('");
    to_.start_ = all.first;
    to_.states_[index(all.last)] = {Regex::Kind::kAccept, -1, -1, -1};
  }

 private:
  // A part of the automaton: from `first` to `last`, a jump that leads nowhere yet.
  struct Piece {
    std::int32_t first = -1;
    std::int32_t last = -1;
  };
  static constexpr int kMaxDepth = 100;
  static constexpr int kMaxRepeat = 1000;

  std::string_view text_;
  Regex& to_;
  std::size_t at_ = 0;

  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

  [[noreturn]] void refuse(const char* why) const {
    fail(EVN_ERROR_INVALID_MODEL, "the pattern \"%.128s\": %s", std::string(text_.substr(0, 128)).c_str(), why);
  }
  [[noreturn]] void refuse_unknown(const char* what) const {
    fail(EVN_ERROR_UNSUPPORTED, "the pattern \"%.128s\": %s is not supported", std::string(text_.substr(0, 128)).c_str(), what);
  }

  bool more() const { return at_ < text_.size(); }
  bool take(char c) {
    if (!more() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::int32_t state(Regex::Kind kind, std::int32_t next = -1, std::int32_t other = -1, std::int32_t bytes = -1) {
    if (to_.states_.size() >= Regex::kMaxStates) fail(EVN_ERROR_LIMIT, "the pattern has more than %zu states", Regex::kMaxStates);
    to_.states_.push_back({kind, next, other, bytes});
    return static_cast<std::int32_t>(to_.states_.size() - 1);
  }
  void connect(const Piece& from, std::int32_t to) { to_.states_[index(from.last)].next = to; }

  Piece empty() {
    const std::int32_t s = state(Regex::Kind::kJump);
    return {s, s};
  }
  Piece bytes(const Regex::Class& c) {
    to_.classes_.push_back(c);
    const std::int32_t end = state(Regex::Kind::kJump);
    return {state(Regex::Kind::kByte, end, -1, static_cast<std::int32_t>(to_.classes_.size() - 1)), end};
  }
  Piece behind(const Piece& a, const Piece& b) {
    connect(a, b.first);
    return {a.first, b.last};
  }
  Piece either(const Piece& a, const Piece& b) {
    const std::int32_t end = state(Regex::Kind::kJump);
    connect(a, end);
    connect(b, end);
    return {state(Regex::Kind::kSplit, a.first, b.first), end};
  }
  Piece maybe(const Piece& a) { return either(a, empty()); }
  Piece any_number(const Piece& a) {
    const std::int32_t end = state(Regex::Kind::kJump);
    const std::int32_t loop = state(Regex::Kind::kSplit, a.first, end);
    connect(a, loop);
    return {loop, end};
  }

  Piece alternatives(int depth) {
    if (depth > kMaxDepth) fail(EVN_ERROR_LIMIT, "the pattern has groups in more than %d groups", kMaxDepth);
    Piece all = sequence(depth);
    while (take('|')) {
      cancellation_point();
      all = either(all, sequence(depth));
    }
    return all;
  }

  Piece sequence(int depth) {
    Piece all = empty();
    while (more() && text_[at_] != '|' && text_[at_] != ')') {
      cancellation_point();
      all = behind(all, repeated(depth));
    }
    return all;
  }

  // An atom and what says how often. Copies of an atom are made by reading it again.
  Piece repeated(int depth) {
    const std::size_t begin = at_;
    Piece piece = atom(depth);
    if (take('*')) {
      piece = any_number(piece);
    } else if (take('+')) {
      const std::size_t end = at_;
      piece = behind(piece, any_number(again(begin, depth)));
      at_ = end;
    } else if (take('?')) {
      piece = maybe(piece);
    } else if (const std::optional<Count> count = take_count()) {
      piece = counted(*count, begin, depth);
    } else {
      return piece;
    }
    take('?');  // lazy: matches of the whole text are the same
    return piece;
  }

  Piece again(std::size_t begin, int depth) {
    at_ = begin;
    return atom(depth);
  }

  // Takes a number without leading zeros. A number above kMaxRepeat becomes kMaxRepeat + 1.
  bool take_number(int* n) {
    const std::size_t begin = at_;
    for (*n = 0; more() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      cancellation_point();
      *n = std::min(*n * 10 + (text_[at_] - '0'), kMaxRepeat + 1);
    }
    return at_ == begin + 1 || (at_ > begin && text_[begin] != '0');
  }

  struct Count {
    int least = 0;
    int most = 0;
    bool open = false;  // true: there is no upper bound, and `most` equals `least`
  };

  // Takes a {m}, {m,} or {m,n}. Takes nothing if there is none, because any other '{' is a literal.
  std::optional<Count> take_count() {
    const std::size_t begin = at_;
    Count count;
    bool found = take('{') && take_number(&count.least);
    count.most = count.least;
    if (found && take(',')) {
      count.open = more() && text_[at_] == '}';
      found = count.open || take_number(&count.most);
    }
    if (!found || !take('}')) {
      at_ = begin;
      return std::nullopt;
    }
    if (std::max(count.least, count.most) > kMaxRepeat)
      fail(EVN_ERROR_LIMIT, "the pattern repeats something more than %d times", kMaxRepeat);
    if (count.most < count.least) refuse("a count whose end is before its begin");
    return count;
  }

  Piece counted(const Count& count, std::size_t begin, int depth) {
    const std::size_t end = at_;
    Piece all = empty();
    for (int i = 0; i < count.least; ++i) all = behind(all, again(begin, depth));
    for (int i = count.least; i < count.most; ++i) all = behind(all, maybe(again(begin, depth)));
    if (count.open) all = behind(all, any_number(again(begin, depth)));
    at_ = end;
    return all;
  }

  Piece atom(int depth) {
    if (take_count()) refuse("nothing to repeat");
    const char c = text_[at_++];
    switch (c) {
      case '(': {
        if (take('?') && !take(':')) refuse_unknown("\"(?\"");
        const Piece inner = alternatives(depth + 1);
        if (!take(')')) refuse("a '(' without its ')'");
        return inner;
      }
      case '[': return set();
      case '.': return character(Regex::Class().set().reset('\n'));
      case '^': return anchor(Regex::Kind::kStart);
      case '$': return anchor(Regex::Kind::kEnd);
      case '*':
      case '+':
      case '?': refuse("nothing to repeat");
      case '\\': {
        if (take('b')) return anchor(Regex::Kind::kBoundary);
        if (take('B')) return anchor(Regex::Kind::kNoBoundary);
        if (more() && static_cast<unsigned char>(text_[at_]) >= 0x80) return literal(text_[at_++]);
        Regex::Class found;
        const bool negated = escape(&found);
        return negated ? character(found) : bytes(found);
      }
      default: return literal(c);
    }
  }

  Piece byte(char c) { return bytes(Regex::Class().set(static_cast<unsigned char>(c))); }

  // The character that begins with byte `first`, with the continuation bytes of UTF-8 that follow in the pattern.
  Piece literal(char first) {
    Piece all = byte(first);
    while (static_cast<unsigned char>(first) >= 0xC2 && more() && (text_[at_] & 0xC0) == 0x80) {
      cancellation_point();
      all = behind(all, byte(text_[at_++]));
    }
    return all;
  }

  Piece anchor(Regex::Kind kind) {
    const std::int32_t end = state(Regex::Kind::kJump);
    return {state(kind, end), end};
  }

  // A class with bytes above 127 in it means characters: one of them, or a whole character of UTF-8.
  Piece character(const Regex::Class& c) {
    const auto range = [](int first, int last) {
      Regex::Class r;
      for (int b = first; b <= last; ++b) r.set(static_cast<std::size_t>(b));
      return r;
    };
    const Regex::Class tail = range(0x80, 0xBF);
    Piece all = bytes(c & range(0, 0x7F));
    Piece wide = behind(bytes(c & range(0xC2, 0xDF)), bytes(tail));
    all = either(all, wide);
    wide = behind(behind(bytes(c & range(0xE0, 0xEF)), bytes(tail)), bytes(tail));
    all = either(all, wide);
    wide = behind(behind(behind(bytes(c & range(0xF0, 0xF4)), bytes(tail)), bytes(tail)), bytes(tail));
    return either(all, wide);
  }

  static void add_range(Regex::Class* to, int first, int last) {
    for (int b = first; b <= last; ++b) to->set(static_cast<std::size_t>(b));
  }

  // Two hexadecimal digits that name an ASCII character.
  int hex() {
    int value = 0;
    for (int i = 0; i < 2; ++i) {
      const char c = more() ? text_[at_++] : ' ';
      const auto lower = static_cast<char>(c | 0x20);
      const bool digit = c >= '0' && c <= '9';
      if (!digit && (lower < 'a' || lower > 'f')) refuse_unknown("an escape \\x without two digits");
      value = value * 16 + (digit ? c - '0' : lower - 'a' + 10);
    }
    if (value >= 0x80) refuse_unknown("an escape \\x beyond ASCII");
    return value;
  }

  // Behind a backslash; returns whether the class is a negated one.
  bool escape(Regex::Class* to) {
    if (!more()) refuse("nothing behind a backslash");
    const char c = text_[at_++];
    const auto lower = static_cast<char>(c | 0x20);
    if (lower == 'd' || lower == 'w' || lower == 's') {
      Regex::Class found;
      if (lower != 's') add_range(&found, '0', '9');
      if (lower == 'w') {
        add_range(&found, 'a', 'z');
        add_range(&found, 'A', 'Z');
        found.set('_');
      }
      if (lower == 's') {
        for (const char space : {' ', '\t', '\n', '\f', '\r'}) found.set(static_cast<unsigned char>(space));
      }
      *to |= c == lower ? found : ~found;
      return c != lower;
    }
    const bool is_letter = (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9');
    switch (c) {
      case 'n': to->set('\n'); return false;
      case 't': to->set('\t'); return false;
      case 'r': to->set('\r'); return false;
      case 'f': to->set('\f'); return false;
      case 'v': to->set('\v'); return false;
      case 'a': to->set('\a'); return false;
      case 'x': to->set(static_cast<std::size_t>(hex())); return false;
      default: break;
    }
    if (is_letter) refuse_unknown("an escape of a letter or digit");
    to->set(static_cast<unsigned char>(c));
    return false;
  }

  Piece set() {
    const bool negated = take('^');
    Regex::Class found;
    bool wide = false;
    for (bool first = true; first || !take(']'); first = false) {
      cancellation_point();
      if (!more()) refuse("a '[' without its ']'");
      if (text_[at_] == '[' && at_ + 1 < text_.size() && text_[at_ + 1] == ':') {
        named(&found);
        continue;
      }
      const auto low = static_cast<unsigned char>(text_[at_++]);
      if (low == '\\') {
        const bool one = more() && std::string_view("dwsDWS").find(text_[at_]) == std::string_view::npos;
        wide |= escape(&found);
        if (one && at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']')
          refuse_unknown("a range that begins with an escape");
        continue;
      }
      if (low >= 0x80) refuse_unknown("a character beyond ASCII in a class");
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        const auto high = static_cast<unsigned char>(text_[at_ + 1]);
        at_ += 2;
        if (high < low || high >= 0x80 || high == '\\') refuse("a range that is none");
        add_range(&found, low, high);
      } else {
        found.set(low);
      }
    }
    return negated || wide ? character(negated ? ~found : found) : bytes(found);
  }

  // "[:alpha:]" and its kin, in a class.
  void named(Regex::Class* to) {
    struct Row {
      std::string_view name;
      std::string_view ranges;
    };
    static constexpr Row kNames[] = {{"[:alpha:]", "azAZ"},   {"[:digit:]", "09"},       {"[:alnum:]", "azAZ09"},
                                     {"[:lower:]", "az"},     {"[:upper:]", "AZ"},       {"[:xdigit:]", "afAF09"},
                                     {"[:space:]", "\t\r  "}, {"[:punct:]", "!/:@[`{~"}, {"[:word:]", "azAZ09__"},
                                     {"[:blank:]", "\t\t  "}};
    for (const Row& row : kNames) {
      if (!text_.substr(at_).starts_with(row.name)) continue;
      for (std::size_t i = 0; i < row.ranges.size(); i += 2) {
        cancellation_point();
        add_range(to, row.ranges[i], row.ranges[i + 1]);
      }
      at_ += row.name.size();
      return;
    }
    refuse_unknown("a named class");
  }
};

Regex::Regex(std::string_view pattern) { RegexParser(pattern, *this).run(); }

namespace {

bool is_word(int c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

}  // namespace

// An explicit stack: patterns may nest.
void Regex::add(Thread thread, int before, int behind, Reached& to) const {
  const bool boundary = is_word(before) != is_word(behind);
  std::vector<std::int32_t> open = {thread.state};
  while (!open.empty()) {
    cancellation_point();
    const std::int32_t s = open.back();
    open.pop_back();
    if (to.seen[static_cast<std::size_t>(s)] == to.mark) continue;
    to.seen[static_cast<std::size_t>(s)] = to.mark;
    const State& it = states_[static_cast<std::size_t>(s)];
    bool passes = true;
    switch (it.kind) {
      case Kind::kSplit: open.push_back(it.other); break;
      case Kind::kJump: break;
      case Kind::kStart: passes = before < 0; break;
      case Kind::kEnd: passes = behind < 0; break;
      case Kind::kBoundary: passes = boundary; break;
      case Kind::kNoBoundary: passes = !boundary; break;
      default: to.list.push_back({s, thread.begin}); passes = false;
    }
    if (passes) open.push_back(it.next);
  }
}

Regex::Match Regex::search(std::string_view text, std::size_t from, bool anchored) const {
  const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<int>(static_cast<unsigned char>(text[i])) : -1; };
  Match best;
  Reached to;
  to.seen.assign(states_.size(), 0);
  std::vector<Thread> now;
  for (std::size_t i = from;; ++i) {
    cancellation_point();
    const int before = i > 0 ? at(i - 1) : -1;
    to.list.clear();
    ++to.mark;
    for (const Thread& t : now) {
      cancellation_point();
      const State& it = states_[static_cast<std::size_t>(t.state)];
      if (best.found && t.begin > best.begin) break;
      if (it.kind == Kind::kByte && classes_[static_cast<std::size_t>(it.bytes)].test(static_cast<std::size_t>(before))) {
        add({it.next, t.begin}, before, at(i), to);
      }
    }
    if (!best.found && (i == from || !anchored)) add({start_, i}, before, at(i), to);
    for (const Thread& t : to.list) {
      cancellation_point();
      if (states_[static_cast<std::size_t>(t.state)].kind != Kind::kAccept || (best.found && t.begin > best.begin)) continue;
      best = {true, t.begin, i};
      break;
    }
    now.swap(to.list);
    if (i >= text.size() || (now.empty() && (best.found || anchored))) return best;
  }
}

bool Regex::matches_all(std::string_view text) const {
  const Match m = search(text, 0, true);
  return m.found && m.end == text.size();
}

}  // namespace evn
