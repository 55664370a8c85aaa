#include "cli/dtype.h"

#include <cmath>
#include <cstring>

namespace evn::cli {
namespace {

constexpr DTypeRow kRows[] = {
    {EVN_DTYPE_FLOAT32, "float32", "<f4", 4},
    {EVN_DTYPE_FLOAT64, "float64", "<f8", 8},
    {EVN_DTYPE_FLOAT16, "float16", "<f2", 2},
    {EVN_DTYPE_BFLOAT16, "bfloat16", "", 2},
    {EVN_DTYPE_INT8, "int8", "|i1", 1},
    {EVN_DTYPE_INT16, "int16", "<i2", 2},
    {EVN_DTYPE_INT32, "int32", "<i4", 4},
    {EVN_DTYPE_INT64, "int64", "<i8", 8},
    {EVN_DTYPE_UINT8, "uint8", "|u1", 1},
    {EVN_DTYPE_UINT16, "uint16", "<u2", 2},
    {EVN_DTYPE_UINT32, "uint32", "<u4", 4},
    {EVN_DTYPE_UINT64, "uint64", "<u8", 8},
    {EVN_DTYPE_BOOL, "bool", "|b1", 1},
    {EVN_DTYPE_COMPLEX64, "complex64", "<c8", 8},
    {EVN_DTYPE_COMPLEX128, "complex128", "<c16", 16},
};

template <typename T>
double load(const void* data, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const unsigned char*>(data) + index * sizeof value, sizeof value);
  return static_cast<double>(value);
}

template <typename T>
void store(void* data, std::size_t index, double value) {
  const T narrow = static_cast<T>(value);
  std::memcpy(static_cast<unsigned char*>(data) + index * sizeof narrow, &narrow, sizeof narrow);
}

std::uint16_t load_u16(const void* data, std::size_t index) {
  std::uint16_t bits;
  std::memcpy(&bits, static_cast<const unsigned char*>(data) + index * 2, 2);
  return bits;
}

double half_value(std::uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 0x3ff;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(fraction + 1024, exponent - 25);
}

// For 0 <= value < 2; cut, not rounded.
std::uint16_t half_bits(double value) {
  if (value < 0x1p-14) return static_cast<std::uint16_t>(value * 0x1p24);
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // in [0.5, 1)
  return static_cast<std::uint16_t>((exponent + 14) << 10 | (static_cast<int>(fraction * 2048) & 0x3ff));
}

double bfloat_value(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

std::uint16_t bfloat_bits(double value) {
  const auto narrow = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &narrow, 4);
  return static_cast<std::uint16_t>(bits >> 16);
}

}  // namespace

const DTypeRow* find_dtype(evn_dtype dtype) {
  for (const DTypeRow& row : kRows) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

const DTypeRow* find_dtype_of_npy(std::string_view npy) {
  // NumPy writes '<' for single bytes nowhere, but other writers do.
  for (const DTypeRow& row : kRows) {
    const std::string_view own = row.npy;
    if (own.empty()) continue;
    if (own == npy || (row.size == 1 && npy.size() == 3 && npy[0] == '<' && npy.substr(1) == own.substr(1))) return &row;
  }
  return nullptr;
}

const char* dtype_name(evn_dtype dtype) {
  // Those that this command cannot look into.
  constexpr const char* kOthers[] = {"float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4",
                                     "int4",         "float4e2m1",     "float8e8m0", "uint2",          "int2"};
  if (const DTypeRow* const row = find_dtype(dtype)) return row->name;
  if (dtype >= EVN_DTYPE_FLOAT8E4M3FN && dtype <= EVN_DTYPE_INT2) return kOthers[dtype - EVN_DTYPE_FLOAT8E4M3FN];
  return dtype == EVN_DTYPE_STRING ? "string" : "unknown";
}

std::optional<std::size_t> byte_size(evn_dtype dtype, const std::vector<std::int64_t>& dims) {
  const DTypeRow* const row = find_dtype(dtype);
  if (row == nullptr) return std::nullopt;
  std::size_t size = row->size;
  for (const std::int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(size, static_cast<std::size_t>(dim), &size)) return std::nullopt;
  }
  return size;
}

std::size_t element_count(const std::vector<std::int64_t>& dims) {
  std::size_t count = 1;
  for (const std::int64_t dim : dims) count *= static_cast<std::size_t>(dim);
  return count;
}

double element_at(evn_dtype dtype, const void* data, std::size_t index) {
  switch (dtype) {
    case EVN_DTYPE_FLOAT32: return load<float>(data, index);
    case EVN_DTYPE_FLOAT64: return load<double>(data, index);
    case EVN_DTYPE_FLOAT16: return half_value(load_u16(data, index));
    case EVN_DTYPE_BFLOAT16: return bfloat_value(load_u16(data, index));
    case EVN_DTYPE_INT8: return load<std::int8_t>(data, index);
    case EVN_DTYPE_INT16: return load<std::int16_t>(data, index);
    case EVN_DTYPE_INT32: return load<std::int32_t>(data, index);
    case EVN_DTYPE_INT64: return load<std::int64_t>(data, index);
    case EVN_DTYPE_UINT8:
    case EVN_DTYPE_BOOL: return load<std::uint8_t>(data, index);
    case EVN_DTYPE_UINT16: return load<std::uint16_t>(data, index);
    case EVN_DTYPE_UINT32: return load<std::uint32_t>(data, index);
    case EVN_DTYPE_UINT64: return load<std::uint64_t>(data, index);
    default: return 0;
  }
}

void set_element(evn_dtype dtype, void* data, std::size_t index, double value) {
  switch (dtype) {
    case EVN_DTYPE_FLOAT32: store<float>(data, index, value); break;
    case EVN_DTYPE_FLOAT64: store<double>(data, index, value); break;
    case EVN_DTYPE_FLOAT16: store<std::uint16_t>(data, index, half_bits(value)); break;
    case EVN_DTYPE_BFLOAT16: store<std::uint16_t>(data, index, bfloat_bits(value)); break;
    case EVN_DTYPE_INT8:
    case EVN_DTYPE_UINT8:
    case EVN_DTYPE_BOOL: store<std::uint8_t>(data, index, value); break;
    case EVN_DTYPE_INT16:
    case EVN_DTYPE_UINT16: store<std::uint16_t>(data, index, value); break;
    case EVN_DTYPE_INT32:
    case EVN_DTYPE_UINT32: store<std::uint32_t>(data, index, value); break;
    case EVN_DTYPE_INT64:
    case EVN_DTYPE_UINT64: store<std::uint64_t>(data, index, value); break;
    default: break;
  }
}

bool is_floating(evn_dtype dtype) {
  return dtype == EVN_DTYPE_FLOAT32 || dtype == EVN_DTYPE_FLOAT64 || dtype == EVN_DTYPE_FLOAT16 || dtype == EVN_DTYPE_BFLOAT16;
}

bool is_complex(evn_dtype dtype) { return dtype == EVN_DTYPE_COMPLEX64 || dtype == EVN_DTYPE_COMPLEX128; }

std::string dims_text(const std::vector<std::int64_t>& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) text += (i != 0 ? "," : "") + std::to_string(dims[i]);
  return text + "]";
}

}  // namespace evn::cli
