// NumPy's .npy files: reading versions 1 to 3, of either byte order and either order of axes; writing version 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evener/evener.h"

namespace evn::cli {

struct NpyArray {
  evn_dtype dtype = EVN_DTYPE_UNDEFINED;  // UNDEFINED: the elements are raw bits of some type that NumPy lacks
  std::vector<std::int64_t> dims;
  std::vector<unsigned char> bytes;
  std::vector<std::string> texts;  // the elements of EVN_DTYPE_STRING, in the place of bytes
};

struct NpyFileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using NpyFile = std::unique_ptr<std::FILE, NpyFileCloser>;

// Throws a Failure that names the file: no regular file, a damaged one, an element type that no tensor has.
NpyArray read_npy(const std::string& path);

// Type, shape and layout of an array, and the place where its elements begin.
struct NpyHeader {
  evn_dtype dtype = EVN_DTYPE_UNDEFINED;  // as NpyArray has it
  std::vector<std::int64_t> dims;
  std::size_t begin = 0;         // bytes before the elements
  std::size_t size = 0;          // bytes of the elements
  std::size_t element_size = 0;  // bytes of one
  bool fortran = false;          // the first axis varies fastest
  bool swapped = false;          // numbers and characters are big-endian
  bool wide_text = false;        // of strings: UTF-32; else bytes

  // True if the elements lie as a tensor has them. Bytes of bool may still be other than 0 and 1.
  bool is_plain() const { return !fortran && !swapped && dtype != EVN_DTYPE_STRING; }
};

// Reads `size` bytes at `offset` of .npy data, or throws a Failure.
using NpyReader = std::function<void(std::uint64_t offset, void* to, std::size_t size)>;

// The header of .npy data of `size` bytes. `path` is for messages.
NpyHeader read_npy_header(const NpyReader& read, const std::string& path, std::uintmax_t size);

// The array of a header and the bytes of its elements.
NpyArray decode_npy(const NpyHeader& header, std::vector<unsigned char> bytes, const std::string& path);

// An array as a .npy file has it: the header, then the data.
struct NpyForm {
  std::string header;
  const void* data = nullptr;
  std::size_t size = 0;
  std::vector<unsigned char> changed;  // what data points to where the elements had to change
};
// Types that NumPy lacks are written as wider ones (cli/narrow.h).
NpyForm npy_form(const std::string& path, evn_dtype dtype, const std::vector<std::int64_t>& dims, const void* data,
                 std::size_t size);

// The characters of UTF-8; nothing if the text is none.
std::optional<std::u32string> characters_of(const std::string& text);

// Strings in the same form: UTF-32, or bytes if one of them is no UTF-8, each as long as the longest one. Throws a Failure if they
// take more than 2 GiB together.
NpyForm npy_form(const std::string& path, const std::vector<std::string>& texts, const std::vector<std::int64_t>& dims);

// Leaves no file when it fails.
void write_npy(const std::string& path, const NpyForm& form);

}  // namespace evn::cli
