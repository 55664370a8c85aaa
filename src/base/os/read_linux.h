// Reading from a file that is open and has been checked.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/os/os.h"

namespace evn::os {

// Reads `size` bytes at `offset`, with a cancellation point before each piece. A file that ends before them is EVN_ERROR_IO. `name`
// is for messages.
void read_bytes(int fd, std::uint64_t offset, void* to, std::size_t size, const std::string& name);

// Reads `length` bytes at `offset`; both lie inside the file as `before` (its fstat) tells it. A file that changes meanwhile is
// EVN_ERROR_IO. `name` is for messages.
FileBytes read_open_file(int fd, const struct stat& before, std::uint64_t offset, std::uint64_t length, const std::string& name,
                         const LedgerPtr& ledger, MemoryClass cls);

}  // namespace evn::os
