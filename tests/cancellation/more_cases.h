// Cases of operators for which the conformance tables have no rows, as they make strings, or none that grows.
#pragma once

#include <vector>

#include "tests/conformance/case.h"

namespace evn::test {

std::vector<conformance::Case> more_cases();

}  // namespace evn::test
