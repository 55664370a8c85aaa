// Regular expressions in the syntax that RE2 and POSIX share: literals, ., [classes], (groups), (?:groups), |, *, +, ?, {m,n}, \d
// \w \s \b and their opposites, escapes, ^ and $. As in RE2, a '{' that begins no {m}, {m,} or {m,n} is a literal, and what is
// repeated must be in a group to be repeated again. Matching follows all alternatives at once (K. Thompson, "Regular expression
// search algorithm", 1968): its time is the text's length times the pattern's, whatever they say.
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

namespace evn {

class Regex {
 public:
  // Throws EVN_ERROR_INVALID_MODEL for what is no pattern, EVN_ERROR_LIMIT for one of more than kMaxStates states,
  // EVN_ERROR_UNSUPPORTED for what this does not know (back references, look-around, Unicode classes).
  explicit Regex(std::string_view pattern);

  // Whether all of the text, taken as bytes, matches. A '.' or a class that is negated takes a whole character of UTF-8.
  bool matches_all(std::string_view text) const;

  // The bytes [begin, end) of a text.
  struct Match {
    bool found = false;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  // The first match: of those that begin at `from` or behind it those that begin first, and of these the longest; it may be empty.
  Match find(std::string_view text, std::size_t from) const { return search(text, from, false); }

  static constexpr std::size_t kMaxStates = 10'000;

 private:
  friend class RegexParser;
  using Class = std::bitset<256>;
  enum class Kind : std::uint8_t { kByte, kSplit, kJump, kStart, kEnd, kBoundary, kNoBoundary, kAccept };
  struct State {
    Kind kind = Kind::kAccept;
    std::int32_t next = -1;
    std::int32_t other = -1;  // kSplit
    std::int32_t bytes = -1;  // kByte: index into classes_
  };
  // A state, and where the match began that has come to it.
  struct Thread {
    std::int32_t state;
    std::size_t begin;
  };
  struct Reached {
    std::vector<Thread> list;         // those that began first stand first
    std::vector<std::uint32_t> seen;  // per state: the mark of the last position that reached it
    std::uint32_t mark = 0;
  };
  // Adds what is reached from a thread without a byte, between two bytes of the text (-1: none).
  void add(Thread thread, int before, int behind, Reached& to) const;
  Match search(std::string_view text, std::size_t from, bool anchored) const;

  std::vector<State> states_;
  std::vector<Class> classes_;
  std::int32_t start_ = 0;
};

}  // namespace evn
