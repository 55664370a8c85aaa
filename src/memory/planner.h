// The lifetime planner: places values of known size and life into one arena, so that two values that live at the same time never
// share a byte. Greedy by size, the strategy that Pisarchyk and Lee (2020, "Efficient memory management for deep neural net
// inference") found best for offsets: each value, largest first, goes into the smallest gap that fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace evn {

struct Lifetime {
  std::size_t bytes = 0;   // 0: not placed, offset 0
  std::int32_t first = 0;  // step that writes it
  std::int32_t last = 0;   // last step that reads it, >= first
  std::size_t offset = 0;  // out
};

// Sets the offsets, multiples of `alignment` (a power of two); returns the arena's size.
std::size_t plan_arena(std::vector<Lifetime>& values, std::size_t alignment);

// Plans the arena for who has time: tries other orders than by size until the arena has no gap at its fullest moment, or some
// dozens have been tried. Never larger than what plan_arena gives.
std::size_t plan_small_arena(std::vector<Lifetime>& values, std::size_t alignment);

}  // namespace evn
