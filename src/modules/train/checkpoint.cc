#include "modules/train/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "modules/train/failure.h"

namespace evn_train {
namespace {

constexpr char kChecksum[] = "evener.checksum";
constexpr char kNoChecksum[] = "0000000000000000";
constexpr std::uint64_t kMostHeader = 64u << 20;

// ------------------------------------------------------------------------------------------------------- checksum --

// Of words of 8 bytes: each step is one to one in the word and in what there is, so that no single change goes unseen.
class Checksum {
 public:
  void add(std::string_view bytes) {
    for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data(), 8);
      step(word);
    }
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), bytes.size());
    step(word);
    step(bytes.size());
  }
  std::string text() const {
    std::string digits(16, '0');
    for (int i = 0; i < 16; ++i) digits[static_cast<std::size_t>(15 - i)] = "0123456789abcdef"[state_ >> (4 * i) & 15u];
    return digits;
  }

 private:
  void step(std::uint64_t word) {
    state_ = (state_ ^ word) * 0x9e3779b97f4a7c15u;
    state_ ^= state_ >> 29;
  }
  std::uint64_t state_ = 0x2545f4914f6cdd1du;
};

// ------------------------------------------------------------------------------------------------------------ JSON --

void put_text(std::string* out, const std::string& text) {
  out->push_back('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (byte < 32) {
      constexpr char kDigits[] = "0123456789abcdef";
      out->append("\\u00").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

std::string header_of(const Checkpoint& checkpoint) {
  std::string out = "{\"__metadata__\":{";
  put_text(&out, kChecksum);
  out += ":\"" + std::string(kNoChecksum) + "\"";
  for (const auto& [key, value] : checkpoint.metadata) {
    out += ",";
    put_text(&out, key);
    out += ":";
    put_text(&out, value);
  }
  out += "}";
  std::size_t offset = 0;
  for (const SavedTensor& t : checkpoint.tensors) {
    out += ",";
    put_text(&out, t.name);
    out += ":{\"dtype\":\"F32\",\"shape\":[";
    for (std::size_t i = 0; i < t.dims.size(); ++i) out += (i > 0 ? "," : "") + std::to_string(t.dims[i]);
    out += "],\"data_offsets\":[" + std::to_string(offset) + ",";
    offset += t.size;
    out += std::to_string(offset) + "]}";
  }
  out += "}";
  while (out.size() % 8 != 0) out.push_back(' ');
  return out;
}

// What header_of writes, and nothing else: it is the trainer's own file.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, std::string_view data) : text_(text), data_(data) {}

  void read(Checkpoint* checkpoint) {
    expect("{\"__metadata__\":{");
    do {
      const std::string key = text();
      expect(":");
      checkpoint->metadata[key] = text();
    } while (takes(','));
    expect("}");
    while (takes(',')) checkpoint->tensors.push_back(tensor());
    expect("}");
    while (takes(' ')) {}
    if (!text_.empty()) broken();
  }

 private:
  std::string_view text_, data_;
  std::size_t offset_ = 0;

  [[noreturn]] static void broken() {
    fail(EVN_ERROR_INVALID_ARGUMENT, "the file is no checkpoint of a trainer, or it was changed");
  }
  bool takes(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(std::string_view what) {
    if (!text_.starts_with(what)) broken();
    text_.remove_prefix(what.size());
  }
  std::string text() {
    expect("\"");
    std::string out;
    while (!takes('"')) {
      if (text_.empty()) broken();
      char c = text_.front();
      text_.remove_prefix(1);
      if (c == '\\') {
        if (text_.empty()) broken();
        c = text_.front();
        text_.remove_prefix(1);
        if (c == 'u') c = escaped();
      }
      out.push_back(c);
    }
    return out;
  }
  char escaped() {
    if (text_.size() < 4) broken();
    unsigned value = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = text_[static_cast<std::size_t>(i)];
      const bool is_digit = c >= '0' && c <= '9';
      if (!is_digit && (c < 'a' || c > 'f')) broken();
      value = value * 16 + static_cast<unsigned>(is_digit ? c - '0' : c - 'a' + 10);
    }
    text_.remove_prefix(4);
    return static_cast<char>(value);
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    std::size_t digits = 0;
    for (; !text_.empty() && text_.front() >= '0' && text_.front() <= '9' && digits < 18; ++digits) {
      value = value * 10 + static_cast<std::uint64_t>(text_.front() - '0');
      text_.remove_prefix(1);
    }
    if (digits == 0) broken();
    return value;
  }
  SavedTensor tensor() {
    SavedTensor t;
    t.name = text();
    expect(":{\"dtype\":\"F32\",\"shape\":[");
    std::uint64_t bytes = 4;
    if (!takes(']')) {
      do {
        t.dims.push_back(static_cast<std::int64_t>(number()));
        if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(t.dims.back()), &bytes)) broken();
      } while (takes(','));
      expect("]");
    }
    expect(",\"data_offsets\":[");
    if (number() != offset_) broken();
    expect(",");
    const std::uint64_t end = number();
    expect("]}");
    if (end < offset_ || end - offset_ != bytes || end > data_.size()) broken();
    t.size = static_cast<std::size_t>(bytes);
    t.data = data_.data() + offset_;
    offset_ = static_cast<std::size_t>(end);
    return t;
  }
};

// ----------------------------------------------------------------------------------------------------------- files --

[[noreturn]] void fail_io(const char* what, const std::string& path) {
  fail(EVN_ERROR_IO, "cannot %s '%.256s': %s", what, path.c_str(), std::strerror(errno));
}

struct Descriptor {
  explicit Descriptor(int number) : fd(number) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd;
};

void write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), 1u << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_io("write", path);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Removes the file that was to take the other's place, unless it has.
struct Temporary {
  std::string path;
  bool stays = false;
  ~Temporary() {
    if (!stays) ::unlink(path.c_str());
  }
};

std::string read_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (file.fd < 0 || ::fstat(file.fd, &info) != 0) fail_io("read", path);
  if (!S_ISREG(info.st_mode)) fail(EVN_ERROR_IO, "cannot read '%.256s': it is no regular file", path.c_str());
  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t got = ::read(file.fd, bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("read", path);
    if (got == 0) break;
    at += static_cast<std::size_t>(got);
  }
  bytes.resize(at);
  return bytes;
}

}  // namespace

void write_file(const std::string& path, const std::vector<std::string_view>& pieces) {
  Temporary temporary{path + ".evener-" + std::to_string(::getpid())};
  {
    const Descriptor file(::open(temporary.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (file.fd < 0) {
      temporary.stays = true;
      fail_io("write", temporary.path);
    }
    for (const std::string_view piece : pieces) write_all(file.fd, piece, temporary.path);
    if (::fsync(file.fd) != 0) fail_io("write", temporary.path);
  }
  if (::rename(temporary.path.c_str(), path.c_str()) != 0) fail_io("write", path);
  temporary.stays = true;
}

void write_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  std::string header = header_of(checkpoint);
  std::vector<std::string_view> pieces(2);
  for (const SavedTensor& t : checkpoint.tensors) pieces.emplace_back(static_cast<const char*>(t.data), t.size);
  Checksum sum;
  sum.add(header);
  for (std::size_t i = 2; i < pieces.size(); ++i) sum.add(pieces[i]);
  header.replace(header.find(kNoChecksum), sizeof kNoChecksum - 1, sum.text());
  const std::uint64_t size = header.size();
  char length[8];
  std::memcpy(length, &size, 8);
  pieces[0] = {length, 8};
  pieces[1] = header;
  write_file(path, pieces);
}

Checkpoint read_checkpoint(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.file = read_file(path);
  const std::string_view file = checkpoint.file;
  std::uint64_t size = 0;
  if (file.size() >= 8) std::memcpy(&size, file.data(), 8);
  if (size < 2 || size > kMostHeader || size > file.size() - 8)
    fail(EVN_ERROR_INVALID_ARGUMENT, "'%.256s' is no checkpoint of a trainer, or it is cut off", path.c_str());
  const std::string_view text = file.substr(8, static_cast<std::size_t>(size)),
                         data = file.substr(8 + static_cast<std::size_t>(size));
  HeaderReader(text, data).read(&checkpoint);
  std::size_t used = 0;
  for (const SavedTensor& t : checkpoint.tensors) used += t.size;
  Checksum sum;
  std::string header(text);
  const std::string& said = checkpoint.metadata[kChecksum];
  if (const std::size_t at = header.find(said); said.size() == 16 && at != std::string::npos) header.replace(at, 16, kNoChecksum);
  sum.add(header);
  for (const SavedTensor& t : checkpoint.tensors) sum.add({static_cast<const char*>(t.data), t.size});
  if (used != data.size() || sum.text() != said)
    fail(EVN_ERROR_INVALID_ARGUMENT, "'%.256s' was changed after it was written: its checksum is another", path.c_str());
  return checkpoint;
}

}  // namespace evn_train
