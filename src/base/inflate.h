// Decompression of DEFLATE (RFC 1951), for what is compressed into the library itself: small, not fast.
#pragma once

#include <span>
#include <string>

namespace evn {

// The `size` bytes that `deflated` stands for. Throws EVN_ERROR_INTERNAL where it stands for anything else.
std::string inflate(std::span<const unsigned char> deflated, std::size_t size);

}  // namespace evn
