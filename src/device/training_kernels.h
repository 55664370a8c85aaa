// The kernels that only training needs are in libevener_train.so, which is compiled with the library, has what they share with
// others in it once more, and is opened when a graph first has such a node. A backend that has some keeps a TrainingKernels.
// docs/decisions/0086-training.md
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "device/kernel.h"

namespace evn {

// Operators that have kernels there.
bool is_of_training(const Node& node);

// What the module exports for a backend: its kernels, where `build` is the backend's number; else nullptr. `shared`: the backend's
// own.
using TrainingKernelsFunction = const KernelFamily* const* (*)(std::uint64_t build, void* shared, std::size_t* count);

// Differs where the two were not compiled from the same headers.
inline constexpr std::uint64_t kTrainingBuild =
    ((((sizeof(Kernel) * 4099 + sizeof(OpDesc)) * 4099 + sizeof(KernelPlan)) * 4099 + sizeof(KernelArgs)) * 4099 + sizeof(Node)) *
        4099 +
    EVN_VERSION_NUMBER;

class TrainingKernels {
 public:
  struct Module {
    const char* symbol;
    std::uint64_t build;
    void* shared;
  };

  // Opens the module, where it is there and fits. `own`: the kernels that the backend has without it. From any thread; later calls
  // do nothing.
  void open(const Module& module, std::span<const KernelFamily* const> own);
  // Takes these in the place of the module's, for programs that have them linked in (tests). Before anything is opened.
  void take(std::span<const KernelFamily* const> families, std::span<const KernelFamily* const> own);

  // All kernels, those of the module among them once it is open.
  std::span<const KernelFamily* const> kernels(std::span<const KernelFamily* const> own) const {
    const auto* all = all_.load(std::memory_order_acquire);
    return all != nullptr ? *all : own;
  }
  bool has_module() const { return all_.load(std::memory_order_acquire) != nullptr; }
  // Why there are none of the module's; nullptr: they are there, or nothing has asked for them yet. For explain.
  const char* why() const { return was_tried_.load(std::memory_order_acquire) && why_[0] != '\0' ? why_ : nullptr; }
  // Adds that to the reason why no kernel takes a node.
  void explain(const Node& node, std::string* reason) const;

 private:
  using Families = std::vector<const KernelFamily*>;
  const Families* find(const Module& module, std::span<const KernelFamily* const> own);
  static const Families* joined(std::span<const KernelFamily* const> own, std::span<const KernelFamily* const> families);

  Mutex mutex_;
  std::atomic<bool> was_tried_{false};
  std::atomic<const Families*> all_{nullptr};  // stays for the life of the process
  char why_[256] = {};                         // written once, before was_tried_
};

}  // namespace evn
