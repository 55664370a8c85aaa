// Range: start, start + delta, ... as long as that is before limit: max(ceil((limit - start) / delta), 0) elements.
// Element i is start + i * delta, computed in double or, for integers, exactly (wrapping).
// dtypes: float32, float64, int16, int32, int64; all three scalars alike. Failures: delta 0 or, where floating, anything that is no
// number; more elements than a tensor can have (LIMIT); from 27, of float16 and bfloat16 (which are computed in float32 and cast),
// a stash_type that is not float32. Exact.
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

enum : int { kStash };

template <typename F>
void dispatch_range(DType dtype, F&& f) {
  dispatch<float, double, std::int16_t, std::int32_t, std::int64_t>(dtype, f);
}

std::int64_t count_of(double start, double limit, double delta) {
  const double count = std::ceil((limit - start) / delta);
  if (std::isnan(count) || delta == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "no range has this start, limit and delta");
  if (count <= 0) return 0;
  if (count >= 4.0e18) fail(EVN_ERROR_LIMIT, "a range of too many elements");
  return static_cast<std::int64_t>(count);
}

std::int64_t count_of(std::int64_t start, std::int64_t limit, std::int64_t delta) {
  if (delta == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "a range whose delta is 0");
  if (delta > 0 ? start >= limit : start <= limit) return 0;
  const auto from = static_cast<std::uint64_t>(delta > 0 ? start : limit);
  const auto to = static_cast<std::uint64_t>(delta > 0 ? limit : start);
  const std::uint64_t step = delta > 0 ? static_cast<std::uint64_t>(delta) : 0 - static_cast<std::uint64_t>(delta);
  const std::uint64_t count = (to - from - 1) / step + 1;
  if (count > static_cast<std::uint64_t>(INT64_MAX)) fail(EVN_ERROR_LIMIT, "a range of too many elements");
  return static_cast<std::int64_t>(count);
}

// Asked with the model's own types, before half precision is widened.
DType range_dtype(const Node& node, std::span<const DType> inputs, int) {
  const std::int64_t stash = attr_int(node, kStash);
  if (is_16bit_float(inputs[0]) && stash != EVN_DTYPE_FLOAT32) {
    fail(EVN_ERROR_UNSUPPORTED, "attribute 'stash_type' is %lld; Range of %s is computed in float32 (1)",
         static_cast<long long>(stash), dtype_name(inputs[0]));
  }
  return inputs[0];
}

void infer_range(InferContext& c) {
  require_same_dtype(c, 0, 2);
  bool known = true;
  for (int i = 0; i < 3; ++i) {
    require_scalar(c, i);
    known &= known_input(c, i).data != nullptr;
  }
  std::int64_t count = -1;
  if (known) {
    dispatch_range(c.inputs[0].dtype, [&](auto zero) {
      using T = decltype(zero);
      using Wide = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;
      const auto value = [&](int i) { return static_cast<Wide>(*known_input(c, i).as<T>()); };
      count = count_of(value(0), value(1), value(2));
    });
  }
  c.outputs[0].shape = {count};
}

template <typename T>
void fill_range(T* y, std::int64_t count, T start, T delta) {
  constexpr std::int64_t kAtATime = 16;
  T steps[kAtATime];
  for (std::int64_t n = 0; n < kAtATime; ++n) steps[n] = wrap_mul(static_cast<T>(n), delta);
  in_pieces(count, 1, [&](std::int64_t i, std::int64_t end) {
    for (; end - i >= kAtATime; i += kAtATime) {
      const T base = wrap_add(start, wrap_mul(static_cast<T>(i), delta));
      for (std::int64_t n = 0; n < kAtATime; ++n) y[i + n] = wrap_add(base, steps[n]);
    }
    for (; i < end; ++i) y[i] = wrap_add(start, wrap_mul(static_cast<T>(i), delta));
  });
}

void reference_range(const ReferenceContext& c) {
  const std::int64_t count = c.output().desc.shape.elements();
  dispatch_range(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;
    const auto start = static_cast<Wide>(*c.input(0).as<T>());
    const auto delta = static_cast<Wide>(*c.input(2).as<T>());
    T* const y = c.output().as<T>();
    if constexpr (std::is_floating_point_v<T>) {
      each_element(count, [=](std::int64_t i) { y[i] = static_cast<T>(start + static_cast<Wide>(i) * delta); });
    } else {
      fill_range(y, count, static_cast<T>(start), static_cast<T>(delta));
    }
  });
}

constexpr std::uint32_t kDtypes = kFloats | dtype_bit(DType::kInt16) | dtype_bit(DType::kInt32) | dtype_bit(DType::kInt64);
constexpr AttributeSpec kAttributes27[] = {int_attribute("stash_type", 1)};
constexpr OpDef kOps[] = {
    {.name = "Range",
     .since = 11,
     .min_inputs = 3,
     .max_inputs = 3,
     .dtypes = kDtypes,
     .value_inputs = 7,
     .infer = infer_range,
     .reference = reference_range},
    {.name = "Range",
     .since = 27,
     .min_inputs = 3,
     .max_inputs = 3,
     .attributes = kAttributes27,
     .dtypes = kDtypes,
     .value_inputs = 7,
     .output_dtype = range_dtype,
     .infer = infer_range,
     .reference = reference_range},
};

}  // namespace

extern const OpFamily range_family;
const OpFamily range_family = {kOps};

}  // namespace evn
