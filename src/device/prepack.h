// Packing a constant by parts, with several threads. CPU only.
#pragma once

#include <cstdint>

#include "core/graph.h"

namespace evn {

struct OpDesc;

// How a packed copy is made of some rows of its constant at a time: rows are counted by the indices of its first axes, and lie
// together in memory.
struct PrepackParts {
  // Returns the number of rows of which each part's beginning is a multiple; 0: this constant is packed as a whole.
  std::int64_t (*step)(const OpDesc& desc, int input) = nullptr;
  // Writes what rows [begin, end), which lie at `rows`, are in the packed copy. Parts write no common bytes, and together all.
  void (*run)(const OpDesc& desc, int input, const void* rows, std::int64_t begin, std::int64_t end, void* packed) = nullptr;
  int axes = 1;  // whose indices together count rows

  std::int64_t rows(const Weight& weight) const { return weight.desc.shape.elements(0, axes); }
};

}  // namespace evn
