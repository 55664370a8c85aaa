#include "core/weight.h"

#include <atomic>
#include <cstring>
#include <utility>

namespace evn {
namespace {

std::atomic<std::uint64_t> g_next_id{1};

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

std::shared_ptr<const void> read_weight(const Weight& weight) {
  std::shared_ptr<void> memory = allocate_charged(weight.source->ledger, weight.size_bytes, MemoryClass::kWeights);
  weight.source->file->read(weight.source->offset, memory.get(), weight.size_bytes);
  return memory;
}

std::shared_ptr<Weight> transposed_bytes(const Weight& matrix, const LedgerPtr& ledger) {
  const std::int64_t rows = matrix.desc.shape[0], columns = matrix.desc.shape[1];
  void* memory = nullptr;
  std::shared_ptr<Weight> turned = make_unfilled_weight({matrix.desc.dtype, Shape{columns, rows}}, ledger, &memory);
  auto* to = static_cast<std::uint8_t*>(memory);
  const auto* from = matrix.as<std::uint8_t>();
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
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
