// Decompression of DEFLATE (RFC 1951), as zip archives have it. The library has a smaller and slower one for itself.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace evn::cli {

// Bytes that `deflated` stands for: all of them if there are at most `most`, else the first `most`. Nothing if it is damaged, or if
// it ends before its last block or the first `most` bytes. Memory grows with the bytes that are found.
std::optional<std::vector<unsigned char>> inflate(std::span<const unsigned char> deflated, std::size_t most);

}  // namespace evn::cli
