// TopK: the k largest elements along `axis` (from 11 with largest = 0 the smallest) and where they are, in order. Of equal elements
// the one before comes first; NaN counts as larger than any number. `sorted` = 0 allows any order; this one is kept.
// k is an attribute before 10, later input 1.
// dtypes: all numbers; output 1 int64. Failures: axis outside the rank; k below 0 or above the axis. Exact.
#include <algorithm>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/ordered_lines.h"
#include "ops/infra/selection.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

enum : int { kAxis, kLargest, kSorted };
constexpr int kAttributeK = 1;  // before 10

DType top_k_dtype(const Node&, std::span<const DType> inputs, int output) { return output == 0 ? inputs[0] : DType::kInt64; }

void infer_top_k(InferContext& c) {
  const Shape& x = c.shape(0);
  const int axis = normalize_axis(attr_int(c.node, kAxis), x.rank());
  std::int64_t k = -1;
  if (c.node.op->since < 10) {
    k = attr_int(c.node, kAttributeK);
    if (k < 0) fail(EVN_ERROR_INVALID_MODEL, "k is negative");
  } else {
    require_dtype(c, 1, dtype_bit(DType::kInt64));
    require_scalar(c, 1);
    if (const ConstTensor value = known_input(c, 1); value.data != nullptr) {
      k = *value.as<std::int64_t>();
      if (k < 0) fail(EVN_ERROR_INVALID_ARGUMENT, "k is negative");
    }
  }
  if (x[axis] >= 0 && k > x[axis]) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "k is %lld, but the axis has %lld elements", static_cast<long long>(k),
         static_cast<long long>(x[axis]));
  }
  for (TensorDesc& output : c.outputs) {
    output.shape = x;
    output.shape[axis] = k;
  }
}

// The elements of one line, `inner` apart in the tensor.
struct Lines {
  std::int64_t count, length, inner, k;
};

Lines lines_of(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, kAxis), x.rank());
  const std::int64_t k = c.output(c.outputs[0].present() ? 0 : 1).desc.shape[axis];
  const std::int64_t inner = x.elements(axis + 1, x.rank());
  return {k > 0 && x.elements() > 0 ? x.elements(0, axis) * inner : 0, x[axis], inner, k};
}

constexpr std::int64_t kCacheLine = 64;
constexpr std::int64_t kColumnBytes = 1 << 16;  // of the columns that are read together, if they are more than one

std::int64_t parts_of_top_k(const ReferenceContext& c) { return lines_of(c).count; }

// Writes the outputs' lines from element `to` on, of the input's line from element `from` on.
void write(const ReferenceContext& c, const Lines& lines, std::int64_t from, std::int64_t to, const Keyed* found) {
  if (c.output().present()) {
    with_width(c.input(0).desc.dtype, [&](auto width) {
      each_element(lines.k, [&](std::int64_t n) {
        move_element<width()>(c.output().data, to + n * lines.inner, c.input(0).data, from + found[n].at * lines.inner);
      });
    });
  }
  if (c.outputs.size() > 1 && c.output(1).present()) {
    each_element(lines.k, [&, y = c.output(1).as<std::int64_t>() + to](std::int64_t n) { y[n * lines.inner] = found[n].at; });
  }
}

void reference_top_k(const ReferenceContext& c) {
  const Lines lines = lines_of(c);
  const std::int64_t last = std::min(c.end, lines.count);
  if (c.begin >= last) return;
  const bool largest = c.node.op->since < 11 || attr_int(c.node, kLargest) != 0;
  dispatch_numbers(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    const OrderedLines<T> ordered{largest};
    Selection<T> selection(lines.length, lines.k, !largest);
    LineRoom room;
    // Neighbouring columns share cache lines.
    const std::int64_t most = std::clamp<std::int64_t>(kColumnBytes / static_cast<std::int64_t>(sizeof(T)) / lines.length, 1,
                                                       kCacheLine / static_cast<std::int64_t>(sizeof(T)));
    for (std::int64_t line = c.begin; line < last;) {
      const std::int64_t outer = line / lines.inner, column = line % lines.inner;
      const std::int64_t from = outer * lines.length * lines.inner + column, to = outer * lines.k * lines.inner + column;
      const std::int64_t width = std::min({most, lines.inner - column, last - line});
      const T* x = ordered.read(c.input(0).as<T>() + from, lines.length, lines.inner, width, &room);
      for (std::int64_t i = 0; i < width; ++i) {
        cancellation_point();
        write(c, lines, from + i, to + i, selection.find(x + i * lines.length, lines.length));
      }
      line += width;
    }
  });
}

constexpr AttributeSpec kAttributes1[] = {int_attribute("axis", -1), required_attribute("k", AttributeType::kInt)};
constexpr AttributeSpec kAttributes10[] = {int_attribute("axis", -1)};
constexpr AttributeSpec kAttributes11[] = {int_attribute("axis", -1), int_attribute("largest", 1), int_attribute("sorted", 1)};
constexpr OpDef kOps[] = {
    {.name = "TopK",
     .since = 1,
     .min_outputs = 2,
     .max_outputs = 2,
     .attributes = kAttributes1,
     .dtypes = kNumbers,
     .output_dtype = top_k_dtype,
     .infer = infer_top_k,
     .reference = reference_top_k,
     .parts = parts_of_top_k},
    {.name = "TopK",
     .since = 10,
     .min_inputs = 2,
     .max_inputs = 2,
     .min_outputs = 2,
     .max_outputs = 2,
     .attributes = kAttributes10,
     .dtypes = kNumbers,
     .value_inputs = 2,
     .output_dtype = top_k_dtype,
     .infer = infer_top_k,
     .reference = reference_top_k,
     .parts = parts_of_top_k},
    {.name = "TopK",
     .since = 11,
     .min_inputs = 2,
     .max_inputs = 2,
     .min_outputs = 2,
     .max_outputs = 2,
     .attributes = kAttributes11,
     .dtypes = kNumbers,
     .value_inputs = 2,
     .output_dtype = top_k_dtype,
     .infer = infer_top_k,
     .reference = reference_top_k,
     .parts = parts_of_top_k},
};

}  // namespace

extern const OpFamily top_k_family;
const OpFamily top_k_family = {kOps};

}  // namespace evn
