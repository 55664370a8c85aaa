// Where loops find out in the midst of a tile that the run is to stop. Loops say what they are about to do; after so much of it the run's
// Cancel is looked at, so that a tile of any size ends soon after the deadline.
#pragma once

#include <cstdint>

namespace evn {

// Units of work between two looks. A unit is a multiply-add of a loop over vectors, or an element that is moved from where it lies next to
// others; what takes longer counts for more. A core of the baseline does 1e9 and more of them in a second: 2^19, and a piece of 2^17 that
// had begun before, are less than 1 ms.
inline constexpr std::int64_t kTileWorkPerLook = std::int64_t{1} << 19;
// An element that is read from anywhere, and what finds out from where.
inline constexpr std::int64_t kFarElement = 16;
// An element of a function like exp, pow or erf.
inline constexpr std::int64_t kFunction = 8;
// Loops that are cut do about so much between two points.
inline constexpr std::int64_t kTileWorkPerPoint = std::int64_t{1} << 16;

// Of one thread's call of a kernel.
struct CancelPoints {
  bool (*look)(CancelPoints*);  // an address: what is compiled for an instruction set names nothing of the rest
  const void* cancel;
  std::int64_t left = kTileWorkPerLook;
  bool stopped = false;
};

static inline bool has_stopped(const CancelPoints* points) { return points != nullptr && points->stopped; }

// To be called before `work` units are done. True: they are not to be done, and what calls returns at once. null: never.
static inline bool stops(CancelPoints* points, std::int64_t work) {
  return points != nullptr && __builtin_expect((points->left -= work) < 0, 0) && points->look(points);
}

}  // namespace evn
