// Writing a file so that a reader, and whoever looks after a crash or on a full disk, sees the old file or the whole new one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace evn::cli {

// Writes `start` and then `size` bytes. Fails with kExitFailure and the system's reason; then the old file is as it was, and no
// temporary one is left.
void write_file(const std::string& path, std::string_view start, const void* data, std::size_t size);

}  // namespace evn::cli
