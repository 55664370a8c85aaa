// The memory of the host that copies to and from devices use while a run goes on: what comes after a copy and uses the same memory
// must wait for it, unless both only read.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"

namespace evn {

class HostCopies {
 public:
  void reserve(std::size_t copies) { copies_.reserve(copies); }
  void clear() noexcept { copies_.clear(); }
  bool empty() const { return copies_.empty(); }

  // `memory` lies on the host. Allocates nothing within what was reserved.
  void add(const Event& ended, const Buffer& memory, bool written) {
    if (ended.device == nullptr) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.address());
    copies_.push_back({ended, begin, begin + memory.size, written});
  }

  // Calls wait(event) for each copy that must have ended before `memory` is read, or written, and forgets those that wait() says
  // have ended.
  template <typename F>
  void each_before(const Buffer& memory, bool written, F&& wait) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.address());
    each_if(wait, [&](const Copy& c) { return (written || c.written) && begin < c.end && c.begin < begin + memory.size; });
  }
  // Calls `wait` for the copies that read memory of the host.
  template <typename F>
  void each_reading(F&& wait) {
    each_if(wait, [](const Copy& c) { return !c.written; });
  }
  template <typename F>
  void each(F&& wait) {
    each_if(wait, [](const Copy&) { return true; });
  }

 private:
  struct Copy {
    Event ended;
    std::uintptr_t begin, end;
    bool written;
  };
  template <typename F, typename G>
  void each_if(F&& wait, G&& is_meant) {
    for (std::size_t i = 0; i < copies_.size();) {
      if (!is_meant(copies_[i]) || !wait(copies_[i].ended)) {
        ++i;
        continue;
      }
      copies_[i] = copies_.back();
      copies_.pop_back();
    }
  }

  std::vector<Copy> copies_;
};

}  // namespace evn
