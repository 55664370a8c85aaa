#include "instance.h"

#include <cstring>

#include "call.h"
#include "request.h"

namespace evn_node {
namespace {

constexpr int64_t kTensorBytes = 512;    // about what the library has for a tensor beside its elements
constexpr double kGeneration = 1 << 20;  // slots of a process are fewer: evener.h says how many handles there are

struct Deleted : Message {
  explicit Deleted(napi_ref reference) : reference(reference) {}
  void Deliver(Instance& instance) override { napi_delete_reference(instance.env, reference); }
  napi_ref reference;
};

}  // namespace

std::shared_ptr<Instance> Instance::Make(napi_env env) {
  auto made = std::make_shared<Instance>();
  made->env = env;
  made->thread_ = std::this_thread::get_id();
  napi_value name;
  Check(env, napi_create_string_utf8(env, "evener", NAPI_AUTO_LENGTH, &name));
  Check(env,
        napi_create_threadsafe_function(env, nullptr, nullptr, name, 0, 1, nullptr, nullptr, made.get(), Deliver, &made->queue_));
  Check(env, napi_unref_threadsafe_function(env, made->queue_));
  // Hooks run in the opposite order of their making: this one comes before the one that ends the queue.
  auto* kept = new std::shared_ptr<Instance>(made);
  Check(env, napi_add_env_cleanup_hook(env, End, kept));
  Check(env, napi_set_instance_data(env, made.get(), nullptr, nullptr));
  return made;
}

void Instance::End(void* self) {
  std::shared_ptr<Instance> instance = *static_cast<std::shared_ptr<Instance>*>(self);
  delete static_cast<std::shared_ptr<Instance>*>(self);
  {
    std::lock_guard<std::mutex> lock(instance->mutex_);
    instance->closed_ = true;
  }
  if (instance->api == nullptr) return;
  // What is under way reads and writes memory of this environment: it is asked to stop, and waited for.
  for (const Slot& slot : instance->slots_) {
    if (slot.kind == kKind_evn_cancel && slot.handle != nullptr)
      instance->api->cancel_request(static_cast<evn_cancel>(slot.handle));
  }
  for (const auto& pending : instance->pending) {
    bool done = false;
    instance->api->request_wait(pending->request, UINT64_MAX, &done, nullptr);
    instance->api->request_release(pending->request);
  }
  instance->pending.clear();
  for (const auto& work : instance->works) work->thread.join();
  instance->works.clear();
  for (Slot& slot : instance->slots_) {
    if (slot.handle == nullptr) continue;
    ReleaseHandle(instance->api, slot.kind, slot.handle);
    slot.handle = nullptr;
  }
}

double Instance::Add(Kind kind, void* handle, bool counts_memory) {
  uint32_t index;
  try {
    if (free_.empty()) {
      if (free_.capacity() <= slots_.size()) free_.reserve(2 * slots_.size() + 64);  // so that emptying a slot needs no memory
      slots_.emplace_back();
      free_.push_back(static_cast<uint32_t>(slots_.size() - 1));
    }
  } catch (const std::bad_alloc&) {
    ReleaseHandle(api, kind, handle);
    throw;
  }
  index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.handle = handle;
  slot.kind = kind;
  slot.bytes = 0;
  if (kind == kKind_evn_tensor && counts_memory) {
    evn_tensor_info info = EVN_TENSOR_INFO_INIT;
    if (api->tensor_get_info(static_cast<evn_tensor>(handle), &info, nullptr) == EVN_OK)
      slot.bytes = static_cast<int64_t>(info.size_bytes) + kTensorBytes;
    Tell(slot.bytes);
  }
  return slot.generation * kGeneration + index;
}

const Instance::Slot* Instance::Find(double id) const {
  if (!(id >= 0)) return nullptr;
  const auto generation = static_cast<uint64_t>(id / kGeneration);
  const auto index = static_cast<uint64_t>(id) - generation * static_cast<uint64_t>(kGeneration);
  if (index >= slots_.size()) return nullptr;
  const Slot& slot = slots_[index];
  return slot.generation == generation && slot.handle != nullptr ? &slot : nullptr;
}

const Instance::Slot* Instance::Find(double id, Kind kind) const {
  const Slot* slot = Find(id);
  return slot != nullptr && slot->kind == kind ? slot : nullptr;
}

void* Instance::Get(double id, Kind kind) const {
  const Slot* slot = Find(id, kind);
  return slot == nullptr ? nullptr : slot->handle;
}

void* Instance::Take(double id, Kind kind) {
  auto* slot = const_cast<Slot*>(Find(id, kind));
  if (slot == nullptr) return nullptr;
  if (slot->uses == 0) return Empty(slot);
  slot->is_closed = true;
  return nullptr;
}

void* Instance::Empty(Slot* slot) {
  void* handle = slot->handle;
  Tell(-slot->bytes);
  slot->handle = nullptr;
  slot->is_closed = false;
  slot->generation++;
  free_.push_back(static_cast<uint32_t>(slot - slots_.data()));
  return handle;
}

bool Instance::Use(double id) {
  auto* slot = const_cast<Slot*>(Find(id));
  if (slot == nullptr) return false;
  slot->uses++;
  return true;
}

void Instance::EndUse(double id) {
  auto* slot = const_cast<Slot*>(Find(id));
  if (slot == nullptr) return;  // Instance::End has released the handle
  if (--slot->uses != 0 || !slot->is_closed) return;
  const Kind kind = slot->kind;
  ReleaseHandle(api, kind, Empty(slot));
}

void Instance::Forget(double id) {
  auto* slot = const_cast<Slot*>(Find(id, kKind_evn_tensor));
  if (slot == nullptr) return;
  Tell(-slot->bytes);
  slot->bytes = 0;
}

void Instance::Tell(int64_t bytes) {
  int64_t now;
  if (bytes != 0) napi_adjust_external_memory(env, bytes, &now);
}

void Instance::Post(std::unique_ptr<Message> message) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return;
  if (napi_call_threadsafe_function(queue_, message.get(), napi_tsfn_nonblocking) == napi_ok) message.release();
}

void Instance::Deliver(napi_env env, napi_value, void* context, void* data) {
  std::unique_ptr<Message> message(static_cast<Message*>(data));
  if (env == nullptr) return;  // the environment is ending
  auto& instance = *static_cast<Instance*>(context);
  try {
    message->Deliver(instance);
  } catch (const Thrown&) {
  } catch (const std::bad_alloc&) {
    napi_throw_error(env, "EVN_ERROR_OUT_OF_MEMORY", "there is no memory for what a thread of the library tells");
  }
  bool pending = false;
  napi_value exception;
  if (napi_is_exception_pending(env, &pending) == napi_ok && pending &&
      napi_get_and_clear_last_exception(env, &exception) == napi_ok)
    napi_fatal_exception(env, exception);
}

void Instance::Begin() {
  if (under_way_++ == 0) napi_ref_threadsafe_function(env, queue_);
}

void Instance::End() {
  if (--under_way_ == 0) napi_unref_threadsafe_function(env, queue_);
}

void Instance::Delete(napi_ref reference, bool in_order) {
  if (!in_order && std::this_thread::get_id() == thread_) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (closed_) return;  // it goes with the environment
    lock.unlock();
    napi_delete_reference(env, reference);
    return;
  }
  try {
    Post(std::make_unique<Deleted>(reference));
  } catch (const std::bad_alloc&) {
    // It goes with the environment then, too.
  }
}

void Check(napi_env env, napi_status status) {
  if (status == napi_ok) return;
  bool pending = false;
  napi_is_exception_pending(env, &pending);
  if (!pending) {
    const napi_extended_error_info* info = nullptr;
    napi_get_last_error_info(env, &info);
    napi_throw_error(env, nullptr,
                     info != nullptr && info->error_message != nullptr ? info->error_message : "a call of N-API failed");
  }
  throw Thrown{};
}

napi_value MakeError(Instance& instance, const evn_error& error) {
  napi_env env = instance.env;
  napi_value make, self, made, arguments[7];
  Check(env, napi_get_reference_value(env, instance.make_error, &make));
  Check(env, napi_get_undefined(env, &self));
  const char* name = instance.api == nullptr ? (error.status == EVN_ERROR_VERSION ? "EVN_ERROR_VERSION" : "EVN_ERROR_IO")
                                             : instance.api->status_name(error.status);
  Check(env, napi_create_int32(env, error.status, &arguments[0]));
  Check(env, napi_create_string_utf8(env, name, NAPI_AUTO_LENGTH, &arguments[1]));
  Check(env, napi_create_string_utf8(env, error.message, NAPI_AUTO_LENGTH, &arguments[2]));
  Check(env, napi_create_string_utf8(env, error.node, NAPI_AUTO_LENGTH, &arguments[3]));
  Check(env, napi_create_string_utf8(env, error.device, NAPI_AUTO_LENGTH, &arguments[4]));
  arguments[5] = NumberOf(env, error.bytes_requested);
  arguments[6] = NumberOf(env, error.bytes_available);
  Check(env, napi_call_function(env, self, make, 7, arguments, &made));
  return made;
}

void Throw(Instance& instance, const evn_error& error) {
  napi_throw(instance.env, MakeError(instance, error));
  throw Thrown{};
}

void Throw(Instance& instance, evn_status status, const std::string& message) {
  evn_error error = EVN_ERROR_INIT;
  error.status = status;
  std::strncpy(error.message, message.c_str(), sizeof(error.message) - 1);
  Throw(instance, error);
}

}  // namespace evn_node
