// A model file in memory, without the bytes of its large tensors, which stay in the file until somebody wants them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ledger.h"
#include "base/os/os.h"

namespace evn {

// A range of the file that is not in memory.
struct Gap {
  std::uint64_t offset;
  std::uint64_t size;
};

struct FileImage {
  std::shared_ptr<const os::File> file;
  std::shared_ptr<const void> bytes;         // file->size() of them; zeros in the gaps
  std::vector<Gap> gaps;                     // by offset
  std::shared_ptr<const void> mapping = {};  // of the whole file; null: gaps are read
};

// Reads all but the gaps: the raw_data fields of at least kLeastGap bytes of the tensors of nodes and initializers, as far as the
// file is well-formed up to there. Throws EVN_ERROR_IO, EVN_ERROR_OUT_OF_MEMORY, EVN_ERROR_TIMEOUT.
inline constexpr std::uint64_t kLeastGap = 16 << 10;
FileImage read_image(std::shared_ptr<const os::File> file, const LedgerPtr& ledger, std::uint64_t deadline_ns);

}  // namespace evn
