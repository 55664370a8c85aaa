// Random numbers by position: number i of a stream is a function of the stream's key and i, so that results do not depend on who
// asks for which first (philox.h).
#pragma once

#include <cstdint>

#include "ops/op.h"

namespace evn {

class RandomStream {
 public:
  // The stream of a node in this run: from its `seed`, or its name where it has none, and the run's seed.
  explicit RandomStream(const ReferenceContext& c);

  // What the numbers are made of besides their positions, for kernels that make them too.
  std::uint64_t key() const { return key_; }
  std::uint64_t run() const { return run_; }

  // In [0, 1), a multiple of 2^-53 .
  double uniform(std::uint64_t i) const;
  // A draw of the standard normal distribution (Box and Muller's transform).
  double normal(std::uint64_t i) const;

 private:
  std::uint64_t key_;
  std::uint64_t run_;
};

}  // namespace evn
