// SparseTensorProto, which becomes a dense weight: the elements that it lists, zeros elsewhere. Stricter than ONNX Runtime:
// positions are sorted and single, as onnx.proto demands, and nothing of it stands outside the model file.
#include <cstring>

#include "base/error.h"
#include "model/loader.h"

namespace evn {
namespace {

using wire::Count;
using wire::Field;
using wire::Kind;

struct Reader {
  Loader& loader;
  const std::uint8_t* at;
  TensorRead values;
  TensorRead indices;
  Shape shape;
  bool has_values = false;
  bool has_indices = false;

  [[noreturn]] void refuse(const char* field, const char* what) const {
    loader.file.fail_field("SparseTensorProto", field, at, what);
  }
};

constexpr wire::Row<Reader> kRows[] = {
    {{1, "values", Kind::kBytes, Count::kOnce},
     [](Reader& r, const Field& f) {
       r.values = read_tensor(r.loader, f.bytes);
       r.has_values = true;
     }},
    {{2, "indices", Kind::kBytes, Count::kOnce},
     [](Reader& r, const Field& f) {
       r.indices = read_tensor(r.loader, f.bytes);
       r.has_indices = true;
     }},
    {{3, "dims", Kind::kVarints, Count::kMany},
     [](Reader& r, const Field& f) {
       if (f.as_int64() < 0) r.refuse("dims", "is negative");
       if (r.shape.rank() == kMaxRank) {
         r.loader.file.fail_at(EVN_ERROR_LIMIT, f.at, "SparseTensorProto.dims", "a rank above %d is not supported", kMaxRank);
       }
       r.shape.push_back(f.as_int64());
     }},
};

void check_parts(const Reader& r) {
  if (!r.has_values) r.refuse("values", "is missing");
  if (!r.has_indices) r.refuse("indices", "is missing");
  if (r.values.is_external || r.indices.is_external) r.refuse("values", "or indices are external data");
  if (r.shape.rank() == 0) r.refuse("dims", "is missing");
  if (r.indices.weight == nullptr || r.indices.weight->desc.dtype != DType::kInt64) r.refuse("indices", "is not of int64");
  if (r.values.weight == nullptr) return;
  if (r.values.weight->desc.dtype == DType::kString) r.refuse("values", "are strings");
  const Shape& values = r.values.weight->desc.shape;
  const Shape& indices = r.indices.weight->desc.shape;
  if (values.rank() != 1) r.refuse("values", "is not one list");
  const bool is_linear = indices.rank() == 1;
  const bool is_list_of_positions = indices.rank() == 2 && indices[1] == r.shape.rank();
  if (!is_linear && !is_list_of_positions) r.refuse("indices", "is neither a list nor a position of all dims per value");
  if (indices[0] != values[0]) r.refuse("indices", "does not have one position per value");
}

// How many elements the dense tensor has; what that takes is checked against the limit before anything is taken.
std::int64_t element_count(const Reader& r, DType dtype) {
  std::int64_t n = 1;
  bool overflow = false;
  for (const std::int64_t dim : r.shape.dims()) overflow |= __builtin_mul_overflow(n, dim, &n);
  std::int64_t bits = 0;
  overflow |= __builtin_mul_overflow(n, static_cast<std::int64_t>(dtype_bits(dtype)), &bits);
  if (overflow) r.refuse("dims", "claims more bytes than 64 bits can count");
  const auto bytes = static_cast<std::uint64_t>(bits / 8 + (bits % 8 != 0 ? 1 : 0));
  const std::uint64_t limit = r.loader.options.limits.tensor_bytes;
  if (bytes > limit) {
    throw make_error(EVN_ERROR_LIMIT, "a sparse tensor stands for %llu bytes, the limit is %llu",
                     static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(limit))
        .with_bytes(bytes, limit);
  }
  return n;
}

// The row-major position of entry `i`.
std::int64_t position(const Reader& r, const std::int64_t* indices, std::int64_t i, std::int64_t count) {
  if (r.indices.weight->desc.shape.rank() == 1) {
    if (indices[i] < 0 || indices[i] >= count) r.refuse("indices", "is outside of dims");
    return indices[i];
  }
  std::int64_t at = 0;
  const int rank = r.shape.rank();
  for (int d = 0; d < rank; ++d) {
    const std::int64_t index = indices[i * rank + d];
    if (index < 0 || index >= r.shape[d]) r.refuse("indices", "is outside of dims");
    at = at * r.shape[d] + index;
  }
  return at;
}

void put(std::uint8_t* to, std::int64_t at, const std::uint8_t* from, std::int64_t i, std::size_t bits) {
  if (bits >= 8) {
    const auto size = static_cast<std::int64_t>(bits / 8);
    std::memcpy(to + at * size, from + i * size, static_cast<std::size_t>(size));
    return;
  }
  const auto per_byte = static_cast<std::int64_t>(8 / bits);
  const unsigned mask = (1u << bits) - 1;
  const unsigned value = from[i / per_byte] >> (static_cast<std::size_t>(i % per_byte) * bits) & mask;
  to[at / per_byte] = static_cast<std::uint8_t>(to[at / per_byte] | value << (static_cast<std::size_t>(at % per_byte) * bits));
}

WeightPtr to_dense(const Reader& r) {
  const Weight& values = *r.values.weight;
  const TensorDesc desc{values.desc.dtype, r.shape};
  const std::int64_t count = element_count(r, desc.dtype);
  void* bytes = nullptr;
  std::shared_ptr<Weight> dense = make_weight(desc, r.loader.options.ledger, &bytes);
  std::int64_t last = -1;
  for (std::int64_t i = 0; i < values.desc.shape[0]; ++i) {
    const std::int64_t at = position(r, r.indices.weight->as<std::int64_t>(), i, count);
    if (at <= last) r.refuse("indices", "is not sorted or has a position twice");
    last = at;
    put(static_cast<std::uint8_t*>(bytes), at, values.as<std::uint8_t>(), i, dtype_bits(desc.dtype));
  }
  return dense;
}

}  // namespace

TensorRead read_sparse_tensor(Loader& loader, wire::Bytes range) {
  Reader reader{.loader = loader, .at = range.begin, .values = {}, .indices = {}, .shape = {}};
  wire::read_message(loader.file, range, "SparseTensorProto", kRows, reader);
  check_parts(reader);
  TensorRead tensor = reader.values;
  if (tensor.weight != nullptr) tensor.weight = to_dense(reader);
  return tensor;
}

}  // namespace evn
