// What a kernel's `run` enqueues with: KernelArgs::context points to one of these. Arguments are set by position; the device's lock
// is held from begin to the end of `run`.
#pragma once

#include <cstring>
#include <type_traits>

#include "backends/opencl/program.h"
#include "backends/opencl/stream.h"
#include "base/checked.h"
#include "device/kernel.h"

namespace evn {

class ClBlast;
class Device;
class OpenClTuning;
struct ClBlastProduct;

// Work items in up to three dimensions. The first is rounded up to the local size: kernels check their range.
struct Grid {
  std::int64_t x = 1;
  std::int64_t y = 1;
  std::int64_t z = 1;
};

// Work items of a group of kernels for GPUs, where a function does not say otherwise: EVN_LOCAL of the build options.
inline constexpr std::int64_t kGpuLocalSize = 64;

class Launcher {
 public:
  Launcher(OpenClPrograms& programs, OpenClStep& step, const OpenClFound& found, Device& device, OpenClTuning& tuning,
           ClBlast* clblast = nullptr)
      : programs_(programs), step_(step), found_(found), device_(device), tuning_(tuning), clblast_(clblast) {}
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // True for a device whose work items are loops on cores: few and long ones suit it.
  bool is_cpu() const { return found_.has_kernels_of_cpus(); }
  std::int64_t group_items() const { return is_cpu() ? 1 : kGpuLocalSize; }
  std::int64_t compute_units() const { return found_.compute_units; }
  std::uint64_t local_bytes() const { return found_.local_bytes; }

  OpenClTuning& tuning() { return tuning_; }
  // Waits until what was enqueued so far has ended (OpenClStep::finish).
  void finish() { step_.finish(device_); }

  // EVN_LANES and EVN_COLUMNS of the sources: lanes of a vector, pixels of a register-blocked tile.
  int lanes() const { return programs_.lanes(); }
  int tile_columns() const { return lanes() == 8 ? 8 : 2 * lanes(); }

  // Enqueues one function over a grid. Buffers (of float32) become two arguments, a pointer and the first element's index; anything
  // else is handed over by value and must be laid out as in the source.
  template <typename... Args>
  void run(const OpenClFunction& function, Grid grid, const Args&... args) {
    if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0) return;
    begin(function);
    (set(args), ...);
    enqueue(function, grid);
  }

  // Enqueues a product of matrices of CLBlast's.
  void multiply(const ClBlastProduct& product, const Buffer& a, const Buffer& b, const Buffer& c);

  // Copies within the device.
  void copy(const Buffer& from, const Buffer& to, std::size_t bytes);

 private:
  template <typename T>
  void set(const T& value) {
    if constexpr (std::is_same_v<T, Buffer>) {
      set_buffer(value);
    } else {
      static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
      set_bytes(sizeof(T), &value);
    }
  }
  void begin(const OpenClFunction& function);
  void set_buffer(const Buffer& buffer);
  void set_bytes(std::size_t size, const void* value);
  void enqueue(const OpenClFunction& function, Grid grid);

  OpenClPrograms& programs_;
  OpenClStep& step_;
  const OpenClFound& found_;
  Device& device_;
  OpenClTuning& tuning_;
  ClBlast* clblast_;
  cl_kernel kernel_ = nullptr;
  cl_uint next_ = 0;
};

inline Launcher& launcher(const KernelArgs& args) { return *static_cast<Launcher*>(args.context); }

}  // namespace evn
