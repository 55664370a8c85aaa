// Cancellation points within a tile: loops say how much work they are about to do, and after so much of it the run's Cancel is
// looked at, so that a tile of any size ends soon after the deadline.
#pragma once

#include <cstdint>

namespace evn {

// Units of work between two looks at the clock. One unit is a multiply-add in a vectorized loop, or one element copied from
// contiguous memory; slower operations count for more. A core with the baseline instruction set does at least 1e9 units in a
// second. A loop may do one more part, of up to some 2^20 units, before it reaches its next cancellation point.
inline constexpr std::int64_t kTileWorkPerLook = std::int64_t{1} << 19;
// Units of one element that is read from a computed address, the computation included.
inline constexpr std::int64_t kFarElement = 16;
// Units of one element of exp, pow, erf and similar functions.
inline constexpr std::int64_t kFunction = 8;
// Units of one part of a loop that is split for cancellation points.
inline constexpr std::int64_t kTileWorkPerPoint = std::int64_t{1} << 16;

// Counts the work of one thread within one call of a kernel, and remembers whether the run is to stop.
struct CancelPoints {
  bool (*look)(CancelPoints*);  // an address: what is compiled for an instruction set names nothing of the rest
  const void* cancel;
  std::int64_t left = kTileWorkPerLook;
  bool stopped = false;
};

static inline bool has_stopped(const CancelPoints* points) { return points != nullptr && points->stopped; }

// A cancellation point: call it before `work` units are done. Returns true if the run is to stop; then the work must not be done
// and the caller returns. With null it returns false.
static inline bool stops(CancelPoints* points, std::int64_t work) {
  return points != nullptr && __builtin_expect((points->left -= work) < 0, 0) && points->look(points);
}

// A cancellation point that looks at the clock at once: in front of calls that are long by themselves.
static inline bool stops_now(CancelPoints* points) { return points != nullptr && points->look(points); }

// Calls f(begin, end) for consecutive parts of [0, count), `part` long but for the last, with a cancellation point before each; one
// element takes `work` units. Returns false if the run is to stop.
template <typename F>
static inline bool in_parts(CancelPoints* points, std::int64_t count, std::int64_t part, std::int64_t work, F&& f) {
  for (std::int64_t begin = 0; begin < count; begin += part) {
    const std::int64_t end = count - begin < part ? count : begin + part;
    if (stops(points, (end - begin) * work)) return false;
    f(begin, end);
  }
  return true;
}

// Collects the work of short pieces, so that a loop over them pays for a cancellation point only after `most` units.
struct WorkBatch {
  CancelPoints* points;
  std::int64_t most;
  std::int64_t work = 0;
};

// Behind the last piece, and where the batch is full. Returns true if the run is to stop.
static inline bool stops_behind(WorkBatch* batch) {
  const std::int64_t done = batch->work;
  batch->work = 0;
  return stops(batch->points, done);
}

// Before a piece of so many units. Returns true if the run is to stop.
static inline bool stops_before(WorkBatch* batch, std::int64_t units) {
  batch->work += units;
  return __builtin_expect(batch->work > batch->most, 0) && stops_behind(batch);
}

}  // namespace evn
