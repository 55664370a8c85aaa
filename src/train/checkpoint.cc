#include "train/checkpoint.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "base/json_writer.h"
#include "base/os/os.h"
#include "base/text.h"
#include "train/library.h"

namespace evn_train {
namespace {

constexpr char kChecksum[] = "evener.checksum";
constexpr char kNoChecksum[] = "0000000000000000";
constexpr std::uint64_t kMostHeader = 64u << 20;
constexpr std::uint64_t kMostFile = std::uint64_t{1} << 40;

// The checksum of a header that has none yet, and of the tensors.
std::string checksum_text(std::string_view header, const std::vector<SavedTensor>& tensors) {
  evn::Hasher hash;
  hash.add(header);
  for (const SavedTensor& t : tensors) hash.add(t.data, t.size);
  std::string digits(16, '0');
  for (std::size_t i = 0; i < 16; ++i) digits[15 - i] = "0123456789abcdef"[hash.value() >> (4 * i) & 15u];
  return digits;
}

std::string header_of(const Checkpoint& checkpoint) {
  evn::JsonWriter json;
  json.begin_object();
  json.key("__metadata__");
  json.begin_object();
  json.field(kChecksum, kNoChecksum);
  for (const auto& [key, value] : checkpoint.metadata) json.field(key, std::string_view(value));
  json.end_object();
  std::uint64_t offset = 0;
  for (const SavedTensor& t : checkpoint.tensors) {
    if (evn::find_invalid_utf8(t.name) != std::string_view::npos)
      fail(EVN_ERROR_UNSUPPORTED, "tensor \"%.160s\" cannot be saved: its name is not UTF-8", t.name.c_str());
    json.key(t.name);
    json.begin_object();
    json.field("dtype", "F32");
    json.key("shape");
    json.begin_array();
    for (const std::int64_t dim : t.dims) json.value(dim);
    json.end_array();
    json.key("data_offsets");
    json.begin_array();
    json.value(offset);
    json.value(offset += t.size);
    json.end_array();
    json.end_object();
  }
  json.end_object();
  std::string text = json.take();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

// Reads what header_of writes, and nothing else: the file is the trainer's own.
class HeaderReader {
 public:
  HeaderReader(const std::string& path, std::string_view text, std::string_view data) : path_(path), text_(text), data_(data) {}

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
  const std::string& path_;
  std::string_view text_, data_;
  std::size_t offset_ = 0;

  [[noreturn]] void broken() const {
    fail(EVN_ERROR_INVALID_ARGUMENT, "'%.256s' is no checkpoint of a trainer, or it was changed", path_.c_str());
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

}  // namespace

void write_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  std::string header = header_of(checkpoint);
  header.replace(header.find(kNoChecksum), sizeof kNoChecksum - 1, checksum_text(header, checkpoint.tensors));
  const std::uint64_t size = header.size();  // little-endian, as the machine is
  std::vector<evn::os::Piece> pieces = {{&size, sizeof size}, {header.data(), header.size()}};
  for (const SavedTensor& t : checkpoint.tensors) pieces.push_back({t.data, t.size});
  evn::os::write_file_atomically(path, pieces);
}

Checkpoint read_checkpoint(const std::string& path) {
  Checkpoint checkpoint;
  const evn::os::FileBytes bytes = evn::os::read_file(path, kMostFile, nullptr, evn::MemoryClass::kLoading);
  checkpoint.file = bytes.data;
  const std::string_view file(static_cast<const char*>(bytes.data.get()), bytes.size);
  std::uint64_t size = 0;
  if (file.size() >= sizeof size) std::memcpy(&size, file.data(), sizeof size);
  if (size < 2 || size > kMostHeader || size > file.size() - sizeof size)
    fail(EVN_ERROR_INVALID_ARGUMENT, "'%.256s' is no checkpoint of a trainer, or it is cut off", path.c_str());
  std::string header(file.substr(sizeof size, static_cast<std::size_t>(size)));
  const std::string_view data = file.substr(sizeof size + header.size());
  HeaderReader(path, header, data).read(&checkpoint);
  std::size_t used = 0;
  for (const SavedTensor& t : checkpoint.tensors) used += t.size;
  const std::string& said = checkpoint.metadata[kChecksum];
  if (const std::size_t at = header.find(said); said.size() == 16 && at != std::string::npos) header.replace(at, 16, kNoChecksum);
  if (used != data.size() || checksum_text(header, checkpoint.tensors) != said)
    fail(EVN_ERROR_INVALID_ARGUMENT, "'%.256s' was changed after it was written: its checksum is another", path.c_str());
  return checkpoint;
}

}  // namespace evn_train
