// The instruction-set clusters and their extensions, and which of them this machine has.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "backends/cpu/isa.h"
#include "tests/support/kernel_run.h"
#include "tests/support/turn.h"

namespace evn::test {

inline constexpr auto kIsas = [] {
  std::array<Isa, kIsaCount> all{};
  for (int i = 0; i < kIsaCount; ++i) all[i] = static_cast<Isa>(i);
  return all;
}();

// Whether it has inputs of bytes, by whose products alone an extension differs from its cluster.
inline bool has_bytes(const KernelSubject& s) {
  for (const TensorDesc& d : s.inputs) {
    if (d.dtype == DType::kInt8 || d.dtype == DType::kUint8) return true;
  }
  return false;
}

// Instruction sets that tests go through. A run that takes a share in turn (turn.h) has the best cluster of this machine and one of
// the others.
inline std::vector<Isa> available_isas(bool extensions = false) {
  std::vector<Isa> clusters, all;
  for (const Isa isa : kIsas) {
    if (isa_available(isa) && cluster_of(isa) == isa) clusters.push_back(isa);
  }
  const int others = static_cast<int>(clusters.size()) - 1, count = shares(others);
  for (const Isa isa : kIsas) {
    if (!isa_available(isa) || (!extensions && cluster_of(isa) != isa)) continue;
    const auto cluster = std::find(clusters.begin(), clusters.end(), cluster_of(isa)) - clusters.begin();
    if (others < 1 || cluster == others || cluster % count == share_in_turn(count)) all.push_back(isa);
  }
  return all;
}

template <>
struct Access<ChosenIsa> {
  static void set(Isa isa) { ChosenIsa::isa_.store(static_cast<int>(isa)); }
};

// Plans kernels for an instruction set, which this machine has, until it goes.
class ForcedIsa {
 public:
  explicit ForcedIsa(std::optional<Isa> isa) : before_(ChosenIsa::get()) {
    if (isa) Access<ChosenIsa>::set(*isa);
  }
  ~ForcedIsa() { Access<ChosenIsa>::set(before_); }
  ForcedIsa(const ForcedIsa&) = delete;
  ForcedIsa& operator=(const ForcedIsa&) = delete;

 private:
  const Isa before_;
};

// A test on the instruction set that is its parameter, where this machine has it and the system lets the process use it.
class OnIsa : public testing::TestWithParam<Isa> {
 protected:
  // What the loops in question run on.
  virtual Isa taken() const { return integer_isa(); }

  void SetUp() override {
    if (!isa_available(GetParam())) GTEST_SKIP() << "this machine has no " << isa_name(GetParam());
    forced_.emplace(GetParam());
    if (taken() != GetParam()) GTEST_SKIP() << "these loops do not run on it, or the system does not let this process use it";
  }

 private:
  std::optional<ForcedIsa> forced_;
};

}  // namespace evn::test
