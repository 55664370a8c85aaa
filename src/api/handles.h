// Handles of the public API: the only way from one to an object.
#pragma once

#include <memory>
#include <utility>

#include "api/handle_table.h"
#include "base/error.h"

namespace evn {

// The process's, of 2^18 slots.
extern constinit HandleTable g_handles;

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
  return g_handles.add(std::make_unique<HandleObjectOf<T>>(std::move(value)));
}

// A pinned object of type T for the length of a call.
template <typename T>
class Pin {
 public:
  explicit Pin(const void* handle) : handle_(handle), object_(g_handles.pin(handle, HandleTraits<T>::kind)) {
    if (object_ == nullptr) fail(EVN_ERROR_INVALID_HANDLE, "the %s handle is not valid", HandleTraits<T>::name);
  }
  ~Pin() { g_handles.unpin(handle_); }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  T& operator*() const { return object().value; }
  HandleObjectOf<T>& object() const { return *static_cast<HandleObjectOf<T>*>(object_); }

 private:
  const void* handle_;
  HandleObject* object_;
};

}  // namespace evn
