// Sleeping on a word, with a limit. os.h has the plain calls.
#pragma once

#include <atomic>
#include <cstdint>

namespace evn::os {

inline const std::uint32_t* futex_word(const std::atomic<std::uint32_t>& a) { return reinterpret_cast<const std::uint32_t*>(&a); }

// Sleeps while *word == expected, so long at most (UINT64_MAX: without a limit); may wake early.
void futex_wait_for(const std::uint32_t* word, std::uint32_t expected, std::uint64_t timeout_ns) noexcept;
void futex_wake_one(const std::uint32_t* word) noexcept;

// As the two above, for a word in memory that several processes map; wakes all that sleep on it.
void shared_futex_wait_for(const std::uint32_t* word, std::uint32_t expected, std::uint64_t timeout_ns) noexcept;
void shared_futex_wake_all(const std::uint32_t* word) noexcept;

}  // namespace evn::os
