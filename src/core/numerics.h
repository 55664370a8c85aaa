// Whether what is computed may differ from plain float32 sums with gradual underflow by more than their own roundings do.
#pragma once

#include <cstdint>

#include "evener/evener.h"

namespace evn {

enum class Numerics : std::int32_t {
  kDefault = EVN_NUMERICS_DEFAULT,  // whatever the next authority says; kFast at the end
  kFast = EVN_NUMERICS_FAST,
  kStrict = EVN_NUMERICS_STRICT,
};

// Words of the configuration.
inline constexpr char kNumericsWords[] = "fast|strict";
constexpr const char* numerics_name(Numerics n) { return n == Numerics::kStrict ? "strict" : "fast"; }

// The reason of a kernel that packs weights to more bytes than they have, in a session that is to be small.
inline constexpr char kSmallRefusesWinograd[] = "memory: small, and Winograd's packed weights are larger than the plain ones";
// The reason of a kernel that a strict node cannot have because its sums pass through larger intermediates than the products' own.
inline constexpr char kStrictRefusesWinograd[] = "numerics: strict, and Winograd's sums err by more than plain ones";

// How much memory a session may take for speed.
enum class MemoryPlan : std::int32_t {
  kDefault = EVN_MEMORY_PLAN_DEFAULT,  // whatever the next authority says; kFast at the end
  kFast = EVN_MEMORY_PLAN_FAST,
  kSmall = EVN_MEMORY_PLAN_SMALL,
};

// Words of the configuration.
inline constexpr char kMemoryPlanWords[] = "fast|small";

}  // namespace evn
