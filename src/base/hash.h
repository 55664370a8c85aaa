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

// A checksum of large blocks, as fast as memory gives them: sums of what words are in their line, and of these times the line.
// Parts of a block may be added in any order, and to several sums that are added up.
class Checksum {
 public:
  static constexpr std::size_t kLineBytes = 64;
  // The bytes that stand at `offset` of the block, a multiple of kLineBytes; whole lines but at the block's end.
  void add(const void* bytes, std::size_t size, std::uint64_t offset);
  void add(const Checksum& other);
  std::uint64_t value() const;

 private:
  static constexpr std::size_t kWords = kLineBytes / sizeof(std::uint64_t);
  std::uint64_t size_ = 0;
  std::uint64_t sums_[kWords] = {}, orders_[kWords] = {};
};

std::uint64_t checksum_of(const void* bytes, std::size_t size);

}  // namespace evn
