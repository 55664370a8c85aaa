#include "cli/npz.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "cli/failure.h"
#include "cli/file.h"

namespace evn::cli {
namespace {

// Numbers of the zip format (APPNOTE.TXT 6.3): little-endian, sizes of the fixed parts of its records.
constexpr std::size_t kLocalSize = 30;
constexpr std::size_t kEntrySize = 46;
constexpr std::size_t kEndSize = 22;
constexpr std::size_t kMaxComment = 65535;
constexpr std::uint64_t kMaxArchive = 0xffffffffu;
constexpr std::size_t kMaxEntries = 4096;
constexpr std::string_view kLocalMagic = "PK\x03\x04";
constexpr std::string_view kEntryMagic = "PK\x01\x02";
constexpr std::string_view kEndMagic = "PK\x05\x06";

std::uint32_t number(const unsigned char* at, int bytes) {
  std::uint32_t value = 0;
  for (int i = bytes; i-- > 0;) value = value << 8 | at[i];
  return value;
}

void put(std::string& to, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to.push_back(i < 8 ? static_cast<char>(value >> (8 * i) & 255) : '\0');
}

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0xedb88320u ^ c >> 1 : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrcTable = make_crc_table();

std::uint32_t crc32(const void* data, std::size_t size, std::uint32_t before) {
  std::uint32_t c = ~before;
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < size; ++i) c = kCrcTable[(c ^ bytes[i]) & 255] ^ c >> 8;
  return ~c;
}

[[noreturn]] void fail_read(const std::string& path, const char* why) { fail(kExitFailure, "%s: %s", path.c_str(), why); }

class Archive {
 public:
  explicit Archive(const std::string& path) : path_(path) {
    std::error_code no_file;
    if (!std::filesystem::is_regular_file(path, no_file)) fail_read(path, "no such file, or not a regular file");
    size_ = std::filesystem::file_size(path, no_file);
    file_.reset(std::fopen(path.c_str(), "rb"));
    if (!file_ || no_file) fail_read(path, "cannot be opened");
    if (size_ > kMaxArchive) fail_read(path, "archives above 4 GiB are not read");
  }

  std::vector<std::pair<std::string, NpyArray>> read_all() {
    const std::vector<unsigned char> directory = read_directory();
    std::vector<std::pair<std::string, NpyArray>> arrays;
    std::size_t at = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      if (directory.size() - at < kEntrySize || std::memcmp(directory.data() + at, kEntryMagic.data(), 4) != 0) damaged();
      const unsigned char* entry = directory.data() + at;
      const std::size_t name_size = number(entry + 28, 2);
      const std::size_t whole = kEntrySize + name_size + number(entry + 30, 2) + number(entry + 32, 2);
      if (directory.size() - at < whole) damaged();
      arrays.push_back(read_entry(entry, std::string(reinterpret_cast<const char*>(entry) + kEntrySize, name_size)));
      at += whole;
    }
    return arrays;
  }

 private:
  [[noreturn]] void damaged() const { fail_read(path_, "the .npz archive is damaged"); }

  std::vector<unsigned char> read_at(std::uint64_t offset, std::uint64_t size) {
    if (offset > size_ || size > size_ - offset) damaged();
    std::vector<unsigned char> bytes(size);
    if (std::fseek(file_.get(), static_cast<long>(offset), SEEK_SET) != 0) damaged();
    if (size != 0 && std::fread(bytes.data(), 1, size, file_.get()) != size) damaged();
    return bytes;
  }

  // The record at the archive's end says where the directory is.
  std::vector<unsigned char> read_directory() {
    const std::uint64_t tail = std::min<std::uint64_t>(size_, kEndSize + kMaxComment);
    const std::vector<unsigned char> bytes = read_at(size_ - tail, tail);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::size_t at = bytes.size() < kEndSize ? std::string_view::npos : text.rfind(kEndMagic, bytes.size() - kEndSize);
    if (at == std::string_view::npos) fail_read(path_, "not a .npz archive");
    count_ = number(&bytes[at + 10], 2);
    const std::uint32_t size = number(&bytes[at + 12], 4);
    const std::uint32_t offset = number(&bytes[at + 16], 4);
    if (count_ > kMaxEntries || offset == 0xffffffffu) fail_read(path_, "the archive has too many entries");
    return read_at(offset, size);
  }

  std::pair<std::string, NpyArray> read_entry(const unsigned char* entry, std::string name) {
    const std::string label = path_ + "(" + name + ")";
    if ((number(entry + 8, 2) & 1) != 0) fail_read(label, "encrypted entries are not read");
    if (number(entry + 10, 2) != 0)
      fail_read(label, "compressed entries are not read; save with numpy.savez, not savez_compressed");
    const std::uint32_t size = number(entry + 20, 4);
    if (size != number(entry + 24, 4) || size == 0xffffffffu) damaged();
    const std::uint64_t local_at = number(entry + 42, 4);
    const std::vector<unsigned char> local = read_at(local_at, kLocalSize);
    if (std::memcmp(local.data(), kLocalMagic.data(), 4) != 0) damaged();
    const std::uint64_t data_at = local_at + kLocalSize + number(&local[26], 2) + number(&local[28], 2);
    if (data_at > size_ || size > size_ - data_at) damaged();
    if (!name.ends_with(".npy")) fail_read(label, "the archive holds something that is no .npy file");
    name.resize(name.size() - 4);
    if (std::fseek(file_.get(), static_cast<long>(data_at), SEEK_SET) != 0) damaged();
    return {std::move(name), read_npy_stream(file_.get(), label, size)};
  }

  const std::string& path_;
  NpyFile file_;
  std::uint64_t size_ = 0;
  std::size_t count_ = 0;
};

}  // namespace

bool is_npz(const std::string& path) { return path.ends_with(".npz"); }

std::vector<std::pair<std::string, NpyArray>> read_npz(const std::string& path) { return Archive(path).read_all(); }

void NpzWriter::add(const std::string& name, evn_dtype dtype, const std::vector<std::int64_t>& dims, const void* data,
                    std::size_t size) {
  const NpyForm form = npy_form(path_, dtype, dims, data, size);
  const std::string entry = name + ".npy";
  const std::uint64_t whole = form.header.size() + std::uint64_t{form.size};
  if (entries_.size() + whole > kMaxArchive / 2 || entry.size() > 65535) {
    fail(kExitFailure, "%s: the outputs are too large for an archive; use --output-dir", path_.c_str());
  }
  std::string common;  // of the local header and the directory: version, flags (UTF-8 names), stored, date of 1980-01-01
  put(common, 20, 2);
  put(common, 1u << 11, 2);
  put(common, 0, 2);
  put(common, 0, 2);
  put(common, 1 << 5 | 1, 2);
  put(common, crc32(form.data, form.size, crc32(form.header.data(), form.header.size(), 0)), 4);
  put(common, whole, 4);
  put(common, whole, 4);
  put(common, entry.size(), 2);
  put(common, 0, 2);
  directory_ += std::string(kEntryMagic) + std::string({20, 0}) + common;
  put(directory_, 0, 2 + 2 + 2 + 4);
  put(directory_, entries_.size(), 4);
  directory_ += entry;
  ++count_;
  entries_ += std::string(kLocalMagic) + common + entry + form.header;
  if (form.size != 0) entries_.append(static_cast<const char*>(form.data), form.size);
}

void NpzWriter::finish() {
  std::string end = directory_ + std::string(kEndMagic);
  put(end, 0, 4);
  put(end, count_, 2);
  put(end, count_, 2);
  put(end, directory_.size(), 4);
  put(end, entries_.size(), 4);
  put(end, 0, 2);
  write_file(path_, entries_, end.data(), end.size());
}

}  // namespace evn::cli
