// Waiting for what other threads do.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace evn::test {

// Whether the condition comes to hold. Gives up after a minute, so that a defect is a failed test and not a hang.
inline bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

}  // namespace evn::test
