// An operator of the domain of our own (ops/merge.h): what any function of one quantized element becomes.
#pragma once

#include <cstdint>

namespace evn {

inline constexpr const char kByteTable[] = "ByteTable";
inline constexpr std::int64_t kByteTableSize = 256;

}  // namespace evn
