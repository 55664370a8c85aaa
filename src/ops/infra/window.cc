#include "ops/infra/window.h"

#include <algorithm>

#include "base/checked.h"

namespace evn {
namespace {

// Windows beyond this are no model's, and below it no sum of the geometry overflows.
constexpr std::int64_t kMaxWindowValue = std::int64_t{1} << 31;
constexpr std::int64_t kMaxInput = std::int64_t{1} << 48;

void check_list(std::span<const std::int64_t> list, std::size_t length, std::int64_t low, const char* what) {
  if (!list.empty() && list.size() != length) {
    fail(EVN_ERROR_INVALID_MODEL, "%s has %zu values where %zu are needed", what, list.size(), length);
  }
  for (std::int64_t v : list) {
    if (v < low || v >= kMaxWindowValue) {
      fail(EVN_ERROR_INVALID_MODEL, "%s has a value of %lld", what, static_cast<long long>(v));
    }
  }
}

// Output size and pads of one axis whose input is known.
void resolve_axis(WindowAxis& a, AutoPad auto_pad, bool ceil_mode) {
  if (auto_pad == AutoPad::kSameUpper || auto_pad == AutoPad::kSameLower) {
    a.output = ceil_div(a.input, a.stride);
    const std::int64_t total = std::max<std::int64_t>((a.output - 1) * a.stride + a.extent() - a.input, 0);
    a.pad_begin = auto_pad == AutoPad::kSameUpper ? total / 2 : total - total / 2;
    a.pad_end = total - a.pad_begin;
    return;
  }
  const std::int64_t room = checked_add(a.input, a.pad_begin + a.pad_end) - a.extent();
  if (room < 0) {  // one window that reaches beyond the end, where its stride does too
    a.output = ceil_mode && room > -a.stride ? 1 : 0;
    return;
  }
  a.output = (ceil_mode ? ceil_div(room, a.stride) : room / a.stride) + 1;
  // A window that would begin in the padding at the end is left out.
  if (ceil_mode && (a.output - 1) * a.stride >= a.input + a.pad_begin) --a.output;
}

}  // namespace

AutoPad parse_auto_pad(const std::string& word) {
  if (word == "NOTSET" || word.empty()) return AutoPad::kNotSet;
  if (word == "VALID") return AutoPad::kValid;
  if (word == "SAME_UPPER") return AutoPad::kSameUpper;
  if (word == "SAME_LOWER") return AutoPad::kSameLower;
  fail(EVN_ERROR_INVALID_MODEL, "auto_pad must not be '%s'", word.c_str());
}

Shape resolve_kernel(const WindowAttributes& attributes, const Shape& weight) {
  Shape kernel;
  for (int i = 2; i < weight.rank(); ++i) kernel.push_back(weight[i]);
  const std::span<const std::int64_t> given = attributes.kernel_shape;
  if (given.empty()) return kernel;
  check_list(given, static_cast<std::size_t>(kernel.rank()), 1, "kernel_shape");
  for (int i = 0; i < kernel.rank(); ++i) {
    if (kernel[i] >= 0 && kernel[i] != given[i]) {
      fail(EVN_ERROR_INVALID_MODEL, "kernel_shape says %lld where the weight has %lld", static_cast<long long>(given[i]),
           static_cast<long long>(kernel[i]));
    }
    kernel[i] = given[i];
  }
  return kernel;
}

Window window_from_attributes(const WindowAttributes& attributes, int rank, std::span<const std::int64_t> kernel) {
  if (rank < 1) fail(EVN_ERROR_INVALID_MODEL, "the input has no spatial axis");
  if (rank > kMaxSpatial) fail(EVN_ERROR_UNSUPPORTED, "%d spatial axes; at most %d are implemented", rank, kMaxSpatial);
  const auto n = static_cast<std::size_t>(rank);
  if (kernel.size() != n) fail(EVN_ERROR_INVALID_MODEL, "kernel_shape has %zu values where %d are needed", kernel.size(), rank);
  check_list(attributes.strides, n, 1, "strides");
  check_list(attributes.dilations, n, 1, "dilations");
  check_list(attributes.pads, 2 * n, 0, "pads");
  Window w;
  w.rank = rank;
  std::int64_t taps = 1;
  for (int i = 0; i < rank; ++i) {
    WindowAxis& a = w.axis[i];
    a.kernel = kernel[i];
    if (a.kernel == 0 || a.kernel < -1 || a.kernel >= kMaxWindowValue) {
      fail(EVN_ERROR_INVALID_MODEL, "the kernel has a size of %lld", static_cast<long long>(a.kernel));
    }
    if (a.kernel > 0) taps = checked_mul(taps, a.kernel);
    if (!attributes.strides.empty()) a.stride = attributes.strides[i];
    if (!attributes.dilations.empty()) a.dilation = attributes.dilations[i];
    if (!attributes.pads.empty() && attributes.auto_pad == AutoPad::kNotSet) {
      a.pad_begin = attributes.pads[i];
      a.pad_end = attributes.pads[i + rank];
    }
  }
  return w;
}

Window forward_window(const WindowAttributes& attributes, const Shape& x, std::span<const std::int64_t> kernel) {
  Window w = window_from_attributes(attributes, x.rank() - 2, kernel);
  for (int i = 0; i < w.rank; ++i) {
    WindowAxis& a = w.axis[i];
    a.input = x[i + 2];
    if (a.input < 0 || a.kernel < 0) {
      a.output = -1;
      continue;
    }
    if (a.input > kMaxInput) fail(EVN_ERROR_LIMIT, "a spatial axis of %lld is too long", static_cast<long long>(a.input));
    resolve_axis(a, attributes.auto_pad, attributes.ceil_mode);
    if (a.output <= 0) {
      fail(EVN_ERROR_INVALID_MODEL, "the window has no place on spatial axis %d: input %lld, extent %lld", i,
           static_cast<long long>(a.input), static_cast<long long>(a.extent()));
    }
  }
  return w;
}

}  // namespace evn
