#include "core/weight.h"

#include <cstring>
#include <utility>

#include "base/cancel.h"
#include "base/error.h"

namespace evn {

namespace {

constinit std::atomic<std::uint64_t> g_next_id{1};

}  // namespace

std::shared_ptr<Weight> make_weight_over(const TensorDesc& desc, std::shared_ptr<const void> data) {
  auto w = std::make_shared<Weight>();
  w->id = g_next_id.fetch_add(1, std::memory_order_relaxed);
  w->desc = desc;
  w->size_bytes = desc.size_bytes();
  w->aligned = reinterpret_cast<std::uintptr_t>(data.get()) % dtype_alignment(desc.dtype) == 0;
  w->data = std::move(data);
  return w;
}

std::shared_ptr<Weight> make_weight_in_file(const TensorDesc& desc, std::shared_ptr<const WeightSource> source) {
  std::shared_ptr<Weight> w = make_weight_over(desc, nullptr);
  w->source = std::move(source);
  return w;
}

std::shared_ptr<Weight> make_weight_slice(const WeightPtr& whole, int axis, std::int64_t begin, std::int64_t count) {
  TensorDesc desc = whole->desc;
  EVN_CHECK(begin >= 0 && count >= 0 && begin + count <= desc.shape[axis]);
  desc.shape[axis] = count;
  std::shared_ptr<Weight> part = make_weight_over(desc, nullptr);
  part->slice = std::make_shared<WeightSlice>(WeightSlice{whole, axis, begin});
  if (whole->source != nullptr && desc.shape.elements(0, axis) == 1) {
    auto source = std::make_shared<WeightSource>(*whole->source);
    const auto row = static_cast<std::uint64_t>(desc.shape.elements(axis + 1, desc.shape.rank())) * dtype_size(desc.dtype);
    source->offset += static_cast<std::uint64_t>(begin) * row;
    part->source = std::move(source);
  }
  return part;
}

std::shared_ptr<const void> copy_slice(const Weight& part, const LedgerPtr& ledger) {
  const WeightSlice& slice = *part.slice;
  const Shape& all = slice.whole->desc.shape;
  std::shared_ptr<void> memory = allocate_charged(ledger, part.size_bytes, MemoryClass::kWeights);
  const auto size = dtype_size(part.desc.dtype);
  const auto row = static_cast<std::size_t>(all.elements(slice.axis + 1, all.rank())) * size;
  const std::size_t bytes = static_cast<std::size_t>(part.desc.shape[slice.axis]) * row;
  const char* from = static_cast<const char*>(slice.whole->data.get()) + static_cast<std::size_t>(slice.begin) * row;
  char* to = static_cast<char*>(memory.get());
  for (std::int64_t i = 0; i < all.elements(0, slice.axis) && bytes != 0; ++i) {
    cancellation_point();
    std::memcpy(to, from, bytes);
    to += bytes;
    from += static_cast<std::size_t>(all[slice.axis]) * row;
  }
  return memory;
}

namespace {

[[noreturn]] void fail_with_tensor(const WeightSource& source, const Error& e) {
  throw make_error(e.status, "tensor '%.128s': %s", source.tensor.c_str(), e.message);
}

// A range of a mapped file.
struct MappedRange {
  std::shared_ptr<const void> file;
  LedgerPtr ledger;
  std::size_t bytes = 0;

  MappedRange() = default;
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;
  ~MappedRange() {
    if (bytes != 0) ledger->discharge(bytes, MemoryClass::kWeights);
  }
};

}  // namespace

void WeightSource::read(std::uint64_t at, void* to, std::size_t size) const {
  try {
    file->read(offset + at, to, size);
  } catch (const Error& e) {
    if (e.status != EVN_ERROR_IO) throw;
    fail_with_tensor(*this, e);
  }
}

void WeightSource::check_unchanged() const {
  try {
    file->check_unchanged();
  } catch (const Error& e) {
    fail_with_tensor(*this, e);
  }
}

std::shared_ptr<const void> map_weight(const Weight& weight) {
  const WeightSource& source = *weight.source;
  if (source.mapping == nullptr) return nullptr;
  const char* const at = static_cast<const char*>(source.mapping.get()) + source.offset;
  if (reinterpret_cast<std::uintptr_t>(at) % dtype_alignment(weight.desc.dtype) != 0) return nullptr;
  auto range = std::make_shared<MappedRange>();
  range->file = source.mapping;
  range->ledger = source.ledger;
  if (range->ledger != nullptr) {
    range->ledger->charge(weight.size_bytes, MemoryClass::kWeights);
    range->bytes = weight.size_bytes;
  }
  return std::shared_ptr<const void>(std::move(range), at);
}

std::shared_ptr<const void> read_weight(const Weight& weight) {
  if (std::shared_ptr<const void> mapped = map_weight(weight)) return mapped;
  std::shared_ptr<void> memory = allocate_charged(weight.source->ledger, weight.size_bytes, MemoryClass::kWeights);
  weight.source->read(0, memory.get(), weight.size_bytes);
  return memory;
}

std::shared_ptr<Weight> transposed_bytes(const Weight& matrix, const LedgerPtr& ledger) {
  const std::int64_t rows = matrix.desc.shape[0], columns = matrix.desc.shape[1];
  void* memory = nullptr;
  std::shared_ptr<Weight> turned = make_unfilled_weight({matrix.desc.dtype, Shape{columns, rows}}, ledger, &memory);
  auto* to = static_cast<std::uint8_t*>(memory);
  const auto* from = matrix.as<std::uint8_t>();
  for (std::int64_t i = 0; i < rows; ++i) {
    in_pieces(columns, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t j = begin; j < end; ++j) to[j * rows + i] = from[i * columns + j];
    });
  }
  return turned;
}

void Weight::fetch() const { const_cast<Weight*>(this)->data = read_weight(*this); }

void keep_texts(Weight& weight, TextPoolPtr texts) {
  using Both = std::pair<std::shared_ptr<const void>, TextPoolPtr>;
  const void* bytes = weight.data.get();
  weight.data = std::shared_ptr<const void>(std::make_shared<Both>(std::move(weight.data), std::move(texts)), bytes);
}

std::shared_ptr<Weight> make_weight(const TensorDesc& desc, const LedgerPtr& ledger, void** bytes) {
  std::shared_ptr<Weight> weight = make_unfilled_weight(desc, ledger, bytes);
  std::memset(*bytes, 0, weight->size_bytes);
  return weight;
}

std::shared_ptr<Weight> make_unfilled_weight(const TensorDesc& desc, const LedgerPtr& ledger, void** bytes) {
  std::shared_ptr<void> memory = allocate_charged(ledger, desc.size_bytes(), MemoryClass::kWeights);
  *bytes = memory.get();
  return make_weight_over(desc, std::move(memory));
}

}  // namespace evn
