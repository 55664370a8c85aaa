#include "cli/npy.h"

#include <algorithm>
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
#include "cli/narrow.h"

namespace evn::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxHeader = 65536;
constexpr std::size_t kMaxText = std::size_t{1} << 28;   // characters of a string
constexpr std::size_t kMaxEmptyTexts = 65536;            // of strings that have no character at all
constexpr std::size_t kMaxTexts = std::size_t{1} << 31;  // bytes of all strings of an array that is written

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
    if (key == "descr" && !header.descr) return (header.descr = take("[") ? fields() : quoted()).has_value();
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

  // The list of the fields of a structure, whose "[" has been read: a descr that begins with "[".
  std::optional<std::string> fields() {
    for (int depth = 1; depth > 0;) {
      skip_blanks();
      if (rest_.empty()) return std::nullopt;
      const char c = rest_[0];
      if (c == '\'' || c == '"') {
        if (!quoted()) return std::nullopt;
        continue;
      }
      depth += c == '[' || c == '(' ? 1 : c == ']' || c == ')' ? -1 : 0;
      rest_.remove_prefix(1);
    }
    return "[";
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

void read_exactly(std::FILE* file, const std::string& path, void* to, std::size_t size) {
  if (size != 0 && std::fread(to, 1, size, file) != size) fail_read(path, "the file ends too early");
}

// The text of the header, and the place behind it.
std::string read_header(const NpyReader& read, const std::string& path, std::size_t* end) {
  unsigned char start[12] = {};
  read(0, start, 8);
  if (std::memcmp(start, kMagic.data(), kMagic.size()) != 0) fail_read(path, "not a .npy file");
  const int version = start[6];
  if (version < 1 || version > 3 || start[7] != 0) fail_read(path, "a .npy version that is not known");
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  read(8, start + 8, length_bytes);
  std::size_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | start[8 + i];
  if (length > kMaxHeader) fail_read(path, "the .npy header is larger than 64 KiB");
  std::string header(length, '\0');
  read(8 + length_bytes, header.data(), length);
  *end = 8 + length_bytes + length;
  return header;
}

// Sets the element type, its size and its order of bytes by a descr such as "<f4", ">i8", "|b1", "<U12" and "|S3".
void read_descr(const std::string& path, const std::string& descr, NpyHeader* to) {
  const char order = descr.empty() ? '\0' : descr[0];
  if (order == '[') fail_read(path, "the elements are structures, which no tensor has: save each field of the array alone");
  const std::string_view rest = std::string_view(descr).substr(descr.empty() ? 0 : 1);
  const bool ordered = order == '<' || order == '>';
  if ((ordered || order == '|') && !rest.empty() && (rest[0] == 'U' || rest[0] == 'S' || rest[0] == 'a')) {
    to->wide_text = rest[0] == 'U';
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), length);
    if (error == std::errc{} && end == rest.data() + rest.size() && length <= kMaxText && to->wide_text == ordered) {
      to->dtype = EVN_DTYPE_STRING;
      to->element_size = to->wide_text ? 4 * length : length;
      to->swapped = order == '>';
      return;
    }
  }
  if (rest == "V1" || rest == "V2" || rest == "f1") {  // as ml_dtypes writes types that NumPy lacks
    to->dtype = EVN_DTYPE_UNDEFINED;
    to->element_size = rest == "V2" ? 2 : 1;
    to->swapped = order == '>' && to->element_size > 1;
    return;
  }
  std::string little = descr;
  if (order == '>') little[0] = '<';
  const DTypeRow* const row = find_dtype_of_npy(little);
  if (row == nullptr) {
    const bool objects = rest == "O";
    fail(kExitFailure, "%s: the element type \"%s\" is no tensor's%s", path.c_str(), descr.c_str(),
         objects ? "; strings are read as fixed-size ones: save a.astype(str)" : "");
  }
  to->dtype = row->dtype;
  to->element_size = row->size;
  to->swapped = order == '>' && row->size > 1;
}

// Reverses the bytes of each number.
void swap_bytes(std::vector<unsigned char>& bytes, std::size_t size) {
  for (std::size_t i = 0; i + size <= bytes.size(); i += size)
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i), bytes.begin() + static_cast<std::ptrdiff_t>(i + size));
}

// The elements with the last axis varying fastest, of those with the first.
std::vector<unsigned char> in_c_order(const std::vector<unsigned char>& bytes, const std::vector<std::int64_t>& dims,
                                      std::size_t size) {
  std::vector<std::size_t> strides, index(dims.size());
  std::size_t stride = size;
  for (const std::int64_t dim : dims) {
    strides.push_back(stride);
    stride *= static_cast<std::size_t>(dim);
  }
  std::vector<unsigned char> ordered(bytes.size());
  std::size_t from = 0;
  for (std::size_t to = 0; to < bytes.size(); to += size) {
    std::memcpy(ordered.data() + to, bytes.data() + from, size);
    for (std::size_t axis = dims.size(); axis-- > 0;) {
      from += strides[axis];
      if (++index[axis] < static_cast<std::size_t>(dims[axis])) break;
      from -= strides[axis] * index[axis];
      index[axis] = 0;
    }
  }
  return ordered;
}

void append_utf8(std::uint32_t c, std::string* text) {
  const auto put = [&](std::uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xc0 | c >> 6), put(0x80 | (c & 63));
  if (c < 0x10000) return put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 63)), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
}

// The texts of UTF-32, in the machine's order of bytes, or of bytes; NULs at their ends fill them up.
std::vector<std::string> decode_texts(const std::vector<unsigned char>& bytes, std::size_t count, std::size_t size, bool wide,
                                      const std::string& path) {
  std::vector<std::string> texts(count);
  for (std::size_t i = 0; i < count && size != 0; ++i) {
    const unsigned char* const at = bytes.data() + i * size;
    if (!wide) {
      std::size_t length = size;
      while (length > 0 && at[length - 1] == 0) --length;
      texts[i].assign(reinterpret_cast<const char*>(at), length);
      continue;
    }
    std::size_t length = size / 4;
    const auto character = [&](std::size_t k) {
      std::uint32_t c;
      std::memcpy(&c, at + 4 * k, 4);
      return c;
    };
    while (length > 0 && character(length - 1) == 0) --length;
    for (std::size_t k = 0; k < length; ++k) {
      const std::uint32_t c = character(k);
      if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) fail_read(path, "a string has a character that is none of Unicode");
      append_utf8(c, &texts[i]);
    }
  }
  return texts;
}

}  // namespace

NpyHeader read_npy_header(const NpyReader& read, const std::string& path, std::uintmax_t file_size) {
  NpyHeader array;
  const auto header = HeaderReader(read_header(read, path, &array.begin)).read();
  if (!header) fail_read(path, "the .npy header is damaged");
  read_descr(path, *header->descr, &array);
  array.dims = *header->dims;
  array.fortran = *header->fortran && array.dims.size() > 1;
  std::size_t count = 1;
  bool fits = true;
  for (const std::int64_t dim : array.dims) fits = fits && !__builtin_mul_overflow(count, static_cast<std::size_t>(dim), &count);
  fits = fits && !__builtin_mul_overflow(count, array.element_size, &array.size);
  // Strings without a byte would be any number of them in a small file.
  if (array.element_size == 0 && count > kMaxEmptyTexts) fits = false;
  if (!fits || file_size < array.begin || file_size - array.begin != array.size) {
    fail_read(path, "the file's size is not what its header says");
  }
  return array;
}

NpyArray decode_npy(const NpyHeader& header, std::vector<unsigned char> bytes, const std::string& path) {
  NpyArray array;
  array.dtype = header.dtype;
  array.dims = header.dims;
  const bool is_complex_number = is_complex(header.dtype);
  if (header.swapped) swap_bytes(bytes, header.wide_text ? 4 : is_complex_number ? header.element_size / 2 : header.element_size);
  if (header.fortran && header.element_size != 0) bytes = in_c_order(bytes, header.dims, header.element_size);
  if (header.dtype == EVN_DTYPE_STRING) {
    array.texts = decode_texts(bytes, element_count(header.dims), header.element_size, header.wide_text, path);
    return array;
  }
  if (array.dtype == EVN_DTYPE_BOOL) {
    for (unsigned char& byte : bytes) byte = byte != 0 ? 1 : 0;
  }
  array.bytes = std::move(bytes);
  return array;
}

NpyArray read_npy(const std::string& path) {
  std::error_code no_file;
  if (!std::filesystem::is_regular_file(path, no_file)) fail_read(path, "no such file, or not a regular file");
  const NpyFile file(std::fopen(path.c_str(), "rb"));
  if (!file) fail_read(path, "cannot be opened");
  const std::uintmax_t size = std::filesystem::file_size(path, no_file);
  if (no_file) fail_read(path, "cannot be opened");
  // Headers are read from the front to the back, and the elements behind them.
  const NpyReader read = [&](std::uint64_t, void* to, std::size_t bytes) { read_exactly(file.get(), path, to, bytes); };
  const NpyHeader header = read_npy_header(read, path, size);
  std::vector<unsigned char> bytes(header.size);
  read_exactly(file.get(), path, bytes.data(), header.size);
  return decode_npy(header, std::move(bytes), path);
}

namespace {

// The header of an array of these elements.
std::string header_of(const std::string& descr, const std::vector<std::int64_t>& dims) {
  std::string shape;
  for (const std::int64_t dim : dims) shape += std::to_string(dim) + ",";
  std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  text.append(63 - (kMagic.size() + 4 + text.size()) % 64, ' ').push_back('\n');  // the data begin at a multiple of 64
  std::string header(kMagic);
  header.append({'\1', '\0', static_cast<char>(text.size() & 255), static_cast<char>(text.size() >> 8)});
  return header + text;
}

}  // namespace

std::optional<std::u32string> characters_of(const std::string& text) {
  std::u32string characters;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t k) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[k])); };
    const std::uint32_t first = byte(i);
    const std::size_t length = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
    if (length == 0 || text.size() - i < length) return std::nullopt;
    std::uint32_t c = length == 1 ? first : first & (0x7fu >> length);
    for (std::size_t k = 1; k < length; ++k) {
      if (byte(i + k) >> 6 != 2) return std::nullopt;
      c = c << 6 | (byte(i + k) & 63);
    }
    constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (c < kLeast[length] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return std::nullopt;
    characters.push_back(static_cast<char32_t>(c));
    i += length;
  }
  return characters;
}

NpyForm npy_form(const std::string& path, const std::vector<std::string>& texts, const std::vector<std::int64_t>& dims) {
  std::vector<std::u32string> wide;
  bool is_wide = true;
  std::size_t most = 1, most_bytes = 1;  // NumPy has no strings of no characters
  for (const std::string& text : texts) {
    most_bytes = std::max(most_bytes, text.size());
    std::optional<std::u32string> characters = characters_of(text);
    is_wide = is_wide && characters;
    if (!is_wide) continue;
    most = std::max(most, characters->size());
    wide.push_back(std::move(*characters));
  }
  const std::size_t size = is_wide ? 4 * most : most_bytes;
  std::size_t all = 0;
  if (__builtin_mul_overflow(size, texts.size(), &all) || all > kMaxTexts) {
    fail(kExitFailure, "%s: %zu strings take more than 2 GiB in a .npy file, where each is as long as the longest one",
         path.c_str(), texts.size());
  }
  NpyForm form;
  form.header = header_of(is_wide ? "<U" + std::to_string(most) : "|S" + std::to_string(most_bytes), dims);
  form.changed.resize(all);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const void* const from = is_wide ? static_cast<const void*>(wide[i].data()) : texts[i].data();
    const std::size_t bytes = is_wide ? 4 * wide[i].size() : texts[i].size();
    if (bytes != 0) std::memcpy(form.changed.data() + i * size, from, bytes);
  }
  form.data = form.changed.data();
  form.size = form.changed.size();
  return form;
}

NpyForm npy_form(const std::string& path, evn_dtype dtype, const std::vector<std::int64_t>& dims, const void* data,
                 std::size_t size) {
  NpyForm form;
  form.data = data;
  form.size = size;
  if (const NarrowType* const narrow = find_narrow(dtype)) {
    form.changed = widened(*narrow, data, element_count(dims));
    dtype = narrow->wide;
    form.data = form.changed.data();
    form.size = form.changed.size();
  }
  const DTypeRow* const row = find_dtype(dtype);
  if (row == nullptr || row->npy[0] == '\0') fail(kExitFailure, "%s: this element type cannot be written as .npy", path.c_str());
  form.header = header_of(row->npy, dims);
  return form;
}

void write_npy(const std::string& path, const NpyForm& form) { write_file(path, form.header, form.data, form.size); }

}  // namespace evn::cli
