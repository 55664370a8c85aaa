#include "cli/npz.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "cli/failure.h"
#include "cli/file.h"
#include "cli/inflate.h"

namespace evn::cli {
namespace {

// Numbers of the zip format (APPNOTE.TXT 6.3): little-endian, sizes of the fixed parts of its records.
constexpr std::size_t kLocalSize = 30;
constexpr std::size_t kEntrySize = 46;
constexpr std::size_t kEndSize = 22;
constexpr std::size_t kMaxComment = 65535;
constexpr std::size_t kMaxEntries = 4096;
constexpr std::size_t kLocatorSize = 20;
constexpr std::size_t kWideEndSize = 56;
constexpr std::uint64_t kNoFit = 0xffffffffu;  // the number stands elsewhere, with 64 bits
constexpr unsigned kWideField = 1;
constexpr std::size_t kLargestRead = std::size_t{1} << 30;
constexpr std::uint64_t kMostInflated = 1032;               // bytes for which one of DEFLATE can stand, at most
constexpr std::size_t kHeaderBytes = std::size_t{1} << 18;  // of an entry, in which its .npy header is
constexpr std::size_t kInflatedFront = 65536 + 12;          // bytes of the longest .npy header
constexpr std::string_view kLocatorMagic = "PK\x06\x07";
constexpr std::string_view kWideEndMagic = "PK\x06\x06";

std::uint64_t number(const unsigned char* at, int bytes) {
  std::uint64_t value = 0;
  for (int i = bytes; i-- > 0;) value = value << 8 | at[i];
  return value;
}

}  // namespace

// Reader of an archive's directory.
class NpzDirectory {
 public:
  NpzDirectory(const std::string& path, NpzFile* to) : path_(path), to_(to) {
    std::error_code no_file;
    if (!std::filesystem::is_regular_file(path, no_file)) fail_read(path, "no such file, or not a regular file");
    size_ = std::filesystem::file_size(path, no_file);
    to->file_.reset(std::fopen(path.c_str(), "rb"));
    if (!to->file_ || no_file) fail_read(path, "cannot be opened");
    if (size_ > INT64_MAX) damaged();
  }

  void read() {
    const std::vector<unsigned char> directory = read_directory();
    std::size_t at = 0;
    for (std::uint64_t i = 0; i < count_; ++i) {
      if (directory.size() - at < kEntrySize || std::memcmp(directory.data() + at, zip::kEntryMagic, 4) != 0) damaged();
      const unsigned char* entry = directory.data() + at;
      const std::size_t name_size = number(entry + 28, 2), extra_size = number(entry + 30, 2);
      const std::size_t whole = kEntrySize + name_size + extra_size + number(entry + 32, 2);
      if (directory.size() - at < whole) damaged();
      const unsigned char* extra = entry + kEntrySize + name_size;
      to_->entries_.push_back(read_entry(entry, std::string(reinterpret_cast<const char*>(entry) + kEntrySize, name_size),
                                         {reinterpret_cast<const char*>(extra), extra_size}));
      at += whole;
    }
  }

 private:
  [[noreturn]] void damaged() const { fail_read(path_, "the .npz archive is damaged"); }
  std::FILE* file() const { return to_->file_.get(); }

  std::vector<unsigned char> read_at(std::uint64_t offset, std::uint64_t size) const {
    if (offset > size_ || size > size_ - offset) damaged();
    std::vector<unsigned char> bytes(size);
    if (::fseeko(file(), static_cast<off_t>(offset), SEEK_SET) != 0) damaged();
    if (size != 0 && std::fread(bytes.data(), 1, size, file()) != size) damaged();
    return bytes;
  }

  // The record at the archive's end says where the directory is; where that does not fit into it, another one before it does.
  std::vector<unsigned char> read_directory() {
    const std::uint64_t tail = std::min<std::uint64_t>(size_, kEndSize + kMaxComment);
    const std::vector<unsigned char> bytes = read_at(size_ - tail, tail);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::size_t at = bytes.size() < kEndSize ? std::string_view::npos : text.rfind(zip::kEndMagic, bytes.size() - kEndSize);
    if (at == std::string_view::npos) fail_read(path_, "not a .npz archive");
    count_ = number(&bytes[at + 10], 2);
    std::uint64_t size = number(&bytes[at + 12], 4);
    std::uint64_t offset = number(&bytes[at + 16], 4);
    if (count_ == 0xffffu || size == kNoFit || offset == kNoFit) {
      if (at < kLocatorSize || std::memcmp(&bytes[at - kLocatorSize], kLocatorMagic.data(), 4) != 0) damaged();
      const std::vector<unsigned char> end = read_at(number(&bytes[at - kLocatorSize + 8], 8), kWideEndSize);
      if (std::memcmp(end.data(), kWideEndMagic.data(), 4) != 0) damaged();
      count_ = number(&end[32], 8);
      size = number(&end[40], 8);
      offset = number(&end[48], 8);
    }
    if (count_ > kMaxEntries) fail_read(path_, "the archive has too many entries");
    return read_at(offset, size);
  }

  NpzEntry read_entry(const unsigned char* entry, std::string name, std::string_view extra) const {
    constexpr unsigned kStored = 0, kDeflated = 8;
    NpzEntry made;
    made.label = path_ + "(" + name + ")";
    const unsigned method = static_cast<unsigned>(number(entry + 10, 2));
    if ((number(entry + 8, 2) & 1) != 0) fail_read(made.label, "encrypted entries are not read");
    if (method != kStored && method != kDeflated)
      fail_read(made.label,
                "an entry is compressed in a way that is not read; numpy.savez and numpy.savez_compressed write others");
    made.deflated = method == kDeflated;
    made.checksum = static_cast<std::uint32_t>(number(entry + 16, 4));
    std::uint64_t local_at = number(entry + 42, 4);
    made.packed = number(entry + 20, 4);
    made.size = number(entry + 24, 4);
    widen(extra, {&made.size, &made.packed, &local_at});
    // No DEFLATE stands for more: what says so is made to take memory.
    const bool fits = made.deflated ? made.size / kMostInflated <= made.packed : made.size == made.packed;
    if (!fits) damaged();
    const std::vector<unsigned char> local = read_at(local_at, kLocalSize);
    if (std::memcmp(local.data(), zip::kLocalMagic, 4) != 0) damaged();
    made.begin = local_at + kLocalSize + number(&local[26], 2) + number(&local[28], 2);
    if (made.begin > size_ || made.packed > size_ - made.begin) damaged();
    if (!name.ends_with(".npy")) fail_read(made.label, "the archive holds something that is no .npy file");
    made.name = name.substr(0, name.size() - 4);
    made.header = read_npy_header(header_reader(made), made.label, made.size);
    made.dtype = made.header.dtype;
    made.dims = made.header.dims;
    return made;
  }

  // Reads the front of an entry.
  NpyReader header_reader(const NpzEntry& entry) const {
    if (!entry.deflated) {
      return [this, &entry](std::uint64_t offset, void* to, std::size_t size) {
        if (offset > entry.size || size > entry.size - offset) fail_read(entry.label, "the file ends too early");
        const std::vector<unsigned char> bytes = read_at(entry.begin + offset, size);
        if (size != 0) std::memcpy(to, bytes.data(), size);
      };
    }
    std::vector<unsigned char> front;
    const auto inflated = inflate(read_at(entry.begin, std::min<std::uint64_t>(entry.packed, kHeaderBytes)), kInflatedFront);
    if (inflated) front = *inflated;
    return [&entry, front = std::move(front)](std::uint64_t offset, void* to, std::size_t size) {
      if (offset > front.size() || size > front.size() - offset) fail_read(entry.label, "the file ends too early");
      if (size != 0) std::memcpy(to, front.data() + offset, size);
    };
  }

  // Numbers of an entry that do not fit into 32 bits stand in its extra field, in this order.
  void widen(std::string_view extra, std::initializer_list<std::uint64_t*> numbers) const {
    const auto* at = reinterpret_cast<const unsigned char*>(extra.data());
    const unsigned char* const end = at + extra.size();
    while (end - at >= 4 && number(at, 2) != kWideField)
      at += std::min<std::ptrdiff_t>(end - at, 4 + static_cast<std::ptrdiff_t>(number(at + 2, 2)));
    const unsigned char* value = at + 4;
    const unsigned char* const last = end - at >= 4 ? std::min(end, value + number(at + 2, 2)) : value;
    for (std::uint64_t* n : numbers) {
      if (*n != kNoFit) continue;
      if (last - value < 8) damaged();
      *n = number(value, 8);
      value += 8;
    }
  }

  const std::string& path_;
  NpzFile* const to_;
  std::uint64_t size_ = 0;
  std::uint64_t count_ = 0;
};

NpzFile::NpzFile(const std::string& path) { NpzDirectory(path, this).read(); }

const NpzEntry* NpzFile::find(const std::string& name) const {
  for (const NpzEntry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

bool NpzFile::read_at(std::uint64_t offset, void* to, std::size_t size) const {
  auto* at = static_cast<unsigned char*>(to);
  while (size > 0) {
    const ssize_t n = ::pread(::fileno(file_.get()), at, std::min(size, kLargestRead), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    offset += static_cast<std::uint64_t>(n);
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

NpyArray NpzFile::load(const NpzEntry& entry) const {
  std::vector<unsigned char> bytes(entry.deflated ? entry.packed : entry.header.size);
  if (!read_at(entry.begin + (entry.deflated ? 0 : entry.header.begin), bytes.data(), bytes.size()))
    fail_read(entry.label, "the file ends too early");
  if (entry.deflated) {
    std::optional<std::vector<unsigned char>> whole = inflate(bytes, entry.size);
    if (!whole || whole->size() != entry.size || zip::crc32(whole->data(), whole->size()) != entry.checksum)
      fail_read(entry.label, "the compressed entry is damaged");
    whole->erase(whole->begin(), whole->begin() + static_cast<std::ptrdiff_t>(entry.header.begin));
    bytes = std::move(*whole);
  }
  return decode_npy(entry.header, std::move(bytes), entry.label);
}

void NpzFile::hold(const NpzEntry& entry) {
  if (!entry.deflated && entry.header.is_plain()) return;
  NpzEntry& own = entries_[static_cast<std::size_t>(&entry - entries_.data())];
  if (own.held == nullptr) own.held = std::make_shared<const NpyArray>(load(entry));
}

bool NpzFile::read(const NpzEntry& entry, std::uint64_t offset, void* to, std::size_t size) const {
  if (entry.held == nullptr) return read_at(entry.begin + entry.header.begin + offset, to, size);
  if (size != 0) std::memcpy(to, entry.held->bytes.data() + offset, size);
  return true;
}

bool is_npz(const std::string& path) { return path.ends_with(".npz"); }

std::vector<std::pair<std::string, NpyArray>> read_npz(const std::string& path) {
  const NpzFile file(path);
  std::vector<std::pair<std::string, NpyArray>> arrays;
  for (const NpzEntry& entry : file.entries()) arrays.emplace_back(entry.name, file.load(entry));
  return arrays;
}

void NpzWriter::add(const std::string& name, const NpyForm& form) {
  const std::optional<std::string> head = zip_.add(name + ".npy", form.header, form.data, form.size);
  if (!head) fail(kExitFailure, "%s: the outputs are too large or too many for an archive; use --output-dir", path_.c_str());
  entries_ += *head;
  if (form.size != 0) entries_.append(static_cast<const char*>(form.data), form.size);
}

void NpzWriter::finish() {
  const std::string end = zip_.finish();
  write_file(path_, entries_, end.data(), end.size());
}

}  // namespace evn::cli
