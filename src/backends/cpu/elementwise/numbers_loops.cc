#include "backends/cpu/elementwise/numbers_loops.h"

#include <limits>
#include <type_traits>

namespace evn::EVN_ISA {
namespace {

using simd_numbers::Comparisons;

struct Bool {
  std::uint8_t byte;
};

template <typename To, typename From>
inline To converted(From x) {
  if constexpr (std::is_same_v<From, Bool>) {
    return static_cast<To>(x.byte != 0 ? 1 : 0);
  } else if constexpr (std::is_same_v<To, Bool>) {
    return Bool{static_cast<std::uint8_t>(x != 0 ? 1 : 0)};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr auto kEnd = static_cast<From>(std::numeric_limits<To>::max());  // of 32 and 64 bits rounded up, to what is outside
    constexpr auto kBegin = static_cast<From>(std::numeric_limits<To>::min());
    if (x != x) return 0;
    return x >= kEnd ? std::numeric_limits<To>::max() : x <= kBegin ? std::numeric_limits<To>::min() : static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <typename From, typename To>
void convert(const void* x, void* y, std::int64_t n) {
  const From* const from = static_cast<const From*>(x);
  To* const to = static_cast<To*>(y);
  for (std::int64_t i = 0; i < n; ++i) to[i] = converted<To>(from[i]);
}

struct Equal {
  template <typename T>
  static bool of(T a, T b) {
    return a == b;
  }
};
struct Less {
  template <typename T>
  static bool of(T a, T b) {
    return a < b;
  }
};
struct LessOrEqual {
  template <typename T>
  static bool of(T a, T b) {
    return a <= b;
  }
};
struct And {
  static bool of(std::uint8_t a, std::uint8_t b) { return (a != 0) & (b != 0); }
};
struct Or {
  static bool of(std::uint8_t a, std::uint8_t b) { return (a | b) != 0; }
};
struct Xor {
  static bool of(std::uint8_t a, std::uint8_t b) { return (a != 0) != (b != 0); }
};

template <typename Op, typename T>
void pairs(const void* x, const void* z, std::uint8_t* y, std::int64_t n) {
  const T *const a = static_cast<const T*>(x), *const b = static_cast<const T*>(z);
  for (std::int64_t i = 0; i < n; ++i) y[i] = Op::of(a[i], b[i]);
}

void is_nan(const void* x, void* y, std::int64_t n) {
  const auto* const from = static_cast<const std::uint32_t*>(x);
  auto* const to = static_cast<std::uint8_t*>(y);
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<std::int32_t>(from[i] & 0x7fffffffu) > 0x7f800000;
}

void is_inf(const simd_numbers::Infinities& wanted, const void* x, void* y, std::int64_t n) {
  const simd_numbers::Infinities w = wanted;  // which a byte of y might be part of
  const auto* const from = static_cast<const std::uint32_t*>(x);
  auto* const to = static_cast<std::uint8_t*>(y);
  for (std::int64_t i = 0; i < n; ++i) to[i] = ((from[i] & w.mask) | w.none) == w.wanted;
}

void logic_not(const void* x, void* y, std::int64_t n) {
  const auto* const from = static_cast<const std::uint8_t*>(x);
  auto* const to = static_cast<std::uint8_t*>(y);
  for (std::int64_t i = 0; i < n; ++i) to[i] = from[i] == 0;
}

template <typename Op>
constexpr Comparisons kCompare = {pairs<Op, float>, pairs<Op, std::int32_t>, pairs<Op, std::int64_t>};

}  // namespace

extern const simd_numbers::Loops loops_numbers;
const simd_numbers::Loops loops_numbers = {.conversions = {{DType::kUint8, DType::kFloat32, convert<std::uint8_t, float>},
                                                           {DType::kInt8, DType::kFloat32, convert<std::int8_t, float>},
                                                           {DType::kBool, DType::kFloat32, convert<Bool, float>},
                                                           {DType::kInt32, DType::kFloat32, convert<std::int32_t, float>},
                                                           {DType::kInt64, DType::kFloat32, convert<std::int64_t, float>},
                                                           {DType::kFloat32, DType::kUint8, convert<float, std::uint8_t>},
                                                           {DType::kFloat32, DType::kBool, convert<float, Bool>},
                                                           {DType::kFloat32, DType::kInt32, convert<float, std::int32_t>},
                                                           {DType::kFloat32, DType::kInt64, convert<float, std::int64_t>},
                                                           {DType::kInt32, DType::kInt64, convert<std::int32_t, std::int64_t>},
                                                           {DType::kInt64, DType::kInt32, convert<std::int64_t, std::int32_t>},
                                                           {DType::kBool, DType::kInt64, convert<Bool, std::int64_t>},
                                                           {DType::kBool, DType::kInt32, convert<Bool, std::int32_t>},
                                                           {DType::kInt64, DType::kBool, convert<std::int64_t, Bool>},
                                                           {DType::kInt32, DType::kBool, convert<std::int32_t, Bool>}},
                                           .equal = kCompare<Equal>,
                                           .less = kCompare<Less>,
                                           .less_or_equal = kCompare<LessOrEqual>,
                                           .logic_and = pairs<And, std::uint8_t>,
                                           .logic_or = pairs<Or, std::uint8_t>,
                                           .logic_xor = pairs<Xor, std::uint8_t>,
                                           .logic_not = logic_not,
                                           .is_nan = is_nan,
                                           .is_inf = is_inf};

}  // namespace evn::EVN_ISA
