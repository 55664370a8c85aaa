#include "cli/inflate.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace evn::cli {
namespace {

constexpr int kMostBits = 15;   // of a code
constexpr int kTableBits = 10;  // of codes that are looked up at once
constexpr std::size_t kMostSymbols = 288;

// A prefix code, from the lengths of its symbols' codes.
class Code {
 public:
  // False for lengths of which no code can be made. A code may be incomplete: what it lacks must not be met.
  bool assign(std::span<const std::uint8_t> lengths) {
    std::fill(std::begin(count_), std::end(count_), std::uint16_t{0});
    for (const std::uint8_t length : lengths) ++count_[length];
    count_[0] = 0;
    std::uint32_t code = 0, next[kMostBits + 2] = {}, at[kMostBits + 2] = {};
    for (int i = 1; i <= kMostBits; ++i) {
      code = (code + count_[i - 1]) << 1;
      if (code + count_[i] > 1u << i) return false;
      next[i] = code;
      at[i + 1] = at[i] + count_[i];
    }
    std::fill(std::begin(table_), std::end(table_), Entry{0, 0});
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      const int length = lengths[s];
      if (length == 0) continue;
      symbols_[at[length]++] = static_cast<std::uint16_t>(s);
      const std::uint32_t own = next[length]++;
      if (length > kTableBits) continue;
      std::uint32_t reversed = 0;  // bits of a code come with the first in the lowest place
      for (int i = 0; i < length; ++i) reversed |= (own >> i & 1) << (length - 1 - i);
      for (std::uint32_t i = reversed; i < 1u << kTableBits; i += 1u << length)
        table_[i] = {static_cast<std::uint16_t>(s), static_cast<std::uint16_t>(length)};
    }
    return true;
  }

  struct Entry {
    std::uint16_t symbol;
    std::uint16_t length;  // 0: longer than the table's codes, or none
  };
  Entry find(std::uint64_t bits) const { return table_[bits & ((1u << kTableBits) - 1)]; }

  // The symbol whose code these bits begin with, by its length; length 0: there is none.
  Entry find_long(std::uint64_t bits) const {
    std::uint32_t code = 0, first = 0, index = 0;
    for (int length = 1; length <= kMostBits; ++length) {
      code |= static_cast<std::uint32_t>(bits >> (length - 1) & 1);
      const std::uint32_t count = count_[length];
      if (code < first + count) return {symbols_[index + (code - first)], static_cast<std::uint16_t>(length)};
      index += count;
      first = (first + count) << 1;
      code <<= 1;
    }
    return {0, 0};
  }

 private:
  std::uint16_t count_[kMostBits + 1] = {};
  std::uint16_t symbols_[kMostSymbols] = {};
  Entry table_[1u << kTableBits] = {};
};

constexpr std::uint16_t kLengths[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                      31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
constexpr std::uint8_t kLengthBits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
constexpr std::uint16_t kDistances[] = {1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
                                        193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};

class Inflater {
 public:
  Inflater(std::span<const unsigned char> in, std::size_t most) : in_(in), most_(most) {}

  // False where it is damaged or ends too early.
  bool run() {
    for (bool last = false; !last && out.size() < most_;) {
      last = bits(1) != 0;
      switch (bits(2)) {
        case 0: stored(); break;
        case 1: fixed(); break;
        case 2: dynamic(); break;
        default: wrong_ = true;
      }
      if (wrong_) return false;
    }
    return true;
  }

  std::vector<unsigned char> out;

 private:
  // Holds 48 bits at least, zeros behind the end.
  void fill() {
    while (held_bits_ <= 56) {
      const std::uint64_t byte = at_ < in_.size() ? in_[at_] : 0;
      ++at_;
      held_ |= byte << held_bits_;
      held_bits_ += 8;
    }
  }

  void skip(int n) {
    held_ >>= n;
    held_bits_ -= n;
    // Bits behind the end were used.
    if (at_ > in_.size() && (at_ - in_.size()) * 8 > static_cast<std::size_t>(held_bits_)) wrong_ = true;
  }

  std::uint32_t bits(int n) {
    fill();
    const auto value = static_cast<std::uint32_t>(held_ & ((std::uint64_t{1} << n) - 1));
    skip(n);
    return value;
  }

  std::uint32_t symbol(const Code& code) {
    fill();
    Code::Entry e = code.find(held_);
    if (e.length == 0) e = code.find_long(held_);
    if (e.length == 0) wrong_ = true;
    skip(e.length);
    return e.symbol;
  }

  void stored() {
    skip(held_bits_ % 8);
    const std::uint32_t size = bits(16);
    if ((size ^ bits(16)) != 0xffff) wrong_ = true;
    if (wrong_) return;
    const std::size_t begin = at_ - static_cast<std::size_t>(held_bits_ / 8);
    if (begin > in_.size() || in_.size() - begin < size) {
      wrong_ = true;
      return;
    }
    const std::size_t taken = std::min<std::size_t>(size, most_ - out.size());
    out.insert(out.end(), in_.begin() + static_cast<std::ptrdiff_t>(begin),
               in_.begin() + static_cast<std::ptrdiff_t>(begin + taken));
    at_ = begin + size;
    held_ = 0;
    held_bits_ = 0;
  }

  void fixed() {
    std::uint8_t lengths[kMostSymbols];
    for (std::size_t s = 0; s < kMostSymbols; ++s) lengths[s] = s < 144 ? 8 : s < 256 ? 9 : s < 280 ? 7 : 8;
    literals_.assign(lengths);
    std::fill_n(lengths, 30, std::uint8_t{5});
    distances_.assign({lengths, 30});
    block();
  }

  void dynamic() {
    static constexpr std::uint8_t kOrder[] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    const std::size_t literals = bits(5) + 257, distances = bits(5) + 1, sizes = bits(4) + 4;
    std::uint8_t lengths[kMostSymbols + 32] = {};
    if (literals > 286 || distances > 30) wrong_ = true;
    for (std::size_t i = 0; i < sizes; ++i) lengths[kOrder[i]] = static_cast<std::uint8_t>(bits(3));
    if (!literals_.assign({lengths, 19})) wrong_ = true;
    std::fill(std::begin(lengths), std::end(lengths), std::uint8_t{0});
    for (std::size_t i = 0; i < literals + distances && !wrong_;) {
      const std::uint32_t s = symbol(literals_);
      if (s < 16) {
        lengths[i++] = static_cast<std::uint8_t>(s);
        continue;
      }
      if (s == 16 && i == 0) wrong_ = true;
      const std::uint8_t again = s == 16 && i > 0 ? lengths[i - 1] : std::uint8_t{0};
      const std::size_t times = s == 16 ? 3 + bits(2) : s == 17 ? 3 + bits(3) : 11 + bits(7);
      if (i + times > literals + distances) {
        wrong_ = true;
        return;
      }
      for (std::size_t k = 0; k < times; ++k) lengths[i++] = again;
    }
    if (wrong_ || !literals_.assign({lengths, literals}) || !distances_.assign({lengths + literals, distances})) {
      wrong_ = true;
      return;
    }
    block();
  }

  void block() {
    while (!wrong_ && out.size() < most_) {
      std::uint32_t s = symbol(literals_);
      if (wrong_ || s == 256) return;
      if (s < 256) {
        out.push_back(static_cast<unsigned char>(s));
        continue;
      }
      s -= 257;
      if (s >= std::size(kLengths)) break;
      const std::size_t length = kLengths[s] + bits(kLengthBits[s]);
      const std::uint32_t d = symbol(distances_);
      if (wrong_ || d >= std::size(kDistances)) break;
      const std::size_t distance = kDistances[d] + bits(d < 2 ? 0 : static_cast<int>(d) / 2 - 1);
      if (wrong_ || distance > out.size()) break;
      copy(distance, std::min(length, most_ - out.size()));
    }
    if (out.size() < most_) wrong_ = true;
  }

  // Bytes may be copies of what the same call has copied.
  void copy(std::size_t distance, std::size_t length) {
    const std::size_t begin = out.size();
    out.resize(begin + length);
    unsigned char* const to = out.data() + begin;
    const unsigned char* const from = to - distance;
    if (distance >= length) {
      std::memcpy(to, from, length);
    } else {
      for (std::size_t i = 0; i < length; ++i) to[i] = from[i];
    }
  }

  std::span<const unsigned char> in_;
  const std::size_t most_;
  std::size_t at_ = 0;
  std::uint64_t held_ = 0;
  int held_bits_ = 0;
  bool wrong_ = false;
  Code literals_, distances_;
};

}  // namespace

std::optional<std::vector<unsigned char>> inflate(std::span<const unsigned char> deflated, std::size_t most) {
  Inflater inflater(deflated, most);
  if (!inflater.run()) return std::nullopt;
  return std::move(inflater.out);
}

}  // namespace evn::cli
