#include "runtime/replay/npz_file.h"

#include <algorithm>
#include <optional>

#include "base/checked.h"
#include "base/error.h"
#include "base/os/os.h"
#include "base/text.h"
#include "core/text.h"

namespace evn {
namespace {

using zip::put;

// NumPy's name of an element type; raw bytes where it has none.
std::string descr_of(DType dtype) {
  const std::string size = std::to_string(std::max<std::size_t>(dtype_size(dtype), 1));
  switch (dtype) {
    case DType::kBool: return "|b1";
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64: return "<i" + size;
    case DType::kUint8:
    case DType::kUint16:
    case DType::kUint32:
    case DType::kUint64: return "<u" + size;
    case DType::kFloat16:
    case DType::kFloat32:
    case DType::kFloat64: return "<f" + size;
    case DType::kComplex64:
    case DType::kComplex128: return "<c" + size;
    default: return "|V" + size;
  }
}

// One element of less than a byte to each byte.
std::string unpacked(const ConstTensor& t) {
  const std::size_t bits = dtype_bits(t.desc.dtype), to_byte = 8 / bits;
  std::string bytes(static_cast<std::size_t>(t.desc.shape.elements()), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(t.as<unsigned char>()[i / to_byte] >> (bits * (i % to_byte)) & ((1u << bits) - 1));
  return bytes;
}

char32_t code_point(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  char32_t code = character.size() == 1 ? lead : lead & (0xffu >> (character.size() + 1));
  for (const char c : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3f);
  return code;
}

// Calls visit(character) for each character of UTF-8.
template <typename F>
void each_character(std::string_view text, F&& visit) {
  while (!text.empty()) {
    const std::size_t size = utf8_character(text);
    visit(text.substr(0, size));
    text.remove_prefix(size);
  }
}

// All strings with the width of the longest; *descr gets their type. Throws EVN_ERROR_LIMIT if they take more than `most` bytes.
std::string padded(std::span<const TextElement> texts, std::uint64_t most, std::string* descr) {
  const bool is_text = std::all_of(texts.begin(), texts.end(),
                                   [](TextElement t) { return find_invalid_utf8(text_of(t)) == std::string_view::npos; });
  std::size_t longest = 1;  // NumPy has no strings of no characters
  for (const TextElement t : texts) {
    std::size_t length = is_text ? 0 : text_of(t).size();
    if (is_text) each_character(text_of(t), [&](std::string_view) { ++length; });
    longest = std::max(longest, length);
  }
  const std::size_t width = checked_mul<std::size_t>(longest, is_text ? 4 : 1), size = checked_mul(texts.size(), width);
  if (size > most) {
    throw make_error(EVN_ERROR_LIMIT, "%zu strings take %zu bytes in an archive, where each is as long as the longest one",
                     texts.size(), size)
        .with_bytes(size, most);
  }
  *descr = (is_text ? "<U" : "|S") + std::to_string(longest);
  std::string joined;
  joined.reserve(size);
  for (const TextElement t : texts) {
    const std::size_t end = joined.size() + width;
    if (is_text) {
      each_character(text_of(t), [&](std::string_view character) { put(joined, code_point(character), 4); });
    } else {
      joined += text_of(t);
    }
    joined.resize(end);
  }
  return joined;
}

// The header of a .npy file, as long as a multiple of 64.
std::string npy_header(const std::string& descr, const Shape& shape) {
  std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (";
  for (int i = 0; i < shape.rank(); ++i) text += std::to_string(shape[i]) + ",";
  text += "), }";
  constexpr std::size_t kFixed = 10;
  text.resize(align_up(text.size() + 1 + kFixed, 64) - kFixed - 1, ' ');
  std::string header("\x93NUMPY\x01\x00", 8);
  put(header, text.size() + 1, 2);
  return header + text + "\n";
}

}  // namespace

void NpzFile::add(const std::string& name, const ConstTensor& tensor) {
  Entry e;
  const TensorDesc& desc = tensor.desc;
  std::string descr = descr_of(desc.dtype);
  e.data = tensor.data;
  e.size = desc.size_bytes();
  const bool is_text = desc.dtype == DType::kString;
  if (is_text) {
    const std::span texts(tensor.as<TextElement>(), static_cast<std::size_t>(desc.shape.elements()));
    e.changed = padded(texts, zip_.room(), &descr);
  }
  if (is_sub_byte(desc.dtype)) e.changed = unpacked(tensor);
  if (is_text || is_sub_byte(desc.dtype)) e.size = e.changed.size();
  const std::string header = npy_header(descr, desc.shape), file = name + ".npy";
  const void* const elements = is_text || is_sub_byte(desc.dtype) ? e.changed.data() : e.data;
  std::optional<std::string> head = zip_.add(file, header, elements, e.size);
  if (!head) fail(EVN_ERROR_LIMIT, "an archive of so many bytes is not written");
  e.head = std::move(*head);
  entries_.push_back(std::move(e));
}

void NpzFile::write(const std::string& path) const {
  const std::string end = zip_.finish();
  std::vector<os::Piece> pieces;
  for (const Entry& e : entries_) {
    pieces.push_back({e.head.data(), e.head.size()});
    pieces.push_back({e.changed.empty() ? e.data : e.changed.data(), e.size});
  }
  pieces.push_back({end.data(), end.size()});
  os::write_file_atomically(path, pieces);
}

}  // namespace evn
