// NumPy's .npy files: reading versions 1 to 3, little-endian, C order; writing version 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "evener/evener.h"

namespace evn::cli {

struct NpyArray {
  evn_dtype dtype = EVN_DTYPE_UNDEFINED;
  std::vector<std::int64_t> dims;
  std::vector<unsigned char> bytes;
};

// Throws a Failure that names the file: no regular file, a damaged or Fortran-ordered one, an element type that no tensor has.
NpyArray read_npy(const std::string& path);

// bfloat16, which NumPy lacks, is written as float32. Leaves no file when it fails.
void write_npy(const std::string& path, evn_dtype dtype, const std::vector<std::int64_t>& dims, const void* data, std::size_t size);

}  // namespace evn::cli
