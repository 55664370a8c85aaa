// Convolutions that follow each other as a cascade (device/cascade.h): first layers, depthwise ones and 1 x 1, channels last.
#pragma once

#include <atomic>

#include "base/test_access.h"
#include "device/cascade.h"

namespace evn {

extern const Cascades cpu_cascades;

// Which nodes run as cascades.
enum class CascadeUse { kWhereItPays, kNever, kAlways };

class CascadeChoice {
 public:
  static CascadeUse get() { return use_.load(std::memory_order_relaxed); }

 private:
  friend struct test::Access<CascadeChoice>;
  static std::atomic<CascadeUse> use_;
};

}  // namespace evn
