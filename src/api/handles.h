// The handle table: the only way from a public handle to an object. A handle's value is generation << 32 | slot + 1; the object is
// reached by a counted pin, so that a release on another thread never takes it away from under a call. A slot that has had all its
// 2^32 generations is never used again.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/error.h"

namespace evn {

enum class HandleKind : std::uint8_t { kRuntime, kDevice, kTensor, kModel, kSession, kOperatorNode, kValue, kQuantizer };

// What a slot holds: a shared pointer of the type that its kind says.
class HandleObject {
 public:
  explicit HandleObject(HandleKind kind) : kind_(kind) {}
  virtual ~HandleObject() = default;
  HandleKind kind() const { return kind_; }

 private:
  HandleKind kind_;
};

// Puts an object into a free slot; throws EVN_ERROR_LIMIT when all are taken (2^18).
void* add_handle(std::unique_ptr<HandleObject> object);

// Pins the object, or returns nullptr for a handle that is NULL, stale, random or of another kind.
HandleObject* pin_handle(const void* handle, HandleKind kind) noexcept;
void unpin_handle(const void* handle) noexcept;

// Ends the handle. False when it is not a live handle of that kind. The object goes when its last pin does.
bool release_handle(const void* handle, HandleKind kind) noexcept;

// For tests: the slot that the next handle gets goes on with this generation.
void age_next_handle(std::uint32_t generation);

template <typename T>
struct HandleTraits;  // kind, name; specialised in objects.h

template <typename T>
class HandleObjectOf final : public HandleObject {
 public:
  explicit HandleObjectOf(T v) : HandleObject(HandleTraits<T>::kind), value(std::move(v)) {}
  T value;
};

template <typename T>
void* make_handle(T value) {
  return add_handle(std::make_unique<HandleObjectOf<T>>(std::move(value)));
}

// A pinned object of type T for the length of a call.
template <typename T>
class Pin {
 public:
  explicit Pin(const void* handle) : handle_(handle), object_(pin_handle(handle, HandleTraits<T>::kind)) {
    if (object_ == nullptr) fail(EVN_ERROR_INVALID_HANDLE, "the %s handle is not valid", HandleTraits<T>::name);
  }
  ~Pin() { unpin_handle(handle_); }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  T& operator*() const { return static_cast<HandleObjectOf<T>*>(object_)->value; }

 private:
  const void* handle_;
  HandleObject* object_;
};

}  // namespace evn
