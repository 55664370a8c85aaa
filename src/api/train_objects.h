// What trainers and loaders have in common.
#pragma once

#include "api/objects.h"
#include "api/train_host.h"

namespace evn {

// A handle of the module's own: the host may release what it has given.
class OwnHandle {
 public:
  OwnHandle() = default;
  OwnHandle(void* handle, HandleKind kind) : handle_(handle), kind_(kind) {}
  OwnHandle(OwnHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), kind_(other.kind_) {}
  OwnHandle& operator=(OwnHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(kind_, other.kind_);
    return *this;
  }
  ~OwnHandle() {
    if (handle_ != nullptr) g_handles.release(handle_, kind_);
  }
  void* get() const { return handle_; }

 private:
  void* handle_ = nullptr;
  HandleKind kind_ = HandleKind::kRuntime;
};

// Throws what a function of the module has reported.
inline void check_reported(evn_status status, const evn_error& reported) {
  if (status == EVN_OK) return;
  throw make_error(status, "%s", reported.message)
      .with_node(reported.node)
      .with_device(reported.device)
      .with_bytes(reported.bytes_requested, reported.bytes_available);
}

}  // namespace evn
