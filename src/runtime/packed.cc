#include "runtime/packed.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"

namespace evn {

PackedStore::Key PackedStore::key_of(const Device& device, const Kernel& kernel, const OpDesc& desc, int input) {
  const Weight* weight = desc.constant(input);
  if (weight == nullptr || kernel.prepack_bytes == nullptr) return {};
  const std::size_t bytes = kernel.prepack_bytes(desc, input);
  if (bytes == 0) return {};
  const std::uint64_t variant = kernel.prepack_variant != nullptr ? kernel.prepack_variant(desc, input) : 0;
  return {weight->id, weight->version, &device, &kernel, input, variant, bytes};
}

PackedStore::Copy PackedStore::allocate(Device& device, std::size_t bytes) {
  Copy copy;
  if (slab_ != nullptr && slab_device_ == &device) copy.block = slab_->take(bytes, MemoryClass::kPacked);
  if (copy.block == nullptr) copy.pooled = device.allocate(bytes, MemoryClass::kPacked);
  return copy;
}

void PackedStore::upload(Device& device, const Copy& copy, const void* bytes, std::size_t size) {
  if (size == 0) return;
  device.wait(device.copy({nullptr, {const_cast<void*>(bytes), 0, size}}, {&device, {copy.memory(), 0, size}}, {}));
}

Buffer PackedStore::Batch::add(Device& device, const Kernel& kernel, const OpDesc& desc, int input, PlainWeights::Access* plain) {
  const Key key = key_of(device, kernel, desc, input);
  if (key.bytes == 0) return {};
  if (const auto it = store_.copies_.find(key); it != store_.copies_.end()) return {it->second.memory(), 0, key.bytes};
  const auto queued = std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& j) { return j.key == key; });
  if (queued != jobs_.end()) return {queued->copy.memory(), 0, key.bytes};
  const Weight& weight = *desc.constant(input);
  if (plain != nullptr && weight.source == nullptr) plain->bring_back(weight);
  Copy copy = store_.allocate(device, key.bytes);
  const Buffer target{copy.memory(), 0, key.bytes};
  if (device.traits().host_addressable) {
    jobs_.push_back({key, &kernel, desc, std::move(copy), plain != nullptr && plain->may_go(weight)});
    bytes_ += key.bytes;
    return target;
  }
  if (plain != nullptr) plain->bring_back(weight);
  const std::shared_ptr<void> staging = allocate_charged(nullptr, key.bytes, MemoryClass::kLoading);
  kernel.prepack(desc, input, staging.get());
  upload(device, copy, staging.get(), key.bytes);
  store_.copies_.emplace(key, std::move(copy));
  return target;
}

// The weight itself stays as it is: other threads may pack it too.
void PackedStore::Batch::Job::run(void* block) {
  const Weight& weight = *desc.constant(key.input);
  const void* bytes = weight.data.get();
  OpDesc read = desc;
  std::vector<WeightPtr> constants;
  if (bytes == nullptr) {
    weight.source->file->read(weight.source->offset, block, weight.size_bytes);
    bytes = block;
    constants.assign(desc.constants.begin(), desc.constants.end());
    constants[static_cast<std::size_t>(key.input)] = make_weight_over(weight.desc, std::shared_ptr<const void>(block, [](const void*) {}));
    read.constants = constants;
  }
  kernel->prepack(read, key.input, copy.memory());
  if (noted) checksum = checksum_of(bytes, weight.size_bytes);
}

void PackedStore::Batch::pack(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel&) {
  Job* const jobs = args.plan->state<Job*>();
  for (std::int64_t i = begin; i < end; ++i) jobs[i].run(args.thread_scratch);
}

std::size_t PackedStore::Batch::block_bytes() const {
  std::size_t most = 0;
  for (const Job& j : jobs_) {
    const Weight& weight = *j.desc.constant(j.key.input);
    if (weight.data == nullptr) most = std::max(most, weight.size_bytes);
  }
  return align_up(most, 64);
}

void PackedStore::Batch::reserve(Device& device, std::size_t bytes) {
  if (bytes <= scratch_bytes_) return;
  scratch_ = nullptr;
  scratch_bytes_ = 0;
  scratch_ = allocate_charged(device.ledger(), bytes, MemoryClass::kWeights);
  scratch_bytes_ = bytes;
}

// The device's threads run the batch as if it were a kernel whose tiles are the copies.
void PackedStore::Batch::run(PlainWeights::Access* plain) {
  static constexpr Kernel kPacking = {"packing", "", "", 0, nullptr, nullptr, nullptr, nullptr, nullptr, pack};
  static constinit const Cancel never{};
  if (jobs_.empty()) return;
  auto* const device = const_cast<Device*>(jobs_[0].key.device);
  const bool one_device = std::all_of(jobs_.begin(), jobs_.end(), [&](const Job& j) { return j.key.device == device; });
  const bool threads = jobs_.size() > 1 && one_device && device->traits().kind == EVN_DEVICE_CPU;
  KernelPlan plan;
  plan.tiles = static_cast<std::int64_t>(jobs_.size());
  plan.bytes = 2.0 * static_cast<double>(bytes_);
  plan.thread_scratch_bytes = block_bytes();
  plan.state<Job*>() = jobs_.data();
  reserve(*device, plan.thread_scratch_bytes * (threads ? device->traits().compute_units : 1));
  const bool reads = plan.thread_scratch_bytes != 0 && plain != nullptr;
  if (reads) plain->check_unchanged();
  KernelCall call;
  call.kernel = &kPacking;
  call.args.plan = &plan;
  call.args.scratch = {scratch_.get(), 0, scratch_bytes_};
  call.args.thread_scratch = scratch_.get();
  if (threads) {
    device->wait(device->enqueue(call, {}));
  } else {
    pack(call.args, 0, plan.tiles, never);
  }
  if (reads) plain->check_unchanged();
  for (Job& j : jobs_) {
    if (j.noted) plain->note_checksum(*j.desc.constant(j.key.input), j.checksum);
    store_.copies_.emplace(j.key, std::move(j.copy));
  }
  jobs_.clear();
  bytes_ = 0;
}

Buffer PackedStore::packed(Device& device, const Kernel& kernel, const OpDesc& desc, int input, PlainWeights::Access* plain) {
  Batch batch(*this);
  const Buffer buffer = batch.add(device, kernel, desc, input, plain);
  batch.run(plain);
  return buffer;
}

Buffer PackedStore::plain(Device& device, const Weight& weight) {
  if (device.traits().host_addressable) return {const_cast<void*>(weight.data.get()), 0, weight.size_bytes};
  const Key key{weight.id, weight.version, &device, nullptr, 0, 0, weight.size_bytes};
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto it = copies_.find(key); it != copies_.end()) return {it->second.memory(), 0, weight.size_bytes};
  Copy copy;
  copy.pooled = device.allocate(weight.size_bytes, MemoryClass::kWeights);
  const Buffer target{copy.memory(), 0, weight.size_bytes};
  upload(device, copy, weight.data.get(), weight.size_bytes);
  copies_.emplace(key, std::move(copy));
  return target;
}

std::size_t PackedStore::room_of(Device& device, const Kernel& kernel, const OpDesc& desc, int input) {
  const Key key = key_of(device, kernel, desc, input);
  const std::lock_guard<std::mutex> lock(mutex_);
  return key.bytes == 0 || copies_.contains(key) ? 0 : Slab::room_of(key.bytes);
}

void PackedStore::open_slab(Device& device, std::size_t room) {
  const std::lock_guard<std::mutex> lock(mutex_);
  slab_ = Slab::make(device.ledger(), room);
  slab_device_ = &device;
}

void PackedStore::close_slab() {
  const std::lock_guard<std::mutex> lock(mutex_);
  slab_ = nullptr;
}

}  // namespace evn
