#include "core/shape.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"

namespace evn {

Shape::Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) {
  if (dims.size() > static_cast<std::size_t>(kMaxRank)) {
    fail(EVN_ERROR_LIMIT, "rank %zu is above the limit of %d", dims.size(), kMaxRank);
  }
  rank_ = static_cast<std::int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), dims_);
}

Shape Shape::of_rank(int rank, std::int64_t fill) {
  Shape s;
  for (int i = 0; i < rank; ++i) s.push_back(fill);
  return s;
}

void Shape::push_back(std::int64_t dim) {
  if (rank_ >= kMaxRank) fail(EVN_ERROR_LIMIT, "rank %d is above the limit of %d", rank_ + 1, kMaxRank);
  dims_[rank_++] = dim;
}

std::int64_t Shape::elements(int begin, int end) const {
  // A zero dim makes the product zero even where the other dims would overflow.
  std::int64_t n = 1;
  bool overflow = false;
  bool zero = false;
  for (int i = begin; i < end; ++i) {
    if (dims_[i] < 0) fail(EVN_ERROR_INVALID_MODEL, "shape %s has a negative or unknown dimension", to_string().c_str());
    zero |= dims_[i] == 0;
    overflow |= __builtin_mul_overflow(n, dims_[i], &n);
  }
  if (zero) return 0;
  if (overflow) fail(EVN_ERROR_LIMIT, "the number of elements of %s overflows", to_string().c_str());
  return n;
}

bool Shape::is_known() const {
  return std::all_of(dims_, dims_ + rank_, [](std::int64_t d) { return d >= 0; });
}

std::string Shape::to_string() const {
  std::string s = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) s += ',';
    s += dims_[i] < 0 ? std::string("?") : std::to_string(dims_[i]);
  }
  return s + "]";
}

bool operator==(const Shape& a, const Shape& b) { return a.rank_ == b.rank_ && std::equal(a.dims_, a.dims_ + a.rank_, b.dims_); }

int normalize_axis(std::int64_t axis, int rank, const char* what) {
  if (axis < -rank || axis >= rank) {
    fail(EVN_ERROR_INVALID_MODEL, "%s %lld is outside [-%d, %d)", what, static_cast<long long>(axis), rank, rank);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

void row_major_strides(const Shape& shape, std::int64_t* strides) {
  std::int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step = checked_mul(step, std::max<std::int64_t>(shape[i], 1));
  }
}

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape out = Shape::of_rank(rank);
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank());
    const int ib = i - (rank - b.rank());
    const std::int64_t da = ia < 0 ? 1 : a[ia];
    const std::int64_t db = ib < 0 ? 1 : b[ib];
    if (da != db && da != 1 && db != 1) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "shapes %s and %s do not broadcast", a.to_string().c_str(), b.to_string().c_str());
    }
    out[i] = da == 1 ? db : da;
  }
  return out;
}

Wraps Wraps::in(Wrap outer) const {
  if (bits_ >> (3 * (kMaxDepth - 1)) != 0) fail(EVN_ERROR_LIMIT, "a type of more than %d levels", kMaxDepth);
  return Wraps(static_cast<std::uint16_t>(bits_ << 3 | static_cast<unsigned>(outer)));
}

std::string TensorDesc::type_string() const {
  std::string close;
  std::string s;
  for (Wraps w = wraps; w; w = w.inside()) {
    switch (w.outer()) {
      case Wrap::kSequence: s += "seq("; break;
      case Wrap::kOptional: s += "optional("; break;
      case Wrap::kMapOfInts: s += "map(int64,"; break;
      default: s += "map(string,"; break;
    }
    close += ')';
  }
  return s + "tensor(" + dtype_name(dtype) + ")" + close;
}

namespace {

DType dtype_of_name(std::string_view name) {
  if (name == "float") return DType::kFloat32;
  if (name == "double") return DType::kFloat64;
  for (int i = 1; i < kDTypeCount; ++i) {
    if (name == dtype_name(static_cast<DType>(i))) return static_cast<DType>(i);
  }
  return DType::kUndefined;
}

// Takes `prefix` off the front and one ")" off the end.
bool take(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix) || !text->ends_with(')')) return false;
  text->remove_prefix(prefix.size());
  text->remove_suffix(1);
  return true;
}

}  // namespace

TensorDesc parse_type(std::string_view text) {
  std::string_view rest = text;
  constexpr std::pair<std::string_view, Wrap> kWraps[] = {{"seq(", Wrap::kSequence},
                                                          {"optional(", Wrap::kOptional},
                                                          {"map(int64,", Wrap::kMapOfInts},
                                                          {"map(string,", Wrap::kMapOfStrings}};
  Wrap found[Wraps::kMaxDepth] = {};
  int depth = 0;
  for (bool more = true; more;) {
    more = false;
    for (const auto& [prefix, wrap] : kWraps) {
      if (!take(&rest, prefix)) continue;
      if (depth == Wraps::kMaxDepth) fail(EVN_ERROR_LIMIT, "a type of more than %d levels", Wraps::kMaxDepth);
      found[depth++] = wrap;
      more = true;
      break;
    }
  }
  TensorDesc type;
  if (take(&rest, "tensor(")) type.dtype = dtype_of_name(rest);
  if (type.dtype == DType::kUndefined)
    fail(EVN_ERROR_INVALID_ARGUMENT, "\"%.64s\" is no type", std::string(text.substr(0, 64)).c_str());
  if (!is_stored(type.dtype)) fail(EVN_ERROR_UNSUPPORTED, "tensors of %s", dtype_name(type.dtype));
  while (depth > 0) type.wraps = type.wraps.in(found[--depth]);
  return type;
}

std::size_t TensorDesc::size_bytes() const {
  const std::int64_t elements = shape.elements();
  if (is_sub_byte(dtype)) return static_cast<std::size_t>(ceil_div(elements, 8 / static_cast<std::int64_t>(dtype_bits(dtype))));
  return checked_mul(static_cast<std::size_t>(elements), dtype_size(dtype));
}

}  // namespace evn
