#include "core/dtype.h"

namespace evn {
namespace {

struct Row {
  const char* name;
  std::size_t size;
};

constexpr Row kRows[] = {
    {"undefined", 0}, {"float32", 4}, {"uint8", 1},  {"int8", 1},    {"uint16", 2}, {"int16", 2},
    {"int32", 4},     {"int64", 8},   {"string", 0}, {"bool", 1},    {"float16", 2}, {"float64", 8},
    {"uint32", 4},    {"uint64", 8},  {"complex64", 0}, {"complex128", 0}, {"bfloat16", 2},
};

const Row& row(DType dtype) {
  const auto i = static_cast<std::uint32_t>(dtype);
  return kRows[i < sizeof kRows / sizeof kRows[0] ? i : 0];
}

}  // namespace

const char* dtype_name(DType dtype) { return row(dtype).name; }
std::size_t dtype_size(DType dtype) { return row(dtype).size; }

}  // namespace evn
