// Where the tables are run: each device that the built-in backends and the mock backend open, the CPU once for each instruction-set
// cluster that this machine has. A backend that is added is found by itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/cpu/isa.h"
#include "device/device.h"
#include "tests/support/isas.h"

namespace evn::conformance {

struct Target {
  std::string name;  // "cpu avx2", "opencl", "mock"
  std::shared_ptr<Device> device;
  std::optional<Isa> isa;                     // the CPU's: forced while the target is in use
  Precision precision = Precision::kFloat32;  // of its kernels' operands
  Products products = Products::kAuto;        // kOpenBlas: products alone differ from those of another target

  // Extensions of a cluster differ from it in products of bytes or of a lower precision only.
  bool differs(const test::KernelSubject& s) const {
    if (products == Products::kOpenBlas) return s.node.op_type == "MatMul" || s.node.op_type == "Gemm";
    return !isa || cluster_of(*isa) == *isa || precision != Precision::kFloat32 || test::has_bytes(s);
  }
  // A case as its kernels are given it.
  test::KernelSubject subject(const test::KernelSubject& s) const {
    test::KernelSubject given = precision == Precision::kFloat32 ? s : test::rounded(s, precision);
    given.products = products;
    return given;
  }
};

struct Absent {
  std::string backend;
  std::string why;
};

std::shared_ptr<Device> open_cpu(int threads);

// Opened once; never closed, as drivers end before static objects do.
const std::vector<Target>& targets();
const std::vector<Absent>& absent_backends();

// True when EVN_REQUIRE_OPENCL=1: then an absent device is a failure.
bool devices_are_required();

// The clusters that this machine has.
std::vector<Isa> isas();

}  // namespace evn::conformance
