// Other cases out of the tables' rows: the same operator and dtypes with other dims, attributes and values.
#pragma once

#include "tests/conformance/case.h"

namespace evn::conformance {

// Dims that are alike in the case stay alike, those of 1 stay 1, and lists of dims among the operands follow. Many a result is no
// legal node: then the shape rule throws.
Case redraw(const Case& base, test::Random& random);

}  // namespace evn::conformance
