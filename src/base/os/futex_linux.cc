#include "base/os/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace evn::os {

namespace {

void wait_for(int operation, const std::uint32_t* word, std::uint32_t expected, std::uint64_t timeout_ns) noexcept {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const std::uint64_t most = std::min(timeout_ns, 3600 * kSecond);
  const timespec time{static_cast<std::time_t>(most / kSecond), static_cast<long>(most % kSecond)};
  ::syscall(SYS_futex, word, operation, expected, timeout_ns == UINT64_MAX ? nullptr : &time, nullptr, 0);
}

}  // namespace

void futex_wait_for(const std::uint32_t* word, std::uint32_t expected, std::uint64_t timeout_ns) noexcept {
  wait_for(FUTEX_WAIT_PRIVATE, word, expected, timeout_ns);
}

void shared_futex_wait_for(const std::uint32_t* word, std::uint32_t expected, std::uint64_t timeout_ns) noexcept {
  wait_for(FUTEX_WAIT, word, expected, timeout_ns);
}

void futex_wake_one(const std::uint32_t* word) noexcept { ::syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0); }

void shared_futex_wake_all(const std::uint32_t* word) noexcept {
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace evn::os
