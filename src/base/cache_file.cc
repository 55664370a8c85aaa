#include "base/cache_file.h"

#include <cstring>

#include "base/cancel.h"
#include "base/error.h"

namespace evn {
namespace {

constexpr std::uint64_t kMaxBytes = 64ull << 20;
constexpr std::uint64_t kFnvBasis = 0xcbf29ce484222325ull;
constexpr std::uint64_t kOtherBasis = 0x6a09e667f3bcc908ull;  // a second, independent hash of the same text

std::uint64_t fnv1a(std::string_view bytes, std::uint64_t hash) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

// What a file begins with; the content follows.
struct Header {
  char magic[8];
  std::uint64_t identity;  // of everything that the content depends on
  std::uint64_t size;      // of the content
  std::uint64_t checksum;  // of the content
};
constexpr char kMagic[8] = {'E', 'V', 'N', 'C', 'L', 'B', '0', '1'};

void append_hex(std::string* text, std::uint64_t value) {
  for (int shift = 60; shift >= 0; shift -= 4) text->push_back("0123456789abcdef"[(value >> shift) & 15]);
}

}  // namespace

CacheFile::CacheFile(const std::string& folder, const char* kind, std::string_view identity) : folder_(folder) {
  if (folder_.empty()) return;
  identity_ = fnv1a(identity, kOtherBasis);
  path_ = folder_ + "/" + kind + "-";
  append_hex(&path_, fnv1a(identity, kFnvBasis));
  path_ += ".bin";
}

std::string_view CacheFile::read(os::FileBytes* keep) const noexcept {
  if (path_.empty()) return {};
  // A file of at most kMaxBytes is read to its end: a caller that has to stop would otherwise make its content anew.
  static constinit const Cancel never{};
  const CancelScope scope(never);
  try {
    *keep = os::read_file(path_, kMaxBytes + sizeof(Header), nullptr, MemoryClass::kLoading);
  } catch (...) {
    return {};
  }
  Header header;
  if (keep->size < sizeof header) return {};
  std::memcpy(&header, keep->data.get(), sizeof header);
  const std::string_view content(static_cast<const char*>(keep->data.get()) + sizeof header, keep->size - sizeof header);
  const bool whole = std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 && header.identity == identity_ &&
                     header.size == content.size() && header.checksum == fnv1a(content, kFnvBasis);
  return whole ? content : std::string_view();
}

void CacheFile::write(std::string_view content) const noexcept {
  if (path_.empty() || content.size() > kMaxBytes) return;
  try {
    Header header{};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.identity = identity_;
    header.size = content.size();
    header.checksum = fnv1a(content, kFnvBasis);
    std::string file(reinterpret_cast<const char*>(&header), sizeof header);
    file += content;
    if (os::make_folders(folder_)) os::write_file_atomically(path_, file.data(), file.size());
  } catch (...) {}
}

}  // namespace evn
