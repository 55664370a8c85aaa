// Operators that only move elements, on elements of less than a byte: their reference kernels see each in a byte of its own.
#pragma once

#include "ops/op.h"

namespace evn {

// True where a tensor has several elements to a byte.
bool has_packed_elements(const ReferenceContext& c);

// Runs the operator's reference on unpacked copies.
void run_unpacked(const ReferenceContext& c);

}  // namespace evn
