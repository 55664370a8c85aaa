// When a device uses CLBlast (Nugteren, "CLBlast: A Tuned OpenCL BLAS Library", 2018) for large products of matrices: where a trial
// on that device has shown that its results are right and that it is faster (docs/decisions/0012). And its calls.
#pragma once

#include <string>

#include "backends/opencl/clblast_library.h"
#include "backends/opencl/clblast_trial.h"
#include "backends/opencl/launcher.h"
#include "base/cache_file.h"
#include "base/mutex.h"
#include "device/backend.h"

namespace evn {

// What a call computes: C = alpha * A' * B', row-major and without gaps.
struct ClBlastProduct {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
  float alpha;
};

class ClBlast {
 public:
  static constexpr std::int64_t kSmallestSide = 16;                      // of a product that may go there: it is slow for vectors
  static constexpr std::uint64_t kSmallestProduct = 128ull * 128 * 128;  // multiply-adds; smaller ones start no trial

  // `mode` is the configuration's: "auto" (a device that is no CPU), "always" (each product that it can take, if its results are
  // right), "never". `identity` tells the device and its driver. `api`: the library, where it is not to be
  // the system's.
  ClBlast(Device& device, bool is_cpu, const DeviceRequest& request, const std::string& identity, const ClBlastApi* api = nullptr);

  // The kernel, if the product is to go there; else nullptr. All dims must be known. The first large product of a device starts the
  // trial, which takes seconds where CLBlast's kernels must be compiled. A product that asks for CLBlast (OpDesc::products) goes
  // there as with the mode "always", but not against "never". Safe to call from several threads. `why`: nullable; why it does not
  // go there, as long as this object lives.
  const Kernel* kernel_for(const OpDesc& desc, const char** why = nullptr);

  // Enqueues. Under the device's lock.
  void multiply(OpenClStep& step, const ClBlastProduct& p, const Buffer& a, const Buffer& b, const Buffer& c);

  // Gives up its memory; nothing may follow.
  void release() noexcept {
    for (WorkSpace& space : work_spaces_) space.memory = PooledMemory();
  }

  // The trial's result, or why there was none.
  std::string verdict() const;
  // Opens the library and measures, whatever the mode is. For the benchmark.
  ClBlastVerdict measure(std::uint64_t (*now)());
  // Trials that this object ran, instead of reading the result of an earlier one.
  int trials() const { return trials_; }

 private:
  struct WorkSpace {
    cl_command_queue queue = nullptr;
    PooledMemory memory;
  };
  void decide();
  void judge();
  std::string refuse();
  cl_mem work_space(cl_command_queue queue, std::size_t bytes);

  Device& device_;
  const std::string mode_;
  const bool is_cpu_;
  const LogSink log_;
  const CacheFile cached_;
  const ClBlastApi* api_;
  mutable Mutex mutex_;  // of what follows; held during the trial
  bool decided_ = false;
  int trials_ = 0;
  ClBlastVerdict verdict_;
  WorkSpace work_spaces_[2];  // of the device's two queues for kernels; under the device's lock
};

// "MatMul" and "Gemm" of float32, one right-hand matrix for all.
std::span<const Kernel> clblast_kernels();

// What `evener devices` says of a device that is not open.
std::string clblast_outlook(bool is_cpu);

}  // namespace evn
