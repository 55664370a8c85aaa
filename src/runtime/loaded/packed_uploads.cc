// Packed copies for devices whose memory the host cannot write: packed in memory of the host, one while the one before is copied.
#include <utility>

#include "base/cancel.h"
#include "base/error.h"
#include "runtime/loaded/packed.h"

namespace evn {
namespace {

// The largest copy that is packed beside another. Larger ones are alone: what is there of them twice would be much memory.
constexpr std::size_t kMostOverlapped = std::size_t{32} << 20;

}  // namespace

void PackedStore::Batch::reserve(Staging& staging, std::size_t bytes) {
  if (bytes <= staging.bytes) return;
  staging = {};
  staging = {allocate_charged(nullptr, bytes, MemoryClass::kLoading), bytes};
}

Buffer PackedStore::Batch::send(Device& device, const Kernel& kernel, const OpDesc& desc, const Key& key,
                                PlainWeights::Access* plain) {
  for (const Upload& u : uploads_) {
    if (u.device != nullptr && u.key == key) return {u.held->copy->memory(), 0, key.bytes};
  }
  const Cancel* const scope = CancelScope::current();
  if (scope != nullptr && scope->stop()) scope->fail();
  const bool alone = key.bytes > kMostOverlapped;
  if (alone) finish();
  Upload& upload = uploads_[next_upload_];
  Staging& staging = staging_[next_upload_];
  finish(upload);
  auto held = std::make_shared<Upload::Held>(Upload::Held{store_.owner_.lock(), nullptr, store_.allocate(device, key.bytes)});
  reserve(staging, key.bytes);
  held->bytes = staging.memory;
  // The plain bytes stay for as long as a device has the node: it may be lost, and the node go to another.
  if (plain != nullptr) plain->bring_back(*desc.constant(key.input));
  kernel.prepack(desc, key.input, staging.memory.get());
  static const Cancel kNever;
  device.require_ready(scope != nullptr && scope->exists() ? *scope : kNever);
  const Buffer target{held->copy->memory(), 0, key.bytes};
  const Event done = device.copy({nullptr, {staging.memory.get(), 0, key.bytes}}, {&device, target}, {});
  upload = {key, desc.node, &device, done, std::move(held)};
  next_upload_ = (next_upload_ + 1) % kUploads;
  if (alone) {
    finish();
    staging = {};
  }
  return target;
}

// Where the time is over the device keeps the copy, the bytes and its runtime until it is done: leave_uploads.
void PackedStore::Batch::finish(Upload& upload) {
  if (upload.device == nullptr) return;
  static const Cancel kNever;
  const Cancel* const scope = CancelScope::current();
  const bool may_leave = scope != nullptr && scope->exists() && upload.held->owner != nullptr;
  const Cancel& cancel = may_leave ? *scope : kNever;
  try {
    if (!upload.device->wait_or_stop(upload.done, cancel)) cancel.fail();
  } catch (Error& e) {
    if (e.node[0] == '\0' && upload.node != nullptr) e.with_node(upload.node->name.c_str());
    throw;
  }
  upload.device = nullptr;
  const std::shared_ptr<Upload::Held> held = std::move(upload.held);
  note_use_of(held->copy);
  keep_copy(upload.key, held->copy);
}

void PackedStore::Batch::finish() {
  for (int i = 0; i < kUploads; ++i) finish(uploads_[(next_upload_ + i) % kUploads]);  // the older one first
}

// What is under way when something has failed. It is waited for, so that its memory is free for who tries again; but not where that
// is what the time is over for.
void PackedStore::Batch::leave_uploads() noexcept {
  for (Upload& upload : uploads_) {
    if (upload.device == nullptr) continue;
    Device& device = *std::exchange(upload.device, nullptr);
    const Cancel* const scope = CancelScope::current();
    if (scope != nullptr && scope->exists() && scope->stop() && upload.held->owner != nullptr) {
      device.leave_until(upload.done, std::move(upload.held));
      continue;
    }
    try {
      device.wait(upload.done);
    } catch (const Error&) {  // it has waited; the error that is on its way came first
    }
    upload.held = nullptr;
  }
}

}  // namespace evn
