// ScatterElements (and Scatter, its first name): y = x, then y[p..., indices[p..., i, q...], q...] = updates[p..., i, q...] along
// `axis`. ScatterND: y = x, then y[indices[i..., :]] = updates[i..., ...]: the last axis of the indices holds leading coordinates.
// `reduction` (from 16; min and max from 18) combines instead: y op updates, in the order of the updates.
// dtypes: any; with a reduction all numbers, those of 16 bits rounded after each update, of complex ones add and mul. Failures:
// axis outside the rank, ranks and dims that do not fit; at run: an index outside [-dim, dim). Exact.
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

template <typename T>
T combine_numbers(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::kAdd:
      if constexpr (std::is_floating_point_v<T>) return a + b;
      else return wrap_add(a, b);
    case Reduction::kMul:
      if constexpr (std::is_floating_point_v<T>) return a * b;
      else return wrap_mul(a, b);
    case Reduction::kMin: return a < b ? a : b;
    case Reduction::kMax: return a > b ? a : b;
    case Reduction::kNone: break;
  }
  return b;
}

constexpr std::uint32_t kHalf = dtype_bit(DType::kFloat16) | dtype_bit(DType::kBfloat16);

template <typename T>
std::complex<T> combine_complex(Reduction reduction, std::complex<T> a, std::complex<T> b) {
  if (reduction == Reduction::kAdd) return a + b;
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

template <typename T>
T combine(Reduction reduction, T a, T b) {
  if constexpr (!std::is_arithmetic_v<T>) return T::from(combine(reduction, a.value(), b.value()));
  else return combine_numbers(reduction, a, b);
}

// Calls each(store), where store(to, from) puts update `from` to element `to` of the output.
template <typename F>
void with_store(const ReferenceContext& c, Reduction reduction, F&& each) {
  const DType dtype = c.input(0).desc.dtype;
  const void* updates = c.input(2).data;
  if (reduction == Reduction::kNone) {
    with_width(dtype, [&](auto width) {
      each([&](std::int64_t to, std::int64_t from) { move_element<width()>(c.output().data, to, updates, from); });
    });
    return;
  }
  if (is_complex(dtype)) {
    dispatch_floats(complex_part(dtype), [&](auto zero) {
      using T = std::complex<decltype(zero)>;
      each([&](std::int64_t to, std::int64_t from) {
        T& element = c.output().as<T>()[to];
        element = combine_complex(reduction, element, static_cast<const T*>(updates)[from]);
      });
    });
    return;
  }
  const auto reduce = [&](auto zero) {
    using T = decltype(zero);
    each([&](std::int64_t to, std::int64_t from) {
      T& element = c.output().as<T>()[to];
      element = combine(reduction, element, static_cast<const T*>(updates)[from]);
    });
  };
  (dtype_bit(dtype) & kHalf) != 0 ? dispatch<Float16, Bfloat16>(dtype, reduce) : dispatch_numbers(dtype, reduce);
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

void reference_scatter_elements(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, 0), x.rank());
  Strides strides = dense_strides(x);
  const std::int64_t step = strides.step[axis];
  strides.step[axis] = 0;
  copy_all(c.input(0), c.output());
  with_store(c, reduction_of(c.node, 1), [&](auto&& store) {
    walk<1>(c.input(1).desc.shape, {strides},
            [&](std::int64_t i, const std::int64_t* at) { store(at[0] + index_at(c.input(1), i, x[axis]) * step, i); });
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
  const Strides strides = dense_strides(x);
  const std::int64_t count = indices.elements(0, indices.rank() - 1);
  const std::int64_t inner = x.elements(depth, x.rank());
  copy_all(c.input(0), c.output());
  with_store(c, reduction_of(c.node, 0), [&](auto&& store) {
    for (std::int64_t i = 0; i < count; ++i) {
      cancellation_point();
      std::int64_t to = 0;
      for (int k = 0; k < depth; ++k) to += index_at(c.input(1), i * depth + k, x[k]) * strides.step[k];
      for (std::int64_t n = 0; n < inner; ++n) {
        cancellation_point();
        store(to + n, i * inner + n);
      }
    }
  });
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
