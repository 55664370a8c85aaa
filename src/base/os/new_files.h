// Files that take the places of old ones together.
#pragma once

#include <vector>

#include "base/os/os.h"

namespace evn::os {

struct NewFile {
  std::string path;
  std::vector<Piece> pieces;
};

// Several files of one folder: all are on the disk before the first takes the place of an old one, in their order. Throws
// EVN_ERROR_IO, also where what is there is no regular file; leaves no temporary file.
void write_files_atomically(std::span<const NewFile> files);

}  // namespace evn::os
