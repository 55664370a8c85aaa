// Unique: the distinct elements of x as one list, or with `axis` its distinct slices along that; ascending (slices by their
// elements in order), or with sorted = 0 as they first occur. Further outputs: where each first occurs, which of them each element
// or slice of x is, how often each occurs. All NaN are one element, behind all others. com.microsoft's is of a vector, as its
// elements first occur, and lacks the first of the further outputs. dtypes: all numbers, complex ones (by their real part, then by
// the imaginary one), bool, strings (by their bytes). Failures: axis outside the rank. Exact.
#include <algorithm>
#include <complex>
#include <utility>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/sort_by_key.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

enum : int { kAxis, kSorted };

DType output_dtype(const Node&, std::span<const DType> inputs, int output) { return output == 0 ? inputs[0] : DType::kInt64; }

// x as [outer, length, inner]: slice i consists of all [o, i, n].
struct Slices {
  std::int64_t outer = 1, length = 0, inner = 1;
};

bool is_contrib(const Node& node) { return node.op->attributes.empty(); }
bool is_flat(const Node& node) { return is_contrib(node) || !model_gives(node, "axis"); }
bool is_sorted(const Node& node) { return !is_contrib(node) && attr_int(node, kSorted) != 0; }

Slices slices_of(const Node& node, const Shape& x) {
  if (is_flat(node)) return {1, x.elements(), 1};
  const int axis = normalize_axis(attr_int(node, kAxis), x.rank());
  return {x.elements(0, axis), x[axis], x.elements(axis + 1, x.rank())};
}

template <typename T>
int compare(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return static_cast<int>(std::isnan(a)) - static_cast<int>(std::isnan(b));
  }
  if constexpr (std::is_same_v<T, TextElement>) return compare_texts(text_of(a), text_of(b));
  return a < b ? -1 : b < a ? 1 : 0;
}

template <typename T>
int compare(std::complex<T> a, std::complex<T> b) {
  const auto is_nan = [](std::complex<T> x) { return std::isnan(x.real()) || std::isnan(x.imag()); };
  if (is_nan(a) || is_nan(b)) return static_cast<int>(is_nan(a)) - static_cast<int>(is_nan(b));
  const int order = compare(a.real(), b.real());
  return order != 0 ? order : compare(a.imag(), b.imag());
}

// Behind a pointer, so that there is one sort for all types.
using CompareSlices = int (*)(const void* data, const Slices& s, std::int64_t i, std::int64_t j);

template <typename T>
int compare_slices(const void* data, const Slices& s, std::int64_t i, std::int64_t j) {
  const T* x = static_cast<const T*>(data);
  for (std::int64_t o = 0; o < s.outer; ++o) {
    cancellation_point();
    for (std::int64_t n = 0; n < s.inner; ++n) {
      cancellation_point();
      const int order = compare(x[(o * s.length + i) * s.inner + n], x[(o * s.length + j) * s.inner + n]);
      if (order != 0) return order;
    }
  }
  return 0;
}

struct Found {
  std::vector<std::int64_t> first;    // of each distinct slice, where it first occurs; in the order of the output
  std::vector<std::int64_t> inverse;  // of each slice of x, which distinct one it is
};

// The slices in order, equal ones by their places. Equal slices have the same key.
std::vector<Keyed> sorted(const ConstTensor& x, const Slices& s) {
  std::vector<Keyed> order(static_cast<std::size_t>(s.length));
  each_element(s.length, [&](std::int64_t i) { order[static_cast<std::size_t>(i)].at = i; });
  CompareSlices compare = compare_slices<TextElement>;
  const void* const data = x.data;
  bool is_sorted = false;
  if (is_complex(x.desc.dtype)) {
    dispatch_floats(complex_part(x.desc.dtype), [&](auto zero) { compare = compare_slices<std::complex<decltype(zero)>>; });
  } else if (x.desc.dtype != DType::kString) {
    dispatch_numbers(x.desc.dtype == DType::kBool ? DType::kUint8 : x.desc.dtype, [&](auto zero) {
      using T = decltype(zero);
      compare = compare_slices<T>;
      const T* from = x.as<T>();
      if (s.outer != 1 || s.inner != 1) return;
      each_element(s.length, [&](std::int64_t i) { order[static_cast<std::size_t>(i)].key = ordered_key(from[i]); });
      is_sorted = true;
    });
  }
  if (is_sorted) {
    std::vector<Keyed> scratch(order.size());
    sort_by_key(order.data(), scratch.data(), s.length);
    return order;
  }
  std::stable_sort(order.begin(), order.end(), [&](const Keyed& i, const Keyed& j) {
    cancellation_point();
    return compare(data, s, i.at, j.at) < 0;
  });
  std::uint64_t key = 0;
  for (std::size_t n = 0; n < order.size(); ++n) {
    cancellation_point();
    if (n > 0 && compare(data, s, order[n - 1].at, order[n].at) != 0) ++key;
    order[n].key = key;
  }
  return order;
}

Found find(const Node& node, const ConstTensor& x) {
  const Slices s = slices_of(node, x.desc.shape);
  const std::vector<Keyed> order = sorted(x, s);
  Found found;
  found.inverse.resize(order.size());
  each_element(s.length, [&](std::int64_t n) {
    const Keyed* item = order.data() + n;
    if (n == 0 || item[0].key != item[-1].key) found.first.push_back(item->at);
    found.inverse[static_cast<std::size_t>(item->at)] = static_cast<std::int64_t>(found.first.size()) - 1;
  });
  if (is_sorted(node)) return found;
  std::vector<std::int64_t> occurring;                      // the places in `first` in ascending order
  std::vector<std::int64_t> number(found.first.size(), 0);  // by the sorted number, the number in order of occurrence
  each_element(s.length, [&](std::int64_t n) {
    std::int64_t& i = found.inverse[static_cast<std::size_t>(n)];
    const auto distinct = static_cast<std::size_t>(i);
    if (found.first[distinct] == n) {
      number[distinct] = static_cast<std::int64_t>(occurring.size());
      occurring.push_back(n);
    }
    i = number[distinct];
  });
  found.first = std::move(occurring);
  return found;
}

void infer_unique(InferContext& c) {
  const Shape& x = c.shape(0);
  const bool flat = is_flat(c.node);
  const int axis = flat ? 0 : normalize_axis(attr_int(c.node, kAxis), x.rank());
  const ConstTensor value = known_input(c, 0);
  const bool empty = x.is_known() && x.elements() == 0;
  std::int64_t count = -1;
  if (value.data != nullptr && !empty) count = static_cast<std::int64_t>(find(c.node, value).first.size());
  if (empty) count = flat || x[axis] == 0 ? 0 : 1;
  for (std::size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i].shape = {count};
  const std::size_t inverse = is_contrib(c.node) ? 1 : 2;
  if (c.outputs.size() > inverse) c.outputs[inverse].shape = {flat ? dim_elements(x, 0, x.rank()) : x[axis]};
  if (flat) return;
  c.outputs[0].shape = x;
  c.outputs[0].shape[axis] = count;
}

void reference_unique(const ReferenceContext& c) {
  const Slices s = slices_of(c.node, c.input(0).desc.shape);
  const Found found = find(c.node, c.input(0));
  const auto distinct = static_cast<std::int64_t>(found.first.size());
  const std::int64_t bytes = s.inner * static_cast<std::int64_t>(dtype_size(c.input(0).desc.dtype));
  if (c.output().present() && s.inner == 1) {
    with_width(c.input(0).desc.dtype, [&](auto width) {
      for (std::int64_t o = 0; o < s.outer; ++o) {
        each_element(distinct, [&, from = found.first.data()](std::int64_t n) {
          move_element<width()>(c.output().data, o * distinct + n, c.input(0).data, o * s.length + from[n]);
        });
      }
    });
  }
  for (std::int64_t o = 0; o < s.outer && c.output().present() && s.inner > 1; ++o) {
    for (std::int64_t n = 0; n < distinct; ++n) {
      cancellation_point();
      move_in_pieces(c.output().as<char>() + (o * distinct + n) * bytes,
                     c.input(0).as<char>() + (o * s.length + found.first[static_cast<std::size_t>(n)]) * bytes,
                     static_cast<std::size_t>(bytes));
    }
  }
  const auto write = [&](std::size_t output, const std::vector<std::int64_t>& values) {
    if (output >= c.outputs.size() || !c.outputs[output].present()) return;
    copy_in_pieces(values.data(), static_cast<std::int64_t>(values.size()), c.outputs[output].as<std::int64_t>());
  };
  const std::size_t inverse = is_contrib(c.node) ? 1 : 2;
  if (inverse > 1) write(1, found.first);
  write(inverse, found.inverse);
  std::vector<std::int64_t> counts(found.first.size(), 0);
  each_element(s.length, [to = counts.data(), from = found.inverse.data()](std::int64_t i) { ++to[from[i]]; });
  write(inverse + 1, counts);
}

void infer_vector(InferContext& c) {
  require_rank(c, 0, 1, 1);
  infer_unique(c);
}

constexpr AttributeSpec kAttributes[] = {optional_attribute("axis", AttributeType::kInt), int_attribute("sorted", 1)};
constexpr std::uint32_t kDtypes = kNumbers | dtype_bit(DType::kBool) | kString | kComplex;
constexpr OpDef kOps[] = {
    {.name = "Unique",
     .since = 11,
     .max_outputs = 4,
     .attributes = kAttributes,
     .dtypes = kDtypes,
     .value_inputs = 1,
     .output_dtype = output_dtype,
     .infer = infer_unique,
     .reference = reference_unique},
    {.name = "Unique",
     .domain = "com.microsoft",
     .since = 1,
     .min_outputs = 3,
     .max_outputs = 3,
     .dtypes = kDtypes,
     .value_inputs = 1,
     .output_dtype = output_dtype,
     .infer = infer_vector,
     .reference = reference_unique},
};

}  // namespace

extern const OpFamily unique_family;
const OpFamily unique_family = {kOps};

}  // namespace evn
