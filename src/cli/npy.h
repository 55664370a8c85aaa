// NumPy's .npy files: reading versions 1 to 3, little-endian, C order; writing version 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "evener/evener.h"

namespace evn::cli {

struct NpyArray {
  evn_dtype dtype = EVN_DTYPE_UNDEFINED;
  std::vector<std::int64_t> dims;
  std::vector<unsigned char> bytes;
};

struct NpyFileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using NpyFile = std::unique_ptr<std::FILE, NpyFileCloser>;

// Throws a Failure that names the file: no regular file, a damaged or Fortran-ordered one, an element type that no tensor has.
NpyArray read_npy(const std::string& path);

// What an array is, and where its elements begin.
struct NpyHeader {
  evn_dtype dtype = EVN_DTYPE_UNDEFINED;
  std::vector<std::int64_t> dims;
  std::size_t begin = 0;  // bytes before the elements
  std::size_t size = 0;   // bytes of the elements
};

// Reads the header from where an open file stands, which stands at the elements then; the .npy data must be `size` bytes long.
// `path` is for messages.
NpyHeader read_npy_header(std::FILE* file, const std::string& path, std::uintmax_t size);

// An array as a .npy file has it: the header, then the data.
struct NpyForm {
  std::string header;
  const void* data = nullptr;
  std::size_t size = 0;
  std::vector<float> widened;  // what data points to where the elements had to change
};
NpyForm npy_form(const std::string& path, evn_dtype dtype, const std::vector<std::int64_t>& dims, const void* data,
                 std::size_t size);

// bfloat16, which NumPy lacks, is written as float32. Leaves no file when it fails.
void write_npy(const std::string& path, evn_dtype dtype, const std::vector<std::int64_t>& dims, const void* data, std::size_t size);

}  // namespace evn::cli
