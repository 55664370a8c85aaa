// Nodes for every kernel of the CPU device that keep one thread busy for many milliseconds, in which one tile is as large as it can
// be: one long line, one long sum, one block.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/case.h"

namespace evn::test {

struct CancelCase {
  std::string kernel;
  conformance::Case node;
  Precision precision = Precision::kFloat32;
  // Elements of the outputs get their values one after the other. False: outputs are written or change at the end only (sums,
  // states); then the number of looks is checked, but not how evenly they come.
  bool gradual = true;
  bool all_flops = true;  // false: the plan counts more flops than are done (sequences that have ended)
  Products products = Products::kAuto;
};

inline constexpr std::int64_t kMany = 1 << 19;

std::vector<CancelCase> cancel_cases();

// Pairs of nodes: the largest that a kernel takes, and one that it refuses, as it has no cancellation point within what that wants
// of it, or as its chain of sums would round too much.
std::vector<std::pair<CancelCase, CancelCase>> largest_cases();

// Pairs of convolutions that run as a cascade.
std::vector<std::pair<CancelCase, CancelCase>> cancelled_cascades();

}  // namespace evn::test
