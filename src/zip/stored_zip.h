// Zip archives whose entries are stored, not compressed (APPNOTE.TXT 6.3): the records around the bytes of the entries.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace evn::zip {

inline constexpr char kLocalMagic[] = "PK\x03\x04";
inline constexpr char kEntryMagic[] = "PK\x01\x02";
inline constexpr char kEndMagic[] = "PK\x05\x06";

// Appends the lowest `bytes` bytes of a number, in little-endian order.
inline void put(std::string& to, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to.push_back(i < 8 ? static_cast<char>(value >> (8 * i) & 255) : '\0');
}

// CRC-32 of the zip format. `before` is the checksum of the bytes that precede `data`, or 0.
inline std::uint32_t crc32(const void* data, std::size_t size, std::uint32_t before = 0) {
  static constexpr auto kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < table.size(); ++i) {
      std::uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0xedb88320u ^ c >> 1 : c >> 1;
      table[i] = c;
    }
    return table;
  }();
  std::uint32_t c = ~before;
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < size; ++i) c = kTable[(c ^ bytes[i]) & 255] ^ c >> 8;
  return ~c;
}

// Directory of an archive that is being written. The caller writes, in this order: for each entry the header that add() returns and
// the bytes of the entry, and at the end the records that finish() returns.
class StoredZip {
 public:
  // Most bytes that the next entry may have.
  std::uint64_t room() const {
    constexpr std::uint64_t kMostBytes = 0x7fffffff;
    return bytes_ < kMostBytes ? kMostBytes - bytes_ : 0;
  }

  // Adds an entry whose bytes are `front` followed by `size` bytes at `data`. Returns the entry's local header, `front` included,
  // or nothing if the archive would have more than 2 GiB or 65,534 entries, or the name more than 65,535 bytes.
  std::optional<std::string> add(const std::string& name, const std::string& front, const void* data, std::size_t size) {
    constexpr unsigned kMostEntries = 0xfffe, kMostName = 0xffff;
    const std::uint64_t whole = front.size() + std::uint64_t{size};
    if (whole > room() || count_ == kMostEntries || name.size() > kMostName) return std::nullopt;
    std::string common;        // fields that the local header and the directory share
    put(common, 20, 2);        // version
    put(common, 1u << 11, 2);  // the name is UTF-8
    put(common, 0, 2);         // stored
    put(common, 0x210000, 4);  // 1 January 1980
    put(common, crc32(data, size, crc32(front.data(), front.size())), 4);
    put(common, whole, 4);
    put(common, whole, 4);
    put(common, name.size(), 2);
    put(common, 0, 2);  // no extra field
    directory_ += kEntryMagic;
    put(directory_, 20, 2);
    directory_ += common;
    put(directory_, 0, 2 + 2 + 2 + 4);  // no comment, first disk, no attributes
    put(directory_, bytes_, 4);
    directory_ += name;
    std::string head = kLocalMagic + common + name + front;
    bytes_ += head.size() + size;
    ++count_;
    return head;
  }

  // Returns the directory and the record at the archive's end.
  std::string finish() const {
    std::string end = directory_ + kEndMagic;
    put(end, 0, 4);
    put(end, count_, 2);
    put(end, count_, 2);
    put(end, directory_.size(), 4);
    put(end, bytes_, 4);
    put(end, 0, 2);  // no comment
    return end;
  }

 private:
  std::string directory_;
  std::uint64_t bytes_ = 0;
  unsigned count_ = 0;
};

}  // namespace evn::zip
