// What the kernel files share: checks for `supports`, and how work is cut into tiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "backends/cpu/simd/cancel_points.h"
#include "base/checked.h"
#include "device/kernel.h"

namespace evn {

inline constexpr Refusal kNeedsFloat32 = "only float32";

// True when every input and output that is there is float32.
inline bool all_float32(const OpDesc& d) {
  for (const TensorDesc& t : d.inputs) {
    if (t.dtype != DType::kUndefined && t.dtype != DType::kFloat32) return false;
  }
  for (const TensorDesc& t : d.outputs) {
    if (t.dtype != DType::kUndefined && t.dtype != DType::kFloat32) return false;
  }
  return true;
}

inline const Epilogue* epilogue_of(const OpDesc& d) {
  const Epilogue& e = d.fusion.tail != nullptr ? d.fusion.tail->epilogue : d.node->epilogue;
  return e.empty() ? nullptr : &e;
}

inline constexpr Refusal kNoEpilogue = "no fused steps";

// For kernels of float32 alone that take no fused steps.
inline Refusal plain_float32(const OpDesc& d) {
  if (epilogue_of(d) != nullptr) return kNoEpilogue;
  return all_float32(d) ? nullptr : kNeedsFloat32;
}

// A tile should cost some 20 us, and there should be enough of them for eight threads where there is that much work. Costs are in
// elements touched or multiply-adds divided by what one core does in a nanosecond, so they do not depend on the machine.
inline constexpr double kTileCost = 1.0e6;  // multiply-adds of a tile
inline constexpr std::int64_t kManyTiles = 8;

// How many of `count` like units, of `unit_cost` multiply-adds each, make one tile: at least 1.
inline std::int64_t units_per_tile(std::int64_t count, double unit_cost, double tile_cost = kTileCost) {
  if (count <= 1) return 1;
  const double wanted = tile_cost / (unit_cost > 1 ? unit_cost : 1);
  if (wanted <= 1) return 1;
  return wanted >= static_cast<double>(count) ? count : static_cast<std::int64_t>(wanted);
}

// What tiles leave in the scratch memory is joined by the last of them: its first bytes, which the plan asks to be cleared, count
// those that are done.
inline constexpr std::size_t kDoneBytes = sizeof(std::int64_t);
// Behind `tiles` tiles: whether all are done now. Then the caller sees what the others have left.
inline bool are_all_done(const KernelArgs& args, std::int64_t tiles) {
  auto* const done = static_cast<std::int64_t*>(args.scratch.address());
  return __atomic_add_fetch(done, tiles, __ATOMIC_ACQ_REL) == args.plan->tiles;
}

// Elements per tile of a loop that is bound by memory.
inline constexpr std::int64_t kElementsPerTile = 1 << 15;

// For a call of a kernel that looks at `cancel` within its tiles.
CancelPoints points_of(const Cancel& cancel);

// Elements of one part for by_parts: a multiple of `unit`, of about kTileWorkPerPoint units of work.
std::int64_t part_of(std::int64_t unit, std::int64_t work);

// Calls f(begin, end) for consecutive parts of [0, count), with a cancellation point before each. All parts but the last are
// multiples of `unit`; one element takes `work` units. Returns false if the run is to stop.
template <typename F>
bool by_parts(CancelPoints* points, std::int64_t count, std::int64_t unit, std::int64_t work, F&& f) {
  const bool is_short = count <= kTileWorkPerPoint && count * work <= kTileWorkPerPoint;
  return in_parts(points, count, is_short ? count : part_of(unit, work), work, std::forward<F>(f));
}

// memcpy with cancellation points. Returns false if the run is to stop.
inline bool copy_by_parts(CancelPoints* points, void* to, const void* from, std::int64_t bytes) {
  return by_parts(points, bytes, 64, 1, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, static_cast<std::size_t>(end - begin));
  });
}

// std::fill_n with cancellation points. Returns false if the run is to stop.
template <typename T>
bool fill_by_parts(CancelPoints* points, T* to, std::int64_t count, T value) {
  return by_parts(points, count, 64, 1, [&](std::int64_t begin, std::int64_t end) { std::fill(to + begin, to + end, value); });
}

// Outputs of so many bytes are written past the caches: who reads them next finds them in memory in any case, and a line that is
// stored whole need not be read first. Not where the lines are those of input 0, which are there already.
inline constexpr std::size_t kPastCaches = std::size_t{32} << 20;
inline bool goes_past_caches(const KernelArgs& args) {
  return args.outputs[0].size >= kPastCaches && args.outputs[0].address() != args.inputs[0].address();
}

// Outputs of so many bytes are far away when they are written, so that their lines are better fetched while the sums are made.
inline constexpr std::size_t kFar = std::size_t{4} << 20;
inline bool is_far(const KernelArgs& args) { return args.outputs[0].size >= kFar; }

inline double bytes_of(const OpDesc& d) {
  double bytes = 0;
  for (const TensorDesc& t : d.inputs) bytes += t.dtype == DType::kUndefined ? 0.0 : static_cast<double>(t.size_bytes());
  for (const TensorDesc& t : d.outputs) bytes += t.dtype == DType::kUndefined ? 0.0 : static_cast<double>(t.size_bytes());
  return bytes;
}

}  // namespace evn
