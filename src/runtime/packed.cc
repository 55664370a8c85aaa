#include "runtime/packed.h"

namespace evn {

Buffer PackedStore::upload(Device& device, PooledMemory memory, const void* bytes, std::size_t size, const Key& key) {
  const Buffer target{memory.memory(), 0, size};
  if (size > 0) {
    const Event event = device.copy({nullptr, {const_cast<void*>(bytes), 0, size}}, {&device, target}, {});
    device.wait(event);
  }
  copies_.emplace(key, std::move(memory));
  return target;
}

Buffer PackedStore::packed(Device& device, const Kernel& kernel, const OpDesc& desc, int input, PlainWeights::Access* plain) {
  const Weight* weight = desc.constant(input);
  if (weight == nullptr || kernel.prepack_bytes == nullptr) return {};
  const std::size_t bytes = kernel.prepack_bytes(desc, input);
  if (bytes == 0) return {};
  const std::uint64_t variant = kernel.prepack_variant != nullptr ? kernel.prepack_variant(desc, input) : 0;
  const Key key{weight->id, weight->version, &device, &kernel, input, variant, bytes};
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto it = copies_.find(key); it != copies_.end()) return {it->second.memory(), 0, bytes};
  if (plain != nullptr) plain->bring_back(*weight);
  PooledMemory memory = device.allocate(bytes, MemoryClass::kPacked);
  if (device.traits().host_addressable) {
    kernel.prepack(desc, input, memory.memory());
    const Buffer result{memory.memory(), 0, bytes};
    copies_.emplace(key, std::move(memory));
    return result;
  }
  const std::shared_ptr<void> staging = allocate_charged(nullptr, bytes, MemoryClass::kLoading);
  kernel.prepack(desc, input, staging.get());
  return upload(device, std::move(memory), staging.get(), bytes, key);
}

Buffer PackedStore::plain(Device& device, const Weight& weight) {
  if (device.traits().host_addressable) return {const_cast<void*>(weight.data.get()), 0, weight.size_bytes};
  const Key key{weight.id, weight.version, &device, nullptr, 0, 0, weight.size_bytes};
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto it = copies_.find(key); it != copies_.end()) return {it->second.memory(), 0, weight.size_bytes};
  PooledMemory memory = device.allocate(weight.size_bytes, MemoryClass::kWeights);
  return upload(device, std::move(memory), weight.data.get(), weight.size_bytes, key);
}

}  // namespace evn
