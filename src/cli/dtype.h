// Element types as the command knows them: names, sizes, single values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evener/evener.h"

namespace evn::cli {

struct DTypeRow {
  evn_dtype dtype;
  const char* name;  // "float32"
  const char* npy;   // "<f4"; "" where NumPy has none
  std::size_t size;  // bytes of an element
};

// nullptr for types without plain elements (strings, those of 8 bits and less) and unknown ones.
const DTypeRow* find_dtype(evn_dtype dtype);
const DTypeRow* find_dtype_of_npy(std::string_view npy);
const char* dtype_name(evn_dtype dtype);

// Bytes of a dense tensor; nothing when that overflows or the type has no plain elements.
std::optional<std::size_t> byte_size(evn_dtype dtype, const std::vector<std::int64_t>& dims);

// Number of elements of dims whose product does not overflow.
std::size_t element_count(const std::vector<std::int64_t>& dims);

// The element number `index` as a double; not of complex numbers.
double element_at(evn_dtype dtype, const void* data, std::size_t index);

// Writes `value`, which the type can hold, as element number `index`.
void set_element(evn_dtype dtype, void* data, std::size_t index, double value);

bool is_floating(evn_dtype dtype);
bool is_complex(evn_dtype dtype);

// "[1,3,224,224]"
std::string dims_text(const std::vector<std::int64_t>& dims);

}  // namespace evn::cli
