// Tells a forked child from its parent without a system call.
#pragma once

#include <cstdint>

#include "base/os/fork.h"

namespace evn::os {

class ForkMark {
 public:
  ForkMark() noexcept;
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  // Whether this process is a fork of the one that made the mark.
  bool in_child() const noexcept { return *word_ == 0 || made_in_ != fork_generation(); }

 private:
  volatile const std::uint32_t* word_;  // in a page that a fork's child sees zeroed; where there is none, one that stays
  // What the handler of forks counts: old systems have no such pages, and an emulator (qemu-user) may say that it zeroes them and
  // not.
  const std::uint32_t made_in_ = fork_generation();
};

}  // namespace evn::os
