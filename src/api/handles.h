// Handles of the public API: the only way from one to an object.
#pragma once

#include <memory>
#include <utility>

#include "api/handle_table.h"
#include "base/error.h"
#include "base/heap.h"

namespace evn {

// The process's, of 2^18 slots.
extern constinit HandleTable g_handles;

// Throws EVN_ERROR_INVALID_HANDLE, or EVN_ERROR_FORKED.
[[noreturn]] void fail_to_pin(const void* handle, HandleKind kind, const char* name);

// Ends a handle, in the library's floating-point environment: the object may go with it. NULL is EVN_OK.
evn_status release_handle(const void* handle, HandleKind kind) noexcept;

template <typename T>
struct HandleTraits;  // kind, name, and heap(const T&) if the objects belong to a runtime; specialised in objects.h

template <typename T>
class HandleObjectOf final : public HandleObject {
 public:
  explicit HandleObjectOf(T v) : HandleObject(HandleTraits<T>::kind), value(std::move(v)) {
    if constexpr (kCounted) HandleTraits<T>::begin_handle(value);
  }
  ~HandleObjectOf() override {
    if constexpr (kCounted) HandleTraits<T>::end_handle(value);
  }
  T value;

 private:
  static constexpr bool kCounted = requires(const T& v) { HandleTraits<T>::begin_handle(v); };  // the object counts its handles
};

template <typename T>
void* make_handle(T value) {
  return g_handles.add(std::make_unique<HandleObjectOf<T>>(std::move(value)));
}

// A pinned object of type T for the length of a call, in which the memory limit of its runtime counts what the thread allocates.
// Pins of one thread must end in reverse order of their begin.
template <typename T>
class Pin {
 public:
  explicit Pin(const void* handle) : object_(g_handles.pin(handle, HandleTraits<T>::kind)), own_{handle, t_own_pins} {
    if (object_ == nullptr) fail_to_pin(handle, HandleTraits<T>::kind, HandleTraits<T>::name);
    t_own_pins = &own_;
    if constexpr (requires(const T& value) { HandleTraits<T>::heap(value); }) counted_.enter(HandleTraits<T>::heap(object().value));
  }
  ~Pin() {
    counted_.leave();
    t_own_pins = own_.outer;
    g_handles.unpin(own_.handle);
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  T& operator*() const { return object().value; }
  HandleObjectOf<T>& object() const { return *static_cast<HandleObjectOf<T>*>(object_); }

 private:
  HandleObject* object_;
  const OwnPin own_;
  HeapScope counted_;
};

}  // namespace evn
