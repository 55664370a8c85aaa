// Tensors on the host as an archive that numpy.load reads: stored .npy files in a zip file (APPNOTE.TXT 6.3; NEP 1).
#pragma once

#include <string>
#include <vector>

#include "ops/op.h"
#include "zip/stored_zip.h"

namespace evn {

class NpzFile {
 public:
  // Adds a tensor, whose bytes stay as long as this. Elements that NumPy has no type for become raw bytes, one element each;
  // strings become UTF-32, or bytes if one of them is no UTF-8, and are as long as the longest one. Throws EVN_ERROR_LIMIT if the
  // archive would have 2 GiB or more.
  void add(const std::string& name, const ConstTensor& tensor);
  // Writes the archive in one step. Throws EVN_ERROR_IO.
  void write(const std::string& path) const;

 private:
  struct Entry {
    std::string head;  // of the zip file, and of the .npy file
    const void* data;  // elements
    std::size_t size;
    std::string changed;  // what data points to where the elements had to change
  };
  std::vector<Entry> entries_;
  zip::StoredZip zip_;
};

}  // namespace evn
