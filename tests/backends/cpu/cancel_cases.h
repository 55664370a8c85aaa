// For every kernel of the CPU device nodes that keep one thread busy for many milliseconds, and of which a tile is as large as it can be:
// one long line, one long sum, one block.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/case.h"

namespace evn::test {

struct CancelCase {
  std::string kernel;
  conformance::Case node;
  Precision precision = Precision::kFloat32;
  // Elements of the outputs get their values one after the other, and not all of them at the end.
  bool gradual = true;
  bool all_flops = true;  // of the plan are done
};

std::vector<CancelCase> cancel_cases();

// Kernels that some instruction sets do not have: there they refuse every node.
bool needs_instructions(const std::string& kernel);

}  // namespace evn::test
