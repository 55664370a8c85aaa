// The trial of CLBlast on one device: are its results right, and from which size on is it faster than the library's own kernels?
#pragma once

#include <cstdint>
#include <string>

namespace evn {

class Device;

struct ClBlastVerdict {
  std::uint64_t from = UINT64_MAX;  // multiply-adds of the smallest product that is faster there; UINT64_MAX: none is
  bool is_right = false;            // its results are, whatever its speed
  std::string text;                 // a sentence
};

// Runs products of small whole numbers, whose sums float32 holds exactly, with CLBlast's kernels and with the device's own: any
// difference from the exact result ends the trial. With `measure` both are timed, in turns, and a product goes to CLBlast if it was
// at least a tenth faster for that size and every larger one; without, all products do. `now` is a clock in nanoseconds. Throws
// Error when the device fails.
ClBlastVerdict try_clblast(Device& device, bool measure, std::uint64_t (*now)());

}  // namespace evn
