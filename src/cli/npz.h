// NumPy's .npz files: zip archives of .npy files. Entries are stored, as numpy.savez does, or deflated, as numpy.savez_compressed
// does; archives up to 2 GiB are written, stored.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/npy.h"
#include "zip/stored_zip.h"

namespace evn::cli {

// True for a path that ends in .npz.
bool is_npz(const std::string& path);

// An array of an archive.
struct NpzEntry {
  std::string name;   // without ".npy"
  std::string label;  // "train.npz(x.npy)", of messages
  evn_dtype dtype = EVN_DTYPE_UNDEFINED;
  std::vector<std::int64_t> dims;
  NpyHeader header;
  bool deflated = false;
  std::uint64_t begin = 0;               // place of the entry in the file
  std::uint64_t packed = 0;              // bytes that it has there
  std::uint64_t size = 0;                // bytes that it has as a .npy file
  std::uint32_t checksum = 0;            // of these
  std::shared_ptr<const NpyArray> held;  // its elements, if they have been decoded
};

// An archive of which parts are read when they are asked for.
class NpzFile {
 public:
  // Reads what there is. Throws a Failure that names the file: no regular file, a damaged archive, an entry that is no .npy file or
  // is compressed in another way than by DEFLATE.
  explicit NpzFile(const std::string& path);

  // In the archive's order.
  const std::vector<NpzEntry>& entries() const { return entries_; }
  const NpzEntry* find(const std::string& name) const;

  // The whole array. Throws a Failure. Checksums of stored entries are not checked.
  NpyArray load(const NpzEntry& entry) const;

  // Has the elements decoded and kept in memory if they are compressed or lie otherwise than a tensor's. Throws a Failure.
  void hold(const NpzEntry& entry);

  // Reads `size` bytes of an entry's elements from `offset` on; of an entry for which hold() was called. False where the file has
  // ended before, or cannot be read. From any thread.
  bool read(const NpzEntry& entry, std::uint64_t offset, void* to, std::size_t size) const;

 private:
  friend class NpzDirectory;
  bool read_at(std::uint64_t offset, void* to, std::size_t size) const;
  NpyFile file_;
  std::vector<NpzEntry> entries_;
};

// The arrays by name, without ".npy", in the archive's order. Throws what NpzFile does.
std::vector<std::pair<std::string, NpyArray>> read_npz(const std::string& path);

// Gathers arrays, and writes the archive when all are there.
class NpzWriter {
 public:
  explicit NpzWriter(std::string path) : path_(std::move(path)) {}

  void add(const std::string& name, const NpyForm& form);
  void finish();

 private:
  std::string path_;
  std::string entries_;
  zip::StoredZip zip_;
};

}  // namespace evn::cli
