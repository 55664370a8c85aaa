// ArgMax and ArgMin: the position of the largest or smallest element along `axis`, int64; of equal ones the first, or, with
// select_last_index (from 12), the last. keepdims leaves an axis of 1. NaN counts as the extreme, and all NaN as equal.
// dtypes: all numbers. Failures: axis outside the rank; at run: an axis without elements. Exact.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "ops/infra/check.h"
#include "ops/infra/first_largest.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

enum : int { kAxis, kKeepDims, kSelectLast };

DType int64_output(const Node&, std::span<const DType>, int) { return DType::kInt64; }

void infer_arg(InferContext& c) {
  const Shape& x = c.shape(0);
  const int axis = normalize_axis(attr_int(c.node, kAxis), x.rank());
  Shape out;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis) {
      out.push_back(x[i]);
    } else if (attr_int(c.node, kKeepDims) != 0) {
      out.push_back(1);
    }
  }
  c.outputs[0].shape = out;
}

// x as [outer, length, inner]; an output for each [o, n].
struct Lines {
  std::int64_t count, length, inner;
};

Lines lines_of(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, kAxis), x.rank());
  return {c.output().desc.shape.elements(), x[axis], x.elements(axis + 1, x.rank())};
}

std::int64_t parts_of_arg(const ReferenceContext& c) { return lines_of(c).count; }

constexpr std::int64_t kMostColumns = 256;

// A counter as wide as the elements, so that it can be chosen by the same comparison.
template <typename T>
using Counter = std::conditional_t<
    sizeof(T) == 1, std::int8_t,
    std::conditional_t<sizeof(T) == 2, std::int16_t, std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>>>;

// Finds, for each of `width` columns whose elements lie `step` apart, the row of the first extreme element, or of the last one.
template <bool kLargest, typename T>
[[gnu::noinline]] void find_columns(const T* x, std::int64_t rows, std::int64_t step, std::int64_t width, bool last,
                                    std::int64_t* y) {
  constexpr std::int64_t kBlock = sizeof(T) == 1 ? 32 : 16;
  constexpr std::int64_t kMostRows = std::min<std::int64_t>(std::numeric_limits<Counter<T>>::max(), 1 << 15);
  T best[kMostColumns];
  Counter<T> found[kMostColumns];  // of some rows, the last that was beyond those before it
  const std::int64_t start = last ? rows - 1 : 0;
  std::copy_n(x + start * step, width, best);
  std::fill_n(y, width, start);
  const auto look_at_rows = [&](std::int64_t begin, std::int64_t end) {
    std::fill_n(found, width, Counter<T>{-1});
    for (std::int64_t i = begin; i < end; ++i) {
      const T* from = x + (last ? rows - 1 - i : i) * step;
      const auto look_at = [&, number = static_cast<Counter<T>>(i - begin)](std::int64_t j) {
        const bool beyond = is_beyond<kLargest>(from[j], best[j]);
        best[j] = beyond ? from[j] : best[j];
        found[j] = beyond ? number : found[j];
      };
      std::int64_t j = 0;
      for (; width - j >= kBlock; j += kBlock) {
        for (std::int64_t n = 0; n < kBlock; ++n) look_at(j + n);
      }
      for (; j < width; ++j) look_at(j);
    }
    for (std::int64_t j = 0; j < width; ++j) {
      if (found[j] >= 0) y[j] = last ? rows - 1 - begin - found[j] : begin + found[j];
    }
  };
  in_pieces(rows, width, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += kMostRows) look_at_rows(begin, std::min(end, begin + kMostRows));
  });
}

template <bool kLargest>
void find(const ReferenceContext& c) {
  const Lines lines = lines_of(c);
  if (lines.count > 0 && lines.length == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "the axis has no elements");
  const bool last = attr_given(c.node, kSelectLast) && attr_int(c.node, kSelectLast) != 0;
  const std::int64_t end = std::min(c.end, lines.count);
  dispatch_numbers(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = c.begin; i < end;) {
      const std::int64_t column = i % lines.inner;
      const T* from = c.input(0).as<T>() + (i - column) * lines.length + column;
      const std::int64_t width = std::min<std::int64_t>({lines.inner - column, end - i, kMostColumns});
      std::int64_t* y = c.output().as<std::int64_t>() + i;
      if (lines.inner == 1) {
        *y = first_extreme<T, kLargest>(from, lines.length, last);
      } else {
        find_columns<kLargest>(from, lines.length, lines.inner, width, last, y);
      }
      i += width;
    }
  });
}

constexpr AttributeSpec kAttributes1[] = {int_attribute("axis", 0), int_attribute("keepdims", 1)};
constexpr AttributeSpec kAttributes12[] = {int_attribute("axis", 0), int_attribute("keepdims", 1),
                                           int_attribute("select_last_index", 0)};

constexpr OpDef kOps[] = {
    {.name = "ArgMax",
     .since = 1,
     .attributes = kAttributes1,
     .dtypes = kNumbers,
     .output_dtype = int64_output,
     .infer = infer_arg,
     .reference = find<true>,
     .parts = parts_of_arg},
    {.name = "ArgMax",
     .since = 12,
     .attributes = kAttributes12,
     .dtypes = kNumbers,
     .output_dtype = int64_output,
     .infer = infer_arg,
     .reference = find<true>,
     .parts = parts_of_arg},
    {.name = "ArgMin",
     .since = 1,
     .attributes = kAttributes1,
     .dtypes = kNumbers,
     .output_dtype = int64_output,
     .infer = infer_arg,
     .reference = find<false>,
     .parts = parts_of_arg},
    {.name = "ArgMin",
     .since = 12,
     .attributes = kAttributes12,
     .dtypes = kNumbers,
     .output_dtype = int64_output,
     .infer = infer_arg,
     .reference = find<false>,
     .parts = parts_of_arg},
};

}  // namespace

extern const OpFamily arg_reduce_family;
const OpFamily arg_reduce_family = {kOps};

}  // namespace evn
