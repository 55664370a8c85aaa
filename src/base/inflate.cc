#include "base/inflate.h"

#include <algorithm>

#include "base/error.h"

namespace evn {
namespace {

constexpr int kMostBits = 15;  // of a code

// Codes by their lengths: as many of each, and the symbols in the order of their codes.
struct Codes {
  std::uint16_t count[kMostBits + 1] = {};
  std::uint16_t symbols[288] = {};

  void assign(std::span<const std::uint8_t> lengths) {
    std::fill(std::begin(count), std::end(count), std::uint16_t{0});
    for (const std::uint8_t length : lengths) ++count[length];
    count[0] = 0;
    std::uint16_t at[kMostBits + 2] = {};
    for (int i = 1; i <= kMostBits; ++i) at[i + 1] = static_cast<std::uint16_t>(at[i] + count[i]);
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      if (lengths[s] != 0) symbols[at[lengths[s]]++] = static_cast<std::uint16_t>(s);
    }
  }
};

class Inflater {
 public:
  Inflater(std::span<const unsigned char> in, std::size_t size) : in_(in), size_(size) { out_.reserve(size); }

  std::string run() {
    for (bool last = false; !last;) {
      last = bits(1) != 0;
      switch (bits(2)) {
        case 0: stored(); break;
        case 1: fixed(); break;
        case 2: dynamic(); break;
        default: wrong();
      }
    }
    if (out_.size() != size_) wrong();
    return std::move(out_);
  }

 private:
  std::span<const unsigned char> in_;
  std::size_t size_, at_ = 0;
  std::uint32_t held_ = 0;
  int held_bits_ = 0;
  std::string out_;
  Codes literals_, distances_;

  [[noreturn]] static void wrong() { fail(EVN_ERROR_INTERNAL, "what was compressed into the library is damaged"); }

  std::uint32_t bits(int n) {
    while (held_bits_ < n) {
      if (at_ == in_.size()) wrong();
      held_ |= static_cast<std::uint32_t>(in_[at_++]) << held_bits_;
      held_bits_ += 8;
    }
    const std::uint32_t value = held_ & ((1u << n) - 1);
    held_ >>= n;
    held_bits_ -= n;
    return value;
  }

  std::uint32_t symbol(const Codes& codes) {
    int code = 0, first = 0, index = 0;
    for (int length = 1; length <= kMostBits; ++length) {
      code |= static_cast<int>(bits(1));
      const int count = codes.count[length];
      if (code - count < first) return codes.symbols[index + (code - first)];
      index += count;
      first = (first + count) << 1;
      code <<= 1;
    }
    wrong();
  }

  void put(unsigned char byte) {
    if (out_.size() == size_) wrong();
    out_.push_back(static_cast<char>(byte));
  }

  void stored() {
    held_ = 0;
    held_bits_ = 0;
    const std::uint32_t size = bits(16);
    if ((size ^ bits(16)) != 0xffff) wrong();
    for (std::uint32_t i = 0; i < size; ++i) put(static_cast<unsigned char>(bits(8)));
  }

  void fixed() {
    std::uint8_t lengths[288];
    for (std::size_t s = 0; s < 288; ++s) lengths[s] = s < 144 ? 8 : s < 256 ? 9 : s < 280 ? 7 : 8;
    literals_.assign(lengths);
    std::fill_n(lengths, 30, std::uint8_t{5});
    distances_.assign({lengths, 30});
    block();
  }

  void dynamic() {
    static constexpr std::uint8_t kOrder[] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    const std::size_t literals = bits(5) + 257, distances = bits(5) + 1, sizes = bits(4) + 4;
    std::uint8_t lengths[286 + 30 + 2] = {};
    if (literals > 286 || distances > 30) wrong();
    for (std::size_t i = 0; i < sizes; ++i) lengths[kOrder[i]] = static_cast<std::uint8_t>(bits(3));
    literals_.assign({lengths, 19});
    const Codes sizes_of_codes = literals_;
    std::fill(std::begin(lengths), std::end(lengths), std::uint8_t{0});
    for (std::size_t i = 0; i < literals + distances;) {
      const std::uint32_t s = symbol(sizes_of_codes);
      if (s < 16) {
        lengths[i++] = static_cast<std::uint8_t>(s);
        continue;
      }
      if (s == 16 && i == 0) wrong();
      const std::uint8_t again = s == 16 ? lengths[i - 1] : std::uint8_t{0};
      const std::size_t times = s == 16 ? 3 + bits(2) : s == 17 ? 3 + bits(3) : 11 + bits(7);
      if (i + times > literals + distances) wrong();
      for (std::size_t k = 0; k < times; ++k) lengths[i++] = again;
    }
    literals_.assign({lengths, literals});
    distances_.assign({lengths + literals, distances});
    block();
  }

  void block() {
    static constexpr std::uint16_t kLengths[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                                 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static constexpr std::uint8_t kLengthBits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                   2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static constexpr std::uint16_t kDistances[] = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                                   33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                                   1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    for (;;) {
      std::uint32_t s = symbol(literals_);
      if (s == 256) return;
      if (s < 256) {
        put(static_cast<unsigned char>(s));
        continue;
      }
      s -= 257;
      if (s >= std::size(kLengths)) wrong();
      const std::uint32_t length = kLengths[s] + bits(kLengthBits[s]), d = symbol(distances_);
      if (d >= std::size(kDistances)) wrong();
      const std::uint32_t distance = kDistances[d] + bits(d < 2 ? 0 : static_cast<int>(d) / 2 - 1);
      if (distance > out_.size()) wrong();
      for (std::uint32_t i = 0; i < length; ++i) put(static_cast<unsigned char>(out_[out_.size() - distance]));
    }
  }
};

}  // namespace

std::string inflate(std::span<const unsigned char> deflated, std::size_t size) { return Inflater(deflated, size).run(); }

}  // namespace evn
