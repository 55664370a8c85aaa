// TensorProto: dims, element type, and the five ways to hold the values. The message is walked twice: the first time everything
// is checked and counted, so that no memory is taken for values that are not there; the second time numbers are stored.
#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "model/loader.h"

namespace evn {
namespace {

using wire::Count;
using wire::Field;
using wire::Kind;

enum Typed : int { kFloatData, kInt32Data, kInt64Data, kDoubleData, kUint64Data, kStringData, kTypedCount };
constexpr const char* kTypedNames[kTypedCount] = {"float_data",  "int32_data",  "int64_data",
                                                  "double_data", "uint64_data", "string_data"};

struct Reader {
  Loader& loader;
  bool stays_in_file;
  TensorRead tensor;
  Shape shape;
  std::int32_t data_type = 0;
  std::uint64_t counts[kTypedCount] = {};
  bool has_raw = false;
  wire::Bytes raw;
  std::int64_t location = 0;
  std::size_t entry_count = 0;
  StringEntry entries[kMaxExternalEntries];

  [[noreturn]] void refuse(const std::uint8_t* at, const char* field, const char* what) const {
    loader.file.fail_field("TensorProto", field, at, what);
  }
};

void add_dim(Reader& r, const Field& f) {
  if (f.as_int64() < 0) r.refuse(f.at, "dims", "is negative");
  if (r.shape.rank() == kMaxRank) {
    r.loader.file.fail_at(EVN_ERROR_LIMIT, f.at, "TensorProto.dims", "a rank above %d is not supported", kMaxRank);
  }
  r.shape.push_back(f.as_int64());
}

void add_external_entry(Reader& r, const Field& f) {
  if (r.entry_count == kMaxExternalEntries) r.refuse(f.at, "external_data", "has more than 16 entries");
  r.entries[r.entry_count++] = read_string_entry(r.loader, f.bytes);
}

template <Typed kTyped>
void count(Reader& r, const Field&) {
  ++r.counts[kTyped];
}

constexpr wire::Row<Reader> kRows[] = {
    {{1, "dims", Kind::kVarints, Count::kMany}, add_dim},
    {{2, "data_type", Kind::kVarint, Count::kOnce}, [](Reader& r, const Field& f) { r.data_type = f.as_int32(); }},
    {{3, "segment", Kind::kBytes, Count::kOnce},
     [](Reader& r, const Field& f) {
       r.loader.file.fail_at(EVN_ERROR_UNSUPPORTED, f.at, "TensorProto.segment", "tensors in segments are not supported");
     }},
    {{4, "float_data", Kind::kFixed32s, Count::kMany}, count<kFloatData>},
    {{5, "int32_data", Kind::kVarints, Count::kMany}, count<kInt32Data>},
    {{6, "string_data", Kind::kBytes, Count::kMany}, count<kStringData>},
    {{7, "int64_data", Kind::kVarints, Count::kMany}, count<kInt64Data>},
    {{8, "name", Kind::kBytes, Count::kOnce},
     [](Reader& r, const Field& f) { r.tensor.name = r.loader.text(f, "TensorProto", "name"); }},
    {{9, "raw_data", Kind::kBytes, Count::kOnce},
     [](Reader& r, const Field& f) {
       r.has_raw = true;
       r.raw = f.bytes;
     }},
    {{10, "double_data", Kind::kFixed64s, Count::kMany}, count<kDoubleData>},
    {{11, "uint64_data", Kind::kVarints, Count::kMany}, count<kUint64Data>},
    {{12, "doc_string", Kind::kBytes, Count::kOnce}, nullptr},
    {{13, "external_data", Kind::kBytes, Count::kMany}, add_external_entry},
    {{14, "data_location", Kind::kVarint, Count::kOnce}, [](Reader& r, const Field& f) { r.location = f.as_int64(); }},
    {{16, "metadata_props", Kind::kBytes, Count::kMany},
     [](Reader& r, const Field& f) {
       const StringEntry entry = read_string_entry(r.loader, f.bytes);
       if (entry.key == kOriginKey) r.tensor.origin = origin_of(entry.value);
     }},
};

// ---------------------------------------------------------------------------------------- the second walk: storing --

struct Filler {
  Loader& loader;
  std::uint8_t* to;
  const std::uint8_t* end;
  void (*store)(Filler& filler, const Field& field);
  TextPool* texts = nullptr;  // of a string tensor

  template <typename T>
  void put(T value) {
    EVN_CHECK(static_cast<std::size_t>(end - to) >= sizeof value);
    std::memcpy(to, &value, sizeof value);
    to += sizeof value;
  }
};

template <typename T>
void store_int32(Filler& filler, const Field& f) {
  const std::int32_t v = f.as_int32();
  if (v < std::int64_t{std::numeric_limits<T>::min()} || v > std::int64_t{std::numeric_limits<T>::max()}) {
    filler.loader.file.fail_field("TensorProto", "int32_data", f.at, "is outside the range of the element type");
  }
  filler.put(static_cast<T>(v));
}

void store_bool(Filler& filler, const Field& f) { filler.put(static_cast<std::uint8_t>(f.as_int32() != 0)); }
void store_float(Filler& filler, const Field& f) { filler.put(f.as_float()); }
void store_double(Filler& filler, const Field& f) { filler.put(f.as_double()); }
void store_64_bits(Filler& filler, const Field& f) { filler.put(f.value); }

void store_uint32(Filler& filler, const Field& f) {
  if (f.value > std::numeric_limits<std::uint32_t>::max()) {
    filler.loader.file.fail_field("TensorProto", "uint64_data", f.at, "is outside the range of the element type");
  }
  filler.put(static_cast<std::uint32_t>(f.value));
}

void store_string(Filler& filler, const Field& f) { filler.put(filler.texts->add(f.bytes.text())); }

// Which typed field holds the values of an element type, and how.
struct Storage {
  DType dtype;
  Typed typed;
  void (*store)(Filler& filler, const Field& field);
};

// 16-bit floats stand in int32_data as their bits.
constexpr Storage kStorage[] = {
    {DType::kFloat32, kFloatData, store_float},
    {DType::kFloat64, kDoubleData, store_double},
    {DType::kComplex64, kFloatData, store_float},
    {DType::kComplex128, kDoubleData, store_double},
    {DType::kInt64, kInt64Data, store_64_bits},
    {DType::kUint64, kUint64Data, store_64_bits},
    {DType::kUint32, kUint64Data, store_uint32},
    {DType::kInt32, kInt32Data, store_int32<std::int32_t>},
    {DType::kInt16, kInt32Data, store_int32<std::int16_t>},
    {DType::kInt8, kInt32Data, store_int32<std::int8_t>},
    {DType::kUint16, kInt32Data, store_int32<std::uint16_t>},
    {DType::kUint8, kInt32Data, store_int32<std::uint8_t>},
    {DType::kFloat16, kInt32Data, store_int32<std::uint16_t>},
    {DType::kBfloat16, kInt32Data, store_int32<std::uint16_t>},
    {DType::kBool, kInt32Data, store_bool},
    {DType::kString, kStringData, store_string},
    // A byte to a number: one element of 8 bits, or as many as fit.
    {DType::kFloat8E4M3FN, kInt32Data, store_int32<std::uint8_t>},
    {DType::kFloat8E4M3FNUZ, kInt32Data, store_int32<std::uint8_t>},
    {DType::kFloat8E5M2, kInt32Data, store_int32<std::uint8_t>},
    {DType::kFloat8E5M2FNUZ, kInt32Data, store_int32<std::uint8_t>},
    {DType::kFloat8E8M0, kInt32Data, store_int32<std::uint8_t>},
    {DType::kUint4, kInt32Data, store_int32<std::uint8_t>},
    {DType::kInt4, kInt32Data, store_int32<std::uint8_t>},
    {DType::kFloat4E2M1, kInt32Data, store_int32<std::uint8_t>},
    {DType::kUint2, kInt32Data, store_int32<std::uint8_t>},
    {DType::kInt2, kInt32Data, store_int32<std::uint8_t>},
};

template <std::uint32_t kNumber, Kind kKind>
constexpr wire::Row<Filler> kFillRows[] = {
    {{kNumber, "", kKind, Count::kMany}, [](Filler& filler, const Field& f) { filler.store(filler, f); }}};

void fill(Filler& filler, wire::Bytes range, Typed typed) {
  wire::File& file = filler.loader.file;
  switch (typed) {
    case kFloatData: return wire::read_message(file, range, "TensorProto", kFillRows<4, Kind::kFixed32s>, filler);
    case kInt32Data: return wire::read_message(file, range, "TensorProto", kFillRows<5, Kind::kVarints>, filler);
    case kInt64Data: return wire::read_message(file, range, "TensorProto", kFillRows<7, Kind::kVarints>, filler);
    case kDoubleData: return wire::read_message(file, range, "TensorProto", kFillRows<10, Kind::kFixed64s>, filler);
    case kStringData: return wire::read_message(file, range, "TensorProto", kFillRows<6, Kind::kBytes>, filler);
    default: return wire::read_message(file, range, "TensorProto", kFillRows<11, Kind::kVarints>, filler);
  }
}

// ------------------------------------------------------------------------------------------------- the whole tensor --

const Storage& storage_of(DType dtype) {
  for (const Storage& s : kStorage) {
    if (s.dtype == dtype) return s;
  }
  fail(EVN_ERROR_INTERNAL, "no storage for element type %s", dtype_name(dtype));
}

// Bytes of a tensor as its dims claim them, and the numbers that a typed field has for it: two to a complex number. A claim that no
// machine can hold is the model's fault.
void size_of(const Reader& r, const std::uint8_t* at, DType dtype, std::uint64_t* numbers, std::size_t* bytes) {
  std::uint64_t n = 1;
  bool overflow = false;
  bool empty = false;
  for (const std::int64_t dim : r.shape.dims()) {
    empty |= dim == 0;
    overflow |= __builtin_mul_overflow(n, static_cast<std::uint64_t>(dim), &n);
  }
  std::uint64_t size = 0;
  if (const std::size_t bits = dtype_bits(dtype); bits < 8) n = n / (8 / bits) + (n % (8 / bits) != 0 ? 1 : 0);
  overflow |=
      __builtin_mul_overflow(n, std::max<std::size_t>(dtype_size(dtype), 1), &size) || size > static_cast<std::uint64_t>(INT64_MAX);
  if (overflow && !empty) r.refuse(at, "dims", "claims more bytes than 64 bits can count");
  *numbers = empty ? 0 : is_complex(dtype) ? 2 * n : n;
  *bytes = empty ? 0 : static_cast<std::size_t>(size);
}

void check_limit(const Reader& r, std::size_t bytes) {
  const std::uint64_t limit = r.loader.options.limits.tensor_bytes;
  if (bytes <= limit) return;
  throw make_error(EVN_ERROR_LIMIT, "tensor '%.128s' has %zu bytes, the limit is %llu", std::string(r.tensor.name).c_str(), bytes,
                   static_cast<unsigned long long>(limit))
      .with_bytes(bytes, limit);
}

void make_plain_booleans(void* bytes, std::size_t size) {
  auto* p = static_cast<std::uint8_t*>(bytes);
  std::transform(p, p + size, p, [](std::uint8_t b) { return static_cast<std::uint8_t>(b != 0); });
}

// The values are numbers. `stays`: they are not read yet.
WeightPtr weight_in_file(const Reader& r, const TensorDesc& desc, WeightSource source, bool stays) {
  if (stays && desc.dtype != DType::kBool) return make_weight_in_file(desc, std::make_shared<WeightSource>(std::move(source)));
  void* to = nullptr;
  std::shared_ptr<Weight> weight = make_unfilled_weight(desc, r.loader.options.ledger, &to);
  source.read(0, to, weight->size_bytes);
  if (desc.dtype == DType::kBool) make_plain_booleans(to, weight->size_bytes);
  return weight;
}

// raw_data that is still in the file; null when it is not.
WeightPtr weight_of_gap(const Reader& r, const TensorDesc& desc) {
  const FileImage* image = r.loader.options.image;
  if (image == nullptr || r.raw.size() < kLeastGap) return nullptr;
  const auto offset = static_cast<std::uint64_t>(r.raw.begin - r.loader.file.all().begin);
  const auto gap = std::lower_bound(image->gaps.begin(), image->gaps.end(), offset,
                                    [](const Gap& g, std::uint64_t at) { return g.offset < at; });
  if (gap == image->gaps.end() || gap->offset != offset || gap->size != r.raw.size()) return nullptr;
  r.loader.file.check_time();
  return weight_in_file(r, desc, {image->file, offset, r.loader.options.ledger, std::string(r.tensor.name), image->mapping},
                        r.stays_in_file);
}

// Small tensors are read at once, and so is what lies in a file that does not stay open.
WeightPtr weight_of_external(const Reader& r, const TensorDesc& desc, std::size_t bytes, const std::uint8_t* at) {
  ExternalRange found = find_external(r.loader, bytes, {r.entries, r.entry_count}, at);
  WeightSource source{std::move(found.file), found.offset, r.loader.options.ledger, std::string(r.tensor.name),
                      std::move(found.mapping)};
  source.is_external = true;
  return weight_in_file(r, desc, std::move(source), r.stays_in_file && found.stays_open && bytes >= kLeastGap);
}

// Bytes that are aligned for their type stay where they are. Booleans other than 0 and 1 are put right in a copy.
WeightPtr weight_of_bytes(const Reader& r, const TensorDesc& desc, std::size_t size, std::shared_ptr<const void> data) {
  const auto* from = static_cast<const std::uint8_t*>(data.get());
  bool in_place = reinterpret_cast<std::uintptr_t>(from) % dtype_alignment(desc.dtype) == 0;
  if (desc.dtype == DType::kBool) in_place = std::all_of(from, from + size, [](std::uint8_t b) { return b <= 1; });
  if (in_place) return make_weight_over(desc, std::move(data));
  void* to = nullptr;
  std::shared_ptr<Weight> weight = make_unfilled_weight(desc, r.loader.options.ledger, &to);
  std::memcpy(to, from, size);
  if (desc.dtype == DType::kBool) make_plain_booleans(to, size);
  return weight;
}

WeightPtr weight_of_typed(const Reader& r, const TensorDesc& desc, wire::Bytes range, const Storage& storage) {
  void* to = nullptr;
  std::shared_ptr<Weight> weight = make_weight(desc, r.loader.options.ledger, &to);
  auto* begin = static_cast<std::uint8_t*>(to);
  Filler filler{r.loader, begin, begin + weight->size_bytes, storage.store};
  if (desc.dtype == DType::kString) {
    auto texts = std::make_shared<TextPool>(r.loader.options.ledger);
    filler.texts = texts.get();
    keep_texts(*weight, std::move(texts));
  }
  fill(filler, range, storage.typed);
  return weight;
}

WeightPtr read_values(const Reader& r, wire::Bytes range, DType dtype) {
  const std::uint8_t* at = range.begin;
  std::uint64_t numbers = 0;
  std::size_t bytes = 0;
  size_of(r, at, dtype, &numbers, &bytes);
  const TensorDesc desc{dtype, r.shape};
  const Storage& storage = storage_of(dtype);
  bool has_typed = false;
  for (int i = 0; i < kTypedCount; ++i) {
    if (r.counts[i] == 0) continue;
    has_typed = true;
    if (i != storage.typed) r.refuse(at, kTypedNames[i], "does not hold this element type");
  }
  if (dtype == DType::kString && (r.location != 0 || r.has_raw))
    r.refuse(at, "data_type", "is string, which stands in string_data alone");
  if (r.location == 1) {
    if (r.has_raw || has_typed) r.refuse(at, "data_location", "is external, but values are in the model");
    check_limit(r, bytes);
    return weight_of_external(r, desc, bytes, at);
  }
  if (r.location != 0) r.refuse(at, "data_location", "is neither default nor external");
  if (r.entry_count != 0) r.refuse(at, "external_data", "is there, but data_location is not external");
  if (r.has_raw && has_typed) r.refuse(at, "raw_data", "is there beside other values");
  if (r.has_raw) {
    if (r.raw.size() != bytes) r.refuse(at, "raw_data", "does not have the size that dims and data_type ask for");
    check_limit(r, bytes);
    if (WeightPtr weight = weight_of_gap(r, desc)) return weight;
    return weight_of_bytes(r, desc, bytes, std::shared_ptr<const void>(r.loader.bytes, r.raw.begin));
  }
  if (r.counts[storage.typed] != numbers) {
    r.refuse(at, kTypedNames[storage.typed], "does not have as many values as dims ask for");
  }
  check_limit(r, bytes);
  return weight_of_typed(r, desc, range, storage);
}

}  // namespace

TensorRead read_tensor(Loader& loader, wire::Bytes range, bool stays_in_file) {
  Reader reader{.loader = loader, .stays_in_file = stays_in_file, .tensor = {}, .shape = {}, .raw = {}, .entries = {}};
  wire::read_message(loader.file, range, "TensorProto", kRows, reader);
  reader.tensor.is_external = reader.location != 0;
  const char* type = onnx_type_name(reader.data_type);
  if (type == nullptr) reader.refuse(range.begin, "data_type", "is not an element type");
  if (!is_stored_type(reader.data_type)) {
    reader.tensor.unstored = type;
  } else {
    reader.tensor.weight = read_values(reader, range, static_cast<DType>(reader.data_type));
  }
  return reader.tensor;
}

}  // namespace evn
