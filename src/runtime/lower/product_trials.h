// `products: measured`: for each shape of a product's operands, which of two kernels is faster, measured once when a plan is made.
#pragma once

#include <cstdint>
#include <forward_list>
#include <memory>

#include "base/mutex.h"
#include "base/os/os.h"
#include "base/test_access.h"
#include "runtime/lower/compile.h"

namespace evn {

struct ProductTrial {
  std::uint64_t key;  // a hash of all that the choice is for
  std::uint64_t own_ns, rival_ns;

  bool rival_wins() const { return rival_ns < own_ns; }
};

// Those of the sessions that share a compiled graph. A result stays as long as they do, and with it the kernel, so that the bits of
// a run do not depend on when its plan was made.
class ProductTrials {
 public:
  // The result for the operands' shapes of a node with a rival; the first time, both kernels run some times in turns. The address
  // stays. Throws EVN_ERROR_OUT_OF_MEMORY where there is no room for operands, and what a cancellation point throws.
  const ProductTrial& of(Device& device, const OpDesc& desc, const CompiledNode& n);

 private:
  friend struct test::Access<ProductTrials>;
  std::uint64_t (*now_ns_)() = os::now_ns;
  Mutex mutex_;  // held while it is measured, so that no other measurement disturbs it
  std::forward_list<ProductTrial> all_;
};

}  // namespace evn
