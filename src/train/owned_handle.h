// A handle that a trainer or a loader has for itself: the host may release what it has given.
#pragma once

#include <utility>

#include "api/objects.h"

namespace evn_train {

class OwnedHandle {
 public:
  OwnedHandle() = default;
  OwnedHandle(void* handle, evn::HandleKind kind) : handle_(handle), kind_(kind) {}
  OwnedHandle(OwnedHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), kind_(other.kind_) {}
  OwnedHandle& operator=(OwnedHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(kind_, other.kind_);
    return *this;
  }
  ~OwnedHandle() {
    if (handle_ != nullptr) evn::g_handles.release(handle_, kind_);
  }
  void* get() const { return handle_; }

 private:
  void* handle_ = nullptr;
  evn::HandleKind kind_ = evn::HandleKind::kRuntime;
};

}  // namespace evn_train
