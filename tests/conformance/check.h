// What the tests of this folder share: which kernels may be given a node, one kernel against the reference, fused steps by hand.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/case.h"
#include "tests/conformance/targets.h"

namespace evn::conformance {

// True when no kernel but the reference is given the node: an input or all outputs have no elements.
bool needs_no_kernel(const test::KernelSubject& s);

// "cpu avx2, kernel conv_gemm".
std::string label(const Target& target, const Kernel& kernel);

// Fails the test where the kernel throws, differs from `expected`, or differs when it writes over an input.
void check_kernel(const Target& target, const Kernel& kernel, const test::KernelSubject& s,
                  const std::vector<test::Bytes>& expected);

// The bytes of a float32 output after the steps.
test::Bytes fused(const Epilogue& epilogue, const test::Bytes& plain);

}  // namespace evn::conformance
