// System calls of this test program that misbehave on demand: the program defines them itself, so that they stand before the C
// library's. Everything in this process passes here; a seam inside the library could not prove what the library does not ask it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace evn::test {

struct Interposer {
  std::atomic<bool> short_transfers{false};      // pread, read and write move one byte; every second call is interrupted
  std::atomic<std::int64_t> transfers{0};        // calls of these while short
  std::atomic<std::int64_t> thread_fails_at{0};  // pthread_create number k and all later ones give EAGAIN; 0: none
  std::atomic<std::int64_t> thread_calls{0};
  std::function<void()> before_pread;  // called once, before the next pread
};

Interposer& interposer();

}  // namespace evn::test
