// NumPy's .npz files: zip archives of .npy files. Entries must be stored, as numpy.savez does; archives up to 2 GiB are written.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/npy.h"

namespace evn::cli {

// True for a path that ends in .npz.
bool is_npz(const std::string& path);

// An array of an archive.
struct NpzEntry {
  std::string name;   // without ".npy"
  std::string label;  // "train.npz(x.npy)", of messages
  evn_dtype dtype = EVN_DTYPE_UNDEFINED;
  std::vector<std::int64_t> dims;
  std::uint64_t begin = 0;  // where its elements are in the file
  std::uint64_t size = 0;   // bytes of these
};

// An archive of which parts are read when they are asked for.
class NpzFile {
 public:
  // Reads what there is. Throws a Failure that names the file: no regular file, a damaged or compressed archive, an entry that is
  // no .npy file.
  explicit NpzFile(const std::string& path);

  // In the archive's order.
  const std::vector<NpzEntry>& entries() const { return entries_; }
  const NpzEntry* find(const std::string& name) const;

  // Reads `size` bytes of an entry's elements from `offset` on. False where the file has ended before, or cannot be read. From any
  // thread.
  bool read(const NpzEntry& entry, std::uint64_t offset, void* to, std::size_t size) const;

 private:
  friend class NpzDirectory;
  NpyFile file_;
  std::vector<NpzEntry> entries_;
};

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
