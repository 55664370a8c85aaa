// A hash that tells contents from each other, also those that somebody changed by accident; not one against somebody who looks for
// contents that have the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace evn {

class Hasher {
 public:
  void add(std::uint64_t word) {
    state_ = (state_ ^ word) * 0x9e3779b97f4a7c15u;
    state_ ^= state_ >> 29;
  }
  void add(const void* bytes, std::size_t size);
  void add(std::string_view text) { add(text.data(), text.size()); }
  std::uint64_t value() const {
    Hasher end = *this;
    end.add(std::uint64_t{0});
    return end.state_;
  }

 private:
  std::uint64_t state_ = 0x243f6a8885a308d3u;
};

// Of large blocks, as fast as memory gives them: sums of words, and turned sums of those sums, which know the order.
std::uint64_t checksum_of(const void* bytes, std::size_t size);

}  // namespace evn
