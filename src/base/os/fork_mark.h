// Tells a forked child from its parent without a system call.
#pragma once

#include <cstdint>

namespace evn::os {

class ForkMark {
 public:
  ForkMark() noexcept;
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  // Whether this process is a fork of the one that made the mark.
  bool in_child() const noexcept { return *word_ == 0; }

 private:
  volatile const std::uint32_t* word_;  // in a page that a fork's child sees zeroed; where there is none, one that stays
};

}  // namespace evn::os
