// ScatterElements (and Scatter, its first name): y = x, then y[p..., indices[p..., i, q...], q...] = updates[p..., i, q...] along
// `axis`. ScatterND: y = x, then y[indices[i..., :]] = updates[i..., ...]: the last axis of the indices holds leading coordinates.
// `reduction` (from 16; min and max from 18) combines instead: y op updates, in the order of the updates.
// dtypes: any; with a reduction all numbers, those of 16 bits rounded after each update, of complex ones add and mul. Failures:
// axis outside the rank, ranks and dims that do not fit; at run: an index outside [-dim, dim). Exact.
#include <algorithm>
#include <complex>

#include "ops/infra/check.h"
#include "ops/infra/index.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

enum class Reduction { kNone, kAdd, kMul, kMin, kMax };

Reduction reduction_of(const Node& node, int attribute) {
  if (!attr_given(node, attribute)) return Reduction::kNone;
  const std::string& word = attr_string(node, attribute);
  if (word == "none") return Reduction::kNone;
  if (word == "add") return Reduction::kAdd;
  if (word == "mul") return Reduction::kMul;
  if (word == "min" && node.op->since >= 18) return Reduction::kMin;
  if (word == "max" && node.op->since >= 18) return Reduction::kMax;
  fail(EVN_ERROR_INVALID_MODEL, "reduction must not be '%s'", word.c_str());
}

constexpr std::uint32_t kHalf = dtype_bit(DType::kFloat16) | dtype_bit(DType::kBfloat16);

template <typename T>
T sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) return wrap_add(a, b);
  else return a + b;
}
template <typename T>
T product(T a, T b) {
  if constexpr (std::is_integral_v<T>) return wrap_mul(a, b);
  else return a * b;
}
template <typename T>
std::complex<T> product(std::complex<T> a, std::complex<T> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

// y[i] = f(y[i], updates[i]).
template <typename T, typename F>
void update(T* y, const T* updates, std::int64_t count, F&& f) {
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (kIsHalf<T>) y[i] = T::from(f(y[i].value(), updates[i].value()));
    else y[i] = f(y[i], updates[i]);
  }
}

template <typename T>
void combine(Reduction reduction, void* to, const void* from, std::int64_t count) {
  T* const y = static_cast<T*>(to);
  const T* const updates = static_cast<const T*>(from);
  if (reduction == Reduction::kAdd) return update(y, updates, count, [](auto a, auto b) { return sum(a, b); });
  if (reduction == Reduction::kMul) return update(y, updates, count, [](auto a, auto b) { return product(a, b); });
  if constexpr (std::is_arithmetic_v<T> || kIsHalf<T>) {
    if (reduction == Reduction::kMin) return update(y, updates, count, [](auto a, auto b) { return a < b ? a : b; });
    update(y, updates, count, [](auto a, auto b) { return a > b ? a : b; });
  }
}

// Puts `count` updates that follow each other, and where they belong, into the output.
using Combine = void (*)(Reduction reduction, void* to, const void* from, std::int64_t count);

Combine combine_of(DType dtype) {
  Combine result = nullptr;
  const auto choose = [&](auto zero) { result = combine<decltype(zero)>; };
  if (is_complex(dtype)) {
    dispatch_floats(complex_part(dtype), [&](auto zero) { choose(std::complex<decltype(zero)>{}); });
  } else {
    (dtype_bit(dtype) & kHalf) != 0 ? dispatch<Float16, Bfloat16>(dtype, choose) : dispatch_numbers(dtype, choose);
  }
  return result;
}

void check_dtypes(const InferContext& c, std::uint32_t indices, Reduction reduction) {
  require_dtype(c, 1, indices);
  if (c.inputs[2].dtype != c.inputs[0].dtype) fail(EVN_ERROR_INVALID_MODEL, "the updates have another element type than x");
  const bool is_ordered = reduction == Reduction::kMin || reduction == Reduction::kMax;
  const std::uint32_t combined = kNumbers | kHalf | (is_ordered ? 0 : kComplex);
  if (reduction != Reduction::kNone && (dtype_bit(c.inputs[0].dtype) & combined) == 0) {
    fail(EVN_ERROR_UNSUPPORTED, "a reduction of %s is not supported", dtype_name(c.inputs[0].dtype));
  }
}

// --------------------------------------------------------------------------------------------- ScatterElements --

void infer_scatter_elements(InferContext& c) {
  check_dtypes(c, kIndexDtypes, reduction_of(c.node, 1));
  const Shape& x = c.shape(0);
  const int axis = normalize_axis(attr_int(c.node, 0), x.rank());
  require_rank(c, 1, x.rank(), x.rank());
  require_rank(c, 2, x.rank(), x.rank());
  for (int i = 0; i < x.rank(); ++i) {
    require_dim(c.shape(2)[i], c.shape(1)[i], 2);
    if (i != axis && x[i] >= 0 && c.shape(1)[i] > x[i]) {
      fail(EVN_ERROR_INVALID_MODEL, "the indices are larger than x on axis %d", i);
    }
  }
  c.outputs[0].shape = x;
}

template <std::size_t W>
void spread(void* to, const std::int64_t* at, const void* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) move_element<W>(to, at[i], from, i);
}

void reference_scatter_elements(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, 0), x.rank());
  const DType dtype = c.input(0).desc.dtype;
  const auto size = static_cast<std::int64_t>(dtype_size(dtype));
  const Reduction reduction = reduction_of(c.node, 1);
  const Combine put = reduction == Reduction::kNone ? nullptr : combine_of(dtype);
  Strides strides = dense_strides(x);
  strides.step[axis] = 0;
  copy_all(c.input(0), c.output());
  if (c.input(1).desc.shape.elements() == 0) return;
  const WalkAxes<1> axes(c.input(1).desc.shape, {strides});
  const IndexedAxis indexed{x[axis], x.elements(axis + 1, x.rank()), axes.steps[0][0]};
  walk_lines(axes, [&](std::int64_t position, const std::int64_t* base) {
    std::int64_t at[kIndicesAtATime];
    for (std::int64_t i = 0; i < axes.dims[0]; i += kIndicesAtATime) {
      const std::int64_t count = std::min(kIndicesAtATime, axes.dims[0] - i);
      cancellation_point(count);
      read_indices(c.input(1), position + i, count, indexed, base[0] + i * indexed.lane, at);
      const char* from = c.input(2).as<char>() + (position + i) * size;
      if (put != nullptr) {
        for (std::int64_t n = 0; n < count; ++n) put(reduction, c.output().as<char>() + at[n] * size, from + n * size, 1);
        continue;
      }
      with_width(dtype, [&](auto width) { spread<width()>(c.output().data, at, from, count); });
    }
  });
}

// --------------------------------------------------------------------------------------------------- ScatterND --

void infer_scatter_nd(InferContext& c) {
  check_dtypes(c, dtype_bit(DType::kInt64), reduction_of(c.node, 0));
  require_rank(c, 0, 1);
  require_rank(c, 1, 1);
  const Shape& x = c.shape(0);
  const Shape& indices = c.shape(1);
  const Shape& updates = c.shape(2);
  const int outer = indices.rank() - 1;
  const std::int64_t depth = indices[outer];
  c.outputs[0].shape = x;
  if (depth < 0) return;
  if (depth > x.rank()) fail(EVN_ERROR_INVALID_MODEL, "the indices have more coordinates than x has axes");
  const int inner = x.rank() - static_cast<int>(depth);
  require_rank(c, 2, outer + inner, outer + inner);
  for (int i = 0; i < outer; ++i) require_dim(updates[i], indices[i], 2);
  for (int i = 0; i < inner; ++i) require_dim(updates[outer + i], x[static_cast<int>(depth) + i], 2);
}

void reference_scatter_nd(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const Shape& indices = c.input(1).desc.shape;
  const int depth = static_cast<int>(indices[indices.rank() - 1]);
  const DType dtype = c.input(0).desc.dtype;
  const auto size = static_cast<std::int64_t>(dtype_size(dtype));
  const Reduction reduction = reduction_of(c.node, 0);
  const Combine put = reduction == Reduction::kNone ? nullptr : combine_of(dtype);
  const std::int64_t count = indices.elements(0, indices.rank() - 1);
  const std::int64_t inner = x.elements(depth, x.rank());
  copy_all(c.input(0), c.output());
  const std::int64_t* const rows = c.input(1).as<std::int64_t>();
  std::int64_t at[kIndicesAtATime];
  for (std::int64_t first = 0; first < count; first += kIndicesAtATime) {
    const std::int64_t some = std::min(kIndicesAtATime, count - first);
    cancellation_point(some * (depth + 1));
    read_coordinates(rows + first * depth, some, x, depth, at);
    const char* from = c.input(2).as<char>() + first * inner * size;
    if (put == nullptr && inner == 1) {
      with_width(dtype, [&](auto width) { spread<width()>(c.output().data, at, from, some); });
      continue;
    }
    for (std::int64_t i = 0; i < some; ++i, from += inner * size) {
      cancellation_point();
      char* const to = c.output().as<char>() + at[i] * size;
      if (put == nullptr) {
        copy_block(to, from, inner * size);
      } else {
        in_pieces(inner, 1, [&](std::int64_t begin, std::int64_t end) {
          put(reduction, to + begin * size, from + begin * size, end - begin);
        });
      }
    }
  }
}

constexpr AttributeSpec kElements[] = {int_attribute("axis", 0), string_attribute("reduction", "none")};
constexpr AttributeSpec kNd[] = {string_attribute("reduction", "none")};

constexpr OpDef elements_row(const char* name, int since, std::size_t attributes) {
  return {.name = name,
          .since = since,
          .min_inputs = 3,
          .max_inputs = 3,
          .attributes = std::span<const AttributeSpec>(kElements).first(attributes),
          .dtypes = kMoved,
          .flags = kOpMoves,
          .infer = infer_scatter_elements,
          .reference = reference_scatter_elements};
}
constexpr OpDef nd_row(int since, std::size_t attributes) {
  return {.name = "ScatterND",
          .since = since,
          .min_inputs = 3,
          .max_inputs = 3,
          .attributes = std::span<const AttributeSpec>(kNd).first(attributes),
          .dtypes = kMoved,
          .flags = kOpMoves,
          .infer = infer_scatter_nd,
          .reference = reference_scatter_nd};
}

constexpr OpDef kOps[] = {
    elements_row("Scatter", 9, 1),
    elements_row("ScatterElements", 11, 1),
    elements_row("ScatterElements", 16, 2),
    elements_row("ScatterElements", 18, 2),
    nd_row(11, 0),
    nd_row(16, 1),
    nd_row(18, 1),
};

}  // namespace

extern const OpFamily scatter_family;
const OpFamily scatter_family = {kOps};

}  // namespace evn
