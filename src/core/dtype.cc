#include "core/dtype.h"

namespace evn {
namespace {

struct Row {
  const char* name;
  std::size_t bits;
};

constexpr Row kRows[] = {
    {"undefined", 0},      {"float32", 32},   {"uint8", 8},
    {"int8", 8},           {"uint16", 16},    {"int16", 16},
    {"int32", 32},         {"int64", 64},     {"string", 8 * sizeof(void*)},
    {"bool", 8},           {"float16", 16},   {"float64", 64},
    {"uint32", 32},        {"uint64", 64},    {"complex64", 64},
    {"complex128", 128},   {"bfloat16", 16},  {"float8e4m3fn", 8},
    {"float8e4m3fnuz", 8}, {"float8e5m2", 8}, {"float8e5m2fnuz", 8},
    {"uint4", 4},          {"int4", 4},       {"float4e2m1", 4},
    {"float8e8m0", 8},     {"uint2", 2},      {"int2", 2},
};
static_assert(sizeof kRows / sizeof kRows[0] == kDTypeCount);

const Row& row(DType dtype) {
  const auto i = static_cast<std::uint32_t>(dtype);
  return kRows[i < sizeof kRows / sizeof kRows[0] ? i : 0];
}

}  // namespace

const char* dtype_name(DType dtype) { return row(dtype).name; }
std::size_t dtype_bits(DType dtype) { return row(dtype).bits; }
std::size_t dtype_size(DType dtype) { return row(dtype).bits / 8; }

}  // namespace evn
