// NumPy's .npz files: zip archives of .npy files. Entries must be stored, as numpy.savez does; archives up to 4 GiB are
// read, up to 2 GiB are written.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/npy.h"

namespace evn::cli {

// True for a path that ends in .npz.
bool is_npz(const std::string& path);

// The arrays by name, without ".npy", in the archive's order. Throws a Failure that names the file: no regular file, a damaged or
// compressed archive, an entry that is no .npy file. Checksums are not checked.
std::vector<std::pair<std::string, NpyArray>> read_npz(const std::string& path);

// Gathers arrays, and writes the archive when all are there.
class NpzWriter {
 public:
  explicit NpzWriter(std::string path) : path_(std::move(path)) {}

  void add(const std::string& name, evn_dtype dtype, const std::vector<std::int64_t>& dims, const void* data, std::size_t size);
  void finish();

 private:
  std::string path_;
  std::string entries_;
  std::string directory_;
  unsigned count_ = 0;
};

}  // namespace evn::cli
