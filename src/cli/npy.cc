#include "cli/npy.h"

#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

#include "cli/dtype.h"
#include "cli/failure.h"
#include "cli/file.h"

namespace evn::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxHeader = 65536;

// The dictionary of a header: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } with its keys in any order.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : rest_(text) {}

  struct Header {
    std::optional<std::string> descr;
    std::optional<bool> fortran;
    std::optional<std::vector<std::int64_t>> dims;
  };

  std::optional<Header> read() {
    Header header;
    if (!take("{")) return std::nullopt;
    while (!take("}")) {
      const std::optional<std::string> key = quoted();
      if (!key || !take(":") || !read_entry(*key, header)) return std::nullopt;
      if (!take(",") && !(skip_blanks(), rest_.substr(0, 1) == "}")) return std::nullopt;
    }
    skip_blanks();
    const bool whole = rest_.empty() && header.descr && header.fortran && header.dims;
    return whole ? std::optional(header) : std::nullopt;
  }

 private:
  bool read_entry(const std::string& key, Header& header) {
    if (key == "descr" && !header.descr) return (header.descr = quoted()).has_value();
    if (key == "shape" && !header.dims) return (header.dims = tuple()).has_value();
    if (key != "fortran_order" || header.fortran) return false;
    if (take("False")) header.fortran = false;
    if (!header.fortran && take("True")) header.fortran = true;
    return header.fortran.has_value();
  }

  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size())); }

  bool take(std::string_view word) {
    skip_blanks();
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  std::optional<std::string> quoted() {
    skip_blanks();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return std::nullopt;
    const std::size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }

  std::optional<std::vector<std::int64_t>> tuple() {
    std::vector<std::int64_t> dims;
    if (!take("(")) return std::nullopt;
    while (!take(")")) {
      skip_blanks();
      std::int64_t dim = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), dim);
      if (error != std::errc{} || dim < 0 || dims.size() == EVN_MAX_RANK) return std::nullopt;
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      dims.push_back(dim);
      if (!take(",") && !(skip_blanks(), rest_.substr(0, 1) == ")")) return std::nullopt;
    }
    return dims;
  }

  std::string_view rest_;
};

[[noreturn]] void fail_read(const std::string& path, const char* why) { fail(kExitFailure, "%s: %s", path.c_str(), why); }

void read_exactly(std::FILE* file, const std::string& path, void* to, std::size_t size) {
  if (size != 0 && std::fread(to, 1, size, file) != size) fail_read(path, "the file ends too early");
}

std::string read_header(std::FILE* file, const std::string& path) {
  unsigned char start[12] = {};
  read_exactly(file, path, start, 8);
  if (std::memcmp(start, kMagic.data(), kMagic.size()) != 0) fail_read(path, "not a .npy file");
  const int version = start[6];
  if (version < 1 || version > 3 || start[7] != 0) fail_read(path, "a .npy version that is not known");
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  read_exactly(file, path, start + 8, length_bytes);
  std::size_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | start[8 + i];
  if (length > kMaxHeader) fail_read(path, "the .npy header is larger than 64 KiB");
  std::string header(length, '\0');
  read_exactly(file, path, header.data(), length);
  return header;
}

}  // namespace

NpyHeader read_npy_header(std::FILE* file, const std::string& path, std::uintmax_t file_size) {
  const long start = std::ftell(file);
  const auto header = HeaderReader(read_header(file, path)).read();
  if (!header) fail_read(path, "the .npy header is damaged");
  if (*header->fortran) fail_read(path, "Fortran order is not read; save numpy.ascontiguousarray(a)");
  NpyHeader array;
  array.dims = *header->dims;
  const DTypeRow* const row = find_dtype_of_npy(*header->descr);
  if (row == nullptr) {
    fail(kExitFailure, "%s: the element type \"%s\" is no tensor's, or not little-endian", path.c_str(), header->descr->c_str());
  }
  array.dtype = row->dtype;
  const std::optional<std::size_t> size = byte_size(array.dtype, array.dims);
  const long begin = std::ftell(file);
  if (!size || start < 0 || begin < start || file_size - static_cast<std::uintmax_t>(begin - start) != *size) {
    fail_read(path, "the file's size is not what its header says");
  }
  array.begin = static_cast<std::size_t>(begin - start);
  array.size = *size;
  return array;
}

NpyArray read_npy(const std::string& path) {
  std::error_code no_file;
  if (!std::filesystem::is_regular_file(path, no_file)) fail_read(path, "no such file, or not a regular file");
  const NpyFile file(std::fopen(path.c_str(), "rb"));
  if (!file) fail_read(path, "cannot be opened");
  const std::uintmax_t size = std::filesystem::file_size(path, no_file);
  if (no_file) fail_read(path, "cannot be opened");
  const NpyHeader header = read_npy_header(file.get(), path, size);
  NpyArray array;
  array.dtype = header.dtype;
  array.dims = header.dims;
  array.bytes.resize(header.size);
  read_exactly(file.get(), path, array.bytes.data(), header.size);
  if (array.dtype == EVN_DTYPE_BOOL) {
    for (unsigned char& byte : array.bytes) byte = byte != 0 ? 1 : 0;
  }
  return array;
}

NpyForm npy_form(const std::string& path, evn_dtype dtype, const std::vector<std::int64_t>& dims, const void* data,
                 std::size_t size) {
  NpyForm form;
  form.data = data;
  form.size = size;
  if (dtype == EVN_DTYPE_BFLOAT16) {
    for (std::size_t i = 0; i < size / 2; ++i) form.widened.push_back(static_cast<float>(element_at(dtype, data, i)));
    dtype = EVN_DTYPE_FLOAT32;
    form.data = form.widened.data();
    form.size = size * 2;
  }
  const DTypeRow* const row = find_dtype(dtype);
  if (row == nullptr || row->npy[0] == '\0') fail(kExitFailure, "%s: this element type cannot be written as .npy", path.c_str());
  std::string shape;
  for (const std::int64_t dim : dims) shape += std::to_string(dim) + ",";
  std::string header = std::string("{'descr': '") + row->npy + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.append(63 - (kMagic.size() + 4 + header.size()) % 64, ' ').push_back('\n');  // the data begin at a multiple of 64
  form.header = kMagic;
  form.header.append({'\1', '\0', static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)}).append(header);
  return form;
}

void write_npy(const std::string& path, evn_dtype dtype, const std::vector<std::int64_t>& dims, const void* data,
               std::size_t size) {
  const NpyForm form = npy_form(path, dtype, dims, data, size);
  write_file(path, form.header, form.data, form.size);
}

}  // namespace evn::cli
